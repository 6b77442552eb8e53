//! The loops of [`gradients`](super::gradients), compiled for each instruction set `pulp` knows, as those of
//! [`math`](super::math) are.

use pulp::NullaryFnOnce;

use super::math::{Exponentials, exp, sum};

/// Logistic function.
#[inline(always)]
fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// Slope of `x sigmoid(x)`, given the latter.
#[inline(always)]
fn silu_slope(x: f32, s: f32) -> f32 {
    s + x * s * (1.0 - s)
}

/// Sum of `a b` in the same order on every CPU.
#[inline(always)]
fn dot(a: &[f32], b: &[f32]) -> f32 {
    const LANES: usize = 16;
    let mut lanes = [0.0; LANES];
    let (a_chunks, b_chunks) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
    let tail: f32 = a_chunks.remainder().iter().zip(b_chunks.remainder()).map(|(a, b)| a * b).sum();
    for (a, b) in a_chunks.zip(b_chunks) {
        for ((lane, a), b) in lanes.iter_mut().zip(a).zip(b) {
            *lane += a * b;
        }
    }
    lanes.iter().sum::<f32>() + tail
}

/// Gradient of `silu(a) * b` for one row `[a | b]`.
pub(super) struct SwiGlu<'a> {
    pub row: &'a [f32],
    pub gradient: &'a [f32],
    pub result: &'a mut [f32],
}

impl NullaryFnOnce for SwiGlu<'_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let half = self.gradient.len();
        let (a, b) = self.row.split_at(half);
        let (of_a, of_b) = self.result.split_at_mut(half);
        for ((((of_a, of_b), &a), &b), &g) in of_a.iter_mut().zip(of_b).zip(a).zip(b).zip(self.gradient) {
            let s = sigmoid(a);
            *of_a = g * b * silu_slope(a, s);
            *of_b = g * a * s;
        }
    }
}

/// Gradient of RMSNorm for some rows; returns the weight's.
pub(super) struct RmsNorm<'a> {
    pub rows: &'a [f32],
    pub gradient: &'a [f32],
    pub weight: &'a [f32],
    pub epsilon: f32,
    pub result: &'a mut [f32],
}

impl NullaryFnOnce for RmsNorm<'_> {
    type Output = Vec<f32>;

    #[inline(always)]
    fn call(self) -> Vec<f32> {
        let channels = self.weight.len();
        let mut of_weight = vec![0.0; channels];
        for ((row, gradient), result) in self
            .rows
            .chunks_exact(channels)
            .zip(self.gradient.chunks_exact(channels))
            .zip(self.result.chunks_exact_mut(channels))
        {
            let mean = sum(row, |x| x * x) / channels as f32;
            let inverse = 1.0 / (mean + self.epsilon).sqrt();
            for (((result, g), w), (of_weight, x)) in
                result.iter_mut().zip(gradient).zip(self.weight).zip(of_weight.iter_mut().zip(row))
            {
                *of_weight += g * x * inverse;
                *result = g * w;
            }
            let shared = dot(result, row) * inverse * inverse * inverse / channels as f32;
            result.iter_mut().zip(row).for_each(|(r, x)| *r = *r * inverse - x * shared);
        }
        of_weight
    }
}

/// Gradient of the normalised values `(x - mean) * inverse` behind a SiLU, for some pixels; returns every channel's
/// sum of it and of its product with the normalised values.
pub(super) struct NormSilu<'a> {
    /// `[pixels, channels]`, as `gradient` and `result`.
    pub x: &'a [f32],
    pub gradient: &'a [f32],
    pub mean: &'a [f32],
    pub inverse: &'a [f32],
    pub result: &'a mut [f32],
}

impl NullaryFnOnce for NormSilu<'_> {
    type Output = (Vec<f32>, Vec<f32>);

    #[inline(always)]
    fn call(self) -> (Vec<f32>, Vec<f32>) {
        let channels = self.mean.len();
        let (mut sums, mut products) = (vec![0.0; channels], vec![0.0; channels]);
        let (mean, inverse) = (&self.mean[..channels], &self.inverse[..channels]);
        let (s, p) = (&mut sums[..channels], &mut products[..channels]);
        for ((x, gradient), result) in self
            .x
            .chunks_exact(channels)
            .zip(self.gradient.chunks_exact(channels))
            .zip(self.result.chunks_exact_mut(channels))
        {
            for c in 0..channels {
                let normalised = (x[c] - mean[c]) * inverse[c];
                let g = gradient[c] * silu_slope(normalised, sigmoid(normalised));
                result[c] = g;
                s[c] += g;
                p[c] += g * normalised;
            }
        }
        (sums, products)
    }
}

/// From the gradient of normalised values (in `result`) to that of the values, in place.
pub(super) struct Norm<'a> {
    /// `[pixels, channels]`, as `result`.
    pub x: &'a [f32],
    pub mean: &'a [f32],
    pub inverse: &'a [f32],
    /// Every channel's mean gradient.
    pub sum: &'a [f32],
    /// Every channel's mean of gradient times normalised value.
    pub product: &'a [f32],
    pub result: &'a mut [f32],
}

impl NullaryFnOnce for Norm<'_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let channels = self.mean.len();
        let (mean, inverse) = (&self.mean[..channels], &self.inverse[..channels]);
        let (sum, product) = (&self.sum[..channels], &self.product[..channels]);
        for (x, result) in self.x.chunks_exact(channels).zip(self.result.chunks_exact_mut(channels)) {
            for c in 0..channels {
                let normalised = (x[c] - mean[c]) * inverse[c];
                result[c] = inverse[c] * (result[c] - sum[c] - normalised * product[c]);
            }
        }
    }
}

/// Rotates the gradient of one token's heads back, in place.
pub(super) struct Rotary<'a> {
    /// `[heads, head_dim]`.
    pub token: &'a mut [f32],
    pub cos: &'a [f32],
    pub sin: &'a [f32],
}

impl NullaryFnOnce for Rotary<'_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let half = self.cos.len() / 2;
        let ((cos_a, cos_b), (sin_a, sin_b)) = (self.cos.split_at(half), self.sin.split_at(half));
        for head in self.token.chunks_exact_mut(2 * half) {
            let (a, b) = head.split_at_mut(half);
            for i in 0..half {
                let (x, y) = (a[i], b[i]);
                a[i] = x * cos_a[i] + y * sin_b[i];
                b[i] = y * cos_b[i] - x * sin_a[i];
            }
        }
    }
}

/// Softmax of `scale x` over every row in place.
pub(super) struct Softmax<'a> {
    pub rows: &'a mut [f32],
    pub length: usize,
    pub scale: f32,
}

impl NullaryFnOnce for Softmax<'_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let Self { rows, length, scale } = self;
        let sums = Exponentials { rows: &mut *rows, length, scale }.call();
        for (row, sum) in rows.chunks_exact_mut(length).zip(sums) {
            let inverse = 1.0 / sum;
            row.iter_mut().for_each(|x| *x *= inverse);
        }
    }
}

/// Gradient of [`Softmax`] in place: `rows` holds that of the shares, then that of what they were made of.
pub(super) struct SoftmaxGradient<'a> {
    pub shares: &'a [f32],
    pub rows: &'a mut [f32],
    pub length: usize,
    pub scale: f32,
}

impl NullaryFnOnce for SoftmaxGradient<'_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        for (row, shares) in
            self.rows.chunks_exact_mut(self.length).zip(self.shares.chunks_exact(self.length))
        {
            let mean = dot(row, shares);
            row.iter_mut().zip(shares).for_each(|(g, share)| *g = self.scale * share * (*g - mean));
        }
    }
}

/// Adds to one row of a map what the windows over it hold of it.
pub(super) struct AddWindows<'a> {
    /// `[h + 1, w + 1, 2, 2, channels]`.
    pub windows: &'a [f32],
    pub size: [usize; 2],
    pub channels: usize,
    pub y: usize,
    /// `[w, channels]`.
    pub row: &'a mut [f32],
}

impl NullaryFnOnce for AddWindows<'_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let Self { windows, size: [_, w], channels, y, row } = self;
        for (x, pixel) in row.chunks_exact_mut(channels).enumerate() {
            for (i, j) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
                // Corner (i, j) of the window whose first corner is one less than this pixel where it is (1, 1).
                let window = (y + 1 - i) * (w + 1) + x + 1 - j;
                let corner = &windows[((window * 2 + i) * 2 + j) * channels..][..channels];
                pixel.iter_mut().zip(corner).for_each(|(p, c)| *p += c);
            }
        }
    }
}

/// Every column's sum.
pub(super) struct ColumnSums<'a> {
    pub rows: &'a [f32],
    pub columns: usize,
}

impl NullaryFnOnce for ColumnSums<'_> {
    type Output = Vec<f32>;

    #[inline(always)]
    fn call(self) -> Vec<f32> {
        let mut sums = vec![0.0; self.columns];
        for row in self.rows.chunks_exact(self.columns) {
            sums.iter_mut().zip(row).for_each(|(sum, x)| *sum += x);
        }
        sums
    }
}
