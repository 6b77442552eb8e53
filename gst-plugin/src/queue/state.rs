//! What the queue does, as a machine: no threads, no clock. [`Queue`](super::Queue) puts a lock around it.
//!
//! A frame is **admitted** (its plan is made and a place reserved), then **committed** (it's in the queue) or
//! **cancelled**. Each frame committed for inference is a flight, which occupies a slot until its result is
//! **completed**, first in first out, whatever has become of the frame meanwhile. The head of the queue is **taken**
//! when its labels are there or can't be waited for.

use std::collections::VecDeque;
use std::time::Duration;

use super::types::{
    Closed, Drained, FrameTimes, Item, Kinds, LabelledFrame, Late, Next, QueuedFrame, Refused, Settings,
    Source, Stamped, Stats, Why,
};

/// Frames that may be in the queue beyond those that slots work on: one that is done and waits for downstream, and
/// one that waits for a slot or leaves with older labels.
const BEYOND_SLOTS: usize = 2;

/// The state of a queue.
pub(super) struct State<T: Kinds> {
    slots: usize,
    settings: Settings,
    earliest: Option<Duration>,
    items: VecDeque<Item<T>>,
    /// Frames among the items.
    depth: usize,
    /// Whether a frame is between `admit` and `commit`.
    reserved: bool,
    /// What slots work on, oldest first.
    flights: VecDeque<Flight>,
    /// Whether somebody waits for the oldest flight's result.
    receiving: bool,
    /// The number of the next frame.
    number: u64,
    /// Frames since the last one that was inferred, with that; None before the first.
    since_inferred: Option<u32>,
    last: Option<Stamped<T::Labels>>,
    /// Whether the last live frame to leave had its labels on time.
    keeps_up: bool,
    /// A failure of a frame that had left.
    late_failure: Option<T::Failure>,
    /// Counts how often the queue was emptied, so that a reservation from before is known.
    epoch: u64,
    mode: Mode,
    flow: Option<T::Flow>,
    /// Whether the taker has not come back since it was last given something.
    handed_out: bool,
    stats: Stats,
}

struct Flight {
    number: u64,
    pts: Option<Duration>,
    /// Not once the queue was emptied.
    wanted: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Running,
    Flushing,
    Stopped,
}

/// What is to be done with a frame that comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Plan {
    /// It gets its own labels, or older ones for that reason.
    Queue(Option<Why>),
    Drop(Why),
    Wait,
}

/// The answer to a frame that comes.
pub(super) enum Answer<F> {
    /// A place is reserved: commit or cancel.
    Place(Reservation),
    Drop(Why),
    /// Ask again when something has left or completed.
    MustWait,
    Closed(Closed<F>),
}

/// A place in the queue for a frame. There is one at a time, so frames are submitted in the order of their places.
#[derive(Clone, Copy)]
pub(super) struct Reservation {
    /// Why the frame isn't for inference; None if it is.
    pub(super) reuse: Option<Why>,
    times: FrameTimes,
    epoch: u64,
}

/// The answer to who takes the head.
pub(super) enum Head<T: Kinds> {
    Ready(Next<T>),
    /// Ask again when something has changed, or at this time.
    Wait(Option<Duration>),
}

/// How the head leaves.
#[derive(Clone, Copy)]
enum Exit {
    /// With its own labels if they are there, else with the last ones for this reason.
    Labelled(Option<Why>),
    Dropped,
}

impl<T: Kinds> State<T> {
    pub(super) fn new(slots: usize, settings: Settings) -> Self {
        let slots = slots.max(1);
        Self {
            slots,
            settings,
            earliest: None,
            items: VecDeque::new(),
            depth: 0,
            reserved: false,
            flights: VecDeque::with_capacity(slots),
            receiving: false,
            number: 0,
            since_inferred: None,
            last: None,
            keeps_up: false,
            late_failure: None,
            epoch: 0,
            mode: Mode::Running,
            flow: None,
            handed_out: false,
            stats: Stats::default(),
        }
    }

    pub(super) fn configure(&mut self, settings: Settings) {
        self.settings = settings;
    }

    /// Frames of an earlier running time than this aren't inferred.
    pub(super) fn set_earliest(&mut self, earliest: Option<Duration>) {
        self.earliest = earliest;
    }

    pub(super) fn stats(&self) -> Stats {
        Stats { depth: self.depth, in_flight: self.flights.len(), ..self.stats }
    }

    /// Whether the machine neither takes nor gives.
    pub(super) fn closed(&self) -> Option<Closed<T::Flow>> {
        match self.mode {
            Mode::Stopped => Some(Closed::Stopped),
            Mode::Flushing => Some(Closed::Flushing),
            Mode::Running => self.flow.clone().map(Closed::Flow),
        }
    }

    // Frames come.

    pub(super) fn admit(&mut self, times: FrameTimes) -> Answer<T::Flow> {
        if let Some(closed) = self.closed() {
            return Answer::Closed(closed);
        }
        if self.reserved {
            return Answer::MustWait;
        }
        match self.plan(&times) {
            Plan::Drop(why) => {
                self.stats.frames += 1;
                self.stats.dropped += 1;
                self.count_turn(false);
                Answer::Drop(why)
            }
            Plan::Queue(reuse) if !self.is_full() => {
                self.reserved = true;
                Answer::Place(Reservation { reuse, times, epoch: self.epoch })
            }
            Plan::Queue(_) | Plan::Wait => Answer::MustWait,
        }
    }

    fn plan(&self, times: &FrameTimes) -> Plan {
        let Settings { interval, late } = self.settings;
        let due = self.since_inferred.is_none_or(|frames| frames >= interval.max(1));
        let skipped =
            matches!((times.running_time, self.earliest), (Some(time), Some(earliest)) if time < earliest);
        match late {
            Late::Drop if skipped => return Plan::Drop(Why::Qos),
            // Before any frame was inferred there is nothing to reuse, and a stream that starts late would never
            // get labels.
            Late::Reuse if skipped && due && self.since_inferred.is_some() => {
                return Plan::Queue(Some(Why::Qos));
            }
            _ => {}
        }
        if !due {
            return Plan::Queue(Some(Why::Interval));
        }
        let live = times.deadline.is_some() && late != Late::Wait;
        // While labels come too late, a frame that waits in a slot behind another only makes them later: it's worth
        // more to begin with a newer frame once the engine is free. That's how a live stream starts, too.
        let slots = if live && !self.keeps_up { 1 } else { self.slots };
        if self.flights.len() < slots {
            return Plan::Queue(None);
        }
        match late {
            Late::Reuse if live => Plan::Queue(Some(Why::Busy)),
            Late::Drop if live => Plan::Drop(Why::Busy),
            _ => Plan::Wait,
        }
    }

    /// Counts a frame towards the interval. A frame that was due and isn't inferred leaves its turn to the next.
    fn count_turn(&mut self, inferred: bool) {
        self.since_inferred =
            if inferred { Some(1) } else { self.since_inferred.map(|frames| frames.saturating_add(1)) };
    }

    /// The frame takes its place; if it's for inference, that has begun. Refused, too, is a frame whose inference
    /// has begun: that occupies its slot all the same.
    pub(super) fn commit(&mut self, place: Reservation, payload: T::Payload) -> Result<(), Refused<T>> {
        let Reservation { reuse, times, epoch } = place;
        let wanted = epoch == self.epoch;
        let infer = reuse.is_none();
        let number = self.number;
        self.number += 1;
        self.reserved = false;
        self.stats.frames += 1;
        if infer {
            self.stats.inferred += 1;
            self.flights.push_back(Flight { number, pts: times.pts, wanted });
        }
        if !wanted {
            self.stats.flushed += 1;
            return Err(Refused { payload, closed: self.closed().unwrap_or(Closed::Flushing) });
        }
        self.count_turn(infer);
        let source = reuse.map_or(Source::Own(None), Source::Before);
        self.items.push_back(Item::Frame(QueuedFrame { payload, number, times, source }));
        self.depth += 1;
        self.stats.max_depth = self.stats.max_depth.max(self.depth);
        Ok(())
    }

    /// The frame won't come, and its inference has not begun. Its turn stays due.
    pub(super) fn cancel(&mut self) {
        self.reserved = false;
    }

    /// Something that isn't a frame takes its place.
    pub(super) fn pass(&mut self, payload: T::Payload) -> Result<(), Refused<T>> {
        if let Some(closed) = self.closed() {
            return Err(Refused { payload, closed });
        }
        self.items.push_back(Item::Pass(payload));
        Ok(())
    }

    // Results come.

    /// Whether there is a flight whose result nobody waits for yet; if so the caller does now.
    pub(super) fn begin_receive(&mut self) -> bool {
        let begun = !self.receiving && !self.flights.is_empty();
        self.receiving |= begun;
        begun
    }

    /// The result isn't coming; somebody else may wait for it.
    pub(super) fn abandon_receive(&mut self) {
        self.receiving = false;
    }

    /// The result of the oldest flight. Gives back what the machine has no use for: the result of a frame from
    /// before a flush, or the labels that these take the place of.
    pub(super) fn complete(
        &mut self,
        result: Result<T::Labels, T::Failure>,
    ) -> Option<Result<T::Labels, T::Failure>> {
        self.receiving = false;
        let Some(Flight { number, pts, wanted: true }) = self.flights.pop_front() else {
            return Some(result);
        };
        let frame = self.items.iter_mut().find_map(|item| match item {
            Item::Frame(frame) if frame.number == number => Some(frame),
            _ => None,
        });
        match (frame, result) {
            (Some(frame), result) => {
                frame.source = Source::Own(Some(result));
                None
            }
            (None, Ok(labels)) => self.last.replace(Stamped { labels, pts }).map(|last| Ok(last.labels)),
            // One failure is enough to end a stream; the first says most.
            (None, Err(failure)) if self.late_failure.is_some() => Some(Err(failure)),
            (None, Err(failure)) => {
                self.late_failure = Some(failure);
                None
            }
        }
    }

    // The head leaves.

    pub(super) fn take(&mut self, now: Duration) -> Head<T> {
        self.handed_out = false;
        let next = if let Some(closed) = self.closed() {
            return Head::Ready(Next::Closed(closed));
        } else if let Some(failure) = self.late_failure.take() {
            Next::Failed { payload: None, failure }
        } else {
            let exit = match self.items.front() {
                None => Err(None),
                Some(Item::Pass(_)) => Ok(Exit::Labelled(None)),
                Some(Item::Frame(frame)) => self.judge(frame, now),
            };
            match exit.map(|exit| (exit, self.items.pop_front())) {
                Err(until) => return Head::Wait(until),
                Ok((_, None)) => return Head::Wait(None),
                Ok((_, Some(Item::Pass(payload)))) => Next::Pass(payload),
                Ok((exit, Some(Item::Frame(frame)))) => self.leave(frame, exit),
            }
        };
        self.handed_out = true;
        Head::Ready(next)
    }

    /// How the head, a frame, leaves, or until when it has to wait.
    fn judge(&self, frame: &QueuedFrame<T>, now: Duration) -> Result<Exit, Option<Duration>> {
        let deadline = frame.times.deadline.filter(|_| self.settings.late != Late::Wait);
        let overdue = deadline.is_some_and(|deadline| deadline <= now);
        match frame.source {
            Source::Own(Some(_)) => Ok(Exit::Labelled(None)),
            Source::Own(None) if !overdue => Err(deadline),
            Source::Own(None) if self.settings.late == Late::Drop => Ok(Exit::Dropped),
            Source::Own(None) => Ok(Exit::Labelled(Some(Why::Late))),
            // Frames before it that left on time without their labels may yet give it fresher ones. That's worth
            // its own time, but not that of a frame that finds no room.
            Source::Before(_) if !overdue && !self.is_full() && self.awaits_before(frame.number) => {
                Err(deadline)
            }
            Source::Before(why) => Ok(Exit::Labelled(Some(why))),
        }
    }

    /// Takes leave of a frame that was the head.
    fn leave(&mut self, frame: QueuedFrame<T>, exit: Exit) -> Next<T> {
        self.depth -= 1;
        let QueuedFrame { payload, times, source, .. } = frame;
        if matches!(source, Source::Own(None)) {
            self.keeps_up = false;
        }
        match (source, exit) {
            (Source::Own(Some(Ok(labels))), _) => {
                self.stats.fresh += 1;
                self.keeps_up = true;
                let labels = Stamped { labels, pts: times.pts };
                let spent = self.last.replace(labels.clone()).map(|last| last.labels);
                Next::Frame(LabelledFrame { payload, labels: Some(labels), reused: None, spent })
            }
            (Source::Own(Some(Err(failure))), _) => {
                self.stats.failed += 1;
                Next::Failed { payload: Some(payload), failure }
            }
            (_, Exit::Dropped) => {
                self.stats.dropped += 1;
                Next::Dropped(payload)
            }
            (_, Exit::Labelled(reused)) => {
                self.stats.reused += 1;
                Next::Frame(LabelledFrame { payload, labels: self.last.clone(), reused, spent: None })
            }
        }
    }

    /// Whether a frame before that one is still being worked on.
    fn awaits_before(&self, number: u64) -> bool {
        self.flights.front().is_some_and(|flight| flight.wanted && flight.number < number)
    }

    // Everything leaves.

    /// Empties the queue. Flights go on, unwanted.
    fn drain(&mut self) -> VecDeque<Item<T>> {
        self.epoch += 1;
        self.stats.flushed += self.depth as u64;
        self.depth = 0;
        self.flights.iter_mut().for_each(|flight| flight.wanted = false);
        std::mem::take(&mut self.items)
    }

    fn forget(&mut self) -> Drained<T> {
        self.since_inferred = None;
        self.earliest = None;
        self.keeps_up = false;
        Drained { items: self.drain(), _labels: self.last.take(), _failure: self.late_failure.take() }
    }

    pub(super) fn start_flush(&mut self) -> Drained<T> {
        if self.mode == Mode::Running {
            self.mode = Mode::Flushing;
        }
        self.forget()
    }

    pub(super) fn stop_flush(&mut self) {
        if self.mode == Mode::Flushing {
            self.mode = Mode::Running;
        }
        self.flow = None;
        // A late `earliest-time` is from before the flush.
        self.earliest = None;
    }

    pub(super) fn shut_down(&mut self) -> Drained<T> {
        self.mode = Mode::Stopped;
        self.forget()
    }

    /// Downstream takes no more.
    pub(super) fn refuse(&mut self, flow: T::Flow) -> Drained<T> {
        self.flow = Some(flow);
        // The labels stay: the stream goes on when downstream is there again.
        let failure = self.late_failure.take();
        self.since_inferred = None;
        Drained { items: self.drain(), _labels: None, _failure: failure }
    }

    /// Downstream is there again.
    pub(super) fn accept(&mut self) {
        self.flow = None;
    }

    // Conditions to wait for.

    fn is_full(&self) -> bool {
        self.depth >= self.slots + BEYOND_SLOTS
    }

    /// Whether no slot is occupied and none is about to be.
    pub(super) fn is_idle(&self) -> bool {
        self.flights.is_empty() && !self.reserved
    }

    /// Whether everything has left and what left last has been dealt with.
    pub(super) fn is_drained(&self) -> bool {
        self.items.is_empty() && !self.reserved && !self.handed_out
    }

    /// Whether no result will ever come.
    pub(super) fn is_finished(&self) -> bool {
        self.mode == Mode::Stopped && self.is_idle()
    }
}
