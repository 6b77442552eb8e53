//! What this CPU and its system allow. Everything in `cpu` starts from a [`Level`]; nothing else asks the CPU.
//!
//! A level holds a token that only detection makes, so that holding one is the proof that its instructions run:
//! kernels that use them take the token.
#![allow(unsafe_code)]

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

/// The environment variable that lowers the level.
pub const VARIABLE: &str = "SAPIENS_CPU";

/// Proof that AVX2 and FMA run here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Avx2(());

/// Proof that AVX-512 F, BW, VL and DQ run here, and what [`Avx2`] proves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Avx512(());

/// Proof that AVX512_BF16 runs here, and what [`Avx512`] proves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Avx512Bf16(());

/// Proof that AMX's bfloat16 products run here and that this process may use the tile registers, and what
/// [`Avx512Bf16`] proves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Amx(());

/// Needs no proof: what the compiler makes of plain code for the target. On 64-bit Arm that is already NEON; a level of
/// its own would take its place above this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scalar;

impl Amx {
    /// What this proves besides.
    pub fn avx512_bf16(self) -> Avx512Bf16 {
        Avx512Bf16(())
    }

    /// What this proves besides.
    pub fn avx512(self) -> Avx512 {
        self.avx512_bf16().avx512()
    }
}

impl Avx512Bf16 {
    /// What this proves besides.
    pub fn avx512(self) -> Avx512 {
        Avx512(())
    }
}

impl Avx512 {
    /// What this proves besides.
    pub fn avx2(self) -> Avx2 {
        Avx2(())
    }
}

/// The instructions that an operation is made of, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Tile registers for products of bfloat16, [`Level::Avx512Bf16`] for everything else.
    Amx(Amx),
    /// 512-bit registers and dot products of bfloat16 pairs.
    Avx512Bf16(Avx512Bf16),
    /// 512-bit registers; bfloat16 is widened to float32.
    Avx512(Avx512),
    /// 256-bit registers with fused multiply-add; bfloat16 is widened to float32.
    Avx2(Avx2),
    /// Plain code.
    Scalar(Scalar),
}

/// Names as [`VARIABLE`] takes them, best first.
const NAMES: [&str; 5] = ["amx", "avx512bf16", "avx512", "avx2", "scalar"];

/// See [`Level::amx_was_refused`].
static REFUSED: AtomicBool = AtomicBool::new(false);

impl Level {
    /// The best level of this machine, or a lower one if [`VARIABLE`] names one. It can't be raised.
    ///
    /// # Errors
    /// If the variable names no level.
    pub fn detect() -> Result<Self, UnknownLevel> {
        match std::env::var_os(VARIABLE) {
            None => Ok(Self::best()),
            Some(name) => Self::at_most(&name.to_string_lossy()),
        }
    }

    /// The best level of this machine.
    pub fn best() -> Self {
        Self::all_available()[0]
    }

    /// The best level of this machine that isn't above the one of this name.
    ///
    /// # Errors
    /// If no level has this name.
    pub fn at_most(name: &str) -> Result<Self, UnknownLevel> {
        let rank = NAMES
            .iter()
            .position(|known| known.eq_ignore_ascii_case(name))
            .ok_or_else(|| UnknownLevel(name.to_owned()))?;
        Ok(Self::available(rank)[0])
    }

    /// Every level of this machine, best first. Tests loop over them, and print those of [`Level::names`] that they skip.
    pub fn all_available() -> Vec<Self> {
        Self::available(0)
    }

    /// Those from a rank on. Linux is asked for the tile registers only where they are wanted: what it grants stays granted to the
    /// process, and signals then need larger stacks.
    fn available(rank: usize) -> Vec<Self> {
        let mut levels = Vec::with_capacity(NAMES.len());
        #[cfg(target_arch = "x86_64")]
        {
            // Each one's proof rests on those below it.
            let avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
            let avx512 = avx2
                && is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512vl")
                && is_x86_feature_detected!("avx512dq");
            let pairs = avx512 && is_x86_feature_detected!("avx512bf16");
            #[cfg(target_os = "linux")]
            if pairs && rank == 0 && amx::present() && amx::request_tiles() {
                levels.push(Self::Amx(Amx(())));
            }
            if pairs {
                levels.push(Self::Avx512Bf16(Avx512Bf16(())));
            }
            if avx512 {
                levels.push(Self::Avx512(Avx512(())));
            }
            if avx2 {
                levels.push(Self::Avx2(Avx2(())));
            }
        }
        levels.push(Self::Scalar(Scalar));
        levels.retain(|level| level.rank() >= rank);
        levels
    }

    /// Whether there is an AMX unit for which Linux refused this process the registers: it is older than 5.16, a filter of system calls forbids
    /// it, or a thread has a stack for signals that is too small.
    pub fn amx_was_refused() -> bool {
        REFUSED.load(Ordering::Relaxed)
    }

    /// The level with AMX on a machine that has everything else that level needs, for tests.
    ///
    /// # Safety
    /// From now on something executes AMX's instructions in this process, on all of its threads: an emulator that the
    /// system calls where the CPU refuses them.
    #[cfg(target_arch = "x86_64")]
    pub unsafe fn with_emulated_amx() -> Option<Self> {
        Self::all_available().contains(&Self::Avx512Bf16(Avx512Bf16(()))).then_some(Self::Amx(Amx(())))
    }

    /// Every name, best first, whether this machine has it or not.
    pub fn names() -> impl Iterator<Item = &'static str> {
        NAMES.into_iter()
    }

    /// Whether products of bfloat16 take less time than those of float32. Elsewhere bfloat16 is widened first, and only
    /// saves memory.
    pub fn multiplies_bf16(self) -> bool {
        matches!(self, Self::Amx(_) | Self::Avx512Bf16(_))
    }

    /// Whether it is more than plain code.
    pub fn has_vectors(self) -> bool {
        !matches!(self, Self::Scalar(_))
    }

    /// As in [`VARIABLE`].
    pub fn name(self) -> &'static str {
        NAMES[self.rank()]
    }

    fn rank(self) -> usize {
        match self {
            Self::Amx(_) => 0,
            Self::Avx512Bf16(_) => 1,
            Self::Avx512(_) => 2,
            Self::Avx2(_) => 3,
            Self::Scalar(_) => 4,
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that is no level's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownLevel(String);

impl fmt::Display for UnknownLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{VARIABLE}={} is no CPU level; there are {}", self.0, NAMES.join(", "))
    }
}

impl std::error::Error for UnknownLevel {}

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod amx {
    use std::arch::x86_64::{__cpuid, __cpuid_count, _xgetbv};

    /// AMX-BF16 and AMX-TILE in leaf 7's EDX.
    const BF16_AND_TILE: u32 = 1 << 22 | 1 << 24;
    /// The two parts of the tile state in XCR0.
    const TILE_STATE: u64 = 1 << 17 | 1 << 18;
    /// `arch_prctl` of Linux 5.16: a process asks for a register state by its number.
    const ARCH_REQ_XCOMP_PERM: libc::c_long = 0x1023;
    const XFEATURE_XTILEDATA: libc::c_long = 18;

    /// Whether the CPU has AMX bf16 and the system saves its registers.
    #[allow(unused_unsafe, reason = "__cpuid is safe in newer compilers")]
    pub(super) fn present() -> bool {
        // SAFETY: every x86-64 CPU has CPUID; leaf 7 is asked only where leaf 0 says that it exists.
        let features = unsafe { if __cpuid(0).eax < 7 { 0 } else { __cpuid_count(7, 0).edx } };
        if features & BF16_AND_TILE != BF16_AND_TILE || !is_x86_feature_detected!("xsave") {
            return false;
        }
        // SAFETY: XGETBV exists where the system uses XSAVE, just detected; register 0 always exists.
        let saved = unsafe { _xgetbv(0) };
        saved & TILE_STATE == TILE_STATE
    }

    /// Asks Linux for the tile registers, which a process may use only after asking.
    pub(super) fn request_tiles() -> bool {
        // SAFETY: this request only changes what the process may use; its arguments are numbers.
        let refused =
            unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) != 0 };
        super::REFUSED.store(refused, std::sync::atomic::Ordering::Relaxed);
        !refused
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_best_first_and_end_with_scalar() {
        let levels = Level::all_available();
        assert!(levels.is_sorted_by_key(|level| level.rank()));
        assert_eq!(levels.last(), Some(&Level::Scalar(Scalar)));
        assert_eq!(Level::best(), levels[0]);
        let found: Vec<_> = levels.iter().map(|level| level.name()).collect();
        eprintln!("levels here: {}", found.join(", "));
    }

    #[test]
    fn a_name_lowers_but_never_raises() {
        assert_eq!(Level::at_most("amx"), Ok(Level::best()));
        assert_eq!(Level::at_most("SCALAR"), Ok(Level::Scalar(Scalar)));
        for level in Level::all_available() {
            assert_eq!(Level::at_most(level.name()), Ok(level));
        }
        for name in Level::names() {
            assert!(Level::at_most(name).is_ok_and(|level| level.rank() >= Level::best().rank()), "{name}");
        }
    }

    #[test]
    fn an_unknown_name_is_an_error_that_lists_the_known_ones() {
        let error = Level::at_most("sse9").unwrap_err().to_string();
        assert_eq!(
            error,
            "SAPIENS_CPU=sse9 is no CPU level; there are amx, avx512bf16, avx512, avx2, scalar"
        );
    }
}
