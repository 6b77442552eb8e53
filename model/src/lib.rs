//! Meta's Sapiens and Sapiens2 body-part segmentation: checkpoints and frames in, label maps out.

pub mod card;
pub mod error;
pub mod variant;

pub use card::{Class, Family, License, ModelCard, PublishedWeights, ResizeRule};
pub use error::{ErrorKind, Result, SegmentError};
pub use variant::Variant;
