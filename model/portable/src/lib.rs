//! The Sapiens and Sapiens2 segmentation networks on burn, for any device burn runs on.
//!
//! A normalised frame goes in, logits come out. This crate knows neither files nor frames nor classes' names: the
//! caller gives [`Dims`] and every tensor's values by the checkpoint's own name.
//!
//! The networks ([`Model`] and what it is made of) read like the papers and are burn modules, generic over the
//! backend, so burn can also train them. What burn's CPU backend does slowly, [`PortableBackend`] does better.

#[cfg(feature = "autodiff")]
mod autodiff;
mod backend;
#[cfg(feature = "cuda")]
mod cuda;
mod dims;
mod flex;
#[cfg(feature = "autodiff")]
mod gradients;
mod head;
mod layers;
mod model;
mod network;
pub mod ops;
mod pos_embed;
mod rope;
mod sapiens;
mod sapiens2;
mod step;
mod values;

pub use backend::PortableBackend;
#[cfg(feature = "cuda")]
pub use cuda::{CudaNetwork, cuda_device, missing_for_cuda};
pub use dims::{Dims, Family, PATCH};
pub use flex::{Matrix, product};
pub use model::{Model, Tables};
pub use network::{Logits, Network};
pub use step::Step;

/// The network on the CPU, in float32.
pub type CpuNetwork = Network<burn_flex::Flex>;
