//! Vectors in plain code, which the compiler makes vectors of where the target always has them.

use super::{Simd, Task, bf16_bits, interleave_from};
use crate::cpu::level::Scalar;

const LANES: usize = 4;

#[inline(always)]
fn lanes(f: impl Fn(usize) -> f32) -> [f32; LANES] {
    std::array::from_fn(f)
}

impl Simd for Scalar {
    type V = [f32; LANES];
    const LANES: usize = LANES;

    #[inline(always)]
    fn vectorize<T: Task>(self, task: T) -> T::Output {
        task.run()
    }

    #[inline(always)]
    fn splat(self, value: f32) -> Self::V {
        [value; LANES]
    }

    #[inline(always)]
    fn add(self, a: Self::V, b: Self::V) -> Self::V {
        lanes(|i| a[i] + b[i])
    }

    #[inline(always)]
    fn sub(self, a: Self::V, b: Self::V) -> Self::V {
        lanes(|i| a[i] - b[i])
    }

    #[inline(always)]
    fn mul(self, a: Self::V, b: Self::V) -> Self::V {
        lanes(|i| a[i] * b[i])
    }

    #[inline(always)]
    fn div(self, a: Self::V, b: Self::V) -> Self::V {
        lanes(|i| a[i] / b[i])
    }

    #[inline(always)]
    fn min(self, a: Self::V, b: Self::V) -> Self::V {
        lanes(|i| if a[i] < b[i] { a[i] } else { b[i] })
    }

    #[inline(always)]
    fn max(self, a: Self::V, b: Self::V) -> Self::V {
        lanes(|i| if a[i] > b[i] { a[i] } else { b[i] })
    }

    #[inline(always)]
    fn mul_add(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V {
        // `f32::mul_add` is a call into the C library where the target has no instruction for it.
        lanes(|i| a[i] * b[i] + c[i])
    }

    #[inline(always)]
    fn scale_by_power(self, v: Self::V, n: Self::V) -> Self::V {
        lanes(|i| f32::from_bits(v[i].to_bits().wrapping_add(n[i].to_bits() << 23)))
    }

    #[inline(always)]
    fn largest(self, v: Self::V) -> f32 {
        v.into_iter().fold(f32::NEG_INFINITY, f32::max)
    }

    #[inline(always)]
    fn total(self, v: Self::V) -> f32 {
        v.into_iter().sum()
    }

    #[inline(always)]
    fn equal(self, a: Self::V, b: Self::V) -> u32 {
        a.into_iter().zip(b).enumerate().map(|(i, (a, b))| u32::from(a == b) << i).sum()
    }

    #[inline(always)]
    fn round_bf16(self, v: Self::V) -> Self::V {
        lanes(|i| f32::from_bits(u32::from(bf16_bits(v[i])) << 16))
    }

    #[inline(always)]
    fn low_bf16(self, pairs: Self::V) -> Self::V {
        lanes(|i| f32::from_bits(pairs[i].to_bits() << 16))
    }

    #[inline(always)]
    fn high_bf16(self, pairs: Self::V) -> Self::V {
        lanes(|i| f32::from_bits(pairs[i].to_bits() & 0xffff_0000))
    }

    #[inline(always)]
    unsafe fn load(self, from: *const f32) -> Self::V {
        // SAFETY: the caller's promise.
        unsafe { from.cast::<Self::V>().read_unaligned() }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32, v: Self::V) {
        // SAFETY: the caller's promise.
        unsafe { to.cast::<Self::V>().write_unaligned(v) }
    }

    #[inline(always)]
    unsafe fn load_bf16(self, from: *const u16) -> Self::V {
        // SAFETY: the caller's promise.
        let bits = unsafe { from.cast::<[u16; LANES]>().read_unaligned() };
        lanes(|i| f32::from_bits(u32::from(bits[i]) << 16))
    }

    #[inline(always)]
    unsafe fn store_bf16(self, to: *mut u16, v: Self::V) {
        // SAFETY: the caller's promise.
        unsafe { to.cast::<[u16; LANES]>().write_unaligned(v.map(bf16_bits)) }
    }

    #[inline(always)]
    unsafe fn interleave(self, rows: &[*const u32], len: usize, to: *mut u32, row_stride: usize) {
        // SAFETY: the caller's promise.
        unsafe { interleave_from(0, rows, len, to, row_stride) }
    }
}
