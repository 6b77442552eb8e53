//! So much time there is, and what takes more than is left isn't begun.

use std::time::{Duration, Instant};

/// The time of one run.
#[derive(Debug)]
pub struct Budget {
    end: Instant,
    /// What the longest piece of work took.
    longest: Duration,
}

impl Budget {
    /// From now on.
    pub fn new(seconds: u32) -> Self {
        Self { end: Instant::now() + Duration::from_secs(u64::from(seconds)), longest: Duration::ZERO }
    }

    /// Does a piece of work, if what is left is enough for the longest so far.
    pub fn spend<T>(&mut self, work: impl FnOnce() -> T) -> Option<T> {
        let start = Instant::now();
        if start + self.longest >= self.end {
            return None;
        }
        let done = work();
        self.longest = self.longest.max(start.elapsed());
        Some(done)
    }
}
