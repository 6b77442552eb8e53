//! Source rows widened to float32, and the horizontal taps over them.

use crate::image::CHANNELS;

/// Floats after a widened row, so that four can be loaded at its last pixel.
const SLACK: usize = 1;

/// One source row in float32 with its edge pixels repeated `pad` times on both sides.
#[derive(Debug)]
pub(super) struct WideRow {
    values: Vec<f32>,
    pad: usize,
}

impl WideRow {
    pub(super) fn new(width: usize, pad: usize) -> Self {
        Self { values: vec![0.0; (width + 2 * pad) * CHANNELS + SLACK], pad }
    }

    /// Takes over `row`.
    pub(super) fn fill(&mut self, row: &[u8]) {
        let start = self.pad * CHANNELS;
        let end = start + row.len();
        for (value, &byte) in self.values[start..end].iter_mut().zip(row) {
            *value = f32::from(byte);
        }
        for i in 0..start {
            self.values[i] = self.values[start + i % CHANNELS];
            self.values[end + i] = self.values[end - CHANNELS + i % CHANNELS];
        }
    }

    /// The values, padding included.
    pub(super) fn values(&self) -> &[f32] {
        &self.values
    }
}

/// Floats of a row that [`Taps::apply`] writes: `width` pixels and the fourth lane of the last one.
pub(super) fn written_len(width: usize) -> usize {
    width * CHANNELS + SLACK
}

/// The `K` neighbouring source pixels of each destination column and their weights.
#[derive(Debug)]
pub(super) struct Taps<const K: usize> {
    /// Index of the first tap's first channel in a [`WideRow`].
    offsets: Vec<u32>,
    weights: Vec<[f32; K]>,
}

impl<const K: usize> Taps<K> {
    /// From each column's first source pixel (as low as `-pad`) and weights.
    pub(super) fn new(columns: impl Iterator<Item = (isize, [f32; K])>, pad: usize) -> Self {
        let (offsets, weights) = columns
            .map(|(first, weights)| ((first + pad as isize) as u32 * CHANNELS as u32, weights))
            .unzip();
        Self { offsets, weights }
    }

    /// Writes the weighted sums over `row` to `out`, [`written_len`] floats of which the last means nothing.
    ///
    /// Four lanes are computed per pixel; the fourth is overwritten by the next pixel.
    pub(super) fn apply(&self, row: &WideRow, out: &mut [f32]) {
        let row = row.values();
        for (x, (&offset, weights)) in self.offsets.iter().zip(&self.weights).enumerate() {
            let taps = &row[offset as usize..][..K * CHANNELS + 1];
            let mut sum = [0.0f32; 4];
            for (k, &weight) in weights.iter().enumerate() {
                for (lane, sum) in sum.iter_mut().enumerate() {
                    *sum += taps[k * CHANNELS + lane] * weight;
                }
            }
            out[x * CHANNELS..][..4].copy_from_slice(&sum);
        }
    }
}

/// 1.5 * 2^23: float32 values around it are whole numbers, so that adding it rounds (ties to even) and leaves the
/// whole number in the low bits. Unlike a cast this needs no handling of values out of range and vectorises.
pub(super) const ROUND: f32 = 12_582_912.0;

/// Rounded to the nearest byte, ties to even, clipped.
pub(super) fn round_to_byte(value: f32) -> u8 {
    (value.clamp(0.0, 255.0) + ROUND).to_bits() as u8
}

/// Which source rows a plan's row buffers hold while it runs down an image.
///
/// Source row `y` is kept in buffer `y % buffers`, so neighbouring rows never displace each other.
#[derive(Debug)]
pub(super) struct RowCache<T> {
    rows: Vec<(usize, Vec<T>)>,
}

impl<T: Clone + Default> RowCache<T> {
    pub(super) fn new(buffers: usize, len: usize) -> Self {
        Self { rows: vec![(usize::MAX, vec![T::default(); len]); buffers] }
    }

    /// Forgets the rows of the last image.
    pub(super) fn clear(&mut self) {
        for (held, _) in &mut self.rows {
            *held = usize::MAX;
        }
    }

    /// Makes sure that source row `y` is there, filling it by `fill` if not.
    pub(super) fn require(&mut self, y: usize, fill: impl FnOnce(&mut [T])) {
        let slot = y % self.rows.len();
        let (held, row) = &mut self.rows[slot];
        if *held != y {
            fill(row);
            *held = y;
        }
    }

    /// Source row `y`, which was required before.
    pub(super) fn row(&self, y: usize) -> &[T] {
        let (held, row) = &self.rows[y % self.rows.len()];
        debug_assert_eq!(*held, y);
        row
    }
}
