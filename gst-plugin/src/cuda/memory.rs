//! Frames where they lie: mapped for the device, checked, and never copied.

use std::fmt;
use std::mem::MaybeUninit;

use gst::ffi::{GstMapInfo, GstMemory};
use gst_video::ffi::GstVideoInfo;
use gst_video::{VideoFormat, VideoInfo};
use sapiens_model::cuda::{ContextId, CudaFrame, ForeignPlane, ForeignStream};
use sapiens_model::{ErrorKind, Frame, FrameInfo, Pixels, SegmentError};

use super::context::CudaContext;
use super::library::{CudaLibrary, RawContext};
use crate::formats::{Lay, checked_planes, lay_of_meta};

/// Asks for the address on the device, where there would be one of a copy in the machine's memory.
const MAP_CUDA: u32 = gst::ffi::GST_MAP_FLAG_LAST << 1;

/// The public head of a `GstCudaMemory`, the same since GStreamer 1.22.
#[repr(C)]
struct RawMemory {
    memory: GstMemory,
    context: *mut RawContext,
    info: GstVideoInfo,
}

/// A buffer's only memory.
fn memory_of(buffer: &gst::BufferRef, library: &CudaLibrary) -> Result<*mut RawMemory, SegmentError> {
    let invalid = |what: String| {
        Err(SegmentError::new(ErrorKind::InvalidFrame, format!("a buffer with caps of CUDA memory {what}")))
    };
    if buffer.n_memory() != 1 {
        return invalid(format!("has {} memories: expected one", buffer.n_memory()));
    }
    let memory = buffer.peek_memory(0).as_ptr().cast_mut();
    // SAFETY: the buffer's memory is valid.
    if !unsafe { library.is_cuda_memory(memory) } {
        return invalid("is in the machine's memory".to_owned());
    }
    Ok(memory.cast())
}

/// The context that a buffer's memory is in.
///
/// # Errors
/// `InvalidFrame` if it isn't in a GPU's memory.
pub(crate) fn context_of(
    buffer: &gst::BufferRef,
    library: &'static CudaLibrary,
) -> Result<CudaContext, SegmentError> {
    let memory = memory_of(buffer, library)?;
    // SAFETY: it is CUDA memory, so that it begins like this, and the context is there as long as it is.
    let context = unsafe { CudaContext::from_none(library, (*memory).context) };
    context
        .ok_or_else(|| SegmentError::new(ErrorKind::InvalidFrame, "a buffer of CUDA memory has no context"))
}

/// What is done with a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// It is read.
    Read,
    /// It is written over.
    Write,
}

/// A buffer in a GPU's memory, mapped where it lies. An engine holds it while it reads.
pub(crate) struct MappedCuda {
    frame: CudaFrame,
    map: GstMapInfo,
    buffer: gst::Buffer,
}

// SAFETY: a mapping has no thread that it belongs to; the pointers in it are the buffer's, which is there as long.
unsafe impl Send for MappedCuda {}

impl MappedCuda {
    /// Maps `buffer`, whose caps are `video_info`. One to write must be nobody else's.
    ///
    /// # Errors
    /// `InvalidFrame` if it isn't in a GPU's memory, or its planes aren't in it.
    pub(crate) fn new(
        buffer: gst::Buffer,
        library: &'static CudaLibrary,
        video_info: &VideoInfo,
        info: FrameInfo,
        access: Access,
    ) -> Result<Self, SegmentError> {
        let memory = memory_of(&buffer, library)?;
        let context = context_of(&buffer, library)?;
        let lay = match lay_of_meta(&buffer, video_info.format(), info)? {
            Some(lay) => lay,
            None => lay_of_memory(memory, video_info.format(), info)?,
        };
        let flags = MAP_CUDA
            | match access {
                Access::Read => gst::ffi::GST_MAP_READ,
                Access::Write => gst::ffi::GST_MAP_WRITE,
            };
        let mut map = MaybeUninit::uninit();
        // SAFETY: the buffer's memory is valid, and the map is written if the call succeeds.
        let mapped = unsafe { gst::ffi::gst_memory_map(memory.cast(), map.as_mut_ptr(), flags) };
        if mapped == glib::ffi::GFALSE {
            return Err(SegmentError::new(
                ErrorKind::InvalidFrame,
                format!(
                    "a {} x {} {} frame in CUDA memory can't be mapped",
                    info.width, info.height, info.format
                ),
            ));
        }
        // SAFETY: the call succeeded.
        let mut map = unsafe { map.assume_init() };
        // SAFETY: it is CUDA memory.
        let stream = unsafe { library.stream_of(memory.cast()) };
        // SAFETY: the memory holds its stream, the buffer its memory, and whoever waits for the stream this value.
        let stream = unsafe { ForeignStream::new(stream) };
        match frame(&map, context.id(), &lay, info, stream) {
            Ok(frame) => Ok(Self { frame, map, buffer }),
            Err(error) => {
                // SAFETY: it was mapped just now.
                unsafe { gst::ffi::gst_memory_unmap(map.memory, &raw mut map) };
                Err(error)
            }
        }
    }

    pub(crate) fn frame(&self) -> &CudaFrame {
        &self.frame
    }

    pub(crate) fn frame_mut(&mut self) -> &mut CudaFrame {
        &mut self.frame
    }

    /// The buffer, no longer mapped.
    pub(crate) fn into_buffer(self) -> gst::Buffer {
        self.buffer.clone()
    }
}

impl Drop for MappedCuda {
    fn drop(&mut self) {
        // SAFETY: it was mapped when this was made, and nobody uses the planes any more.
        unsafe { gst::ffi::gst_memory_unmap(self.map.memory, &raw mut self.map) };
    }
}

impl Frame for MappedCuda {
    fn pixels(&self) -> Pixels<'_> {
        Pixels::Cuda(&self.frame)
    }
}

impl fmt::Debug for MappedCuda {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MappedCuda").field("frame", &self.frame).field("buffer", &self.buffer).finish()
    }
}

/// How planes lie by the memory itself, where no meta says so: rows are further apart than caps alone mean.
fn lay_of_memory(
    memory: *const RawMemory,
    format: VideoFormat,
    info: FrameInfo,
) -> Result<Lay, SegmentError> {
    // SAFETY: it is CUDA memory, so that it begins like this, and whoever made it filled the head.
    let own = unsafe { &(*memory).info };
    // SAFETY: a format's description is there for good.
    let found = unsafe { own.finfo.as_ref() }.map(|finfo| finfo.format);
    let same_format = found.is_some_and(|found| {
        // SAFETY: every number is a format, known or not.
        let found: VideoFormat = unsafe { glib::translate::from_glib(found) };
        found == format
    });
    let size = (usize::try_from(own.width).ok(), usize::try_from(own.height).ok());
    if !same_format || size != (Some(info.width), Some(info.height)) {
        return Err(SegmentError::new(
            ErrorKind::InvalidFrame,
            format!(
                "CUDA memory of another format or size ({} x {}) than its caps, {} of {} x {}, has no video meta",
                own.width, own.height, info.format, info.width, info.height
            ),
        ));
    }
    let planes = info.format.planes();
    Ok(Lay { offsets: own.offset[..planes].to_vec(), strides: own.stride[..planes].to_vec() })
}

/// The frame in mapped memory.
fn frame(
    map: &GstMapInfo,
    context: ContextId,
    lay: &Lay,
    info: FrameInfo,
    written_in: ForeignStream,
) -> Result<CudaFrame, SegmentError> {
    let planes = checked_planes(lay, map.size, info)?;
    let address = map.data.addr() as u64;
    let planes = planes.into_iter().map(|plane| {
        // SAFETY: the plane's end was checked against the memory's; who maps for writing is alone with it, by GStreamer's
        // rules for mapping and by the caller's promise.
        unsafe { ForeignPlane::new(context, address + plane.offset as u64, plane.len, plane.stride) }
    });
    CudaFrame::new(info, planes.collect(), written_in)
}
