//! What others made with the driver: their contexts, streams and frames, to be worked in and on beside our own.

use std::any::Any;
use std::ffi::c_void;
use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};

use cudarc::driver::sys::{CUcontext, CUstream};

use super::frame::{Plane, PlaneMut};
use super::{Slice, SliceMut};

/// A context that somebody else made, kept alive.
pub struct Context {
    raw: CUcontext,
    /// Held for as long as the context is used.
    _owner: Box<dyn Any + Send + Sync>,
}

// SAFETY: a context may be used from any thread.
unsafe impl Send for Context {}
// SAFETY: as above; the driver's functions lock for themselves.
unsafe impl Sync for Context {}

// Nothing is seen of the owner but that it is dropped.
impl UnwindSafe for Context {}
impl RefUnwindSafe for Context {}

impl Context {
    /// A `CUcontext` that lives as long as `owner`.
    ///
    /// # Safety
    /// It must be one of the driver's, and live that long.
    pub unsafe fn new(raw: *mut c_void, owner: Box<dyn Any + Send + Sync>) -> Self {
        Self { raw: raw.cast(), _owner: owner }
    }

    /// Which one it is.
    pub fn id(&self) -> ContextId {
        ContextId(self.raw.addr())
    }

    pub(super) fn raw(&self) -> CUcontext {
        self.raw
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("raw", &self.raw).finish_non_exhaustive()
    }
}

/// Tells contexts apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ContextId(pub(super) usize);

impl ContextId {
    /// A number that no other context has meanwhile.
    pub fn number(self) -> usize {
        self.0
    }
}

/// Somebody else's stream.
#[derive(Debug, Clone, Copy)]
pub struct ForeignStream(CUstream);

// SAFETY: a stream may be used from any thread.
unsafe impl Send for ForeignStream {}
// SAFETY: as above; the driver's functions lock for themselves.
unsafe impl Sync for ForeignStream {}

impl ForeignStream {
    /// The context's default stream, which waits for all streams that others make in the usual way.
    pub const DEFAULT: Self = Self(std::ptr::null_mut());

    /// A `CUstream` of the same context as what is written in it.
    ///
    /// # Safety
    /// It must be one of the driver's, and live as long as anybody waits for it.
    pub unsafe fn new(raw: *mut c_void) -> Self {
        Self(raw.cast())
    }

    pub(super) fn raw(self) -> CUstream {
        self.0
    }
}

/// A plane of a frame in the device's memory that isn't ours.
#[derive(Debug)]
pub struct ForeignPlane {
    address: u64,
    context: ContextId,
    len: usize,
    stride: usize,
}

impl ForeignPlane {
    /// Rows of bytes, `stride` apart, `len` bytes from the first to the last of all.
    ///
    /// # Safety
    /// They must be there, in the memory of this context, and live as long as this value. While somebody reads a
    /// [`plane`](Self::plane), nobody may write to them; [`plane_mut`](Self::plane_mut) is only for those that nobody else uses.
    pub unsafe fn new(context: ContextId, address: u64, len: usize, stride: usize) -> Self {
        Self { address, context, len, stride }
    }

    /// Whose memory it is.
    pub fn context(&self) -> ContextId {
        self.context
    }

    /// Bytes from the first to the last.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes from one row's start to the next.
    pub fn stride(&self) -> usize {
        self.stride
    }

    /// To read.
    pub fn plane(&self) -> Plane<'_> {
        // SAFETY: whoever made it promised that.
        let bytes = unsafe { Slice::at_address(self.address, self.context.0, self.len) };
        Plane { bytes, stride: self.stride }
    }

    /// To write.
    pub fn plane_mut(&mut self) -> PlaneMut<'_> {
        // SAFETY: whoever made it promised that.
        let bytes = unsafe { SliceMut::at_address(self.address, self.context.0, self.len) };
        PlaneMut { bytes, stride: self.stride }
    }
}
