//! Triangles to pixels: who is seen at each of four samples of a pixel, and what the pixel is coloured and labelled.
//!
//! The picture is drawn in bands of rows so that depths stay in the cache and memory doesn't grow with the picture.

use crate::light::{Light, Lit};
use crate::maths::{V3, floor};
use crate::paint::Colour;
use crate::surface::Surface;

/// Rows of pixels drawn at a time.
const BAND: usize = 16;
const NOBODY: u32 = u32::MAX;

/// A vertex on the screen: x and y in samples (half pixels), z nearer when greater.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Point {
    pub x: f32,
    pub y: f32,
    pub z: f32,
    pub normal: V3,
    pub u: f32,
    pub v: f32,
}

/// Everything that is to be seen, projected.
#[derive(Default)]
pub(crate) struct Stage<'a> {
    pub points: Vec<Point>,
    pub triangles: Vec<([u32; 3], u32)>,
    pub surfaces: Vec<&'a Surface>,
}

/// What is drawn on: colours of `width` × `height` pixels and their labels.
pub(crate) struct Canvas<'a> {
    pub width: usize,
    pub height: usize,
    pub colours: &'a mut [Colour],
    pub labels: &'a mut [u8],
}

#[derive(Clone, Copy)]
struct Sample {
    z: f32,
    triangle: u32,
}

impl Stage<'_> {
    pub fn draw(&self, light: &Light, canvas: &mut Canvas<'_>) {
        let bands = self.bands(canvas.width, canvas.height);
        let row = canvas.width * 2;
        let mut samples = vec![Sample { z: f32::MIN, triangle: NOBODY }; row * BAND * 2];
        for (band, triangles) in bands.iter().enumerate() {
            if triangles.is_empty() {
                continue;
            }
            samples.fill(Sample { z: f32::MIN, triangle: NOBODY });
            for &triangle in triangles {
                self.cover(triangle, band * BAND * 2, row, &mut samples);
            }
            let first = band * BAND;
            for y in first..(first + BAND).min(canvas.height) {
                for x in 0..canvas.width {
                    let upper = (y - first) * 2 * row + x * 2;
                    let four =
                        [samples[upper], samples[upper + 1], samples[upper + row], samples[upper + row + 1]];
                    if four.iter().any(|sample| sample.triangle != NOBODY) {
                        self.pixel(light, canvas, x, y, four);
                    }
                }
            }
        }
    }

    /// The triangles that reach into each band and can be seen at all.
    fn bands(&self, width: usize, height: usize) -> Vec<Vec<u32>> {
        let mut bands = vec![Vec::new(); height.div_ceil(BAND)];
        let (wide, high) = (width as f32 * 2.0, height as f32 * 2.0);
        for (index, (corners, surface)) in self.triangles.iter().enumerate() {
            let [a, b, c] = corners.map(|corner| &self.points[corner as usize]);
            let away = more(a.normal.z, more(b.normal.z, c.normal.z)) < -0.12;
            if away && !self.surfaces[*surface as usize].open {
                continue;
            }
            let (left, right) = (less(a.x, less(b.x, c.x)), more(a.x, more(b.x, c.x)));
            let (top, bottom) = (less(a.y, less(b.y, c.y)), more(a.y, more(b.y, c.y)));
            if right < 0.0 || left > wide || bottom < 0.0 || top > high {
                continue;
            }
            // Between two rows or columns of samples: nothing is hit.
            let misses = |low: f32, high: f32| floor(low + 0.5) == floor(high + 0.5) && low != high;
            if misses(top.max(-8.0), bottom) || misses(left.max(-8.0), right) {
                continue;
            }
            let from = top.max(0.0) as usize / (BAND * 2);
            let to = (bottom.min(high - 1.0) as usize / (BAND * 2)).min(bands.len() - 1);
            for band in &mut bands[from.min(to)..=to] {
                band.push(index as u32);
            }
        }
        bands
    }

    fn cover(&self, triangle: u32, first_row: usize, row: usize, samples: &mut [Sample]) {
        let (corners, surface) = &self.triangles[triangle as usize];
        let [a, b, c] = corners.map(|corner| &self.points[corner as usize]);
        let area = (b.x - a.x) * (c.y - a.y) - (b.y - a.y) * (c.x - a.x);
        if area == 0.0 {
            return;
        }
        let inverse = 1.0 / area;
        let rows = (samples.len() / row) as f32;
        let offset = first_row as f32;
        let top = ceiling((less(a.y, less(b.y, c.y)) - offset - 0.5).max(0.0)) as usize;
        let bottom = floor((more(a.y, more(b.y, c.y)) - offset - 0.5).min(rows - 1.0));
        let left = (less(a.x, less(b.x, c.x)) - 0.5).max(0.0);
        let right = (more(a.x, more(b.x, c.x)) - 0.5).min(row as f32 - 1.0);
        if bottom < 0.0 || right < 0.0 {
            return;
        }
        // Shares of b and c, and how they change along a row and down a column.
        let (wb_x, wb_y) = ((c.y - a.y) * inverse, (a.x - c.x) * inverse);
        let (wc_x, wc_y) = ((a.y - b.y) * inverse, (b.x - a.x) * inverse);
        // Each edge as `share(dx) = slope * dx + start`, the slope's inverse ready.
        let slopes = [wb_x, wc_x, -wb_x - wc_x];
        let inverses = slopes.map(|slope| -1.0 / slope);
        let cut = &self.surfaces[*surface as usize].cut;
        let cut = if cut.is_nothing() { None } else { Some(cut) };
        let (zb, zc) = (b.z - a.z, c.z - a.z);
        let z_x = wb_x * zb + wc_x * zc;
        for y in top..=bottom as usize {
            let dy = y as f32 + offset + 0.5 - a.y;
            let (wb, wc) = (dy * wb_y, dy * wc_y);
            // A hair too wide: neighbours overlap rather than leave a gap, and the depths decide.
            const HAIR: f32 = 1e-3;
            let (mut from, mut to) = (left - HAIR, right + HAIR);
            for (edge, start) in [wb, wc, 1.0 - wb - wc].into_iter().enumerate() {
                let at = start * inverses[edge] + a.x - 0.5;
                if slopes[edge] > 0.0 {
                    from = more(from, at - HAIR);
                } else if slopes[edge] < 0.0 {
                    to = less(to, at + HAIR);
                } else if start < 0.0 {
                    to = -1.0;
                }
            }
            if to < from || to < 0.0 {
                continue;
            }
            let (from, to) = (nearest(more(0.0, from) + 0.4999), nearest(to - 0.4999).min(row - 1));
            if from > to {
                continue;
            }
            let first = from as f32 + 0.5 - a.x;
            let mut z = a.z + wb * zb + wc * zc + z_x * first;
            let line = &mut samples[y * row + from..=y * row + to];
            for (step, sample) in line.iter_mut().enumerate() {
                if z > sample.z {
                    let kept = cut.is_none_or(|cut| {
                        let dx = first + step as f32;
                        let (wb, wc) = (wb + wb_x * dx, wc + wc_x * dx);
                        cut.keeps(
                            a.u + wb * (b.u - a.u) + wc * (c.u - a.u),
                            a.v + wb * (b.v - a.v) + wc * (c.v - a.v),
                        )
                    });
                    if kept {
                        *sample = Sample { z, triangle };
                    }
                }
                z += z_x;
            }
        }
    }

    fn pixel(&self, light: &Light, canvas: &mut Canvas<'_>, x: usize, y: usize, four: [Sample; 4]) {
        let index = y * canvas.width + x;
        let background = canvas.colours[index];
        let mut colours = [background; 4];
        let mut labels = [0u8; 4];
        let mut surfaces = [u32::MAX; 4];
        let mut lit = [Lit::default(); 4];
        let same = four[1..].iter().all(|sample| sample.triangle == four[0].triangle);
        for i in 0..4 {
            if four[i].triangle == NOBODY {
                continue;
            }
            let (corners, number) = &self.triangles[four[i].triangle as usize];
            surfaces[i] = *number;
            let surface = self.surfaces[*number as usize];
            let known = (0..i).find(|&before| surfaces[before] == *number);
            let fine = surface.is_fine();
            if !fine && let Some(known) = known {
                colours[i] = colours[known];
                labels[i] = labels[known];
                continue;
            }
            let (dx, dy) =
                if same && !fine { (1.0, 1.0) } else { ((i % 2) as f32 + 0.5, (i / 2) as f32 + 0.5) };
            let [a, b, c] = corners.map(|corner| &self.points[corner as usize]);
            let [wa, wb, wc] = shares([a, b, c], (x as f32 * 2.0 + dx, y as f32 * 2.0 + dy));
            let (u, v) = (a.u * wa + b.u * wb + c.u * wc, a.v * wa + b.v * wb + c.v * wc);
            // Light changes slowly: once per surface and pixel is enough, whatever the pattern.
            lit[i] = match known {
                Some(known) => lit[known],
                None => {
                    light.on((a.normal * wa + b.normal * wb + c.normal * wc).unit(), &surface.paint, u, v)
                }
            };
            let (label, colour) = surface.at(u, v);
            labels[i] = label;
            colours[i] = lit[i].colour(colour);
        }
        canvas.colours[index] =
            [0, 1, 2].map(|channel| colours.iter().map(|colour| colour[channel]).sum::<f32>() * 0.25);
        canvas.labels[index] = most(&labels, &four);
    }
}

/// How much each corner of a triangle has to say at a point.
fn shares([a, b, c]: [&Point; 3], (x, y): (f32, f32)) -> [f32; 3] {
    let inverse = 1.0 / ((b.x - a.x) * (c.y - a.y) - (b.y - a.y) * (c.x - a.x));
    let (dx, dy) = (x - a.x, y - a.y);
    let wb = ((dx * (c.y - a.y) - dy * (c.x - a.x)) * inverse).clamp(0.0, 1.0);
    let wc = ((dy * (b.x - a.x) - dx * (b.y - a.y)) * inverse).clamp(0.0, 1.0 - wb);
    [1.0 - wb - wc, wb, wc]
}

/// The nearest whole number to an `x` in 0..4194304: what a sum leaves no bits for is rounded away. Cheaper than a
/// cast, which must mind what doesn't fit.
fn nearest(x: f32) -> usize {
    const WHOLE: f32 = 8_388_608.0;
    ((more(0.0, x) + WHOLE).to_bits() & 0x007F_FFFF) as usize
}

/// The greater; of a number and no number, `a`. One instruction, where `f32::max` must mind both.
fn more(a: f32, b: f32) -> f32 {
    if b > a { b } else { a }
}

/// The lesser, likewise.
fn less(a: f32, b: f32) -> f32 {
    if b < a { b } else { a }
}

fn ceiling(x: f32) -> f32 {
    -floor(-x)
}

/// The label that most samples have; of equally many, the nearest's.
fn most(labels: &[u8; 4], samples: &[Sample; 4]) -> u8 {
    let mut best = (0, f32::MIN, 0);
    for i in 0..4 {
        let count = labels.iter().filter(|&&label| label == labels[i]).count();
        if (count, samples[i].z) > (best.0, best.1) {
            best = (count, samples[i].z, labels[i]);
        }
    }
    best.2
}
