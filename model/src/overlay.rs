//! Paints a label map over its frame, in the frame's own format. Knows frames and palettes, no engine.

use sapiens_kernels::frame::Tint;

use crate::error::{ErrorKind, Result, SegmentError};
use crate::frame::{Component, FrameInfo, FrameViewMut, Layout, Packed, RgbToYuv, Yuv};
use crate::label_map::LabelMap;
use crate::palette::Palette;

/// Blends each shown class's colour into the frame: `(1 - opacity) * pixel + opacity * colour`.
///
/// RGB formats get the colours exactly, YUV formats under the frame's colorimetry (a chroma sample is blended
/// by as much of its block as is shown), gray frames their brightness. Alpha is left as it is. An opacity
/// outside 0 to 1 is clamped.
///
/// # Errors
/// `InvalidFrame` if the map has another size than the frame.
pub fn paint_overlay(
    frame: &mut FrameViewMut<'_>,
    labels: &LabelMap,
    palette: &Palette,
    opacity: f64,
) -> Result<()> {
    let info = frame.info();
    check_size(info, labels)?;
    if opacity <= 0.0 {
        return Ok(());
    }
    let blend = Blend { tints: tints(info, palette, opacity) };
    match info.format.layout() {
        Layout::Packed(packed) => {
            for y in 0..info.height {
                let row = frame.row_mut(0, y);
                match packed.step {
                    3 => packed_row::<3, 48>(&blend, row, labels.row(y), packed),
                    _ => packed_row::<4, 16>(&blend, row, labels.row(y), packed),
                }
            }
        }
        Layout::Gray => {
            for y in 0..info.height {
                luma_row(&blend, frame.row_mut(0, y), labels.row(y), 0, 1);
            }
        }
        Layout::Yuv(yuv) => paint_yuv(&blend, frame, labels, yuv),
    }
    Ok(())
}

/// What each label does to a frame's components.
pub(crate) fn tints(info: FrameInfo, palette: &Palette, opacity: f64) -> [Tint; 256] {
    // The cast turns NaN into 0.
    let alpha = (opacity.clamp(0.0, 1.0) * f64::from(OPAQUE)).round() as u16;
    let to_yuv = RgbToYuv::new(info.colorimetry);
    let packed = matches!(info.format.layout(), Layout::Packed(_));
    std::array::from_fn(|label| {
        let label = label as u8;
        if palette.is_shown(label) {
            let color = palette.color(label);
            let color = if packed { color } else { to_yuv.convert(color) };
            Tint { keep: OPAQUE - alpha, add: color.map(|part| u16::from(part) * alpha) }
        } else {
            Tint { keep: OPAQUE, add: [0; 3] }
        }
    })
}

fn paint_yuv(blend: &Blend, frame: &mut FrameViewMut<'_>, labels: &LabelMap, yuv: Yuv) {
    let height = frame.info().height;
    for y in 0..height {
        luma_row(blend, frame.row_mut(yuv.y.plane, y), labels.row(y), yuv.y.offset, yuv.y.step);
    }
    for (y, top) in (0..height).step_by(yuv.block_height).enumerate() {
        let bottom = (top + yuv.block_height - 1).min(height - 1);
        let rows = [labels.row(top), labels.row(bottom)];
        if yuv.u.plane == yuv.v.plane {
            chroma_row(blend, frame.row_mut(yuv.u.plane, y), rows, yuv.u.step, &[(1, yuv.u), (2, yuv.v)]);
        } else {
            for (part, component) in [(1, yuv.u), (2, yuv.v)] {
                let row = frame.row_mut(component.plane, y);
                chroma_row(blend, row, rows, component.step, &[(part, component)]);
            }
        }
    }
}

/// Whether a map has the size of its frame.
pub(crate) fn check_size(info: FrameInfo, labels: &LabelMap) -> Result<()> {
    if (labels.width(), labels.height()) == (info.width, info.height) {
        return Ok(());
    }
    Err(SegmentError::new(
        ErrorKind::InvalidFrame,
        format!(
            "a map of {} x {} labels: expected {} x {}, the frame's size",
            labels.width(),
            labels.height(),
            info.width,
            info.height
        ),
    ))
}

const OPAQUE: u16 = Tint::OPAQUE;

/// A tint per label.
struct Blend {
    tints: [Tint; 256],
}

#[inline(always)]
fn mix(value: u8, keep: u16, add: u16) -> u8 {
    ((u16::from(value) * keep + add + OPAQUE / 2) / OPAQUE) as u8
}

impl Blend {
    /// The label's tint; none if it leaves pixels as they are.
    fn tint(&self, label: u8) -> Option<Tint> {
        let tint = self.tints[usize::from(label)];
        (tint.keep < OPAQUE).then_some(tint)
    }
}

/// `keep` and `add` for `N` bytes of a row that repeat, so that a run of one label is blended bytes at a time
/// with no regard to components, which the compiler vectorises.
struct Pattern<const N: usize> {
    keep: [u16; N],
    add: [u16; N],
}

impl<const N: usize> Pattern<N> {
    /// Of a tint on bytes that are `step` apart; the others stay. `parts`: component and offset.
    #[inline(always)]
    fn new(tint: Tint, step: usize, parts: &[(usize, usize)]) -> Self {
        let mut pattern = Self { keep: [OPAQUE; N], add: [0; N] };
        for &(part, offset) in parts {
            for at in (offset..N).step_by(step) {
                pattern.keep[at] = tint.keep;
                pattern.add[at] = tint.add[part];
            }
        }
        pattern
    }

    #[inline(always)]
    fn apply(&self, bytes: &mut [u8]) {
        let (whole, rest) = bytes.as_chunks_mut::<N>();
        for chunk in whole {
            for ((value, keep), add) in chunk.iter_mut().zip(self.keep).zip(self.add) {
                *value = mix(*value, keep, add);
            }
        }
        for ((value, keep), add) in rest.iter_mut().zip(self.keep).zip(self.add) {
            *value = mix(*value, keep, add);
        }
    }
}

/// Pixels, or blocks, from which on a run is worth a pattern of its own. Where runs are shorter as many are taken one
/// by one, without looking for the next run: branches that noise makes unpredictable cost more than blending.
const LONG: usize = 16;

/// Labels that are compared at a time.
const STRIDE: usize = 32;

/// How many labels from the start are the same as the first; 0 of none.
#[inline(always)]
fn run(labels: &[u8]) -> usize {
    let Some(&first) = labels.first() else { return 0 };
    // Noise has mostly runs of one, which the rest of this would be slow for.
    if labels.get(1).is_some_and(|&second| second != first) {
        return 1;
    }
    let differs = |chunk: &[u8; STRIDE]| chunk.iter().fold(0, |all, label| all | (label ^ first)) != 0;
    let chunks = labels.as_chunks::<STRIDE>().0;
    let same = chunks.iter().position(differs).unwrap_or(chunks.len()) * STRIDE;
    let rest = &labels[same..];
    let words = rest.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
    let mut length = same;
    for word in words.take(STRIDE / 8) {
        let different = word ^ (u64::from(first) * 0x0101_0101_0101_0101);
        if different != 0 {
            return length + different.trailing_zeros() as usize / 8;
        }
        length += 8;
    }
    length + labels[length..].iter().take_while(|label| **label == first).count()
}

fn packed_row<const STEP: usize, const N: usize>(
    blend: &Blend,
    row: &mut [u8],
    labels: &[u8],
    packed: Packed,
) {
    let parts = [(0, packed.r), (1, packed.g), (2, packed.b)];
    let mut x = 0;
    while x < labels.len() {
        let length = run(&labels[x..]);
        let end = if length < LONG { (x + LONG).min(labels.len()) } else { x + length };
        let bytes = &mut row[x * STEP..end * STEP];
        if length < LONG {
            for (pixel, &label) in bytes.as_chunks_mut::<STEP>().0.iter_mut().zip(&labels[x..end]) {
                let tint = blend.tints[usize::from(label)];
                for (part, offset) in parts {
                    pixel[offset] = mix(pixel[offset], tint.keep, tint.add[part]);
                }
            }
        } else if let Some(tint) = blend.tint(labels[x]) {
            Pattern::<N>::new(tint, STEP, &parts).apply(bytes);
        }
        x = end;
    }
}

/// Blends one component with a sample per pixel, `offset` bytes into the row and `step` bytes apart.
fn luma_row(blend: &Blend, row: &mut [u8], labels: &[u8], offset: usize, step: usize) {
    let mut x = 0;
    while x < labels.len() {
        let length = run(&labels[x..]);
        let end = if length < LONG { (x + LONG).min(labels.len()) } else { x + length };
        // In packed 4:2:2 an odd last pixel has no second luma sample: the row ends with what is not a pixel's.
        let bytes = &mut row[x * step..end * step];
        if length < LONG {
            for (value, &label) in bytes[offset..].iter_mut().step_by(step).zip(&labels[x..end]) {
                let tint = blend.tints[usize::from(label)];
                *value = mix(*value, tint.keep, tint.add[0]);
            }
        } else if let Some(tint) = blend.tint(labels[x]) {
            Pattern::<16>::new(tint, step, &[(0, offset)]).apply(bytes);
        }
        x = end;
    }
}

/// Blends the chroma samples of one row by the mean over each sample's block; `rows` are the block's first and last
/// row of labels (the same twice where a block is one row high), `components` what lies in `row`.
fn chroma_row(
    blend: &Blend,
    row: &mut [u8],
    rows: [&[u8]; 2],
    step: usize,
    components: &[(usize, Component)],
) {
    let [top, bottom] = rows;
    let width = top.len();
    let mut x = 0;
    while x < width {
        let at = x / 2 * step;
        let label = top[x];
        let length = if bottom[x] == label { run(&top[x..]).min(run(&bottom[x..])) } else { 0 };
        // Blocks wholly in the run; at an odd width the last one is half as wide.
        let blocks = if x + length == width { length.div_ceil(2) } else { length / 2 };
        if blocks < LONG {
            let end = (x + 2 * LONG).min(width);
            let bytes = &mut row[at..at + (end - x).div_ceil(2) * step];
            mixed_blocks(blend, bytes, [&top[x..end], &bottom[x..end]], step, components);
            x = end;
            continue;
        }
        if let Some(tint) = blend.tint(label) {
            let mut parts = [(0, 0); 2];
            for (to, &(part, component)) in parts.iter_mut().zip(components) {
                *to = (part, component.offset);
            }
            let bytes = &mut row[at..at + blocks * step];
            Pattern::<16>::new(tint, step, &parts[..components.len()]).apply(bytes);
        }
        x += 2 * blocks;
    }
}

/// Blends chroma block by block.
fn mixed_blocks(
    blend: &Blend,
    bytes: &mut [u8],
    rows: [&[u8]; 2],
    step: usize,
    components: &[(usize, Component)],
) {
    const WHOLE: u32 = 4 * OPAQUE as u32;
    let blocks = rows[0].chunks(2).zip(rows[1].chunks(2));
    for (samples, (top, bottom)) in bytes.chunks_exact_mut(step).zip(blocks) {
        // Where a block is one pixel wide both columns are that pixel's.
        let labels = [top[0], top[top.len() - 1], bottom[0], bottom[bottom.len() - 1]];
        let tints = labels.map(|label| &blend.tints[usize::from(label)]);
        let keep: u32 = tints.iter().map(|tint| u32::from(tint.keep)).sum();
        for &(part, component) in components {
            let add: u32 = tints.iter().map(|tint| u32::from(tint.add[part])).sum();
            let value = &mut samples[component.offset];
            *value = ((u32::from(*value) * keep + add + WHOLE / 2) / WHOLE) as u8;
        }
    }
}

#[cfg(test)]
#[path = "overlay_tests.rs"]
mod tests;
