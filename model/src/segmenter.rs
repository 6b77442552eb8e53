//! The facade: frames in, label maps out, in order, a few in flight.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::backend::{Backend, BackendRequest, DeviceRequest};
use crate::card::ModelCard;
#[cfg(feature = "cuda")]
use crate::cuda::{Context, ContextId, DeviceUse, Painting};
use crate::engine::{self, Engine, Output, Place, Unloaded};
use crate::error::{ErrorKind, Result, SegmentError};
use crate::frame::Frame;
use crate::input_size::InputSize;
use crate::weights::Weights;

/// More threads than any machine has use for.
pub const MAX_THREADS: usize = 1024;

/// How a network is to be run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Whose code, where, in which type.
    pub backend: BackendRequest,
    /// The size frames are brought to.
    pub input_size: InputSize,
    /// Frames in flight at most; at least 1.
    pub slots: usize,
    /// Processor threads; 0 for all there are.
    pub threads: usize,
    /// Whether outputs carry the logits too.
    pub keep_logits: bool,
}

impl Options {
    /// How many threads run.
    ///
    /// # Errors
    /// `BackendUnavailable` if that is more than [`MAX_THREADS`].
    pub fn thread_count(&self) -> Result<usize> {
        match self.threads {
            0 => Ok(std::thread::available_parallelism().map_or(1, usize::from)),
            count if count <= MAX_THREADS => Ok(count),
            count => Err(SegmentError::new(
                ErrorKind::BackendUnavailable,
                format!("threads is {count}: expected 0 (for all there are) to {MAX_THREADS}"),
            )),
        }
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            backend: BackendRequest::default(),
            input_size: InputSize::Card,
            slots: 2,
            threads: 0,
            keep_logits: false,
        }
    }
}

/// Labels frames, first in, first out.
///
/// Up to [`Segmenter::slots`] frames are in flight: one thread may [`submit`](Segmenter::submit) while another
/// waits in [`receive`](Segmenter::receive).
///
/// ```no_run
/// use sapiens_model::{ModelCard, Options, Output, OwnedFrame, Segmenter, Variant, Weights};
///
/// # fn main() -> sapiens_model::Result<()> {
/// let card = ModelCard::of(Variant::Sapiens2_04b);
/// let weights = Weights::locate_and_open(&card, None, false)?;
/// let segmenter = Segmenter::new(card, &weights, Options::default())?;
/// let mut output = Output::default();
/// segmenter.submit(OwnedFrame::rgb(640, 480, vec![0; 640 * 480 * 3])?)?;
/// segmenter.receive(&mut output)?;
/// for region in output.labels.regions() {
///     println!("{}: {} pixels", segmenter.card().classes[usize::from(region.class)].name, region.pixels);
/// }
/// # Ok(())
/// # }
/// ```
pub struct Segmenter {
    card: Arc<ModelCard>,
    engine: Box<dyn Engine>,
    queue: Mutex<Queue>,
    /// Held while waiting for the oldest frame, so that results leave in order whoever asks.
    receiving: Mutex<()>,
}

/// Slots, by number.
struct Queue {
    free: Vec<usize>,
    /// Oldest first.
    in_flight: VecDeque<usize>,
}

impl Segmenter {
    /// Makes the network of `card` ready to run with `weights`. Segmenters of one process that use the same card,
    /// weights and backend share one copy of the network.
    ///
    /// # Errors
    /// `BackendUnavailable` or `InvalidInputSize` if the options can't be had, and whatever reading weights gives.
    pub fn new(card: ModelCard, weights: &Weights, options: Options) -> Result<Self> {
        Self::somewhere(card, weights, options, Place::default())
    }

    /// As [`Segmenter::new`]; a network that runs on a GPU runs in this context and reads frames in its memory.
    ///
    /// # Errors
    /// As [`Segmenter::new`].
    #[cfg(feature = "cuda")]
    pub fn in_context(
        card: ModelCard,
        weights: &Weights,
        options: Options,
        context: Context,
    ) -> Result<Self> {
        Self::somewhere(card, weights, options, Some(context))
    }

    fn somewhere(card: ModelCard, weights: &Weights, options: Options, place: Place) -> Result<Self> {
        options.input_size.check()?;
        let threads = options.thread_count()?;
        weights.check_card(&card)?;
        let backend = options.backend.resolve_for(&card)?;
        let card = Arc::new(card);
        let slots = options.slots.max(1);
        let options = Options { slots, threads, ..options };
        let built = engine::build(&card, weights, backend, &options, place);
        let (backend, engine) = match built {
            Err(error)
                if error.kind() == ErrorKind::BackendUnavailable && options.backend.may_be_cpu(backend) =>
            {
                log::warn!("device auto is the processor: {error}");
                let request = BackendRequest { device: DeviceRequest::Cpu, ..options.backend };
                let backend = request.resolve_for(&card)?;
                (backend, engine::build(&card, weights, backend, &options, Place::default())?)
            }
            built => (backend, built?),
        };
        log::info!("{} runs on {backend} with {slots} slots", card.name());
        Ok(Self::with_engine(card, engine))
    }

    /// Runs an engine of the caller's own.
    pub fn with_engine(card: impl Into<Arc<ModelCard>>, engine: Box<dyn Engine>) -> Self {
        let queue = Queue { free: (0..engine.depth()).rev().collect(), in_flight: VecDeque::new() };
        Self { card: card.into(), engine, queue: Mutex::new(queue), receiving: Mutex::new(()) }
    }

    /// A segmenter like this one that has no network and refuses frames: it takes this one's place while another is loaded for which
    /// there may be no memory beside it.
    pub fn unloaded(&self) -> Self {
        let engine = Unloaded { backend: self.backend(), depth: self.slots() };
        Self::with_engine(self.card.clone(), Box::new(engine))
    }

    /// The model.
    pub fn card(&self) -> &ModelCard {
        &self.card
    }

    /// What runs.
    pub fn backend(&self) -> Backend {
        self.engine.backend()
    }

    /// Whether frames submitted from now on tell [what each stage took](crate::Timing::stages). The processor's kernels always
    /// do. On a GPU the network's operations are then launched one by one, which gives the same labels and takes longer; `portable`
    /// never does.
    pub fn time_stages(&self, on: bool) {
        self.engine.time_stages(on);
    }

    /// What the network takes of a GPU; none if it runs on none.
    #[cfg(feature = "cuda")]
    pub fn device_use(&self) -> Option<DeviceUse> {
        self.engine.device_use()
    }

    /// The context in whose memory frames may be; none if they may be in the machine's only.
    #[cfg(feature = "cuda")]
    pub fn cuda_context(&self) -> Option<ContextId> {
        self.engine.cuda_context()
    }

    /// Shows labels on a frame in a GPU's memory, and waits until that is done. Frames in flight go on meanwhile.
    ///
    /// # Errors
    /// `InvalidFrame` if the frame is in no memory that the network reads, or the parts don't fit together; `Engine` if the
    /// GPU fails.
    #[cfg(feature = "cuda")]
    pub fn paint(&self, painting: Painting<'_>) -> Result<()> {
        self.engine.paint(painting)
    }

    /// Frames in flight at most.
    pub fn slots(&self) -> usize {
        self.engine.depth()
    }

    /// Frames in flight now.
    pub fn in_flight(&self) -> usize {
        self.queue().in_flight.len()
    }

    /// Starts work on a frame. The frame is dropped as soon as its pixels have been read, at the earliest while this is called: its
    /// `drop` must not call the segmenter.
    ///
    /// # Errors
    /// `Full` if every slot is in flight. On a GPU also what is wrong with the frame, and what the driver says; elsewhere
    /// [`receive`](Self::receive) says that.
    pub fn submit(&self, frame: impl Frame) -> Result<()> {
        self.submit_boxed(Box::new(frame))
    }

    /// As [`Segmenter::submit`], for a frame that is boxed already.
    ///
    /// # Errors
    /// As [`Segmenter::submit`].
    pub fn submit_boxed(&self, frame: Box<dyn Frame>) -> Result<()> {
        let mut queue = self.queue();
        let Some(slot) = queue.free.pop() else {
            return Err(SegmentError::new(
                ErrorKind::Full,
                format!("all {} slots are in flight: receive a result before submitting more", self.slots()),
            ));
        };
        // Under the lock, so that the engine sees frames in the order of the queue. Engines only start work here:
        // on a GPU that is a copy of the pixels, and for the first frame of a size its memory.
        match self.engine.submit(slot, frame) {
            Ok(()) => queue.in_flight.push_back(slot),
            Err(error) => {
                queue.free.push(slot);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Waits for the oldest frame in flight and exchanges `output` for what became of it; its memory is used for
    /// a later frame.
    ///
    /// # Errors
    /// `Empty` if nothing is in flight; `Engine` and others if this frame failed, which frees its slot and leaves
    /// `output` as it was.
    pub fn receive(&self, output: &mut Output) -> Result<()> {
        let _turn = self.receiving.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(slot) = self.queue().in_flight.front().copied() else {
            return Err(SegmentError::new(ErrorKind::Empty, "no frame is in flight: submit one first"));
        };
        self.finish_oldest(slot, output)
    }

    /// Says that what is in flight isn't wanted: work that has not begun is left out, and those frames fail. Whoever
    /// waits in [`receive`](Self::receive) goes on as before, only sooner.
    pub fn cancel_pending(&self) {
        for &slot in &self.queue().in_flight {
            self.engine.cancel(slot);
        }
    }

    /// Drops what is in flight and returns how many frames that were. Work that has begun is waited for, so that
    /// every frame's memory has been given back when this returns; work that has not begun is left out.
    pub fn discard(&self) -> usize {
        // Before it's our turn: somebody may be waiting for a frame that need not be worked on.
        self.cancel_pending();
        let _turn = self.receiving.lock().unwrap_or_else(PoisonError::into_inner);
        self.cancel_pending();
        let slots: Vec<usize> = self.queue().in_flight.iter().copied().collect();
        let mut unwanted = Output::default();
        for &slot in &slots {
            // A frame that failed is as unwanted as one that did not.
            let _ = self.finish_oldest(slot, &mut unwanted);
        }
        slots.len()
    }

    /// Waits for `slot`, the head of the queue. Only who holds `receiving` takes from the queue's head.
    fn finish_oldest(&self, slot: usize, output: &mut Output) -> Result<()> {
        let result = self.engine.finish(slot, output);
        let mut queue = self.queue();
        queue.in_flight.pop_front();
        queue.free.push(slot);
        result
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        // Nothing panics while the queue is half changed.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Segmenter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Segmenter")
            .field("model", &self.card.name())
            .field("backend", &self.backend().to_string())
            .field("in_flight", &self.in_flight())
            .field("slots", &self.slots())
            .finish()
    }
}

#[cfg(test)]
#[path = "segmenter_tests.rs"]
mod tests;
