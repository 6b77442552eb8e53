//! Flushes and seeks: what is in flight goes, what must stay stays, and the stream goes on.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gst::prelude::*;
use sapiens_model::engine::fake::Outcome;

use crate::bare::{LIMIT, Rig, Seen, buffers, error_on, frame, in_time, rgb, segment, sized_frame, time};
use crate::common::{element_of, turn};

fn flush(rig: &Rig) {
    assert!(rig.event(gst::event::FlushStart::new()));
    assert!(rig.event(gst::event::FlushStop::new(true)));
}

#[test]
fn a_flush_with_all_slots_full_empties_them_and_the_stream_goes_on() {
    let rig = Rig::new(element_of(2, |_| turn(100, Outcome::GreenOver16)));
    rig.begin(&rgb(16, 8));
    let source = rig.source.clone();
    let pusher = std::thread::spawn(move || (0..20).map(frame).find_map(|buffer| source.push(buffer).err()));
    while rig.element.property::<gst::Structure>("stats").get::<u64>("queued") != Ok(2) {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(rig.event(gst::event::FlushStart::new()));
    let (refused, took) = in_time("the waiting frame", LIMIT, move || pusher.join().unwrap());
    assert_eq!(refused, Some(gst::FlowError::Flushing));
    assert!(took < Duration::from_millis(80), "the flush waited for inference: {took:?}");
    assert!(rig.event(gst::event::FlushStop::new(true)));
    rig.forget();
    assert!(rig.event(segment()));
    for number in 7..10 {
        rig.push(frame(number)).unwrap();
    }
    assert!(rig.event(gst::event::Eos::new()));
    let times: Vec<_> = buffers(&rig.wait_eos()).iter().map(|buffer| buffer.pts().unwrap()).collect();
    assert_eq!(times, [time(7), time(8), time(9)]);
}

#[test]
fn a_flush_gives_every_buffer_back_before_it_ends() {
    let rig = Rig::new(element_of(2, |_| turn(100, Outcome::Fill(1))));
    rig.begin(&rgb(16, 8));
    let buffers = [frame(0), frame(1)];
    for buffer in &buffers {
        rig.push(buffer.clone()).unwrap();
    }
    flush(&rig);
    for mut buffer in buffers {
        assert!(buffer.get_mut().is_some(), "the element still holds a frame");
    }
}

#[test]
fn caps_and_tags_in_flight_outlive_a_flush() {
    let rig = Rig::new(element_of(2, |_| turn(100, Outcome::Fill(1))));
    rig.begin(&rgb(16, 8));
    rig.push(frame(0)).unwrap();
    // Behind a frame in flight: they don't get downstream before the flush.
    assert!(rig.event(gst::event::Caps::new(&rgb(32, 4))));
    let mut tags = gst::TagList::new();
    tags.get_mut().unwrap().add::<gst::tags::Title>(&"kept", gst::TagMergeMode::Replace);
    assert!(rig.event(gst::event::Tag::new(tags)));
    flush(&rig);
    assert!(rig.event(segment()));
    rig.push(sized_frame(1, 32, 4)).unwrap();
    let seen = rig.wait("the frame", |seen| !buffers(seen).is_empty());
    let Some(Seen::Buffer(buffer, caps)) = seen.last() else { panic!("{seen:?}") };
    assert_eq!((buffer.pts(), caps.clone()), (Some(time(1)), Some(rgb(32, 4))));
    let tag = rig.sink.sticky_event::<gst::event::Tag>(0).expect("the tag is lost");
    assert_eq!(tag.tag().get::<gst::tags::Title>().unwrap().get(), "kept");
}

#[test]
fn a_storm_of_flushes_while_frames_flow() {
    let rig = Rig::new(element_of(2, |number| turn(number as u64 % 3, Outcome::GreenOver16)));
    rig.begin(&rgb(16, 8));
    let over = Arc::new(AtomicBool::new(false));
    // No frame between the end of a flush and the segment that must follow.
    let turn = Arc::new(Mutex::new(()));
    let pusher = {
        let (source, over, turn) = (rig.source.clone(), over.clone(), turn.clone());
        std::thread::spawn(move || {
            let mut pushed = 0;
            while !over.load(Ordering::SeqCst) {
                let guard = turn.lock().unwrap();
                match source.push(frame(pushed)) {
                    Ok(_) => pushed += 1,
                    Err(gst::FlowError::Flushing) => {
                        drop(guard);
                        std::thread::yield_now();
                    }
                    Err(error) => panic!("{error}"),
                }
            }
            pushed
        })
    };
    for round in 0..200 {
        assert!(rig.event(gst::event::FlushStart::new()));
        let guard = turn.lock().unwrap();
        assert!(rig.event(gst::event::FlushStop::new(true)));
        assert!(rig.event(segment()));
        drop(guard);
        std::thread::sleep(Duration::from_millis(round % 5));
    }
    over.store(true, Ordering::SeqCst);
    let (pushed, _) = in_time("the pusher", LIMIT, move || pusher.join().unwrap());
    println!("{pushed} frames through 200 flushes");
    flush(&rig);
    rig.forget();
    assert!(rig.event(segment()));
    for number in 0..5 {
        rig.push(frame(number)).unwrap();
    }
    assert!(rig.event(gst::event::Eos::new()));
    assert_eq!(buffers(&rig.wait_eos()).len(), 5);
    assert!(!rig.has_error());
}

/// Seeks while it is paused and while it plays: each time the next frame is the one asked for.
fn seek_about(pipeline: &gst::Pipeline, sink: &gst_app::AppSink) {
    let bus = pipeline.bus().unwrap();
    let settle = || {
        pipeline.state(gst::ClockTime::from_seconds(10)).0.unwrap_or_else(|error| {
            panic!("{error}: {:?}", error_on(&bus));
        })
    };
    pipeline.set_state(gst::State::Paused).unwrap();
    settle();
    for (round, to) in [1500, 300, 2000, 0, 900, 1700].into_iter().enumerate() {
        let to = gst::ClockTime::from_mseconds(to);
        if round == 3 {
            pipeline.set_state(gst::State::Playing).unwrap();
            settle();
        }
        pipeline.seek_simple(gst::SeekFlags::FLUSH | gst::SeekFlags::ACCURATE, to).unwrap();
        settle();
        let sample = if round < 3 {
            sink.try_pull_preroll(gst::ClockTime::from_seconds(10))
        } else {
            sink.try_pull_sample(gst::ClockTime::from_seconds(10))
        };
        let sample = sample.expect("no frame after the seek");
        let pts = sample.buffer().unwrap().pts().unwrap();
        let span = gst::ClockTime::from_mseconds(34);
        assert!(pts + span > to && pts <= to + span, "asked for {to}, got {pts}");
    }
    // To the end, every frame once.
    pipeline
        .seek_simple(gst::SeekFlags::FLUSH | gst::SeekFlags::ACCURATE, gst::ClockTime::from_seconds(2))
        .unwrap();
    let mut last = None;
    let mut count = 0;
    while let Some(sample) = sink.try_pull_sample(gst::ClockTime::from_seconds(10)) {
        let pts = sample.buffer().unwrap().pts();
        assert!(last < pts, "{last:?} before {pts:?}");
        last = pts;
        count += 1;
    }
    assert!(sink.is_eos());
    assert_eq!(count, 30, "frames of the third second");
    // A storm from several threads.
    std::thread::scope(|scope| {
        for thread in 0..3 {
            scope.spawn(move || {
                for round in 0..20 {
                    let to = gst::ClockTime::from_mseconds((thread * 700 + round * 131) % 2900);
                    let _ = pipeline.seek_simple(gst::SeekFlags::FLUSH, to);
                    std::thread::sleep(Duration::from_millis(round % 4));
                }
            });
        }
    });
    pipeline.seek_simple(gst::SeekFlags::FLUSH, gst::ClockTime::from_mseconds(100)).unwrap();
    assert!(sink.try_pull_sample(gst::ClockTime::from_seconds(10)).is_some(), "no frame after the storm");
    assert!(bus.pop_filtered(&[gst::MessageType::Error]).is_none());
    pipeline.set_state(gst::State::Null).unwrap();
}

fn with_element(source: &str) -> (gst::Pipeline, gst_app::AppSink) {
    let element = element_of(2, |_| turn(1, Outcome::GreenOver16));
    let text = format!("{source} ! queue max-size-buffers=3 name=last");
    let pipeline = gst::parse::launch(&text).unwrap().downcast::<gst::Pipeline>().unwrap();
    let sink = gst_app::AppSink::builder().sync(false).max_buffers(2).build();
    pipeline.add_many([element.upcast_ref::<gst::Element>(), sink.upcast_ref()]).unwrap();
    let last = pipeline.by_name("last").unwrap();
    gst::Element::link_many([&last, element.upcast_ref(), sink.upcast_ref()]).unwrap();
    (pipeline, sink)
}

#[test]
fn seeks_in_a_file() {
    crate::common::init();
    let folder = std::env::temp_dir().join(format!("sapiensseg-seek-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("clip.avi");
    let write = format!(
        "videotestsrc num-buffers=90 ! video/x-raw,format=I420,width=64,height=48,framerate=30/1 ! jpegenc ! avimux ! filesink location={}",
        file.display()
    );
    let writer = gst::parse::launch(&write).unwrap();
    writer.set_state(gst::State::Playing).unwrap();
    let ended = writer.bus().unwrap().timed_pop_filtered(
        gst::ClockTime::from_seconds(10),
        &[gst::MessageType::Eos, gst::MessageType::Error],
    );
    assert_eq!(ended.unwrap().type_(), gst::MessageType::Eos);
    writer.set_state(gst::State::Null).unwrap();
    let (pipeline, sink) =
        with_element(&format!("filesrc location={} ! avidemux ! jpegdec ! videoconvert", file.display()));
    seek_about(&pipeline, &sink);
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn seeks_in_a_test_source() {
    crate::common::init();
    let (pipeline, sink) = with_element(
        "videotestsrc num-buffers=90 ! video/x-raw,format=NV12,width=64,height=48,framerate=30/1",
    );
    // num-buffers counts anew after each seek, so that the end has to be said.
    pipeline.set_state(gst::State::Paused).unwrap();
    pipeline.state(gst::ClockTime::from_seconds(10)).0.unwrap();
    for to in [500, 100, 2500] {
        let to = gst::ClockTime::from_mseconds(to);
        pipeline.seek_simple(gst::SeekFlags::FLUSH, to).unwrap();
        pipeline.state(gst::ClockTime::from_seconds(10)).0.unwrap();
        let sample = sink.try_pull_preroll(gst::ClockTime::from_seconds(10)).unwrap();
        let pts = sample.buffer().unwrap().pts().unwrap();
        assert!(pts.absdiff(to) < gst::ClockTime::from_mseconds(34), "asked for {to}, got {pts}");
    }
    pipeline.set_state(gst::State::Null).unwrap();
}
