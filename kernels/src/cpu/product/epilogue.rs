//! What happens to a tile of sums on its way out, while it is in the first-level cache.
//!
//! One loop for most of them: a tile has seen hundreds of multiplications per value, beside which choosing costs nothing. Moments
//! have a loop of their own, in which their sums stay in registers: they come behind the head's products, which are the smallest.

use super::Moments;
use crate::cpu::simd::{self, MAX_LANES, Simd, Task, math, with_simd};
use crate::cpu::threads::SharedMut;
use crate::cpu::{Element, Level};

/// What is made of `product = x [m, k] * weights [n, k]^T` before it is stored, in float32.
#[derive(Debug)]
pub struct Epilogue<'a> {
    /// `[n]`, added first.
    pub bias: Option<&'a [f32]>,
    /// What follows.
    pub then: Then<'a>,
}

/// What follows the bias.
#[derive(Debug)]
pub enum Then<'a> {
    /// Nothing: the output is overwritten.
    Store,
    /// GELU in its exact form.
    Gelu,
    /// `silu(a) * b` of the two halves of weights packed as gated.
    SwiGlu,
    /// Added to the output: a residual.
    Add,
    /// Scaled by channel and added to the output: a residual with LayerScale's gamma `[n]`.
    ScaleAdd(&'a [f32]),
    /// Stored, and the channels' moments taken, for an InstanceNorm.
    Moments(&'a mut Moments),
}

impl<'a> Epilogue<'a> {
    /// The product as it is.
    pub const STORE: Self = Self { bias: None, then: Then::Store };

    /// With a bias first.
    pub fn bias(bias: &'a [f32], then: Then<'a>) -> Self {
        Self { bias: Some(bias), then }
    }
}

/// [`Epilogue`] as all tiles share it.
#[derive(Clone, Copy)]
pub(super) struct Shared<'a> {
    pub bias: Option<&'a [f32]>,
    pub then: SharedThen<'a>,
}

#[derive(Clone, Copy)]
pub(super) enum SharedThen<'a> {
    Store,
    Gelu,
    SwiGlu,
    Add,
    ScaleAdd(&'a [f32]),
    /// `[blocks][2][channels]`.
    Moments(SharedMut<f64>),
}

/// A tile of sums and where it goes.
pub(super) struct Finish<'a, O> {
    /// `[height][2 * lanes]`.
    pub sums: *const f32,
    /// Of each row that exists, the output's first column.
    pub rows: &'a [*mut O],
    /// The tile's first column of the output, and how many it has.
    pub column: usize,
    pub count: usize,
    /// All columns of the output.
    pub outputs: usize,
    /// The block whose moments the tile belongs to.
    pub block: usize,
    pub epilogue: Shared<'a>,
}

/// # Safety
/// The tile's sums can be read, its columns of its rows read and written by nobody else, and the moments of its columns too.
pub(super) unsafe fn finish<O: Element>(level: Level, tile: Finish<'_, O>) {
    with_simd!(level, |simd| simd.vectorize(Vectorized { simd, tile }));
}

/// Only made by [`finish`], with what its caller vouched for.
struct Vectorized<'a, S, O> {
    simd: S,
    tile: Finish<'a, O>,
}

impl<S: Simd, O: Element> Task for Vectorized<'_, S, O> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Self { simd, tile: Finish { sums, rows, column, count, outputs, block, epilogue } } = self;
        let lanes = S::LANES;
        let counts = [count.min(lanes), count.saturating_sub(lanes)];
        let then = epilogue.then;
        if let SharedThen::SwiGlu = then {
            // The tile's two vectors are gate and value of the same columns.
            let [gate_bias, bias] = [column, outputs + column].map(|c| part(simd, epilogue.bias, c, count));
            for (r, row) in rows.iter().enumerate() {
                // SAFETY: the caller's promise.
                unsafe {
                    let gate = simd.add(simd.load(sums.add(2 * r * lanes)), gate_bias);
                    let value = simd.add(simd.load(sums.add((2 * r + 1) * lanes)), bias);
                    let v = simd.mul(math::silu(simd, gate), value);
                    simd::store(simd, row.add(column), v, count);
                }
            }
            return;
        }
        for (half, count) in counts.into_iter().enumerate().filter(|&(_, count)| count > 0) {
            let column = column + half * lanes;
            let bias = part(simd, epilogue.bias, column, count);
            let gamma = match then {
                SharedThen::ScaleAdd(gamma) => part(simd, Some(gamma), column, count),
                _ => simd.splat(1.0),
            };
            if let SharedThen::Moments(partials) = then {
                let mut moments = [simd.splat(0.0); 2];
                for (r, row) in rows.iter().enumerate() {
                    // SAFETY: the caller's promise.
                    unsafe {
                        let v = simd.add(simd.load(sums.add((2 * r + half) * lanes)), bias);
                        moments = [simd.add(moments[0], v), simd.mul_add(v, v, moments[1])];
                        simd::store(simd, row.add(column), v, count);
                    }
                }
                for (i, moments) in moments.into_iter().enumerate() {
                    let mut sums = [0.0f32; MAX_LANES];
                    // SAFETY: there is room for every level's lanes; the moments of these columns are this tile's to write.
                    unsafe {
                        simd.store(sums.as_mut_ptr(), moments);
                        let partials = partials.at((block * 2 + i) * outputs + column);
                        for (l, &sum) in sums[..count].iter().enumerate() {
                            *partials.add(l) += f64::from(sum);
                        }
                    }
                }
                continue;
            }
            for (r, row) in rows.iter().enumerate() {
                // SAFETY: the caller's promise.
                unsafe {
                    let out = row.add(column);
                    let v = simd.add(simd.load(sums.add((2 * r + half) * lanes)), bias);
                    let v = match then {
                        SharedThen::Store | SharedThen::SwiGlu | SharedThen::Moments(_) => v,
                        SharedThen::Gelu => math::gelu(simd, v),
                        SharedThen::Add => simd.add(simd::load(simd, out, count), v),
                        SharedThen::ScaleAdd(_) => simd.mul_add(v, gamma, simd::load(simd, out, count)),
                    };
                    simd::store(simd, out, v, count);
                }
            }
        }
    }
}

/// `count` values from `first` on, or zeros.
#[inline(always)]
fn part<S: Simd>(simd: S, values: Option<&[f32]>, first: usize, count: usize) -> S::V {
    match values {
        // SAFETY: the slice has its length.
        Some(values) => unsafe { simd::load(simd, values[first..first + count].as_ptr(), count) },
        None => simd.splat(0.0),
    }
}
