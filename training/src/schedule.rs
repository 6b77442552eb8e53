//! How far the training is and how large its steps are.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// When the training ends.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Budget {
    /// After this many seconds of training.
    Seconds(f64),
    /// After this many steps.
    Steps(u64),
}

impl Budget {
    /// Share of the budget that is spent, from 0 to 1.
    pub fn progress(self, steps: u64, trained: Duration) -> f64 {
        let share = match self {
            Budget::Seconds(seconds) => trained.as_secs_f64() / seconds,
            Budget::Steps(all) => steps as f64 / all.max(1) as f64,
        };
        share.clamp(0.0, 1.0)
    }
}

/// Share of the largest learning rate: up over the first `warm_up` steps, then down half a cosine.
pub fn learning_rate(progress: f64, step: u64, warm_up: u64) -> f32 {
    let up = (step + 1) as f64 / (warm_up + 1) as f64;
    let down = 0.5 * (1.0 + (std::f64::consts::PI * progress).cos());
    (up.min(1.0) * down.max(0.002)) as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_at_the_budget() {
        assert_eq!(Budget::Steps(10).progress(10, Duration::ZERO), 1.0);
        assert_eq!(Budget::Seconds(10.0).progress(3, Duration::from_secs(5)), 0.5);
        assert!(learning_rate(1.0, 1000, 10) < 0.01);
        assert_eq!(learning_rate(0.0, 10, 10), 1.0);
        assert!(learning_rate(0.0, 0, 9) < 0.11);
    }
}
