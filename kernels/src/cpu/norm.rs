//! LayerNorm and RMSNorm of tokens, before the projections. A row is read three times (twice), from the first-level
//! cache after the first.
#![allow(unsafe_code)]

use super::simd::{self, Simd, Task, with_simd};
use super::threads::SharedMut;
use super::{Element, Level, Threads};

/// LayerNorm of each row of `x [rows, channels]` with `weight` and `bias`, to `out`.
///
/// # Panics
/// If lengths don't fit each other.
pub fn layer_norm<E: Element, O: Element>(
    level: Level,
    threads: &mut Threads,
    x: &[E],
    (weight, bias): (&[f32], &[f32]),
    epsilon: f32,
    out: &mut [O],
) {
    assert_eq!(weight.len(), bias.len(), "layer_norm: weights and biases");
    let norm = Norm { weight, bias: Some(bias), epsilon };
    over_rows(level, threads, norm, x, out);
}

/// RMSNorm of each row of `x [rows, channels]` with `weight`, to `out`.
///
/// # Panics
/// If lengths don't fit each other.
pub fn rms_norm<E: Element, O: Element>(
    level: Level,
    threads: &mut Threads,
    x: &[E],
    weight: &[f32],
    epsilon: f32,
    out: &mut [O],
) {
    over_rows(level, threads, Norm { weight, bias: None, epsilon }, x, out);
}

#[derive(Clone, Copy)]
struct Norm<'a> {
    weight: &'a [f32],
    /// That there is one makes it a LayerNorm.
    bias: Option<&'a [f32]>,
    epsilon: f32,
}

fn over_rows<E: Element, O: Element>(
    level: Level,
    threads: &mut Threads,
    norm: Norm<'_>,
    x: &[E],
    out: &mut [O],
) {
    /// Values of a task, about: small enough to spread, large enough not to matter.
    const VALUES: usize = 1 << 14;
    let channels = norm.weight.len();
    assert!(channels > 0 && x.len().is_multiple_of(channels), "{} values in rows of {channels}", x.len());
    assert_eq!(x.len(), out.len(), "values in and out of a norm");
    let per_task = (VALUES / channels).max(1) * channels;
    let out = SharedMut(out.as_mut_ptr());
    threads.run(x.len().div_ceil(per_task), |_, task| {
        let first = task * per_task;
        let x = &x[first..x.len().min(first + per_task)];
        // SAFETY: tasks' rows are disjoint, and `out` is as long as `x`.
        let out = unsafe { std::slice::from_raw_parts_mut(out.at(first), x.len()) };
        with_simd!(level, |simd| simd.vectorize(Rows { simd, norm, x, out }));
    });
}

struct Rows<'a, S, E, O> {
    simd: S,
    norm: Norm<'a>,
    x: &'a [E],
    out: &'a mut [O],
}

impl<S: Simd, E: Element, O: Element> Task for Rows<'_, S, E, O> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Self { simd, norm, x, out } = self;
        let channels = norm.weight.len();
        for (x, out) in x.chunks_exact(channels).zip(out.chunks_exact_mut(channels)) {
            let count = channels as f32;
            // About the mean, so that nothing cancels where it is far from zero.
            let mean = if norm.bias.is_some() { sum::<S, E, false>(simd, x, 0.0) / count } else { 0.0 };
            let variance = sum::<S, E, true>(simd, x, mean) / count;
            let factor = simd.splat(1.0 / (variance + norm.epsilon).sqrt());
            let mean = simd.splat(mean);
            for i in (0..channels).step_by(S::LANES) {
                let count = S::LANES.min(channels - i);
                // SAFETY: all rows are as long as the weights.
                unsafe {
                    let x = simd.sub(simd::load(simd, x.as_ptr().add(i), count), mean);
                    let x = simd.mul(x, factor);
                    let weight = simd::load(simd, norm.weight.as_ptr().add(i), count);
                    let y = match norm.bias {
                        Some(bias) => simd.mul_add(x, weight, simd::load(simd, bias.as_ptr().add(i), count)),
                        None => simd.mul(x, weight),
                    };
                    simd::store(simd, out.as_mut_ptr().add(i), y, count);
                }
            }
        }
    }
}

/// The sum of the values, or of their squared distances from `center`: in so many lanes and four vectors that each
/// float32 sum is of some dozens of values.
#[inline(always)]
fn sum<S: Simd, E: Element, const SQUARES: bool>(simd: S, x: &[E], center: f32) -> f32 {
    const VECTORS: usize = 4;
    let step = VECTORS * S::LANES;
    let whole = x.len() / step * step;
    let centers = simd.splat(center);
    let mut sums = [simd.splat(0.0); VECTORS];
    for i in (0..whole).step_by(step) {
        for (k, sum) in sums.iter_mut().enumerate() {
            // SAFETY: within the whole steps.
            let v = unsafe { simd::load(simd, x.as_ptr().add(i + k * S::LANES), S::LANES) };
            *sum = add_value::<S, SQUARES>(simd, v, centers, *sum);
        }
    }
    let mut total = simd.total(simd.add(simd.add(sums[0], sums[1]), simd.add(sums[2], sums[3])));
    let mut i = whole;
    while i + S::LANES <= x.len() {
        // SAFETY: as the condition says.
        let v = unsafe { simd::load(simd, x.as_ptr().add(i), S::LANES) };
        total += simd.total(add_value::<S, SQUARES>(simd, v, centers, simd.splat(0.0)));
        i += S::LANES;
    }
    for value in &x[i..] {
        let value = value.to_f32() - center;
        total += if SQUARES { value * value } else { value };
    }
    total
}

#[inline(always)]
fn add_value<S: Simd, const SQUARES: bool>(simd: S, v: S::V, center: S::V, sum: S::V) -> S::V {
    if SQUARES {
        let distance = simd.sub(v, center);
        simd.mul_add(distance, distance, sum)
    } else {
        simd.add(sum, v)
    }
}
