//! What goes wrong: downstream, in the engine, at the start.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use gst::prelude::*;
use gstsapiensseg::SapiensSeg;
use sapiens_model::engine::fake::Outcome;
use sapiens_model::{Backend, ModelCard, Segmenter, Variant};

use crate::bare::{
    Flow, LIMIT, Rig, Seen, buffers, described, error_on, frame, in_time, rgb, segment, sized_frame, time,
};
use crate::common::{element_of, green_element, init, turn};

const FLOWS: [gst::FlowError; 5] = [
    gst::FlowError::Eos,
    gst::FlowError::NotLinked,
    gst::FlowError::NotNegotiated,
    gst::FlowError::Error,
    gst::FlowError::CustomError,
];

/// Pushes frames from `first` on until one is refused.
fn push_until_refused(rig: &Rig, first: u64) -> Option<gst::FlowError> {
    let start = Instant::now();
    (first..).map(frame).take_while(|_| start.elapsed() < LIMIT).find_map(|buffer| {
        std::thread::sleep(Duration::from_millis(1));
        rig.push(buffer).err()
    })
}

fn has_ended(seen: &[Seen]) -> bool {
    seen.iter().any(|seen| matches!(seen, Seen::Event(event) if event.type_() == gst::EventType::Eos))
}

#[test]
fn what_downstream_answers_comes_back_upstream() {
    for flow in FLOWS {
        let rig = Rig::new(green_element());
        rig.answer(move |number| if number < 3 { Ok(gst::FlowSuccess::Ok) } else { Err(flow) });
        rig.begin(&rgb(16, 8));
        assert_eq!(push_until_refused(&rig, 0), Some(flow));
        assert_eq!(rig.push(frame(0)), Err(flow), "it stays so");
        assert_eq!(buffers(&rig.seen()).len(), 4);
        assert!(!rig.has_error(), "upstream knows: it's upstream's to report");
        // The end of the stream still gets through.
        assert!(rig.event(gst::event::Eos::new()));
        rig.wait("the end", has_ended);
        assert!(!rig.has_error());
        // A flush makes it forget.
        rig.answer(|_| Ok(gst::FlowSuccess::Ok));
        assert!(rig.event(gst::event::FlushStart::new()));
        assert!(rig.event(gst::event::FlushStop::new(true)));
        assert!(rig.event(segment()));
        rig.push(frame(1)).unwrap();
        rig.wait_buffers(5);
    }
}

#[test]
fn a_src_pad_that_is_linked_later_works_and_gets_what_it_missed() {
    let rig = Rig::unlinked(element_of(2, |_| turn(20, Outcome::GreenOver16)));
    rig.begin(&rgb(16, 8));
    // In the queue behind the frame that finds nobody: these must not get lost with it.
    rig.push(frame(0)).unwrap();
    assert!(rig.event(gst::event::Caps::new(&rgb(32, 4))));
    let mut tags = gst::TagList::new();
    tags.get_mut().unwrap().add::<gst::tags::Title>(&"kept", gst::TagMergeMode::Replace);
    assert!(rig.event(gst::event::Tag::new(tags)));
    let start = Instant::now();
    let refused = std::iter::from_fn(|| Some(rig.push(sized_frame(1, 32, 4))))
        .take_while(|_| start.elapsed() < LIMIT)
        .find_map(Result::err);
    assert_eq!(refused, Some(gst::FlowError::NotLinked));
    // And one that comes while nobody takes anything.
    let mut later = gst::FormattedSegment::<gst::ClockTime>::new();
    later.set_start(time(1));
    assert!(rig.event(gst::event::Segment::new(&later)));
    rig.link_sink();
    rig.push(sized_frame(2, 32, 4)).unwrap();
    let seen = rig.wait("the frame", |seen| !buffers(seen).is_empty());
    let Some(Seen::Buffer(buffer, caps)) = seen.last() else { panic!("{seen:?}") };
    assert_eq!((buffer.pts(), caps.clone()), (Some(time(2)), Some(rgb(32, 4))));
    assert!(rig.sink.sticky_event::<gst::event::Tag>(0).is_some(), "{:?}", described(&seen));
    let segment = rig.sink.sticky_event::<gst::event::Segment>(0).unwrap();
    assert_eq!(segment.segment().downcast_ref::<gst::ClockTime>().unwrap().start(), Some(time(1)));
    assert!(!rig.has_error());
}

#[test]
fn linking_and_unlinking_while_frames_flow_never_stalls() {
    let rig = Rig::new(element_of(2, |_| turn(0, Outcome::Fill(1))));
    rig.begin(&rgb(16, 8));
    let over = Arc::new(AtomicBool::new(false));
    let (source, stop) = (rig.source.clone(), over.clone());
    let pusher = std::thread::spawn(move || {
        for number in 0.. {
            if stop.load(Ordering::SeqCst) {
                return;
            }
            match source.push(frame(number)) {
                Ok(_) | Err(gst::FlowError::NotLinked) => {}
                Err(error) => panic!("{error}"),
            }
        }
    });
    let src = rig.element.static_pad("src").unwrap();
    for round in 0..300 {
        src.unlink(&rig.sink).unwrap();
        std::thread::sleep(Duration::from_micros(round * 7 % 900));
        rig.forget();
        rig.link_sink();
        rig.wait("a frame after linking", |seen| !buffers(seen).is_empty());
    }
    over.store(true, Ordering::SeqCst);
    in_time("the pusher", LIMIT, move || pusher.join().unwrap());
}

#[test]
fn downstream_that_fails_after_the_end_upstream_is_reported_and_the_stream_ends() {
    for flow in FLOWS {
        let rig = Rig::new(element_of(2, |_| turn(20, Outcome::Fill(1))));
        rig.answer(move |_| Err(flow));
        rig.begin(&rgb(16, 8));
        for number in 0..2 {
            rig.push(frame(number)).unwrap();
        }
        // Before the first frame has left: nobody will push another.
        assert!(rig.event(gst::event::Eos::new()));
        assert!(buffers(&rig.seen()).is_empty());
        rig.wait("the end", has_ended);
        if flow == gst::FlowError::Eos {
            assert!(!rig.has_error());
        } else {
            assert!(rig.error().contains("takes no more"));
            assert!(!rig.has_error(), "one error is enough");
        }
    }
}

#[test]
fn an_end_of_stream_after_a_refusal_that_upstream_missed_is_reported() {
    let rig = Rig::new(green_element());
    rig.answer(|_| Err(gst::FlowError::Error));
    rig.begin(&rgb(16, 8));
    rig.push(frame(0)).unwrap();
    rig.wait_buffers(1);
    std::thread::sleep(Duration::from_millis(20));
    assert!(rig.event(gst::event::Eos::new()));
    rig.wait("the end", has_ended);
    assert!(rig.error().contains("takes no more"));
}

#[test]
fn downstream_that_had_enough_takes_the_next_segment() {
    let rig = Rig::new(green_element());
    rig.answer(|number| -> Flow {
        if number == 1 { Err(gst::FlowError::Eos) } else { Ok(gst::FlowSuccess::Ok) }
    });
    rig.begin(&rgb(16, 8));
    assert_eq!(push_until_refused(&rig, 0), Some(gst::FlowError::Eos));
    rig.forget();
    assert!(rig.event(segment()));
    rig.push(frame(9)).unwrap();
    let seen = rig.wait("the frame", |seen| !buffers(seen).is_empty());
    assert_eq!(buffers(&seen)[0].pts(), Some(time(9)));
}

#[test]
fn errors_and_panics_of_the_engine_are_errors_on_the_bus() {
    for panics in [false, true] {
        let element = element_of(2, move |number| {
            let text = "planted fault".to_owned();
            let fault = if panics { Outcome::Panic(text) } else { Outcome::Fail(text) };
            turn(1, if number == 2 { fault } else { Outcome::Fill(1) })
        });
        let rig = Rig::new(element);
        // The same element again: the script starts over.
        for _ in 0..2 {
            rig.forget();
            rig.begin(&rgb(16, 8));
            assert_eq!(push_until_refused(&rig, 0), Some(gst::FlowError::Error));
            let error = rig.error();
            println!("{error}");
            assert!(error.contains("planted fault"), "{error}");
            assert_eq!(buffers(&rig.seen()).len(), 2, "frames before the fault leave");
            rig.stop();
            rig.play();
        }
    }
}

#[test]
fn an_engine_that_fails_on_the_last_frame_ends_the_stream_with_one_error() {
    let rig = Rig::new(element_of(2, |_| turn(20, Outcome::Fail("planted fault".to_owned()))));
    rig.begin(&rgb(16, 8));
    rig.push(frame(0)).unwrap();
    assert!(rig.event(gst::event::Eos::new()));
    rig.wait("the end", has_ended);
    assert!(rig.error().contains("planted fault"));
    assert!(!rig.has_error(), "one error is enough");
}

#[test]
fn a_whole_pipeline_ends_with_the_engines_error() {
    let element = element_of(2, |number| {
        turn(1, if number == 5 { Outcome::Panic("planted fault".to_owned()) } else { Outcome::Fill(1) })
    });
    let text = "videotestsrc ! video/x-raw,format=NV12,width=32,height=16 ! queue name=last";
    let pipeline = gst::parse::launch(text).unwrap().downcast::<gst::Pipeline>().unwrap();
    let sink = gst::ElementFactory::make("fakesink").property("sync", false).build().unwrap();
    pipeline.add_many([element.upcast_ref(), &sink]).unwrap();
    let last = pipeline.by_name("last").unwrap();
    gst::Element::link_many([&last, element.upcast_ref(), &sink]).unwrap();
    pipeline.set_state(gst::State::Playing).unwrap();
    let error = error_on(&pipeline.bus().unwrap()).unwrap();
    assert!(error.contains("planted fault"), "{error}");
    in_time("stop", LIMIT, move || pipeline.set_state(gst::State::Null).unwrap());
}

/// A start that fails, and what the bus says.
fn failed_start(set: impl FnOnce(&SapiensSeg)) -> String {
    init();
    let element = gst::ElementFactory::make("sapiensseg").build().unwrap().downcast::<SapiensSeg>().unwrap();
    let bus = gst::Bus::new();
    element.set_bus(Some(&bus));
    set(&element);
    element.set_state(gst::State::Ready).unwrap();
    assert!(element.set_state(gst::State::Paused).is_err());
    let error = error_on(&bus).expect("no error on the bus");
    println!("{error}");
    assert!(error.lines().next().unwrap_or_default().len() > 20, "nothing said: {error}");
    element.set_state(gst::State::Null).unwrap();
    error
}

#[test]
fn a_start_that_fails_says_why() {
    let nowhere = "/nonexistent/weights.pt2";
    let missing = failed_start(|element| {
        element.set_property("weights", nowhere);
        element.set_property("license-accepted", true);
    });
    let licence = failed_start(|element| element.set_property("weights", nowhere));
    assert!(missing.contains(nowhere), "{missing}");
    assert!(licence.contains("license-accepted") || licence.contains(nowhere), "{licence}");
    let card = failed_start(|element| element.set_property("card", "/nonexistent/card.toml"));
    assert!(card.contains("/nonexistent/card.toml"), "{card}");
    let device = failed_start(|element| element.set_property("device", "toaster"));
    assert!(device.contains("toaster"), "{device}");
    let kernels = failed_start(|element| {
        element.set_property_from_str("backend", "kernels");
        element.set_property_from_str("device", "cuda:7");
    });
    assert!(kernels.contains("cuda") || kernels.contains("kernels"), "{kernels}");
    let size = failed_start(|element| element.set_property("input-size", "width=7,height=3"));
    assert!(size.contains("width=7"), "{size}");
    let classes = failed_start(|element| element.set_property("classes", "Tentacle"));
    assert!(classes.contains("Tentacle"), "{classes}");
    let folder = std::env::temp_dir().join(format!("sapiensseg-card-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("broken.toml");
    std::fs::write(&path, "classes = 5\n[[").unwrap();
    let broken = failed_start(|element| element.set_property("card", path.to_str().unwrap()));
    assert!(broken.contains("broken.toml"), "{broken}");
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_start_that_failed_can_be_tried_again() {
    let element = element_of(2, |_| turn(0, Outcome::Fill(1)));
    element.set_property("classes", "Tentacle");
    assert!(element.set_state(gst::State::Paused).is_err());
    element.set_state(gst::State::Null).unwrap();
    element.set_property("classes", "Hair");
    let rig = Rig::new(element);
    rig.begin(&rgb(16, 8));
    rig.push(frame(0)).unwrap();
    rig.wait_buffers(1);
}

/// Its results can't be waited for.
struct Broken;

impl sapiens_model::Engine for Broken {
    fn backend(&self) -> Backend {
        Backend::PORTABLE
    }

    fn depth(&self) -> usize {
        2
    }

    fn submit(&self, _slot: usize, _frame: Box<dyn sapiens_model::Frame>) -> sapiens_model::Result<()> {
        Ok(())
    }

    fn cancel(&self, _slot: usize) {}

    fn finish(&self, _slot: usize, _output: &mut sapiens_model::Output) -> sapiens_model::Result<()> {
        panic!("planted fault")
    }
}

#[test]
fn a_panic_of_the_thread_that_waits_is_an_error_and_the_element_still_stops() {
    let element = green_element();
    element.set_segmenter(|| Ok(Segmenter::with_engine(ModelCard::of(Variant::Sapiens1b), Box::new(Broken))));
    let rig = Rig::new(element);
    rig.begin(&rgb(16, 8));
    assert_eq!(push_until_refused(&rig, 0), Some(gst::FlowError::Error));
    // Either that, or that the slot is never free again: whichever thread is first.
    assert!(!rig.error().is_empty());
    in_time("stop", LIMIT, move || rig.stop());
}
