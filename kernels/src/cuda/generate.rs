//! Values that are a function of their place, made on the device: `cuda/generate.cu`.

use std::sync::Arc;

use super::modules::Function;
use super::{CudaError, Gpu, SliceMut, Stream, number, size};

const THREADS: usize = 256;
/// Of a value, which is float32.
const BYTES: usize = size_of::<f32>();

/// Which values are made: value `i` is `u * scale + offset`, both operations rounded to nearest, where `u` is element `first + i`
/// (modulo 2^64) of the splitmix64 sequence from `base`, its upper 24 bits as a multiple of 2^-23 in [-1, 1).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Uniform {
    /// Where the sequence begins.
    pub base: u64,
    /// The first value's place in it.
    pub first: u64,
    /// Half the width of the range.
    pub scale: f32,
    /// Its middle.
    pub offset: f32,
}

/// The kernel.
#[derive(Debug)]
pub struct Generate(Function);

/// As `cuda/generate.cu` takes them.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Arguments {
    out: u64,
    base: u64,
    first: u64,
    scale: f32,
    offset: f32,
    count: u32,
    unused: u32,
}

impl Generate {
    /// For a device.
    ///
    /// # Errors
    /// If the kernel can't be found.
    pub fn new(gpu: &Arc<Gpu>) -> Result<Self, CudaError> {
        Ok(Self(Function::find(gpu, "generate", THREADS as u32, 0)?))
    }

    /// Makes all of `out`, float32 values, lowest byte first, as a checkpoint's would be brought up for [`Pack`](super::pack::Pack).
    ///
    /// # Errors
    /// If it can't be queued.
    ///
    /// # Panics
    /// If `out` is no whole values at an address that is a multiple of their size, or they are more than 32 bits can count.
    pub fn run(&self, stream: &Stream, values: Uniform, out: SliceMut<'_, u8>) -> Result<(), CudaError> {
        let (address, len) = (out.at(stream), out.len());
        let whole = len.is_multiple_of(BYTES) && address.is_multiple_of(BYTES as u64);
        assert!(whole, "generate: {len} bytes at {address:#x} of values of {BYTES}");
        let count = len / BYTES;
        let blocks = count.div_ceil(THREADS);
        // Threads are counted in as many bits.
        number(size(&[blocks, THREADS]));
        let Uniform { base, first, scale, offset } = values;
        let arguments =
            Arguments { out: address, base, first, scale, offset, count: number(count), unused: 0 };
        // SAFETY: the struct is the kernel's; all that it writes was measured above.
        unsafe { stream.launch(&self.0, [number(blocks), 1, 1], &arguments) }
    }
}
