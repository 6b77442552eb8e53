//! How long the parts of one training step of the demo model take, in milliseconds an image, at every size that it is
//! trained at. The best of a few tries, since other programs may be running.
#![allow(clippy::expect_used)] // A measurement that can't go on has failed.

use std::time::{Duration, Instant};

use sapiens_model::ModelCard;
use sapiens_training::data::{Figures, Source};
use sapiens_training::gradient::GradientOfBatch;
use sapiens_training::optimizer::State;
use sapiens_training::parameters::Layout;
use sapiens_training::recipe::{self, CARD, Recipe};

/// Tries of each part.
const TRIES: usize = 5;

fn best(mut run: impl FnMut()) -> Duration {
    let tries = (0..TRIES).map(|_| {
        let start = Instant::now();
        run();
        start.elapsed()
    });
    tries.min().unwrap_or_default()
}

fn main() {
    let card = ModelCard::from_toml(CARD, "demo").expect("the card is built in");
    let dims = recipe::dims(&card).expect("the card is a Sapiens2");
    let recipe = Recipe::default();
    let layout = Layout::new(&dims);
    let mirror = recipe::mirror(&card).expect("the card's classes are built in");
    let figures = Figures { seed: 1, own: [card.input.height, card.input.width], mirror };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let normalisation = recipe::normalisation(&card);
    let gradient = GradientOfBatch::new(&dims, &layout, normalisation, recipe.loss, recipe.part, threads)
        .expect("threads can be started");
    let mut state = State::new(layout.initial(&dims, 1));
    let per_image = |time: Duration| time.as_secs_f64() * 1e3 / recipe.batch as f64;
    println!("{} values, {} images a step, {threads} threads", layout.count(), recipe.batch);
    println!("{:>9} {:>8} {:>18} {:>10}", "input", "figure", "forward, backward", "optimiser");
    for stage in &recipe.stages {
        let size = [stage.height, stage.width];
        let mut batch = Vec::new();
        let draw = best(|| batch = (0..recipe.batch as u64).map(|i| figures.sample(i, size)).collect());
        let mut result = gradient.compute(&layout, &state.values, &batch);
        let both = best(|| result = gradient.compute(&layout, &state.values, &batch));
        let advance = best(|| {
            state.advance(&layout, &recipe, 1e-6, &mut result.gradient);
        });
        let [draw, both, advance] = [draw, both, advance].map(per_image);
        println!("{:>9} {draw:>8.1} {both:>18.1} {advance:>10.1}", format!("{}x{}", size[0], size[1]));
    }
}
