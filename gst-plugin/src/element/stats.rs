//! The `stats` property: what frames became and where the time goes.

use std::time::Duration;

use sapiens_model::{Backend, Timing};

use crate::queue;

/// Frames that means and percentiles are over.
const WINDOW: usize = 512;

/// The times of the last frames.
#[derive(Debug, Default)]
pub(super) struct Timings {
    recent: Vec<Timing>,
    next: usize,
}

impl Timings {
    pub(super) fn add(&mut self, timing: Timing) {
        if self.recent.len() < WINDOW {
            self.recent.push(timing);
        } else {
            self.recent[self.next] = timing;
        }
        self.next = (self.next + 1) % WINDOW;
    }

    /// Mean and 99th percentile of one step.
    fn step(&self, part: impl Fn(&Timing) -> Duration) -> (Duration, Duration) {
        let mut times: Vec<_> = self.recent.iter().map(part).collect();
        times.sort_unstable();
        // The least that 99 of 100 frames take no longer than.
        let Some(nearest) = (times.len() * 99).div_ceil(100).checked_sub(1) else {
            return Default::default();
        };
        (times.iter().sum::<Duration>() / times.len() as u32, times[nearest])
    }

    /// What a frame takes on average, all steps together.
    pub(super) fn mean(&self) -> Duration {
        let sum: Duration = self.recent.iter().map(Timing::total).sum();
        sum.checked_div(self.recent.len() as u32).unwrap_or_default()
    }
}

/// The property's value.
pub(super) fn structure(stats: queue::Stats, timings: &Timings, backend: Option<Backend>) -> gst::Structure {
    let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let mut structure = gst::Structure::builder("application/x-sapiensseg-stats")
        .field("backend", backend.map(|backend| backend.to_string()))
        .field("frames", stats.frames)
        .field("inferred", stats.inferred)
        .field("reused", stats.reused)
        .field("dropped", stats.dropped)
        .field("failed", stats.failed)
        .field("queued", stats.depth as u64)
        .field("max-queued", stats.max_depth as u64)
        .build();
    type Part = fn(&Timing) -> Duration;
    let steps: [(&str, Part); 4] = [
        ("preprocess", |timing| timing.preprocess),
        ("network", |timing| timing.network),
        ("postprocess", |timing| timing.postprocess),
        ("inference", Timing::total),
    ];
    for (name, part) in steps {
        let (mean, percentile) = timings.step(part);
        structure.set(format!("{name}-mean-ns"), nanoseconds(mean));
        structure.set(format!("{name}-p99-ns"), nanoseconds(percentile));
    }
    structure
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_and_percentiles_are_over_the_last_frames() {
        let mut timings = Timings::default();
        assert_eq!(timings.mean(), Duration::ZERO);
        for n in 0..WINDOW + 100 {
            let network = Duration::from_millis(n as u64);
            timings.add(Timing { network, ..Timing::default() });
        }
        // 100 to 611.
        let (mean, percentile) = timings.step(|timing| timing.network);
        assert_eq!(mean, Duration::from_micros(355_500));
        assert_eq!(percentile, Duration::from_millis(100 + 506));
    }
}
