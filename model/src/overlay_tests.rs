use sapiens_kernels::reference;

use super::*;
use crate::card::ModelCard;
use crate::frame::{Colorimetry, FrameInfo, Matrix, OwnedFrame, PixelFormat, PlaneMut, Range};
use crate::variant::Variant;

fn palette() -> Palette {
    Palette::of(&ModelCard::of(Variant::Sapiens1b))
}

fn labels(width: usize, height: usize) -> LabelMap {
    // Runs and single pixels of shown classes and of the background.
    let labels = (0..width * height).map(|i| if i % 7 < 3 { 0 } else { (1 + i / 5 % 27) as u8 });
    LabelMap::from_labels(width, height, labels.collect()).unwrap()
}

/// Paints on a frame of one value everywhere and gives back its planes, padding included.
fn painted(info: FrameInfo, labels: &LabelMap, opacity: f64, value: u8) -> Vec<Vec<u8>> {
    let mut planes: Vec<_> = (0..info.format.planes())
        .map(|plane| {
            let (row_bytes, rows) = info.plane_size(plane);
            (vec![value; rows * (row_bytes + 3)], row_bytes + 3)
        })
        .collect();
    {
        let mut views = planes.iter_mut().map(|(data, stride)| PlaneMut { data, stride: *stride });
        let mut take = || views.next().unwrap();
        let mut frame = match info.format.planes() {
            1 => FrameViewMut::new(info, [take()]),
            2 => FrameViewMut::new(info, [take(), take()]),
            _ => FrameViewMut::new(info, [take(), take(), take()]),
        }
        .unwrap();
        paint_overlay(&mut frame, labels, &palette(), opacity).unwrap();
    }
    planes.into_iter().map(|(data, _)| data).collect()
}

#[test]
fn rgb_colours_are_exact() {
    let map = labels(13, 5);
    for opacity in [0.0, 0.5, 1.0] {
        for (format, step, offsets) in [
            (PixelFormat::Rgb, 3, [0, 1, 2]),
            (PixelFormat::Bgra, 4, [2, 1, 0]),
            (PixelFormat::Xrgb, 4, [1, 2, 3]),
        ] {
            let info = FrameInfo { format, width: 13, height: 5, colorimetry: Colorimetry::default() };
            let data = &painted(info, &map, opacity, 100)[0];
            let stride = 13 * step + 3;
            for y in 0..5 {
                for x in 0..13 {
                    let label = map.row(y)[x];
                    let pixel = &data[y * stride + x * step..][..step];
                    for (c, &offset) in offsets.iter().enumerate() {
                        let color = f64::from(palette().color(label)[c]);
                        let alpha = if label == 0 { 0.0 } else { opacity };
                        let expected = (100.0 * (1.0 - alpha) + color * alpha + 0.5).floor() as u8;
                        assert_eq!(pixel[offset], expected, "{format} {opacity} at {x},{y}");
                    }
                    let other = (0..step).filter(|o| !offsets.contains(o));
                    assert!(other.into_iter().all(|o| pixel[o] == 100), "{format}: alpha or padding changed");
                }
                assert_eq!(
                    &data[y * stride + 13 * step..][..3],
                    [100; 3],
                    "{format}: bytes after the row changed"
                );
            }
        }
    }
}

#[test]
fn yuv_frames_show_the_colour_under_their_colorimetry() {
    for format in [
        PixelFormat::Nv12,
        PixelFormat::Nv21,
        PixelFormat::I420,
        PixelFormat::Yv12,
        PixelFormat::Yuy2,
        PixelFormat::Uyvy,
    ] {
        for matrix in [Matrix::Bt601, Matrix::Bt709, Matrix::Bt2020] {
            for range in [Range::Full, Range::Limited] {
                // One class everywhere, at an odd size, opaque: every pixel must come out in its colour.
                let info =
                    FrameInfo { format, width: 7, height: 5, colorimetry: Colorimetry { matrix, range } };
                let map = LabelMap::from_labels(7, 5, vec![12; 35]).unwrap();
                let planes = painted(info, &map, 1.0, 90);
                let planes = planes.into_iter().enumerate();
                let frame =
                    OwnedFrame::new(info, planes.map(|(i, p)| (p, info.plane_size(i).0 + 3)).collect());
                let mut rgb = vec![0; 7 * 5 * 3];
                frame.unwrap().view().write_rgb(&mut rgb);
                let color = palette().color(12);
                for pixel in rgb.chunks_exact(3) {
                    for c in 0..3 {
                        assert!(
                            pixel[c].abs_diff(color[c]) <= 2,
                            "{format} {matrix:?} {range:?}: {pixel:?} for {color:?}"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn chroma_is_blended_by_the_shown_share_of_its_block() {
    let info = FrameInfo {
        format: PixelFormat::I420,
        width: 3,
        height: 3,
        colorimetry: Colorimetry { matrix: Matrix::Bt601, range: Range::Full },
    };
    #[rustfmt::skip]
    let map = LabelMap::from_labels(3, 3, vec![
        5, 0, 0,
        0, 0, 5,
        0, 0, 0,
    ]).unwrap();
    let planes = painted(info, &map, 1.0, 128);
    let [y, u, _] = RgbToYuv::new(info.colorimetry).convert(palette().color(5));
    let u_at = |x: usize, y: usize| f64::from(planes[1][y * (2 + 3) + x]);
    let mix = |share: f64| (128.0 * (1.0 - share) + f64::from(u) * share + 0.5).floor();
    assert_eq!([planes[0][0], planes[0][1], planes[0][6 + 2]], [y, 128, y]);
    assert_eq!([u_at(0, 0), u_at(1, 0), u_at(0, 1)], [mix(0.25), mix(0.5), 128.0]);
}

#[test]
fn gray_frames_get_the_brightness() {
    let info = FrameInfo {
        format: PixelFormat::Gray8,
        width: 2,
        height: 1,
        colorimetry: Colorimetry { matrix: Matrix::Bt601, range: Range::Full },
    };
    let map = LabelMap::from_labels(2, 1, vec![0, 14]).unwrap();
    // Class 14 is pure red: luma 0.299 * 255.
    assert_eq!(painted(info, &map, 1.0, 200)[0][..2], [200, 76]);
}

#[test]
fn odd_opacities_are_clamped_and_other_sizes_refused() {
    let info =
        FrameInfo { format: PixelFormat::Rgb, width: 4, height: 1, colorimetry: Colorimetry::default() };
    let map = labels(4, 1);
    assert_eq!(painted(info, &map, 7.0, 9), painted(info, &map, 1.0, 9));
    assert_eq!(painted(info, &map, -1.0, 9), painted(info, &map, 0.0, 9));
    assert_eq!(painted(info, &map, f64::NAN, 9), painted(info, &map, 0.0, 9));
    let mut data = [0; 12];
    let mut frame = FrameViewMut::rgb(4, 1, &mut data).unwrap();
    let error = paint_overlay(&mut frame, &labels(2, 2), &palette(), 0.5).unwrap_err();
    assert!(error.to_string().contains("2 x 2 labels: expected 4 x 1"), "{error}");
}

/// [`paint_overlay`] pixel by pixel and block by block, as its documentation says it.
fn paint_naively(frame: &mut FrameViewMut<'_>, labels: &LabelMap, palette: &Palette, opacity: f64) {
    let info = frame.info();
    let alpha = (opacity * 256.0).round() as u32;
    let mix = |value: u8, color: &dyn Fn(u8) -> u8, block: &[u8]| {
        let pixels = block.len() as u32;
        let (mut keep, mut add) = (0, 0);
        for &label in block {
            let shown = if palette.is_shown(label) { alpha } else { 0 };
            keep += 256 - shown;
            add += shown * u32::from(color(label));
        }
        ((u32::from(value) * keep + add + 128 * pixels) / (256 * pixels)) as u8
    };
    let to_yuv = RgbToYuv::new(info.colorimetry);
    let yuv_part = |part: usize| move |label| to_yuv.convert(palette.color(label))[part];
    for y in 0..info.height {
        for x in 0..info.width {
            let label = [labels.row(y)[x]];
            match info.format.layout() {
                Layout::Packed(packed) => {
                    for (part, offset) in [packed.r, packed.g, packed.b].into_iter().enumerate() {
                        let value = &mut frame.row_mut(0, y)[x * packed.step + offset];
                        *value = mix(*value, &|label| palette.color(label)[part], &label);
                    }
                }
                Layout::Gray => {
                    let value = &mut frame.row_mut(0, y)[x];
                    *value = mix(*value, &yuv_part(0), &label);
                }
                Layout::Yuv(yuv) => {
                    let value = &mut frame.row_mut(yuv.y.plane, y)[yuv.y.offset + x * yuv.y.step];
                    *value = mix(*value, &yuv_part(0), &label);
                    if x.is_multiple_of(2) && y.is_multiple_of(yuv.block_height) {
                        let rows = y..(y + yuv.block_height).min(info.height);
                        let block: Vec<u8> = rows
                            .flat_map(|y| labels.row(y)[x..(x + 2).min(info.width)].iter().copied())
                            .collect();
                        for (part, component) in [(1, yuv.u), (2, yuv.v)] {
                            let row = frame.row_mut(component.plane, y / yuv.block_height);
                            let value = &mut row[component.offset + x / 2 * component.step];
                            *value = mix(*value, &yuv_part(part), &block);
                        }
                    }
                }
            }
        }
    }
}

/// Numbers that look like noise and are the same in every run.
fn noise(seed: u32) -> impl FnMut() -> u32 {
    let mut state = seed.wrapping_mul(2_654_435_761) | 1;
    move || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state
    }
}

/// Labels in runs of 1 to `longest`, which go on over the ends of rows; half of them hidden.
fn runs(width: usize, height: usize, longest: u32, seed: u32) -> LabelMap {
    let mut next = noise(seed);
    let mut labels = Vec::with_capacity(width * height);
    while labels.len() < width * height {
        let label = if next().is_multiple_of(2) { 0 } else { (next() % 256) as u8 };
        let end = labels.len() + 1 + (next() % longest) as usize;
        labels.resize(end.min(width * height), label);
    }
    LabelMap::from_labels(width, height, labels).unwrap()
}

#[test]
fn runs_are_painted_as_pixels_are_one_by_one() {
    let sizes =
        [(1, 1), (1, 9), (9, 1), (2, 2), (3, 3), (61, 45), (33, 7), (64, 6), (377, 5), (4097, 3), (200, 11)];
    for format in PixelFormat::ALL {
        for (seed, (width, height)) in (1..).zip(sizes) {
            for longest in [1, 7, 40, 3000] {
                for (opacity, range) in [(0.5, Range::Limited), (1.0, Range::Full), (0.3, Range::Full)] {
                    let colorimetry = Colorimetry { matrix: Matrix::Bt709, range };
                    let info = FrameInfo { format, width, height, colorimetry };
                    let map = runs(width, height, longest, seed * 31 + longest);
                    let mut next = noise(seed);
                    let planes: Vec<(Vec<u8>, usize)> = (0..format.planes())
                        .map(|plane| {
                            let (row_bytes, rows) = info.plane_size(plane);
                            let stride = row_bytes + 5;
                            ((0..rows * stride).map(|_| next() as u8).collect(), stride)
                        })
                        .collect();
                    let paint = |mut planes: Vec<(Vec<u8>, usize)>, fast: bool| {
                        let mut views =
                            planes.iter_mut().map(|(data, stride)| PlaneMut { data, stride: *stride });
                        let mut take = || views.next().unwrap();
                        let mut frame = match format.planes() {
                            1 => FrameViewMut::new(info, [take()]),
                            2 => FrameViewMut::new(info, [take(), take()]),
                            _ => FrameViewMut::new(info, [take(), take(), take()]),
                        }
                        .unwrap();
                        if fast {
                            paint_overlay(&mut frame, &map, &palette(), opacity).unwrap();
                        } else {
                            paint_naively(&mut frame, &map, &palette(), opacity);
                        }
                        planes
                    };
                    let painted = paint(planes.clone(), true);
                    let mut twin = planes.clone();
                    reference::paint_labels(
                        format.layout(),
                        (width, height),
                        &mut twin,
                        map.labels(),
                        &tints(info, &palette(), opacity),
                    );
                    assert!(
                        painted == paint(planes, false) && painted == twin,
                        "{format} {width} x {height}, runs of up to {longest}, opacity {opacity}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_run_ends_where_the_label_changes() {
    for length in 0..200 {
        for end in 1..=length {
            let labels: Vec<u8> = (0..length).map(|x| if x < end { 7 } else { 9 }).collect();
            assert_eq!(run(&labels), end, "of {length}");
        }
    }
    assert_eq!(run(&[]), 0);
}
