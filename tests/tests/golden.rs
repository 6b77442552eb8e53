//! Checkpoint and photo in, logits and labels out, against what the authors' code answered.
#![allow(clippy::unwrap_used)] // A test that can't go on has failed.

use sapiens_model::{
    BackendRequest, Frame, FrameInfo, InputSize, Mode, ModelCard, Options, Output, OwnedFrame, PixelFormat,
    Precision, Segmenter, Weights,
};
use sapiens_tests::{Golden, data, difference, photo};

/// The largest difference of logits that the reference's README allows, and the mean one for the second family.
const MAX_LOGIT: f64 = 0.002;
const MEAN_LOGIT: f64 = 1e-4;
/// Labels may differ only where the two best classes are closer than this.
const MARGIN: f32 = 0.01;

fn segmenter(card: &str, weights: &str, options: Options) -> Segmenter {
    let card = ModelCard::load(&data(card)).unwrap();
    let weights = Weights::open(&data(weights), &card).unwrap();
    Segmenter::new(card, &weights, options).unwrap()
}

/// Both backends in float32.
fn exact_backends() -> [BackendRequest; 2] {
    [Mode::Portable, Mode::Kernels].map(|mode| BackendRequest {
        mode: Some(mode),
        precision: Some(Precision::F32),
        ..Default::default()
    })
}

fn run(segmenter: &Segmenter, frame: impl Frame) -> Output {
    let mut output = Output::default();
    segmenter.submit(frame).unwrap();
    segmenter.receive(&mut output).unwrap();
    output
}

fn rgb_frame(name: &str) -> OwnedFrame {
    let photo = photo(name);
    OwnedFrame::rgb(photo.width() as usize, photo.height() as usize, photo.into_raw()).unwrap()
}

/// Both photos through one model, on both backends.
fn against_the_authors(family: &str, weights: &str, max_logit: f64, mean_logit: f64) {
    for backend in exact_backends() {
        let options = Options { backend, keep_logits: true, ..Options::default() };
        against_the_authors_on(options, family, weights, max_logit, mean_logit);
    }
}

fn against_the_authors_on(options: Options, family: &str, weights: &str, max_logit: f64, mean_logit: f64) {
    let segmenter = segmenter(&format!("{family}.toml"), weights, options);
    let backend = segmenter.backend();
    for (name, golden) in [
        ("photo-377x333.png", Golden::read(&format!("{family}.photo.safetensors"))),
        ("photo-61x45.png", Golden::read(&format!("{family}.photo-61x45.safetensors"))),
    ] {
        let output = run(&segmenter, rgb_frame(name));
        let logits = difference(&output.logits.unwrap().values, &golden.f32("logits"));
        let (labels, margins) = (golden.u8("labels"), golden.f32("margin"));
        let wrong: Vec<f32> = (output.labels.labels().iter().zip(&labels).zip(&margins))
            .filter_map(|((ours, theirs), margin)| (ours != theirs).then_some(*margin))
            .collect();
        println!(
            "{weights} on {name}, {backend}: logits differ by max {:.2e}, mean {:.2e}; {} of {} labels differ",
            logits.max,
            logits.mean,
            wrong.len(),
            labels.len()
        );
        assert!(logits.max <= max_logit && logits.mean <= mean_logit, "{weights} on {name}: {logits:?}");
        let widest = wrong.iter().copied().fold(0.0, f32::max);
        assert!(widest <= MARGIN, "{weights} on {name}: a label differs where the margin is {widest}");
    }
}

#[test]
fn sapiens_from_torchscript() {
    against_the_authors("tiny-sapiens", "tiny-sapiens.torchscript.pt2", MAX_LOGIT, MAX_LOGIT);
}

#[test]
fn sapiens_from_a_state_dict() {
    against_the_authors("tiny-sapiens", "tiny-sapiens.pth", MAX_LOGIT, MAX_LOGIT);
}

#[test]
fn sapiens2_from_safetensors() {
    against_the_authors("tiny-sapiens2", "tiny-sapiens2.safetensors", MAX_LOGIT, MEAN_LOGIT);
}

#[test]
fn sapiens2_from_bf16_safetensors() {
    // Weights rounded to bf16 are other weights: held to the tolerance of half precision. Labels then differ
    // wherever random weights make near-ties, so only the logits count. So it is where activations are bf16, too.
    let in_bf16 = BackendRequest { precision: Some(Precision::Bf16), ..Default::default() };
    let golden = Golden::read("tiny-sapiens2.photo.safetensors");
    for backend in exact_backends().into_iter().chain([in_bf16]) {
        for weights in ["tiny-sapiens2.bf16.safetensors", "tiny-sapiens2.safetensors"] {
            let options = Options { backend, keep_logits: true, ..Options::default() };
            let segmenter = segmenter("tiny-sapiens2.toml", weights, options);
            let output = run(&segmenter, rgb_frame("photo-377x333.png"));
            let logits = difference(&output.logits.unwrap().values, &golden.f32("logits"));
            println!(
                "{weights}, {}: logits differ by max {:.2e}, mean {:.2e}",
                segmenter.backend(),
                logits.max,
                logits.mean
            );
            assert!(logits.mean <= 0.05, "{logits:?}");
        }
    }
}

/// The photo in another order of components, with padding between rows.
fn reordered(format: PixelFormat, offsets: [usize; 3], step: usize) -> OwnedFrame {
    let photo = photo("photo-61x45.png");
    let (width, height) = (photo.width() as usize, photo.height() as usize);
    let stride = width * step + 13;
    let mut bytes = vec![0xEE; stride * height];
    for (x, y, pixel) in photo.enumerate_pixels() {
        for (offset, value) in offsets.into_iter().zip(pixel.0) {
            bytes[y as usize * stride + x as usize * step + offset] = value;
        }
    }
    let info = FrameInfo { format, width, height, colorimetry: Default::default() };
    OwnedFrame::new(info, vec![(bytes, stride)]).unwrap()
}

#[test]
fn the_order_of_components_and_the_stride_change_nothing() {
    let segmenter = segmenter("tiny-sapiens2.toml", "tiny-sapiens2.safetensors", Options::default());
    let expected = run(&segmenter, rgb_frame("photo-61x45.png")).labels;
    for (format, offsets, step) in [
        (PixelFormat::Rgb, [0, 1, 2], 3),
        (PixelFormat::Bgr, [2, 1, 0], 3),
        (PixelFormat::Rgba, [0, 1, 2], 4),
        (PixelFormat::Bgra, [2, 1, 0], 4),
    ] {
        assert!(run(&segmenter, reordered(format, offsets, step)).labels == expected, "{format}");
    }
}

#[test]
fn tall_and_wide_frames_keep_their_shape_at_any_input_size() {
    let sizes = [InputSize::Card, InputSize::Native, InputSize::Fixed { width: 48, height: 160 }];
    for family in [
        ("tiny-sapiens.toml", "tiny-sapiens.torchscript.pt2"),
        ("tiny-sapiens2.toml", "tiny-sapiens2.safetensors"),
    ] {
        for (input_size, backend) in sizes.into_iter().flat_map(|size| exact_backends().map(|b| (size, b))) {
            let segmenter =
                segmenter(family.0, family.1, Options { input_size, backend, ..Options::default() });
            for (width, height) in [(1, 1), (200, 3), (3, 200), (97, 64)] {
                let pixels = (0..width * height * 3).map(|i| (i * 7 % 256) as u8).collect();
                let labels = run(&segmenter, OwnedFrame::rgb(width, height, pixels).unwrap()).labels;
                assert_eq!((labels.width(), labels.height()), (width, height), "{input_size}");
                let classes = segmenter.card().classes.len();
                assert!(labels.labels().iter().all(|&label| usize::from(label) < classes), "{input_size}");
            }
        }
    }
}

#[test]
fn a_frame_of_the_inputs_size_has_the_same_labels_native() {
    // 96 x 128 is a multiple of 32 and the card's own size: native and card must agree exactly.
    let pixels: Vec<u8> = (0..96 * 128 * 3).map(|i: usize| (i * i % 253) as u8).collect();
    let frame = || OwnedFrame::rgb(96, 128, pixels.clone()).unwrap();
    let by_size = [InputSize::Card, InputSize::Native].map(|input_size| {
        let options = Options { input_size, ..Options::default() };
        run(&segmenter("tiny-sapiens2.toml", "tiny-sapiens2.safetensors", options), frame()).labels
    });
    assert!(by_size[0] == by_size[1]);
}

#[test]
fn two_segmenters_and_many_frames_give_equal_labels() {
    let first = segmenter("tiny-sapiens2.toml", "tiny-sapiens2.safetensors", Options::default());
    let options = Options { slots: 3, threads: 1, ..Options::default() };
    let second = segmenter("tiny-sapiens2.toml", "tiny-sapiens2.safetensors", options);
    let expected = run(&first, rgb_frame("photo-61x45.png")).labels;
    let mut output = Output::default();
    for n in 0..9 {
        if n >= 3 {
            second.receive(&mut output).unwrap();
            assert!(output.labels == expected, "frame {n}, one thread against all");
        }
        second.submit(rgb_frame("photo-61x45.png")).unwrap();
    }
    assert_eq!(second.discard(), 3);
}
