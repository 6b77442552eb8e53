//! How much arithmetic a network does per frame, read off its card, and how much a processor could do: what rates and
//! shares are computed from. Knows the stages that engines tell apart, and no engine.

use sapiens_kernels::cpu::{Threads, probe};

use crate::backend::{Backend, Precision};
use crate::card::{Family, ModelCard};
use crate::engine::Stage;
use crate::weights::{PATCH, PREFIX_TOKENS, expected_tensors};

/// Floating-point operations of one frame's forward pass, a multiplication and an addition counted as two. Products
/// only: everything else together is under 1 %.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Work([f64; Stage::ALL.len()]);

impl Work {
    /// The work of the card's network on an input of `width` x `height` pixels, multiples of 16.
    pub fn of(card: &ModelCard, width: usize, height: usize) -> Self {
        let network = &card.network;
        let patches = (width / PATCH * (height / PATCH)) as f64;
        let tokens = match card.family {
            Family::Sapiens => patches,
            Family::Sapiens2 => patches + PREFIX_TOKENS as f64,
        };
        let mut work = Self([0.0; Stage::ALL.len()]);
        let mut pixels = patches;
        for spec in expected_tensors(card) {
            let Some(stage) = stage_of(&spec.name).filter(|_| spec.shape.len() > 1) else { continue };
            let rows = match stage {
                Stage::PatchEmbed => patches,
                Stage::Deconv | Stage::Conv | Stage::Logits => pixels,
                _ => tokens,
            };
            work.0[stage as usize] += 2.0 * rows * spec.shape.iter().product::<usize>() as f64;
            if stage == Stage::Deconv {
                // Each input pixel has met every weight once, and there are four times as many pixels behind it.
                pixels *= 4.0;
            }
        }
        work.0[Stage::Attention as usize] =
            4.0 * tokens * tokens * (network.embed_dim * network.layers) as f64;
        work
    }

    /// That of one stage; zero for those without products.
    pub fn stage(&self, stage: Stage) -> f64 {
        self.0[stage as usize]
    }

    /// All of it.
    pub fn total(&self) -> f64 {
        self.0.iter().sum()
    }
}

/// The stage whose products the weight of this name is in.
fn stage_of(name: &str) -> Option<Stage> {
    const PARTS: [(&str, Stage); 13] = [
        (".patch_embed.", Stage::PatchEmbed),
        (".attn.qkv.", Stage::Qkv),
        (".attn.wq.", Stage::Qkv),
        (".attn.wk.", Stage::Qkv),
        (".attn.wv.", Stage::Qkv),
        (".attn.proj.", Stage::Projection),
        (".ffn.layers.0.0.", Stage::Expand),
        (".ffn.w12.", Stage::Expand),
        (".ffn.layers.1.", Stage::Contract),
        (".ffn.w3.", Stage::Contract),
        (".deconv_layers.", Stage::Deconv),
        (".conv_layers.", Stage::Conv),
        (".conv_seg.", Stage::Logits),
    ];
    PARTS.into_iter().find(|(part, _)| name.contains(part)).map(|(_, stage)| stage)
}

/// Floating-point operations per second that the instructions of `backend` do from registers alone on `threads` threads,
/// measured now, in some hundredths of a second. Nothing where no kernels of ours run, or threads can't be started.
pub fn peak_rate(backend: Backend, threads: usize) -> Option<f64> {
    backend.instructions?;
    let level = backend.level().ok()?;
    Some(probe::peak(level, backend.precision == Precision::Bf16, &mut Threads::new(threads).ok()?))
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
            let attention = work.stage(Stage::Attention);
            let head: f64 = [Stage::Deconv, Stage::Conv, Stage::Logits].map(|s| work.stage(s)).iter().sum();
            let found = [work.total() - attention - head, attention, head];
            for (found, expected) in found.into_iter().zip(parts.into_iter().flatten()) {
                assert!(near(found / 1e12, expected), "{variant}: {found}, expected {expected}");
            }
            let found = parameters(&card) as f64 / 1e9;
            assert!(near(found, billions), "{variant}: {found} billion, expected {billions}");
        }
    }
}
