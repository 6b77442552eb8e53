//! Random numbers, the same for the same seed.

use std::time::Duration;

/// SplitMix64.
pub struct Random(u64);

impl Random {
    /// Numbers of a seed and of one of those that draw from it.
    pub fn new(seed: u64, who: u64) -> Self {
        let mut random = Self(seed ^ who.wrapping_mul(0xd134_2543_de82_ef95));
        random.next();
        random
    }

    /// Any number.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ bits >> 31
    }

    /// A number below `end`, which isn't 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// Lets others go first: often not at all, often by a yield, and sometimes for up to `most` microseconds.
    pub fn dawdle(&mut self, most: u64) {
        match self.below(4) {
            0 => (),
            1 | 2 => std::thread::yield_now(),
            _ if most == 0 => std::thread::yield_now(),
            _ => std::thread::sleep(Duration::from_micros(1 + self.below(most))),
        }
    }
}
