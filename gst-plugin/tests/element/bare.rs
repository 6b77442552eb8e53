//! An element between two bare pads, so that a test sees exactly what leaves, in order, and says exactly what comes.

use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use gst::prelude::*;
use gstsapiensseg::SapiensSeg;

/// What hangs takes longer than this.
pub const LIMIT: Duration = Duration::from_secs(10);

/// Something that left the element.
#[derive(Debug, Clone)]
pub enum Seen {
    /// A frame, and the caps that the pad had then.
    Buffer(gst::Buffer, Option<gst::Caps>),
    Event(gst::Event),
    /// A serialized query's type.
    Query(String),
}

#[derive(Default)]
struct Log {
    seen: Mutex<Vec<Seen>>,
    more: Condvar,
}

impl Log {
    fn add(&self, seen: Seen) {
        self.seen.lock().unwrap().push(seen);
        self.more.notify_all();
    }
}

pub type Flow = Result<gst::FlowSuccess, gst::FlowError>;
type Answer = Box<dyn FnMut(usize) -> Flow + Send>;

/// See the module.
pub struct Rig {
    pub element: SapiensSeg,
    pub source: gst::Pad,
    pub sink: gst::Pad,
    pub bus: gst::Bus,
    log: Arc<Log>,
    answer: Arc<Mutex<Answer>>,
}

impl Rig {
    /// Linked, playing, and nothing sent yet.
    pub fn new(element: SapiensSeg) -> Self {
        let rig = Self::unlinked(element);
        rig.link_sink();
        rig
    }

    /// As `new`, but the src pad isn't linked yet.
    pub fn unlinked(element: SapiensSeg) -> Self {
        let log = Arc::new(Log::default());
        let answer: Arc<Mutex<Answer>> = Arc::new(Mutex::new(Box::new(|_| Ok(gst::FlowSuccess::Ok))));
        let (buffers, events, queries, answers) = (log.clone(), log.clone(), log.clone(), answer.clone());
        let count = std::sync::atomic::AtomicUsize::new(0);
        let sink = gst::Pad::builder(gst::PadDirection::Sink)
            .chain_function(move |pad, _, buffer| {
                buffers.add(Seen::Buffer(buffer, pad.current_caps()));
                (answers.lock().unwrap())(count.fetch_add(1, std::sync::atomic::Ordering::SeqCst))
            })
            .event_function(move |_, _, event| {
                events.add(Seen::Event(event));
                true
            })
            .query_function(move |pad, parent, query| {
                if query.is_serialized() {
                    queries.add(Seen::Query(query.type_().name().to_string()));
                }
                match query.view_mut() {
                    gst::QueryViewMut::Allocation(_) | gst::QueryViewMut::Drain(_) => true,
                    // Without a template the default is the caps that the pad happens to have.
                    gst::QueryViewMut::Caps(query) => {
                        query.set_result(&query.filter_owned().unwrap_or_else(gst::Caps::new_any));
                        true
                    }
                    gst::QueryViewMut::AcceptCaps(query) => {
                        query.set_result(true);
                        true
                    }
                    gst::QueryViewMut::Custom(query) => {
                        query.structure_mut().set("answered", true);
                        true
                    }
                    _ => gst::Pad::query_default(pad, parent, query),
                }
            })
            .build();
        let source = gst::Pad::builder(gst::PadDirection::Src).build();
        let bus = gst::Bus::new();
        element.set_bus(Some(&bus));
        source.link(&element.static_pad("sink").unwrap()).unwrap();
        let rig = Self { element, source, sink, bus, log, answer };
        rig.play();
        rig
    }

    pub fn link_sink(&self) {
        self.element.static_pad("src").unwrap().link(&self.sink).unwrap();
    }

    pub fn play(&self) {
        self.sink.set_active(true).unwrap();
        self.element.set_state(gst::State::Playing).unwrap();
        self.source.set_active(true).unwrap();
    }

    pub fn stop(&self) {
        self.source.set_active(false).unwrap();
        self.element.set_state(gst::State::Null).unwrap();
        // As a pipeline does: a flush that had only begun ends here, too.
        self.sink.set_active(false).unwrap();
    }

    /// What downstream answers to each frame, by number.
    pub fn answer(&self, answer: impl FnMut(usize) -> Flow + Send + 'static) {
        *self.answer.lock().unwrap() = Box::new(answer);
    }

    /// Stream-start, caps and segment.
    pub fn begin(&self, caps: &gst::Caps) {
        assert!(self.source.push_event(gst::event::StreamStart::new("rig")));
        assert!(self.source.push_event(gst::event::Caps::new(caps)));
        assert!(self.source.push_event(segment()));
    }

    pub fn push(&self, buffer: gst::Buffer) -> Flow {
        self.source.push(buffer)
    }

    pub fn event(&self, event: gst::Event) -> bool {
        self.source.push_event(event)
    }

    pub fn seen(&self) -> Vec<Seen> {
        self.log.seen.lock().unwrap().clone()
    }

    pub fn forget(&self) {
        self.log.seen.lock().unwrap().clear();
    }

    /// Waits until what was seen satisfies `enough`, and returns it.
    pub fn wait(&self, what: &str, enough: impl Fn(&[Seen]) -> bool) -> Vec<Seen> {
        let deadline = Instant::now() + LIMIT;
        let mut seen = self.log.seen.lock().unwrap();
        while !enough(&seen) {
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "{what}: not within {LIMIT:?}, only {:?}", described(&seen));
            seen = self.log.more.wait_timeout(seen, left).unwrap().0;
        }
        seen.clone()
    }

    pub fn wait_eos(&self) -> Vec<Seen> {
        self.wait(
            "end of stream",
            |seen| matches!(seen.last(), Some(Seen::Event(event)) if event.type_() == gst::EventType::Eos),
        )
    }

    pub fn wait_buffers(&self, count: usize) -> Vec<gst::Buffer> {
        buffers(&self.wait("frames", |seen| buffers(seen).len() >= count))
    }

    /// The next error on the bus.
    pub fn error(&self) -> String {
        error_on(&self.bus).expect("no error on the bus")
    }

    pub fn has_error(&self) -> bool {
        self.bus.pop_filtered(&[gst::MessageType::Error]).is_some()
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        let _ = self.source.set_active(false);
        let _ = self.element.set_state(gst::State::Null);
        let _ = self.sink.set_active(false);
    }
}

/// The next error on a bus, in words.
pub fn error_on(bus: &gst::Bus) -> Option<String> {
    let limit = gst::ClockTime::from_seconds(LIMIT.as_secs());
    match bus.timed_pop_filtered(limit, &[gst::MessageType::Error])?.view() {
        gst::MessageView::Error(error) => {
            Some(format!("{} ({})", error.error(), error.debug().unwrap_or_default()))
        }
        _ => None,
    }
}

/// The buffers in what was seen.
pub fn buffers(seen: &[Seen]) -> Vec<gst::Buffer> {
    let buffers = seen.iter().filter_map(|seen| match seen {
        Seen::Buffer(buffer, _) => Some(buffer.clone()),
        _ => None,
    });
    buffers.collect()
}

/// What was seen, in words that can be compared with what was sent.
pub fn described(seen: &[Seen]) -> Vec<String> {
    let described = seen.iter().map(|seen| match seen {
        Seen::Buffer(buffer, _) => describe_buffer(buffer),
        Seen::Event(event) => describe_event(event),
        Seen::Query(name) => format!("query {name}"),
    });
    described.collect()
}

pub fn describe_buffer(buffer: &gst::Buffer) -> String {
    format!("buffer {:?}", buffer.pts())
}

pub fn describe_event(event: &gst::Event) -> String {
    format!("{:?} {:?}", event.type_(), event.seqnum())
}

pub fn segment() -> gst::Event {
    gst::event::Segment::new(&gst::FormattedSegment::<gst::ClockTime>::new())
}

/// RGB caps at 30 frames a second.
pub fn rgb(width: i32, height: i32) -> gst::Caps {
    gst::Caps::builder("video/x-raw")
        .field("format", "RGB")
        .field("width", width)
        .field("height", height)
        .field("framerate", gst::Fraction::new(30, 1))
        .build()
}

/// Frame `number` of 16 x 8: its brightness is 16 times that, so that the fake engine labels it with the number.
pub fn frame(number: u64) -> gst::Buffer {
    sized_frame(number, 16, 8)
}

/// Frame `number` of a width that is a multiple of 4, in RGB.
pub fn sized_frame(number: u64, width: usize, height: usize) -> gst::Buffer {
    let mut buffer = gst::Buffer::from_mut_slice(vec![(number % 16 * 16) as u8; width * height * 3]);
    {
        let buffer = buffer.get_mut().unwrap();
        buffer.set_pts(time(number));
        buffer.set_duration(time(1));
    }
    buffer
}

/// When frame `number` is.
pub fn time(number: u64) -> gst::ClockTime {
    gst::ClockTime::from_nseconds(number * 33_333_333)
}

/// Runs `work` on a thread of its own and fails if it isn't done in time; what it came to, and how long it took.
pub fn in_time<T: Send + 'static>(
    what: &str,
    limit: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> (T, Duration) {
    let (done, result) = std::sync::mpsc::channel();
    let start = Instant::now();
    std::thread::spawn(move || {
        let _ = done.send(work());
    });
    let result =
        result.recv_timeout(limit).unwrap_or_else(|error| panic!("{what}: {error} within {limit:?}"));
    (result, start.elapsed())
}
