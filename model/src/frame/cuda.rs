//! Frames in the memory of an NVIDIA GPU, where others put them.

use sapiens_kernels::cuda::foreign::{ContextId, ForeignPlane, ForeignStream};

use super::FrameInfo;
use crate::error::{ErrorKind, Result, SegmentError};

/// A frame in a GPU's memory: planes whose sizes have been checked.
#[derive(Debug)]
pub struct CudaFrame {
    info: FrameInfo,
    planes: Vec<ForeignPlane>,
    written_in: ForeignStream,
}

impl CudaFrame {
    /// Puts planes and their meaning together. What is queued in the stream `written_in` by the time an engine gets the frame
    /// is done before the engine touches it.
    ///
    /// # Errors
    /// `InvalidFrame`, as for [`FrameView::new`](super::FrameView::new), or if planes are in different contexts.
    pub fn new(info: FrameInfo, planes: Vec<ForeignPlane>, written_in: ForeignStream) -> Result<Self> {
        info.check(planes.iter().map(|plane| (plane.len(), plane.stride())))?;
        if planes.windows(2).any(|pair| pair[0].context() != pair[1].context()) {
            return Err(SegmentError::new(
                ErrorKind::InvalidFrame,
                format!("the planes of a {} frame are in different CUDA contexts: expected one", info.format),
            ));
        }
        Ok(Self { info, planes, written_in })
    }

    /// Format, size and colorimetry.
    pub fn info(&self) -> FrameInfo {
        self.info
    }

    pub(crate) fn planes(&self) -> &[ForeignPlane] {
        &self.planes
    }

    pub(crate) fn planes_mut(&mut self) -> &mut [ForeignPlane] {
        &mut self.planes
    }

    pub(crate) fn written_in(&self) -> ForeignStream {
        self.written_in
    }

    /// Whether it is in the memory of this context.
    ///
    /// # Errors
    /// `InvalidFrame` if not.
    pub(crate) fn check_context(&self, expected: ContextId) -> Result<()> {
        if self.planes.iter().all(|plane| plane.context() == expected) {
            return Ok(());
        }
        Err(SegmentError::new(
            ErrorKind::InvalidFrame,
            format!("a {} frame is in another CUDA context than the network", self.info.format),
        ))
    }
}
