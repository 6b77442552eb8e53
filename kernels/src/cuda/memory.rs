//! Memory of the device, and views of it.

use std::marker::PhantomData;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use cudarc::driver::sys::{self, CUdeviceptr, CUresult};

use super::driver::{call, check};
use super::{CudaError, Gpu, Stream};

/// Types whose every pattern of bits is a value.
pub trait Plain: Copy + Send + Sync + 'static + sealed::Sealed {}

mod sealed {
    pub trait Sealed {}
    impl Sealed for u8 {}
    impl Sealed for u16 {}
    impl Sealed for i32 {}
    impl Sealed for u32 {}
    impl Sealed for f32 {}
}

impl<T: sealed::Sealed + Copy + Send + Sync + 'static> Plain for T {}

/// Values in the device's memory. Freeing it waits until the device has done all that was queued.
#[derive(Debug)]
pub struct Buffer<T> {
    gpu: Arc<Gpu>,
    pointer: CUdeviceptr,
    len: usize,
    values: PhantomData<T>,
}

impl<T: Plain> Buffer<T> {
    /// Memory for `len` values, which are undefined at first.
    ///
    /// # Errors
    /// [`CudaError::OutOfMemory`], or what else the driver says.
    pub fn new(gpu: &Arc<Gpu>, len: usize) -> Result<Self, CudaError> {
        let _entered = gpu.enter()?;
        let mut pointer = 0;
        let bytes = len.saturating_mul(size_of::<T>());
        if bytes > 0 {
            // SAFETY: a context is current.
            match unsafe { sys::cuMemAlloc_v2(&mut pointer, bytes) } {
                CUresult::CUDA_ERROR_OUT_OF_MEMORY => {
                    return Err(CudaError::OutOfMemory { bytes, free: gpu.free_memory()? });
                }
                result => check("cuMemAlloc_v2", result)?,
            }
            gpu.count_memory().add(bytes);
        }
        Ok(Self { gpu: gpu.clone(), pointer, len, values: PhantomData })
    }

    /// Values there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Some of the values, to read.
    ///
    /// # Panics
    /// If the range reaches past the end.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Slice<'_, T> {
        let (first, len) = part(range, self.len);
        let pointer = self.pointer + (first * size_of::<T>()) as u64;
        Slice { pointer, context: self.gpu.context(), len, values: PhantomData }
    }

    /// Some of the values, to write.
    ///
    /// # Panics
    /// If the range reaches past the end.
    pub fn slice_mut(&mut self, range: impl RangeBounds<usize>) -> SliceMut<'_, T> {
        let Slice { pointer, context, len, .. } = self.slice(range);
        SliceMut { pointer, context, len, values: PhantomData }
    }
}

impl<T> Drop for Buffer<T> {
    fn drop(&mut self) {
        if self.pointer != 0 {
            // Even where that fails: the driver knows whose memory it is.
            let _entered = self.gpu.enter();
            // SAFETY: it was allocated once and nobody has a slice of it. Nothing can be done about a failure.
            let _ = unsafe { call!(cuMemFree_v2(self.pointer)) };
            self.gpu.count_memory().subtract(self.len * size_of::<T>());
        }
    }
}

/// Values in the device's memory to be read.
#[derive(Debug, Clone, Copy)]
pub struct Slice<'a, T> {
    pointer: CUdeviceptr,
    context: usize,
    len: usize,
    values: PhantomData<&'a T>,
}

/// Values in the device's memory to be written.
#[derive(Debug)]
pub struct SliceMut<'a, T> {
    pointer: CUdeviceptr,
    context: usize,
    len: usize,
    values: PhantomData<&'a mut T>,
}

impl<'a, T: Plain> Slice<'a, T> {
    /// Memory that isn't a [`Buffer`]'s.
    ///
    /// # Safety
    /// There must be so many values at the address in the context's memory, and they must live and not be written to for `'a`.
    pub(super) unsafe fn at_address(pointer: CUdeviceptr, context: usize, len: usize) -> Self {
        Self { pointer, context, len, values: PhantomData }
    }

    /// Values there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Some of them.
    ///
    /// # Panics
    /// If the range reaches past the end.
    pub fn part(&self, range: impl RangeBounds<usize>) -> Slice<'a, T> {
        let (first, len) = part(range, self.len);
        Self { pointer: self.pointer + (first * size_of::<T>()) as u64, len, ..*self }
    }

    /// Their bytes.
    pub(super) fn bytes(&self) -> Slice<'a, u8> {
        let Self { pointer, context, len, .. } = *self;
        Slice { pointer, context, len: len * size_of::<T>(), values: PhantomData }
    }

    /// The address, for work in a stream of the same device.
    pub(super) fn at(&self, stream: &Stream) -> CUdeviceptr {
        assert_eq!(self.context, stream.gpu().context(), "memory of one GPU, work on another");
        self.pointer
    }
}

impl<T: Plain> SliceMut<'_, T> {
    /// To be read.
    pub(super) fn as_slice(&self) -> Slice<'_, T> {
        let Self { pointer, context, len, .. } = *self;
        Slice { pointer, context, len, values: PhantomData }
    }

    /// Memory that isn't a [`Buffer`]'s.
    ///
    /// # Safety
    /// As [`Slice::at_address`], and nobody else may read them.
    pub(super) unsafe fn at_address(pointer: CUdeviceptr, context: usize, len: usize) -> Self {
        Self { pointer, context, len, values: PhantomData }
    }

    /// As [`Slice::at`].
    pub(super) fn at(&self, stream: &Stream) -> CUdeviceptr {
        assert_eq!(self.context, stream.gpu().context(), "memory of one GPU, work on another");
        self.pointer
    }

    /// Values there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

fn part(range: impl RangeBounds<usize>, len: usize) -> (usize, usize) {
    let first = match range.start_bound() {
        Bound::Included(&first) => first,
        Bound::Excluded(&before) => before + 1,
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(&last) => last + 1,
        Bound::Excluded(&end) => end,
        Bound::Unbounded => len,
    };
    assert!(first <= end && end <= len, "{first} to {end} of {len} values on the device");
    (first, end - first)
}
