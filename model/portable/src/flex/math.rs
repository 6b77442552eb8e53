//! Loops over float32 slices that the compiler vectorises, compiled for each instruction set `pulp` knows.
//!
//! Nothing here uses fused multiply-add or reorders a sum by the width of a register, so results are the same on
//! every CPU.

use pulp::NullaryFnOnce;

/// Partial sums that a reduction keeps: a whole register of the widest instruction set.
const LANES: usize = 16;

/// `e^x`, within 2e-7 of it relatively; below -87 it stays at `e^-87`, above 88 at `e^88`. A loop over it becomes
/// vector instructions.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    // Adding it rounds to an integer, which then is the low bits of the sum.
    const ROUND: f32 = 12_582_912.0;
    // ln 2 in two parts: multiples of the first are exact.
    const LN_2_HIGH: f32 = 0.693_359_4;
    const LN_2_LOW: f32 = -2.121_944_4e-4;
    let x = x.clamp(-87.0, 88.0);
    let shifted = x * std::f32::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = (x - n * LN_2_HIGH) - n * LN_2_LOW;
    // Taylor: |r| <= ln 2 / 2, so the first term left out is below 1e-8.
    let mut p = 1.0 / 5040.0;
    for coefficient in [1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0] {
        p = p * r + coefficient;
    }
    p * f32::from_bits((shifted.to_bits() << 23).wrapping_add(127 << 23))
}

/// `x Φ(x)`, as `max(x, 0) - |x| (1 - Φ(|x|))`: the second term is small and smooth, so its error is too.
#[inline(always)]
fn gelu(x: f32) -> f32 {
    // Abramowitz and Stegun, 7.1.26: erfc(z) = k (A[0] + k (A[1] + ..)) e^(-z²) within 1.5e-7.
    const P: f32 = 0.327_591_1;
    const A: [f32; 5] = [0.254_829_6, -0.284_496_74, 1.421_413_7, -1.453_152, 1.061_405_4];
    let t = x.abs();
    let k = 1.0 / (1.0 + P * std::f32::consts::FRAC_1_SQRT_2 * t);
    let polynomial = k * (A[0] + k * (A[1] + k * (A[2] + k * (A[3] + k * A[4]))));
    x.max(0.0) - 0.5 * t * polynomial * exp(-0.5 * t * t)
}

#[inline(always)]
fn silu(x: f32) -> f32 {
    x / (1.0 + exp(-x))
}

/// Rounds to the nearest bfloat16, ties to even.
#[inline(always)]
fn bf16(x: f32) -> f32 {
    let bits = x.to_bits();
    f32::from_bits((bits.wrapping_add(0x7fff + ((bits >> 16) & 1))) & 0xffff_0000)
}

/// Sum of `f` over a slice, in the same order on every CPU.
#[inline(always)]
pub(super) fn sum(values: &[f32], f: impl Fn(f32) -> f32) -> f32 {
    let mut lanes = [0.0; LANES];
    let chunks = values.chunks_exact(LANES);
    let tail: f32 = chunks.remainder().iter().map(|&x| f(x)).sum();
    for chunk in chunks {
        lanes.iter_mut().zip(chunk).for_each(|(lane, &x)| *lane += f(x));
    }
    lanes.iter().sum::<f32>() + tail
}

/// GELU in place.
pub(super) struct Gelu<'a>(pub &'a mut [f32]);

impl NullaryFnOnce for Gelu<'_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        self.0.iter_mut().for_each(|x| *x = gelu(*x));
    }
}

/// `silu(a) * b` of one row `[a | b]`.
pub(super) struct SwiGlu<'a> {
    pub row: &'a [f32],
    pub result: &'a mut [f32],
}

impl NullaryFnOnce for SwiGlu<'_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let (a, b) = self.row.split_at(self.result.len());
        for ((y, &a), &b) in self.result.iter_mut().zip(a).zip(b) {
            *y = silu(a) * b;
        }
    }
}

/// RMSNorm of every row in place.
pub(super) struct RmsNorm<'a> {
    pub rows: &'a mut [f32],
    pub weight: &'a [f32],
    pub epsilon: f32,
}

impl NullaryFnOnce for RmsNorm<'_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        for row in self.rows.chunks_exact_mut(self.weight.len()) {
            let mean = sum(row, |x| x * x) / row.len() as f32;
            let inverse = 1.0 / (mean + self.epsilon).sqrt();
            row.iter_mut().zip(self.weight).for_each(|(x, w)| *x = *x * inverse * w);
        }
    }
}

/// `exp(scale (x - max))` of every row in place; returns each row's sum.
pub(super) struct Exponentials<'a> {
    pub rows: &'a mut [f32],
    pub length: usize,
    pub scale: f32,
}

impl NullaryFnOnce for Exponentials<'_> {
    type Output = Vec<f32>;

    #[inline(always)]
    fn call(self) -> Vec<f32> {
        let mut sums = Vec::with_capacity(self.rows.len() / self.length);
        for row in self.rows.chunks_exact_mut(self.length) {
            let mut lanes = [f32::NEG_INFINITY; LANES];
            let chunks = row.chunks_exact(LANES);
            let tail = chunks.remainder().iter().fold(f32::NEG_INFINITY, |m, &x| m.max(x));
            for chunk in chunks {
                for (lane, &x) in lanes.iter_mut().zip(chunk) {
                    *lane = if x > *lane { x } else { *lane };
                }
            }
            let max = lanes.iter().fold(tail, |m, &x| m.max(x));
            row.iter_mut().for_each(|x| *x = exp((*x - max) * self.scale));
            sums.push(sum(row, |x| x));
        }
        sums
    }
}

/// Rotates one token's heads in place, every step rounded to bfloat16; without angles it only rounds.
pub(super) struct Rotary<'a> {
    /// `[heads, head_dim]`.
    pub token: &'a mut [f32],
    pub head_dim: usize,
    /// Cosines and sines, `[head_dim]` each.
    pub angles: Option<(&'a [f32], &'a [f32])>,
}

impl NullaryFnOnce for Rotary<'_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let Some((cos, sin)) = self.angles else {
            self.token.iter_mut().for_each(|x| *x = bf16(*x));
            return;
        };
        let half = self.head_dim / 2;
        let ((cos_a, cos_b), (sin_a, sin_b)) = (cos.split_at(half), sin.split_at(half));
        for head in self.token.chunks_exact_mut(self.head_dim) {
            let (a, b) = head.split_at_mut(half);
            for i in 0..half {
                let (x, y) = (bf16(a[i]), bf16(b[i]));
                a[i] = bf16(bf16(x * cos_a[i]) + bf16(-y * sin_a[i]));
                b[i] = bf16(bf16(y * cos_b[i]) + bf16(x * sin_b[i]));
            }
        }
    }
}

/// Mean and sum of squared differences from it, for every channel of some pixels.
pub(super) struct Moments<'a> {
    /// `[pixels, channels]`.
    pub pixels: &'a [f32],
    pub channels: usize,
}

impl NullaryFnOnce for Moments<'_> {
    type Output = (Vec<f32>, Vec<f32>);

    #[inline(always)]
    fn call(self) -> (Vec<f32>, Vec<f32>) {
        let count = (self.pixels.len() / self.channels) as f32;
        let (mut mean, mut squares) = (vec![0.0; self.channels], vec![0.0; self.channels]);
        for pixel in self.pixels.chunks_exact(self.channels) {
            mean.iter_mut().zip(pixel).for_each(|(m, x)| *m += x);
        }
        mean.iter_mut().for_each(|m| *m /= count);
        for pixel in self.pixels.chunks_exact(self.channels) {
            for ((s, m), x) in squares.iter_mut().zip(&mean).zip(pixel) {
                *s += (x - m) * (x - m);
            }
        }
        (mean, squares)
    }
}

/// `silu((x - mean) * inverse)` of every pixel in place.
pub(super) struct NormSilu<'a> {
    /// `[pixels, channels]`.
    pub pixels: &'a mut [f32],
    pub mean: &'a [f32],
    pub inverse: &'a [f32],
}

impl NullaryFnOnce for NormSilu<'_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        for pixel in self.pixels.chunks_exact_mut(self.mean.len()) {
            for ((x, m), i) in pixel.iter_mut().zip(self.mean).zip(self.inverse) {
                *x = silu((*x - m) * i);
            }
        }
    }
}
