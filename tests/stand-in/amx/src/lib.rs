//! Executes AMX's instructions for tests where the CPU has none: the kernels' own machine code runs, and what the CPU refuses
//! is decoded and done here, one instruction at a time, as Intel's manual (volume 2, "Tile" instructions; volume 1,
//! "Programming with AMX") defines it. What that manual forbids ends the process with a word about it.
//!
//! A signal for every few instructions takes thousands of times as long as they would: this says what is right, never what is fast.
#![allow(unsafe_code)]

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod decode;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod execute;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod signal;

use sapiens_kernels::cpu::Level;

/// Every level of this machine, best first, and the one with AMX wherever all that it needs besides is there.
pub fn levels() -> Vec<Level> {
    #[allow(unused_mut, reason = "there is nothing to add elsewhere")]
    let mut levels = Level::all_available();
    // A processor whose unit the system refuses may execute part of its instructions.
    if Level::amx_was_refused() {
        eprintln!("skipped: amx, which the system refuses");
        return levels;
    }
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    if !matches!(levels[0], Level::Amx(_)) {
        signal::install();
        // SAFETY: it was just installed, for all threads.
        match unsafe { Level::with_emulated_amx() } {
            Some(level) => levels.insert(0, level),
            None => eprintln!("skipped: amx, which takes AVX512_BF16 besides"),
        }
    }
    levels
}
