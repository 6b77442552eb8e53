//! Host memory that the device copies from and to while the host goes on.

use std::sync::Arc;

use cudarc::driver::sys::{self, CUresult};

use super::driver::{call, check};
use super::{CudaError, Event, Gpu, Plain, Slice, SliceMut, Stream};

/// Values in pinned host memory. A copy is queued and goes on by itself; whoever looks at the values next waits for it.
#[derive(Debug)]
pub struct Staging<T: Plain> {
    gpu: Arc<Gpu>,
    pointer: *mut T,
    len: usize,
    /// Behind the last copy, timed.
    copied: Event,
}

// SAFETY: the memory is this value's own, and copies are waited for before it is touched.
unsafe impl<T: Plain> Send for Staging<T> {}
// SAFETY: as above; through a shared reference nothing is written.
unsafe impl<T: Plain> Sync for Staging<T> {}

impl<T: Plain> Staging<T> {
    /// Room for `len` values, all zero at first.
    ///
    /// # Errors
    /// If the driver can't pin so much memory.
    pub fn new(gpu: &Arc<Gpu>, len: usize) -> Result<Self, CudaError> {
        let copied = Event::new(gpu, true)?;
        let bytes = super::size(&[len, size_of::<T>()]);
        let mut pointer = std::ptr::null_mut();
        if bytes > 0 {
            let _entered = gpu.enter()?;
            // SAFETY: a context is current; what was allocated is set before anybody sees it.
            match unsafe { sys::cuMemAllocHost_v2(&mut pointer, bytes) } {
                CUresult::CUDA_ERROR_OUT_OF_MEMORY => return Err(CudaError::NoHostMemory { bytes }),
                result => check("cuMemAllocHost_v2", result)?,
            }
            // SAFETY: there are so many bytes.
            unsafe { pointer.write_bytes(0, bytes) };
        }
        Ok(Self { gpu: gpu.clone(), pointer: pointer.cast(), len, copied })
    }

    /// Values there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The mark behind the last copy, which is timed.
    pub fn copied(&self) -> &Event {
        &self.copied
    }

    /// The values, once the last copy is done.
    ///
    /// # Errors
    /// What went wrong in it or in anything queued before.
    pub fn read(&self) -> Result<&[T], CudaError> {
        self.copied.synchronize()?;
        if self.is_empty() {
            return Ok(&[]);
        }
        // SAFETY: so many values, and nobody writes to them: the copy is done, and a new one needs `&mut self`.
        Ok(unsafe { std::slice::from_raw_parts(self.pointer, self.len) })
    }

    /// The values to be written, once the last copy is done.
    ///
    /// # Errors
    /// What went wrong in it or in anything queued before.
    pub fn write(&mut self) -> Result<&mut [T], CudaError> {
        self.copied.synchronize()?;
        if self.is_empty() {
            return Ok(&mut []);
        }
        // SAFETY: so many values, and nobody else uses them: the copy is done, and a new one needs `&mut self`.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.pointer, self.len) })
    }

    /// Queues a copy of all values to the device.
    ///
    /// # Errors
    /// What the driver says.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn upload(&mut self, stream: &Stream, to: SliceMut<'_, T>) -> Result<(), CudaError> {
        assert_eq!(self.len, to.len(), "upload");
        if !self.is_empty() {
            let _entered = self.gpu.enter()?;
            let bytes = self.len * size_of::<T>();
            // SAFETY: both have so many bytes, and ours stay until the event behind the copy has passed.
            unsafe { call!(cuMemcpyHtoDAsync_v2(to.at(stream), self.pointer.cast(), bytes, stream.raw))? };
        }
        self.mark(stream)
    }

    /// Queues a copy of so many values from the device.
    ///
    /// # Errors
    /// What the driver says.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn download(&mut self, stream: &Stream, from: Slice<'_, T>) -> Result<(), CudaError> {
        assert_eq!(self.len, from.len(), "download");
        if !self.is_empty() {
            let _entered = self.gpu.enter()?;
            let bytes = self.len * size_of::<T>();
            // SAFETY: both have so many bytes, and ours stay until the event behind the copy has passed.
            unsafe { call!(cuMemcpyDtoHAsync_v2(self.pointer.cast(), from.at(stream), bytes, stream.raw))? };
        }
        self.mark(stream)
    }

    /// The event goes behind the copy. Where it can't, the copy is waited for: nobody could tell later when it's done.
    fn mark(&self, stream: &Stream) -> Result<(), CudaError> {
        self.copied.record(stream).inspect_err(|_| {
            let _ = stream.synchronize();
        })
    }
}

impl<T: Plain> Drop for Staging<T> {
    fn drop(&mut self) {
        let _ = self.copied.synchronize();
        if !self.pointer.is_null() {
            // Even where that fails: the driver knows whose memory it is.
            let _entered = self.gpu.enter();
            // SAFETY: it was allocated once, and no copy uses it. Nothing can be done about a failure.
            let _ = unsafe { call!(cuMemFreeHost(self.pointer.cast())) };
        }
    }
}
