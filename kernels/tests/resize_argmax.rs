//! Resize and argmax: against the authors' labels, and against the naive twin.

mod support;

use sapiens_kernels::{LabelWindow, Logits, ResizeArgmax, reference};
use support::{Tensors, hash_image};

const GARBAGE: u8 = 0xA5;

fn labels(
    argmax: &mut ResizeArgmax,
    values: &[f32],
    [classes, h, w]: [usize; 3],
    window: LabelWindow,
) -> Vec<u8> {
    let mut out = vec![GARBAGE; window.height * window.width];
    argmax.run(Logits::new(values, classes, h, w), window, 0..window.height, &mut out);
    out
}

/// Deterministic logits with many ties: whole numbers from -8 to 7.
fn tied_logits(count: usize) -> Vec<f32> {
    hash_image(count.div_ceil(3), 1)[..count].iter().map(|&byte| f32::from(byte / 16) - 8.0).collect()
}

#[test]
fn equals_the_authors_labels() {
    // Labels may differ where the two best classes are closer than the rounding of the blend.
    const MARGIN: f32 = 1e-5;
    for name in ["tiny-sapiens", "tiny-sapiens2"] {
        for photo in ["photo", "photo-61x45"] {
            let expected = Tensors::read(&format!("{name}.{photo}.safetensors"));
            let &[_, classes, h, w] = expected.shape("logits") else { panic!("logits of {name}") };
            let &[height, width] = expected.shape("labels") else { panic!("labels of {name}") };
            let window = LabelWindow::whole(height, width);
            let actual = labels(&mut ResizeArgmax::new(), expected.f32("logits"), [classes, h, w], window);
            let differing = actual.iter().zip(expected.u8("labels")).zip(expected.f32("margin"));
            let differing: Vec<f32> =
                differing.filter(|((a, e), _)| a != e).map(|(_, &margin)| margin).collect();
            let far = differing.iter().filter(|&&margin| margin > MARGIN).count();
            println!(
                "{name}, {photo}: {} of {} labels differ, {far} beyond the margin",
                differing.len(),
                actual.len()
            );
            assert_eq!(far, 0, "{name}, {photo}: {differing:?}");
        }
    }
}

#[test]
fn equals_the_naive_twin_on_ugly_sizes() {
    let sides = [1, 2, 3, 7, 16, 31, 48];
    let mut argmax = ResizeArgmax::new();
    let mut tried = 0;
    for (i, (h, w)) in sides.iter().flat_map(|&h| sides.map(|w| (h, w))).enumerate() {
        for classes in [1, 2, 28, 29] {
            let values = tied_logits(classes * h * w);
            for k in 0..5 {
                let j = (i * 5 + k * 13) % 49;
                let full = (sides[j / 7], sides[j % 7]);
                // The whole, and a window of it.
                for cut in [0, 1] {
                    let (height, width) = (full.0.div_ceil(1 + cut), full.1.div_ceil(1 + cut));
                    let window = LabelWindow { full_height: full.0, full_width: full.1, height, width };
                    let actual = labels(&mut argmax, &values, [classes, h, w], window);
                    let expected = reference::resize_argmax(&values, (classes, h, w), full, 0..height, width);
                    assert_eq!(actual, expected, "{classes} x {h} x {w} to {window:?}");
                    tried += 1;
                }
            }
        }
    }
    println!("{tried} label images");
}

#[test]
fn ranges_of_rows_make_up_the_whole() {
    let (classes, h, w) = (5, 24, 18);
    let values = tied_logits(classes * h * w);
    let window = LabelWindow { full_height: 61, full_width: 47, height: 50, width: 33 };
    let whole = labels(&mut ResizeArgmax::new(), &values, [classes, h, w], window);
    let mut argmax = ResizeArgmax::new();
    let mut pieces = vec![GARBAGE; whole.len()];
    // Out of order, one of them empty.
    for rows in [40..50, 0..1, 1..17, 17..17, 17..40] {
        let out = &mut pieces[rows.start * window.width..rows.end * window.width];
        argmax.run(Logits::new(&values, classes, h, w), window, rows, out);
    }
    assert_eq!(pieces, whole);
}

#[test]
fn a_kept_scratch_forgets_the_last_logits() {
    let mut argmax = ResizeArgmax::new();
    for (classes, h, w, full) in
        [(28, 8, 6, (33, 47)), (28, 8, 6, (33, 47)), (29, 16, 12, (33, 47)), (2, 8, 6, (9, 9))]
    {
        for sign in [1.0, -1.0] {
            let values: Vec<f32> = tied_logits(classes * h * w).iter().map(|value| value * sign).collect();
            let actual = labels(&mut argmax, &values, [classes, h, w], LabelWindow::whole(full.0, full.1));
            assert_eq!(actual, reference::resize_argmax(&values, (classes, h, w), full, 0..full.0, full.1));
        }
    }
}

#[test]
fn the_lowest_of_equal_classes_wins_and_nan_never_does() {
    let (h, w) = (3, 3);
    let constant = |values: &[f32]| -> Vec<f32> { values.iter().flat_map(|&value| [value; 9]).collect() };
    for (values, winner) in [
        (&[1.0, 3.0, 3.0, 2.0][..], 1),
        (&[f32::NAN, -5.0, f32::NAN, -4.0], 3),
        (&[-5.0, f32::NAN, -5.0], 0),
        (&[f32::NAN; 4], 0),
        (&[f32::NEG_INFINITY; 2], 0),
        (&[-0.0, 0.0], 0),
    ] {
        for full in [(3, 3), (7, 20), (2, 1)] {
            let logits = constant(values);
            let shape = [values.len(), h, w];
            let actual = labels(&mut ResizeArgmax::new(), &logits, shape, LabelWindow::whole(full.0, full.1));
            assert!(actual.iter().all(|&label| label == winner), "{values:?} to {full:?}: {actual:?}");
        }
    }
}

#[test]
#[should_panic(expected = "larger than the whole")]
fn a_window_larger_than_the_whole_is_refused() {
    let window = LabelWindow { full_height: 4, full_width: 4, height: 4, width: 5 };
    labels(&mut ResizeArgmax::new(), &[0.0; 4], [1, 2, 2], window);
}
