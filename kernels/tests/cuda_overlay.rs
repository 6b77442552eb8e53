//! Labels painted onto frames on the device: every byte equal to the naive twin's, in every layout.

#![cfg(feature = "cuda")]
#![allow(clippy::unwrap_used, reason = "test code")]

mod support;

use sapiens_kernels::cuda::frame::PlaneMut;
use sapiens_kernels::cuda::overlay::{Canvas, Overlay, Tints};
use sapiens_kernels::cuda::{Buffer, Stream};
use sapiens_kernels::frame::{Layout, Tint};
use sapiens_kernels::reference;
use support::frames::{BEFORE, LAYOUTS, noise, upload};
use support::{gpu, hash_image};

/// Each label's tint: of an opacity in 256ths, of every third label nothing.
fn tints(opacity: u16) -> [Tint; 256] {
    std::array::from_fn(|label| {
        let color = [label * 7 % 256, 255 - label, label * 91 % 256].map(|part| part as u16);
        if label % 3 == 0 {
            Tint { keep: Tint::OPAQUE, add: [0; 3] }
        } else {
            Tint { keep: Tint::OPAQUE - opacity, add: color.map(|part| part * opacity) }
        }
    })
}

/// Noise, or runs of a label.
fn labels(width: usize, height: usize, run: usize) -> Vec<u8> {
    let noise = hash_image(width, height);
    (0..width * height).map(|i| noise[i / run * run]).collect()
}

fn check(
    stream: &Stream,
    name: &str,
    layout: Layout,
    (width, height): (usize, usize),
    run: usize,
    opacity: u16,
) {
    let labels = labels(width, height, run);
    let tints = tints(opacity);
    let mut frame = noise(layout, (width, height), [0, 5, 1, 32][(width + height) % 4]);
    let mut device = upload(stream.gpu(), stream, &frame);
    let mut there = Buffer::new(stream.gpu(), 1 + labels.len()).unwrap();
    stream.upload(&labels, there.slice_mut(1..)).unwrap();
    let mut planes: Vec<PlaneMut<'_>> = device
        .iter_mut()
        .map(|plane| PlaneMut { bytes: plane.buffer.slice_mut(BEFORE..), stride: plane.stride })
        .collect();
    let canvas = Canvas { layout, width, height, planes: &mut planes };
    let tints_there = Tints::new(stream, &tints).unwrap();
    Overlay::new(stream.gpu()).unwrap().run(stream, canvas, there.slice(1..), &tints_there).unwrap();
    reference::paint_labels(layout, (width, height), &mut frame, &labels, &tints);
    for (index, ((expected, _), plane)) in frame.iter().zip(&device).enumerate() {
        let mut painted = vec![0; expected.len()];
        stream.download(plane.buffer.slice(BEFORE..), &mut painted).unwrap();
        assert!(
            painted == *expected,
            "{name} {width} x {height}, runs of {run}, opacity {opacity}: plane {index}"
        );
    }
}

#[cfg_attr(test, test)]
pub(crate) fn equals_the_naive_twin_on_ugly_sizes() {
    gpu::each_device(|stream| {
        let sizes = [
            (1, 1),
            (1, 9),
            (9, 1),
            (2, 2),
            (3, 3),
            (61, 45),
            (33, 7),
            (64, 8),
            (65, 9),
            (377, 5),
            (34, 11),
            (6, 40),
        ];
        for (i, size) in sizes.into_iter().enumerate() {
            for (name, layout) in LAYOUTS {
                for (run, opacity) in [(1, 128), (7, 256), (40, 77)] {
                    check(stream, name, layout, size, run, opacity + (i % 2) as u16 * (256 - opacity) / 2);
                }
            }
        }
    });
}

#[cfg_attr(test, test)]
pub(crate) fn nothing_shown_changes_nothing() {
    gpu::each_device(|stream| {
        for (name, layout) in LAYOUTS {
            check(stream, name, layout, (37, 11), 1, 0);
        }
    });
}

#[test]
#[should_panic(expected = "labels of 4 x 4")]
fn labels_of_another_size_are_refused() {
    gpu::each_device(|stream| {
        let layout = LAYOUTS[1].1;
        let mut device = upload(stream.gpu(), stream, &noise(layout, (4, 4), 0));
        let mut planes: Vec<PlaneMut<'_>> = device
            .iter_mut()
            .map(|plane| PlaneMut { bytes: plane.buffer.slice_mut(BEFORE..), stride: plane.stride })
            .collect();
        let canvas = Canvas { layout, width: 4, height: 4, planes: &mut planes };
        let labels = Buffer::new(stream.gpu(), 15).unwrap();
        let tints = Tints::new(stream, &tints(128)).unwrap();
        let _ = Overlay::new(stream.gpu()).unwrap().run(stream, canvas, labels.slice(..), &tints);
    });
}
