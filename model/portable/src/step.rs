//! The steps whose activations a caller may watch.

use std::fmt;

/// A step of the network that has just ended. Printed as the reference data names it: `block.3`.
///
/// What an observer is shown of each is channels-last, `[batch, rows, columns, channels]`; tokens are one row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Step {
    /// Patch embedding, before the position embedding or the prefix tokens: `[batch, 1, N, D]`.
    PatchEmbed,
    /// Layer `i` after its attention branch was added: `[batch, 1, tokens, D]`.
    Attention(usize),
    /// Layer `i`: `[batch, 1, tokens, D]`; in the second family the 9 prefix tokens come first.
    Block(usize),
    /// The backbone's output after the final norm, without prefix tokens: `[batch, h, w, D]`.
    Features,
    /// The head's ConvTranspose `i`, before InstanceNorm and SiLU.
    Deconv(usize),
    /// InstanceNorm and SiLU after ConvTranspose `i`.
    DeconvNorm(usize),
    /// The head's 1x1 convolution `i` with its InstanceNorm and SiLU.
    Conv(usize),
    /// `conv_seg`: `[batch, rows, columns, classes]`.
    Logits,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::PatchEmbed => f.write_str("patch_embed"),
            Step::Attention(i) => write!(f, "attention.{i}"),
            Step::Block(i) => write!(f, "block.{i}"),
            Step::Features => f.write_str("features"),
            Step::Deconv(i) => write!(f, "deconv.{i}"),
            Step::DeconvNorm(i) => write!(f, "deconv_norm.{i}"),
            Step::Conv(i) => write!(f, "conv.{i}"),
            Step::Logits => f.write_str("logits"),
        }
    }
}
