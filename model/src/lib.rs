//! Meta's Sapiens and Sapiens2 body-part segmentation: checkpoints and frames in, label maps out.
//!
//! The flow, one module per step: a [`frame`] is preprocessed, runs through a network behind [`engine`], and its
//! logits become a [`label_map`], which [`palette`] and [`overlay`] turn into pictures. A [`card`] holds what is
//! constant about a model, [`weights`] its numbers. [`Segmenter`] is the whole flow, a few frames at a time.

pub mod alpha;
pub mod backend;
pub mod card;
#[cfg(feature = "cuda")]
pub mod cuda;
pub mod engine;
pub mod error;
pub mod frame;
pub mod input_size;
pub mod label_map;
pub mod overlay;
pub mod palette;
mod preprocess;
pub mod segmenter;
mod shared;
pub mod variant;
pub mod weights;
pub mod work;

pub use alpha::apply_alpha;
pub use backend::{Backend, BackendRequest, Device, DeviceRequest, Mode, Precision};
pub use card::{Class, Family, License, ModelCard, PublishedWeights, ResizeRule};
pub use engine::{DeviceSpans, Engine, Logits, Output, Span, Stage, StageTimes, Timing};
pub use error::{ErrorKind, Result, SegmentError};
pub use frame::{
    Colorimetry, Frame, FrameInfo, FrameView, FrameViewMut, Matrix, OwnedFrame, PixelFormat, Pixels, Plane,
    PlaneMut, Range,
};
pub use input_size::InputSize;
pub use label_map::{BoundingBox, ClassRegion, LabelMap};
pub use overlay::paint_overlay;
pub use palette::Palette;
pub use segmenter::{MAX_THREADS, Options, Segmenter};
pub use variant::Variant;
pub use weights::{Weights, WeightsIdentity};
pub use work::{Work, parameters, peak_rate};
