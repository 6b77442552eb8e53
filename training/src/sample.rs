//! One picture with its labels, as the network takes it, and what training does to it first.

use rand::RngExt;
use rand_pcg::Pcg64Mcg;

/// How 8-bit values become the network's input: `(value - mean) / std` for R, G and B.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Normalisation {
    /// Of each channel, from 0 to 255.
    pub mean: [f32; 3],
    /// Of each channel.
    pub std: [f32; 3],
}

/// A picture of the network's input size with the label of every pixel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    height: usize,
    width: usize,
    /// `[height, width, 3]`.
    rgb: Vec<u8>,
    /// `[height, width]`.
    labels: Vec<u8>,
}

impl Sample {
    /// Of `rgb` `[height, width, 3]` and `labels` `[height, width]`.
    ///
    /// # Panics
    /// If the lengths don't agree.
    pub fn new(height: usize, width: usize, rgb: Vec<u8>, labels: Vec<u8>) -> Self {
        assert_eq!([rgb.len(), labels.len()], [3 * height * width, height * width], "{height} x {width}");
        Self { height, width, rgb, labels }
    }

    /// Height and width.
    pub fn size(&self) -> [usize; 2] {
        [self.height, self.width]
    }

    /// `[height, width, 3]`.
    pub fn rgb(&self) -> &[u8] {
        &self.rgb
    }

    /// `[height, width]`.
    pub fn labels(&self) -> &[u8] {
        &self.labels
    }

    /// Appends the network's input, `[3, height, width]`.
    pub fn normalise(&self, by: &Normalisation, input: &mut Vec<f32>) {
        for channel in 0..3 {
            let (mean, inverse) = (by.mean[channel], 1.0 / by.std[channel]);
            input.extend(self.rgb[channel..].iter().step_by(3).map(|&x| (f32::from(x) - mean) * inverse));
        }
    }

    /// Mirrored left to right; `mirror` says which class each becomes: a left arm a right one.
    pub fn flip(&mut self, mirror: &[u8]) {
        for row in self.rgb.chunks_exact_mut(3 * self.width) {
            for x in 0..self.width / 2 {
                let (left, right) = row.split_at_mut(3 * (self.width - 1 - x));
                left[3 * x..][..3].swap_with_slice(&mut right[..3]);
            }
        }
        for row in self.labels.chunks_exact_mut(self.width) {
            row.reverse();
            row.iter_mut().for_each(|label| *label = mirror[usize::from(*label)]);
        }
    }

    /// Other contrast, brightness, tint and saturation, by a little.
    pub fn jitter(&mut self, random: &mut Pcg64Mcg) {
        let contrast: f32 = random.random_range(0.8..1.25);
        let brightness: f32 = random.random_range(-24.0..24.0);
        let saturation: f32 = random.random_range(0.6..1.3);
        let tint: [f32; 3] = std::array::from_fn(|_| random.random_range(0.92..1.08));
        for pixel in self.rgb.chunks_exact_mut(3) {
            let rgb = [0, 1, 2].map(|c| f32::from(pixel[c]));
            // Rec. 601 luma: what saturation leaves alone.
            let grey = 0.299 * rgb[0] + 0.587 * rgb[1] + 0.114 * rgb[2];
            for c in 0..3 {
                let x = (grey + (rgb[c] - grey) * saturation) * tint[c];
                // The cast clips to 0..=255.
                pixel[c] = ((x - 128.0) * contrast + 128.0 + brightness).round() as u8;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flip_mirrors_pixels_and_swaps_sides() {
        // Classes 1 and 2 are each other's mirror image.
        let rgb = vec![1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 14, 15, 16, 17, 18, 19];
        let mut sample = Sample::new(2, 3, rgb.clone(), vec![0, 1, 1, 2, 0, 3]);
        sample.flip(&[0, 2, 1, 3]);
        assert_eq!(sample.labels, [2, 2, 0, 3, 0, 1]);
        assert_eq!(sample.rgb, [7, 8, 9, 4, 5, 6, 1, 2, 3, 17, 18, 19, 14, 15, 16, 11, 12, 13]);
        sample.flip(&[0, 2, 1, 3]);
        assert_eq!((sample.rgb, sample.labels), (rgb, vec![0, 1, 1, 2, 0, 3]));
    }

    #[test]
    fn normalised_is_planar() {
        let by = Normalisation { mean: [1.0, 2.0, 3.0], std: [1.0, 2.0, 4.0] };
        let mut input = Vec::new();
        Sample::new(1, 2, vec![2, 4, 7, 3, 6, 11], vec![0, 0]).normalise(&by, &mut input);
        assert_eq!(input, [1.0, 2.0, 1.0, 2.0, 1.0, 2.0]);
    }
}
