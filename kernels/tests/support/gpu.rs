//! The device that tests of the CUDA kernels run on.

use std::sync::Arc;

use sapiens_kernels::cuda::Gpu;

/// The first device of the driver that the loader finds.
pub fn open() -> Arc<Gpu> {
    Gpu::open(0).unwrap()
}
