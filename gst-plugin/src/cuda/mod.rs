//! Frames in the memory of an NVIDIA GPU, as GStreamer's elements for CUDA hand them over (`memory:CUDAMemory`).
//!
//! Everything of GStreamer's library for CUDA is here, behind a safe surface: [`CudaLibrary`] is looked up at run time and
//! nothing links to it, [`CudaContext`] is what elements share, [`MappedCuda`] a frame where it lies, [`CudaPool`] where frames
//! of our own come from. It refuses to know pads and what becomes of a frame.
#![allow(unsafe_code, reason = "the library's functions are C's, and frames are addresses")]

mod context;
mod library;
mod memory;
mod pool;

pub(crate) use context::{CONTEXT_TYPE, CudaContext};
pub(crate) use library::CudaLibrary;
pub(crate) use memory::{Access, MappedCuda, context_of};
pub(crate) use pool::{CudaPool, offer};
