//! Functions of vectors that the instruction sets don't have.

use super::Simd;

/// `p[0] + x (p[1] + x (p[2] + ..))`.
#[inline(always)]
pub(crate) fn polynomial<S: Simd, const N: usize>(s: S, x: S::V, p: [f32; N]) -> S::V {
    let mut sum = s.splat(p[N - 1]);
    for &coefficient in p[..N - 1].iter().rev() {
        sum = s.mul_add(sum, x, s.splat(coefficient));
    }
    sum
}

/// `e^x`, within 3e-7 of it relatively; below -87 it stays at `e^-87`, above 88 at `e^88`.
#[inline(always)]
pub(crate) fn exp<S: Simd>(s: S, x: S::V) -> S::V {
    // Adding it rounds to an integer, which then is the low bits of the sum: 1.5 * 2^23.
    const ROUND: f32 = 12_582_912.0;
    // ln 2 in two parts: multiples of the first are exact.
    const LN_2_HIGH: f32 = 0.693_359_4;
    const LN_2_LOW: f32 = -2.121_944_4e-4;
    // Taylor: |r| <= ln 2 / 2, so the first term left out is below 1e-8.
    const TERMS: [f32; 8] = [1.0, 1.0, 0.5, 1.0 / 6.0, 1.0 / 24.0, 1.0 / 120.0, 1.0 / 720.0, 1.0 / 5040.0];
    let x = s.min(s.max(x, s.splat(-87.0)), s.splat(88.0));
    let shifted = s.mul_add(x, s.splat(std::f32::consts::LOG2_E), s.splat(ROUND));
    let n = s.sub(shifted, s.splat(ROUND));
    let r = s.mul_add(n, s.splat(-LN_2_HIGH), x);
    let r = s.mul_add(n, s.splat(-LN_2_LOW), r);
    s.scale_by_power(polynomial(s, r, TERMS), shifted)
}

/// `x / (1 + e^-x)`.
#[inline(always)]
pub(crate) fn silu<S: Simd>(s: S, x: S::V) -> S::V {
    let e = exp(s, s.sub(s.splat(0.0), x));
    s.div(x, s.add(e, s.splat(1.0)))
}

/// `x Φ(x)`, GELU in its exact form, as `max(x, 0) - |x| (1 - Φ(|x|))`: the second term is small and smooth, so its error
/// is too.
#[inline(always)]
pub(crate) fn gelu<S: Simd>(s: S, x: S::V) -> S::V {
    // Abramowitz and Stegun, 7.1.26: erfc(z) = k (A[0] + k (A[1] + ..)) e^(-z²) within 1.5e-7.
    const P: f32 = 0.327_591_1;
    const A: [f32; 5] = [0.254_829_6, -0.284_496_74, 1.421_413_7, -1.453_152, 1.061_405_4];
    let t = s.max(x, s.sub(s.splat(0.0), x));
    let denominator = s.mul_add(t, s.splat(P * std::f32::consts::FRAC_1_SQRT_2), s.splat(1.0));
    let k = s.div(s.splat(1.0), denominator);
    let tail = s.mul(exp(s, s.mul(s.mul(t, t), s.splat(-0.5))), s.mul(k, polynomial(s, k, A)));
    s.sub(s.max(x, s.splat(0.0)), s.mul(s.mul(t, s.splat(0.5)), tail))
}

#[cfg(test)]
#[allow(unsafe_code)]
mod tests {
    use super::super::{MAX_LANES, Task, bf16_bits, load, store};
    use super::*;
    use crate::cpu::Level;
    use crate::cpu::simd::with_simd;
    use crate::reference;

    /// Calls the same function on whole vectors at a level.
    struct Map<'a, S, F> {
        simd: S,
        values: &'a mut [f32],
        f: F,
    }

    impl<S: Simd, F: Fn(S, S::V) -> S::V> Task for Map<'_, S, F> {
        type Output = ();

        #[inline(always)]
        fn run(self) {
            for chunk in self.values.chunks_mut(S::LANES) {
                // SAFETY: a chunk has its length.
                unsafe {
                    let v = load(self.simd, chunk.as_ptr(), chunk.len());
                    store(self.simd, chunk.as_mut_ptr(), (self.f)(self.simd, v), chunk.len());
                }
            }
        }
    }

    macro_rules! map {
        ($level:expr, $values:expr, $f:expr) => {{
            let values = $values;
            with_simd!($level, |simd| simd.vectorize(Map { simd, values, f: $f }))
        }};
    }

    /// Fine around zero, then to where nothing happens any more.
    fn range() -> Vec<f32> {
        let fine = (-120_000..=120_000).map(|i| i as f32 * 1e-4);
        let wide = (-1000..=1000).map(|i| i as f32 * 0.11);
        fine.chain(wide).chain([0.0, -0.0, 1e-30, -1e-30, 1e30, -1e30, f32::MAX, f32::MIN]).collect()
    }

    #[test]
    fn gelu_is_within_1e_6_over_the_whole_range() {
        let x = range();
        let mut expected = x.clone();
        reference::gelu(&mut expected);
        for level in Level::all_available() {
            let mut y = x.clone();
            map!(level, &mut y, |s, v| gelu(s, v));
            let worst =
                y.iter().zip(&expected).map(|(y, e)| (y - e).abs() / e.abs().max(1.0)).fold(0.0, f32::max);
            eprintln!("{level}: gelu within {worst:e}");
            // Absolute to 1, relative above: float32 itself has 6e-8 there.
            assert!(worst <= 1e-6, "{level}: {worst:e}");
        }
    }

    #[test]
    fn silu_and_exp_are_within_1e_6() {
        let x = range();
        let mut expected = x.clone();
        reference::silu(&mut expected);
        for level in Level::all_available() {
            let mut y = x.clone();
            map!(level, &mut y, |s, v| silu(s, v));
            for ((y, e), x) in y.iter().zip(&expected).zip(&x) {
                // e^88 is where exp ends: far below zero silu is not quite 0, but x e^-88.
                assert!(
                    (y - e).abs() <= 1e-6 * e.abs().max(1.0) + x.abs() * 1e-37,
                    "{level}: silu({x}) is {y}, not {e}"
                );
            }
            let mut y: Vec<f32> = x.iter().copied().filter(|x| x.abs() < 87.0).collect();
            let expected: Vec<f64> = y.iter().map(|&x| f64::from(x).exp()).collect();
            map!(level, &mut y, |s, v| exp(s, v));
            let worst =
                y.iter().zip(&expected).map(|(&y, e)| (f64::from(y) / e - 1.0).abs()).fold(0.0, f64::max);
            assert!(worst <= 3e-7, "{level}: exp {worst:e}");
        }
    }

    #[test]
    fn bfloat16_is_rounded_as_half_rounds_it() {
        let bits = (0..=u16::MAX).flat_map(|high| {
            [0u16, 1, 0x7fff, 0x8000, 0x8001, 0xffff].map(|low| u32::from(high) << 16 | u32::from(low))
        });
        let values: Vec<f32> = bits.map(f32::from_bits).collect();
        let same = |a: u16, value: f32| {
            let b = half::bf16::from_f32(value);
            a == b.to_bits() || (b.is_nan() && half::bf16::from_bits(a).is_nan())
        };
        assert!(values.iter().all(|&value| same(bf16_bits(value), value)));
        struct Round<'a, S>(S, &'a [f32]);
        impl<S: Simd> Task for Round<'_, S> {
            type Output = Vec<u16>;
            #[inline(always)]
            fn run(self) -> Vec<u16> {
                let mut out = vec![0u16; self.1.len() + MAX_LANES];
                for i in (0..self.1.len()).step_by(S::LANES) {
                    // SAFETY: the number of values is a multiple of every number of lanes.
                    unsafe {
                        self.0.store_bf16(out.as_mut_ptr().add(i), self.0.load(self.1.as_ptr().add(i)))
                    };
                }
                out
            }
        }
        for level in Level::all_available() {
            let rounded = with_simd!(level, |simd| simd.vectorize(Round(simd, &values)));
            assert!(rounded.iter().zip(&values).all(|(&r, &value)| same(r, value)), "{level}");
        }
    }
}
