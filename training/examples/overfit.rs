//! Learns sixteen figures by heart: if the loss doesn't vanish, something is wrong with gradients or network.
#![allow(clippy::unwrap_used)]

use std::time::Instant;
use sapiens_model::ModelCard;
use sapiens_training::data::{Figures, Source};
use sapiens_training::recipe::{self, CARD, Recipe, Stage};
use sapiens_training::sample::Sample;
use sapiens_training::schedule::Budget;
use sapiens_training::trainer::Trainer;

#[derive(Clone)]
struct Fixed(Vec<Sample>);
impl Source for Fixed {
    fn sample(&self, number: u64, _: [usize; 2]) -> Sample {
        self.0[number as usize % self.0.len()].clone()
    }
}

fn main() {
    let steps: u64 = std::env::args().nth(1).map_or(200, |a| a.parse().unwrap());
    let rate: f32 = std::env::args().nth(2).map_or(2e-3, |a| a.parse().unwrap());
    let card = ModelCard::from_toml(CARD, "demo").unwrap();
    let dims = recipe::dims(&card).unwrap();
    let figures = Figures { seed: 1, mirror: recipe::mirror(&card).unwrap() };
    let start = Instant::now();
    let images: Vec<_> = (0..16).map(|i| figures.sample(i, [128, 96])).collect();
    println!("{:.1} ms per figure", start.elapsed().as_secs_f64() * 1e3 / 16.0);
    let recipe = Recipe { learning_rate: rate, warm_up: 10, batch: 8, part: 4,  stages: vec![Stage { until: 1.0, height: 128, width: 96 }], ..Recipe::default() };
    let mut t = Trainer::new(&dims, recipe::normalisation(&card), recipe, Budget::Steps(steps * 3), 1).unwrap();
    let source = Fixed(images);
    let mut loader = t.loader(&source);
    for i in 0..steps {
        let (loss, norm, rate) = t.step(&mut loader, &source);
        if i % 5 == 4 {
            println!("{i} {:.1} s ce {:.4} dice {:.4} norm {norm:.3} rate {rate:.5}", start.elapsed().as_secs_f64(), loss.cross_entropy, loss.dice);
        }
    }
}
