//! Live pipelines: what leaves when, with which labels, whatever the engine takes.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gst::prelude::*;
use gstsapiensseg::{LateChoice, SapiensSeg};
use sapiens_model::engine::fake::Outcome;

use crate::common::{element_of, turn};
use crate::live_rig::{Rig, class_of, meta, stat};

/// Streams by the clock disturb each other on few processors.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A frame as it left.
#[derive(Debug, Clone)]
struct Gone {
    pts: gst::ClockTime,
    /// The pipeline's running time then.
    at: gst::ClockTime,
    /// The labels' timestamp and whether they are another frame's; none without labels.
    labels: Option<(gst::ClockTime, bool)>,
}

/// 30 frames a second of a live source through the element.
struct Live {
    pipeline: gst::Pipeline,
    element: SapiensSeg,
    gone: Arc<Mutex<Vec<Gone>>>,
}

impl Live {
    fn start(element: SapiensSeg) -> Self {
        let pipeline = gst::Pipeline::new();
        let source = gst::ElementFactory::make("videotestsrc").property("is-live", true).build().unwrap();
        let caps = "video/x-raw,format=RGB,width=64,height=48,framerate=30/1";
        let filter = gst::ElementFactory::make("capsfilter")
            .property("caps", caps.parse::<gst::Caps>().unwrap())
            .build()
            .unwrap();
        let sink = gst::ElementFactory::make("fakesink")
            .property("sync", true)
            .property("qos", false)
            .build()
            .unwrap();
        pipeline.add_many([&source, &filter, element.upcast_ref(), &sink]).unwrap();
        gst::Element::link_many([&source, &filter, element.upcast_ref(), &sink]).unwrap();
        let gone = Arc::<Mutex<Vec<Gone>>>::default();
        let write = gone.clone();
        let clocked = element.downgrade();
        element.static_pad("src").unwrap().add_probe(gst::PadProbeType::BUFFER, move |_, info| {
            let buffer = info.buffer().unwrap();
            let at = clocked.upgrade().unwrap().current_running_time().unwrap();
            let labels = meta(buffer).map(|meta| (meta.labels_pts.unwrap(), meta.reused));
            write.lock().unwrap().push(Gone { pts: buffer.pts().unwrap(), at, labels });
            gst::PadProbeReturn::Ok
        });
        pipeline.set_state(gst::State::Playing).unwrap();
        Self { pipeline, element, gone }
    }

    fn wait(&self, milliseconds: u64) {
        std::thread::sleep(Duration::from_millis(milliseconds));
    }

    /// What the element answers now, with upstream's part.
    fn latency(&self) -> gst::ClockTime {
        let mut query = gst::query::Latency::new();
        assert!(self.element.static_pad("src").unwrap().query(&mut query));
        let (live, min, _) = query.result();
        assert!(live);
        min
    }

    /// Frames that have left so far.
    fn gone(&self) -> Vec<Gone> {
        self.gone.lock().unwrap().clone()
    }

    fn stop(&self) -> Vec<Gone> {
        self.pipeline.set_state(gst::State::Null).unwrap();
        let bus = self.pipeline.bus().unwrap();
        let error = bus.pop_filtered(&[gst::MessageType::Error, gst::MessageType::Warning]);
        assert!(error.is_none(), "{error:?}");
        self.gone()
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.pipeline.set_state(gst::State::Null).unwrap();
    }
}

/// What video sinks add to the latency for themselves: a frame that a busy machine lets leave this much after what
/// we announced is still shown on time.
const PROCESSING_DEADLINE: gst::ClockTime = gst::ClockTime::from_mseconds(20);

#[test]
fn frames_leave_on_time_and_in_order_beside_an_engine_of_two_seconds() {
    let _alone = alone();
    let live = Live::start(element_of(2, |n| turn(2000, Outcome::Fill(n as u8 % 20))));
    live.wait(7200);
    let latency = live.latency();
    let (queued, max_queued) = (stat(&live.element, "queued"), stat(&live.element, "max-queued"));
    let (inferred, dropped) = (stat(&live.element, "inferred"), stat(&live.element, "dropped"));
    let gone = live.stop();

    let frame = gst::ClockTime::SECOND / 30;
    for pair in gone.windows(2) {
        let step = pair[1].pts - pair[0].pts;
        assert!(step.absdiff(frame) <= gst::ClockTime::from_nseconds(2), "a frame is missing: {pair:?}");
    }
    for second in 0..7 {
        let start = gst::ClockTime::from_seconds(second);
        let due =
            gone.iter().filter(|frame| frame.pts >= start && frame.pts < start + gst::ClockTime::SECOND);
        let after = |frame: &&Gone, slack| frame.at > frame.pts + latency + slack;
        let strictly = due.clone().filter(|frame| after(frame, gst::ClockTime::ZERO)).count();
        let late: Vec<_> = due
            .clone()
            .filter(|frame| after(frame, PROCESSING_DEADLINE))
            .map(|frame| frame.at - frame.pts)
            .collect();
        let due = due.count();
        println!("second {second}: {due} frames, {strictly} after the announced {latency}");
        assert!(due >= 29, "second {second}: {due} frames");
        assert!(due - late.len() >= 29, "second {second}: {due} frames, late at {late:?}, latency {latency}");
    }
    assert!(queued <= 4 && max_queued <= 4, "{queued} queued, {max_queued} at most");
    assert_eq!(dropped, 0);
    assert!((3..=5).contains(&inferred), "{inferred} inferred in 7 s");

    // Nothing before the first labels are there, then those of older and older frames, each a bit over 2 s old.
    let first = gone.iter().position(|frame| frame.labels.is_some()).unwrap();
    assert!(gone[first].at >= gst::ClockTime::from_seconds(2));
    assert!(gone[first].at <= gst::ClockTime::from_mseconds(2400), "{:?}", gone[first]);
    let mut last = gst::ClockTime::ZERO;
    for frame in &gone[first..] {
        let (labels, reused) = frame.labels.unwrap();
        let age = frame.pts - labels;
        assert!(labels >= last && labels < frame.pts && reused, "{frame:?}");
        assert!(
            age > gst::ClockTime::from_mseconds(1800) && age < gst::ClockTime::from_mseconds(4300),
            "{age}"
        );
        last = labels;
    }
    assert!(last > gst::ClockTime::from_seconds(3), "labels were renewed: {last}");
}

#[test]
fn an_engine_that_keeps_up_gives_nearly_all_frames_their_own_labels() {
    let _alone = alone();
    let live = Live::start(element_of(2, |_| turn(8, Outcome::Fill(1))));
    live.wait(2000);
    let gone = live.stop();
    let fresh = gone.iter().filter(|frame| frame.labels == Some((frame.pts, false))).count();
    assert!(gone.len() >= 50, "{} frames", gone.len());
    assert!(fresh * 20 >= gone.len() * 19, "{fresh} of {} frames are fresh", gone.len());
}

#[test]
fn late_drop_drops_frames_without_labels_in_time_and_says_so() {
    let _alone = alone();
    let element = element_of(2, |n| turn(if n % 10 == 5 { 250 } else { 5 }, Outcome::Fill(1)));
    element.set_property("late", LateChoice::Drop);
    let live = Live::start(element);
    live.wait(2500);
    let bus = live.pipeline.bus().unwrap();
    let (dropped, reused) = (stat(&live.element, "dropped"), stat(&live.element, "reused"));
    let messages: Vec<_> = std::iter::from_fn(|| bus.pop_filtered(&[gst::MessageType::Qos])).collect();
    let gone = live.stop();
    assert!(dropped >= 8, "{dropped} dropped");
    assert!(messages.len() as u64 >= dropped, "{} messages for {dropped} frames", messages.len());
    assert_eq!(reused, 0);
    assert!(gone.len() >= 25, "{} frames left", gone.len());
    assert!(gone.iter().all(|frame| frame.labels == Some((frame.pts, false))), "{gone:?}");
    let gst::MessageView::Qos(qos) = messages[0].view() else { unreachable!() };
    let (live, running_time, _, timestamp, duration) = qos.get();
    assert!(live && running_time.is_some() && timestamp.is_some() && duration.is_some());
}

#[test]
fn late_wait_gives_every_frame_its_own_labels_however_late() {
    let _alone = alone();
    let element = element_of(2, |_| turn(100, Outcome::Fill(1)));
    element.set_property("late", LateChoice::Wait);
    let live = Live::start(element);
    live.wait(1800);
    let latency = live.latency();
    let (dropped, max_queued) = (stat(&live.element, "dropped"), stat(&live.element, "max-queued"));
    let gone = live.stop();
    assert!((10..=18).contains(&gone.len()), "{} frames", gone.len());
    assert!(gone.iter().all(|frame| frame.labels == Some((frame.pts, false))), "{gone:?}");
    assert!(gone.last().is_some_and(|frame| frame.at > frame.pts + latency), "nothing was late: {gone:?}");
    assert!(dropped == 0 && max_queued <= 4, "{dropped} dropped, {max_queued} queued at most");
}

#[test]
fn interval_infers_every_nth_live_frame() {
    let _alone = alone();
    let element = element_of(2, |_| turn(3, Outcome::Fill(1)));
    element.set_property("interval", 5u32);
    let live = Live::start(element);
    live.wait(2000);
    // Both of one moment, in which the last frame that is due may be on its way.
    let stats: gst::Structure = live.element.property("stats");
    let [frames, inferred]: [u64; 2] = ["frames", "inferred"].map(|name| stats.get(name).unwrap());
    let gone = live.stop();
    let due = frames.div_ceil(5);
    assert!((due - 1..=due).contains(&inferred), "{inferred} of {frames} frames");
    for frame in gone.iter().skip(5) {
        let (labels, reused) = frame.labels.unwrap();
        assert_eq!(reused, labels != frame.pts, "{frame:?}");
        assert!(frame.pts - labels <= gst::ClockTime::from_mseconds(200), "{frame:?}");
    }
}

#[test]
fn late_and_interval_change_while_playing() {
    let _alone = alone();
    let live = Live::start(element_of(2, |_| turn(150, Outcome::Fill(1))));
    live.wait(700);
    assert_eq!(stat(&live.element, "dropped"), 0);
    let left = live.gone().len();
    assert!(left >= 10, "{left} frames left with old labels");
    live.element.set_property("late", LateChoice::Drop);
    live.wait(600);
    assert!(stat(&live.element, "dropped") >= 10);
    live.element.set_property("late", LateChoice::Wait);
    live.wait(200);
    let fresh_from = live.gone().len();
    live.wait(700);
    let gone = live.gone();
    assert!(gone.len() > fresh_from, "nothing left");
    assert!(gone[fresh_from..].iter().all(|frame| frame.labels == Some((frame.pts, false))), "{gone:?}");
    live.element.set_property("late", LateChoice::Reuse);
    live.element.set_property("interval", 1000u32);
    live.wait(300);
    let inferred = stat(&live.element, "inferred");
    live.wait(500);
    assert_eq!(stat(&live.element, "inferred"), inferred);
    let gone = live.stop();
    assert!(gone.last().unwrap().labels.unwrap().1);
}

/// Says downstream that frames before `earliest` milliseconds are too late.
fn ask_for_later(rig: &Rig, earliest: u64) {
    let diff = i64::try_from(earliest * 1_000_000 / 2).unwrap();
    let qos = gst::event::Qos::builder(gst::QOSType::Underflow, 0.5, diff).timestamp(gst::ClockTime::ZERO);
    assert!(rig.src.pad.push_event(qos.build()));
}

#[test]
fn quality_of_service_skips_inference() {
    let rig = Rig::file(element_of(2, |_| turn(0, Outcome::GreenOver16)));
    rig.start("25/1");
    rig.push(0).unwrap();
    rig.src.wait_frames(1);
    // Frames 1 to 9 are before 400 ms.
    ask_for_later(&rig, 400);
    for n in 1..12 {
        rig.push(n).unwrap();
    }
    for (n, frame) in (0..).zip(rig.src.wait_frames(12)) {
        let meta = meta(&frame).unwrap();
        let reused = (1..10).contains(&n);
        let of = if reused { 0 } else { n };
        assert_eq!(meta.reused, reused, "frame {n}");
        assert_eq!(meta.labels_pts, Some(of * gst::ClockTime::from_mseconds(40)), "frame {n}");
        assert_eq!(meta.mask.map_readable().unwrap()[0], class_of(of), "frame {n}");
    }
    assert_eq!((rig.stat("inferred"), rig.stat("reused"), rig.stat("dropped")), (3, 9, 0));
}

#[test]
fn quality_of_service_drops_where_late_frames_are_dropped() {
    let element = element_of(2, |_| turn(0, Outcome::Fill(1)));
    element.set_property("late", LateChoice::Drop);
    let rig = Rig::file(element);
    rig.start("25/1");
    rig.push(0).unwrap();
    rig.src.wait_frames(1);
    ask_for_later(&rig, 200);
    for n in 1..7 {
        rig.push(n).unwrap();
    }
    let left: Vec<_> = rig.src.wait_frames(3).iter().map(|frame| frame.pts().unwrap().mseconds()).collect();
    assert_eq!(left, [0, 200, 240]);
    assert_eq!(rig.stat("dropped"), 4);
    for (n, dropped) in (1..5).zip(1..) {
        let message = rig.wait_message(gst::MessageType::Qos);
        let gst::MessageView::Qos(qos) = message.view() else { unreachable!() };
        let time = Some(n * gst::ClockTime::from_mseconds(40));
        assert_eq!(qos.get(), (false, time, time, time, Some(gst::ClockTime::from_mseconds(40))));
        assert_eq!(qos.stats().1, gst::GenericFormattedValue::from(gst::format::Buffers::from_u64(dropped)));
    }
}

#[test]
fn quality_of_service_is_not_heeded_where_frames_wait() {
    let element = element_of(2, |_| turn(0, Outcome::Fill(1)));
    element.set_property("late", LateChoice::Wait);
    let rig = Rig::file(element);
    rig.start("25/1");
    rig.push(0).unwrap();
    rig.src.wait_frames(1);
    ask_for_later(&rig, 1000);
    for n in 1..5 {
        rig.push(n).unwrap();
    }
    assert!(rig.src.wait_frames(5).iter().all(|frame| !meta(frame).unwrap().reused));
}

#[test]
fn live_frames_without_timestamps_do_not_wait_for_the_engine_either() {
    let _alone = alone();
    let element = element_of(2, |_| turn(2000, Outcome::Fill(1)));
    let pipeline = gst::Pipeline::new();
    let source = gst::ElementFactory::make("videotestsrc").property("is-live", true).build().unwrap();
    let sink = gst::ElementFactory::make("fakesink").build().unwrap();
    pipeline.add_many([&source, element.upcast_ref(), &sink]).unwrap();
    gst::Element::link_many([&source, element.upcast_ref(), &sink]).unwrap();
    element.static_pad("sink").unwrap().add_probe(gst::PadProbeType::BUFFER, |_, info| {
        let buffer = info.buffer_mut().unwrap().make_mut();
        buffer.set_pts(None);
        buffer.set_dts(None);
        gst::PadProbeReturn::Ok
    });
    pipeline.set_state(gst::State::Playing).unwrap();
    std::thread::sleep(Duration::from_millis(1500));
    let (frames, reused) = (stat(&element, "frames"), stat(&element, "reused"));
    pipeline.set_state(gst::State::Null).unwrap();
    // One or two wait for the engine's first frame; the rest, 30 a second, have left.
    assert!(frames >= 20 && reused + 8 >= frames, "{reused} of {frames} frames left");
}
