//! The training of a tiny network: it learns, resumes as if it had never stopped, and its weights are a checkpoint.
#![allow(clippy::unwrap_used)] // A test that can't go on has failed.

use std::collections::HashMap;

use half::bf16;
use sapiens_model::{ModelCard, Weights};
use sapiens_portable::Dims;
use sapiens_training::checkpoint;
use sapiens_training::data::Source;
use sapiens_training::export::export;
use sapiens_training::gradient::GradientOfBatch;
use sapiens_training::optimizer::State;
use sapiens_training::parameters::Layout;
use sapiens_training::recipe::{self, Recipe, Stage};
use sapiens_training::sample::Sample;
use sapiens_training::schedule::Budget;
use sapiens_training::trainer::Trainer;

const CARD: &str = r#"
id = "tiny"
family = "sapiens2"
class = [
    { name = "Background", color = [0, 0, 0] },
    { name = "Left", color = [255, 0, 0], mirror = "Right" },
    { name = "Right", color = [0, 255, 0], mirror = "Left" },
]

[network]
embed_dim = 32
layers = 3
heads = 2
ffn_dim = 48
full_kv_layers = 1
deconv_channels = [16, 8, 8, 8]
conv_channels = [8]

[input]
height = 64
width = 48
mean = [123.675, 116.28, 103.53]
std = [58.395, 57.12, 57.375]
resize = "area-or-cubic"
"#;

/// A red and a green rectangle on blue, elsewhere in every sample.
#[derive(Clone)]
struct Rectangles;

impl Source for Rectangles {
    fn sample(&self, number: u64, [height, width]: [usize; 2]) -> Sample {
        let shift = (number * 7 % 16) as usize;
        let label = |i: usize| {
            let (x, y) = (i % width, i / width);
            if y < shift || y > height / 2 + shift { 0 } else { 1 + u8::from(x > width / 3 + shift) }
        };
        let labels: Vec<u8> = (0..height * width).map(label).collect();
        let colours = [[20, 30, 200], [220, 40, 50], [60, 190, 40]];
        let rgb = labels.iter().flat_map(|&label| colours[usize::from(label)]).collect();
        Sample::new(height, width, rgb, labels)
    }
}

fn card() -> ModelCard {
    ModelCard::from_toml(CARD, "tiny").unwrap()
}

fn dims() -> Dims {
    recipe::dims(&card()).unwrap()
}

fn recipe() -> Recipe {
    let stages =
        vec![Stage { until: 0.5, height: 32, width: 32 }, Stage { until: 1.0, height: 64, width: 48 }];
    Recipe { batch: 3, part: 2, warm_up: 2, stages, ..Recipe::default() }
}

fn trainer(steps: u64, threads: usize) -> Trainer {
    let normalisation = recipe::normalisation(&card());
    Trainer::new(&dims(), normalisation, recipe(), Budget::Steps(steps), threads).unwrap()
}

fn train(trainer: &mut Trainer, steps: u64) -> f64 {
    let mut loader = trainer.loader(&Rectangles);
    (0..steps).map(|_| trainer.step(&mut loader, &Rectangles).0.cross_entropy).last().unwrap()
}

#[test]
fn learns() {
    let mut trainer = trainer(60, 2);
    let loss = train(&mut trainer, 60);
    assert!(loss < 0.5, "cross entropy {loss} after 60 steps: it starts at ln 3");
}

#[test]
fn resumed_equals_uninterrupted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("checkpoint.safetensors");
    let mut whole = trainer(8, 2);
    train(&mut whole, 8);
    let mut first = trainer(8, 2);
    train(&mut first, 3);
    checkpoint::save(&path, first.state(), &first.position()).unwrap();
    let normalisation = recipe::normalisation(&card());
    let mut second = Trainer::resume(&dims(), normalisation, &path, None, 1).unwrap();
    assert_eq!(second.position(), first.position());
    train(&mut second, 5);
    assert!(second.state() == whole.state(), "the resumed training went another way");
}

#[test]
fn other_networks_checkpoint_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("checkpoint.safetensors");
    let trainer = trainer(8, 1);
    checkpoint::save(&path, trainer.state(), &trainer.position()).unwrap();
    let error = checkpoint::load(&path, 5).unwrap_err().to_string();
    assert!(error.contains("expected F32 [5]"), "{error}");
}

#[test]
fn gradient_is_the_mean_however_divided() {
    let (dims, recipe) = (dims(), recipe());
    let layout = Layout::new(&dims);
    let values = layout.initial(&dims, 3);
    let batch: Vec<_> = (0..4).map(|i| Rectangles.sample(i, [32, 48])).collect();
    let compute = |part, threads, batch: &[Sample]| {
        let normalisation = recipe::normalisation(&card());
        let gradient = GradientOfBatch::new(&dims, &layout, normalisation, recipe.loss, part, threads);
        gradient.unwrap().compute(&layout, &values, batch).gradient
    };
    let whole = compute(4, 1, &batch);
    assert!(
        layout.entries().iter().all(|entry| whole[entry.range.clone()].iter().any(|&g| g != 0.0)
        // A bias just before an InstanceNorm has no effect.
        || entry.name == "decode_head.conv_layers.0.bias"),
        "a tensor without a gradient"
    );
    assert!(compute(1, 1, &batch) == compute(1, 3, &batch), "depends on the number of threads");
    let parts: Vec<_> = batch.iter().map(|image| compute(1, 1, std::slice::from_ref(image))).collect();
    let largest = whole.iter().fold(0f32, |m, g| m.max(g.abs()));
    for (i, &g) in whole.iter().enumerate() {
        let mean = parts.iter().map(|part| part[i]).sum::<f32>() / 4.0;
        // Float32 sums over thousands of pixels in another order.
        assert!((g - mean).abs() <= 1e-4 * largest, "{i}: {g} and {mean}");
    }
}

#[test]
fn exported_weights_open_against_their_card() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tiny.safetensors");
    let dims = dims();
    let layout = Layout::new(&dims);
    let values = layout.initial(&dims, 5);
    export(&path, &layout, &values, HashMap::from([("model".to_owned(), "tiny".to_owned())])).unwrap();
    let weights = Weights::open(&path, &card()).unwrap();
    for entry in layout.entries() {
        let expected: Vec<_> =
            values[entry.range.clone()].iter().map(|&x| bf16::from_f32(x).to_f32()).collect();
        assert_eq!(weights.tensor_f32(&entry.name).unwrap(), expected, "{}", entry.name);
    }
    // And a training starts from them, as if from its own first step.
    let trainer = trainer(8, 1).starting_from(&weights).unwrap();
    let rounded: Vec<_> = values.iter().map(|&x| bf16::from_f32(x).to_f32()).collect();
    assert_eq!(trainer.state(), &State::new(rounded));
}

#[test]
fn demo_model_fits_its_size() {
    let card = ModelCard::from_toml(recipe::CARD, "demo").unwrap();
    let layout = Layout::new(&recipe::dims(&card).unwrap());
    assert!(2 * layout.count() < 6_000_000, "{} values in bfloat16", layout.count());
    let recipe = Recipe::default();
    for recipe in [&recipe, &Recipe::further()] {
        assert_eq!(recipe.size(1.0), [card.input.height, card.input.width]);
    }
    let mirror = recipe::mirror(&card).unwrap();
    assert!((0..29).all(|class| mirror[usize::from(mirror[class])] == class as u8));
}
