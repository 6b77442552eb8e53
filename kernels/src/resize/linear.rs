//! Two taps per axis in fixed point.
//!
//! Weights are rounded to 1/2048. With A and B the integer horizontal sums of the two rows and b0, b1 the row
//! weights, a value is `(((b0 * (A >> 4)) >> 16) + ((b1 * (B >> 4)) >> 16) + 2) >> 2`.

use super::rows::{ROUND, RowCache, Taps, WideRow, written_len};
use crate::image::{CHANNELS, ImageMut, ImageRef};

/// Fixed-point one.
const ONE: f32 = 2048.0;

/// A destination position on one axis: the first source index, unclamped, and the second one's share.
type Position = (isize, f32);

/// The position of destination pixel `i` of `o`, over `n` source pixels.
pub(super) type Positions = fn(i: usize, n: usize, o: usize) -> Position;

/// Column `x` of `o`: the first of its two source columns of `n`, and their weights. A position off the image has weight 1 on
/// the edge pixel.
pub(super) fn column(x: usize, n: usize, o: usize, positions: Positions) -> (isize, [f32; 2]) {
    let (first, share) = positions(x, n, o);
    let inside = first >= 0 && first < n as isize - 1;
    let share = if inside { share } else { 0.0 };
    (first.clamp(0, n as isize - 1), fixed_point(share))
}

/// Row `y` of `o`: the first of its two source rows of `n`, unclamped, and their weights. Off the image the rows are clamped and
/// the weights stay, which differs from one row alone by the rounding of each half.
pub(super) fn row(y: usize, n: usize, o: usize, positions: Positions) -> (isize, [f32; 2]) {
    let (first, share) = positions(y, n, o);
    (first, fixed_point(share))
}

/// Whole numbers.
fn fixed_point(share: f32) -> [f32; 2] {
    [1.0 - share, share].map(|weight| (weight * ONE).round_ties_even())
}

/// Half-pixel centres: `(i + 0.5) * s - 0.5` with `s` the source length per destination pixel.
pub(super) fn centred(i: usize, n: usize, o: usize) -> Position {
    let scale = source_step(n, o);
    let position = ((i as f64 + 0.5) * scale - 0.5) as f32;
    let first = position.floor();
    (first as isize, position - first)
}

/// What `INTER_AREA` does where a side grows: the pixel under the left edge, and its right neighbour for as much as
/// the destination pixel reaches into it.
pub(super) fn area_growing(i: usize, n: usize, o: usize) -> Position {
    let first = (i as f64 * source_step(n, o)).floor();
    let share = ((i + 1) as f64 - (first + 1.0) * (o as f64 / n as f64)) as f32;
    (first as isize, if share <= 0.0 { 0.0 } else { share - share.floor() })
}

/// Source length per destination pixel, rounded as OpenCV's is: the inverse of the inverse.
pub(super) fn source_step(n: usize, o: usize) -> f64 {
    1.0 / (o as f64 / n as f64)
}

/// Tables and buffers for one pair of sizes.
#[derive(Debug)]
pub(super) struct Plan {
    columns: Taps<2>,
    rows: Vec<RowTaps>,
    wide: WideRow,
    sums: Vec<f32>,
    /// Horizontal sums shifted right by 4, which fit 16 bits.
    cache: RowCache<i16>,
}

#[derive(Debug)]
struct RowTaps {
    index: [usize; 2],
    weight: [i16; 2],
}

impl Plan {
    /// `src` and `dst` are widths and heights.
    pub(super) fn new(src: (usize, usize), dst: (usize, usize), positions: Positions) -> Self {
        let columns = (0..dst.0).map(|x| column(x, src.0, dst.0, positions));
        let rows = (0..dst.1).map(|y| {
            let (first, weights) = row(y, src.1, dst.1, positions);
            let index = [first, first + 1].map(|row| row.clamp(0, src.1 as isize - 1) as usize);
            RowTaps { index, weight: weights.map(|w| w as i16) }
        });
        Self {
            columns: Taps::new(columns, 1),
            rows: rows.collect(),
            wide: WideRow::new(src.0, 1),
            sums: vec![0.0; written_len(dst.0)],
            cache: RowCache::new(2, dst.0 * CHANNELS),
        }
    }

    pub(super) fn run(&mut self, src: ImageRef<'_>, mut dst: ImageMut<'_>) {
        let Self { columns, rows, wide, sums, cache } = self;
        cache.clear();
        for (y, taps) in rows.iter().enumerate() {
            for index in taps.index {
                cache.require(index, |out| {
                    wide.fill(src.row(index));
                    columns.apply(wide, sums);
                    shift_right_4(sums, out);
                });
            }
            let [a, b] = taps.index.map(|index| cache.row(index));
            blend(a, b, taps.weight, dst.row_mut(y));
        }
    }
}

/// `A >> 4` of whole numbers in float32. `A / 16` less 15/32 is nearest to the whole number wanted, and exact.
fn shift_right_4(sums: &[f32], out: &mut [i16]) {
    for (out, &sum) in out.iter_mut().zip(sums) {
        *out = (sum * 0.0625 - 0.46875 + ROUND).to_bits() as i16;
    }
}

fn blend(a: &[i16], b: &[i16], weight: [i16; 2], out: &mut [u8]) {
    let high = |value: i16, weight: i16| ((i32::from(value) * i32::from(weight)) >> 16) as i16;
    for ((out, &a), &b) in out.iter_mut().zip(a).zip(b) {
        *out = ((high(a, weight[0]) + high(b, weight[1]) + 2) >> 2) as u8;
    }
}
