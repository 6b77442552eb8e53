//! Means and deviations of a product's channels, for the InstanceNorm after it: summed while the values are still in
//! registers, so that the norm needs no pass of its own over them.

use crate::cpu::Threads;
use crate::cpu::threads::SharedMut;

/// Mean and inverse deviation of each channel of the last product that was given this. It keeps its memory.
#[derive(Debug, Default)]
pub struct Moments {
    epsilon: f64,
    /// `[blocks][2][channels]`: sums and sums of squares over one block of rows. Float32 sums of a tile's few rows are
    /// added up in float64, and blocks don't depend on the number of threads: the result doesn't either.
    partials: Vec<f64>,
    mean: Vec<f32>,
    inverse: Vec<f32>,
}

impl Moments {
    /// For a norm with this `epsilon`.
    pub fn new(epsilon: f64) -> Self {
        Self { epsilon, ..Self::default() }
    }

    /// The channels' means.
    pub fn mean(&self) -> &[f32] {
        &self.mean
    }

    /// `1 / sqrt(variance + epsilon)` of the channels, with the biased variance.
    pub fn inverse(&self) -> &[f32] {
        &self.inverse
    }

    pub(super) fn prepare(&mut self, blocks: usize, channels: usize) -> SharedMut<f64> {
        self.partials.clear();
        self.partials.resize(blocks * 2 * channels, 0.0);
        self.mean.resize(channels, 0.0);
        self.inverse.resize(channels, 0.0);
        SharedMut(self.partials.as_mut_ptr())
    }

    /// Adds up the blocks in order, for `rows` rows in all.
    pub(super) fn finish(&mut self, threads: &mut Threads, rows: usize) {
        const CHANNELS: usize = 32;
        let channels = self.mean.len();
        let (mean, inverse) = (SharedMut(self.mean.as_mut_ptr()), SharedMut(self.inverse.as_mut_ptr()));
        let (partials, epsilon) = (&self.partials, self.epsilon);
        threads.run(channels.div_ceil(CHANNELS), |_, task| {
            let first = task * CHANNELS;
            let count = CHANNELS.min(channels - first);
            let mut sums = [[0.0; CHANNELS]; 2];
            for block in partials.chunks_exact(2 * channels) {
                for (sums, block) in sums.iter_mut().zip(block.chunks_exact(channels)) {
                    sums.iter_mut().zip(&block[first..first + count]).for_each(|(sum, value)| *sum += value);
                }
            }
            let [values, squares] = sums;
            for (i, (value, square)) in values.into_iter().zip(squares).take(count).enumerate() {
                let center = value / rows as f64;
                let variance = (square / rows as f64 - center * center).max(0.0);
                // SAFETY: the channel exists, and is this task's alone.
                unsafe {
                    *mean.at(first + i) = center as f32;
                    *inverse.at(first + i) = (1.0 / (variance + epsilon).sqrt()) as f32;
                }
            }
        });
    }
}
