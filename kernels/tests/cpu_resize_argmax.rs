//! Labels from logits of pixels at every level of this CPU: against the naive twin, which they must equal but where the
//! two best classes are nearer to each other than the blend's rounding; most of them do there too.

#[path = "support/levels.rs"]
mod levels;
mod support;

use half::bf16;
use levels::each_level;
use sapiens_kernels::cpu::{Element, Level, PixelLogits, ResizeArgmax, Threads};
use sapiens_kernels::{LabelWindow, reference};
use support::{Tensors, generated, hash_image};

const GARBAGE: u8 = 0xA5;
const GUARD: usize = 64;

/// `[classes, h, w]` to `[h, w, stride]`, with `beyond` behind the classes.
fn pixels<E: Element>(planes: &[f32], classes: usize, stride: usize, beyond: f32) -> Vec<E> {
    let plane = planes.len() / classes;
    let value = |pixel: usize, class: usize| {
        if class < classes { planes[class * plane + pixel] } else { beyond }
    };
    (0..plane * stride).map(|i| E::from_f32(value(i / stride, i % stride))).collect()
}

fn labels<E: Element>(
    argmax: &mut ResizeArgmax,
    threads: &mut Threads,
    logits: PixelLogits<'_, E>,
    window: LabelWindow,
) -> Vec<u8> {
    let len = window.height * window.width;
    let mut out = vec![GARBAGE; len + GUARD];
    argmax.run(threads, logits, window, &mut out[..len]);
    assert!(out.split_off(len).iter().all(|&byte| byte == GARBAGE), "written past the end");
    out
}

/// Labels that differ, of those whose two best classes differ by more than `margin` of the largest.
fn differing(
    actual: &[u8],
    planes: &[f32],
    (classes, h, w): (usize, usize, usize),
    window: LabelWindow,
    margin: f64,
) -> (usize, usize) {
    let LabelWindow { full_height, full_width, height, width } = window;
    let expected =
        reference::resize_argmax(planes, (classes, h, w), (full_height, full_width), 0..height, width);
    let (mut all, mut far) = (0, 0);
    for (i, (a, e)) in actual.iter().zip(&expected).enumerate() {
        if a != e {
            all += 1;
            let taps = |i: usize, n: usize, full: usize| {
                let at = ((i as f64 + 0.5) * n as f64 / full as f64 - 0.5).max(0.0);
                let first = (at as usize).min(n - 1);
                (first, (first + 1).min(n - 1), (at - first as f64).clamp(0.0, 1.0))
            };
            let (y0, y1, v) = taps(i / width, h, full_height);
            let (x0, x1, u) = taps(i % width, w, full_width);
            let at = |class: u8, y: usize, x: usize| f64::from(planes[(usize::from(class) * h + y) * w + x]);
            let value = |class: u8| {
                (1.0 - v) * ((1.0 - u) * at(class, y0, x0) + u * at(class, y0, x1))
                    + v * ((1.0 - u) * at(class, y1, x0) + u * at(class, y1, x1))
            };
            far += usize::from((value(*a) - value(*e)).abs() > margin * value(*e).abs().max(1.0));
        }
    }
    (all, far)
}

/// Whole numbers from -8 to 7, so that many tie.
fn tied(count: usize) -> Vec<f32> {
    hash_image(count.div_ceil(3), 1)[..count].iter().map(|&byte| f32::from(byte / 16) - 8.0).collect()
}

/// A few large areas, each of one class, with some noise.
fn areas(classes: usize, h: usize, w: usize) -> Vec<f32> {
    let noise = generated("logits", &[classes * h * w, 3], 6);
    let mut planes: Vec<f32> = noise.into_iter().step_by(3).collect();
    for y in 0..h {
        for x in 0..w {
            let class = (y * 5 / h.max(5) * 3 + x * 4 / w.max(4)) * 7 % classes;
            planes[(class * h + y) * w + x] += 4.0;
        }
    }
    planes
}

/// Float32 has 24 bits, and a blend rounds some times.
const MARGIN: f64 = 1e-6;

#[test]
fn equals_the_naive_twin_on_ugly_sizes() {
    let sides = [1, 2, 3, 7, 16, 31];
    let (mut tried, mut near, mut all) = (0, 0, 0);
    for (i, (h, w)) in sides.iter().flat_map(|&h| sides.map(|w| (h, w))).enumerate() {
        for (classes, stride) in [(1, 1), (2, 5), (9, 9), (16, 16), (28, 28), (29, 32), (33, 40), (256, 256)]
        {
            let full = (sides[(i + classes) % 6], sides[(i * 5 + classes) % 6] * 2);
            let cut = i % 2;
            let window = LabelWindow {
                full_height: full.0,
                full_width: full.1,
                height: full.0.div_ceil(1 + cut),
                width: full.1.div_ceil(1 + cut),
            };
            for planes in [tied(classes * h * w), areas(classes, h, w)] {
                let beyond = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 100.0][i % 4];
                let values = pixels::<f32>(&planes, classes, stride, beyond);
                let logits = PixelLogits::new(&values, classes, stride, h, w);
                each_level(|level, threads| {
                    let mut argmax = ResizeArgmax::new(level, threads.count());
                    let actual = labels(&mut argmax, threads, logits, window);
                    let (differing, far) = differing(&actual, &planes, (classes, h, w), window, MARGIN);
                    assert_eq!(far, 0, "{level}: {classes} x {h} x {w} to {window:?}");
                    near += differing;
                    all += actual.len();
                });
                tried += 1;
            }
        }
    }
    println!("{tried} images; {near} of {all} labels differ where two classes are as good as equal");
}

#[test]
fn equals_the_naive_twin_on_images() {
    for (classes, (h, w), full) in [
        (29, (96, 72), (135, 240)),
        (28, (64, 48), (300, 201)),
        (29, (96, 72), (40, 64)),
        (29, (50, 30), (50, 30)),
    ] {
        let planes = areas(classes, h, w);
        let window = LabelWindow::whole(full.0, full.1);
        let values = pixels::<f32>(&planes, classes, 32, f32::NEG_INFINITY);
        // What bfloat16 holds of them is what the naive twin gets then.
        let narrow = pixels::<bf16>(&planes, classes, 32, f32::NEG_INFINITY);
        let rounded: Vec<f32> = planes.iter().map(|&value| bf16::from_f32(value).to_f32()).collect();
        each_level(|level, threads| {
            let mut argmax = ResizeArgmax::new(level, threads.count());
            let logits = PixelLogits::new(&values, classes, 32, h, w);
            let actual = labels(&mut argmax, threads, logits, window);
            let (near, far) = differing(&actual, &planes, (classes, h, w), window, MARGIN);
            assert_eq!(far, 0, "{level}, float32");
            let logits = PixelLogits::new(&narrow, classes, 32, h, w);
            let actual = labels(&mut argmax, threads, logits, window);
            let (narrow_near, far) = differing(&actual, &rounded, (classes, h, w), window, MARGIN);
            assert_eq!(far, 0, "{level}, bfloat16");
            println!("{level}, {full:?}: {near} and {narrow_near} of {} labels differ", actual.len());
        });
    }
}

#[test]
fn equals_the_authors_labels() {
    // Labels may differ where the two best classes are closer than the rounding of the blend.
    const MARGIN: f32 = 1e-5;
    for name in ["tiny-sapiens", "tiny-sapiens2"] {
        let expected = Tensors::read(&format!("{name}.photo.safetensors"));
        let &[_, classes, h, w] = expected.shape("logits") else { panic!("logits of {name}") };
        let &[height, width] = expected.shape("labels") else { panic!("labels of {name}") };
        let values = pixels::<f32>(expected.f32("logits"), classes, classes, 0.0);
        each_level(|level, threads| {
            let mut argmax = ResizeArgmax::new(level, threads.count());
            let logits = PixelLogits::new(&values, classes, classes, h, w);
            let actual = labels(&mut argmax, threads, logits, LabelWindow::whole(height, width));
            let differing = actual.iter().zip(expected.u8("labels")).zip(expected.f32("margin"));
            let far = differing.filter(|((a, e), margin)| a != e && **margin > MARGIN).count();
            assert_eq!(far, 0, "{level}, {name}");
        });
    }
}

#[test]
fn the_lowest_of_equal_classes_wins_and_nan_never_does() {
    const INF: f32 = f32::INFINITY;
    for (values, winner) in [
        (&[1.0, 3.0, 3.0, 2.0][..], 1),
        (&[f32::NAN, -5.0, f32::NAN, -4.0], 3),
        (&[-5.0, f32::NAN, -5.0], 0),
        (&[f32::NAN; 4], 0),
        (&[-INF; 2], 0),
        (&[f32::NAN, -INF], 0),
        (&[-0.0, 0.0], 0),
        (&[-INF, -1e30], 1),
    ] {
        let (h, w, classes) = (3, 3, values.len());
        let planes: Vec<f32> = values.iter().flat_map(|&value| [value; 9]).collect();
        let pixels = pixels::<f32>(&planes, classes, classes, 0.0);
        for full in [(3, 3), (7, 20), (2, 1)] {
            each_level(|level, threads| {
                let mut argmax = ResizeArgmax::new(level, threads.count());
                let logits = PixelLogits::new(&pixels, classes, classes, h, w);
                let actual = labels(&mut argmax, threads, logits, LabelWindow::whole(full.0, full.1));
                assert!(actual.iter().all(|&label| label == winner), "{level}: {values:?} to {full:?}");
            });
        }
    }
}

/// An infinite logit at one pixel: the naive twin decides where that becomes NaN.
#[test]
fn infinite_logits_do_as_the_naive_twin_does() {
    let (classes, h, w) = (5, 4, 4);
    for (class, value) in [(2, f32::INFINITY), (0, f32::INFINITY), (3, f32::NEG_INFINITY), (1, f32::NAN)] {
        let mut planes = vec![0.5; classes * h * w];
        planes[3 * h * w..4 * h * w].fill(1.0);
        planes[(class * h + 1) * w + 2] = value;
        let pixels = pixels::<f32>(&planes, classes, classes, 0.0);
        for full in [(4, 4), (9, 9), (12, 12), (3, 3)] {
            let expected = reference::resize_argmax(&planes, (classes, h, w), full, 0..full.0, full.1);
            each_level(|level, threads| {
                let mut argmax = ResizeArgmax::new(level, threads.count());
                let logits = PixelLogits::new(&pixels, classes, classes, h, w);
                let actual = labels(&mut argmax, threads, logits, LabelWindow::whole(full.0, full.1));
                assert_eq!(actual, expected, "{level}: {value} of {class} to {full:?}");
            });
        }
    }
}

#[test]
fn kept_tables_forget_the_last_sizes() {
    let mut threads = Threads::new(2).unwrap();
    let mut argmax = ResizeArgmax::new(Level::best(), 2);
    for (h, w, full) in
        [(8, 6, (33, 47)), (16, 12, (33, 47)), (8, 6, (33, 47)), (8, 6, (9, 9)), (30, 6, (9, 9))]
    {
        let planes = tied(7 * h * w);
        let pixels = pixels::<f32>(&planes, 7, 7, 0.0);
        let window = LabelWindow::whole(full.0, full.1);
        let actual = labels(&mut argmax, &mut threads, PixelLogits::new(&pixels, 7, 7, h, w), window);
        assert_eq!(differing(&actual, &planes, (7, h, w), window, MARGIN).1, 0);
    }
}

#[test]
#[should_panic(expected = "larger than the whole")]
fn a_window_larger_than_the_whole_is_refused() {
    let window = LabelWindow { full_height: 4, full_width: 4, height: 4, width: 5 };
    let mut threads = Threads::new(1).unwrap();
    let logits = PixelLogits::new(&[0.0; 4], 1, 1, 2, 2);
    labels(&mut ResizeArgmax::new(Level::best(), 1), &mut threads, logits, window);
}
