//! Where frames in a GPU's memory come from that we make.

use glib::object::Cast;
use glib::prelude::*;
use glib::translate::{FromGlib, ToGlibPtr, from_glib_full};
use gst::prelude::*;
use gst_video::VideoInfo;
use sapiens_model::{ErrorKind, SegmentError};

use super::context::CudaContext;
use super::library::{CudaLibrary, RawContext};

/// The public head of a `GstCudaBufferPool`, the same since GStreamer 1.22.
#[repr(C)]
struct RawPool {
    pool: gst::ffi::GstBufferPool,
    context: *mut RawContext,
}

/// A pool that gives buffers of certain caps, and is emptied when this goes.
#[derive(Debug)]
pub(crate) struct CudaPool {
    pool: gst::BufferPool,
}

/// A pool on the device, not yet configured.
fn bare(context: &CudaContext) -> gst::BufferPool {
    // SAFETY: what comes back is a new reference.
    unsafe { from_glib_full(context.library().pool_new(context.raw())) }
}

/// Tells a pool what its buffers are. A pool of this kind knows itself how large they are.
fn configure(pool: &gst::BufferPool, caps: &gst::Caps, min: u32) -> Result<u32, SegmentError> {
    let failed = |what: &str| {
        SegmentError::new(ErrorKind::Engine, format!("a pool of frames in CUDA memory {what} of caps {caps}"))
    };
    let info = VideoInfo::from_caps(caps).map_err(|_| failed("can't give frames"))?;
    let mut config = pool.config();
    config.set_params(Some(caps), u32::try_from(info.size()).unwrap_or(u32::MAX), min, 0);
    config.add_option(gst_video::BUFFER_POOL_OPTION_VIDEO_META.as_ref());
    pool.set_config(config).map_err(|_| failed("won't give frames"))?;
    Ok(pool.config().params().map_or(0, |(_, size, _, _)| size))
}

/// A pool to be offered to whoever makes frames for us, and the size of its buffers.
pub(crate) fn offer(
    context: &CudaContext,
    caps: &gst::Caps,
    min: u32,
) -> Result<(gst::BufferPool, u32), SegmentError> {
    let pool = bare(context);
    let size = configure(&pool, caps, min)?;
    Ok((pool, size))
}

impl CudaPool {
    /// A pool of buffers of `caps` in this context: the one that was `offered`, if it is of that kind and takes the caps, or
    /// a new one.
    pub(crate) fn new(
        context: &CudaContext,
        caps: &gst::Caps,
        offered: Option<gst::BufferPool>,
    ) -> Result<Self, SegmentError> {
        let offered = offered
            .filter(|pool| is_in(pool, context))
            .filter(|pool| !pool.is_active() && configure(pool, caps, 0).is_ok());
        let pool = match offered {
            Some(pool) => pool,
            None => {
                let pool = bare(context);
                configure(&pool, caps, 0)?;
                pool
            }
        };
        pool.set_active(true).map_err(|error| {
            SegmentError::new(ErrorKind::Engine, format!("no frames in CUDA memory can be made: {error}"))
        })?;
        Ok(Self { pool })
    }

    /// A buffer that nobody else has.
    pub(crate) fn acquire(&self) -> Result<gst::Buffer, gst::FlowError> {
        self.pool.acquire_buffer(None)
    }
}

impl Drop for CudaPool {
    fn drop(&mut self) {
        // Buffers that are still on their way are freed when they come back.
        let _ = self.pool.set_active(false);
    }
}

/// Whether a pool's buffers are in this context.
fn is_in(pool: &gst::BufferPool, context: &CudaContext) -> bool {
    let library: &CudaLibrary = context.library();
    // SAFETY: it is the number of a type.
    let kind = unsafe { glib::Type::from_glib(library.pool_type()) };
    if !pool.upcast_ref::<gst::BufferPool>().type_().is_a(kind) {
        return false;
    }
    let raw: *mut gst::ffi::GstBufferPool = pool.to_glib_none().0;
    // SAFETY: a pool of that type begins like this.
    unsafe { (*raw.cast::<RawPool>()).context == context.raw() }
}
