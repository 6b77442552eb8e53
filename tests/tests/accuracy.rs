//! What the demo model makes of figures it has never seen, through the whole product: frames in, labels out.
//!
//! The floors are below what the weights that ship reach, by what another machine's arithmetic may move; the
//! figures themselves are printed and kept in docs/performance.md.
#![allow(clippy::unwrap_used)] // A test that can't go on has failed.

use gst::prelude::*;
use sapiens_figures::score::Score;
use sapiens_figures::{Kinds, Picture, Scene, SceneOptions, class};
use sapiens_model::{ModelCard, Options, Output, OwnedFrame, Segmenter, Variant, Weights};

/// No training and no validation during training has seen these.
const SEED: u64 = 9_000_000_000;

fn segmenter() -> Segmenter {
    let card = ModelCard::of(Variant::Demo);
    let weights = Weights::locate_and_open(&card, None, false).unwrap();
    Segmenter::new(card, &weights, Options::default()).unwrap()
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

fn score(segmenter: &Segmenter, pictures: impl Iterator<Item = Picture>) -> Score {
    let mut score = Score::default();
    let mut output = Output::default();
    for Picture { width, height, rgb, labels } in pictures {
        segmenter.submit(OwnedFrame::rgb(width, height, rgb).unwrap()).unwrap();
        segmenter.receive(&mut output).unwrap();
        score.add(&labels, output.labels.labels());
    }
    score
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

#[test]
fn unseen_figures_are_labelled() {
    let segmenter = segmenter();
    let seen = score(&segmenter, (0..500).map(|index| picture(index, Kinds::Training, shape(index))));
    report("kinds that training has", &seen);
    assert!(seen.mean_iou() >= 0.24, "mean IoU {}", seen.mean_iou());
    assert!(seen.background_iou() >= 0.88, "background {}", seen.background_iou());
    assert!(seen.side_confusion() <= 0.15, "sides {}", seen.side_confusion());
}

#[test]
fn held_out_kinds_are_labelled() {
    let segmenter = segmenter();
    let held_out = score(&segmenter, (500..700).map(|index| picture(index, Kinds::HeldOut, shape(index))));
    report("kinds held out of training", &held_out);
    assert!(held_out.mean_iou() >= 0.22, "mean IoU {}", held_out.mean_iou());
    assert!(held_out.background_iou() >= 0.80, "background {}", held_out.background_iou());
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
    let segmenter = segmenter();
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
