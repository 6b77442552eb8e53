//! Frames cut out along their labels on the device: every byte equal to the naive twin's, in every layout that has alpha.

#![cfg(feature = "cuda")]
#![allow(clippy::unwrap_used, reason = "test code")]

mod support;

use sapiens_kernels::cuda::cut_out::{CutOut, Shown};
use sapiens_kernels::cuda::frame::PlaneMut;
use sapiens_kernels::cuda::overlay::Canvas;
use sapiens_kernels::cuda::{Buffer, CudaError, Stream};
use sapiens_kernels::frame::{Layout, Packed};
use sapiens_kernels::reference;
use support::frames::{BEFORE, DevicePlane, noise, upload};
use support::{gpu, hash_image};

/// Layouts of four bytes by the names of formats that have them, and which byte is alpha.
const LAYOUTS: [(&str, Layout, usize); 4] = [
    ("RGBA", packed(0, 1, 2), 3),
    ("BGRA", packed(2, 1, 0), 3),
    ("ARGB", packed(1, 2, 3), 0),
    ("ABGR", packed(3, 2, 1), 0),
];

const fn packed(r: usize, g: usize, b: usize) -> Layout {
    Layout::Packed(Packed { step: 4, r, g, b })
}

/// Every third label isn't shown, and the last one is.
fn shown() -> [bool; 256] {
    std::array::from_fn(|label| label % 3 != 1)
}

fn run(
    stream: &Stream,
    layout: Layout,
    (width, height): (usize, usize),
    device: &mut [DevicePlane],
    has_alpha: bool,
    labels: Option<&Buffer<u8>>,
) -> Result<(), CudaError> {
    let mut planes: Vec<PlaneMut<'_>> = device
        .iter_mut()
        .map(|plane| PlaneMut { bytes: plane.buffer.slice_mut(BEFORE..), stride: plane.stride })
        .collect();
    let canvas = Canvas { layout, width, height, planes: &mut planes };
    let shown = Shown::new(stream, &shown())?;
    let labels = labels.map(|labels| labels.slice(1..));
    CutOut::new(stream.gpu())?.run(stream, canvas, has_alpha, labels, &shown)?;
    stream.synchronize()
}

fn check(
    stream: &Stream,
    (name, layout, alpha): (&str, Layout, usize),
    size @ (width, height): (usize, usize),
    has_alpha: bool,
    labelled: bool,
) {
    let labels = hash_image(width, height)[..width * height].to_vec();
    let mut frame = noise(layout, size, [0, 5, 1, 32][(width + height) % 4]);
    let mut device = upload(stream.gpu(), stream, &frame);
    // Labels at an odd address.
    let there = gpu::upload(stream, &[&[0], labels.as_slice()].concat());
    run(stream, layout, size, &mut device, has_alpha, labelled.then_some(&there)).unwrap();
    let (expected, stride) = &mut frame[0];
    let labels = labelled.then_some(labels.as_slice());
    reference::cut_out((expected, *stride), size, (alpha, has_alpha), labels, &shown());
    let mut found = vec![0; expected.len()];
    stream.download(device[0].buffer.slice(BEFORE..), &mut found).unwrap();
    let what = format!("{name} {width} x {height}, alpha {has_alpha}, labels {labelled}");
    let wrong = found.iter().zip(expected.iter()).position(|(found, expected)| found != expected);
    assert_eq!(wrong, None, "{what}: first byte that differs, rows of {stride}");
}

#[cfg_attr(test, test)]
pub(crate) fn equals_the_naive_twin_on_ugly_sizes() {
    gpu::each_device(|stream| {
        // The labels of 5 x 3 pixels end where memory does.
        let sizes = [(1, 1), (1, 9), (9, 1), (5, 3), (31, 5), (32, 4), (33, 7), (128, 8), (129, 9), (377, 5)];
        for size in sizes {
            for layout in LAYOUTS {
                for has_alpha in [true, false] {
                    check(stream, layout, size, has_alpha, true);
                }
            }
        }
    });
}

#[cfg_attr(test, test)]
pub(crate) fn without_labels_nothing_is_shown() {
    gpu::each_device(|stream| {
        for layout in LAYOUTS {
            for has_alpha in [true, false] {
                check(stream, layout, (131, 6), has_alpha, false);
            }
        }
    });
}

#[test]
#[should_panic(expected = "labels of 4 x 4")]
fn labels_of_another_size_are_refused() {
    gpu::each_device(|stream| {
        let mut device = upload(stream.gpu(), stream, &noise(packed(0, 1, 2), (4, 4), 0));
        let labels = gpu::poisoned(stream, 1 + 15);
        let _ = run(stream, packed(0, 1, 2), (4, 4), &mut device, true, Some(&labels));
    });
}

#[test]
#[should_panic(expected = "hold no 4 rows of 16")]
fn a_plane_that_is_too_small_is_refused() {
    gpu::each_device(|stream| {
        let mut device = upload(stream.gpu(), stream, &noise(packed(0, 1, 2), (4, 3), 0));
        let _ = run(stream, packed(0, 1, 2), (4, 4), &mut device, true, None);
    });
}

#[test]
fn layouts_without_alpha_are_refused() {
    let three = Layout::Packed(Packed { step: 3, r: 0, g: 1, b: 2 });
    let stream = &Stream::new(&gpu::all()[0]).unwrap();
    for layout in [Layout::Gray, three, packed(0, 1, 1), packed(0, 1, 4)] {
        let panic = std::panic::catch_unwind(|| {
            let mut device = upload(stream.gpu(), stream, &noise(three, (4, 4), 4));
            let _ = run(stream, layout, (4, 4), &mut device, true, None);
        })
        .unwrap_err();
        let message = panic.downcast_ref::<String>().unwrap();
        assert!(message.contains("has no byte for alpha"), "{message}");
    }
}
