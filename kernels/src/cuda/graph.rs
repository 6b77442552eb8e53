//! Work that is queued again and again, as one.

use std::sync::Arc;

use cudarc::driver::sys::{CUgraph, CUgraphExec, CUstreamCaptureMode};

use super::driver::call;
use super::{CudaError, Gpu, Stream};

/// Kernels and copies within the device, with their arguments, that the driver has made one launch of.
#[derive(Debug)]
pub struct Graph {
    gpu: Arc<Gpu>,
    raw: CUgraphExec,
}

// SAFETY: a graph may be launched from any thread.
unsafe impl Send for Graph {}
// SAFETY: launches take a lock of the driver's.
unsafe impl Sync for Graph {}

impl Graph {
    /// Makes a graph of what `work` queues in the stream, none of which is done now. Nothing else may be queued in this stream
    /// meanwhile.
    ///
    /// # Errors
    /// What `work` or the driver says.
    pub fn capture<E: From<CudaError>>(
        stream: &Stream,
        work: impl FnOnce() -> Result<(), E>,
    ) -> Result<Self, E> {
        let gpu = stream.gpu();
        {
            let _entered = gpu.enter()?;
            // Other threads, and the driver by itself, go on with what they do, allocating too.
            let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
            // SAFETY: the stream lives.
            unsafe { call!(cuStreamBeginCapture_v2(stream.raw, mode)) }?;
        }
        let capturing = Capturing(stream);
        let worked = work();
        let (captured, ended) = capturing.end();
        worked?;
        ended?;
        let _entered = gpu.enter()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the graph is whole.
        unsafe { call!(cuGraphInstantiateWithFlags(&mut raw, captured.1, 0)) }?;
        Ok(Self { gpu: gpu.clone(), raw })
    }

    /// Queues all of it.
    ///
    /// # Errors
    /// What the driver says.
    ///
    /// # Safety
    /// All memory that the captured work reads and writes must still be there.
    pub unsafe fn launch(&self, stream: &Stream) -> Result<(), CudaError> {
        let _entered = self.gpu.enter()?;
        // SAFETY: both live; the memory is the caller's promise.
        unsafe { call!(cuGraphLaunch(self.raw, stream.raw)) }
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // Even where that fails: the driver knows whose graph it is.
        let _entered = self.gpu.enter();
        // SAFETY: it was made once. Nothing can be done about a failure.
        let _ = unsafe { call!(cuGraphExecDestroy(self.raw)) };
    }
}

/// A stream whose work is captured. That has to be ended even if the work fails or panics.
struct Capturing<'a>(&'a Stream);

impl Capturing<'_> {
    fn end(self) -> (Captured, Result<(), CudaError>) {
        let ended = end_capture(self.0);
        std::mem::forget(self);
        ended
    }
}

impl Drop for Capturing<'_> {
    fn drop(&mut self) {
        let _ = end_capture(self.0);
    }
}

fn end_capture(stream: &Stream) -> (Captured, Result<(), CudaError>) {
    let mut captured = Captured(stream.gpu().clone(), std::ptr::null_mut());
    // Even where that fails: the driver knows whose stream it is.
    let _entered = stream.gpu().enter();
    // SAFETY: a capture was begun.
    let ended = unsafe { call!(cuStreamEndCapture(stream.raw, &mut captured.1)) };
    (captured, ended)
}

/// A graph that can't be launched as it is.
struct Captured(Arc<Gpu>, CUgraph);

impl Drop for Captured {
    fn drop(&mut self) {
        if !self.1.is_null() {
            let _entered = self.0.enter();
            // SAFETY: the capture gave it, and nobody else has it. Nothing can be done about a failure.
            let _ = unsafe { call!(cuGraphDestroy(self.1)) };
        }
    }
}
