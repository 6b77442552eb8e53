//! What the demo model makes of figures it has never seen, through the whole product: frames in, labels out.
//!
//! The floors are below what the weights that ship reach, by what another machine's arithmetic may move; the
//! figures themselves are printed and kept in docs/performance.md.
#![allow(clippy::unwrap_used)] // A test that can't go on has failed.

use gst::prelude::*;
use sapiens_figures::score::Score;
use sapiens_figures::{Kinds, Picture, Scene, SceneOptions, class};
use sapiens_model::{
    Backend, BackendRequest, Mode, ModelCard, Options, Output, OwnedFrame, Precision, Segmenter, Variant,
    Weights,
};

/// No training and no validation during training has seen these.
const SEED: u64 = 9_000_000_000;

fn segmenter(backend: BackendRequest) -> Segmenter {
    let card = ModelCard::of(Variant::Demo);
    let weights = Weights::locate_and_open(&card, None, false).unwrap();
    Segmenter::new(card, &weights, Options { backend, ..Options::default() }).unwrap()
}

/// All that runs on every machine; the first is the most exact.
fn backends() -> [BackendRequest; 3] {
    [(Mode::Portable, Precision::F32), (Mode::Kernels, Precision::F32), (Mode::Kernels, Precision::Bf16)].map(
        |(mode, precision)| BackendRequest {
            mode: Some(mode),
            precision: Some(precision),
            ..Default::default()
        },
    )
}

/// Figure number `index` in a frame of this size.
fn picture(index: u64, kinds: Kinds, (width, height): (usize, usize)) -> Picture {
    let options = SceneOptions { kinds, aspect: width as f64 / height as f64, ..SceneOptions::default() };
    Scene::sample(SEED + index, &options).render(width, height)
}

/// The shapes that cameras have, one after the other.
fn shape(index: u64) -> (usize, usize) {
    [(640, 480), (640, 360), (480, 640), (360, 640)][index as usize % 4]
}

fn labels(segmenter: &Segmenter, picture: &Picture) -> Vec<u8> {
    let mut output = Output::default();
    segmenter.submit(OwnedFrame::rgb(picture.width, picture.height, picture.rgb.clone()).unwrap()).unwrap();
    segmenter.receive(&mut output).unwrap();
    output.labels.labels().to_vec()
}

fn score(segmenter: &Segmenter, pictures: impl Iterator<Item = Picture>) -> Score {
    let mut score = Score::default();
    pictures.for_each(|picture| score.add(&picture.labels, &labels(segmenter, &picture)));
    score
}

/// Scores of every backend on the same pictures, and the share of all pixels that it labels as the first does.
fn compare(pictures: impl Iterator<Item = Picture>) -> Vec<(Backend, Score, f64)> {
    let segmenters = backends().map(segmenter);
    let mut scores = segmenters.each_ref().map(|_| (Score::default(), 0));
    let mut pixels = 0;
    for picture in pictures {
        pixels += picture.labels.len();
        let first = labels(&segmenters[0], &picture);
        for (segmenter, (score, equal)) in segmenters.iter().zip(&mut scores) {
            let labels = labels(segmenter, &picture);
            score.add(&picture.labels, &labels);
            *equal += labels.iter().zip(&first).filter(|(label, first)| label == first).count();
        }
    }
    let backends = segmenters.iter().map(Segmenter::backend);
    backends.zip(scores).map(|(b, (score, equal))| (b, score, equal as f64 / pixels as f64)).collect()
}

fn report(name: &str, score: &Score) {
    println!(
        "{name}: {} figures, mean IoU {:.3}, background {:.3}, sides confused {:.2} %",
        score.images(),
        score.mean_iou(),
        score.background_iou(),
        score.side_confusion() * 100.0
    );
    for (number, name) in class::NAMES.iter().enumerate() {
        match score.iou(number as u8) {
            Some(iou) => println!("  {name:<16} {iou:.3}"),
            None => println!("  {name:<16} -"),
        }
    }
}

/// The scores' floors, and how much the backends may differ from the first: in float32 where two classes are as good as
/// equal, in bfloat16 in half a percent.
fn check(name: &str, results: &[(Backend, Score, f64)], mean_iou: f64, background: f64, sides: f64) {
    for (backend, score, equal) in results {
        report(&format!("{name}, {backend}, {:.3} % of labels equal", 100.0 * equal), score);
        assert!(score.mean_iou() >= mean_iou, "{backend}: mean IoU {}", score.mean_iou());
        assert!(score.background_iou() >= background, "{backend}: background {}", score.background_iou());
        assert!(score.side_confusion() <= sides, "{backend}: sides {}", score.side_confusion());
        let least = if backend.precision == Precision::F32 { 0.9995 } else { 0.995 };
        assert!(*equal >= least, "{backend}: {equal} of the labels are equal");
    }
}

#[test]
fn unseen_figures_are_labelled() {
    let results = compare((0..500).map(|index| picture(index, Kinds::Training, shape(index))));
    check("kinds that training has", &results, 0.51, 0.955, 0.125);
}

#[test]
fn held_out_kinds_are_labelled() {
    let results = compare((500..700).map(|index| picture(index, Kinds::HeldOut, shape(index))));
    check("kinds held out of training", &results, 0.43, 0.915, 0.12);
}

/// Labels of `pictures`, all of one size, that come out of the element where it is given `format`.
fn through_the_element(pictures: &[Picture], format: &str) -> Vec<Vec<u8>> {
    let (width, height) = (pictures[0].width, pictures[0].height);
    let description = format!(
        "appsrc name=in format=time ! videoconvert ! video/x-raw,format={format} ! \
         sapiensseg variant=demo output=mask ! appsink name=out sync=false max-buffers=1"
    );
    let pipeline = gst::parse::launch(&description).unwrap().downcast::<gst::Pipeline>().unwrap();
    let source = pipeline.by_name("in").unwrap().downcast::<gst_app::AppSrc>().unwrap();
    let sink = pipeline.by_name("out").unwrap().downcast::<gst_app::AppSink>().unwrap();
    let info = gst_video::VideoInfo::builder(gst_video::VideoFormat::Rgb, width as u32, height as u32)
        .fps(gst::Fraction::new(10, 1))
        .build()
        .unwrap();
    source.set_caps(Some(&info.to_caps().unwrap()));
    pipeline.set_state(gst::State::Playing).unwrap();
    let labels = pictures.iter().enumerate().map(|(index, picture)| {
        let mut buffer = gst::Buffer::from_slice(picture.rgb.clone());
        buffer.make_mut().set_pts(gst::ClockTime::from_mseconds(100 * index as u64));
        source.push_buffer(buffer).unwrap();
        let sample = sink.pull_sample().unwrap();
        let map = sample.buffer().unwrap().map_readable().unwrap().to_vec();
        // The widths below are multiples of four, so rows have no padding.
        assert_eq!(map.len(), width * height);
        map
    });
    let labels = labels.collect();
    pipeline.set_state(gst::State::Null).unwrap();
    labels
}

#[test]
fn the_element_labels_as_well_in_every_format_and_size() {
    gst::init().unwrap();
    gstsapiensseg::plugin_register_static().unwrap();
    let segmenter = segmenter(BackendRequest::default());
    for (size, count) in [((320, 240), 24), ((1280, 720), 10), ((1080, 1920), 6)] {
        let pictures: Vec<_> = (0..count).map(|index| picture(2000 + index, Kinds::Training, size)).collect();
        let library = score(&segmenter, pictures.iter().cloned());
        for format in ["NV12", "I420", "RGB", "BGRA"] {
            let mut element = Score::default();
            for (picture, labels) in pictures.iter().zip(through_the_element(&pictures, format)) {
                element.add(&picture.labels, &labels);
            }
            println!(
                "{} x {} {format}: mean IoU {:.3} (the library in RGB {:.3}), background {:.3}, sides confused {:.2} %",
                size.0,
                size.1,
                element.mean_iou(),
                library.mean_iou(),
                element.background_iou(),
                element.side_confusion() * 100.0
            );
            // Half the colour resolution and 8-bit colour matrices cost a little; a wrong matrix, order of channels or
            // stride costs everything.
            let may_differ = if matches!(format, "RGB" | "BGRA") { 1e-9 } else { 0.03 };
            assert!(
                (element.mean_iou() - library.mean_iou()).abs() <= may_differ,
                "{size:?} {format}: mean IoU {} and {}",
                element.mean_iou(),
                library.mean_iou()
            );
        }
    }
}
