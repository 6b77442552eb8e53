//! The training: step after step until the budget is spent, with log, validation and checkpoints on the way.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use sapiens_figures::CLASSES;
use sapiens_figures::score::Score;
use sapiens_model::{SegmentError, Weights};
use sapiens_portable::Dims;
use serde::Serialize;

use crate::checkpoint::{self, Position};
use crate::data::{Loader, Source};
use crate::gradient::GradientOfBatch;
use crate::loss::Loss;
use crate::optimizer::State;
use crate::parameters::Layout;
use crate::recipe::Recipe;
use crate::sample::Normalisation;
use crate::schedule::{Budget, learning_rate};

/// Steps between lines of the log.
const LOG_STEPS: u64 = 20;
/// Training between checkpoints.
const CHECKPOINT_EVERY: Duration = Duration::from_secs(180);
/// Training between validations, and until the first.
const VALIDATE_EVERY: Duration = Duration::from_secs(540);
const FIRST_VALIDATION: Duration = Duration::from_secs(300);

/// A training under way.
#[derive(Debug)]
pub struct Trainer {
    recipe: Recipe,
    budget: Budget,
    layout: Layout,
    gradient: GradientOfBatch,
    state: State,
    trained: Duration,
    threads: usize,
}

/// One line of the log.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "line", rename_all = "snake_case")]
pub enum Line {
    /// At the start and after every resumption.
    Start {
        /// Steps taken before.
        step: u64,
        /// When it ends.
        budget: Budget,
        /// How it is done.
        recipe: Recipe,
        /// Values in the network.
        parameters: usize,
    },
    /// Means over the steps since the last line.
    Step {
        /// Steps taken.
        step: u64,
        /// Images seen.
        images: u64,
        /// Seconds of training.
        seconds: f64,
        /// Parts of the loss.
        loss: Loss,
        /// Gradient's norm before clipping.
        norm: f32,
        /// Learning rate.
        rate: f32,
        /// Images per second.
        speed: f64,
    },
    /// Of the running mean of the parameters.
    Validation {
        /// Steps taken.
        step: u64,
        /// What the figures are: `training` kinds with other seeds, or `held_out` kinds.
        figures: &'static str,
        /// Mean of the classes' intersection over union.
        mean_iou: f64,
        /// The background's.
        background: f64,
        /// Share of the pixels of classes with sides that got the other side's.
        confused: f64,
        /// Each class's; nothing where no image showed enough of it.
        iou: Vec<Option<f64>>,
    },
}

/// Writes lines to the log and tells the caller.
#[derive(Debug)]
pub struct Log {
    file: File,
}

impl Log {
    /// Appends to the file at `path`.
    ///
    /// # Errors
    /// If it can't be opened.
    pub fn append(path: &Path) -> io::Result<Self> {
        Ok(Self { file: OpenOptions::new().create(true).append(true).open(path)? })
    }

    /// Writes one line.
    ///
    /// # Errors
    /// If it can't be written.
    pub fn write(&mut self, line: &Line) -> io::Result<()> {
        let mut text = serde_json::to_string(line)?;
        text.push('\n');
        self.file.write_all(text.as_bytes())
    }
}

/// Scores the parameters given: each kind of figures by its name.
pub type Validate<'a> = dyn FnMut(&Layout, &[f32]) -> Vec<(&'static str, Score)> + 'a;

impl Trainer {
    /// A training from its start.
    ///
    /// # Errors
    /// If threads can't be started.
    pub fn new(
        dims: &Dims,
        normalisation: Normalisation,
        recipe: Recipe,
        budget: Budget,
        threads: usize,
    ) -> io::Result<Self> {
        let layout = Layout::new(dims);
        let state = State::new(layout.initial(dims, recipe.seed));
        let gradient = GradientOfBatch::new(dims, &layout, normalisation, recipe.loss, recipe.part, threads)
            .map_err(io::Error::other)?;
        Ok(Self { recipe, budget, layout, gradient, state, trained: Duration::ZERO, threads })
    }

    /// The same, but from `weights`, an earlier training's result, instead of random ones.
    ///
    /// # Errors
    /// If they are another network's.
    pub fn starting_from(self, weights: &Weights) -> Result<Self, SegmentError> {
        let tensors = self.layout.entries().iter().map(|entry| weights.tensor_f32(&entry.name));
        let values = tensors.collect::<Result<Vec<_>, _>>()?.concat();
        Ok(Self { state: State::new(values), ..self })
    }

    /// The training that wrote the checkpoint at `path`, until `budget` if given, else as it was going to.
    ///
    /// # Errors
    /// If the checkpoint can't be read or is another network's.
    pub fn resume(
        dims: &Dims,
        normalisation: Normalisation,
        path: &Path,
        budget: Option<Budget>,
        threads: usize,
    ) -> io::Result<Self> {
        let (state, position) = checkpoint::load(path, Layout::new(dims).count())?;
        let budget = budget.unwrap_or(position.budget);
        let fresh = Self::new(dims, normalisation, position.recipe, budget, threads)?;
        Ok(Self { state, trained: position.trained, ..fresh })
    }

    /// The network's tensors.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Parameters and the optimiser's memory.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Everything but the state.
    pub fn position(&self) -> Position {
        let Self { recipe, budget, trained, state, .. } = self;
        Position { step: state.step, trained: *trained, budget: *budget, recipe: recipe.clone() }
    }

    /// Share of the budget that is spent.
    pub fn progress(&self) -> f64 {
        self.budget.progress(self.state.step, self.trained)
    }

    /// One step on the next batch; returns loss, gradient norm and learning rate. Replaces `loader` where samples of
    /// another size are due.
    pub fn step(&mut self, loader: &mut Loader, source: &impl Source) -> (Loss, f32, f32) {
        let start = Instant::now();
        if loader.size() != self.recipe.size(self.progress()) {
            *loader = self.loader(source);
        }
        let batch = loader.batch(self.recipe.batch);
        let mut result = self.gradient.compute(&self.layout, &self.state.values, &batch);
        let share = learning_rate(self.progress(), self.state.step, self.recipe.warm_up);
        let rate = self.recipe.learning_rate * share;
        let norm = self.state.advance(&self.layout, &self.recipe, rate, &mut result.gradient);
        self.trained += start.elapsed();
        (result.loss, norm, rate)
    }

    /// A loader of the samples that come next.
    pub fn loader(&self, source: &impl Source) -> Loader {
        let first = self.state.step * self.recipe.batch as u64;
        Loader::new(source.clone(), first, self.recipe.size(self.progress()), self.threads)
    }

    /// Trains until the budget is spent. Checkpoints and log go to the folder `out`; every line of the log also goes to
    /// `show`.
    ///
    /// # Errors
    /// If a file can't be written.
    pub fn run(
        &mut self,
        source: &impl Source,
        out: &Path,
        validate: &mut Validate<'_>,
        show: &mut dyn FnMut(&Line, f64),
    ) -> io::Result<()> {
        fs::create_dir_all(out)?;
        let mut log = Log::append(&out.join("log.jsonl"))?;
        let mut tell = |line: Line, progress: f64| {
            show(&line, progress);
            log.write(&line)
        };
        let (step, budget, recipe) = (self.state.step, self.budget, self.recipe.clone());
        tell(Line::Start { step, budget, recipe, parameters: self.layout.count() }, self.progress())?;
        let mut loader = self.loader(source);
        let mut last_checkpoint = self.trained;
        let mut next_validation = self.trained + FIRST_VALIDATION;
        let mut since = Since::default();
        while self.progress() < 1.0 {
            let before = self.trained;
            let (loss, norm, rate) = self.step(&mut loader, source);
            since.add(loss, norm, self.trained - before);
            if self.state.step.is_multiple_of(LOG_STEPS) {
                let n = since.steps as f64;
                let images = self.state.step * self.recipe.batch as u64;
                let loss = Loss { cross_entropy: since.loss.cross_entropy / n, dice: since.loss.dice / n };
                let speed = n * self.recipe.batch as f64 / since.time.as_secs_f64();
                let (step, seconds, norm) =
                    (self.state.step, self.trained.as_secs_f64(), since.norm / since.steps as f32);
                tell(Line::Step { step, images, seconds, loss, norm, rate, speed }, self.progress())?;
                since = Since::default();
            }
            if self.trained - last_checkpoint >= CHECKPOINT_EVERY {
                last_checkpoint = self.trained;
                checkpoint::save(&out.join("checkpoint.safetensors"), &self.state, &self.position())?;
            }
            if self.trained >= next_validation && self.progress() < 1.0 {
                next_validation = self.trained + VALIDATE_EVERY;
                self.validate(validate, &mut tell)?;
            }
        }
        checkpoint::save(&out.join("checkpoint.safetensors"), &self.state, &self.position())?;
        self.validate(validate, &mut tell)
    }

    fn validate(
        &self,
        validate: &mut Validate<'_>,
        tell: &mut dyn FnMut(Line, f64) -> io::Result<()>,
    ) -> io::Result<()> {
        for (figures, score) in validate(&self.layout, &self.state.mean) {
            let line = Line::Validation {
                step: self.state.step,
                figures,
                mean_iou: score.mean_iou(),
                background: score.background_iou(),
                confused: score.side_confusion(),
                iou: (0..CLASSES as u8).map(|class| score.iou(class)).collect(),
            };
            tell(line, self.progress())?;
        }
        Ok(())
    }
}

/// Sums since the last line of the log.
#[derive(Default)]
struct Since {
    steps: u64,
    loss: Loss,
    norm: f32,
    time: Duration,
}

impl Since {
    fn add(&mut self, loss: Loss, norm: f32, time: Duration) {
        self.steps += 1;
        self.loss.cross_entropy += loss.cross_entropy;
        self.loss.dice += loss.dice;
        self.norm += norm;
        self.time += time;
    }
}
