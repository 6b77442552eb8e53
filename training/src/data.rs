//! Training's pictures: drawn figures by their number, made ahead of the training on threads of their own.
//!
//! A sample is a function of the run's seed and its number alone, and numbers come in order: a resumed training sees
//! what an uninterrupted one would have seen.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use sapiens_figures::{Kinds, Picture, Scene, SceneOptions};

use crate::sample::Sample;

/// Frames' shapes, width over height: from an upright phone to a wide screen.
pub const ASPECTS: [f64; 6] = [9.0 / 16.0, 2.0 / 3.0, 3.0 / 4.0, 1.0, 4.0 / 3.0, 16.0 / 9.0];

/// Makes sample after sample.
pub trait Source: Clone + Send + Sync + 'static {
    /// The sample of a number, `[height, width]` large.
    fn sample(&self, number: u64, size: [usize; 2]) -> Sample;
}

/// Drawn figures of the training kinds.
#[derive(Debug, Clone)]
pub struct Figures {
    /// Of the run.
    pub seed: u64,
    /// Height and width of the network's own input.
    pub own: [usize; 2],
    /// For every class the one on the body's other side, or itself.
    pub mirror: Vec<u8>,
}

impl Source for Figures {
    fn sample(&self, number: u64, [height, width]: [usize; 2]) -> Sample {
        // The golden ratio in 64 bits: neighbouring runs' numbers stay apart.
        let mut random = Pcg64Mcg::seed_from_u64(self.seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ number);
        let aspect = ASPECTS[random.random_range(0..ASPECTS.len())] * random.random_range(0.9..1.1);
        // Samples smaller than the network's own input are for learning the parts of one body. Most are cut out of
        // a picture of the own size, where parts are as large as they will be.
        let early = height < self.own[0];
        let options = SceneOptions {
            kinds: Kinds::Training,
            people: if random.random_bool(if early { 0.85 } else { 0.5 }) { 1..=1 } else { 1..=3 },
            aspect,
            degrade: random.random_bool(0.85),
        };
        // Below validation's seeds, see there.
        let scene = Scene::sample(random.random::<u64>() >> 1, &options);
        let zoom: f64 = if early && random.random_bool(0.65) {
            self.own[0] as f64 / height as f64 * random.random_range(0.75..1.2)
        } else if random.random_bool(0.25) {
            // Some are drawn larger and cut, so that small parts fill more pixels.
            random.random_range(1.1..1.7)
        } else {
            1.0
        };
        let [tall, wide] = [height, width].map(|side| (side as f64 * zoom.max(1.0)) as usize);
        let mut picture = scene.render(wide, tall);
        if early && picture.labels.iter().filter(|&&label| label != 0).count() > tall * wide / 2 {
            // Of a close-up a window would show nothing but hair, or a shirt.
            picture = scene.render(width, height);
        }
        let [top, left] = around_somebody(&picture, [height, width], &mut random);
        let rows = (top..top + height).map(|y| y * picture.width + left);
        let cut = |values: &[u8], channels: usize| -> Vec<u8> {
            rows.clone().flat_map(|at| &values[at * channels..(at + width) * channels]).copied().collect()
        };
        let mut sample = Sample::new(height, width, cut(&picture.rgb, 3), cut(&picture.labels, 1));
        if random.random_bool(0.5) {
            sample.flip(&self.mirror);
        }
        if random.random_bool(0.7) {
            sample.jitter(&mut random);
        }
        sample
    }
}

/// Top and left of a window into the picture, somewhere over a person if there is one.
fn around_somebody(picture: &Picture, [height, width]: [usize; 2], random: &mut Pcg64Mcg) -> [usize; 2] {
    let room = [picture.height - height, picture.width - width];
    let mut place = || room.map(|room| random.random_range(0..=room));
    let mut at = place();
    for _ in 0..20 {
        let middle = (at[0] + height / 2) * picture.width + at[1] + width / 2;
        if picture.labels[middle] != 0 {
            break;
        }
        at = place();
    }
    at
}

/// Samples in the order of their numbers, from some number on.
#[derive(Debug)]
pub struct Loader {
    made: Receiver<(u64, Sample)>,
    /// Those that came before their turn.
    early: BTreeMap<u64, Sample>,
    next: u64,
    size: [usize; 2],
}

/// Samples that wait at most, for each thread.
const AHEAD: usize = 16;

impl Loader {
    /// Samples of `size`, made by `threads` threads, which end with the loader.
    pub fn new(source: impl Source, first: u64, size: [usize; 2], threads: usize) -> Self {
        let (sender, made) = sync_channel(AHEAD * threads.max(1));
        let (source, number) = (Arc::new(source), Arc::new(AtomicU64::new(first)));
        for _ in 0..threads.max(1) {
            let (source, number, sender) = (source.clone(), number.clone(), sender.clone());
            thread::spawn(move || {
                loop {
                    let number = number.fetch_add(1, Ordering::Relaxed);
                    // Fails when the loader is gone.
                    if sender.send((number, source.sample(number, size))).is_err() {
                        return;
                    }
                }
            });
        }
        Self { made, early: BTreeMap::new(), next: first, size }
    }

    /// Height and width of the samples.
    pub fn size(&self) -> [usize; 2] {
        self.size
    }

    /// The next `count` samples.
    ///
    /// # Panics
    /// If a thread panicked while it made one.
    pub fn batch(&mut self, count: usize) -> Vec<Sample> {
        (0..count)
            .map(|_| {
                let number = self.next;
                self.next += 1;
                loop {
                    if let Some(sample) = self.early.remove(&number) {
                        return sample;
                    }
                    let Ok((made, sample)) = self.made.recv() else {
                        panic!("sample {number} can't be made: its thread has ended");
                    };
                    self.early.insert(made, sample);
                }
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone)]
    struct Numbers;

    impl Source for Numbers {
        fn sample(&self, number: u64, _: [usize; 2]) -> Sample {
            // Later ones are ready sooner.
            thread::sleep(std::time::Duration::from_millis(3 * (3 - number % 4)));
            Sample::new(1, 1, vec![0; 3], vec![number as u8])
        }
    }

    #[test]
    fn in_order_from_any_number() {
        let mut loader = Loader::new(Numbers, 5, [1, 1], 3);
        let mut labels = Vec::new();
        for count in [4, 1, 7] {
            labels.extend(loader.batch(count).iter().map(|sample| sample.labels()[0]));
        }
        assert_eq!(labels, (5..17).collect::<Vec<u8>>());
    }

    #[test]
    fn figures_are_functions_of_their_number() {
        let figures = Figures { seed: 3, own: [128, 96], mirror: (0..29).collect() };
        let size = [64, 48];
        assert_eq!(figures.sample(11, size), figures.sample(11, size));
        assert_ne!(figures.sample(11, size), figures.sample(12, size));
        assert_ne!(figures.sample(11, size), Figures { seed: 4, ..figures.clone() }.sample(11, size));
    }
}
