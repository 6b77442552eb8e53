//! The mean of the source area under each destination pixel, where neither side grows.

use super::linear::source_step;
use super::rows::{RowCache, WideRow, round_to_byte, written_len};
use crate::image::{CHANNELS, ImageMut, ImageRef};

/// Whole source pixels under every destination pixel: integer sums, scaled and rounded once.
#[derive(Debug)]
pub(super) struct BoxPlan {
    /// Source pixels under one destination pixel, along x and y.
    step: (usize, usize),
    /// Sums of `step.1` rows.
    columns: Vec<u32>,
}

/// Source pixels under a destination pixel along x and y, if both are whole numbers in OpenCV's arithmetic. `src` and `dst` are
/// widths and heights.
pub(super) fn whole_steps(src: (usize, usize), dst: (usize, usize)) -> Option<(usize, usize)> {
    let whole = |n: usize, o: usize| {
        let step = source_step(n, o);
        ((step - step.round_ties_even()).abs() < f64::EPSILON).then_some(step as usize)
    };
    Some((whole(src.0, dst.0)?, whole(src.1, dst.1)?))
}

/// What a sum over an area is multiplied by.
pub(super) fn box_scale(step: (usize, usize)) -> f32 {
    1.0 / (step.0 * step.1) as f32
}

impl BoxPlan {
    /// For sources of `width`.
    pub(super) fn new(step: (usize, usize), width: usize) -> Self {
        Self { step, columns: vec![0; width * CHANNELS] }
    }

    pub(super) fn run(&mut self, src: ImageRef<'_>, mut dst: ImageMut<'_>) {
        let Self { step, columns } = self;
        let scale = box_scale(*step);
        for y in 0..dst.height() {
            columns.fill(0);
            for row in 0..step.1 {
                for (sum, &byte) in columns.iter_mut().zip(src.row(y * step.1 + row)) {
                    *sum += u32::from(byte);
                }
            }
            let areas = columns.chunks_exact(step.0 * CHANNELS);
            for (out, area) in dst.row_mut(y).chunks_exact_mut(CHANNELS).zip(areas) {
                for (channel, out) in out.iter_mut().enumerate() {
                    let sum: u32 = area.iter().skip(channel).step_by(CHANNELS).sum();
                    // 2 x 2 has a path of its own in OpenCV, in which ties go up; elsewhere they go to even.
                    *out = match *step {
                        (2, 2) => ((sum + 2) >> 2) as u8,
                        _ => round_to_byte(sum as f32 * scale),
                    };
                }
            }
        }
    }
}

/// The source pixels under one destination pixel on one axis: a run from `first`, and where its weights are.
#[derive(Debug)]
struct Cover {
    first: usize,
    weights: std::ops::Range<usize>,
}

/// The covers of one axis.
#[derive(Debug)]
pub(super) struct Axis {
    covers: Vec<Cover>,
    weights: Vec<f32>,
}

impl Axis {
    /// `n` source pixels over `o <= n` destination pixels. Shares below a thousandth of a pixel are left out.
    pub(super) fn new(n: usize, o: usize) -> Self {
        const LEAST: f64 = 1e-3;
        let step = source_step(n, o);
        let mut axis = Self { covers: Vec::with_capacity(o), weights: Vec::new() };
        for i in 0..o {
            let from = i as f64 * step;
            let to = from + step;
            let cell = step.min(n as f64 - from);
            let last = (to.floor() as usize).min(n - 1);
            let inner = (from.ceil() as usize).min(last);
            let start = axis.weights.len();
            let mut first = inner;
            if inner as f64 - from > LEAST {
                first -= 1;
                axis.weights.push(((inner as f64 - from) / cell) as f32);
            }
            axis.weights.extend((inner..last).map(|_| (1.0 / cell) as f32));
            if to - last as f64 > LEAST {
                axis.weights.push(((to - last as f64).min(1.0).min(cell) / cell) as f32);
            }
            axis.covers.push(Cover { first, weights: start..axis.weights.len() });
        }
        axis
    }

    /// The first source pixel of each destination pixel, and weights.
    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, &[f32])> {
        self.covers.iter().map(|cover| (cover.first, &self.weights[cover.weights.clone()]))
    }
}

/// Areas with fractions of pixels: weighted sums in float32, each axis in the order of its pixels.
#[derive(Debug)]
pub(super) struct Plan {
    columns: Axis,
    rows: Axis,
    wide: WideRow,
    /// The row that two destination rows share.
    cache: RowCache<f32>,
    sums: Vec<f32>,
}

impl Plan {
    /// `src` and `dst` are widths and heights.
    pub(super) fn new(src: (usize, usize), dst: (usize, usize)) -> Self {
        Self {
            columns: Axis::new(src.0, dst.0),
            rows: Axis::new(src.1, dst.1),
            wide: WideRow::new(src.0, 0),
            cache: RowCache::new(1, written_len(dst.0)),
            sums: vec![0.0; dst.0 * CHANNELS],
        }
    }

    pub(super) fn run(&mut self, src: ImageRef<'_>, mut dst: ImageMut<'_>) {
        let Self { columns, rows, wide, cache, sums } = self;
        cache.clear();
        for (y, (first, weights)) in rows.iter().enumerate() {
            for (k, &weight) in weights.iter().enumerate() {
                let index = first + k;
                cache.require(index, |out| {
                    wide.fill(src.row(index));
                    sum_columns(columns, wide.values(), out);
                });
                let row = cache.row(index);
                if k == 0 {
                    sums.iter_mut().zip(row).for_each(|(sum, &value)| *sum = value * weight);
                } else {
                    sums.iter_mut().zip(row).for_each(|(sum, &value)| *sum += value * weight);
                }
            }
            for (out, &sum) in dst.row_mut(y).iter_mut().zip(&*sums) {
                *out = round_to_byte(sum);
            }
        }
    }
}

/// Four lanes per pixel, of which the fourth is overwritten by the next pixel.
fn sum_columns(columns: &Axis, row: &[f32], out: &mut [f32]) {
    for (x, (first, weights)) in columns.iter().enumerate() {
        let pixels = &row[first * CHANNELS..][..weights.len() * CHANNELS + 1];
        let mut sum = [0.0f32; 4];
        for (k, &weight) in weights.iter().enumerate() {
            let pixel = &pixels[k * CHANNELS..][..4];
            for lane in 0..4 {
                sum[lane] += pixel[lane] * weight;
            }
        }
        out[x * CHANNELS..][..4].copy_from_slice(&sum);
    }
}
