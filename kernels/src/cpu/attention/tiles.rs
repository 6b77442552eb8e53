//! Attention's products in AMX's tile registers.

use super::dots::{Dots, Pairs, Softmax, Tile};
use crate::cpu::amx::{self, Configured, Operands};
use crate::cpu::level::{Amx, Avx512};
use crate::cpu::simd::{Simd, Task};
use std::arch::x86_64::__m512;

/// Pairs of bfloat16 times pairs, in tiles.
#[derive(Clone, Copy)]
pub(super) struct Tiles(pub Amx);

impl Dots for Tiles {
    type Simd = Avx512;
    const DEPTH: usize = 2;
    const STEP: usize = amx::DEPTH;
    const ROWS: usize = 2 * amx::SIDE;
    const QUERIES: usize = Self::ROWS;
    const KEYS: usize = 256;

    #[inline(always)]
    fn simd(self) -> Avx512 {
        self.0.avx512()
    }

    #[inline(always)]
    fn vectorize<T: Task>(self, task: T) -> T::Output {
        let _configured = Configured::new(self.0);
        self.0.avx512_bf16().vectorize(task)
    }

    #[inline(always)]
    unsafe fn multiply(self, width: usize, tile: Tile) {
        const UNIT: usize = size_of::<u32>();
        const LANES: usize = Avx512::LANES;
        const { assert!(LANES == amx::SIDE && Avx512::WIDTH.is_multiple_of(2)) };
        let Tile { steps, a, a_stride, b, b_stride, sums, sums_stride, factors } = tile;
        let simd = self.simd();
        debug_assert!(steps.is_multiple_of(Self::STEP));
        // SAFETY: the caller's promise, of `vectorize` for the configuration.
        unsafe {
            if let Some(factors) = factors {
                // Of most queries the largest score didn't grow.
                for r in (0..Self::ROWS).filter(|&r| *factors.add(r) != 1.0) {
                    let factor = simd.splat(*factors.add(r));
                    for w in 0..width {
                        let sums = sums.add(r * sums_stride + w * LANES);
                        simd.store(sums, simd.mul(factor, simd.load(sums)));
                    }
                }
            }
            for w in (0..width).step_by(2) {
                let operands = Operands {
                    steps: steps / amx::DEPTH,
                    a: a.cast(),
                    a_row: a_stride * UNIT,
                    a_band: amx::SIDE * a_stride * UNIT,
                    a_step: amx::DEPTH * UNIT,
                    b: b.add(w * LANES).cast(),
                    b_unit: b_stride * UNIT,
                    sums: sums.add(w * LANES),
                    sums_row: sums_stride * UNIT,
                    first: factors.is_none(),
                };
                if w + 1 < width {
                    amx::multiply::<2, 2>(operands);
                } else {
                    amx::multiply::<2, 1>(operands);
                }
            }
        }
    }

    #[inline(always)]
    unsafe fn store_units(self, to: *mut u32, low: __m512, high: __m512) {
        // SAFETY: the caller's promise.
        unsafe { Pairs(self.0.avx512_bf16()).store_units(to, low, high) };
    }
}
