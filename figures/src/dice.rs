//! Random choices from a seed, the same on every machine.

use rand_pcg::Pcg64;
use rand_pcg::rand_core::{Rng, SeedableRng};

/// A seeded source of choices.
#[derive(Clone, Debug)]
pub(crate) struct Dice(Pcg64);

impl Dice {
    pub fn new(seed: u64) -> Dice {
        Dice(Pcg64::seed_from_u64(seed))
    }

    /// Evenly in 0..1.
    pub fn unit(&mut self) -> f32 {
        (self.0.next_u64() >> 40) as f32 / 16_777_216.0
    }

    pub fn range(&mut self, low: f32, high: f32) -> f32 {
        low + (high - low) * self.unit()
    }

    /// Around zero, within `most` either way, the middle being likelier than the ends.
    pub fn about(&mut self, most: f32) -> f32 {
        (self.unit() + self.unit() - 1.0) * most
    }

    pub fn chance(&mut self, probability: f32) -> bool {
        self.unit() < probability
    }

    /// Evenly in 0..count; 0 for none.
    pub fn below(&mut self, count: usize) -> usize {
        (((self.0.next_u64() >> 32) * count as u64) >> 32) as usize
    }

    pub fn seed(&mut self) -> u32 {
        (self.0.next_u64() >> 32) as u32
    }

    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }
}
