//! The networks on an NVIDIA GPU, by burn: where they run, and what a machine lacks for them.
#![allow(unsafe_code)] // Whether a library can be loaded is asked.

use burn_cuda::{Cuda, CudaDevice};

use crate::backend::PortableBackend;
use crate::network::Network;

/// The network on an NVIDIA GPU, in float32.
pub type CudaNetwork = Network<Cuda<f32, i32>>;

impl PortableBackend for Cuda<f32, i32> {}

/// The GPU of a number, counted from 0.
pub fn cuda_device(index: usize) -> CudaDevice {
    CudaDevice::new(index)
}

/// What burn needs besides the driver and doesn't find here: it compiles its kernels as they are first run. It would panic
/// where something is missing, so this is to be asked before.
pub fn missing_for_cuda() -> Option<&'static str> {
    // SAFETY: loads NVIDIA's compiler, whose initialisers are as trusted as the driver's.
    if !unsafe { cudarc::nvrtc::sys::is_culib_present() } {
        return Some("NVIDIA's run-time compiler, libnvrtc.so, is not there or can't be loaded");
    }
    if cubecl_cuda::install::cuda_path().is_none() {
        return Some(
            "the CUDA toolkit's headers are not found: CUDA_PATH names the folder that has them in include",
        );
    }
    None
}
