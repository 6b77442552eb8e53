//! The networks' operations on NVIDIA GPUs: safe launchers of the kernels in `kernels/cuda`, one file per operation.
//!
//! Nothing but the driver is needed, and it is looked for when a [`Gpu`] is opened: where there is none, or it is too old,
//! or the card is, that is a [`CudaError`] that says so. Without a [`Gpu`] there is no [`Stream`], and without one nothing
//! can be launched. Work is queued and done later, in the order of its stream; whoever uses memory in two streams orders them
//! with an [`Event`].
//!
//! Kernels are held against [`reference`](mod@crate::reference) in `tests/cuda_*.rs`, on a stand-in of the driver that runs them on
//! the processor, or on a card.

#![allow(unsafe_code)] // Calls of the driver.

pub mod attention;
pub mod cublaslt;
pub mod cut_out;
mod driver;
mod error;
pub mod finish;
pub mod foreign;
pub mod frame;
pub mod generate;
mod gpu;
mod graph;
mod memory;
mod modules;
pub mod norm;
pub mod overlay;
pub mod pack;
#[cfg(feature = "cuda-check")]
pub mod probe;
pub mod product;
pub mod resize_argmax;
mod staging;
mod stream;
#[cfg(feature = "cuda-check")]
pub mod words;

pub use error::CudaError;
pub use gpu::{Capability, Gpu, Properties};
pub use graph::Graph;
pub use memory::{Buffer, Plain, Slice, SliceMut};
pub use staging::Staging;
pub use stream::{Event, Stream};

/// How values are stored on the device and what their products are summed in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Precision {
    /// Float16 with float32 sums.
    F16,
    /// Float16 with float16 sums of at most 64 products (80 in attention), and float32 between those: twice as fast on GeForce cards,
    /// which multiply with float32 sums at half their rate.
    F16Promoted,
    /// Bfloat16 with float32 sums; not on Turing.
    Bf16,
}

impl Precision {
    /// As kernels' names have it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Precision::F16 => "f16",
            Precision::F16Promoted => "f16_promoted",
            Precision::Bf16 => "bf16",
        }
    }

    /// As kernels' names have it that don't multiply matrices.
    pub(crate) fn storage(self) -> &'static str {
        match self {
            Precision::F16 | Precision::F16Promoted => "f16",
            Precision::Bf16 => "bf16",
        }
    }

    /// Whether a device has it.
    pub(crate) fn check(self, found: Capability) -> Result<(), CudaError> {
        let missing = self == Precision::Bf16 && found < Capability::AMPERE;
        if missing { Err(CudaError::NoBf16 { found }) } else { Ok(()) }
    }

    /// The stored form of a value.
    pub fn encode(self, value: f32) -> u16 {
        match self {
            Precision::F16 | Precision::F16Promoted => half::f16::from_f32(value).to_bits(),
            Precision::Bf16 => half::bf16::from_f32(value).to_bits(),
        }
    }

    /// The value of a stored form.
    pub fn decode(self, bits: u16) -> f32 {
        match self {
            Precision::F16 | Precision::F16Promoted => half::f16::from_bits(bits).to_f32(),
            Precision::Bf16 => half::bf16::from_bits(bits).to_f32(),
        }
    }
}

/// The number of values of these dimensions, which a caller gave.
fn size(dimensions: &[usize]) -> usize {
    let product = dimensions.iter().try_fold(1usize, |product, &side| product.checked_mul(side));
    product.unwrap_or_else(|| panic!("{dimensions:?} are more values than there can be"))
}

/// A size as the kernels take it.
fn number(value: usize) -> u32 {
    assert!(u32::try_from(value).is_ok(), "a size of {value}");
    value as u32
}

/// An address as the kernels' wide loads need it.
fn aligned(pointer: u64) -> u64 {
    assert!(pointer.is_multiple_of(16), "an address that is no multiple of 16 bytes");
    pointer
}
