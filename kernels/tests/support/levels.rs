//! What tests of the CPU's operations share.
#![allow(clippy::unwrap_used, reason = "test code")]

use sapiens_kernels::cpu::{Level, Threads};

/// Runs a check at every level, with one thread and with more threads than there are processors, and says what it skips.
pub fn each_level(mut check: impl FnMut(Level, &mut Threads)) {
    let levels = sapiens_stand_in_amx::levels();
    for name in Level::names().filter(|name| levels.iter().all(|level| level.name() != *name)) {
        eprintln!("skipped: {name}, which this machine or this crate doesn't have");
    }
    for level in levels {
        for count in [1, 3] {
            check(level, &mut Threads::new(count).unwrap());
        }
    }
}
