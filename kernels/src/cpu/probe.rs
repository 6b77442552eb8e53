//! What a level's multiply-add does from registers alone: the peak that products are measured against.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use super::product::from_registers;
use super::{Level, Threads};

/// Does a millisecond's worth of multiply-adds on this thread, or a few, and returns how many operations that were, a
/// multiplication and an addition counted apart. `bf16` asks for what multiplies bfloat16 weights at this level.
pub fn run(level: Level, bf16: bool) -> usize {
    from_registers(level, bf16, 200_000)
}

/// Operations per second of all threads at once: the best of some rounds, some hundredths of a second in all.
pub fn peak(level: Level, bf16: bool, threads: &mut Threads) -> f64 {
    const ROUNDS: usize = 8;
    /// Calls of each thread in a round.
    const CALLS: usize = 4;
    let mut best = 0.0f64;
    for _ in 0..ROUNDS {
        let tasks = threads.count() * CALLS;
        let done = AtomicUsize::new(0);
        let start = Instant::now();
        threads.run(tasks, |_, _| {
            done.fetch_add(run(level, bf16), Ordering::Relaxed);
        });
        best = best.max(done.into_inner() as f64 / start.elapsed().as_secs_f64());
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_level_does_something() {
        let mut threads = Threads::new(2).unwrap();
        for level in Level::all_available() {
            for bf16 in [false, true] {
                let peak = peak(level, bf16, &mut threads);
                assert!(peak > 1e8 && peak.is_finite(), "{level}: {peak}");
            }
        }
    }
}
