//! All memory of one frame's forward pass, made once per input size.

use sapiens_kernels::cpu::product::{Moments, Workspace as ProductWorkspace};
use sapiens_kernels::cpu::{Aligned, Attention, AttentionShape, Element};
use sapiens_kernels::reference::position_embedding;

use super::memory;
use super::network::{INSTANCE_NORM_EPSILON, Network, Positions};
use crate::engine::sizes::{Sizes, rotary_angles};
use crate::error::Result;
use crate::weights::PATCH;

#[derive(Debug)]
pub(super) struct Workspace<E> {
    /// Height and width of the input.
    pub size: [usize; 2],
    pub product: ProductWorkspace,
    pub attention: Attention<E>,
    /// The residual stream, `[tokens, D]`.
    pub x: Aligned<f32>,
    /// `[tokens, D]`: a norm's output, then attention's.
    pub narrow: Aligned<E>,
    /// Patches, then queries, keys and values, then the feed-forward network's hidden values.
    pub wide: Aligned<E>,
    /// The head's maps, in turn.
    pub maps: [Aligned<E>; 2],
    /// Of the map just read and the one being made.
    pub moments: [Moments; 2],
    /// `[height, width, classes]`.
    pub logits: Aligned<f32>,
    /// The position embedding of this grid, where there is one.
    pub pos_embed: Vec<f32>,
    /// Sines and cosines of this grid, each `[patches, head_dim / 2]`, where there are any.
    pub rotary: Option<[Vec<f32>; 2]>,
}

impl<E: Element> Workspace<E> {
    /// For inputs of `size`, multiples of a patch.
    ///
    /// # Errors
    /// If there isn't so much memory.
    pub fn new(network: &Network<E>, size: [usize; 2], threads: usize) -> Result<Self> {
        let sizes = &network.sizes;
        let [height, width] = size;
        let what = format!("a network input of {width} x {height}");
        memory::expect(bytes::<E>(sizes, size.map(|side| side / PATCH)), &what)?;
        let [rows, columns] = size.map(|side| side / PATCH);
        let (patches, head_dim) = (rows * columns, sizes.head_dim());
        let tokens = sizes.prefix + patches;
        let largest = AttentionShape { tokens, heads: sizes.heads, kv_heads: sizes.heads, head_dim };
        let wide = tokens * sizes.ffn_dim.max(3 * sizes.embed_dim);
        let (maps, pixels) = sizes.maps(patches);
        let (pos_embed, rotary) = match &network.positions {
            Positions::Embedding { values, grid } => {
                (position_embedding(values, *grid, (rows, columns)), None)
            }
            Positions::Rotary { .. } => (Vec::new(), Some(rotary_angles([rows, columns], head_dim))),
        };
        Ok(Self {
            size,
            product: ProductWorkspace::default(),
            attention: Attention::new(network.level, largest, threads),
            x: Aligned::zeros(tokens * sizes.embed_dim),
            narrow: Aligned::zeros(tokens * sizes.embed_dim),
            wide: Aligned::zeros(wide.max(3 * size[0] * size[1])),
            maps: maps.map(Aligned::zeros),
            moments: std::array::from_fn(|_| Moments::new(INSTANCE_NORM_EPSILON)),
            logits: Aligned::zeros(pixels * sizes.classes),
            pos_embed,
            rotary,
        })
    }
}

impl<E: Element> Workspace<E> {
    /// Where the network's input goes: rows of patches.
    pub fn patches(&mut self) -> &mut [E] {
        &mut self.wide[..3 * self.size[0] * self.size[1]]
    }
}

/// About what a workspace of this grid takes; what is left out is small.
fn bytes<E>(sizes: &Sizes, [rows, columns]: [usize; 2]) -> u64 {
    let (maps, pixels) = sizes.maps(rows * columns);
    let tokens = sizes.prefix + rows * columns;
    let f32s = tokens * sizes.embed_dim + pixels * sizes.classes;
    // Norms' outputs, what is wide, and attention's packed keys and values.
    let elements =
        tokens * (3 * sizes.embed_dim + sizes.ffn_dim.max(3 * sizes.embed_dim)) + maps[0] + maps[1];
    (f32s * size_of::<f32>() + elements * size_of::<E>()) as u64
}
