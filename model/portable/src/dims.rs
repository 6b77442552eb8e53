//! The sizes a network is built for: all that the checkpoint's tensors and their owner must agree on.

/// Which of the two architectures, with the sizes only that one has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Family {
    /// The first: position embedding, LayerNorm, GELU.
    Sapiens {
        /// The grid `[rows, columns]` of patches that `backbone.pos_embed` was trained for.
        pos_embed_grid: [usize; 2],
    },
    /// The second: class and storage tokens, RMSNorm, rotary embedding, SwiGLU.
    Sapiens2 {
        /// This many first and last layers have a key/value head per query head; in the layers between, each
        /// key/value head serves two neighbouring query heads.
        full_kv_layers: usize,
    },
}

/// Sizes of a network.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Dims {
    /// Architecture.
    pub family: Family,
    /// Width of a token, D; a multiple of `heads`.
    pub embed_dim: usize,
    /// Transformer layers.
    pub layers: usize,
    /// Query heads.
    pub heads: usize,
    /// Hidden width of the feed-forward network.
    pub ffn_dim: usize,
    /// Output channels of the head's ConvTranspose layers; each doubles height and width.
    pub deconv_channels: Vec<usize>,
    /// Output channels of the head's 1x1 convolutions.
    pub conv_channels: Vec<usize>,
    /// Classes, the channels of the logits.
    pub classes: usize,
}

/// Side of a patch: both sides of the input are multiples of it.
pub const PATCH: usize = 16;

/// Tokens in front of the patches in the second family: a class token and eight storage tokens.
pub(crate) const STORAGE_TOKENS: usize = 8;

impl Dims {
    /// Length of one head's query: D / heads.
    pub fn head_dim(&self) -> usize {
        self.embed_dim / self.heads
    }

    /// Key/value heads of layer `layer`.
    pub fn kv_heads(&self, layer: usize) -> usize {
        match self.family {
            Family::Sapiens2 { full_kv_layers }
                if layer >= full_kv_layers && layer + full_kv_layers < self.layers =>
            {
                self.heads / 2
            }
            _ => self.heads,
        }
    }

    /// Height and width of the logits for an input of `height` x `width`.
    pub fn logits_size(&self, height: usize, width: usize) -> [usize; 2] {
        [height, width].map(|side| (side / PATCH) << self.deconv_channels.len())
    }
}
