//! The arithmetic of attention's two products and of its exponential, under the query blocks: register tiles over operands
//! packed in units of 32 bits, each a float32 or a pair of bfloat16 that are neighbours in the summed direction. It
//! knows neither heads nor tokens.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;
#[cfg(target_arch = "x86_64")]
use std::mem::transmute;

use crate::cpu::level::Scalar;
#[cfg(target_arch = "x86_64")]
use crate::cpu::level::{Avx2, Avx512, Avx512Bf16};
use crate::cpu::simd::math::polynomial;
use crate::cpu::simd::{Simd, Task};

/// Rows of a tile in vector registers. With [`Softmax::WIDTH`] vectors it leaves registers for one row of the right operand
/// and one value of the left.
const ROWS: usize = 6;

/// What softmax needs of vectors besides.
pub(super) trait Softmax: Simd {
    /// Vectors of a tile's rows.
    const WIDTH: usize;

    /// `2^x` for `x` up to 0: within 2e-7 of it relatively, or within 8e-5 if `COARSE`, where a rounding to bfloat16
    /// (2e-3) follows. Far below zero it ends at `2^-125` or 0. NaN stays NaN.
    fn exp2<const COARSE: bool>(self, x: Self::V) -> Self::V;
}

/// Best polynomials for `2^r` on -0.5 to 0.5 by the largest relative error: 7e-5 and 7e-8.
const COARSE_CENTERED: [f32; 4] = [0.999_928_06, 0.693_260_97, 0.242_611_13, 0.055_171_67];
const FINE_CENTERED: [f32; 6] =
    [1.000_000_1, 0.693_146_94, 0.240_221_2, 0.055_507_13, 0.009_675_541, 0.001_327_647_3];

#[inline(always)]
fn exp2_by_exponent_bits<S: Simd, const COARSE: bool>(s: S, x: S::V) -> S::V {
    // Adding it rounds to an integer, which then is the low bits of the sum: 1.5 * 2^23.
    const ROUND: f32 = 12_582_912.0;
    // The power may be a little below 1, so this is where its exponent ends. The operand that is NaN must come second
    // to come through.
    let x = s.max(s.splat(-125.0), x);
    let shifted = s.add(x, s.splat(ROUND));
    let r = s.sub(x, s.sub(shifted, s.splat(ROUND)));
    let power = if COARSE { polynomial(s, r, COARSE_CENTERED) } else { polynomial(s, r, FINE_CENTERED) };
    s.scale_by_power(power, shifted)
}

impl Softmax for Scalar {
    const WIDTH: usize = 2;

    #[inline(always)]
    fn exp2<const COARSE: bool>(self, x: Self::V) -> Self::V {
        exp2_by_exponent_bits::<_, COARSE>(self, x)
    }
}

#[cfg(target_arch = "x86_64")]
impl Softmax for Avx2 {
    const WIDTH: usize = 2;

    #[inline(always)]
    fn exp2<const COARSE: bool>(self, x: __m256) -> __m256 {
        exp2_by_exponent_bits::<_, COARSE>(self, x)
    }
}

#[cfg(target_arch = "x86_64")]
impl Softmax for Avx512 {
    const WIDTH: usize = 4;

    #[inline(always)]
    fn exp2<const COARSE: bool>(self, x: __m512) -> __m512 {
        // As above on 0 to 1: `vscalefps` rounds its exponent down by itself, and `vreduceps` leaves the rest.
        const COARSE_FLOORED: [f32; 4] = [0.999_925_2, 0.695_833_56, 0.226_067_16, 0.078_024_52];
        const FINE_FLOORED: [f32; 6] =
            [0.999_999_94, 0.693_153_1, 0.240_153_61, 0.055_826_318, 0.008_989_34, 0.001_877_576_7];
        const DOWN: i32 = _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC;
        // SAFETY: the token.
        let r = unsafe { _mm512_reduce_ps::<DOWN>(x) };
        let power =
            if COARSE { polynomial(self, r, COARSE_FLOORED) } else { polynomial(self, r, FINE_FLOORED) };
        // SAFETY: the token.
        unsafe { _mm512_scalef_ps(power, x) }
    }
}

/// How the units of one product are multiplied.
pub(super) trait Dots: Copy + Send + Sync + 'static {
    type Simd: Softmax;
    /// Values in a unit.
    const DEPTH: usize;
    /// Units that are summed at once: operands have multiples of it, with zeros in what is padded.
    const STEP: usize;
    /// Rows of a tile.
    const ROWS: usize;
    /// Queries of a block: each panel of keys is read from the second-level cache once for so many.
    const QUERIES: usize;
    /// Keys whose scores exist at a time: with the queries they fill three quarters of a small first-level cache, or two thirds of
    /// that of a processor with AMX.
    const KEYS: usize;

    /// Units of a row of so many values.
    fn units(values: usize) -> usize {
        values.div_ceil(Self::DEPTH).next_multiple_of(Self::STEP)
    }

    fn simd(self) -> Self::Simd;

    /// Runs a task compiled with the features that these products need.
    fn vectorize<T: Task>(self, task: T) -> T::Output;

    /// Sums up a tile of [`ROWS`](Self::ROWS) rows and `width` vectors, 1 to [`Softmax::WIDTH`].
    ///
    /// # Safety
    /// The operands have the rows and columns described, the sums can be written, and this runs in
    /// [`vectorize`](Self::vectorize).
    unsafe fn multiply(self, width: usize, tile: Tile);

    /// Stores two vectors of values as units.
    ///
    /// # Safety
    /// `2 * LANES / DEPTH` units can be written.
    unsafe fn store_units(self, to: *mut u32, low: <Self::Simd as Simd>::V, high: <Self::Simd as Simd>::V);
}

/// What is multiplied in vector registers.
trait InVectors: Dots {
    /// `sum` plus the products of the units of `a` and `b`.
    fn dot(
        self,
        a: <Self::Simd as Simd>::V,
        b: <Self::Simd as Simd>::V,
        sum: <Self::Simd as Simd>::V,
    ) -> <Self::Simd as Simd>::V;
}

/// Float32 times float32.
#[derive(Clone, Copy)]
pub(super) struct Singles<S>(pub S);

impl<S: Softmax> Dots for Singles<S> {
    type Simd = S;
    const DEPTH: usize = 1;
    const STEP: usize = 1;
    const ROWS: usize = ROWS;
    const QUERIES: usize = 2 * ROWS;
    const KEYS: usize = 512;

    #[inline(always)]
    fn simd(self) -> S {
        self.0
    }

    #[inline(always)]
    fn vectorize<T: Task>(self, task: T) -> T::Output {
        self.0.vectorize(task)
    }

    #[inline(always)]
    unsafe fn multiply(self, width: usize, tile: Tile) {
        // SAFETY: the caller's promise.
        unsafe { in_vectors(self, width, tile) };
    }

    #[inline(always)]
    unsafe fn store_units(self, to: *mut u32, low: S::V, high: S::V) {
        // SAFETY: the caller's promise.
        unsafe {
            self.0.store(to.cast(), low);
            self.0.store(to.cast::<f32>().add(S::LANES), high);
        }
    }
}

impl<S: Softmax> InVectors for Singles<S> {
    #[inline(always)]
    fn dot(self, a: S::V, b: S::V, sum: S::V) -> S::V {
        self.0.mul_add(a, b, sum)
    }
}

/// Pairs of bfloat16 times pairs.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
pub(super) struct Pairs(pub Avx512Bf16);

#[cfg(target_arch = "x86_64")]
impl Dots for Pairs {
    type Simd = Avx512;
    const DEPTH: usize = 2;
    const STEP: usize = 1;
    const ROWS: usize = ROWS;
    const QUERIES: usize = 2 * ROWS;
    const KEYS: usize = 512;

    #[inline(always)]
    fn simd(self) -> Avx512 {
        self.0.avx512()
    }

    #[inline(always)]
    fn vectorize<T: Task>(self, task: T) -> T::Output {
        self.0.vectorize(task)
    }

    #[inline(always)]
    unsafe fn multiply(self, width: usize, tile: Tile) {
        // SAFETY: the caller's promise.
        unsafe { in_vectors(self, width, tile) };
    }

    #[inline(always)]
    unsafe fn store_units(self, to: *mut u32, low: __m512, high: __m512) {
        // SAFETY: the token, and the caller's promise.
        unsafe {
            let units = transmute::<__m512bh, __m512i>(_mm512_cvtne2ps_pbh(high, low));
            _mm512_storeu_si512(to.cast(), units);
        }
    }
}

#[cfg(target_arch = "x86_64")]
impl InVectors for Pairs {
    #[inline(always)]
    fn dot(self, a: __m512, b: __m512, sum: __m512) -> __m512 {
        self.0.dot_pairs(a, b, sum)
    }
}

/// The operands of one tile: some rows times some vectors of columns.
#[derive(Clone, Copy)]
pub(super) struct Tile {
    /// Units to sum over, whole [`Dots::STEP`]s.
    pub steps: usize,
    /// Left operand, rows of units.
    pub a: *const u32,
    pub a_stride: usize,
    /// Right operand, one row for each unit.
    pub b: *const u32,
    pub b_stride: usize,
    /// Sums, rows of float32.
    pub sums: *mut f32,
    pub sums_stride: usize,
    /// What to multiply each row of sums by before adding to it; without it they begin at zero.
    pub factors: Option<*const f32>,
}

/// # Safety
/// As [`Dots::multiply`].
#[inline(always)]
unsafe fn in_vectors<D: InVectors>(dots: D, width: usize, tile: Tile) {
    // SAFETY: the caller's promise.
    unsafe {
        match width {
            1 => in_vectors_of_width::<D, 1>(dots, tile),
            2 => in_vectors_of_width::<D, 2>(dots, tile),
            3 if D::Simd::WIDTH > 2 => in_vectors_of_width::<D, 3>(dots, tile),
            4 if D::Simd::WIDTH > 2 => in_vectors_of_width::<D, 4>(dots, tile),
            _ => unreachable!("no tile of {width} vectors"),
        }
    }
}

/// # Safety
/// As [`Dots::multiply`].
#[inline(always)]
unsafe fn in_vectors_of_width<D: InVectors, const W: usize>(dots: D, tile: Tile) {
    let simd = dots.simd();
    let lanes = D::Simd::LANES;
    let Tile { steps, a, a_stride, b, b_stride, sums: out, sums_stride, factors } = tile;
    // SAFETY: the caller's promise.
    unsafe {
        let mut sums = [[simd.splat(0.0); W]; ROWS];
        if let Some(factors) = factors {
            for (r, sums) in sums.iter_mut().enumerate() {
                let factor = simd.splat(*factors.add(r));
                for (w, sum) in sums.iter_mut().enumerate() {
                    *sum = simd.mul(factor, simd.load(out.add(r * sums_stride + w * lanes)));
                }
            }
        }
        for step in 0..steps {
            let row = b.add(step * b_stride).cast::<f32>();
            let mut right = [simd.splat(0.0); W];
            for (w, right) in right.iter_mut().enumerate() {
                *right = simd.load(row.add(w * lanes));
            }
            for (r, sums) in sums.iter_mut().enumerate() {
                let left = simd.splat(*a.add(r * a_stride + step).cast::<f32>());
                for (sum, right) in sums.iter_mut().zip(right) {
                    *sum = dots.dot(left, right, *sum);
                }
            }
        }
        for (r, sums) in sums.iter().enumerate() {
            for (w, sum) in sums.iter().enumerate() {
                simd.store(out.add(r * sums_stride + w * lanes), *sum);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::Level;
    use crate::cpu::simd::{MAX_LANES, with_simd};

    struct Powers<'a, S, const COARSE: bool>(S, &'a mut [f32]);

    impl<S: Softmax, const COARSE: bool> Task for Powers<'_, S, COARSE> {
        type Output = ();

        #[inline(always)]
        fn run(self) {
            for chunk in self.1.chunks_exact_mut(S::LANES) {
                // SAFETY: a chunk has as many values as there are lanes.
                unsafe {
                    let v = self.0.load(chunk.as_ptr());
                    self.0.store(chunk.as_mut_ptr(), self.0.exp2::<COARSE>(v));
                }
            }
        }
    }

    #[test]
    fn powers_are_within_their_bounds_down_to_where_they_end() {
        let count = 1_600_000usize;
        let x: Vec<f32> = (0..count).map(|i| i as f32 * -1e-4).collect();
        assert!(count.is_multiple_of(MAX_LANES));
        for level in Level::all_available() {
            let (mut fine, mut coarse) = (x.clone(), x.clone());
            with_simd!(level, |simd| simd.vectorize(Powers::<_, false>(simd, &mut fine)));
            with_simd!(level, |simd| simd.vectorize(Powers::<_, true>(simd, &mut coarse)));
            let worst = |y: &[f32]| {
                let inside = y.iter().zip(&x).filter(|&(_, &x)| x >= -125.0);
                inside.map(|(&y, &x)| (f64::from(y) / f64::from(x).exp2() - 1.0).abs()).fold(0.0, f64::max)
            };
            eprintln!("{level}: 2^x within {:e}, coarse within {:e}", worst(&fine), worst(&coarse));
            // The polynomials' own 7.5e-8 and 7.5e-5, and the rounding of float32 on the way.
            assert!(worst(&fine) < 3e-7 && worst(&coarse) < 8e-5, "{level}");
            for (y, x) in fine.iter().chain(&coarse).zip(x.iter().chain(&x)) {
                assert!(*x >= -125.0 || (0.0..=2.4e-38).contains(y), "{level}: 2^{x} is {y}");
            }
            let mut ends = [f32::NAN, f32::NEG_INFINITY, 0.0, -1e30].repeat(4);
            with_simd!(level, |simd| simd.vectorize(Powers::<_, false>(simd, &mut ends)));
            assert!(ends[0].is_nan(), "{level}: {ends:?}");
            assert!(
                ends[1] <= 2.4e-38 && ends[3] <= 2.4e-38 && (ends[2] - 1.0).abs() < 2e-7,
                "{level}: {ends:?}"
            );
        }
    }
}
