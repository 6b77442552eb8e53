//! Vectors of 8.

use std::arch::x86_64::*;

use super::{Simd, Task, interleave_from};
use crate::cpu::level::Avx2;

#[target_feature(enable = "avx2,fma")]
fn with_features<T: Task>(task: T) -> T::Output {
    task.run()
}

// Each method's intrinsics are of the features that the token proves.
impl Simd for Avx2 {
    type V = __m256;
    const LANES: usize = 8;

    #[inline(always)]
    fn vectorize<T: Task>(self, task: T) -> T::Output {
        // SAFETY: the token proves these features.
        unsafe { with_features(task) }
    }

    #[inline(always)]
    fn splat(self, value: f32) -> __m256 {
        // SAFETY: the token.
        unsafe { _mm256_set1_ps(value) }
    }

    #[inline(always)]
    fn add(self, a: __m256, b: __m256) -> __m256 {
        // SAFETY: the token.
        unsafe { _mm256_add_ps(a, b) }
    }

    #[inline(always)]
    fn sub(self, a: __m256, b: __m256) -> __m256 {
        // SAFETY: the token.
        unsafe { _mm256_sub_ps(a, b) }
    }

    #[inline(always)]
    fn mul(self, a: __m256, b: __m256) -> __m256 {
        // SAFETY: the token.
        unsafe { _mm256_mul_ps(a, b) }
    }

    #[inline(always)]
    fn div(self, a: __m256, b: __m256) -> __m256 {
        // SAFETY: the token.
        unsafe { _mm256_div_ps(a, b) }
    }

    #[inline(always)]
    fn min(self, a: __m256, b: __m256) -> __m256 {
        // SAFETY: the token.
        unsafe { _mm256_min_ps(a, b) }
    }

    #[inline(always)]
    fn max(self, a: __m256, b: __m256) -> __m256 {
        // SAFETY: the token.
        unsafe { _mm256_max_ps(a, b) }
    }

    #[inline(always)]
    fn mul_add(self, a: __m256, b: __m256, c: __m256) -> __m256 {
        // SAFETY: the token.
        unsafe { _mm256_fmadd_ps(a, b, c) }
    }

    #[inline(always)]
    fn scale_by_power(self, v: __m256, n: __m256) -> __m256 {
        // SAFETY: the token.
        unsafe {
            let exponent = _mm256_slli_epi32::<23>(_mm256_castps_si256(n));
            _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(v), exponent))
        }
    }

    #[inline(always)]
    fn largest(self, v: __m256) -> f32 {
        // SAFETY: the token.
        unsafe {
            let v = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
            let v = _mm_max_ps(v, _mm_movehl_ps(v, v));
            _mm_cvtss_f32(_mm_max_ss(v, _mm_movehdup_ps(v)))
        }
    }

    #[inline(always)]
    fn total(self, v: __m256) -> f32 {
        // SAFETY: the token.
        unsafe {
            let v = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
            let v = _mm_add_ps(v, _mm_movehl_ps(v, v));
            _mm_cvtss_f32(_mm_add_ss(v, _mm_movehdup_ps(v)))
        }
    }

    #[inline(always)]
    fn equal(self, a: __m256, b: __m256) -> u32 {
        // SAFETY: the token.
        unsafe { _mm256_movemask_ps(_mm256_cmp_ps::<_CMP_EQ_OQ>(a, b)) as u32 }
    }

    #[inline(always)]
    fn round_bf16(self, v: __m256) -> __m256 {
        // SAFETY: the token.
        self.high_bf16(unsafe { _mm256_castsi256_ps(rounded(v)) })
    }

    #[inline(always)]
    fn low_bf16(self, pairs: __m256) -> __m256 {
        // SAFETY: the token.
        unsafe { _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_castps_si256(pairs))) }
    }

    #[inline(always)]
    fn high_bf16(self, pairs: __m256) -> __m256 {
        // SAFETY: the token.
        unsafe { _mm256_and_ps(pairs, _mm256_castsi256_ps(_mm256_set1_epi32(0xffff_0000_u32 as i32))) }
    }

    #[inline(always)]
    unsafe fn load(self, from: *const f32) -> __m256 {
        // SAFETY: the token, and the caller's promise.
        unsafe { _mm256_loadu_ps(from) }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32, v: __m256) {
        // SAFETY: the token, and the caller's promise.
        unsafe { _mm256_storeu_ps(to, v) }
    }

    #[inline(always)]
    unsafe fn load_bf16(self, from: *const u16) -> __m256 {
        // SAFETY: the token, and the caller's promise.
        unsafe {
            let wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(from.cast()));
            _mm256_castsi256_ps(_mm256_slli_epi32::<16>(wide))
        }
    }

    #[inline(always)]
    unsafe fn store_bf16(self, to: *mut u16, v: __m256) {
        // SAFETY: the token, and the caller's promise.
        unsafe {
            let result = _mm256_srli_epi32::<16>(rounded(v));
            let narrow =
                _mm_packus_epi32(_mm256_castsi256_si128(result), _mm256_extracti128_si256::<1>(result));
            _mm_storeu_si128(to.cast(), narrow);
        }
    }

    #[inline(always)]
    unsafe fn interleave(self, rows: &[*const u32], len: usize, to: *mut u32, row_stride: usize) {
        let whole = len / 8 * 8;
        for first in (0..rows.len()).step_by(8) {
            let rows = &rows[first..rows.len().min(first + 8)];
            for c in (0..whole).step_by(8) {
                // SAFETY: the token; the caller's promise, and only as many lanes are copied as there are rows.
                unsafe {
                    let mut block = [_mm256_setzero_ps(); 8];
                    for (line, row) in block.iter_mut().zip(rows) {
                        *line = _mm256_loadu_ps(row.add(c).cast());
                    }
                    for (i, line) in transpose(block).into_iter().enumerate() {
                        let to: *mut f32 = to.add((c + i) * row_stride + first).cast();
                        match rows.len() {
                            8 => _mm256_storeu_ps(to, line),
                            // The height of this level's register tile.
                            6 => {
                                _mm_storeu_ps(to, _mm256_castps256_ps128(line));
                                let upper = _mm_castps_si128(_mm256_extractf128_ps::<1>(line));
                                _mm_storel_epi64(to.add(4).cast(), upper);
                            }
                            count => {
                                let mut part = [0.0f32; 8];
                                _mm256_storeu_ps(part.as_mut_ptr(), line);
                                std::ptr::copy_nonoverlapping(part.as_ptr(), to, count);
                            }
                        }
                    }
                }
            }
            // SAFETY: the caller's promise.
            unsafe { interleave_from(whole, rows, len, to.add(first), row_stride) };
        }
    }
}

/// To nearest, ties to even, in the upper half of each lane. A NaN, which the addition might carry out of, only gets its
/// quiet bit.
///
/// # Safety
/// AVX2 runs here.
#[inline(always)]
unsafe fn rounded(v: __m256) -> __m256i {
    // SAFETY: the caller's promise.
    unsafe {
        let bits = _mm256_castps_si256(v);
        let odd = _mm256_and_si256(_mm256_srli_epi32::<16>(bits), _mm256_set1_epi32(1));
        let rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
        let quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x40_0000));
        let nan = _mm256_castps_si256(_mm256_cmp_ps::<_CMP_UNORD_Q>(v, v));
        _mm256_blendv_epi8(rounded, quiet, nan)
    }
}

/// 8 x 8 transposed.
///
/// # Safety
/// AVX2 runs here.
#[inline(always)]
unsafe fn transpose(rows: [__m256; 8]) -> [__m256; 8] {
    // SAFETY: the caller's promise.
    unsafe {
        let zero = _mm256_setzero_ps();
        let (mut pairs, mut quads, mut columns) = ([zero; 8], [zero; 8], [zero; 8]);
        for i in 0..4 {
            pairs[2 * i] = _mm256_unpacklo_ps(rows[2 * i], rows[2 * i + 1]);
            pairs[2 * i + 1] = _mm256_unpackhi_ps(rows[2 * i], rows[2 * i + 1]);
        }
        // Half h of quads[4g + j] is column 4h + j of rows 4g to 4g + 3.
        for g in 0..2 {
            let p = &pairs[4 * g..][..4];
            quads[4 * g] = _mm256_shuffle_ps::<0b01_00_01_00>(p[0], p[2]);
            quads[4 * g + 1] = _mm256_shuffle_ps::<0b11_10_11_10>(p[0], p[2]);
            quads[4 * g + 2] = _mm256_shuffle_ps::<0b01_00_01_00>(p[1], p[3]);
            quads[4 * g + 3] = _mm256_shuffle_ps::<0b11_10_11_10>(p[1], p[3]);
        }
        for j in 0..4 {
            columns[j] = _mm256_permute2f128_ps::<0x20>(quads[j], quads[4 + j]);
            columns[4 + j] = _mm256_permute2f128_ps::<0x31>(quads[j], quads[4 + j]);
        }
        columns
    }
}
