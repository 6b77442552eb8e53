//! What goes into the queue and what comes out of it.

use std::collections::VecDeque;
use std::time::Duration;

/// What a queue carries.
pub trait Kinds {
    /// A frame, or something serialized with frames: an event, a query.
    type Payload;
    /// What inference makes of a frame. Cloned for every frame that leaves with them, so make it a pointer.
    type Labels: Clone;
    /// What failed inference says.
    type Failure;
    /// What downstream answered when it took no more.
    type Flow: Clone;
}

/// What is to become of live frames whose labels come too late.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Late {
    /// They leave on time with the last labels.
    #[default]
    Reuse,
    /// They don't leave at all.
    Drop,
    /// They leave too late. `earliest-time` isn't heeded either.
    Wait,
}

/// What may be changed while frames are in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Every so many frames one is inferred; 0 is as 1.
    pub interval: u32,
    /// What becomes of late frames.
    pub late: Late,
}

impl Default for Settings {
    fn default() -> Self {
        Self { interval: 1, late: Late::default() }
    }
}

/// A frame's times, each on a scale of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FrameTimes {
    /// Its timestamp; labels made from it are known by that.
    pub pts: Option<Duration>,
    /// Its running time, which is compared with the earliest time that downstream asked for.
    pub running_time: Option<Duration>,
    /// When it must leave, by the queue's [`Clock`](super::Clock). None where the pipeline isn't live: then nothing
    /// is late.
    pub deadline: Option<Duration>,
}

/// Why a frame has no labels of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Why {
    /// It wasn't its turn.
    Interval,
    /// Downstream asked for later frames.
    Qos,
    /// All slots were taken when it came.
    Busy,
    /// Its labels were not there by its deadline.
    Late,
}

/// Why the queue takes or gives nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Closed<F> {
    /// It's being flushed.
    Flushing,
    /// It has been shut down.
    Stopped,
    /// Downstream took no more, and answered this.
    Flow(F),
}

/// A payload that came too late to be queued.
pub struct Refused<T: Kinds> {
    /// What was to be queued.
    pub payload: T::Payload,
    /// Why it wasn't.
    pub closed: Closed<T::Flow>,
}

/// Labels and the timestamp of the frame they were made from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamped<L> {
    /// The labels.
    pub labels: L,
    /// That frame's timestamp.
    pub pts: Option<Duration>,
}

/// A frame that leaves.
pub struct LabelledFrame<T: Kinds> {
    /// The frame.
    pub payload: T::Payload,
    /// Its labels. None only if there have been none since the start or the last flush.
    pub labels: Option<Stamped<T::Labels>>,
    /// Why these are older labels, not made from this frame; None if they are its own.
    pub reused: Option<Why>,
    /// The labels before these, which the queue keeps no longer. Here only so that they are dropped, or their memory
    /// used again, by whoever takes the frame and not under the queue's lock.
    pub spent: Option<T::Labels>,
}

/// What the head of the queue comes to.
pub enum Next<T: Kinds> {
    /// Something that isn't a frame.
    Pass(T::Payload),
    /// A frame with its labels.
    Frame(LabelledFrame<T>),
    /// A frame that is too late to leave, with [`Late::Drop`].
    Dropped(T::Payload),
    /// Inference failed.
    Failed {
        /// The frame; None if it had left already, too late for its labels.
        payload: Option<T::Payload>,
        /// What failed.
        failure: T::Failure,
    },
    /// Nothing, until that's over.
    Closed(Closed<T::Flow>),
}

/// What was in the queue when it was emptied: payloads to be answered or dropped, and labels.
///
/// Whoever empties the queue gets it to drop, so that the queue doesn't under its lock.
#[must_use = "queries among the payloads wait for an answer"]
pub struct Drained<T: Kinds> {
    pub(super) items: VecDeque<Item<T>>,
    pub(super) _labels: Option<Stamped<T::Labels>>,
    pub(super) _failure: Option<T::Failure>,
}

impl<T: Kinds> Drained<T> {
    /// The payloads, oldest first.
    pub fn into_payloads(self) -> impl Iterator<Item = T::Payload> {
        self.items.into_iter().map(|item| match item {
            Item::Pass(payload) => payload,
            Item::Frame(frame) => frame.payload,
        })
    }
}

/// What the queue has seen since it was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Frames in.
    pub frames: u64,
    /// Frames given to inference.
    pub inferred: u64,
    /// Frames that left with their own labels.
    pub fresh: u64,
    /// Frames that left with older labels, or with none as there were none yet.
    pub reused: u64,
    /// Frames dropped, when they came or at their deadline.
    pub dropped: u64,
    /// Frames whose inference failed before they left.
    pub failed: u64,
    /// Frames lost to flushes, to a downstream that took no more, or to the end.
    pub flushed: u64,
    /// Frames in the queue now.
    pub depth: usize,
    /// Frames in the queue at most.
    pub max_depth: usize,
    /// Slots occupied now, some perhaps by frames that are no longer in the queue.
    pub in_flight: usize,
}

/// A place in the queue.
pub(super) enum Item<T: Kinds> {
    Pass(T::Payload),
    Frame(QueuedFrame<T>),
}

pub(super) struct QueuedFrame<T: Kinds> {
    pub(super) payload: T::Payload,
    /// Counts frames, so that a result finds its frame.
    pub(super) number: u64,
    pub(super) times: FrameTimes,
    pub(super) source: Source<T>,
}

/// Where a queued frame's labels are to come from.
pub(super) enum Source<T: Kinds> {
    /// Its own inference, which has come to this, if to anything yet.
    Own(Option<Result<T::Labels, T::Failure>>),
    /// The frames before it.
    Before(Why),
}
