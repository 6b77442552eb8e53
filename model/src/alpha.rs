//! Cuts frames out along a label map, for compositing. Knows frames and palettes, no engine.

use crate::error::{ErrorKind, Result, SegmentError};
use crate::frame::{FrameViewMut, PixelFormat};
use crate::label_map::LabelMap;
use crate::overlay::check_size;
use crate::palette::Palette;

/// Byte of a 4-byte pixel that is alpha, and whether it already has a meaning.
///
/// # Errors
/// `InvalidFrame` if the format has no byte for alpha.
pub(crate) fn alpha_byte(format: PixelFormat) -> Result<(usize, bool)> {
    match format {
        PixelFormat::Rgba | PixelFormat::Bgra => Ok((3, true)),
        PixelFormat::Argb | PixelFormat::Abgr => Ok((0, true)),
        PixelFormat::Rgbx | PixelFormat::Bgrx => Ok((3, false)),
        PixelFormat::Xrgb | PixelFormat::Xbgr => Ok((0, false)),
        _ => Err(SegmentError::new(
            ErrorKind::InvalidFrame,
            format!("a frame in {format} can't have alpha: expected four bytes for a pixel"),
        )),
    }
}

/// Makes every pixel whose class is not shown transparent. The alpha of the others is what it was, or opaque in the
/// formats where the byte was unused. Without labels every pixel is transparent.
///
/// # Errors
/// `InvalidFrame` if the format has no byte for alpha, or the map another size than the frame.
pub fn apply_alpha(frame: &mut FrameViewMut<'_>, labels: Option<&LabelMap>, palette: &Palette) -> Result<()> {
    let info = frame.info();
    let (byte, has_alpha) = alpha_byte(info.format)?;
    if let Some(labels) = labels {
        check_size(info, labels)?;
    }
    for y in 0..info.height {
        let pixels = frame.row_mut(0, y).as_chunks_mut::<4>().0;
        match labels {
            None => pixels.iter_mut().for_each(|pixel| pixel[byte] = 0),
            Some(labels) => {
                for (pixel, &label) in pixels.iter_mut().zip(labels.row(y)) {
                    let opaque = if has_alpha { pixel[byte] } else { u8::MAX };
                    pixel[byte] = if palette.is_shown(label) { opaque } else { 0 };
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use sapiens_kernels::reference;

    use super::*;
    use crate::card::ModelCard;
    use crate::frame::{Colorimetry, FrameInfo, PlaneMut};
    use crate::variant::Variant;

    fn cut(format: PixelFormat, labels: Option<&LabelMap>) -> Result<Vec<u8>> {
        let mut data: Vec<u8> = (0..2 * 2 * 4).map(|i| 100 + i).collect();
        let info = FrameInfo { format, width: 2, height: 2, colorimetry: Colorimetry::default() };
        let palette = Palette::of(&ModelCard::of(Variant::Sapiens1b));
        apply_alpha(
            &mut FrameViewMut::new(info, [PlaneMut { data: &mut data, stride: 8 }])?,
            labels,
            &palette,
        )?;
        Ok(data)
    }

    #[test]
    fn hidden_pixels_become_transparent_and_the_rest_keeps_its_alpha() {
        let labels = LabelMap::from_labels(2, 2, vec![0, 3, 27, 0]).unwrap();
        for (format, byte, has_alpha) in [
            (PixelFormat::Rgba, 3, true),
            (PixelFormat::Bgra, 3, true),
            (PixelFormat::Argb, 0, true),
            (PixelFormat::Abgr, 0, true),
            (PixelFormat::Rgbx, 3, false),
            (PixelFormat::Bgrx, 3, false),
            (PixelFormat::Xrgb, 0, false),
            (PixelFormat::Xbgr, 0, false),
        ] {
            let pixels = cut(format, Some(&labels)).unwrap();
            for (i, value) in pixels.iter().enumerate() {
                let before = 100 + i as u8;
                let expected = match (i % 4 == byte, i / 4) {
                    (false, _) => before,
                    (true, 1 | 2) if has_alpha => before,
                    (true, 1 | 2) => 255,
                    (true, _) => 0,
                };
                assert_eq!(*value, expected, "{format}, byte {i}");
            }
            assert!(cut(format, None).unwrap().chunks(4).all(|pixel| pixel[byte] == 0), "{format}");
        }
    }

    #[test]
    fn equals_the_naive_twin() {
        let (width, height, stride) = (13, 7, 4 * 13 + 5);
        let noise = |i: usize| ((i * 7919) >> 3) as u8;
        let palette = Palette::of(&ModelCard::of(Variant::Sapiens1b));
        let labels: Vec<u8> = (0..width * height).map(|i| noise(i) % 28).collect();
        let map = LabelMap::from_labels(width, height, labels.clone()).unwrap();
        let shown = std::array::from_fn(|label| palette.is_shown(label as u8));
        for format in [PixelFormat::Bgra, PixelFormat::Argb, PixelFormat::Rgbx, PixelFormat::Xbgr] {
            let info = FrameInfo { format, width, height, colorimetry: Colorimetry::default() };
            let alpha = alpha_byte(format).unwrap();
            for labelled in [true, false] {
                let mut data: Vec<u8> = (0..stride * height).map(noise).collect();
                let mut expected = data.clone();
                let labels = labelled.then_some(labels.as_slice());
                reference::cut_out((&mut expected, stride), (width, height), alpha, labels, &shown);
                let mut frame = FrameViewMut::new(info, [PlaneMut { data: &mut data, stride }]).unwrap();
                apply_alpha(&mut frame, labelled.then_some(&map), &palette).unwrap();
                assert!(data == expected, "{format}, labels {labelled}");
            }
        }
    }

    #[test]
    fn frames_without_room_for_alpha_are_refused() {
        let info =
            FrameInfo { format: PixelFormat::Rgb, width: 2, height: 2, colorimetry: Colorimetry::default() };
        let palette = Palette::of(&ModelCard::of(Variant::Sapiens1b));
        let mut data = [0; 12];
        let mut frame = FrameViewMut::new(info, [PlaneMut { data: &mut data, stride: 6 }]).unwrap();
        let error = apply_alpha(&mut frame, None, &palette).unwrap_err();
        assert!(error.to_string().contains("RGB can't have alpha"), "{error}");
        assert!(cut(PixelFormat::Rgba, Some(&LabelMap::new(3, 2))).is_err());
    }
}
