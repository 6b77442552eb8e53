//! The seam behind which a whole network runs: a frame in, its labels out.
//!
//! The seam is that wide because a GPU engine must fuse preprocessing with the patch embedding and the resize with
//! the argmax, and every engine owns the layout of its weights. Work is asynchronous: `submit` starts it, `finish`
//! waits for it. An engine knows nothing of streams of frames; the [`Segmenter`](crate::Segmenter) keeps their order.

#[cfg(any(test, feature = "fake-engine"))]
pub mod fake;
#[cfg(feature = "portable")]
pub(crate) mod portable;
#[cfg(any(test, feature = "fake-engine", feature = "portable"))]
mod worker;

use std::sync::Arc;
use std::time::Duration;

use crate::backend::Backend;
use crate::card::ModelCard;
use crate::error::Result;
use crate::frame::Frame;
use crate::label_map::LabelMap;
use crate::segmenter::Options;
use crate::weights::Weights;

#[cfg(any(test, feature = "fake-engine", feature = "portable"))]
pub(crate) use worker::{Network, Worker};

/// What an engine makes of a frame.
#[derive(Debug, Clone, Default)]
pub struct Output {
    /// A class per pixel of the frame.
    pub labels: LabelMap,
    /// What the labels were made from, where it was asked for.
    pub logits: Option<Logits>,
    /// Where the time went.
    pub timing: Timing,
}

/// The network's raw output for one frame, at the network's output size.
#[derive(Debug, Clone, PartialEq)]
pub struct Logits {
    /// Row-major `[classes, height, width]`.
    pub values: Vec<f32>,
    /// Planes.
    pub classes: usize,
    /// Rows of a plane.
    pub height: usize,
    /// Columns of a plane.
    pub width: usize,
}

/// How long each step of one frame took.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Timing {
    /// Frame to network input.
    pub preprocess: Duration,
    /// Network input to logits.
    pub network: Duration,
    /// Logits to labels.
    pub postprocess: Duration,
}

impl Timing {
    /// All steps together.
    pub fn total(&self) -> Duration {
        self.preprocess + self.network + self.postprocess
    }
}

/// A network ready to run, with a fixed number of slots for frames in flight.
///
/// A slot is either free or holds one frame from `submit` to `finish`. All methods may be called from any thread,
/// and `finish` of one slot must not keep `submit` of another waiting.
pub trait Engine: Send + Sync {
    /// What runs.
    fn backend(&self) -> Backend;

    /// Slots.
    fn depth(&self) -> usize;

    /// Starts work on `frame` in the free slot `slot`. The frame is dropped once its pixels have been read.
    ///
    /// # Errors
    /// `Engine` if the engine can take no more work; the slot is free then.
    fn submit(&self, slot: usize, frame: Box<dyn Frame>) -> Result<()>;

    /// Says that the result of `slot` isn't wanted: work on it that has not begun may be left out. `finish` must
    /// still be called. Starts no wait, and does nothing for a free slot.
    fn cancel(&self, slot: usize);

    /// Waits for `slot` and exchanges `output` for its result; the slot is free then, whatever the result.
    ///
    /// # Errors
    /// Whatever went wrong with this frame. The engine goes on.
    fn finish(&self, slot: usize, output: &mut Output) -> Result<()>;
}

/// The engine that is `backend`, with the network of `card` and `weights` in it.
pub(crate) fn build(
    card: &Arc<ModelCard>,
    weights: &Weights,
    backend: Backend,
    options: &Options,
) -> Result<Box<dyn Engine>> {
    #[cfg(feature = "portable")]
    return portable::engine(card, weights, backend, options);
    #[cfg(not(feature = "portable"))]
    {
        let _ = (card, weights, options);
        unreachable!("no request resolves to {backend} in a build without the feature `portable`")
    }
}
