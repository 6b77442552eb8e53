//! Softmax attention over all tokens, between the projections to queries, keys and values and the one after: the norm of
//! queries and keys and the rotary embedding happen while they are packed. It knows nothing of the projections.
//!
//! Keys and values of all heads are packed first, then every block of queries is one task (`block.rs`).
#![allow(unsafe_code)]

mod block;
mod dots;
mod pack;
#[cfg(target_arch = "x86_64")]
mod tiles;

use self::block::{Block, Scratch};
#[cfg(target_arch = "x86_64")]
use self::dots::Pairs;
use self::dots::{Dots, Singles, Softmax};
use self::pack::{Part, Preparation};
#[cfg(target_arch = "x86_64")]
use self::tiles::Tiles;
#[cfg(target_arch = "x86_64")]
use super::level::{Avx512, Avx512Bf16};
use super::simd::{MAX_LANES, Simd, Task, with_simd};
use super::threads::SharedMut;
use super::{Aligned, Element, Level, Threads};

/// The longest vector of a head.
pub const MAX_HEAD_DIM: usize = 128;

/// Sizes of one attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttentionShape {
    /// Tokens, each of which attends to all.
    pub tokens: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads; each serves `heads / kv_heads` neighbouring query heads.
    pub kv_heads: usize,
    /// Length of one head's vectors: a multiple of 4 up to [`MAX_HEAD_DIM`].
    pub head_dim: usize,
}

/// Queries, keys or values of all tokens: in each token's row one head's vector after the other.
#[derive(Clone, Copy, Debug)]
pub struct Heads<'a, E> {
    values: &'a [E],
    stride: usize,
}

impl<'a, E: Element> Heads<'a, E> {
    /// `values` begins with the first token's first head; the next token's is `stride` values on. A projection to
    /// queries, keys and values at once, `[tokens, 3, heads, head_dim]`, gives the three as slices of itself from 0,
    /// `heads * head_dim` and twice that, each with `3 * heads * head_dim` as its stride.
    pub fn new(values: &'a [E], stride: usize) -> Self {
        Self { values, stride }
    }

    fn check(self, tokens: usize, row: usize, what: &str) {
        assert!(row <= self.stride, "attention, {what}: rows of {row} values every {}", self.stride);
        let least = (tokens - 1) * self.stride + row;
        assert!(self.values.len() >= least, "attention, {what}: {} values, not {least}", self.values.len());
    }

    #[inline(always)]
    fn vector(self, token: usize, head: usize, head_dim: usize) -> &'a [E] {
        &self.values[token * self.stride + head * head_dim..][..head_dim]
    }
}

/// RMSNorm of each head's queries and keys, before the rotary embedding.
#[derive(Clone, Copy, Debug)]
pub struct QkNorm<'a> {
    /// Weights of the queries' norm, `[head_dim]`.
    pub q: &'a [f32],
    /// Weights of the keys' norm, `[head_dim]`.
    pub k: &'a [f32],
    /// Added to the mean of squares.
    pub epsilon: f32,
}

/// The rotary embedding in bfloat16 with every step rounded, as [`reference::rope`](crate::reference::rope) defines it:
/// all queries and keys are rounded, those of tokens from `prefix` on are rotated.
#[derive(Clone, Copy, Debug)]
pub struct Rotary<'a> {
    /// Tokens in front that are not rotated.
    pub prefix: usize,
    /// Sines of the other tokens' angles, `[tokens - prefix, head_dim / 2]`: the second half of a vector has the same.
    pub sin: &'a [f32],
    /// Their cosines.
    pub cos: &'a [f32],
}

/// What one attention is of.
#[derive(Clone, Copy, Debug)]
pub struct AttentionInput<'a, E> {
    /// Queries of `heads` heads.
    pub q: Heads<'a, E>,
    /// Keys of `kv_heads` heads.
    pub k: Heads<'a, E>,
    /// Values of `kv_heads` heads.
    pub v: Heads<'a, E>,
    /// The norm of queries and keys, if they have one.
    pub norm: Option<QkNorm<'a>>,
    /// The rotary embedding, if there is one.
    pub rotary: Option<Rotary<'a>>,
}

/// How a level lays out one head.
#[derive(Clone, Copy, Debug)]
struct Packing {
    head_dim: usize,
    /// `head_dim` in whole vectors: columns of the packed values.
    width: usize,
    /// Columns of a panel of keys.
    panel: usize,
    /// As in [`Dots`].
    step: usize,
    queries: usize,
    keys: usize,
}

impl Packing {
    /// `bf16` is whether values are stored so.
    fn new(level: Level, bf16: bool, head_dim: usize) -> Self {
        match (level, bf16) {
            #[cfg(target_arch = "x86_64")]
            (Level::Amx(token), true) => Self::of(Tiles(token), head_dim),
            _ => with_simd!(level, |simd| Self::of(Singles(simd), head_dim)),
        }
    }

    fn of<D: Dots>(_: D, head_dim: usize) -> Self {
        Self {
            head_dim,
            width: head_dim.next_multiple_of(D::Simd::LANES),
            panel: D::Simd::WIDTH * D::Simd::LANES,
            step: D::STEP,
            queries: D::QUERIES,
            keys: D::KEYS,
        }
    }
}

/// The most columns that a panel has.
const MAX_PANEL: usize = 4 * MAX_LANES;

/// Memory for attention at one level, over values stored as `E`. One serves all layers.
#[derive(Debug)]
pub struct Attention<E> {
    level: Level,
    /// Packed keys of all heads, `[kv_heads][panels][units of the head dim][panel]` units.
    keys: Aligned<f32>,
    /// Packed values of all heads, `[kv_heads][units of tokens][width]` units. Columns beyond the head dim are never written.
    values: Aligned<f32>,
    scratch: Vec<Scratch>,
    largest: AttentionShape,
    stored: std::marker::PhantomData<E>,
}

impl<E: Element> Attention<E> {
    /// For shapes of this head dim that are nowhere above `largest`, and so many threads.
    ///
    /// # Panics
    /// If the head dim is not a multiple of 4 up to [`MAX_HEAD_DIM`].
    pub fn new(level: Level, largest: AttentionShape, threads: usize) -> Self {
        let AttentionShape { tokens, kv_heads, head_dim, .. } = largest;
        assert!(
            head_dim.is_multiple_of(4) && (4..=MAX_HEAD_DIM).contains(&head_dim),
            "attention: head dim {head_dim} is no multiple of 4 up to {MAX_HEAD_DIM}"
        );
        let packing = Packing::new(level, E::IS_BF16, head_dim);
        // Float32 keys and values have a unit for each value, pairs half as many.
        let depth = if E::IS_BF16 && level.multiplies_bf16() { 2 } else { 1 };
        let units = |values: usize| values.div_ceil(depth).next_multiple_of(packing.step);
        let columns = tokens.next_multiple_of(packing.panel);
        Self {
            level,
            keys: Aligned::zeros(kv_heads * columns * units(head_dim)),
            values: Aligned::zeros(kv_heads * units(tokens) * packing.width),
            scratch: (0..threads).map(|_| Scratch::new(packing)).collect(),
            largest,
            stored: std::marker::PhantomData,
        }
    }

    /// `softmax(q k^T head_dim^-0.5) v` of every head, `[tokens, heads * head_dim]`, to `out`.
    ///
    /// # Panics
    /// If the shape exceeds what this was made for, or an operand's length doesn't fit it.
    pub fn run<O: Element>(
        &mut self,
        threads: &mut Threads,
        shape: AttentionShape,
        input: AttentionInput<'_, E>,
        out: &mut [O],
    ) {
        self.check(shape, input, out.len());
        match self.level {
            #[cfg(target_arch = "x86_64")]
            Level::Amx(token) if E::IS_BF16 => {
                self.run_with((Tiles(token), Tiles(token)), threads, shape, input, out);
            }
            #[cfg(target_arch = "x86_64")]
            Level::Avx512Bf16(token) if E::IS_BF16 => {
                self.run_with((Pairs(token), Pairs(token)), threads, shape, input, out);
            }
            // The rotary embedding leaves queries and keys that bfloat16 can hold: nothing is lost.
            #[cfg(target_arch = "x86_64")]
            Level::Amx(token) if input.rotary.is_some() => {
                self.run_with(scores_of_pairs(token.avx512_bf16()), threads, shape, input, out);
            }
            #[cfg(target_arch = "x86_64")]
            Level::Avx512Bf16(token) if input.rotary.is_some() => {
                self.run_with(scores_of_pairs(token), threads, shape, input, out);
            }
            level => with_simd!(level, |simd| {
                self.run_with((Singles(simd), Singles(simd)), threads, shape, input, out);
            }),
        }
    }

    fn check(&self, shape: AttentionShape, input: AttentionInput<'_, E>, out: usize) {
        let AttentionShape { tokens, heads, kv_heads, head_dim } = shape;
        assert!(
            head_dim == self.largest.head_dim
                && tokens <= self.largest.tokens
                && kv_heads <= self.largest.kv_heads,
            "attention: {shape:?} exceeds {:?}",
            self.largest
        );
        assert!(tokens > 0 && kv_heads > 0 && heads.is_multiple_of(kv_heads), "attention: {shape:?}");
        input.q.check(tokens, heads * head_dim, "q");
        input.k.check(tokens, kv_heads * head_dim, "k");
        input.v.check(tokens, kv_heads * head_dim, "v");
        assert_eq!(out, tokens * heads * head_dim, "attention, values of {shape:?}");
        if let Some(QkNorm { q, k, .. }) = input.norm {
            assert_eq!((q.len(), k.len()), (head_dim, head_dim), "attention, weights of the norms");
        }
        if let Some(Rotary { prefix, sin, cos }) = input.rotary {
            assert!(prefix <= tokens, "attention: {prefix} of {tokens} tokens in front");
            let angles = (tokens - prefix) * head_dim / 2;
            assert_eq!((sin.len(), cos.len()), (angles, angles), "attention, angles");
        }
    }

    fn run_with<A: Dots, B: Dots<Simd = A::Simd>, O: Element>(
        &mut self,
        dots: (A, B),
        threads: &mut Threads,
        shape: AttentionShape,
        input: AttentionInput<'_, E>,
        out: &mut [O],
    ) {
        let AttentionShape { tokens, heads, kv_heads, head_dim } = shape;
        let packing = Packing::new(self.level, E::IS_BF16, head_dim);
        let Packing { width, panel, .. } = packing;
        let panels = tokens.div_ceil(panel);
        let units = A::units(head_dim);
        let (keys_of_head, values_of_head) = (panels * panel * units, B::units(tokens) * width);
        assert!(kv_heads * keys_of_head <= self.keys.len() && kv_heads * values_of_head <= self.values.len());
        let keys = SharedMut(self.keys.as_mut_ptr().cast::<u32>());
        let values = SharedMut(self.values.as_mut_ptr().cast::<u32>());

        let preparation = Preparation::of_keys(input.norm, input.rotary);
        threads.run_with(&mut self.scratch, kv_heads * panels, |scratch, task| {
            let (head, index) = (task / panels, task % panels);
            let first = index * panel;
            // SAFETY: lengths were checked; a panel is one task's alone.
            let (keys, values) = unsafe {
                (
                    keys.at(head * keys_of_head + first * units),
                    values.at(head * values_of_head + first / B::DEPTH * width),
                )
            };
            dots.0.vectorize(Pack {
                dots,
                packing,
                part: Part { heads: input.k, head, head_dim, first, last: tokens.min(first + panel) },
                v: input.v,
                preparation,
                rows: scratch.rows.as_mut_ptr().cast(),
                keys,
                values,
            });
        });

        let preparation = Preparation::of_queries(input.norm, input.rotary);
        let blocks = tokens.div_ceil(A::QUERIES);
        let out = SharedMut(out.as_mut_ptr());
        // Neighbouring tasks have the same keys, which then stay in the caches.
        threads.run_with(&mut self.scratch, heads * blocks, |scratch, task| {
            let (head, first) = (task / blocks, task % blocks * A::QUERIES);
            let kv_head = head / (heads / kv_heads);
            // SAFETY: lengths were checked; this head's part of these tokens is one task's alone, and nobody writes keys
            // or values any more.
            let (keys, values, out) = unsafe {
                (
                    keys.at(kv_head * keys_of_head).cast_const(),
                    values.at(kv_head * values_of_head).cast_const(),
                    out.at((first * heads + head) * head_dim),
                )
            };
            dots.0.vectorize(Block {
                dots,
                packing,
                tokens,
                queries: Part { heads: input.q, head, head_dim, first, last: tokens.min(first + A::QUERIES) },
                preparation,
                keys,
                values,
                scratch,
                out,
                out_stride: heads * head_dim,
            });
        });
    }
}

/// Scores from pairs of bfloat16, sums of values in float32.
#[cfg(target_arch = "x86_64")]
fn scores_of_pairs(token: Avx512Bf16) -> (Pairs, Singles<Avx512>) {
    (Pairs(token), Singles(token.avx512()))
}

/// Packs one panel of one head's keys, and the values of the same tokens. It is only made with pointers that
/// [`Attention`] vouches for.
struct Pack<'a, A, B, E> {
    dots: (A, B),
    packing: Packing,
    /// Keys, and of the same head and tokens the values.
    part: Part<'a, E>,
    v: Heads<'a, E>,
    preparation: Preparation<'a>,
    rows: *mut u32,
    keys: *mut u32,
    values: *mut u32,
}

impl<A: Dots, B: Dots<Simd = A::Simd>, E: Element> Task for Pack<'_, A, B, E> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Self { dots, packing: Packing { width, panel, .. }, part, v, preparation, rows, keys, values } =
            self;
        // SAFETY: the pointers are to as much as is packed, and panels have an even number of columns.
        unsafe {
            pack::keys::<A, E>(dots.0, part, panel, preparation, rows, keys);
            pack::values::<B, E>(Part { heads: v, ..part }, width, values);
        }
    }
}
