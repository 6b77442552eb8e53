//! Paints a label map over its frame, in the frame's own format. Knows frames and palettes, no engine.

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
    match info.format.layout() {
        Layout::Packed(packed) => {
            let blend = Blend::new(palette, opacity, |color| color);
            for y in 0..info.height {
                let row = frame.row_mut(0, y);
                // A constant step lets the compiler vectorise the row.
                match packed.step {
                    3 => blend.packed_row::<3>(row, labels.row(y), packed),
                    _ => blend.packed_row::<4>(row, labels.row(y), packed),
                }
            }
        }
        Layout::Gray => {
            let to_yuv = RgbToYuv::new(info.colorimetry);
            let blend = Blend::new(palette, opacity, |color| to_yuv.convert(color));
            for y in 0..info.height {
                blend.luma_row(frame.row_mut(0, y), labels.row(y), 1);
            }
        }
        Layout::Yuv(yuv) => {
            let to_yuv = RgbToYuv::new(info.colorimetry);
            let blend = Blend::new(palette, opacity, |color| to_yuv.convert(color));
            for y in 0..info.height {
                blend.luma_row(&mut frame.row_mut(yuv.y.plane, y)[yuv.y.offset..], labels.row(y), yuv.y.step);
            }
            for (y, rows) in (0..info.height).step_by(yuv.block_height).enumerate() {
                let top = labels.row(rows);
                let bottom = labels.row((rows + yuv.block_height - 1).min(info.height - 1));
                for (part, Component { plane, offset, step }) in [(1, yuv.u), (2, yuv.v)] {
                    blend.chroma_row(&mut frame.row_mut(plane, y)[offset..], [top, bottom], yuv, step, part);
                }
            }
        }
    }
    Ok(())
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

/// Fractional bits of an opacity: 256 is opaque.
const OPAQUE: u32 = 256;

/// Per label and component: `keep` of the pixel, of 256, and what is added, rounding included.
struct Blend {
    keep: [u16; 256],
    add: [[u16; 3]; 256],
}

impl Blend {
    fn new(palette: &Palette, opacity: f64, convert: impl Fn([u8; 3]) -> [u8; 3]) -> Self {
        // The cast turns NaN into 0.
        let alpha = (opacity.clamp(0.0, 1.0) * f64::from(OPAQUE)).round() as u16;
        let mut blend = Self { keep: [OPAQUE as u16; 256], add: [[0; 3]; 256] };
        for label in 0..=255u8 {
            if palette.is_shown(label) {
                blend.keep[usize::from(label)] = OPAQUE as u16 - alpha;
                blend.add[usize::from(label)] =
                    convert(palette.color(label)).map(|part| u16::from(part) * alpha);
            }
        }
        blend
    }

    #[inline(always)]
    fn mix(&self, value: u8, label: u8, part: usize) -> u8 {
        let (keep, add) = (self.keep[usize::from(label)], self.add[usize::from(label)][part]);
        ((u32::from(value) * u32::from(keep) + u32::from(add) + OPAQUE / 2) / OPAQUE) as u8
    }

    fn packed_row<const STEP: usize>(&self, row: &mut [u8], labels: &[u8], packed: Packed) {
        for (pixel, &label) in row.chunks_exact_mut(STEP).zip(labels) {
            for (part, offset) in [packed.r, packed.g, packed.b].into_iter().enumerate() {
                pixel[offset] = self.mix(pixel[offset], label, part);
            }
        }
    }

    fn luma_row(&self, row: &mut [u8], labels: &[u8], step: usize) {
        for (value, &label) in row.iter_mut().step_by(step).zip(labels) {
            *value = self.mix(*value, label, 0);
        }
    }

    /// Blends one row of a chroma component by the mean over each sample's block; `rows` are the block's first
    /// and last row of labels (the same twice where a block is one row high).
    fn chroma_row(&self, row: &mut [u8], rows: [&[u8]; 2], yuv: Yuv, step: usize, part: usize) {
        let blocks = rows[0].chunks(yuv.block_width).zip(rows[1].chunks(yuv.block_width));
        for (value, (top, bottom)) in row.iter_mut().step_by(step).zip(blocks) {
            let (mut keep, mut add, mut pixels) = (0, 0, 0);
            for &label in top.iter().chain(bottom) {
                keep += u32::from(self.keep[usize::from(label)]);
                add += u32::from(self.add[usize::from(label)][part]);
                pixels += 1;
            }
            let whole = OPAQUE * pixels;
            *value = ((u32::from(*value) * keep + add + whole / 2) / whole) as u8;
        }
    }
}

#[cfg(test)]
#[path = "overlay_tests.rs"]
mod tests;
