//! What a forward pass of our own kernels and its memory need to know of a card, on whatever device they run.

use sapiens_kernels::reference::{RopeTables, rope_periods};

use crate::card::{Family, ModelCard};
use crate::weights::{PATCH, PREFIX_TOKENS};

/// Of one network. An engine may pad the channels of its maps.
#[derive(Debug, Clone)]
pub(super) struct Sizes {
    pub embed_dim: usize,
    pub heads: usize,
    pub ffn_dim: usize,
    pub deconv_channels: Vec<usize>,
    pub conv_channels: Vec<usize>,
    pub classes: usize,
    /// Tokens in front of the patches'.
    pub prefix: usize,
}

/// Sines and cosines of a grid's rotary embedding, each `[patches, head_dim / 2]`: the second half of a head turns by the same angles as
/// the first.
pub(super) fn rotary_angles([rows, columns]: [usize; 2], head_dim: usize) -> [Vec<f32>; 2] {
    let tables = RopeTables::new(rows, columns, &rope_periods(head_dim));
    let half =
        |table: &[f32]| table.chunks_exact(head_dim).flat_map(|row| &row[..head_dim / 2]).copied().collect();
    [half(&tables.sin), half(&tables.cos)]
}

impl Sizes {
    pub fn of(card: &ModelCard) -> Self {
        let network = &card.network;
        Self {
            embed_dim: network.embed_dim,
            heads: network.heads,
            ffn_dim: network.ffn_dim,
            deconv_channels: network.deconv_channels.clone(),
            conv_channels: network.conv_channels.clone(),
            classes: card.classes.len(),
            prefix: if card.family == Family::Sapiens2 { PREFIX_TOKENS } else { 0 },
        }
    }

    pub fn head_dim(&self) -> usize {
        self.embed_dim / self.heads
    }

    /// Height and width of the logits of an input of `size`.
    pub fn logits(&self, size: [usize; 2]) -> [usize; 2] {
        size.map(|side| (side / PATCH) << self.deconv_channels.len())
    }

    /// Values of the largest map in each of the two that take turns, from the first deconvolution's output on, and the
    /// pixels of the last.
    pub fn maps(&self, patches: usize) -> ([usize; 2], usize) {
        let mut largest = [0; 2];
        let (mut pixels, mut turn) = (patches, 1);
        let deconv = self.deconv_channels.iter().map(|&channels| (4, channels));
        for (more, channels) in deconv.chain(self.conv_channels.iter().map(|&channels| (1, channels))) {
            pixels *= more;
            largest[turn] = largest[turn].max(pixels * channels);
            turn = 1 - turn;
        }
        (largest, pixels)
    }
}
