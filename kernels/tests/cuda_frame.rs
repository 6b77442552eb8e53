//! Frames to patches on the device: equal to the naive twins one after the other, in every layout.

#![cfg(feature = "cuda")]
#![allow(clippy::unwrap_used, reason = "test code")]

mod support;

use sapiens_kernels::cuda::frame::{Frame, Patches, ResizeTables};
use sapiens_kernels::cuda::{Buffer, Precision, Stream};
use sapiens_kernels::frame::{Layout, YuvToRgb};
use sapiens_kernels::{Filter, reference};
use support::frames::{FULL_709, LAYOUTS, LIMITED_601, noise, planes, upload};
use support::gpu;

/// Width and height.
type Size = (usize, usize);

const MEAN: [f32; 3] = [123.675, 116.28, 103.53];
const STD: [f32; 3] = [58.395, 57.12, 57.375];

/// Factors with halves, so that levels lie halfway between two.
const HALVES: YuvToRgb =
    YuvToRgb { y_offset: 16, y: 98304, v_to_r: 98304, u_to_g: -32768, v_to_g: -16384, u_to_b: 131072 };

/// What a frame is and becomes.
#[derive(Debug, Clone, Copy)]
struct Case {
    layout: Layout,
    filter: Filter,
    precision: Precision,
    from: Size,
    to: Size,
    canvas: Size,
    padding: usize,
    to_rgb: YuvToRgb,
}

fn naive(case: &Case, frame: &[(Vec<u8>, usize)]) -> Vec<u16> {
    let Case { from, to, canvas, .. } = *case;
    let frame: Vec<(&[u8], usize)> = frame.iter().map(|(bytes, stride)| (&bytes[..], *stride)).collect();
    let rgb = reference::frame_rgb(case.layout, from, &frame, case.to_rgb);
    let resized = match case.filter {
        Filter::Linear => reference::resize_linear(&rgb, from, to),
        Filter::Area => reference::resize_area(&rgb, from, to),
        Filter::Cubic => reference::resize_cubic(&rgb, from, to),
    };
    let mut patches = Vec::new();
    for patch in 0..canvas.0 / 16 * (canvas.1 / 16) {
        for value in 0..3 * 256 {
            let (channel, line, i) = (value / 256, value / 16 % 16, value % 16);
            let (x, y) = (patch % (canvas.0 / 16) * 16 + i, patch / (canvas.0 / 16) * 16 + line);
            let level = |x: usize, y: usize| f32::from(resized[(y * to.0 + x) * 3 + channel]);
            let inside = x < to.0 && y < to.1;
            let value = if inside { (level(x, y) - MEAN[channel]) / STD[channel] } else { 0.0 };
            patches.push(case.precision.encode(value));
        }
    }
    patches
}

fn check(stream: &Stream, case: Case) {
    let Case { layout, filter, precision, from, to, canvas, padding, to_rgb } = case;
    let frame = noise(layout, from, padding);
    let device = upload(stream.gpu(), stream, &frame);
    let kernels = Patches::new(stream, precision, MEAN, STD).unwrap();
    let tables = ResizeTables::new(stream, filter, from, to).unwrap();
    let len = canvas.0 * canvas.1 * 3;
    let mut out = Buffer::new(stream.gpu(), len + 64).unwrap();
    stream.fill(out.slice_mut(..), 0xFF).unwrap();
    let planes = planes(&device);
    let frame_there = Frame { layout, width: from.0, height: from.1, planes: &planes, to_rgb };
    kernels.run(stream, frame_there, &tables, canvas, out.slice_mut(..len)).unwrap();
    let mut patches = vec![0; len + 64];
    stream.download(out.slice(..), &mut patches).unwrap();
    assert!(patches.split_off(len).iter().all(|&value| value == 0xFFFF), "{case:?}: written past the end");
    assert!(patches == naive(&case, &frame), "{case:?}");
}

/// Of several sizes, filters and all the rest one after the other: every layout meets every filter at some sizes.
#[cfg_attr(test, test)]
pub(crate) fn equals_the_naive_twins_on_ugly_sizes() {
    gpu::each_device(|stream| {
        let from = [(1, 1), (1, 9), (9, 1), (2, 2), (5, 3), (61, 45), (33, 70), (64, 48), (97, 31), (32, 64)];
        let to = [(16, 16), (32, 48), (64, 16), (48, 64)];
        let filters = [Filter::Linear, Filter::Area, Filter::Cubic];
        let mut tried = 0;
        for (i, from) in from.into_iter().enumerate() {
            for (j, to) in to.into_iter().enumerate() {
                for (k, filter) in filters.into_iter().enumerate() {
                    for turn in 0..2 {
                        let n = i * 3 + j * 5 + k + turn * 7;
                        let (_, layout) = LAYOUTS[n % LAYOUTS.len()];
                        check(
                            stream,
                            Case {
                                layout,
                                filter,
                                precision: [Precision::F16, Precision::Bf16, Precision::F16Promoted][n % 3],
                                from,
                                to,
                                canvas: to,
                                padding: [0, 5, 1, 64][n % 4],
                                to_rgb: [LIMITED_601, FULL_709, HALVES][(i + turn) % 3],
                            },
                        );
                        tried += 1;
                    }
                }
            }
        }
        println!("{tried} frames");
    });
}

#[cfg_attr(test, test)]
pub(crate) fn a_frame_may_be_smaller_than_its_canvas() {
    gpu::each_device(|stream| {
        for (i, from) in [(1usize, 1usize), (31, 17), (32, 32), (33, 47), (15, 64)].into_iter().enumerate() {
            for (j, (_, layout)) in LAYOUTS.into_iter().enumerate() {
                // At its own size, and resized to part of the canvas.
                let to = if (i + j) % 3 == 0 { (from.0.div_ceil(2), from.1) } else { from };
                let canvas = (from.0.next_multiple_of(32), from.1.next_multiple_of(32));
                let filter = [Filter::Linear, Filter::Area][j % 2];
                let (precision, to_rgb) = (Precision::F16, LIMITED_601);
                check(stream, Case { layout, filter, precision, from, to, canvas, padding: 3, to_rgb });
            }
        }
    });
}

/// Sizes with each kind of areas: whole pixels, 2 x 2 of them, fractions, and both sides growing or one. Of pixels in tenths a tenth lie
/// halfway between two levels, so that each rounding of a sum counts; a fourteenth isn't what dividing by 14 is.
#[cfg_attr(test, test)]
pub(crate) fn every_arithmetic_of_areas_is_met() {
    gpu::each_device(|stream| {
        for (from, to) in [
            ((96, 64), (48, 32)),
            ((96, 64), (32, 16)),
            ((96, 64), (96, 32)),
            ((112, 32), (16, 16)),
            ((160, 16), (48, 16)),
            ((16, 160), (16, 48)),
            ((320, 180), (48, 64)),
            ((100, 20), (48, 64)),
            ((40, 100), (48, 64)),
            ((700, 500), (16, 16)),
        ] {
            for (_, layout) in [LAYOUTS[0], LAYOUTS[1]] {
                for filter in [Filter::Area, Filter::Cubic, Filter::Linear] {
                    let (precision, to_rgb, padding) = (Precision::Bf16, FULL_709, 7);
                    check(stream, Case { layout, filter, precision, from, to, canvas: to, padding, to_rgb });
                }
            }
        }
    });
}

#[test]
#[should_panic(expected = "hold no 4 rows of 12")]
fn a_plane_that_is_too_short_is_refused() {
    gpu::each_device(|stream| {
        let (layout, size) = (LAYOUTS[1].1, (4, 4));
        let mut frame = noise(layout, size, 0);
        frame[0].0.pop();
        let device = upload(stream.gpu(), stream, &frame);
        let planes = planes(&device);
        let frame = Frame { layout, width: 4, height: 4, planes: &planes, to_rgb: LIMITED_601 };
        let tables = ResizeTables::new(stream, Filter::Linear, size, (16, 16)).unwrap();
        let kernels = Patches::new(stream, Precision::F16, MEAN, STD).unwrap();
        let mut out = Buffer::new(stream.gpu(), 3 * 256).unwrap();
        let _ = kernels.run(stream, frame, &tables, (16, 16), out.slice_mut(..));
    });
}
