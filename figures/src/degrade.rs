//! What a camera and a codec do to a picture: blur, exposure, noise and the losses of JPEG. Labels stay as they are.

use crate::dice::Dice;
use crate::maths::{bits, floor};
use crate::paint::Colour;

/// The damage done to a picture.
#[derive(Clone, Debug, Default)]
pub(crate) struct Degrade {
    /// How wide the blur is along x and y, in frame heights.
    blur: (f32, f32),
    exposure: f32,
    contrast: f32,
    cast: Colour,
    vignette: f32,
    noise: f32,
    /// How coarsely JPEG keeps a picture: 1 for its standard tables (quality 50), less is better.
    codec: Option<f32>,
    pub seed: u32,
}

impl Degrade {
    /// No damage.
    pub fn none() -> Degrade {
        Degrade { exposure: 1.0, contrast: 1.0, cast: [1.0; 3], ..Degrade::default() }
    }

    pub fn sample(dice: &mut Dice) -> Degrade {
        let size = dice.range(0.002, 0.009);
        let blur = match dice.below(10) {
            0..=2 => (size, size),
            3 => (size * 2.0, 0.0),
            4 => (0.0, size * 1.5),
            _ => (0.0, 0.0),
        };
        Degrade {
            blur,
            exposure: 1.0 + dice.about(0.28),
            contrast: 1.0 + dice.about(0.3),
            cast: [1.0 + dice.about(0.1), 1.0 + dice.about(0.05), 1.0 + dice.about(0.1)],
            vignette: if dice.chance(0.3) { dice.range(0.1, 0.45) } else { 0.0 },
            noise: if dice.chance(0.5) { dice.range(0.005, 0.05) } else { 0.0 },
            codec: if dice.chance(0.4) { Some(dice.range(0.25, 2.2)) } else { None },
            seed: dice.seed(),
        }
    }

    /// Blurs and grades the colours of `width` × `height` pixels and makes bytes of them. `across` and `down` are
    /// pixels per frame height.
    pub fn finish(
        &self,
        mut colours: Vec<Colour>,
        width: usize,
        height: usize,
        (across, down): (f32, f32),
    ) -> Vec<u8> {
        blur(&mut colours, width, height, (self.blur.0 * across, self.blur.1 * down));
        for y in 0..height {
            let dy = (y as f32 + 0.5) / height as f32 - 0.5;
            for x in 0..width {
                let colour = &mut colours[y * width + x];
                let dx = (x as f32 + 0.5) / width as f32 - 0.5;
                let gain = self.exposure * (1.0 - self.vignette * 2.0 * (dx * dx + dy * dy));
                for (channel, cast) in colour.iter_mut().zip(self.cast) {
                    *channel = (*channel * gain * cast - 0.5) * self.contrast + 0.5;
                }
                if self.noise > 0.0 {
                    // The sum of two bytes has a hill-shaped distribution; channels share half of it.
                    let dice = [bits(x as i32, y as i32, self.seed), bits(y as i32, x as i32, !self.seed)];
                    let grain = |k: u32| {
                        let sum = (dice[0] >> (8 * k) & 255) + (dice[1] >> (8 * k) & 255);
                        sum as i32 as f32 * (1.0 / 255.0) - 1.0
                    };
                    let all = grain(3);
                    for (k, channel) in colour.iter_mut().enumerate() {
                        *channel += self.noise * 1.6 * (all + grain(k as u32));
                    }
                }
            }
        }
        if let Some(coarse) = self.codec {
            codec(&mut colours, width, height, coarse);
        }
        let mut bytes = Vec::with_capacity(colours.len() * 3);
        for colour in &colours {
            bytes.extend(colour.map(|channel| (channel.clamp(0.0, 1.0) * 255.0 + 0.5) as u8));
        }
        bytes
    }
}

/// Blurs with a triangle `wide` and `high` pixels from its middle to where it ends.
pub(crate) fn blur(colours: &mut [Colour], width: usize, height: usize, (wide, high): (f32, f32)) {
    let mut line = Vec::new();
    if wide > 0.3 {
        for row in colours.chunks_exact_mut(width) {
            for _ in 0..2 {
                average(row, 1, width, wide * 0.5, &mut line);
            }
        }
    }
    if high > 0.3 {
        for x in 0..width {
            for _ in 0..2 {
                average(&mut colours[x..], width, height, high * 0.5, &mut line);
            }
        }
    }
}

/// Averages over `radius` either side, the outermost pixels by their share; `count` colours, `step` apart.
fn average(colours: &mut [Colour], step: usize, count: usize, radius: f32, line: &mut Vec<Colour>) {
    line.clear();
    line.extend((0..count).map(|i| colours[i * step]));
    let whole = radius.floor();
    let (share, whole) = (radius - whole, whole as isize);
    let last = count as isize - 1;
    let at = |i: isize| line[i.clamp(0, last) as usize];
    let weight = 1.0 / (1.0 + 2.0 * radius);
    let mut sum = [0.0f32; 3];
    for i in -whole..=whole {
        let colour = at(i);
        for channel in 0..3 {
            sum[channel] += colour[channel];
        }
    }
    for i in 0..count as isize {
        let (left, right) = (at(i - whole - 1), at(i + whole + 1));
        colours[i as usize * step] =
            [0, 1, 2].map(|channel| (sum[channel] + share * (left[channel] + right[channel])) * weight);
        let leaving = at(i - whole);
        for channel in 0..3 {
            sum[channel] += right[channel] - leaving[channel];
        }
    }
}

/// JPEG's standard tables for brightness and colour, in rows.
const BRIGHTNESS: [u8; 64] = [
    16, 11, 10, 16, 24, 40, 51, 61, 12, 12, 14, 19, 26, 58, 60, 55, 14, 13, 16, 24, 40, 57, 69, 56, 14, 17,
    22, 29, 51, 87, 80, 62, 18, 22, 37, 56, 68, 109, 103, 77, 24, 35, 55, 64, 81, 104, 113, 92, 49, 64, 78,
    87, 103, 121, 120, 101, 72, 92, 95, 98, 112, 100, 103, 99,
];
const COLOUR: [u8; 64] = [
    17, 18, 24, 47, 99, 99, 99, 99, 18, 21, 26, 66, 99, 99, 99, 99, 24, 26, 56, 99, 99, 99, 99, 99, 47, 66,
    99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99,
    99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99,
];

/// What JPEG loses: 8×8 blocks of cosines, rounded. Written here rather than encoded and decoded by a library: coding
/// the rounded numbers loses nothing more, and a library's arithmetic may differ with the processor.
fn codec(colours: &mut [Colour], width: usize, height: usize, coarse: f32) {
    let basis = cosines();
    // Colour is kept at half the size.
    let planes = [(0, 1, &BRIGHTNESS), (1, 2, &COLOUR), (2, 2, &COLOUR)];
    let split = |colour: Colour| {
        let [r, g, b] = colour.map(|channel| channel.clamp(0.0, 1.0) * 255.0);
        [
            0.299 * r + 0.587 * g + 0.114 * b - 128.0,
            -0.168_736 * r - 0.331_264 * g + 0.5 * b,
            0.5 * r - 0.418_688 * g - 0.081_312 * b,
        ]
    };
    let split: Vec<Colour> = colours.iter().map(|&colour| split(colour)).collect();
    let mut kept: [Vec<f32>; 3] = Default::default();
    for (plane, half, steps) in planes {
        let (w, h) = (width.div_ceil(half), height.div_ceil(half));
        let at = |x: usize, y: usize| {
            let mut sum = 0.0;
            for dy in 0..half {
                for dx in 0..half {
                    let (x, y) = ((x * half + dx).min(width - 1), (y * half + dy).min(height - 1));
                    sum += split[y * width + x][plane];
                }
            }
            sum / (half * half) as f32
        };
        let mut out = vec![0.0; w * h];
        for by in (0..h).step_by(8) {
            for bx in (0..w).step_by(8) {
                let mut block = [0.0f32; 64];
                for (i, value) in block.iter_mut().enumerate() {
                    *value = at((bx + i % 8).min(w - 1), (by + i / 8).min(h - 1));
                }
                let mut block = transform(&block, &basis, false);
                for (value, &step) in block.iter_mut().zip(steps) {
                    let step = (f32::from(step) * coarse).max(1.0);
                    *value = floor(*value / step + 0.5) * step;
                }
                let block = transform(&block, &basis, true);
                for y in 0..8.min(h - by) {
                    for x in 0..8.min(w - bx) {
                        out[(by + y) * w + bx + x] = block[y * 8 + x];
                    }
                }
            }
        }
        kept[plane] = out;
    }
    let small = width.div_ceil(2);
    for y in 0..height {
        for x in 0..width {
            let (cb, cr) = (kept[1][y / 2 * small + x / 2], kept[2][y / 2 * small + x / 2]);
            let bright = kept[0][y * width + x] + 128.0;
            colours[y * width + x] =
                [bright + 1.402 * cr, bright - 0.344_136 * cb - 0.714_136 * cr, bright + 1.772 * cb]
                    .map(|channel| channel / 255.0);
        }
    }
}

/// `[k][x]`: cosine k of eight samples, of length 1.
fn cosines() -> [[f32; 8]; 8] {
    std::array::from_fn(|k| {
        std::array::from_fn(|x| {
            let (_, cosine) = crate::maths::sin_cos(180.0 / 16.0 * (2 * x + 1) as f32 * k as f32);
            cosine * if k == 0 { 0.353_553_4 } else { 0.5 }
        })
    })
}

/// Samples to cosines, or back, along rows and then columns.
fn transform(block: &[f32; 64], basis: &[[f32; 8]; 8], back: bool) -> [f32; 64] {
    let pass = |block: &[f32; 64]| {
        let mut out = [0.0f32; 64];
        for row in 0..8 {
            let mut sums = [0.0f32; 8];
            for i in 0..8 {
                let value = block[row * 8 + i];
                for (k, sum) in sums.iter_mut().enumerate() {
                    *sum += value * if back { basis[i][k] } else { basis[k][i] };
                }
            }
            for (k, sum) in sums.into_iter().enumerate() {
                // Turned over, so that the second pass goes along the columns.
                out[k * 8 + row] = sum;
            }
        }
        out
    };
    pass(&pass(block))
}

/// How the noise of a moment differs from that of another.
pub(crate) fn reseed(seed: u32, seconds: f64) -> u32 {
    seed ^ ((seconds * 1000.0) as u32).wrapping_mul(0x9E37_79B1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::maths::{hash, mix};

    #[test]
    fn cosines_there_and_back_are_the_same() {
        let block: [f32; 64] = std::array::from_fn(|i| mix(-100.0, 100.0, hash(i as i32, 0, 1)));
        let basis = cosines();
        let again = transform(&transform(&block, &basis, false), &basis, true);
        for (a, b) in block.iter().zip(again) {
            assert!((a - b).abs() < 1e-2, "{a} {b}");
        }
    }

    #[test]
    fn a_blur_keeps_a_flat_picture_flat() {
        let mut colours = vec![[0.25, 0.5, 0.75]; 20 * 9];
        blur(&mut colours, 20, 9, (3.3, 40.0));
        for colour in colours {
            assert!((colour[0] - 0.25).abs() < 1e-4 && (colour[2] - 0.75).abs() < 1e-4);
        }
    }
}
