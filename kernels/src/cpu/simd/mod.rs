//! One set of vector operations over all levels, so that a kernel is written once. Below the operations, above the
//! intrinsics; it knows no shapes.
//!
//! A kernel is a [`Task`] that is generic over [`Simd`]. [`Simd::vectorize`] runs it in a function compiled with the level's
//! features; everything between that function and the intrinsics is `#[inline(always)]`, or it would be compiled without them.
#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
pub(crate) mod math;
mod scalar;

use super::Element;

/// `with_simd!(level, |simd| expression)`: the expression, with the level's [`Simd`].
macro_rules! with_simd {
    ($level:expr, |$simd:ident| $body:expr) => {
        match $level {
            #[cfg(target_arch = "x86_64")]
            $crate::cpu::Level::Amx(token) => {
                let $simd = token.avx512();
                $body
            }
            #[cfg(target_arch = "x86_64")]
            $crate::cpu::Level::Avx512Bf16(token) => {
                let $simd = token.avx512();
                $body
            }
            #[cfg(target_arch = "x86_64")]
            $crate::cpu::Level::Avx512($simd) => $body,
            #[cfg(target_arch = "x86_64")]
            $crate::cpu::Level::Avx2($simd) => $body,
            $crate::cpu::Level::Scalar($simd) => $body,
            #[cfg(not(target_arch = "x86_64"))]
            _ => unreachable!("detected on x86-64 alone"),
        }
    };
}
pub(crate) use with_simd;

/// What [`Simd::vectorize`] runs.
pub(crate) trait Task {
    type Output;

    /// Implementations are `#[inline(always)]`.
    fn run(self) -> Self::Output;
}

/// Vectors of float32, with the token that proves their instructions. Lanes count from the lowest address.
pub(crate) trait Simd: Copy + Send + Sync + 'static {
    type V: Copy;
    const LANES: usize;

    /// Runs a task compiled for this level.
    fn vectorize<T: Task>(self, task: T) -> T::Output;

    fn splat(self, value: f32) -> Self::V;
    fn add(self, a: Self::V, b: Self::V) -> Self::V;
    fn sub(self, a: Self::V, b: Self::V) -> Self::V;
    fn mul(self, a: Self::V, b: Self::V) -> Self::V;
    fn div(self, a: Self::V, b: Self::V) -> Self::V;
    fn min(self, a: Self::V, b: Self::V) -> Self::V;
    fn max(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a * b + c`, rounded once where the level has such an instruction.
    fn mul_add(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// `v` times two to the power of the integer in the low bits of `n`, within the range of normal numbers.
    fn scale_by_power(self, v: Self::V, n: Self::V) -> Self::V;

    /// The largest lane, where no lane is NaN.
    fn largest(self, v: Self::V) -> f32;
    /// The sum of the lanes.
    fn total(self, v: Self::V) -> f32;
    /// A bit for each lane in which the two are equal.
    fn equal(self, a: Self::V, b: Self::V) -> u32;

    /// The nearest bfloat16s, ties to even.
    fn round_bf16(self, v: Self::V) -> Self::V;
    /// The lower bfloat16 of each lane's pair, widened.
    fn low_bf16(self, pairs: Self::V) -> Self::V;
    /// The upper bfloat16 of each lane's pair, widened.
    fn high_bf16(self, pairs: Self::V) -> Self::V;

    /// # Safety
    /// `LANES` values can be read, at any alignment.
    unsafe fn load(self, from: *const f32) -> Self::V;
    /// # Safety
    /// `LANES` values can be written, at any alignment.
    unsafe fn store(self, to: *mut f32, v: Self::V);
    /// # Safety
    /// `LANES` values can be read, at any alignment.
    unsafe fn load_bf16(self, from: *const u16) -> Self::V;
    /// # Safety
    /// `LANES` values can be written, at any alignment.
    unsafe fn store_bf16(self, to: *mut u16, v: Self::V);

    /// The first `count` values, the other lanes zero. By way of memory where there are no masks.
    ///
    /// # Safety
    /// `count` values can be read; it is at most `LANES`.
    #[inline(always)]
    unsafe fn load_first(self, from: *const f32, count: usize) -> Self::V {
        let mut part = [0.0; MAX_LANES];
        // SAFETY: the caller's promise; there is room for every level's lanes.
        unsafe {
            std::ptr::copy_nonoverlapping(from, part.as_mut_ptr(), count);
            self.load(part.as_ptr())
        }
    }

    /// # Safety
    /// `count` values can be written; it is at most `LANES`.
    #[inline(always)]
    unsafe fn store_first(self, to: *mut f32, v: Self::V, count: usize) {
        let mut part = [0.0; MAX_LANES];
        // SAFETY: as in `load_first`.
        unsafe {
            self.store(part.as_mut_ptr(), v);
            std::ptr::copy_nonoverlapping(part.as_ptr(), to, count);
        }
    }

    /// # Safety
    /// As [`load_first`](Self::load_first).
    #[inline(always)]
    unsafe fn load_bf16_first(self, from: *const u16, count: usize) -> Self::V {
        let mut part = [0; MAX_LANES];
        // SAFETY: as in `load_first`.
        unsafe {
            std::ptr::copy_nonoverlapping(from, part.as_mut_ptr(), count);
            self.load_bf16(part.as_ptr())
        }
    }

    /// # Safety
    /// As [`store_first`](Self::store_first).
    #[inline(always)]
    unsafe fn store_bf16_first(self, to: *mut u16, v: Self::V, count: usize) {
        let mut part = [0; MAX_LANES];
        // SAFETY: as in `load_first`.
        unsafe {
            self.store_bf16(part.as_mut_ptr(), v);
            std::ptr::copy_nonoverlapping(part.as_ptr(), to, count);
        }
    }

    /// Writes `to[c * row_stride + r] = rows[r][c]` for `r` below the number of rows, at most `row_stride`, and `c`
    /// below `len`, in units of 32 bits.
    ///
    /// # Safety
    /// Each row has `len` units to read, and `to` has `len * row_stride` to write.
    unsafe fn interleave(self, rows: &[*const u32], len: usize, to: *mut u32, row_stride: usize);
}

/// `count` values of either type, the other lanes zero.
///
/// # Safety
/// `count` values can be read; it is at most `LANES`.
#[inline(always)]
pub(crate) unsafe fn load<S: Simd, E: Element>(simd: S, from: *const E, count: usize) -> S::V {
    // SAFETY: the caller's promise. An `Element` that is not bfloat16 is float32.
    unsafe {
        match (E::IS_BF16, count == S::LANES) {
            (false, true) => simd.load(from.cast()),
            (false, false) => simd.load_first(from.cast(), count),
            (true, true) => simd.load_bf16(from.cast()),
            (true, false) => simd.load_bf16_first(from.cast(), count),
        }
    }
}

/// Stores `count` values as either type.
///
/// # Safety
/// `count` values can be written; it is at most `LANES`.
#[inline(always)]
pub(crate) unsafe fn store<S: Simd, E: Element>(simd: S, to: *mut E, v: S::V, count: usize) {
    // SAFETY: as in `load`.
    unsafe {
        match (E::IS_BF16, count == S::LANES) {
            (false, true) => simd.store(to.cast(), v),
            (false, false) => simd.store_first(to.cast(), v, count),
            (true, true) => simd.store_bf16(to.cast(), v),
            (true, false) => simd.store_bf16_first(to.cast(), v, count),
        }
    }
}

/// The most lanes of any level.
pub(crate) const MAX_LANES: usize = 16;

/// Rounds to the nearest bfloat16, ties to even; the upper half of the result's bits. NaN stays NaN.
#[inline(always)]
pub(crate) fn bf16_bits(value: f32) -> u16 {
    let bits = value.to_bits();
    let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1));
    (if value.is_nan() { bits | 0x40_0000 } else { rounded } >> 16) as u16
}

/// [`Simd::interleave`] in plain code: the ends that no vector fits, and the level without vectors.
///
/// # Safety
/// As there, from column `first` on.
#[inline(always)]
unsafe fn interleave_from(first: usize, rows: &[*const u32], len: usize, to: *mut u32, row_stride: usize) {
    for c in first..len {
        for (r, row) in rows.iter().enumerate() {
            // SAFETY: the caller's promise.
            unsafe { *to.add(c * row_stride + r) = row.add(c).read_unaligned() };
        }
    }
}
