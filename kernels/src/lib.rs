//! Operations on shapes and slices that vision transformers are made of. Never heard of Sapiens, GStreamer or burn.
//!
//! [`reference`](mod@reference) has every operation written naively: the specification that the fast ones are held against.
//! [`resize`] and [`resize_argmax`] are the fast ones around the network, run for every frame; [`cpu`] has the network's own.
//!
//! Callers check what comes from outside; here sizes that don't fit together are a bug of the caller and panic.

pub mod cpu;
#[cfg(feature = "cuda")]
pub mod cuda;
pub mod frame;
pub mod image;
pub mod reference;
pub mod resize;
pub mod resize_argmax;

pub use image::{ImageMut, ImageRef};
pub use resize::{Filter, Resizer};
pub use resize_argmax::{LabelWindow, Logits, ResizeArgmax};
