//! What there is from READY to PAUSED and back: the segmenter, the queue, and what the pads' threads share.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam::channel::Sender;
use gst::prelude::*;
use sapiens_model::{ErrorKind, Output, Result, SegmentError, Segmenter};

use super::cuda::OnCuda;
use super::settings::{OutputChoice, Settings};
use super::stats::Timings;
use crate::labels::{LabelPool, Labels};
use crate::meta;
use crate::queue::{Clock, Kinds, Queue};
use crate::render::{Appearance, Shape};

/// What travels through the queue.
pub(super) enum Payload {
    /// A frame.
    Frame(Framed),
    /// A serialized event.
    Event(gst::Event),
    /// Says when everything before it has been pushed: a serialized query waits for that.
    Barrier(Sender<()>),
}

/// A frame and what its caps were when it came.
pub(super) struct Framed {
    pub buffer: gst::Buffer,
    pub shape: Arc<Shape>,
    pub running_time: Option<gst::ClockTime>,
    pub stream_time: Option<gst::ClockTime>,
}

/// The queue's kinds.
pub(super) enum Traffic {}

impl Kinds for Traffic {
    type Payload = Payload;
    type Labels = Arc<Labels>;
    type Failure = SegmentError;
    type Flow = gst::FlowError;
}

/// The sink pad's side: what the next frame is.
#[derive(Default)]
pub(super) struct Input {
    pub shape: Option<Arc<Shape>>,
    pub segment: gst::FormattedSegment<gst::ClockTime>,
    /// No frames will come: nobody upstream learns of an error by pushing one.
    pub eos: bool,
    /// Whether upstream, or else the bus, knows that downstream takes no more.
    pub told: bool,
}

/// See the module.
pub(super) struct Running {
    segmenter: Mutex<Arc<Segmenter>>,
    /// Where the network runs on an NVIDIA GPU, and frames in its memory are taken.
    pub cuda: Option<OnCuda>,
    pub queue: Queue<Traffic>,
    pub output: OutputChoice,
    pub model: meta::Model,
    pub latency: Latency,
    pool: Arc<LabelPool>,
    input: Mutex<Input>,
    appearance: Mutex<Arc<Appearance>>,
    timings: Mutex<Timings>,
    post_messages: AtomicBool,
}

impl Running {
    pub(super) fn new(
        segmenter: Segmenter,
        cuda: Option<OnCuda>,
        settings: &Settings,
        clock: Arc<dyn Clock>,
    ) -> Result<Self> {
        let slots = segmenter.slots();
        let appearance =
            Appearance { palette: settings.palette(segmenter.card())?, opacity: settings.opacity };
        Ok(Self {
            queue: Queue::new(slots, settings.queue(), clock),
            output: settings.output,
            model: meta::Model::new(segmenter.card()),
            latency: Latency::new(slots),
            pool: Arc::default(),
            input: Mutex::default(),
            appearance: Mutex::new(Arc::new(appearance)),
            timings: Mutex::default(),
            post_messages: AtomicBool::new(settings.post_messages),
            segmenter: Mutex::new(Arc::new(segmenter)),
            cuda,
        })
    }

    pub(super) fn segmenter(&self) -> Arc<Segmenter> {
        lock(&self.segmenter).clone()
    }

    /// Has frames to come labelled by another segmenter with as many slots. None is in flight.
    #[cfg(feature = "cuda")]
    pub(super) fn exchange(&self, segmenter: Segmenter) {
        let old = std::mem::replace(&mut *lock(&self.segmenter), Arc::new(segmenter));
        drop(old);
    }

    /// Takes over what may change while frames flow.
    ///
    /// # Errors
    /// `UnknownName` if `classes` names one that the model doesn't have; then nothing has changed.
    pub(super) fn configure(&self, settings: &Settings) -> Result<()> {
        let palette = settings.palette(self.segmenter().card())?;
        let appearance = Appearance { palette, opacity: settings.opacity };
        *lock(&self.appearance) = Arc::new(appearance);
        self.post_messages.store(settings.post_messages, Ordering::Relaxed);
        self.queue.configure(settings.queue());
        Ok(())
    }

    pub(super) fn input(&self) -> MutexGuard<'_, Input> {
        lock(&self.input)
    }

    pub(super) fn appearance(&self) -> Arc<Appearance> {
        lock(&self.appearance).clone()
    }

    pub(super) fn timings(&self) -> MutexGuard<'_, Timings> {
        lock(&self.timings)
    }

    pub(super) fn posts_messages(&self) -> bool {
        self.post_messages.load(Ordering::Relaxed)
    }

    /// Starts the thread that waits for results and brings them to the queue. It ends once the queue is shut down
    /// and every slot is free.
    pub(super) fn start_labels_thread(self: &Arc<Self>) -> Result<JoinHandle<()>> {
        let running = self.clone();
        std::thread::Builder::new()
            .name("sapiens-labels".into())
            .spawn(move || running.bring_labels())
            .map_err(|error| {
                SegmentError::new(
                    ErrorKind::Engine,
                    format!("can't start the thread that waits for labels: {error}"),
                )
                .with_source(error)
            })
    }

    fn bring_labels(&self) {
        while let Some(ticket) = self.queue.ticket() {
            let mut output = Output { labels: self.pool.take(), ..Output::default() };
            // A slot whose result never comes would keep the element from ever stopping.
            let segmenter = self.segmenter();
            let received = catch_unwind(AssertUnwindSafe(|| segmenter.receive(&mut output)))
                .unwrap_or_else(|_| Err(SegmentError::new(ErrorKind::Engine, "waiting for labels panicked")));
            let result = received.map(|()| {
                self.timings().add(output.timing);
                self.pool.share(output.labels, segmenter.backend(), output.timing)
            });
            // What comes back is dropped here, where no lock is held.
            drop(ticket.complete(result));
        }
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is behind these locks is replaced whole: a panic elsewhere leaves nothing half done.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The pipeline's running time, which deadlines are on.
pub(super) struct RunningTime(pub glib::WeakRef<super::SapiensSeg>);

impl Clock for RunningTime {
    fn now(&self) -> Duration {
        // Without a clock, that is before PLAYING, nothing is late.
        let time = self.0.upgrade().and_then(|element| element.current_running_time());
        time.map_or(Duration::ZERO, Duration::from)
    }
}

/// How much later frames leave than they came, and what upstream said of itself.
pub(super) struct Latency {
    slots: u64,
    /// Nanoseconds.
    own: AtomicU64,
    live: AtomicBool,
    /// Upstream's least, in nanoseconds.
    upstream: AtomicU64,
}

/// How long before the announced latency is over a frame is on its way, so that it isn't downstream only after that:
/// this part of the element's own latency, and no more than that. Waking up and painting take their time.
const HEAD_START: (u64, u64) = (8, 4_000_000);

/// A measured latency is announced anew when it has changed by more than a quarter.
const HYSTERESIS: u64 = 4;

impl Latency {
    fn new(slots: usize) -> Self {
        Self {
            slots: slots as u64,
            own: AtomicU64::new(0),
            live: AtomicBool::new(false),
            upstream: AtomicU64::new(0),
        }
    }

    /// What the element adds.
    pub(super) fn own(&self) -> gst::ClockTime {
        gst::ClockTime::from_nseconds(self.own.load(Ordering::Relaxed))
    }

    /// Slots frames of `fps`; true if that's news. Without a rate see [`Latency::measured`].
    pub(super) fn set_rate(&self, fps: gst::Fraction) -> bool {
        let (frames, seconds) = (fps.numer().max(0) as u64, fps.denom().max(0) as u64);
        let second = gst::ClockTime::SECOND.nseconds();
        if frames == 0 {
            return false;
        }
        let Some(own) = (self.slots * seconds).mul_div_ceil(second, frames) else { return false };
        self.own.swap(own, Ordering::Relaxed) != own
    }

    /// Slots times what a frame was measured to take; true if that's news.
    pub(super) fn measured(&self, frame: Duration) -> bool {
        let own = self.slots * frame.as_nanos() as u64;
        let announced = self.own.load(Ordering::Relaxed);
        let news = own.abs_diff(announced) > announced / HYSTERESIS;
        if news {
            self.own.store(own, Ordering::Relaxed);
        }
        news
    }

    /// Takes over what upstream answered.
    pub(super) fn set_upstream(&self, live: bool, min: gst::ClockTime) {
        self.live.store(live, Ordering::Relaxed);
        self.upstream.store(min.nseconds(), Ordering::Relaxed);
    }

    pub(super) fn is_live(&self) -> bool {
        self.live.load(Ordering::Relaxed)
    }

    /// When a frame of this running time must leave; none if the pipeline isn't live.
    pub(super) fn deadline(&self, running_time: gst::ClockTime) -> Option<Duration> {
        let own = self.own.load(Ordering::Relaxed);
        let (part, most) = HEAD_START;
        let latency = self.upstream.load(Ordering::Relaxed) + own - (own / part).min(most);
        self.is_live().then(|| Duration::from_nanos(running_time.nseconds().saturating_add(latency)))
    }
}
