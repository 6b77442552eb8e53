//! Attention, and what is done to queries and keys before it: `cuda/attention.cu`, `cuda/rotary.cu`.

use std::sync::Arc;

use super::modules::Function;
use super::{Capability, CudaError, Gpu, Precision, Slice, SliceMut, Stream, aligned, number, size};

/// A kernel for heads of up to a length. `cuda/attention.cu` has the same sizes.
#[derive(Debug)]
struct Block {
    /// Longest head.
    head: usize,
    /// Rows of 16 queries that a warp has.
    queries: u32,
    /// Keys that a block of threads reads at once.
    keys: u32,
}

const WARPS: u32 = 4;

impl Block {
    /// The kernel for heads of `head_dim`, if they aren't too long.
    fn of(head_dim: usize, capability: Capability) -> Option<Self> {
        // Longer heads have more sums: registers for one row of queries only, and on Turing shared memory for fewer keys.
        let long = if capability < Capability::AMPERE { 32 } else { 64 };
        let blocks = [(32, 2, 64), (64, 2, 64), (80, 2, 64), (128, 1, long)];
        let block = blocks.into_iter().find(|(head, ..)| head_dim <= *head);
        block.map(|(head, queries, keys)| Block { head, queries, keys })
    }

    /// Two buffers of keys and values, rows of them eight values apart.
    fn shared_memory(&self) -> u32 {
        2 * 2 * self.keys * (self.head as u32 + 8) * size_of::<u16>() as u32
    }

    fn rows(&self) -> usize {
        (WARPS * self.queries * 16) as usize
    }
}

/// Queries, keys and values in one buffer: rows of a token's heads of queries, then of keys, then of values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QkvShape {
    /// Rows.
    pub tokens: usize,
    /// Heads of queries.
    pub heads: usize,
    /// Heads of keys and of values; each serves `heads / kv_heads` neighbouring heads of queries.
    pub kv_heads: usize,
    /// Length of a head's vectors.
    pub head_dim: usize,
    /// Values from the start of a head to that of the next, a multiple of 8; what is between must be zero.
    pub head_stride: usize,
}

impl QkvShape {
    /// Values of a token.
    pub fn stride(&self) -> usize {
        (self.heads + 2 * self.kv_heads) * self.head_stride
    }

    fn check(&self, len: usize) {
        let QkvShape { tokens, heads, kv_heads, head_dim, head_stride } = *self;
        assert!(kv_heads > 0 && heads.is_multiple_of(kv_heads), "attention: {heads} heads over {kv_heads}");
        let fits = head_dim > 0 && head_dim.is_multiple_of(4) && head_dim <= head_stride;
        assert!(fits && head_stride.is_multiple_of(8), "attention: heads of {head_dim}, {head_stride} apart");
        assert!(len >= size(&[tokens, self.stride()]), "attention: {len} values of {tokens} tokens");
    }
}

/// As `cuda/attention.cu` takes them.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct AttentionArguments {
    q: u64,
    k: u64,
    v: u64,
    out: u64,
    tokens: u32,
    group: u32,
    head_dim: u32,
    stride: u32,
    out_stride: u32,
    scale: f32,
}

/// The kernel for one length of heads.
#[derive(Debug)]
pub struct Attention {
    block: Block,
    function: Function,
    head_dim: usize,
}

impl Attention {
    /// For heads of `head_dim`, at most 128.
    ///
    /// # Errors
    /// [`CudaError::NoBf16`], or if the kernel can't be found.
    ///
    /// # Panics
    /// If heads are longer.
    pub fn new(gpu: &Arc<Gpu>, precision: Precision, head_dim: usize) -> Result<Self, CudaError> {
        let capability = gpu.properties().capability;
        precision.check(capability)?;
        let Some(block) = Block::of(head_dim, capability) else { panic!("attention: heads of {head_dim}") };
        let name = format!("attention_{}_{}", precision.name(), block.head);
        let function = Function::find(gpu, &name, WARPS * 32, block.shared_memory())?;
        Ok(Self { block, function, head_dim })
    }

    /// `softmax(q k^T * head_dim^-0.5) v`, giving `[tokens, heads * head_stride]`.
    ///
    /// # Errors
    /// If it can't be queued.
    ///
    /// # Panics
    /// If sizes don't fit together.
    pub fn run(
        &self,
        stream: &Stream,
        shape: QkvShape,
        qkv: Slice<'_, u16>,
        out: SliceMut<'_, u16>,
    ) -> Result<(), CudaError> {
        shape.check(qkv.len());
        let QkvShape { tokens, heads, kv_heads, head_dim, head_stride } = shape;
        assert!(head_dim == self.head_dim && head_stride <= self.block.head, "attention: {shape:?}");
        assert!(out.len() >= size(&[tokens, heads, head_stride]), "attention: room for {}", out.len());
        let part = |first: usize| aligned(qkv.part(first..).at(stream));
        let arguments = AttentionArguments {
            q: part(0),
            k: part(heads * head_stride),
            v: part((heads + kv_heads) * head_stride),
            out: aligned(out.at(stream)),
            tokens: number(tokens),
            group: number(heads / kv_heads),
            head_dim: number(head_stride),
            stride: number(shape.stride()),
            out_stride: number(heads * head_stride),
            scale: (head_dim as f32).powf(-0.5) * std::f32::consts::LOG2_E,
        };
        let blocks = tokens.div_ceil(self.block.rows());
        // SAFETY: the struct is the kernel's, and all that it names was measured above.
        unsafe { stream.launch(&self.function, [number(blocks), number(heads), 1], &arguments) }
    }
}

/// The angles of tokens' rotation and which tokens have them.
#[derive(Debug, Clone, Copy)]
pub struct Angles<'a> {
    /// Tokens in front that have no place and aren't rotated.
    pub prefix: usize,
    /// Sines of the others, `[tokens - prefix, head_dim / 2]`: the second half of a vector has the first one's.
    pub sin: Slice<'a, f32>,
    /// Cosines.
    pub cos: Slice<'a, f32>,
}

/// Weights of the norms of queries and of keys, `[head_dim]` each.
#[derive(Debug, Clone, Copy)]
pub struct QkNorm<'a> {
    /// Of queries.
    pub q: Slice<'a, f32>,
    /// Of keys.
    pub k: Slice<'a, f32>,
    /// Added to the mean square.
    pub epsilon: f32,
}

/// As `cuda/rotary.cu` takes them.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct RotaryArguments {
    x: u64,
    q_weight: u64,
    k_weight: u64,
    sin: u64,
    cos: u64,
    tokens: u32,
    prefix: u32,
    heads: u32,
    kv_heads: u32,
    head_dim: u32,
    head_stride: u32,
    stride: u32,
    epsilon: f32,
}

const ROTARY_WARPS: usize = 4;

/// The kernel for queries' and keys' norm and rotary embedding.
#[derive(Debug)]
pub struct Rotary {
    function: Function,
}

impl Rotary {
    /// Of one precision.
    ///
    /// # Errors
    /// [`CudaError::NoBf16`], or if the kernel can't be found.
    pub fn new(gpu: &Arc<Gpu>, precision: Precision) -> Result<Self, CudaError> {
        precision.check(gpu.properties().capability)?;
        let name = format!("rotary_{}", precision.storage());
        Ok(Self { function: Function::find(gpu, &name, ROTARY_WARPS as u32 * 32, 0)? })
    }

    /// RMSNorm of each head of queries and keys and its rotary embedding, in place; see
    /// [`rope`](crate::reference::rope) for its roundings.
    ///
    /// # Errors
    /// If it can't be queued.
    ///
    /// # Panics
    /// If sizes don't fit together.
    pub fn run(
        &self,
        stream: &Stream,
        shape: QkvShape,
        qkv: SliceMut<'_, u16>,
        norm: QkNorm<'_>,
        angles: Angles<'_>,
    ) -> Result<(), CudaError> {
        shape.check(qkv.len());
        let QkvShape { tokens, heads, kv_heads, head_dim, head_stride } = shape;
        assert!(head_dim <= 128, "rotary: heads of {head_dim}");
        assert!(
            norm.q.len() >= head_dim && norm.k.len() >= head_dim,
            "rotary: weights of heads of {head_dim}"
        );
        let turned = tokens.checked_sub(angles.prefix);
        let enough = |x: Slice<'_, f32>| turned.is_some_and(|turned| x.len() >= turned * head_dim / 2);
        assert!(enough(angles.sin) && enough(angles.cos), "rotary: angles of {tokens} tokens");
        let arguments = RotaryArguments {
            x: aligned(qkv.at(stream)),
            q_weight: norm.q.at(stream),
            k_weight: norm.k.at(stream),
            sin: angles.sin.at(stream),
            cos: angles.cos.at(stream),
            tokens: number(tokens),
            prefix: number(angles.prefix),
            heads: number(heads),
            kv_heads: number(kv_heads),
            head_dim: number(head_dim),
            head_stride: number(head_stride),
            stride: number(shape.stride()),
            epsilon: norm.epsilon,
        };
        let vectors = tokens * (heads + kv_heads);
        // SAFETY: the struct is the kernel's, and all that it names was measured above.
        unsafe { stream.launch(&self.function, [number(vectors.div_ceil(ROTARY_WARPS)), 1, 1], &arguments) }
    }
}
