//! Triangles to pixels: who is seen at each of four samples of a pixel, and what the pixel is coloured and labelled.
//!
//! The picture is drawn in bands of rows so that depths stay in the cache and memory doesn't grow with the picture.

use crate::light::Light;
use crate::maths::V3;
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
            let away = a.normal.z.max(b.normal.z).max(c.normal.z) < -0.12;
            if away && !self.surfaces[*surface as usize].open {
                continue;
            }
            let (left, right) = (a.x.min(b.x).min(c.x), a.x.max(b.x).max(c.x));
            let (top, bottom) = (a.y.min(b.y).min(c.y), a.y.max(b.y).max(c.y));
            if right < 0.0 || left > wide || bottom < 0.0 || top > high {
                continue;
            }
            // Between two rows or columns of samples: nothing is hit.
            if (top - 0.5).ceil() > (bottom - 0.5).floor() || (left - 0.5).ceil() > (right - 0.5).floor() {
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
        let top = (a.y.min(b.y).min(c.y) - offset - 0.5).ceil().max(0.0) as usize;
        let bottom = (a.y.max(b.y).max(c.y) - offset - 0.5).floor().min(rows - 1.0);
        let left = (a.x.min(b.x).min(c.x) - 0.5).ceil().max(0.0) as usize;
        let right = (a.x.max(b.x).max(c.x) - 0.5).floor().min(row as f32 - 1.0);
        if bottom < 0.0 || right < 0.0 {
            return;
        }
        // Shares of b and c, and how they change along a row and down a column.
        let (wb_x, wb_y) = ((c.y - a.y) * inverse, (a.x - c.x) * inverse);
        let (wc_x, wc_y) = ((a.y - b.y) * inverse, (b.x - a.x) * inverse);
        let cut = &self.surfaces[*surface as usize].cut;
        let cut = if cut.is_nothing() { None } else { Some(cut) };
        let (zb, zc) = (b.z - a.z, c.z - a.z);
        for y in top..=bottom as usize {
            let dy = y as f32 + offset + 0.5 - a.y;
            for x in left..=right as usize {
                let dx = x as f32 + 0.5 - a.x;
                let wb = dx * wb_x + dy * wb_y;
                let wc = dx * wc_x + dy * wc_y;
                if wb < -1e-6 || wc < -1e-6 || wb + wc > 1.000_001 {
                    continue;
                }
                let z = a.z + wb * zb + wc * zc;
                let sample = &mut samples[y * row + x];
                if z <= sample.z {
                    continue;
                }
                if let Some(cut) = cut {
                    let (u, v) = (
                        a.u + wb * (b.u - a.u) + wc * (c.u - a.u),
                        a.v + wb * (b.v - a.v) + wc * (c.v - a.v),
                    );
                    if !cut.keeps(u, v) {
                        continue;
                    }
                }
                *sample = Sample { z, triangle };
            }
        }
    }

    fn pixel(&self, light: &Light, canvas: &mut Canvas<'_>, x: usize, y: usize, four: [Sample; 4]) {
        let index = y * canvas.width + x;
        let background = canvas.colours[index];
        let mut colours = [background; 4];
        let mut labels = [0u8; 4];
        let mut surfaces = [u32::MAX; 4];
        let same = four[1..].iter().all(|sample| sample.triangle == four[0].triangle);
        for i in 0..4 {
            if four[i].triangle == NOBODY {
                continue;
            }
            let surface = self.triangles[four[i].triangle as usize].1;
            surfaces[i] = surface;
            let fine = self.surfaces[surface as usize].is_fine();
            if !fine && let Some(known) = (0..i).find(|&before| surfaces[before] == surface) {
                colours[i] = colours[known];
                labels[i] = labels[known];
                continue;
            }
            let (dx, dy) =
                if same && !fine { (1.0, 1.0) } else { ((i % 2) as f32 + 0.5, (i / 2) as f32 + 0.5) };
            let at = (x as f32 * 2.0 + dx, y as f32 * 2.0 + dy);
            (labels[i], colours[i]) = self.shade(light, four[i].triangle, at);
        }
        canvas.colours[index] =
            [0, 1, 2].map(|channel| colours.iter().map(|colour| colour[channel]).sum::<f32>() * 0.25);
        canvas.labels[index] = most(&labels, &four);
    }

    fn shade(&self, light: &Light, triangle: u32, (x, y): (f32, f32)) -> (u8, Colour) {
        let (corners, surface) = &self.triangles[triangle as usize];
        let [a, b, c] = corners.map(|corner| &self.points[corner as usize]);
        let inverse = 1.0 / ((b.x - a.x) * (c.y - a.y) - (b.y - a.y) * (c.x - a.x));
        let (dx, dy) = (x - a.x, y - a.y);
        let wb = ((dx * (c.y - a.y) - dy * (c.x - a.x)) * inverse).clamp(0.0, 1.0);
        let wc = ((dy * (b.x - a.x) - dx * (b.y - a.y)) * inverse).clamp(0.0, 1.0 - wb);
        let wa = 1.0 - wb - wc;
        let (u, v) = (a.u * wa + b.u * wb + c.u * wc, a.v * wa + b.v * wb + c.v * wc);
        let normal = (a.normal * wa + b.normal * wb + c.normal * wc).unit();
        let surface = &self.surfaces[*surface as usize];
        let (label, colour) = surface.at(u, v);
        (label, light.on(colour, normal, &surface.paint, u, v))
    }
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
