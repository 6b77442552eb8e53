//! Where the time of one frame went.

use std::time::{Duration, Instant};

/// A part of the network, as benchmarks and profiles tell them apart. Layers of one sort count together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stage {
    /// Patch and position embedding.
    PatchEmbed,
    /// Norms of tokens, before the projections and at the end.
    Norm,
    /// Projection to queries, keys and values.
    Qkv,
    /// Norm and rotary embedding of queries and keys, scores, softmax, weighted sums.
    Attention,
    /// Projection after attention, added to the residual.
    Projection,
    /// First half of the feed-forward network, with its activation.
    Expand,
    /// Second half, added to the residual.
    Contract,
    /// The head's ConvTransposes.
    Deconv,
    /// InstanceNorm and SiLU between ConvTransposes.
    DeconvNorm,
    /// The head's 1x1 convolutions, with InstanceNorm and SiLU before them.
    Conv,
    /// The classifier.
    Logits,
}

impl Stage {
    /// Every stage, in the order of the network.
    pub const ALL: [Stage; 11] = [
        Stage::PatchEmbed,
        Stage::Norm,
        Stage::Qkv,
        Stage::Attention,
        Stage::Projection,
        Stage::Expand,
        Stage::Contract,
        Stage::Deconv,
        Stage::DeconvNorm,
        Stage::Conv,
        Stage::Logits,
    ];

    /// As benchmarks print it.
    pub fn name(self) -> &'static str {
        match self {
            Stage::PatchEmbed => "patch_embed",
            Stage::Norm => "norm",
            Stage::Qkv => "qkv",
            Stage::Attention => "attention",
            Stage::Projection => "proj",
            Stage::Expand => "ffn_expand",
            Stage::Contract => "ffn_contract",
            Stage::Deconv => "deconv",
            Stage::DeconvNorm => "deconv_norm",
            Stage::Conv => "conv",
            Stage::Logits => "logits",
        }
    }
}

/// The time that each [`Stage`] took; all zero where an engine doesn't tell them apart, or wasn't asked to
/// ([`Segmenter::time_stages`](crate::Segmenter::time_stages)).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StageTimes([Duration; Stage::ALL.len()]);

impl StageTimes {
    /// Time spent in `stage`.
    pub fn of(&self, stage: Stage) -> Duration {
        self.0[stage as usize]
    }

    /// All stages together.
    pub fn total(&self) -> Duration {
        self.0.iter().sum()
    }

    pub(crate) fn add(&mut self, stage: Stage, time: Duration) {
        self.0[stage as usize] += time;
    }
}

/// Reads the clock at the end of each stage.
#[derive(Debug)]
pub(crate) struct StageClock {
    last: Instant,
    times: StageTimes,
}

impl StageClock {
    pub(crate) fn start() -> Self {
        Self { last: Instant::now(), times: StageTimes::default() }
    }

    /// Everything since the last call was `stage`.
    pub(crate) fn end(&mut self, stage: Stage) {
        let now = Instant::now();
        self.times.add(stage, now - self.last);
        self.last = now;
    }

    pub(crate) fn times(&self) -> StageTimes {
        self.times
    }
}

/// When a part of a frame's work was done, counted from when its engine was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Span {
    /// When it began.
    pub begin: Duration,
    /// When it was done.
    pub end: Duration,
}

/// When a GPU did what. Its clock counts milliseconds in float32: to two microseconds in the first quarter of a minute, coarser later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DeviceSpans {
    /// The frame's way up; nearly nothing for a frame that is there already.
    pub upload: Span,
    /// From the frame to its labels.
    pub compute: Span,
    /// The labels' way down.
    pub download: Span,
}

/// How long each step of one frame took.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Timing {
    /// Frame to network input.
    pub preprocess: Duration,
    /// Network input to logits.
    pub network: Duration,
    /// Logits to labels.
    pub postprocess: Duration,
    /// What `network` consists of.
    pub stages: StageTimes,
    /// When that was, on a GPU.
    pub device: Option<DeviceSpans>,
}

impl Timing {
    /// All steps together.
    pub fn total(&self) -> Duration {
        self.preprocess + self.network + self.postprocess
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_are_in_order_and_have_names_of_their_own() {
        for (i, stage) in Stage::ALL.into_iter().enumerate() {
            assert_eq!(stage as usize, i);
            assert!(Stage::ALL[..i].iter().all(|other| other.name() != stage.name()));
        }
    }

    #[test]
    fn stages_add_up() {
        let mut clock = StageClock::start();
        let start = clock.last;
        for stage in [Stage::Qkv, Stage::Attention, Stage::Qkv] {
            std::thread::sleep(Duration::from_millis(1));
            clock.end(stage);
        }
        let times = clock.times();
        assert_eq!(times.total(), clock.last - start);
        assert_eq!(times.of(Stage::Qkv) + times.of(Stage::Attention), times.total());
        assert!(times.of(Stage::Attention) >= Duration::from_millis(1));
    }
}
