use sapiens_kernels::reference;

use super::*;

const FULL_601: Colorimetry = Colorimetry { matrix: Matrix::Bt601, range: Range::Full };

/// A frame of `format` whose bytes, padding included, come from `byte(plane, row, column)`.
fn frame(
    format: PixelFormat,
    (width, height): (usize, usize),
    padding: usize,
    colorimetry: Colorimetry,
    byte: impl Fn(usize, usize, usize) -> u8,
) -> OwnedFrame {
    let info = FrameInfo { format, width, height, colorimetry };
    let planes = (0..format.planes())
        .map(|plane| {
            let (row_bytes, rows) = info.plane_size(plane);
            let stride = row_bytes + padding;
            let bytes = (0..rows * stride).map(|i| byte(plane, i / stride, i % stride)).collect();
            (bytes, stride)
        })
        .collect();
    OwnedFrame::new(info, planes).unwrap()
}

fn rgb_of(frame: &OwnedFrame) -> Vec<u8> {
    let view = frame.view();
    let mut rgb = vec![0xAA; view.width() * view.height() * 3];
    view.write_rgb(&mut rgb);
    rgb
}

/// R, G, B in floating point by the definition in the ITU's recommendations.
fn yuv_to_rgb(yuv: [u8; 3], kr: f64, kb: f64, full: bool) -> [f64; 3] {
    let (offset, luma_span, chroma_span) = if full { (0.0, 255.0, 255.0) } else { (16.0, 219.0, 224.0) };
    let y = (f64::from(yuv[0]) - offset) / luma_span;
    let pb = (f64::from(yuv[1]) - 128.0) / chroma_span;
    let pr = (f64::from(yuv[2]) - 128.0) / chroma_span;
    let r = y + 2.0 * (1.0 - kr) * pr;
    let b = y + 2.0 * (1.0 - kb) * pb;
    let g = (y - kr * r - kb * b) / (1.0 - kr - kb);
    [r, g, b].map(|value| (value * 255.0).clamp(0.0, 255.0))
}

#[test]
fn every_packed_order_gives_the_same_rgb_at_any_stride() {
    // Offsets of R, G, B written out once more, as the formats' names spell them.
    for (format, offsets) in [
        (PixelFormat::Rgb, [0, 1, 2]),
        (PixelFormat::Bgr, [2, 1, 0]),
        (PixelFormat::Rgba, [0, 1, 2]),
        (PixelFormat::Bgra, [2, 1, 0]),
        (PixelFormat::Argb, [1, 2, 3]),
        (PixelFormat::Abgr, [3, 2, 1]),
        (PixelFormat::Rgbx, [0, 1, 2]),
        (PixelFormat::Bgrx, [2, 1, 0]),
        (PixelFormat::Xrgb, [1, 2, 3]),
        (PixelFormat::Xbgr, [3, 2, 1]),
    ] {
        for (size, padding) in [((1, 1), 0), ((5, 3), 7), ((64, 2), 0)] {
            let value = |x: usize, y: usize, c: usize| (x * 31 + y * 57 + c * 101) as u8;
            let step = if format.to_string().len() == 3 { 3 } else { 4 };
            let frame = frame(format, size, padding, FULL_601, |_, y, x| {
                offsets.iter().position(|&o| o == x % step).map_or(0x55, |c| value(x / step, y, c))
            });
            let expected: Vec<u8> = (0..size.1)
                .flat_map(|y| (0..size.0).flat_map(move |x| (0..3).map(move |c| value(x, y, c))))
                .collect();
            assert_eq!(rgb_of(&frame), expected, "{format} {size:?}");
        }
    }
}

#[test]
fn every_yuv_order_finds_its_components_at_odd_sizes() {
    let colorimetry = Colorimetry { matrix: Matrix::Bt709, range: Range::Limited };
    for size in [(1, 1), (2, 2), (5, 3), (7, 6), (16, 1)] {
        let luma = |x: usize, y: usize| (16 + (x * 37 + y * 91) % 220) as u8;
        let u = |x: usize, y: usize| (20 + (x * 53 + y * 29) % 200) as u8;
        let v = |x: usize, y: usize| (230 - (x * 71 + y * 43) % 200) as u8;
        for format in [
            PixelFormat::Nv12,
            PixelFormat::Nv21,
            PixelFormat::I420,
            PixelFormat::Yv12,
            PixelFormat::Yuy2,
            PixelFormat::Uyvy,
        ] {
            let frame = frame(format, size, 5, colorimetry, |plane, y, x| match (format, plane) {
                (PixelFormat::Yuy2, _) => [luma(x / 2, y), u(x / 4, y), luma(x / 2, y), v(x / 4, y)][x % 4],
                (PixelFormat::Uyvy, _) => [u(x / 4, y), luma(x / 2, y), v(x / 4, y), luma(x / 2, y)][x % 4],
                (_, 0) => luma(x, y),
                (PixelFormat::Nv12, _) => [u(x / 2, y), v(x / 2, y)][x % 2],
                (PixelFormat::Nv21, _) => [v(x / 2, y), u(x / 2, y)][x % 2],
                (PixelFormat::I420, 1) | (PixelFormat::Yv12, 2) => u(x, y),
                _ => v(x, y),
            });
            let rows_of_chroma = if matches!(format, PixelFormat::Yuy2 | PixelFormat::Uyvy) { 1 } else { 2 };
            let rgb = rgb_of(&frame);
            for (i, pixel) in rgb.chunks_exact(3).enumerate() {
                let (x, y) = (i % size.0, i / size.0);
                let chroma = (x / 2, y / rows_of_chroma);
                let yuv = [luma(x, y), u(chroma.0, chroma.1), v(chroma.0, chroma.1)];
                let exact = yuv_to_rgb(yuv, 0.2126, 0.0722, false);
                for c in 0..3 {
                    let error = (f64::from(pixel[c]) - exact[c]).abs();
                    assert!(error <= 0.51, "{format} {size:?} at {x},{y}: {pixel:?}, exactly {exact:?}");
                }
            }
        }
    }
}

#[test]
fn every_matrix_and_range_is_within_rounding_of_the_definition() {
    let mut worst: f64 = 0.0;
    for (matrix, kr, kb) in
        [(Matrix::Bt601, 0.299, 0.114), (Matrix::Bt709, 0.2126, 0.0722), (Matrix::Bt2020, 0.2627, 0.0593)]
    {
        for range in [Range::Full, Range::Limited] {
            // 16 x 16 blocks of chroma over 32 x 32 luma: every 17th value of each component, extremes included.
            for y0 in 0..16usize {
                let frame =
                    frame(PixelFormat::I420, (32, 32), 0, Colorimetry { matrix, range }, |plane, y, x| {
                        match plane {
                            0 => (y0 * 17) as u8,
                            1 => (x * 17) as u8,
                            _ => (y * 17) as u8,
                        }
                    });
                for (i, pixel) in rgb_of(&frame).chunks_exact(3).enumerate() {
                    let yuv = [y0 * 17, i % 32 / 2 * 17, i / 64 * 17].map(|v| v as u8);
                    let exact = yuv_to_rgb(yuv, kr, kb, range == Range::Full);
                    for c in 0..3 {
                        worst = worst.max((f64::from(pixel[c]) - exact[c]).abs());
                    }
                }
            }
        }
    }
    println!("largest distance from the exact value: {worst:.4} levels");
    assert!(worst <= 0.51, "{worst}");
}

#[test]
fn the_kernels_naive_twin_makes_the_same_rgb() {
    for (i, format) in PixelFormat::ALL.into_iter().enumerate() {
        for (j, size) in [(1, 1), (2, 2), (1, 5), (7, 1), (61, 45), (64, 6)].into_iter().enumerate() {
            for range in [Range::Full, Range::Limited] {
                let matrix = [Matrix::Bt601, Matrix::Bt709, Matrix::Bt2020][(i + j) % 3];
                let colorimetry = Colorimetry { matrix, range };
                let noise = |plane: usize, y: usize, x: usize| {
                    (((plane * 7919 + y * 104_729 + x * 1_299_709) * 2_654_435_761) >> 13) as u8
                };
                let frame = frame(format, size, j % 4, colorimetry, noise);
                let planes: Vec<_> = frame.planes.iter().map(|(data, stride)| (&data[..], *stride)).collect();
                let twin = reference::frame_rgb(
                    format.layout(),
                    size,
                    &planes,
                    colorimetry::yuv_to_rgb(colorimetry),
                );
                assert!(rgb_of(&frame) == twin, "{format} {size:?} {colorimetry:?}");
            }
        }
    }
}

#[test]
fn palette_colours_survive_the_way_to_yuv_and_back() {
    for matrix in [Matrix::Bt601, Matrix::Bt709, Matrix::Bt2020] {
        for range in [Range::Full, Range::Limited] {
            let colorimetry = Colorimetry { matrix, range };
            for color in [[0, 0, 0], [255, 255, 255], [255, 0, 0], [0, 255, 0], [0, 0, 255], [189, 0, 204]] {
                let [y, u, v] = RgbToYuv::new(colorimetry).convert(color);
                let to_rgb = colorimetry::yuv_to_rgb(colorimetry);
                let back = to_rgb.convert(y, to_rgb.chroma(u, v));
                for c in 0..3 {
                    assert!(back[c].abs_diff(color[c]) <= 2, "{matrix:?} {range:?}: {color:?} -> {back:?}");
                }
            }
        }
    }
}

#[test]
fn gray_is_luma_in_its_range() {
    let gray = |range, value| {
        let colorimetry = Colorimetry { matrix: Matrix::Bt601, range };
        rgb_of(&frame(PixelFormat::Gray8, (3, 2), 2, colorimetry, |_, _, _| value))
    };
    assert_eq!(gray(Range::Full, 77), [77; 18]);
    assert_eq!(gray(Range::Limited, 16), [0; 18]);
    assert_eq!(gray(Range::Limited, 235), [255; 18]);
}

#[test]
fn the_last_row_needs_no_padding() {
    let info = FrameInfo { format: PixelFormat::Rgb, width: 2, height: 2, colorimetry: FULL_601 };
    let bytes = [7u8; 8 + 6];
    assert!(FrameView::new(info, &[Plane { data: &bytes, stride: 8 }]).is_ok());
    let error = FrameView::new(info, &[Plane { data: &bytes[..13], stride: 8 }]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidFrame);
    assert!(error.to_string().contains("13 bytes: expected at least 14"), "{error}");
}

#[test]
fn planes_that_do_not_fit_are_refused_by_name() {
    let bytes = [0u8; 64];
    let plane = |stride| Plane { data: &bytes, stride };
    for (format, size, planes, expected) in [
        (PixelFormat::Rgb, (0, 4), vec![plane(12)], "0 x 4 pixels"),
        (PixelFormat::Rgb, (4, MAX_FRAME_SIDE + 1), vec![plane(12)], "expected 1 to"),
        (PixelFormat::Rgb, (4, 4), vec![plane(11)], "stride 11: expected at least 12"),
        (PixelFormat::Rgb, (4, 4), vec![plane(usize::MAX)], "expected at most 2147483647"),
        (PixelFormat::Rgb, (4, 4), vec![], "of 0 planes: expected 1"),
        (PixelFormat::Rgb, (4, 4), vec![plane(12); 5], "of 5 planes: expected 1"),
        (PixelFormat::Nv12, (4, 4), vec![plane(4)], "of 1 planes: expected 2"),
        (PixelFormat::Nv12, (5, 4), vec![plane(5), plane(5)], "plane 1 of a 5 x 4 NV12 frame has stride 5"),
        (PixelFormat::I420, (4, 4), vec![plane(4), plane(2), plane(100)], "plane 2 of a 4 x 4 I420 frame"),
    ] {
        let info = FrameInfo { format, width: size.0, height: size.1, colorimetry: FULL_601 };
        let error = FrameView::new(info, &planes).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidFrame);
        assert!(error.to_string().contains(expected), "{error}");
    }
}
