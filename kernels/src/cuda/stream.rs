//! Queues of work on a device, and marks in them.

use std::ffi::c_void;
use std::sync::Arc;

use cudarc::driver::sys::{
    self, CUDA_MEMCPY2D, CUevent, CUevent_flags, CUmemorytype, CUresult, CUstream, CUstream_flags,
};

use super::driver::{call, check};
use super::foreign::ForeignStream;
use super::frame::{Plane, PlaneMut};
use super::memory::Plain;
use super::modules::Function;
use super::{CudaError, Gpu, Slice, SliceMut};

/// A queue of work that is done in order, beside that of other streams. Dropping it waits until it is empty.
#[derive(Debug)]
pub struct Stream {
    gpu: Arc<Gpu>,
    pub(super) raw: CUstream,
}

// SAFETY: a stream may be used from any thread.
unsafe impl Send for Stream {}
// SAFETY: the driver's functions lock for themselves.
unsafe impl Sync for Stream {}

impl Stream {
    /// A stream that waits for no other.
    ///
    /// # Errors
    /// What the driver says.
    pub fn new(gpu: &Arc<Gpu>) -> Result<Self, CudaError> {
        let _entered = gpu.enter()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: a context is current.
        unsafe { call!(cuStreamCreate(&mut raw, CUstream_flags::CU_STREAM_NON_BLOCKING as u32))? };
        Ok(Self { gpu: gpu.clone(), raw })
    }

    /// The device it works on.
    pub fn gpu(&self) -> &Arc<Gpu> {
        &self.gpu
    }

    /// Waits until all that was queued is done.
    ///
    /// # Errors
    /// What went wrong in any of it.
    pub fn synchronize(&self) -> Result<(), CudaError> {
        let _entered = self.gpu.enter()?;
        // SAFETY: the stream lives.
        unsafe { call!(cuStreamSynchronize(self.raw)) }
    }

    /// Lets what is queued from now on wait for a mark in another stream.
    ///
    /// # Errors
    /// What the driver says.
    pub fn wait(&self, event: &Event) -> Result<(), CudaError> {
        let _entered = self.gpu.enter()?;
        // SAFETY: both live.
        unsafe { call!(cuStreamWaitEvent(self.raw, event.raw, 0)) }
    }

    /// Lets what is queued from now on wait for all that is queued in somebody else's stream now. The event marks it there.
    ///
    /// # Errors
    /// What the driver says.
    pub fn wait_for_foreign(&self, other: ForeignStream, event: &Event) -> Result<(), CudaError> {
        {
            let _entered = self.gpu.enter()?;
            // SAFETY: whoever made it a `ForeignStream` promised that it lives.
            unsafe { call!(cuEventRecord(event.raw, other.raw()))? };
        }
        self.wait(event)
    }

    /// Copies rows of bytes within the device.
    ///
    /// # Errors
    /// What the driver says.
    ///
    /// # Panics
    /// If a plane has fewer.
    pub fn copy_rows(
        &self,
        from: Plane<'_>,
        to: PlaneMut<'_>,
        (row_bytes, rows): (usize, usize),
    ) -> Result<(), CudaError> {
        if row_bytes == 0 || rows == 0 {
            return Ok(());
        }
        for (len, stride) in [(from.bytes.len(), from.stride), (to.bytes.len(), to.stride)] {
            let fits = stride >= row_bytes && len >= super::size(&[rows - 1, stride]) + row_bytes;
            assert!(fits, "copy: {len} bytes, {stride} a row, hold no {rows} rows of {row_bytes}");
        }
        let copy = CUDA_MEMCPY2D {
            srcMemoryType: CUmemorytype::CU_MEMORYTYPE_DEVICE,
            srcDevice: from.bytes.at(self),
            srcPitch: from.stride,
            dstMemoryType: CUmemorytype::CU_MEMORYTYPE_DEVICE,
            dstDevice: to.bytes.at(self),
            dstPitch: to.stride,
            WidthInBytes: row_bytes,
            Height: rows,
            srcXInBytes: 0,
            srcY: 0,
            srcHost: std::ptr::null(),
            srcArray: std::ptr::null_mut(),
            dstXInBytes: 0,
            dstY: 0,
            dstHost: std::ptr::null_mut(),
            dstArray: std::ptr::null_mut(),
        };
        let _entered = self.gpu.enter()?;
        // SAFETY: both were measured above.
        unsafe { call!(cuMemcpy2DAsync_v2(&copy, self.raw)) }
    }

    /// Copies to the device and waits for it.
    ///
    /// # Errors
    /// What went wrong in it or in anything queued before.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn upload<T: Plain>(&self, from: &[T], to: SliceMut<'_, T>) -> Result<(), CudaError> {
        assert_eq!(from.len(), to.len(), "upload");
        if from.is_empty() {
            return Ok(());
        }
        {
            let _entered = self.gpu.enter()?;
            // SAFETY: both have so many bytes, and `from` is there until the copy is done.
            unsafe {
                call!(cuMemcpyHtoDAsync_v2(to.at(self), from.as_ptr().cast(), size_of_val(from), self.raw))?;
            }
        }
        self.synchronize()
    }

    /// Copies from the device and waits for it.
    ///
    /// # Errors
    /// What went wrong in it or in anything queued before.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn download<T: Plain>(&self, from: Slice<'_, T>, to: &mut [T]) -> Result<(), CudaError> {
        assert_eq!(from.len(), to.len(), "download");
        if !to.is_empty() {
            let _entered = self.gpu.enter()?;
            // SAFETY: both have so many bytes, and nobody sees `to` before it is written.
            unsafe {
                call!(cuMemcpyDtoHAsync_v2(to.as_mut_ptr().cast(), from.at(self), size_of_val(to), self.raw))?
            };
        }
        self.synchronize()
    }

    /// Copies within the device.
    ///
    /// # Errors
    /// What the driver says.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn copy<T: Plain>(&self, from: Slice<'_, T>, to: SliceMut<'_, T>) -> Result<(), CudaError> {
        assert_eq!(from.len(), to.len(), "copy");
        if from.is_empty() {
            return Ok(());
        }
        let _entered = self.gpu.enter()?;
        // SAFETY: both have so many bytes.
        unsafe {
            call!(cuMemcpyDtoDAsync_v2(to.at(self), from.at(self), from.len() * size_of::<T>(), self.raw))
        }
    }

    /// Sets every byte.
    ///
    /// # Errors
    /// What the driver says.
    pub fn fill<T: Plain>(&self, to: SliceMut<'_, T>, byte: u8) -> Result<(), CudaError> {
        if to.is_empty() {
            return Ok(());
        }
        let _entered = self.gpu.enter()?;
        // SAFETY: it has so many bytes.
        unsafe { call!(cuMemsetD8Async(to.at(self), byte, to.len() * size_of::<T>(), self.raw)) }
    }

    /// Queues a kernel.
    ///
    /// # Safety
    /// `arguments` must be what the kernel takes, with addresses of memory that is large enough for all that the kernel
    /// reads and writes.
    pub(super) unsafe fn launch<A: Copy>(
        &self,
        function: &Function,
        grid: [u32; 3],
        arguments: &A,
    ) -> Result<(), CudaError> {
        assert_eq!(function.gpu.context(), self.gpu.context(), "a kernel of one GPU, work on another");
        if grid.contains(&0) {
            return Ok(());
        }
        let _entered = self.gpu.enter()?;
        let mut pointers: [*mut c_void; 1] = [(&raw const *arguments).cast_mut().cast()];
        let ([x, y, z], none) = (grid, std::ptr::null_mut());
        // SAFETY: the driver copies the arguments before it returns; the rest is the caller's promise.
        unsafe {
            call!(cuLaunchKernel(
                function.raw,
                x,
                y,
                z,
                function.threads,
                1,
                1,
                function.shared_memory,
                self.raw,
                pointers.as_mut_ptr(),
                none
            ))
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // Memory that its work uses may be freed as soon as it is gone.
        let _ = self.synchronize();
        // Even where that fails: the driver knows whose stream it is.
        let _entered = self.gpu.enter();
        // SAFETY: it was created once. Nothing can be done about a failure.
        let _ = unsafe { call!(cuStreamDestroy_v2(self.raw)) };
    }
}

/// A mark in a stream.
#[derive(Debug)]
pub struct Event {
    gpu: Arc<Gpu>,
    raw: CUevent,
}

// SAFETY: an event may be used from any thread.
unsafe impl Send for Event {}
// SAFETY: the driver's functions lock for themselves.
unsafe impl Sync for Event {}

impl Event {
    /// An event that isn't in any stream yet. Only one that is `timed` knows when it was passed. Who waits for it sleeps.
    ///
    /// # Errors
    /// What the driver says.
    pub fn new(gpu: &Arc<Gpu>, timed: bool) -> Result<Self, CudaError> {
        let _entered = gpu.enter()?;
        let timing =
            if timed { CUevent_flags::CU_EVENT_DEFAULT } else { CUevent_flags::CU_EVENT_DISABLE_TIMING };
        let flags = timing as u32 | CUevent_flags::CU_EVENT_BLOCKING_SYNC as u32;
        let mut raw = std::ptr::null_mut();
        // SAFETY: a context is current.
        unsafe { call!(cuEventCreate(&mut raw, flags))? };
        Ok(Self { gpu: gpu.clone(), raw })
    }

    /// Puts it behind all that is queued in a stream, away from where it was.
    ///
    /// # Errors
    /// What the driver says.
    pub fn record(&self, stream: &Stream) -> Result<(), CudaError> {
        let _entered = self.gpu.enter()?;
        // SAFETY: both live.
        unsafe { call!(cuEventRecord(self.raw, stream.raw)) }
    }

    /// Waits until the stream has passed it.
    ///
    /// # Errors
    /// What went wrong before it.
    pub fn synchronize(&self) -> Result<(), CudaError> {
        let _entered = self.gpu.enter()?;
        // SAFETY: it lives.
        unsafe { call!(cuEventSynchronize(self.raw)) }
    }

    /// Whether the stream has passed it.
    ///
    /// # Errors
    /// What went wrong before it.
    pub fn is_passed(&self) -> Result<bool, CudaError> {
        let _entered = self.gpu.enter()?;
        // SAFETY: it lives.
        match unsafe { sys::cuEventQuery(self.raw) } {
            CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            result => check("cuEventQuery", result).map(|()| true),
        }
    }

    /// Milliseconds from an earlier event to this one; both timed and passed.
    ///
    /// # Errors
    /// What the driver says.
    pub fn milliseconds_since(&self, earlier: &Event) -> Result<f32, CudaError> {
        let _entered = self.gpu.enter()?;
        let mut time = 0.0;
        // SAFETY: both live.
        unsafe { call!(cuEventElapsedTime(&mut time, earlier.raw, self.raw))? };
        Ok(time)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // Even where that fails: the driver knows whose event it is.
        let _entered = self.gpu.enter();
        // SAFETY: it was created once. Nothing can be done about a failure.
        let _ = unsafe { call!(cuEventDestroy_v2(self.raw)) };
    }
}
