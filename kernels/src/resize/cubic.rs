//! Four taps per axis, a = -0.75, in float32, rounded once.
//!
//! This is `INTER_CUBIC` of the OpenCV builds that people install (x86-64, with Intel's primitives): weights as they
//! are, positions in float64. OpenCV without them, and on images less than 4 pixels wide or high, rounds the weights to
//! 1/2048, which puts 3 to 5 % of the values off by one; the authors' preprocessed photos show that it was not what
//! they ran.

use super::linear::source_step;
use super::rows::{RowCache, Taps, WideRow, round_to_byte, written_len};
use crate::image::{CHANNELS, ImageMut, ImageRef};

/// The first of the four source indices, unclamped, and the four weights.
pub(super) fn taps(i: usize, n: usize, o: usize) -> (isize, [f32; 4]) {
    const A: f64 = -0.75;
    let position = (i as f64 + 0.5) * source_step(n, o) - 0.5;
    let second = position.floor();
    let x = position - second;
    let far = |x: f64| ((A * x - 5.0 * A) * x + 8.0 * A) * x - 4.0 * A;
    let near = |x: f64| ((A + 2.0) * x - (A + 3.0)) * x * x + 1.0;
    let [w0, w1, w2] = [far(x + 1.0), near(x), near(1.0 - x)];
    (second as isize - 1, [w0, w1, w2, 1.0 - w0 - w1 - w2].map(|w| w as f32))
}

/// Tables and buffers for one pair of sizes.
#[derive(Debug)]
pub(super) struct Plan {
    columns: Taps<4>,
    rows: Vec<RowTaps>,
    wide: WideRow,
    cache: RowCache<f32>,
}

#[derive(Debug)]
struct RowTaps {
    index: [usize; 4],
    weight: [f32; 4],
}

impl Plan {
    /// `src` and `dst` are widths and heights.
    pub(super) fn new(src: (usize, usize), dst: (usize, usize)) -> Self {
        let rows = (0..dst.1).map(|y| {
            let (first, weight) = taps(y, src.1, dst.1);
            let index = [0, 1, 2, 3].map(|k| (first + k).clamp(0, src.1 as isize - 1) as usize);
            RowTaps { index, weight }
        });
        Self {
            // Taps reach two pixels past either edge.
            columns: Taps::new((0..dst.0).map(|x| taps(x, src.0, dst.0)), 2),
            rows: rows.collect(),
            wide: WideRow::new(src.0, 2),
            cache: RowCache::new(4, written_len(dst.0)),
        }
    }

    pub(super) fn run(&mut self, src: ImageRef<'_>, mut dst: ImageMut<'_>) {
        let Self { columns, rows, wide, cache } = self;
        let len = dst.width() * CHANNELS;
        cache.clear();
        for (y, taps) in rows.iter().enumerate() {
            for index in taps.index {
                cache.require(index, |out| {
                    wide.fill(src.row(index));
                    columns.apply(wide, out);
                });
            }
            let [a, b, c, d] = taps.index.map(|index| &cache.row(index)[..len]);
            let [wa, wb, wc, wd] = taps.weight;
            for (i, out) in dst.row_mut(y).iter_mut().enumerate() {
                *out = round_to_byte(a[i] * wa + (b[i] * wb + (c[i] * wc + d[i] * wd)));
            }
        }
    }
}
