//! The queue with payloads and labels that are numbers: the machine alone, then with threads, then with the segmenter.

mod engine;
mod flush;
mod live;
mod machine;
mod random;
mod threads;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::state::{Answer, Head, Reservation, State};
use super::*;

enum Numbers {}

impl Kinds for Numbers {
    type Payload = Item;
    /// The number of the frame that they were made from.
    type Labels = u32;
    type Failure = &'static str;
    type Flow = &'static str;
}

type TestQueue = Queue<Numbers>;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Item {
    Frame(u32),
    Event(u32),
    Query,
    Eos,
}

use Item::{Eos, Event, Frame, Query};

/// What came out, to compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Out {
    Pass(Item),
    /// A frame with its own labels.
    Fresh(u32),
    /// A frame, the frame that its labels were made from, and why.
    Reused(u32, Option<u32>, Why),
    Dropped(u32),
    Failed(Option<u32>, &'static str),
    Closed(Closed<&'static str>),
    Wait(Option<Duration>),
}

use Out::{Dropped, Failed, Fresh, Pass, Reused, Wait};

/// What becomes of a frame that comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Plan {
    Infer,
    Reuse(Why),
    Drop(Why),
}

impl From<&Reservation> for Plan {
    fn from(place: &Reservation) -> Self {
        place.reuse.map_or(Self::Infer, Self::Reuse)
    }
}

fn number(item: Item) -> u32 {
    let Frame(number) = item else { panic!("{item:?} is not a frame") };
    number
}

impl From<Next<Numbers>> for Out {
    fn from(next: Next<Numbers>) -> Self {
        match next {
            Next::Pass(item) => Pass(item),
            Next::Frame(LabelledFrame { payload, labels, reused: Some(why), .. }) => {
                if let Some(Stamped { labels, pts }) = labels {
                    assert_eq!(pts, times(labels).pts, "labels-pts of {labels}");
                }
                Reused(number(payload), labels.map(|labels| labels.labels), why)
            }
            Next::Frame(LabelledFrame { payload, labels, reused: None, .. }) => {
                let own = number(payload);
                assert_eq!(labels, Some(Stamped { labels: own, pts: times(own).pts }));
                Fresh(own)
            }
            Next::Dropped(item) => Dropped(number(item)),
            Next::Failed { payload, failure } => Failed(payload.map(number), failure),
            Next::Closed(closed) => Self::Closed(closed),
        }
    }
}

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// The times of a frame that isn't live: a hundred frames a second, segment starting at 7 s.
fn times(frame: u32) -> FrameTimes {
    let running = millis(10) * frame;
    FrameTimes { pts: Some(Duration::from_secs(7) + running), running_time: Some(running), deadline: None }
}

/// The times of a live frame, which leaves 20 ms after its time.
fn live(frame: u32) -> FrameTimes {
    FrameTimes { deadline: Some(millis(10) * frame + millis(20)), ..times(frame) }
}

/// The machine, its flights' frames remembered.
struct Machine {
    state: State<Numbers>,
    flights: std::collections::VecDeque<u32>,
}

impl Machine {
    fn new(slots: usize, interval: u32, late: Late) -> Self {
        Self { state: State::new(slots, Settings { interval, late }), flights: Default::default() }
    }

    /// What becomes of a frame; None if it must wait.
    fn push_frame(&mut self, frame: u32, times: FrameTimes) -> Option<Plan> {
        match self.state.admit(times) {
            Answer::Place(place) => {
                let plan = Plan::from(&place);
                if plan == Plan::Infer {
                    self.flights.push_back(frame);
                }
                assert!(self.state.commit(place, Frame(frame)).is_ok());
                Some(plan)
            }
            Answer::Drop(why) => Some(Plan::Drop(why)),
            Answer::MustWait => None,
            Answer::Closed(closed) => panic!("closed: {closed:?}"),
        }
    }

    fn push(&mut self, frame: u32) -> Option<Plan> {
        self.push_frame(frame, times(frame))
    }

    fn push_live(&mut self, frame: u32) -> Option<Plan> {
        self.push_frame(frame, live(frame))
    }

    fn pass(&mut self, item: Item) {
        assert!(self.state.pass(item).is_ok());
    }

    /// The oldest flight comes to an end.
    fn complete(&mut self) {
        let frame = self.flights.pop_front().expect("a flight");
        assert!(self.state.begin_receive());
        self.state.complete(Ok(frame));
    }

    fn fail(&mut self, failure: &'static str) {
        self.flights.pop_front().expect("a flight");
        assert!(self.state.begin_receive());
        self.state.complete(Err(failure));
    }

    fn take(&mut self, now: Duration) -> Out {
        match self.state.take(now) {
            Head::Ready(next) => next.into(),
            Head::Wait(until) => Wait(until),
        }
    }

    /// All that leaves now.
    fn take_all(&mut self, now: Duration) -> Vec<Out> {
        std::iter::from_fn(|| Some(self.take(now)).filter(|out| !matches!(out, Wait(_)))).collect()
    }
}

/// Stands still until it's set.
#[derive(Default)]
struct FakeClock(Mutex<Duration>);

impl FakeClock {
    fn set(&self, now: Duration, queue: &TestQueue) {
        *self.0.lock().unwrap() = now;
        queue.clock_changed();
    }
}

impl Clock for FakeClock {
    fn now(&self) -> Duration {
        *self.0.lock().unwrap()
    }
}

fn queue(slots: usize, settings: Settings) -> (TestQueue, Arc<FakeClock>) {
    let clock = Arc::new(FakeClock::default());
    (Queue::new(slots, settings, clock.clone()), clock)
}

/// Shuts the queue down when dropped, so that a test that fails doesn't wait for its threads forever.
struct ShutDown<'a, T: Kinds>(&'a Queue<T>);

impl<T: Kinds> Drop for ShutDown<'_, T> {
    fn drop(&mut self) {
        drop(self.0.shut_down());
    }
}
