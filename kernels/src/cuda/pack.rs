//! A checkpoint's tensors to weights as the kernels read them, on the device: `cuda/pack.cu`.

use std::sync::Arc;

use super::modules::Function;
use super::{CudaError, Gpu, Precision, Slice, SliceMut, Stream, number, size};

const THREADS: usize = 256;

/// How a checkpoint stores values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Float32.
    F32,
    /// Float16.
    F16,
    /// Bfloat16.
    Bf16,
}

impl Format {
    /// Bytes of a value.
    pub fn bytes(self) -> usize {
        match self {
            Format::F32 => 4,
            Format::F16 | Format::Bf16 => 2,
        }
    }
}

/// A tensor as a checkpoint has it, on the device.
#[derive(Debug, Clone, Copy)]
pub struct Source<'a> {
    /// What the bytes are.
    pub format: Format,
    /// Values, lowest byte first, at an address that is a multiple of their size.
    pub bytes: Slice<'a, u8>,
}

/// Which values become which: index `i` of a row-major tensor of `sizes` is value
/// `first + i[0] * strides[0] + ... + i[3] * strides[3]`, or zero where an index isn't below its dimension's limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gather {
    /// The value that index 0 is made of.
    pub first: usize,
    /// Of what is made.
    pub sizes: [usize; 4],
    /// Indices from here on are zeros.
    pub limits: [usize; 4],
    /// Values from what one index of a dimension is made of to what the next is.
    pub strides: [isize; 4],
}

impl Gather {
    /// Values that are made.
    pub fn count(&self) -> usize {
        size(&self.sizes)
    }

    /// Holds all that is read against the values there are. Something is made, and no more than 32 bits can count.
    fn check(&self, len: usize) {
        let [mut low, mut high] = [self.first as i128; 2];
        for ((&size, &limit), &stride) in self.sizes.iter().zip(&self.limits).zip(&self.strides) {
            let there = size.min(limit);
            if there == 0 {
                return;
            }
            let last = (there - 1) as i128 * stride as i128;
            low += last.min(0);
            high += last.max(0);
        }
        assert!(low >= 0 && high < len as i128, "pack: {self:?} reads values {low} to {high} of {len}");
    }
}

/// Where results go, in the type that is asked for.
#[derive(Debug)]
pub enum Packed<'a> {
    /// As the precision stores them, rounded to nearest, ties to even; what float16 can't hold becomes infinite.
    Stored(SliceMut<'a, u16>),
    /// In float32.
    F32(SliceMut<'a, f32>),
}

impl<'a> From<SliceMut<'a, u16>> for Packed<'a> {
    fn from(out: SliceMut<'a, u16>) -> Self {
        Self::Stored(out)
    }
}

impl<'a> From<SliceMut<'a, f32>> for Packed<'a> {
    fn from(out: SliceMut<'a, f32>) -> Self {
        Self::F32(out)
    }
}

/// The kernels: of each [`Format`], in its order.
#[derive(Debug)]
pub struct Pack {
    stored: [Function; 3],
    f32: [Function; 3],
}

/// As `cuda/pack.cu` takes them.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Arguments {
    first: u64,
    out: u64,
    strides: [i64; 4],
    sizes: [u32; 4],
    limits: [u32; 4],
    count: u32,
    unused: u32,
}

impl Pack {
    /// With results as a precision stores them, or in float32.
    ///
    /// # Errors
    /// [`CudaError::NoBf16`], or if the kernels can't be found.
    pub fn new(gpu: &Arc<Gpu>, precision: Precision) -> Result<Self, CudaError> {
        precision.check(gpu.properties().capability)?;
        let function = |from, to| Function::find(gpu, &format!("pack_{from}_{to}"), THREADS as u32, 0);
        let functions = |to| Ok([function("f32", to)?, function("f16", to)?, function("bf16", to)?]);
        Ok(Self { stored: functions(precision.storage())?, f32: functions("f32")? })
    }

    /// Makes all of `out` of a tensor's values.
    ///
    /// # Errors
    /// If it can't be queued.
    ///
    /// # Panics
    /// If `out` is not as long as `gather` says, what is read reaches out of the tensor, or its bytes are no whole values at an
    /// address that is a multiple of their size.
    pub fn run(
        &self,
        stream: &Stream,
        source: Source<'_>,
        gather: &Gather,
        out: Packed<'_>,
    ) -> Result<(), CudaError> {
        let Source { format, bytes } = source;
        let Gather { first, sizes, limits, strides } = *gather;
        let (out, len, functions) = match out {
            Packed::Stored(out) => (out.at(stream), out.len(), &self.stored),
            Packed::F32(out) => (out.at(stream), out.len(), &self.f32),
        };
        assert_eq!(len, gather.count(), "pack: room for {sizes:?}");
        let address = bytes.at(stream);
        let whole =
            bytes.len().is_multiple_of(format.bytes()) && address.is_multiple_of(format.bytes() as u64);
        assert!(whole, "pack: {} bytes at {address:#x} of values of {}", bytes.len(), format.bytes());
        if len == 0 {
            return Ok(());
        }
        // Threads are counted in as many bits.
        let blocks = len.div_ceil(THREADS);
        number(size(&[blocks, THREADS]));
        gather.check(bytes.len() / format.bytes());
        let mut arguments = Arguments {
            // Where nothing is read it may be anywhere.
            first: address.wrapping_add(first.wrapping_mul(format.bytes()) as u64),
            out,
            strides: strides.map(|stride| stride as i64),
            sizes: sizes.map(number),
            limits: [0; 4],
            count: number(len),
            unused: 0,
        };
        for (to, (limit, size)) in arguments.limits.iter_mut().zip(limits.into_iter().zip(sizes)) {
            *to = number(limit.min(size));
        }
        // SAFETY: the struct is the kernel's; all that it reads and writes was measured above.
        unsafe { stream.launch(&functions[format as usize], [number(blocks), 1, 1], &arguments) }
    }
}
