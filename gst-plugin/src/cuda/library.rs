//! GStreamer's library for CUDA, looked up at run time: where it isn't, or finds no driver, the element does without.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::OnceLock;

use glib::ffi::{GType, gboolean};
use gst::ffi::{GstBufferPool, GstContext, GstElement, GstMemory, GstQuery};
use libloading::Library;

const NAME: &str = if cfg!(windows) { "gstcuda-1.0-0.dll" } else { "libgstcuda-1.0.so.0" };

/// A `GstCudaContext`, which is a `GstObject`.
#[repr(C)]
pub(super) struct RawContext([u8; 0]);

/// A `GstCudaStream`.
#[repr(C)]
pub(super) struct RawStream([u8; 0]);

macro_rules! functions {
    ($($name:ident = $symbol:literal: fn($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// What we call of it, all there since GStreamer 1.22.
        struct Functions {
            $($name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl Functions {
            fn look_up(library: &'static Library) -> Result<Self, String> {
                Ok(Self { $($name: {
                    // SAFETY: the function has this type in the library's headers of every version that has this name.
                    let found = unsafe { library.get($symbol) };
                    *found.map_err(|error| format!("{NAME} lacks a function: {error}"))?
                },)* })
            }
        }
    };
}

functions! {
    load_library = b"gst_cuda_load_library\0": fn() -> gboolean;
    memory_init_once = b"gst_cuda_memory_init_once\0": fn();
    context_new = b"gst_cuda_context_new\0": fn(c_uint) -> *mut RawContext;
    context_get_handle = b"gst_cuda_context_get_handle\0": fn(*mut RawContext) -> *mut c_void;
    context_new_cuda_context = b"gst_context_new_cuda_context\0": fn(*mut RawContext) -> *mut GstContext;
    handle_set_context = b"gst_cuda_handle_set_context\0":
        fn(*mut GstElement, *mut GstContext, c_int, *mut *mut RawContext) -> gboolean;
    handle_context_query = b"gst_cuda_handle_context_query\0":
        fn(*mut GstElement, *mut GstQuery, *mut RawContext) -> gboolean;
    is_cuda_memory = b"gst_is_cuda_memory\0": fn(*mut GstMemory) -> gboolean;
    buffer_pool_get_type = b"gst_cuda_buffer_pool_get_type\0": fn() -> GType;
    buffer_pool_new = b"gst_cuda_buffer_pool_new\0": fn(*mut RawContext) -> *mut GstBufferPool;
}

/// The streams that memory is written in, which it has since GStreamer 1.24.
#[derive(Clone, Copy)]
struct StreamFunctions {
    memory_get_stream: unsafe extern "C" fn(*mut GstMemory) -> *mut RawStream,
    stream_get_handle: unsafe extern "C" fn(*mut RawStream) -> *mut c_void,
}

impl StreamFunctions {
    fn look_up(library: &'static Library) -> Option<Self> {
        // SAFETY: the functions have these types in the library's headers of every version that has these names.
        unsafe {
            Some(Self {
                memory_get_stream: *library.get(b"gst_cuda_memory_get_stream\0").ok()?,
                stream_get_handle: *library.get(b"gst_cuda_stream_get_handle\0").ok()?,
            })
        }
    }
}

/// The library, open and with a driver. Its functions are called by what wraps their arguments.
pub(crate) struct CudaLibrary {
    functions: Functions,
    streams: Option<StreamFunctions>,
}

impl std::fmt::Debug for CudaLibrary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CudaLibrary").field("streams", &self.streams.is_some()).finish_non_exhaustive()
    }
}

impl CudaLibrary {
    /// The library, which is opened at the first call and stays: types that it registers can't go.
    ///
    /// # Errors
    /// What is missing, to be read by a user.
    pub(crate) fn get() -> Result<&'static Self, &'static str> {
        static LIBRARY: OnceLock<Result<CudaLibrary, String>> = OnceLock::new();
        LIBRARY.get_or_init(Self::open).as_ref().map_err(String::as_str)
    }

    fn open() -> Result<Self, String> {
        // SAFETY: one of GStreamer's libraries, which do nothing when they are opened.
        let library = unsafe { Library::new(NAME) };
        let library =
            library.map_err(|error| format!("GStreamer's library for CUDA can't be opened: {error}"))?;
        let library: &'static Library = Box::leak(Box::new(library));
        let functions = Functions::look_up(library)?;
        // SAFETY: it takes nothing.
        if unsafe { (functions.load_library)() } == glib::ffi::GFALSE {
            return Err(format!("{NAME} finds no NVIDIA driver"));
        }
        // SAFETY: it takes nothing. Without it there is no allocator.
        unsafe { (functions.memory_init_once)() };
        Ok(Self { functions, streams: StreamFunctions::look_up(library) })
    }

    /// A reference to a new context on a device; null if there can't be one.
    pub(super) fn context_new(&self, device: u32) -> *mut RawContext {
        // SAFETY: any number will do.
        unsafe { (self.functions.context_new)(device) }
    }

    /// The driver's context.
    ///
    /// # Safety
    /// `context` must be a context of this library.
    pub(super) unsafe fn context_get_handle(&self, context: *mut RawContext) -> *mut c_void {
        // SAFETY: the caller's promise.
        unsafe { (self.functions.context_get_handle)(context) }
    }

    /// A reference to a new `GstContext` that has it.
    ///
    /// # Safety
    /// `context` must be a context of this library.
    pub(super) unsafe fn context_new_cuda_context(&self, context: *mut RawContext) -> *mut GstContext {
        // SAFETY: the caller's promise.
        unsafe { (self.functions.context_new_cuda_context)(context) }
    }

    /// A reference to the context on `device` that a `GstContext` has; null if it has another, or none.
    ///
    /// # Safety
    /// The pointers must be valid.
    pub(super) unsafe fn handle_set_context(
        &self,
        element: *mut GstElement,
        context: *mut GstContext,
        device: c_int,
    ) -> *mut RawContext {
        let mut found = std::ptr::null_mut();
        // SAFETY: the caller's promise; whatever is found is written there with a reference.
        unsafe { (self.functions.handle_set_context)(element, context, device, &raw mut found) };
        found
    }

    /// Whether the query was for such a context, and has this one now.
    ///
    /// # Safety
    /// The pointers must be valid, the query one for a context and writable.
    pub(super) unsafe fn handle_context_query(
        &self,
        element: *mut GstElement,
        query: *mut GstQuery,
        context: *mut RawContext,
    ) -> bool {
        // SAFETY: the caller's promise.
        unsafe { (self.functions.handle_context_query)(element, query, context) != glib::ffi::GFALSE }
    }

    /// Whether memory is on a device, and a `GstCudaMemory`.
    ///
    /// # Safety
    /// `memory` must be valid.
    pub(super) unsafe fn is_cuda_memory(&self, memory: *mut GstMemory) -> bool {
        // SAFETY: the caller's promise.
        unsafe { (self.functions.is_cuda_memory)(memory) != glib::ffi::GFALSE }
    }

    /// The driver's stream that memory is written in; null for the default stream.
    ///
    /// # Safety
    /// `memory` must be a `GstCudaMemory`.
    pub(super) unsafe fn stream_of(&self, memory: *mut GstMemory) -> *mut c_void {
        let Some(StreamFunctions { memory_get_stream, stream_get_handle }) = self.streams else {
            return std::ptr::null_mut();
        };
        // SAFETY: the caller's promise; null is the default stream to the second too.
        unsafe { stream_get_handle(memory_get_stream(memory)) }
    }

    /// The type of pools whose buffers are on a device.
    pub(super) fn pool_type(&self) -> GType {
        // SAFETY: it takes nothing.
        unsafe { (self.functions.buffer_pool_get_type)() }
    }

    /// A reference to a new pool.
    ///
    /// # Safety
    /// `context` must be a context of this library.
    pub(super) unsafe fn pool_new(&self, context: *mut RawContext) -> *mut GstBufferPool {
        // SAFETY: the caller's promise.
        unsafe { (self.functions.buffer_pool_new)(context) }
    }
}
