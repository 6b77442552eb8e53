//! Learns sixteen figures by heart: if the loss didn't vanish, something would be wrong with gradients or network.
#![allow(clippy::expect_used)] // A check that can't go on has failed.

use sapiens_model::ModelCard;
use sapiens_training::data::{Figures, Source};
use sapiens_training::recipe::{self, CARD, Recipe, Stage};
use sapiens_training::sample::Sample;
use sapiens_training::schedule::Budget;
use sapiens_training::trainer::Trainer;

const STEPS: u64 = 400;
const SIZE: [usize; 2] = [128, 96];

#[derive(Clone)]
struct Fixed(Vec<Sample>);

impl Source for Fixed {
    fn sample(&self, number: u64, _: [usize; 2]) -> Sample {
        self.0[number as usize % self.0.len()].clone()
    }
}

fn main() {
    let card = ModelCard::from_toml(CARD, "demo").expect("the card is built in");
    let dims = recipe::dims(&card).expect("the card is a Sapiens2");
    let mirror = recipe::mirror(&card).expect("the card's classes are built in");
    let figures = Figures { seed: 1, own: [card.input.height, card.input.width], mirror };
    let source = Fixed((0..16).map(|i| figures.sample(i, SIZE)).collect());
    let stages = vec![Stage { until: 1.0, height: SIZE[0], width: SIZE[1] }];
    let recipe = Recipe { stages, ..Recipe::default() };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let budget = Budget::Steps(STEPS);
    let mut trainer = Trainer::new(&dims, recipe::normalisation(&card), recipe, budget, threads)
        .expect("threads can be started");
    let mut loader = trainer.loader(&source);
    for step in 1..=STEPS {
        let (loss, norm, rate) = trainer.step(&mut loader, &source);
        if step % 20 == 0 {
            let (entropy, dice) = (loss.cross_entropy, loss.dice);
            println!("{step}: cross entropy {entropy:.4}, dice {dice:.4}, norm {norm:.3}, rate {rate:.1e}");
        }
    }
}
