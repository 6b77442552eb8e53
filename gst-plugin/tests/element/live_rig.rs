//! The element between pads of the test's own: what comes in is pushed by hand, what leaves is written down.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use gst::prelude::*;
use gstsapiensseg::{SapiensSeg, SapiensSegMeta};

/// How long anything that should happen may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// One thing that left.
#[derive(Debug, Clone)]
pub enum Left {
    Event(gst::Event),
    Frame(gst::Buffer),
}

struct Seen {
    left: Vec<Left>,
    answer: Result<gst::FlowSuccess, gst::FlowError>,
    blocked: bool,
    waiting: bool,
}

/// A pad that writes down what it gets.
#[derive(Clone)]
pub struct Tap {
    pub pad: gst::Pad,
    seen: Arc<(Mutex<Seen>, Condvar)>,
}

impl Tap {
    pub fn new() -> Self {
        Self::reading_video_meta(false)
    }

    /// One that says, when it's asked, whether it finds rows by their `GstVideoMeta`.
    pub fn reading_video_meta(reads_meta: bool) -> Self {
        let seen =
            Seen { left: Vec::new(), answer: Ok(gst::FlowSuccess::Ok), blocked: false, waiting: false };
        let seen = Arc::new((Mutex::new(seen), Condvar::new()));
        let (of_chain, of_events) = (seen.clone(), seen.clone());
        let pad = gst::Pad::builder(gst::PadDirection::Sink)
            .chain_function(move |_, _, buffer| {
                let (seen, changed) = &*of_chain;
                let mut seen = seen.lock().unwrap();
                seen.waiting = true;
                changed.notify_all();
                seen = changed.wait_while(seen, |seen| seen.blocked).unwrap();
                seen.waiting = false;
                if seen.answer.is_ok() {
                    seen.left.push(Left::Frame(buffer));
                }
                changed.notify_all();
                seen.answer
            })
            .event_function(move |_, _, event| {
                let (seen, changed) = &*of_events;
                seen.lock().unwrap().left.push(Left::Event(event));
                changed.notify_all();
                true
            })
            .query_function(move |pad, parent, query| match query.view_mut() {
                gst::QueryViewMut::Allocation(query) if reads_meta => {
                    query.add_allocation_meta::<gst_video::VideoMeta>(None);
                    true
                }
                gst::QueryViewMut::Caps(query) => {
                    query.set_result(&query.filter().map_or_else(gst::Caps::new_any, ToOwned::to_owned));
                    true
                }
                gst::QueryViewMut::AcceptCaps(query) => {
                    query.set_result(true);
                    true
                }
                _ => gst::Pad::query_default(pad, parent, query),
            })
            .build();
        pad.set_active(true).unwrap();
        Self { pad, seen }
    }

    fn change<T>(&self, change: impl FnOnce(&mut Seen) -> T) -> T {
        // A wait in vain panics with the lock held, and what is dropped then comes here.
        let changed = change(&mut self.seen.0.lock().unwrap_or_else(PoisonError::into_inner));
        self.seen.1.notify_all();
        changed
    }

    fn wait_until(&self, what: &str, condition: impl Fn(&Seen) -> bool) {
        let (seen, changed) = &*self.seen;
        let (seen, waited) =
            changed.wait_timeout_while(seen.lock().unwrap(), PATIENCE, |seen| !condition(seen)).unwrap();
        assert!(!waited.timed_out(), "waited in vain for {what}: {:?}", seen.left);
    }

    /// What frames are answered from now on.
    pub fn answer(&self, answer: Result<gst::FlowSuccess, gst::FlowError>) {
        self.change(|seen| seen.answer = answer);
    }

    /// Whether frames are kept waiting from now on.
    pub fn block(&self, blocked: bool) {
        self.change(|seen| seen.blocked = blocked);
    }

    pub fn wait_blocked(&self) {
        self.wait_until("a frame to wait", |seen| seen.waiting);
    }

    pub fn left(&self) -> Vec<Left> {
        self.change(|seen| seen.left.clone())
    }

    pub fn clear(&self) {
        self.change(|seen| seen.left.clear());
    }

    pub fn frames(&self) -> Vec<gst::Buffer> {
        let frame = |left| match left {
            Left::Frame(buffer) => Some(buffer),
            Left::Event(_) => None,
        };
        self.left().into_iter().filter_map(frame).collect()
    }

    /// Waits for so many frames and gives them.
    pub fn wait_frames(&self, count: usize) -> Vec<gst::Buffer> {
        let frames = |seen: &Seen| seen.left.iter().filter(|left| matches!(left, Left::Frame(_))).count();
        self.wait_until(&format!("{count} frames"), |seen| frames(seen) >= count);
        self.frames()
    }

    /// Waits for an event.
    pub fn wait_event(&self, kind: gst::EventType) {
        let is = |left: &Left| matches!(left, Left::Event(event) if event.type_() == kind);
        self.wait_until(&format!("{kind:?}"), |seen| seen.left.iter().any(is));
    }

    /// The types of what left, frames as None.
    pub fn kinds(&self) -> Vec<Option<gst::EventType>> {
        let kind = |left: &Left| match left {
            Left::Event(event) => Some(event.type_()),
            Left::Frame(_) => None,
        };
        self.left().iter().map(kind).collect()
    }

    /// The first event of a type.
    pub fn event(&self, kind: gst::EventType) -> gst::Event {
        let event = |left| match left {
            Left::Event(event) if event.type_() == kind => Some(event),
            _ => None,
        };
        self.left().into_iter().find_map(event).unwrap_or_else(|| panic!("no {kind:?} left"))
    }
}

/// An element, what feeds it, and what it feeds.
pub struct Rig {
    pub element: SapiensSeg,
    pub up: gst::Pad,
    pub src: Tap,
    pub bus: gst::Bus,
    pub size: (u32, u32),
}

/// What upstream says of its latency.
pub type UpstreamLatency = (bool, gst::ClockTime, Option<gst::ClockTime>);

impl Rig {
    /// Linked, not started.
    pub fn new(element: SapiensSeg, latency: UpstreamLatency) -> Self {
        let up = gst::Pad::builder(gst::PadDirection::Src)
            .query_function(move |pad, parent, query| match query.view_mut() {
                gst::QueryViewMut::Latency(query) => {
                    let (live, min, max) = latency;
                    query.set(live, min, max);
                    true
                }
                _ => gst::Pad::query_default(pad, parent, query),
            })
            .event_function(|_, _, _| true)
            .build();
        up.link(&element.static_pad("sink").unwrap()).unwrap();
        let src = Tap::new();
        element.static_pad("src").unwrap().link(&src.pad).unwrap();
        let bus = gst::Bus::new();
        element.set_bus(Some(&bus));
        Self { element, up, src, bus, size: (61, 45) }
    }

    /// Not live.
    pub fn file(element: SapiensSeg) -> Self {
        Self::new(element, (false, gst::ClockTime::ZERO, None))
    }

    /// A mask pad, linked.
    pub fn add_mask(&self) -> (gst::Pad, Tap) {
        let pad = self.element.request_pad_simple("mask").unwrap();
        let tap = Tap::new();
        pad.link(&tap.pad).unwrap();
        (pad, tap)
    }

    /// Plays, and says what comes at `rate`.
    pub fn start(&self, rate: &str) {
        let clock = gst::SystemClock::obtain();
        self.element.set_clock(Some(&clock)).unwrap();
        self.element.set_base_time(clock.time());
        self.element.set_state(gst::State::Playing).unwrap();
        self.up.set_active(true).unwrap();
        let group = gst::GroupId::next();
        assert!(self.up.push_event(gst::event::StreamStart::builder("up").group_id(group).build()));
        self.caps(rate);
        self.segment();
    }

    pub fn segment(&self) {
        let segment = gst::FormattedSegment::<gst::ClockTime>::new();
        assert!(self.up.push_event(gst::event::Segment::new(&segment)));
    }

    pub fn caps(&self, rate: &str) {
        let (width, height) = self.size;
        let caps = format!("video/x-raw,format=RGB,width={width},height={height},framerate={rate}");
        assert!(self.up.push_event(gst::event::Caps::new(&caps.parse().unwrap())));
    }

    /// Frame number `n` of 25 a second.
    pub fn push(&self, n: u64) -> Result<gst::FlowSuccess, gst::FlowError> {
        let time = gst::ClockTime::from_mseconds(40);
        self.up.push(green_frame(self.size, n, n * time, time))
    }

    /// Names of messages on the bus since the last look.
    pub fn messages(&self) -> Vec<gst::Message> {
        std::iter::from_fn(|| self.bus.pop()).collect()
    }

    /// Waits for a message.
    pub fn wait_message(&self, kind: gst::MessageType) -> gst::Message {
        let patience = gst::ClockTime::try_from(PATIENCE).unwrap();
        self.bus.timed_pop_filtered(patience, &[kind]).unwrap_or_else(|| panic!("no {kind:?} message"))
    }

    pub fn stat(&self, name: &str) -> u64 {
        stat(&self.element, name)
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.src.block(false);
        self.element.set_state(gst::State::Null).unwrap();
    }
}

pub fn stat(element: &SapiensSeg, name: &str) -> u64 {
    element.property::<gst::Structure>("stats").get(name).unwrap()
}

/// The class that the fake engine's `GreenOver16` gives each pixel of frame `n`.
pub fn class_of(n: u64) -> u8 {
    (n % 14) as u8 + 1
}

/// An RGB frame whose right half is of class 0, and left half of [`class_of`] `n`.
pub fn green_frame(size: (u32, u32), n: u64, pts: gst::ClockTime, duration: gst::ClockTime) -> gst::Buffer {
    let (width, height) = (size.0 as usize, size.1 as usize);
    let stride = (width * 3).next_multiple_of(4);
    let mut bytes = vec![0; stride * height];
    for row in bytes.chunks_exact_mut(stride) {
        for pixel in row.chunks_exact_mut(3).take(width / 2) {
            pixel[1] = class_of(n) * 16 + 3;
        }
    }
    let mut buffer = gst::Buffer::from_mut_slice(bytes);
    let frame = buffer.get_mut().unwrap();
    frame.set_pts(pts);
    frame.set_duration(duration);
    buffer
}

/// What [`green_frame`] is labelled with, without padding.
pub fn labels_of(size: (u32, u32), n: u64) -> Vec<u8> {
    let row = (0..size.0).map(|x| if x < size.0 / 2 { class_of(n) } else { 0 });
    row.collect::<Vec<_>>().repeat(size.1 as usize)
}

pub fn meta(buffer: &gst::BufferRef) -> Option<SapiensSegMeta> {
    SapiensSegMeta::from_buffer(buffer)
}

/// Waits for something that has no condition to wait on.
pub fn eventually(what: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < PATIENCE, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
