//! Labels from logits of pixels on the device: equal to the naive twin, and to the authors' labels.

#![cfg(feature = "cuda")]
#![allow(clippy::unwrap_used, reason = "test code")]

mod support;

use sapiens_kernels::cuda::resize_argmax::{PixelLogits, ResizeArgmax};
use sapiens_kernels::cuda::{Buffer, Stream};
use sapiens_kernels::{LabelWindow, reference};
use support::{Tensors, generated, gpu, hash_image};

const GARBAGE: u8 = 0xA5;
const GUARD: usize = 67;

/// `[classes, h, w]` to `[h, w, stride]`, with `beyond` behind the classes.
fn pixels(planes: &[f32], classes: usize, stride: usize, beyond: f32) -> Vec<f32> {
    let plane = planes.len() / classes;
    let value = |pixel: usize, class: usize| {
        if class < classes { planes[class * plane + pixel] } else { beyond }
    };
    (0..plane * stride).map(|i| value(i / stride, i % stride)).collect()
}

/// Labels of `planes [classes, h, w]`. Nothing may be written beside them.
fn labels(
    stream: &Stream,
    planes: &[f32],
    [classes, h, w]: [usize; 3],
    (stride, beyond): (usize, f32),
    window: LabelWindow,
) -> Vec<u8> {
    let values = pixels(planes, classes, stride, beyond);
    let mut logits = Buffer::new(stream.gpu(), values.len()).unwrap();
    stream.upload(&values, logits.slice_mut(..)).unwrap();
    let len = window.height * window.width;
    let mut there = Buffer::new(stream.gpu(), GUARD + len + GUARD).unwrap();
    stream.fill(there.slice_mut(..), GARBAGE).unwrap();
    let logits = PixelLogits { values: logits.slice(..), classes, stride, height: h, width: w };
    let kernel = ResizeArgmax::new(stream.gpu()).unwrap();
    kernel.run(stream, logits, window, there.slice_mut(GUARD..GUARD + len)).unwrap();
    let mut out = vec![0; GUARD + len + GUARD];
    stream.download(there.slice(..), &mut out).unwrap();
    let beside = [&out[..GUARD], &out[GUARD + len..]].concat();
    assert!(beside.iter().all(|&byte| byte == GARBAGE), "written beside the labels");
    out[GUARD..GUARD + len].to_vec()
}

/// Whole numbers from -8 to 7, so that many tie.
fn tied(count: usize) -> Vec<f32> {
    hash_image(count.div_ceil(3), 1)[..count].iter().map(|&byte| f32::from(byte / 16) - 8.0).collect()
}

fn noise(count: usize) -> Vec<f32> {
    generated("logits", &[count, 3], 6).into_iter().step_by(3).collect()
}

#[cfg_attr(test, test)]
pub(crate) fn equals_the_naive_twin_on_ugly_sizes() {
    gpu::each_device(|stream| {
        let sides = [1, 2, 3, 7, 16, 31];
        let mut tried = 0;
        for (i, (h, w)) in sides.iter().flat_map(|&h| sides.map(|w| (h, w))).enumerate() {
            for (classes, stride) in
                [(1, 4), (2, 8), (9, 12), (16, 16), (28, 28), (29, 32), (33, 40), (100, 100), (256, 256)]
            {
                let (height, width) = (sides[(i + classes) % 6], sides[(i * 5 + classes) % 6] * 3);
                let cut = 1 + i % 2;
                let window = LabelWindow {
                    full_height: height,
                    full_width: width,
                    height: height.div_ceil(cut),
                    width: width.div_ceil(cut),
                };
                let beyond = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 100.0][i % 4];
                for planes in [tied(classes * h * w), noise(classes * h * w)] {
                    let actual = labels(stream, &planes, [classes, h, w], (stride, beyond), window);
                    let rows = 0..window.height;
                    let shape = (classes, h, w);
                    let expected =
                        reference::resize_argmax(&planes, shape, (height, width), rows, window.width);
                    assert!(actual == expected, "{classes} x {h} x {w} to {window:?}");
                    tried += 1;
                }
            }
        }
        println!("{tried} images");
    });
}

#[test]
fn equals_the_naive_twin_on_images() {
    gpu::each_device(|stream| {
        for (classes, (h, w), full) in [
            (29, (96, 72), (135, 240)),
            (28, (64, 48), (300, 201)),
            (29, (96, 72), (40, 64)),
            (29, (50, 30), (50, 30)),
            (40, (20, 30), (50, 70)),
            (29, (96, 72), (1, 1)),
        ] {
            let planes = noise(classes * h * w);
            let window = LabelWindow::whole(full.0, full.1);
            let actual =
                labels(stream, &planes, [classes, h, w], (classes.next_multiple_of(4), f32::NAN), window);
            let expected = reference::resize_argmax(&planes, (classes, h, w), full, 0..full.0, full.1);
            assert!(actual == expected, "{classes} x {h} x {w} to {full:?}");
        }
    });
}

#[test]
fn equals_the_authors_labels() {
    // Labels may differ where the two best classes are closer than the rounding of the blend.
    const MARGIN: f32 = 1e-5;
    gpu::each_device(|stream| {
        for name in ["tiny-sapiens", "tiny-sapiens2"] {
            let expected = Tensors::read(&format!("{name}.photo.safetensors"));
            let &[_, classes, h, w] = expected.shape("logits") else { panic!("logits of {name}") };
            let &[height, width] = expected.shape("labels") else { panic!("labels of {name}") };
            let (logits, stride) = (expected.f32("logits"), classes.next_multiple_of(4));
            let window = LabelWindow::whole(height, width);
            let actual = labels(stream, logits, [classes, h, w], (stride, 1e30), window);
            let differing = actual.iter().zip(expected.u8("labels")).zip(expected.f32("margin"));
            let far = differing.filter(|((a, e), margin)| a != e && **margin > MARGIN).count();
            assert_eq!(far, 0, "{name}");
        }
    });
}

#[cfg_attr(test, test)]
pub(crate) fn the_lowest_of_equal_classes_wins_and_nan_never_does() {
    const INF: f32 = f32::INFINITY;
    gpu::each_device(|stream| {
        for (values, winner) in [
            (&[1.0, 3.0, 3.0, 2.0][..], 1),
            (&[f32::NAN, -5.0, f32::NAN, -4.0], 3),
            (&[-5.0, f32::NAN, -5.0], 0),
            (&[f32::NAN; 4], 0),
            (&[-INF; 2], 0),
            (&[f32::NAN, -INF], 0),
            (&[-0.0, 0.0], 0),
            (&[-INF, -1e30], 1),
            // In different lanes, and in different registers of one.
            (&[0.0, 0.0, 0.0, 0.0, 7.0, 0.0, 0.0, 0.0, 7.0], 4),
            (&[f32::NAN, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0], 1),
        ] {
            let (h, w, classes) = (3, 3, values.len());
            let planes: Vec<f32> = values.iter().flat_map(|&value| [value; 9]).collect();
            for full in [(3, 3), (7, 20), (2, 1)] {
                let window = LabelWindow::whole(full.0, full.1);
                let stride = classes.next_multiple_of(4);
                let actual = labels(stream, &planes, [classes, h, w], (stride, INF), window);
                assert!(actual.iter().all(|&label| label == winner), "{values:?} to {full:?}");
            }
        }
    });
}

/// An infinite logit at one pixel: the naive twin decides where that becomes NaN.
#[cfg_attr(test, test)]
pub(crate) fn infinite_logits_do_as_the_naive_twin_does() {
    gpu::each_device(|stream| {
        let (classes, h, w) = (5, 4, 4);
        for (class, value) in [(2, f32::INFINITY), (0, f32::INFINITY), (3, f32::NEG_INFINITY), (1, f32::NAN)]
        {
            let mut planes = vec![0.5; classes * h * w];
            planes[3 * h * w..4 * h * w].fill(1.0);
            planes[(class * h + 1) * w + 2] = value;
            for full in [(4, 4), (9, 9), (12, 12), (3, 3), (4, 9), (9, 4)] {
                let expected = reference::resize_argmax(&planes, (classes, h, w), full, 0..full.0, full.1);
                let window = LabelWindow::whole(full.0, full.1);
                let actual = labels(stream, &planes, [classes, h, w], (8, f32::INFINITY), window);
                assert_eq!(actual, expected, "{value} of {class} to {full:?}");
            }
        }
    });
}

#[test]
#[should_panic(expected = "larger than the whole")]
fn a_window_larger_than_the_whole_is_refused() {
    gpu::each_device(|stream| {
        let window = LabelWindow { full_height: 4, full_width: 4, height: 4, width: 5 };
        labels(stream, &[0.0; 4], [1, 2, 2], (4, 0.0), window);
    });
}
