//! The project's own kernels on an NVIDIA GPU, as an engine: frames go up or are there already, their labels come down.
//!
//! Each [`slot`] has a stream of its own, so that one frame's pixels come and another's labels go while a third is computed. The
//! forward pass itself is one frame's at a time: all slots share the memory of [`pass`]. [`network`] has the weights on the device
//! and the operations, [`load`] brings them there, [`workspace`] is the memory of a forward pass, [`paint`] shows labels on frames,
//! [`stages`] marks what each part of the network took.
//!
//! From the third frame of a size on nothing is allocated, and nothing waits for the device but whoever asks for a frame's labels or has
//! them painted.

#[cfg(any(test, feature = "cuda-check"))]
pub(crate) mod bare_network;
#[cfg(test)]
mod flight_tests;
#[cfg(test)]
mod foreign_tests;
mod load;
mod network;
mod paint;
mod pass;
mod self_check;
mod slot;
mod stages;
#[cfg(test)]
mod tests;
mod workspace;

use std::ffi::OsStr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sapiens_kernels::cuda::frame::Patches;
use sapiens_kernels::cuda::product::Products;
use sapiens_kernels::cuda::resize_argmax::ResizeArgmax;
use sapiens_kernels::cuda::{CudaError, Event, Gpu, Precision as Stored, Properties, Stream};

use self::network::Network;
use self::paint::Painter;
use self::pass::Pass;
use self::self_check::self_check;
use self::slot::{Asked, Slot};
use super::worker::panicked;
use super::{Engine, Output, Place};
use crate::backend::{Backend, Device, Precision};
use crate::card::ModelCard;
use crate::cuda::{ContextId, DeviceUse, Painting};
use crate::error::{ErrorKind, Result, SegmentError};
use crate::frame::{Frame, FrameInfo, Pixels};
use crate::input_size::InputSize;
use crate::segmenter::Options;
use crate::shared;
use crate::weights::Weights;
use crate::work::parameters;

impl From<CudaError> for SegmentError {
    fn from(error: CudaError) -> Self {
        let kind = match error {
            CudaError::OutOfMemory { .. } | CudaError::NoHostMemory { .. } | CudaError::Failed { .. } => {
                ErrorKind::Engine
            }
            _ => ErrorKind::BackendUnavailable,
        };
        Self::new(kind, error.to_string()).with_source(error)
    }
}

/// What the device of a number says of itself, if it can run the kernels.
pub(crate) fn properties(index: u32) -> Result<Properties> {
    Ok(Gpu::properties_of(index as usize)?)
}

/// Whether the kernels have the card's sizes.
pub(crate) fn check(card: &ModelCard) -> Result<()> {
    network::sizes(card).map(|_| ())
}

/// How values are stored and summed in a precision on a device.
fn stored(precision: Precision, properties: &Properties) -> Stored {
    match precision {
        Precision::F16 => properties.fastest_f16(),
        Precision::Bf16 => Stored::Bf16,
        Precision::F32 => unreachable!("no request for a GPU resolves to {precision}"),
    }
}

/// Has cuBLASLt multiply where it is `1`.
const CUBLASLT: &str = "SAPIENS_CUBLASLT";

/// What multiplies on the device: our own kernels, or cuBLASLt with them where the environment says so.
fn products(gpu: &Arc<Gpu>, precision: Stored) -> Result<Products> {
    let own = Products::new(gpu, precision)?;
    if !wants_cublaslt(std::env::var_os(CUBLASLT).as_deref())? {
        return Ok(own);
    }
    let products = own.with_cublaslt(gpu).map_err(|error| {
        let what = format!("{CUBLASLT}=1: {error}");
        SegmentError::new(ErrorKind::BackendUnavailable, what).with_source(error)
    })?;
    if let Some(cublaslt) = products.cublaslt() {
        log::info!("products by cuBLASLt {}", cublaslt.version());
    }
    Ok(products)
}

/// What a value of [`CUBLASLT`] says.
fn wants_cublaslt(value: Option<&OsStr>) -> Result<bool> {
    match value.map(OsStr::to_string_lossy).as_deref() {
        None | Some("" | "0") => Ok(false),
        Some("1") => Ok(true),
        Some(other) => Err(SegmentError::new(
            ErrorKind::BackendUnavailable,
            format!("{CUBLASLT}={other}: expected 0 (our own kernels multiply) or 1 (cuBLASLt does)"),
        )),
    }
}

/// The engine of `card` and `weights`.
pub(crate) fn engine(
    card: &Arc<ModelCard>,
    weights: &Weights,
    backend: Backend,
    options: &Options,
    place: Place,
) -> Result<Box<dyn Engine>> {
    let Device::Cuda(index) = backend.device else { unreachable!("{backend} is no GPU's") };
    let context = place.as_ref().map(|context| context.id().number());
    let key = shared::Key { card: card.clone(), weights: weights.identity().clone(), backend, context };
    let network = shared::network(&key, || {
        let opened = match place {
            None => Gpu::open(index as usize),
            Some(context) => Gpu::adopt(context),
        };
        let gpu = opened.map_err(|error| {
            let what =
                format!("device {} is not available: {error}; expected device auto or cpu", backend.device);
            SegmentError::new(ErrorKind::BackendUnavailable, what).with_source(error)
        })?;
        if gpu.index() != index as usize {
            return Err(SegmentError::new(
                ErrorKind::BackendUnavailable,
                format!("a CUDA context of GPU {}: expected one of {}", gpu.index(), backend.device),
            ));
        }
        let precision = stored(backend.precision, gpu.properties());
        let products = products(&gpu, precision)?;
        self_check(card, &gpu, backend, &products)?;
        Network::load(card, weights, &gpu, products).map_err(|error| too_large(card, &gpu, error))
    })?;
    let gpu = network.gpu().clone();
    let engine = CudaEngine::new(card, network, backend, options);
    Ok(Box::new(engine.map_err(|error| too_large(card, &gpu, error))?))
}

/// Where memory ran out while a network was made ready: what it needs.
fn too_large(card: &ModelCard, gpu: &Gpu, error: SegmentError) -> SegmentError {
    let out_of_memory = std::error::Error::source(&error)
        .and_then(|source| source.downcast_ref::<CudaError>())
        .is_some_and(|error| matches!(error, CudaError::OutOfMemory { .. }));
    if !out_of_memory {
        return error;
    }
    let weights = (2 * parameters(card)).div_ceil(1 << 20);
    let (name, device) = (card.name(), &gpu.properties().name);
    let what = format!(
        "{name} doesn't fit on {device}: its weights alone are {weights} MiB there; {error}; a smaller input-size or device=cpu needs less"
    );
    SegmentError::new(ErrorKind::BackendUnavailable, what).with_source(error)
}

struct CudaEngine {
    // Go first: who drops them waits until nothing uses the rest.
    slots: Vec<Mutex<Slot>>,
    painter: Mutex<Option<Painter>>,
    computing: Mutex<Computing>,
    backend: Backend,
    card: Arc<ModelCard>,
    input_size: InputSize,
    keep_logits: bool,
    time_stages: AtomicBool,
    network: Arc<Network>,
    /// What times are counted from.
    origin: Event,
    patches: Patches,
    resize_argmax: ResizeArgmax,
}

/// What one frame at a time uses.
struct Computing {
    /// Of the last input size: a stream's frames all have one size.
    pass: Option<Pass>,
    /// Behind the last work on it.
    free: Event,
}

impl CudaEngine {
    fn new(
        card: &Arc<ModelCard>,
        network: Arc<Network>,
        backend: Backend,
        options: &Options,
    ) -> Result<Self> {
        let gpu = network.gpu();
        let stream = Stream::new(gpu)?;
        let slots = (0..options.slots).map(|_| Slot::new(gpu).map(Mutex::new)).collect::<Result<_>>()?;
        // Where the size is known the memory is there before the first frame is.
        let pass = match options.input_size {
            InputSize::Native => None,
            size => {
                let (width, height) = size.network_input(card, 1, 1)?;
                Some(Pass::new(&network, &stream, [height, width])?)
            }
        };
        let origin = Event::new(gpu, true)?;
        origin.record(&stream)?;
        Ok(Self {
            backend,
            card: card.clone(),
            input_size: options.input_size,
            keep_logits: options.keep_logits,
            time_stages: AtomicBool::new(false),
            origin,
            patches: Patches::new(&stream, network.precision(), card.input.mean, card.input.std)?,
            resize_argmax: ResizeArgmax::new(gpu)?,
            slots,
            computing: Mutex::new(Computing { pass, free: Event::new(gpu, false)? }),
            painter: Mutex::default(),
            network,
        })
    }

    /// Queues all work on a frame in its slot's stream.
    fn queue(&self, slot: &mut Slot, frame: Box<dyn Frame>) -> Result<()> {
        let info = match frame.pixels() {
            Pixels::Host(view) => view.info(),
            Pixels::Cuda(frame) => frame.info(),
        };
        let placement = self.input_size.place(&self.card, info.width, info.height)?;
        slot.receive(frame, placement, &self.card, self.network.gpu())?;
        let size = [placement.canvas.1, placement.canvas.0];
        let mut computing = lock(&self.computing);
        let Computing { pass, free } = &mut *computing;
        if pass.as_ref().is_some_and(|pass| pass.size() != size) {
            free.synchronize()?;
            // The old one goes before the new one comes: both may be large.
            *pass = None;
        }
        let pass = match pass {
            Some(pass) => pass,
            None => {
                let made = Pass::new(&self.network, slot.stream(), size);
                pass.insert(made.map_err(|error| {
                    let [height, width] = size;
                    let what = format!("a network input of {width} x {height}: {error}");
                    SegmentError::new(error.kind(), what).with_source(error)
                })?)
            }
        };
        let asked = Asked { logits: self.keep_logits, stages: self.time_stages.load(Ordering::Relaxed) };
        let queued = slot.compute(pass, free, &self.patches, &self.resize_argmax, asked);
        if queued.is_err() {
            // Whatever was queued uses the memory that the next frame will.
            let _ = slot.stream().synchronize();
        }
        drop(computing);
        queued?;
        slot.send()
    }
}

impl Engine for CudaEngine {
    fn backend(&self) -> Backend {
        self.backend
    }

    fn depth(&self) -> usize {
        self.slots.len()
    }

    fn submit(&self, slot: usize, frame: Box<dyn Frame>) -> Result<()> {
        let mut slot = lock(&self.slots[slot]);
        // This thread is the caller's.
        let queued = catch_unwind(AssertUnwindSafe(|| self.queue(&mut slot, frame)));
        queued.unwrap_or_else(|panic| Err(panicked(&*panic))).inspect_err(|_| slot.clear())
    }

    /// What is queued on the device can't be taken back.
    fn cancel(&self, _slot: usize) {}

    fn finish(&self, slot: usize, output: &mut Output) -> Result<()> {
        let mut slot = lock(&self.slots[slot]);
        let finished = slot.finish(output, &self.origin);
        if finished.is_err() {
            slot.clear();
        }
        finished
    }

    fn time_stages(&self, on: bool) {
        self.time_stages.store(on, Ordering::Relaxed);
    }

    fn device_use(&self) -> Option<DeviceUse> {
        let (memory, peak_memory) = self.network.gpu().memory_use();
        let launches = lock(&self.computing).pass.as_ref().map_or(0, Pass::launches);
        Some(DeviceUse { memory, peak_memory, launches })
    }

    fn cuda_context(&self) -> Option<ContextId> {
        Some(self.network.gpu().context_id())
    }

    fn paint(&self, painting: Painting<'_>) -> Result<()> {
        let mut painter = lock(&self.painter);
        let painter = match painter.take() {
            Some(made) => painter.insert(made),
            None => painter.insert(Painter::new(self.network.gpu())?),
        };
        painter.paint(painting)
    }
}

/// What passed between two timed events, both passed.
fn between(first: &Event, second: &Event) -> Result<Duration> {
    let ms = second.milliseconds_since(first)?;
    Ok(Duration::from_secs_f32(ms.max(0.0) / 1e3))
}

/// A frame's planes as the device has them.
fn describe(info: FrameInfo) -> String {
    format!("{} x {} {}", info.width, info.height, info.format)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What a panic leaves half done is made anew or cleared: no value behind these locks has invariants.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
