//! A context on a GPU that elements share.

use std::ffi::c_int;

use glib::prelude::*;
use glib::translate::{ToGlibPtr, from_glib_full, from_glib_none};
use sapiens_model::cuda::{Context, ContextId};

use super::library::{CudaLibrary, RawContext};

/// What such contexts are called in GStreamer's queries and messages.
pub(crate) const CONTEXT_TYPE: &str = "gst.cuda.context";

/// A `GstCudaContext`: a context of the driver's that lives as long as anybody holds this.
#[derive(Debug, Clone)]
pub(crate) struct CudaContext {
    library: &'static CudaLibrary,
    object: gst::Object,
}

impl PartialEq for CudaContext {
    fn eq(&self, other: &Self) -> bool {
        self.object == other.object
    }
}

impl CudaContext {
    /// A new one on the device of this number; none if the driver has none to give.
    pub(crate) fn new(library: &'static CudaLibrary, device: u32) -> Option<Self> {
        // SAFETY: a new reference, or null.
        unsafe { Self::from_full(library, library.context_new(device)) }
    }

    /// What an application or another element shares, if it is one on this device.
    pub(crate) fn shared(
        library: &'static CudaLibrary,
        element: &gst::Element,
        context: &gst::Context,
        device: u32,
    ) -> Option<Self> {
        let device = c_int::try_from(device).ok()?;
        let (element, context): (*mut gst::ffi::GstElement, *mut gst::ffi::GstContext) =
            (element.to_glib_none().0, context.to_glib_none().0);
        // SAFETY: both are valid, and what comes back is a new reference, or null.
        unsafe { Self::from_full(library, library.handle_set_context(element, context, device)) }
    }

    /// Takes a reference over.
    ///
    /// # Safety
    /// `raw` must be null or a reference to a context.
    unsafe fn from_full(library: &'static CudaLibrary, raw: *mut RawContext) -> Option<Self> {
        if raw.is_null() {
            return None;
        }
        // SAFETY: the caller's promise; such contexts are objects of GStreamer's.
        let object = unsafe { from_glib_full(raw.cast::<gst::ffi::GstObject>()) };
        Some(Self { library, object })
    }

    /// Takes a reference of its own.
    ///
    /// # Safety
    /// `raw` must be null or a context.
    pub(super) unsafe fn from_none(library: &'static CudaLibrary, raw: *mut RawContext) -> Option<Self> {
        if raw.is_null() {
            return None;
        }
        // SAFETY: the caller's promise; such contexts are objects of GStreamer's.
        let object = unsafe { from_glib_none(raw.cast::<gst::ffi::GstObject>()) };
        Some(Self { library, object })
    }

    pub(super) fn raw(&self) -> *mut RawContext {
        let raw: *mut gst::ffi::GstObject = self.object.to_glib_none().0;
        raw.cast()
    }

    /// As GStreamer's elements and applications hand it around.
    pub(crate) fn to_share(&self) -> gst::Context {
        // SAFETY: what comes back is a new reference.
        unsafe { from_glib_full(self.library.context_new_cuda_context(self.raw())) }
    }

    /// Answers a query for a context; whether it was one for this kind.
    pub(crate) fn answer(&self, element: &gst::Element, query: &mut gst::query::Context) -> bool {
        let element: *mut gst::ffi::GstElement = element.to_glib_none().0;
        // SAFETY: all are valid, and nobody else has the query.
        unsafe { self.library.handle_context_query(element, query.as_mut_ptr(), self.raw()) }
    }

    /// The number of its device.
    pub(crate) fn device(&self) -> u32 {
        self.object.property("cuda-device-id")
    }

    /// As the library of networks knows it.
    pub(crate) fn to_model(&self) -> Context {
        // SAFETY: it is one of this library's.
        let handle = unsafe { self.library.context_get_handle(self.raw()) };
        // SAFETY: the driver's context is there as long as this object.
        unsafe { Context::new(handle, Box::new(self.clone())) }
    }

    /// Which of the driver's contexts it is.
    pub(crate) fn id(&self) -> ContextId {
        self.to_model().id()
    }

    pub(super) fn library(&self) -> &'static CudaLibrary {
        self.library
    }
}
