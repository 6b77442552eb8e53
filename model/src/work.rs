//! How much arithmetic a network does per frame, read off its card: what rates are computed from. Knows no engine.

use crate::card::{Family, ModelCard};
use crate::weights::{PATCH, PREFIX_TOKENS, expected_tensors};

/// Floating-point operations of one frame's forward pass, a multiplication and an addition counted as two. Products
/// only: everything else together is under 1 %.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Work {
    /// Patch embedding and the layers' linears.
    pub linears: f64,
    /// Scores and weighted sums of attention.
    pub attention: f64,
    /// ConvTranspose layers, 1x1 convolutions and the classifier.
    pub head: f64,
}

impl Work {
    /// The work of the card's network on an input of `width` x `height` pixels, multiples of 16.
    pub fn of(card: &ModelCard, width: usize, height: usize) -> Self {
        let network = &card.network;
        let patches = (width / PATCH * (height / PATCH)) as f64;
        let tokens = match card.family {
            Family::Sapiens => patches,
            Family::Sapiens2 => patches + PREFIX_TOKENS as f64,
        };
        let (mut linears, mut head) = (0.0, 0.0);
        let (mut pixels, mut convs_pixels) = (patches, patches);
        for spec in expected_tensors(card) {
            let weights = spec.shape.iter().product::<usize>() as f64;
            let is_matrix = spec.shape.len() > 1 && spec.name.ends_with(".weight");
            if spec.name.starts_with("decode_head.deconv_layers.") {
                // Each input pixel meets every weight once, and there are four times as many pixels behind it.
                head += 2.0 * pixels * weights;
                pixels *= 4.0;
                convs_pixels = pixels;
            } else if spec.name.starts_with("decode_head.") && is_matrix {
                head += 2.0 * convs_pixels * weights;
            } else if spec.name.starts_with("backbone.patch_embed.") && is_matrix {
                linears += 2.0 * patches * weights;
            } else if is_matrix {
                linears += 2.0 * tokens * weights;
            }
        }
        let attention = 4.0 * tokens * tokens * (network.embed_dim * network.layers) as f64;
        Self { linears, attention, head }
    }

    /// All of it.
    pub fn total(&self) -> f64 {
        self.linears + self.attention + self.head
    }
}

/// Number of values in the card's weights.
pub fn parameters(card: &ModelCard) -> usize {
    expected_tensors(card).iter().map(|spec| spec.shape.iter().product::<usize>()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Variant;

    #[test]
    fn work_and_parameters_are_those_of_the_published_tables() {
        // TFLOP at 1024 x 768 and billions of parameters, rounded as published.
        for (variant, total, parts, billions) in [
            (Variant::Sapiens03b, 4.73, Some([1.86, 0.93, 1.94]), 0.339),
            (Variant::Sapiens06b, 7.38, None, 0.67),
            (Variant::Sapiens1b, 11.26, None, 1.18),
            (Variant::Sapiens2b, 18.5, None, 2.2),
            (Variant::Sapiens2_04b, 3.58, Some([2.43, 0.93, 0.22]), 0.407),
            (Variant::Sapiens2_08b, 6.80, None, 0.83),
            (Variant::Sapiens2_1b, 11.54, None, 1.47),
            (Variant::Sapiens2_5b, 36.7, None, 5.09),
        ] {
            let card = ModelCard::of(variant);
            let work = Work::of(&card, 768, 1024);
            let near = |found: f64, expected: f64| (found / expected - 1.0).abs() < 0.015;
            assert!(near(work.total() / 1e12, total), "{variant}: {work:?}, expected {total}");
            for (found, expected) in
                [work.linears, work.attention, work.head].into_iter().zip(parts.into_iter().flatten())
            {
                assert!(near(found / 1e12, expected), "{variant}: {found}, expected {expected}");
            }
            let found = parameters(&card) as f64 / 1e9;
            assert!(near(found, billions), "{variant}: {found} billion, expected {billions}");
        }
    }
}
