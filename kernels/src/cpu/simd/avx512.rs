//! Vectors of 16.

use std::arch::x86_64::*;

use std::mem::transmute;

use super::{Simd, Task, interleave_from};
use crate::cpu::level::{Avx512, Avx512Bf16};

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx2,fma")]
fn with_features<T: Task>(task: T) -> T::Output {
    task.run()
}

#[target_feature(enable = "avx512bf16,avx512f,avx512bw,avx512vl,avx512dq,avx2,fma")]
fn with_pairs<T: Task>(task: T) -> T::Output {
    task.run()
}

impl Avx512Bf16 {
    /// Runs a task compiled with the features of [`dot_pairs`](Self::dot_pairs).
    #[inline(always)]
    pub(in crate::cpu) fn vectorize<T: Task>(self, task: T) -> T::Output {
        // SAFETY: the token proves these features.
        unsafe { with_pairs(task) }
    }

    /// `sum` plus both products of the pairs of bfloat16 in each lane of `a` and `b`. Subnormal numbers count as zero.
    #[inline(always)]
    pub(in crate::cpu) fn dot_pairs(self, a: __m512, b: __m512, sum: __m512) -> __m512 {
        // SAFETY: the token. The vector types differ in name alone.
        unsafe { _mm512_dpbf16_ps(sum, transmute::<__m512, __m512bh>(a), transmute::<__m512, __m512bh>(b)) }
    }
}

// Each method's intrinsics are of the features that the token proves.
impl Simd for Avx512 {
    type V = __m512;
    const LANES: usize = 16;

    #[inline(always)]
    fn vectorize<T: Task>(self, task: T) -> T::Output {
        // SAFETY: the token proves these features.
        unsafe { with_features(task) }
    }

    #[inline(always)]
    fn splat(self, value: f32) -> __m512 {
        // SAFETY: the token.
        unsafe { _mm512_set1_ps(value) }
    }

    #[inline(always)]
    fn add(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: the token.
        unsafe { _mm512_add_ps(a, b) }
    }

    #[inline(always)]
    fn sub(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: the token.
        unsafe { _mm512_sub_ps(a, b) }
    }

    #[inline(always)]
    fn mul(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: the token.
        unsafe { _mm512_mul_ps(a, b) }
    }

    #[inline(always)]
    fn div(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: the token.
        unsafe { _mm512_div_ps(a, b) }
    }

    #[inline(always)]
    fn min(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: the token.
        unsafe { _mm512_min_ps(a, b) }
    }

    #[inline(always)]
    fn max(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: the token.
        unsafe { _mm512_max_ps(a, b) }
    }

    #[inline(always)]
    fn mul_add(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        // SAFETY: the token.
        unsafe { _mm512_fmadd_ps(a, b, c) }
    }

    #[inline(always)]
    fn scale_by_power(self, v: __m512, n: __m512) -> __m512 {
        // SAFETY: the token.
        unsafe {
            let exponent = _mm512_slli_epi32::<23>(_mm512_castps_si512(n));
            _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(v), exponent))
        }
    }

    #[inline(always)]
    fn largest(self, v: __m512) -> f32 {
        // SAFETY: the token.
        unsafe { _mm512_reduce_max_ps(v) }
    }

    #[inline(always)]
    fn total(self, v: __m512) -> f32 {
        // SAFETY: the token.
        unsafe { _mm512_reduce_add_ps(v) }
    }

    #[inline(always)]
    fn equal(self, a: __m512, b: __m512) -> u32 {
        // SAFETY: the token.
        unsafe { u32::from(_mm512_cmp_ps_mask::<_CMP_EQ_OQ>(a, b)) }
    }

    #[inline(always)]
    fn round_bf16(self, v: __m512) -> __m512 {
        // SAFETY: the token.
        self.high_bf16(unsafe { _mm512_castsi512_ps(rounded(v)) })
    }

    #[inline(always)]
    fn low_bf16(self, pairs: __m512) -> __m512 {
        // SAFETY: the token.
        unsafe { _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_castps_si512(pairs))) }
    }

    #[inline(always)]
    fn high_bf16(self, pairs: __m512) -> __m512 {
        // SAFETY: the token.
        unsafe {
            let upper = _mm512_set1_epi32(0xffff_0000_u32 as i32);
            _mm512_castsi512_ps(_mm512_and_si512(_mm512_castps_si512(pairs), upper))
        }
    }

    #[inline(always)]
    unsafe fn load(self, from: *const f32) -> __m512 {
        // SAFETY: the token, and the caller's promise.
        unsafe { _mm512_loadu_ps(from) }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32, v: __m512) {
        // SAFETY: the token, and the caller's promise.
        unsafe { _mm512_storeu_ps(to, v) }
    }

    #[inline(always)]
    unsafe fn load_bf16(self, from: *const u16) -> __m512 {
        // SAFETY: the token, and the caller's promise.
        unsafe {
            let wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(from.cast()));
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(wide))
        }
    }

    #[inline(always)]
    unsafe fn store_bf16(self, to: *mut u16, v: __m512) {
        // SAFETY: the token, and the caller's promise.
        unsafe { _mm256_storeu_si256(to.cast(), to_bf16(v)) }
    }

    #[inline(always)]
    unsafe fn load_first(self, from: *const f32, count: usize) -> __m512 {
        // SAFETY: the token, and the caller's promise: lanes outside a mask aren't touched.
        unsafe { _mm512_maskz_loadu_ps(first(count), from) }
    }

    #[inline(always)]
    unsafe fn store_first(self, to: *mut f32, v: __m512, count: usize) {
        // SAFETY: as in `load_first`.
        unsafe { _mm512_mask_storeu_ps(to, first(count), v) }
    }

    #[inline(always)]
    unsafe fn load_bf16_first(self, from: *const u16, count: usize) -> __m512 {
        // SAFETY: as in `load_first`.
        unsafe {
            let wide = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(first(count), from.cast()));
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(wide))
        }
    }

    #[inline(always)]
    unsafe fn store_bf16_first(self, to: *mut u16, v: __m512, count: usize) {
        // SAFETY: as in `load_first`.
        unsafe { _mm256_mask_storeu_epi16(to.cast(), first(count), to_bf16(v)) }
    }

    #[inline(always)]
    unsafe fn interleave(self, rows: &[*const u32], len: usize, to: *mut u32, row_stride: usize) {
        let whole = len / 16 * 16;
        for first in (0..rows.len()).step_by(16) {
            let rows = &rows[first..rows.len().min(first + 16)];
            let mask = ((1u32 << rows.len()) - 1) as u16;
            for c in (0..whole).step_by(16) {
                // SAFETY: the token; the caller's promise, and the mask keeps the stores to the rows there are.
                unsafe {
                    let mut block = [_mm512_setzero_si512(); 16];
                    for (line, row) in block.iter_mut().zip(rows) {
                        *line = _mm512_loadu_si512(row.add(c).cast());
                    }
                    for (i, line) in transpose(block).into_iter().enumerate() {
                        let to = to.add((c + i) * row_stride + first);
                        _mm512_mask_storeu_epi32(to.cast(), mask, line);
                    }
                }
            }
            // SAFETY: the caller's promise.
            unsafe { interleave_from(whole, rows, len, to.add(first), row_stride) };
        }
    }
}

/// The mask of the first lanes.
#[inline(always)]
fn first(count: usize) -> __mmask16 {
    ((1u32 << count) - 1) as __mmask16
}

/// To nearest, ties to even, in the upper half of each lane. A NaN, which the addition might carry out of, only gets its
/// quiet bit.
///
/// # Safety
/// AVX-512 F runs here.
#[inline(always)]
unsafe fn rounded(v: __m512) -> __m512i {
    // SAFETY: the caller's promise.
    unsafe {
        let bits = _mm512_castps_si512(v);
        let odd = _mm512_and_si512(_mm512_srli_epi32::<16>(bits), _mm512_set1_epi32(1));
        let rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
        let nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(v, v);
        _mm512_mask_or_epi32(rounded, nan, bits, _mm512_set1_epi32(0x40_0000))
    }
}

/// # Safety
/// AVX-512 F runs here.
#[inline(always)]
unsafe fn to_bf16(v: __m512) -> __m256i {
    // SAFETY: the caller's promise.
    unsafe { _mm512_cvtepi32_epi16(_mm512_srli_epi32::<16>(rounded(v))) }
}

/// 16 x 16 transposed: twice within quarters of registers, twice the quarters themselves.
///
/// # Safety
/// AVX-512 F runs here.
#[inline(always)]
unsafe fn transpose(rows: [__m512i; 16]) -> [__m512i; 16] {
    // SAFETY: the caller's promise.
    unsafe {
        let zero = _mm512_setzero_si512();
        let (mut pairs, mut quads, mut halves, mut columns) =
            ([zero; 16], [zero; 16], [zero; 16], [zero; 16]);
        for i in 0..8 {
            pairs[2 * i] = _mm512_unpacklo_epi32(rows[2 * i], rows[2 * i + 1]);
            pairs[2 * i + 1] = _mm512_unpackhi_epi32(rows[2 * i], rows[2 * i + 1]);
        }
        // Quarter q of quads[4g + j] is column 4q + j of rows 4g to 4g + 3.
        for g in 0..4 {
            let p = &pairs[4 * g..][..4];
            quads[4 * g] = _mm512_unpacklo_epi64(p[0], p[2]);
            quads[4 * g + 1] = _mm512_unpackhi_epi64(p[0], p[2]);
            quads[4 * g + 2] = _mm512_unpacklo_epi64(p[1], p[3]);
            quads[4 * g + 3] = _mm512_unpackhi_epi64(p[1], p[3]);
        }
        for j in 0..4 {
            // Even quarters, then odd ones, of row groups 0 and 1, then 2 and 3.
            halves[4 * j] = _mm512_shuffle_i32x4::<0b10_00_10_00>(quads[j], quads[4 + j]);
            halves[4 * j + 1] = _mm512_shuffle_i32x4::<0b11_01_11_01>(quads[j], quads[4 + j]);
            halves[4 * j + 2] = _mm512_shuffle_i32x4::<0b10_00_10_00>(quads[8 + j], quads[12 + j]);
            halves[4 * j + 3] = _mm512_shuffle_i32x4::<0b11_01_11_01>(quads[8 + j], quads[12 + j]);
        }
        for j in 0..4 {
            let h = &halves[4 * j..][..4];
            columns[j] = _mm512_shuffle_i32x4::<0b10_00_10_00>(h[0], h[2]);
            columns[8 + j] = _mm512_shuffle_i32x4::<0b11_01_11_01>(h[0], h[2]);
            columns[4 + j] = _mm512_shuffle_i32x4::<0b10_00_10_00>(h[1], h[3]);
            columns[12 + j] = _mm512_shuffle_i32x4::<0b11_01_11_01>(h[1], h[3]);
        }
        columns
    }
}
