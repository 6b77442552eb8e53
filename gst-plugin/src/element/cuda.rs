//! Frames in an NVIDIA GPU's memory: the context they are in is shared with the elements around, the network follows them
//! there, and what is painted leaves in frames of our own.

use std::sync::{Arc, Mutex};

use glib::subclass::prelude::*;
use gst::prelude::*;
use gst_video::VideoInfo;
use sapiens_model::cuda::{Look, Painting};
use sapiens_model::{
    Backend, Device, DeviceRequest, ErrorKind, Frame, Mode, Result, SegmentError, Segmenter,
};

use super::OutputChoice;
use super::caps::on_cuda;
use super::imp::{CAT, SapiensSeg, load};
use super::running::{Framed, Running, lock};
use super::settings::Settings;
use super::sink::answered;
use crate::cuda::{self, Access, CONTEXT_TYPE, CudaContext, CudaLibrary, CudaPool, MappedCuda};
use crate::formats::is_cuda;
use crate::labels::Labels;
use crate::render::{Appearance, Shape};

/// What frames in a GPU's memory need while the network runs on one.
pub(super) struct OnCuda {
    library: &'static CudaLibrary,
    device: u32,
    /// As they were at the start, for a network in another context.
    settings: Settings,
    /// Of the network and of the frames; none as long as no frame in a GPU's memory is to be expected.
    context: Mutex<Option<CudaContext>>,
    canvases: Mutex<Option<Canvases>>,
}

/// Frames to paint on.
struct Canvases {
    pool: CudaPool,
    caps: gst::Caps,
    video_info: VideoInfo,
    context: CudaContext,
}

impl OnCuda {
    fn context(&self) -> Option<CudaContext> {
        lock(&self.context).clone()
    }
}

/// Whether what runs reads frames in a GPU's memory.
fn reads_cuda(backend: Backend) -> bool {
    backend.mode == Mode::Kernels && backend.device != Device::Cpu
}

/// Whether frames may be on a GPU with these settings, as far as can be said before the start.
fn may_be_on_cuda(settings: &Settings) -> bool {
    let Ok(options) = settings.options() else { return false };
    match (options.backend.mode, options.backend.device) {
        (Some(Mode::Portable), _) | (_, DeviceRequest::Cpu) => false,
        (_, DeviceRequest::Cuda(_)) => true,
        (_, DeviceRequest::Auto) => options.backend.resolve().is_ok_and(reads_cuda),
    }
}

impl SapiensSeg {
    /// Loads the model. Where it runs on a GPU, and frames may come in a GPU's memory, it is in a context that the elements
    /// around have too.
    pub(super) fn load(&self, settings: &Settings) -> Result<(Segmenter, Option<OnCuda>)> {
        let backend = settings.options()?.backend.resolve()?;
        let Device::Cuda(device) = backend.device else { return Ok((load(settings, None)?, None)) };
        if !reads_cuda(backend) {
            return Ok((load(settings, None)?, None));
        }
        let library = match CudaLibrary::get() {
            Ok(library) => library,
            Err(why) => {
                gst::info!(CAT, imp = self, "frames in CUDA memory can't be taken: {why}");
                return Ok((load(settings, None)?, None));
            }
        };
        // A network in the device's own context is shared with others of this process, so that is what others get.
        let upstream = self.sinkpad.peer_query_caps(None);
        let expected = upstream.is_any()
            || upstream.iter_with_features().any(|(_, features)| features.is_any() || is_cuda(features));
        let context = match expected.then(|| self.find_context(library, device)) {
            None => None,
            Some(Ok(context)) => Some(context),
            Some(Err(why)) => {
                // Frames in system memory may be all that ever come.
                gst::warning!(CAT, imp = self, "{why}");
                None
            }
        };
        let segmenter = load(settings, context.as_ref().map(CudaContext::to_model))?;
        if segmenter.cuda_context().is_none() {
            // The device was open, and this model is none for the GPU.
            return Ok((segmenter, None));
        }
        let settings = settings.clone();
        let on_cuda =
            OnCuda { library, device, settings, context: Mutex::new(context), canvases: Mutex::default() };
        Ok((segmenter, Some(on_cuda)))
    }

    /// The context on this device that an application or an element around shares, else a new one, which is shared then. The
    /// order to ask in is GStreamer's.
    fn find_context(&self, library: &'static CudaLibrary, device: u32) -> Result<CudaContext> {
        let element = self.obj().clone().upcast::<gst::Element>();
        let known = || {
            let context = element.context(CONTEXT_TYPE)?;
            CudaContext::shared(library, &element, &context, device)
        };
        if let Some(context) = known() {
            return Ok(context);
        }
        for pad in [&self.srcpad, &self.sinkpad] {
            let mut query = gst::query::Context::new(CONTEXT_TYPE);
            if pad.peer_query(&mut query)
                && let Some(context) = query.context_owned()
            {
                element.set_context(&context);
                if let Some(context) = known() {
                    return Ok(context);
                }
            }
        }
        let _ = element.post_message(gst::message::NeedContext::builder(CONTEXT_TYPE).src(&element).build());
        if let Some(context) = known() {
            return Ok(context);
        }
        let context = CudaContext::new(library, device).ok_or_else(|| {
            SegmentError::new(
                ErrorKind::BackendUnavailable,
                format!("GStreamer can't make a CUDA context on GPU {device}"),
            )
        })?;
        self.share(&context);
        Ok(context)
    }

    /// Lets the elements around have a context.
    fn share(&self, context: &CudaContext) {
        let element = self.obj();
        let shared = context.to_share();
        element.set_context(&shared);
        let _ = element.post_message(gst::message::HaveContext::builder(shared).src(&*element).build());
    }

    /// Whether frames in a GPU's memory are taken.
    pub(super) fn takes_cuda(&self) -> bool {
        match self.running() {
            Some(running) => running.cuda.is_some(),
            None => may_be_on_cuda(&self.settings()),
        }
    }

    /// Answers with the context that is used here; whether that was what was asked for.
    pub(super) fn answer_context(&self, query: &mut gst::query::Context) -> bool {
        let context = self.running().and_then(|running| running.cuda.as_ref()?.context());
        context.is_some_and(|context| context.answer(self.obj().upcast_ref(), query))
    }

    /// Has the network in the context that a frame is in: elements upstream may have one that nobody shared.
    pub(super) fn follow(
        &self,
        running: &Running,
        framed: &Framed,
    ) -> std::result::Result<(), gst::FlowError> {
        let failed = |error: SegmentError| {
            gst::element_imp_error!(self, gst::StreamError::Failed, ("{error}"));
            gst::FlowError::Error
        };
        let Some(cuda) = &running.cuda else { return Ok(()) };
        let context = cuda::context_of(&framed.buffer, cuda.library).map_err(failed)?;
        if lock(&cuda.context).as_ref() == Some(&context) {
            return Ok(());
        }
        if running.segmenter().cuda_context() != Some(context.id()) {
            let device = context.device();
            if device != cuda.device {
                return Err(failed(SegmentError::new(
                    ErrorKind::BackendUnavailable,
                    format!(
                        "a frame is in the memory of GPU {device}, and the network on GPU {}: set device=cuda:{device}",
                        cuda.device
                    ),
                )));
            }
            gst::info!(
                CAT,
                imp = self,
                "frames are in another CUDA context: the model is loaded anew in that one"
            );
            // What came before is in the old one, and to be painted there.
            while !self.wait_turn() {
                // It may have been closed and opened again meanwhile.
                if let Some(closed) = running.queue.closed() {
                    return Err(answered(running, closed));
                }
            }
            running.queue.wait_idle();
            // The old one goes before the new one comes: there may be no memory for both.
            running.exchange(running.segmenter().unloaded());
            running.exchange(load(&cuda.settings, Some(context.to_model())).map_err(failed)?);
            // At the next start it is known.
            self.share(&context);
        }
        *lock(&cuda.context) = Some(context);
        Ok(())
    }

    /// A frame in a GPU's memory as an engine takes it.
    pub(super) fn map_cuda(&self, running: &Running, framed: &Framed) -> Result<Box<dyn Frame>> {
        let Shape { video_info, frame_info, .. } = &*framed.shape;
        let cuda = running.cuda.as_ref().ok_or_else(not_here)?;
        let buffer = framed.buffer.clone();
        Ok(Box::new(MappedCuda::new(buffer, cuda.library, video_info, *frame_info, Access::Read)?))
    }

    /// A frame in a GPU's memory with the labels shown on it, in a buffer of its own; none if it leaves as it is.
    pub(super) fn paint_on_cuda(
        &self,
        running: &Running,
        buffer: &gst::Buffer,
        shape: &Shape,
        labels: Option<&Arc<Labels>>,
        appearance: &Appearance,
    ) -> Result<Option<gst::Buffer>> {
        let look = match (running.output, labels) {
            (OutputChoice::Overlay, Some(_)) if appearance.opacity > 0.0 => {
                Look::Overlay { opacity: appearance.opacity }
            }
            (OutputChoice::Alpha, _) => Look::CutOut,
            _ => return Ok(None),
        };
        let cuda = running.cuda.as_ref().ok_or_else(not_here)?;
        let context = cuda.context().ok_or_else(not_here)?;
        let Shape { video_info, frame_info, .. } = shape;
        let frame = MappedCuda::new(buffer.clone(), cuda.library, video_info, *frame_info, Access::Read)?;
        let canvases = self.canvases(cuda, context)?;
        let canvas = canvases.pool.acquire().map_err(|flow| {
            SegmentError::new(ErrorKind::Engine, format!("no frame in CUDA memory to paint on: {flow}"))
        })?;
        // It is the frame's own format that is painted, also where the caps of what leaves call an unused byte alpha.
        let mut canvas =
            MappedCuda::new(canvas, cuda.library, &canvases.video_info, *frame_info, Access::Write)?;
        *lock(&cuda.canvases) = Some(canvases);
        running.segmenter().paint(Painting {
            frame: frame.frame(),
            canvas: canvas.frame_mut(),
            labels: labels.map(|labels| labels.map()),
            palette: &appearance.palette,
            look,
        })?;
        drop(frame);
        let mut painted = canvas.into_buffer();
        copy_metadata(buffer, painted.make_mut())?;
        Ok(Some(painted))
    }

    /// Frames of the caps that leave now: in downstream's memory, if that is in the same context. Only the source task
    /// asks, so nobody misses them meanwhile.
    fn canvases(&self, cuda: &OnCuda, context: CudaContext) -> Result<Canvases> {
        let caps = self.srcpad.current_caps().ok_or_else(|| no_canvas("the src pad has no caps"))?;
        let linked_anew = self.srcpad.check_reconfigure();
        let kept = lock(&cuda.canvases).take();
        let kept = kept.filter(|kept| !linked_anew && kept.caps == caps && kept.context == context);
        if let Some(kept) = kept {
            return Ok(kept);
        }
        let mut query = gst::query::Allocation::new(Some(&caps), true);
        let offered = if self.srcpad.peer_query(&mut query) {
            query.allocation_pools().find_map(|(pool, ..)| pool.map(|pool| pool.to_owned()))
        } else {
            None
        };
        let pool = CudaPool::new(&context, &caps, offered)?;
        let video_info =
            VideoInfo::from_caps(&caps).map_err(|_| no_canvas("the src pad's caps are no video's"))?;
        Ok(Canvases { pool, caps, video_info, context })
    }

    /// A pool for whoever makes frames of these caps for us, and the size of its buffers; none for frames in the machine's
    /// memory.
    pub(super) fn offer_pool(&self, caps: &gst::CapsRef, min: u32) -> Option<(gst::BufferPool, u32)> {
        if !on_cuda(caps) {
            return None;
        }
        let context = self.running()?.cuda.as_ref()?.context()?;
        match cuda::offer(&context, &caps.to_owned(), min) {
            Ok(offer) => Some(offer),
            Err(error) => {
                gst::warning!(CAT, imp = self, "{error}");
                None
            }
        }
    }
}

/// Frames in a GPU's memory don't come where none are taken.
fn not_here() -> SegmentError {
    SegmentError::new(ErrorKind::InvalidFrame, "a frame in CUDA memory: expected one in the machine's")
}

/// Why there is nothing to paint on.
fn no_canvas(why: &str) -> SegmentError {
    SegmentError::new(ErrorKind::Engine, format!("no frame in CUDA memory to paint on: {why}"))
}

/// What base classes for elements of this kind take over from a frame to what it becomes: all but what is about its memory.
fn copy_metadata(from: &gst::BufferRef, to: &mut gst::BufferRef) -> Result<()> {
    let failed = |error: glib::BoolError| SegmentError::new(ErrorKind::Engine, error.to_string());
    let flags = gst::BufferCopyFlags::FLAGS | gst::BufferCopyFlags::TIMESTAMPS;
    from.copy_into(to, flags, ..).map_err(failed)?;
    let copy = gst::meta::MetaTransformCopy::new(..);
    for meta in from.iter_meta::<gst::Meta>() {
        let about_memory =
            meta.has_tag::<gst::meta::tags::Memory>() || meta.has_tag::<gst::meta::tags::MemoryReference>();
        if !about_memory {
            // One that can't be copied has its reasons.
            let _ = meta.transform(to, &copy);
        }
    }
    Ok(())
}
