//! What can go wrong between us and the driver.

use std::fmt;

use super::Capability;

/// Why something can't be done on a GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CudaError {
    /// There is no driver library.
    NoDriver,
    /// The driver is of an older CUDA than the kernels need: found and needed, as 1000 * major + 10 * minor.
    DriverTooOld {
        /// What the driver says.
        found: i32,
        /// What it must say at least.
        needed: i32,
    },
    /// The driver library lacks a function.
    MissingFunction(&'static str),
    /// There is no device of this number.
    NoDevice {
        /// The number asked for.
        index: usize,
        /// How many there are.
        count: usize,
    },
    /// The device can't run the kernels.
    TooOld {
        /// Its name.
        device: String,
        /// What it has.
        found: Capability,
    },
    /// The device doesn't have that much memory left.
    OutOfMemory {
        /// What was asked for.
        bytes: usize,
        /// What the driver said was free just after.
        free: usize,
    },
    /// The driver can't pin so much of the host's memory.
    NoHostMemory {
        /// What was asked for.
        bytes: usize,
    },
    /// The device has no bfloat16.
    NoBf16 {
        /// What it has.
        found: Capability,
    },
    /// A function of the driver failed.
    Failed {
        /// Its name.
        function: &'static str,
        /// The driver's own name of the error.
        error: String,
    },
    /// There is no cuBLASLt.
    NoCublasLt {
        /// The names that it was looked for under.
        names: String,
    },
    /// The version of cuBLASLt isn't one for the kernels, or not for the driver.
    CublasLtVersion {
        /// What it says: 10000 * major + 100 * minor, or 1000 * major in old versions.
        found: usize,
        /// The driver's CUDA.
        driver: i32,
    },
    /// A function of cuBLASLt failed.
    CublasLt {
        /// Its name.
        function: &'static str,
        /// cuBLASLt's own name of the error.
        error: String,
    },
    /// A kernel isn't in the modules, or the driver can't load them.
    Kernel {
        /// Its name or its module's.
        name: String,
        /// What the driver said.
        error: String,
    },
}

impl fmt::Display for CudaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let version = |v: i32| format!("{}.{}", v / 1000, v % 1000 / 10);
        match self {
            CudaError::NoDriver => {
                write!(f, "no NVIDIA driver: the library libcuda.so.1 is not there or can't be loaded")
            }
            CudaError::DriverTooOld { found, needed } => write!(
                f,
                "the NVIDIA driver is one for CUDA {}: one for CUDA {} or newer is needed",
                version(*found),
                version(*needed)
            ),
            CudaError::MissingFunction(name) => {
                write!(f, "the NVIDIA driver lacks the function {name}: a newer one is needed")
            }
            CudaError::NoDevice { index: _, count: 0 } => write!(f, "the NVIDIA driver finds no GPU"),
            CudaError::NoDevice { index, count } => {
                write!(f, "there is no GPU {index}: the NVIDIA driver finds {count}, numbered from 0")
            }
            CudaError::TooOld { device, found } => write!(
                f,
                "{device} has compute capability {found}: 7.5 (GeForce RTX 20, T4) or newer is needed"
            ),
            CudaError::OutOfMemory { bytes, free } => {
                write!(f, "the GPU has no {} MiB left: {} MiB are free", bytes.div_ceil(1 << 20), free >> 20)
            }
            CudaError::NoHostMemory { bytes } => {
                write!(
                    f,
                    "the NVIDIA driver can't pin {} MiB of the machine's memory",
                    bytes.div_ceil(1 << 20)
                )
            }
            CudaError::NoBf16 { found } => write!(
                f,
                "bfloat16 needs compute capability 8.0 or newer, and this GPU has {found}: use float16"
            ),
            CudaError::Failed { function, error } => {
                write!(f, "the NVIDIA driver failed at {function}: {error}")
            }
            CudaError::NoCublasLt { names } => {
                write!(f, "no cuBLASLt: none of {names} is there or can be loaded")
            }
            CudaError::CublasLtVersion { found, driver } => {
                write!(f, "cuBLASLt's version is {found}: one of CUDA 12 to {driver} is needed")
            }
            CudaError::CublasLt { function, error } => {
                write!(f, "cuBLASLt, on the GPU, failed at {function}: {error}")
            }
            CudaError::Kernel { name, error } => {
                write!(f, "the kernel {name} can't be loaded by the NVIDIA driver: {error}")
            }
        }
    }
}

impl std::error::Error for CudaError {}
