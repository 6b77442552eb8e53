//! The seam behind which a whole network runs: a frame in, its labels out.
//!
//! The seam is that wide because a GPU engine must fuse preprocessing with the patch embedding and the resize with
//! the argmax, and every engine owns the layout of its weights. Work is asynchronous: `submit` starts it, `finish`
//! waits for it. An engine knows nothing of streams of frames; the [`Segmenter`](crate::Segmenter) keeps their order.

pub(crate) mod cpu;
#[cfg(feature = "cuda")]
pub(crate) mod cuda;
#[cfg(any(test, feature = "fake-engine"))]
pub mod fake;
#[cfg(feature = "portable")]
pub(crate) mod portable;
#[cfg(any(test, feature = "cuda-check"))]
pub mod reference_data;
mod sizes;
mod timing;
mod unloaded;
mod worker;

use std::sync::Arc;

use sapiens_kernels::LabelWindow;

#[cfg(feature = "cuda")]
use crate::backend::Device;
use crate::backend::{Backend, Mode};
use crate::card::ModelCard;
#[cfg(feature = "cuda")]
use crate::cuda::{Context, ContextId, DeviceUse, Painting};
use crate::error::{ErrorKind, Result, SegmentError};
use crate::frame::Frame;
#[cfg(feature = "cuda")]
use crate::frame::Pixels;
use crate::input_size::Placement;
use crate::label_map::LabelMap;
use crate::segmenter::Options;
use crate::weights::{Weights, pos_embed_grid};

#[cfg(feature = "cuda-check")]
pub use cuda::bare_network::{BareNetwork, allowed_of_tiny};
pub use timing::{DeviceSpans, Span, Stage, StageTimes, Timing};
pub(crate) use unloaded::Unloaded;
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

impl Logits {
    /// Of values `[height, width, stride]`, of whose every `stride` the first are the classes.
    fn of_pixels(values: &[f32], classes: usize, stride: usize, [height, width]: [usize; 2]) -> Self {
        let plane = |class: usize| values[class..].iter().step_by(stride).copied();
        Self { values: (0..classes).flat_map(plane).collect(), classes, height, width }
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
    /// `Engine` if the engine can take no more work, or what is wrong with the frame; the slot is free then.
    fn submit(&self, slot: usize, frame: Box<dyn Frame>) -> Result<()>;

    /// Says that the result of `slot` isn't wanted: work on it that has not begun may be left out. `finish` must
    /// still be called. Starts no wait, and does nothing for a free slot.
    fn cancel(&self, slot: usize);

    /// Waits for `slot` and exchanges `output` for its result; the slot is free then, whatever the result.
    ///
    /// # Errors
    /// Whatever went wrong with this frame. The engine goes on.
    fn finish(&self, slot: usize, output: &mut Output) -> Result<()>;

    /// Whether frames submitted from now on are to tell their [`StageTimes`]. An engine that always does, or never can, does
    /// nothing here.
    fn time_stages(&self, _on: bool) {}

    /// What the network takes of a GPU; none if it runs on none.
    #[cfg(feature = "cuda")]
    fn device_use(&self) -> Option<DeviceUse> {
        None
    }

    /// The context in whose memory frames may be; none if they may be in the machine's only.
    #[cfg(feature = "cuda")]
    fn cuda_context(&self) -> Option<ContextId> {
        None
    }

    /// Shows labels on a frame in a GPU's memory, and waits until that is done.
    ///
    /// # Errors
    /// `InvalidFrame` if the engine reads no such frames, or the parts don't fit together; what the driver says.
    #[cfg(feature = "cuda")]
    fn paint(&self, painting: Painting<'_>) -> Result<()> {
        Pixels::Cuda(painting.frame).on_host().map(|_| ())
    }
}

/// The context that a network on a GPU is to run in, if it isn't the device's own.
#[cfg(feature = "cuda")]
pub(crate) type Place = Option<Context>;
/// There are no GPUs in this build.
#[cfg(not(feature = "cuda"))]
pub(crate) type Place = ();

/// The engine that is `backend`, with the network of `card` and `weights` in it.
#[cfg_attr(not(feature = "cuda"), expect(unused_variables, reason = "no place but one"))]
pub(crate) fn build(
    card: &Arc<ModelCard>,
    weights: &Weights,
    backend: Backend,
    options: &Options,
    place: Place,
) -> Result<Box<dyn Engine>> {
    match backend.mode {
        #[cfg(feature = "cuda")]
        Mode::Kernels if backend.device != Device::Cpu => {
            cuda::engine(card, weights, backend, options, place)
        }
        Mode::Kernels => cpu::engine(card, weights, backend, options),
        #[cfg(feature = "portable")]
        Mode::Portable => portable::engine(card, weights, backend, options),
        #[cfg(not(feature = "portable"))]
        Mode::Portable => {
            unreachable!("no request resolves to {backend} in a build without the feature `portable`")
        }
    }
}

/// Rows and columns that the position embedding was trained for.
fn trained_grid(weights: &Weights) -> Result<(usize, usize)> {
    let shape = weights.shape("backbone.pos_embed").unwrap_or(&[]);
    shape.get(1).and_then(|&tokens| pos_embed_grid(tokens)).ok_or_else(|| {
        SegmentError::new(
            ErrorKind::WeightsMismatch,
            format!(
                "backbone.pos_embed of {} has shape {shape:?}: expected [1, N, D] with N = 12 k * k, a grid of 4k rows by 3k columns",
                weights.describe()
            ),
        )
    })
}

/// Which part of the stretched logits is the frame of `width` x `height`. Where it was padded, the logits cover the
/// padding too; elsewhere they cover just the frame.
fn label_window(placement: Placement, width: usize, height: usize) -> LabelWindow {
    let (full_width, full_height) =
        if placement.image == placement.canvas { (width, height) } else { placement.canvas };
    LabelWindow { full_height, full_width, height, width }
}
