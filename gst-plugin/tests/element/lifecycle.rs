//! States: start, preroll, play, stop, again; what is in flight when it ends; a long run.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use gst::prelude::*;
use gstsapiensseg::{OutputChoice, SapiensSegMeta};
use sapiens_model::engine::fake::Outcome;

use crate::bare::{LIMIT, Rig, buffers, error_on, frame, in_time, rgb, segment, sized_frame, time};
use crate::common::{element_of, green_element, turn};

const RGB: &str = "video/x-raw,format=RGB,width=32,height=16,framerate=30/1";

/// `videotestsrc ! element ! appsink`, with what is in between as given.
fn pipeline(
    element: &gstsapiensseg::SapiensSeg,
    frames: i32,
    sync: bool,
) -> (gst::Pipeline, gst_app::AppSink) {
    let pipeline = gst::Pipeline::new();
    let source = gst::ElementFactory::make("videotestsrc").property("num-buffers", frames).build().unwrap();
    let filter = gst::ElementFactory::make("capsfilter")
        .property("caps", RGB.parse::<gst::Caps>().unwrap())
        .build()
        .unwrap();
    let sink = gst_app::AppSink::builder().sync(sync).build();
    pipeline.add_many([&source, &filter, element.upcast_ref(), sink.upcast_ref()]).unwrap();
    gst::Element::link_many([&source, &filter, element.upcast_ref(), sink.upcast_ref()]).unwrap();
    (pipeline, sink)
}

fn wait_for(pipeline: &gst::Pipeline, state: gst::State) {
    let (changed, now, _) = pipeline.state(gst::ClockTime::from_seconds(LIMIT.as_secs()));
    changed.unwrap();
    assert_eq!(now, state);
}

#[test]
fn a_hundred_times_null_to_playing_and_back() {
    let element = element_of(2, |_| turn(1, Outcome::GreenOver16));
    let (pipeline, sink) = pipeline(&element, -1, false);
    let start = Instant::now();
    for round in 0..100 {
        pipeline.set_state(gst::State::Playing).unwrap();
        // Every other time before anything has come through.
        if round % 2 == 0 {
            for _ in 0..3 {
                assert!(sink.pull_sample().is_ok());
            }
        }
        pipeline.set_state(gst::State::Null).unwrap();
        assert!(pipeline.bus().unwrap().pop_filtered(&[gst::MessageType::Error]).is_none());
    }
    println!("100 times NULL <-> PLAYING: {:?}", start.elapsed());
}

#[test]
fn stopping_in_mid_inference_is_bounded_and_gives_buffers_back() {
    // Two slots of 300 ms each: both have to end.
    let rig = Rig::new(element_of(2, |_| turn(300, Outcome::Fill(1))));
    rig.begin(&rgb(16, 8));
    let given_back = Arc::new(AtomicUsize::new(0));
    struct Lent(Vec<u8>, Arc<AtomicUsize>);
    impl AsMut<[u8]> for Lent {
        fn as_mut(&mut self) -> &mut [u8] {
            &mut self.0
        }
    }
    impl AsRef<[u8]> for Lent {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }
    impl Drop for Lent {
        fn drop(&mut self) {
            self.1.fetch_add(1, Ordering::SeqCst);
        }
    }
    for _ in 0..2 {
        rig.push(gst::Buffer::from_mut_slice(Lent(vec![0; 16 * 8 * 3], given_back.clone()))).unwrap();
    }
    let element = rig.element.clone();
    let (_, took) = in_time("stop", LIMIT, move || element.set_state(gst::State::Null).unwrap());
    assert!(took < Duration::from_millis(1500), "took {took:?}");
    assert_eq!(given_back.load(Ordering::SeqCst), 2, "buffers that came back");
    println!("stopped in mid-inference in {took:?}");
}

#[test]
fn playing_to_paused_and_back_keeps_every_frame() {
    let element = element_of(2, |_| turn(1, Outcome::GreenOver16));
    let (pipeline, sink) = pipeline(&element, 300, false);
    // An appsink that hasn't been started says that it is at the end.
    pipeline.set_state(gst::State::Playing).unwrap();
    let states = pipeline.clone();
    let toggler = std::thread::spawn(move || {
        for _ in 0..10 {
            states.set_state(gst::State::Playing).unwrap();
            std::thread::sleep(Duration::from_millis(10));
            states.set_state(gst::State::Paused).unwrap();
            std::thread::sleep(Duration::from_millis(5));
        }
        states.set_state(gst::State::Playing).unwrap();
    });
    let mut times = Vec::new();
    while let Some(sample) = sink.try_pull_sample(gst::ClockTime::from_seconds(10)) {
        times.push(sample.buffer().unwrap().pts());
    }
    assert!(sink.is_eos(), "ended without end of stream after {} frames", times.len());
    toggler.join().unwrap();
    assert_eq!(times.len(), 300);
    assert!(times.is_sorted());
    pipeline.set_state(gst::State::Null).unwrap();
}

#[test]
fn a_single_still_prerolls_and_comes_out_without_another() {
    // Nothing follows it, not even the end of the stream.
    let rig = Rig::new(green_element());
    rig.begin(&rgb(16, 8));
    rig.push(frame(5)).unwrap();
    let out = rig.wait_buffers(1);
    let meta = SapiensSegMeta::from_buffer(&out[0]).unwrap();
    assert!(meta.mask.map_readable().unwrap().iter().all(|&label| label == 5));

    let (pipeline, sink) = pipeline(&green_element(), 1, true);
    pipeline.set_state(gst::State::Paused).unwrap();
    wait_for(&pipeline, gst::State::Paused);
    assert!(sink.pull_preroll().is_ok());
    pipeline.set_state(gst::State::Playing).unwrap();
    assert!(sink.pull_sample().is_ok());
    assert!(sink.pull_sample().is_err() && sink.is_eos());
    pipeline.set_state(gst::State::Null).unwrap();
}

#[test]
fn an_image_that_is_repeated_prerolls_and_plays() {
    let element = green_element();
    let pipeline = gst::Pipeline::new();
    let source = gst::ElementFactory::make("videotestsrc").property("num-buffers", 1).build().unwrap();
    let freeze = gst::ElementFactory::make("imagefreeze").property("num-buffers", 5).build().unwrap();
    let sink = gst_app::AppSink::builder().sync(false).build();
    let chain = [&source, &freeze, element.upcast_ref(), sink.upcast_ref()];
    pipeline.add_many(chain).unwrap();
    gst::Element::link_many(chain).unwrap();
    pipeline.set_state(gst::State::Playing).unwrap();
    let frames = std::iter::from_fn(|| sink.pull_sample().ok()).count();
    assert_eq!(frames, 5);
    pipeline.set_state(gst::State::Null).unwrap();
}

#[test]
fn the_element_is_reused_after_an_error() {
    // The script starts over with each start: the second frame always fails.
    let element = element_of(2, |number| {
        turn(0, if number == 1 { Outcome::Fail("planted".to_owned()) } else { Outcome::Fill(3) })
    });
    let (pipeline, sink) = pipeline(&element, -1, false);
    for _ in 0..5 {
        pipeline.set_state(gst::State::Playing).unwrap();
        let error = error_on(&pipeline.bus().unwrap()).unwrap();
        assert!(error.contains("planted"), "{error}");
        pipeline.set_state(gst::State::Null).unwrap();
        pipeline.bus().unwrap().set_flushing(true);
        pipeline.bus().unwrap().set_flushing(false);
    }
    element.set_segmenter(|| {
        let script = |_| turn(0, Outcome::Fill(3));
        let engine = sapiens_model::engine::fake::engine(2, Box::new(script))?;
        Ok(sapiens_model::Segmenter::with_engine(
            sapiens_model::ModelCard::of(sapiens_model::Variant::Sapiens1b),
            engine,
        ))
    });
    pipeline.set_state(gst::State::Playing).unwrap();
    for _ in 0..10 {
        assert!(sink.pull_sample().is_ok());
    }
    pipeline.set_state(gst::State::Null).unwrap();
}

#[test]
fn pads_that_are_deactivated_and_activated_go_on() {
    let rig = Rig::new(green_element());
    rig.begin(&rgb(16, 8));
    rig.push(frame(0)).unwrap();
    rig.wait_buffers(1);
    for name in ["src", "sink"] {
        let pad = rig.element.static_pad(name).unwrap();
        pad.set_active(false).unwrap();
        assert!(rig.push(frame(1)).is_err());
        pad.set_active(true).unwrap();
        rig.forget();
        rig.begin(&rgb(16, 8));
        rig.push(frame(2)).unwrap();
        assert_eq!(rig.wait_buffers(1)[0].pts(), Some(time(2)));
    }
}

#[test]
fn stopping_and_starting_while_frames_queries_and_flushes_come() {
    let rig = Rig::new(element_of(2, |number| turn(number as u64 % 3, Outcome::GreenOver16)));
    let over = Arc::new(AtomicBool::new(false));
    let spawn = |mut work: Box<dyn FnMut(u64) + Send>| {
        let over = over.clone();
        std::thread::spawn(move || {
            (0..).take_while(|_| !over.load(Ordering::SeqCst)).for_each(|round| {
                work(round);
                std::thread::sleep(Duration::from_micros(round * 37 % 700));
            });
        })
    };
    rig.begin(&rgb(16, 8));
    let (frames, queries, flushes) = (rig.source.clone(), rig.source.clone(), rig.source.clone());
    let threads = [
        // What comes of it is chance, but that it comes back is not.
        spawn(Box::new(move |round| {
            let _ = frames.push(frame(round));
        })),
        spawn(Box::new(move |_| {
            queries.peer_query(&mut gst::query::Drain::new());
        })),
        spawn(Box::new(move |_| {
            flushes.push_event(gst::event::FlushStart::new());
            flushes.push_event(gst::event::FlushStop::new(true));
            flushes.push_event(segment());
        })),
    ];
    for round in 0..60 {
        std::thread::sleep(Duration::from_millis(round % 7));
        let element = rig.element.clone();
        in_time("stop and start", LIMIT, move || {
            element.set_state(gst::State::Ready).unwrap();
            element.set_state(gst::State::Playing).unwrap();
        });
    }
    over.store(true, Ordering::SeqCst);
    in_time("the threads", LIMIT, || threads.map(|thread| thread.join().unwrap()));
    rig.stop();
    rig.play();
    rig.forget();
    rig.begin(&rgb(16, 8));
    rig.push(frame(3)).unwrap();
    assert_eq!(rig.wait_buffers(1)[0].pts(), Some(time(3)));
}

#[test]
fn every_property_set_while_playing() {
    let element = element_of(2, |_| turn(1, Outcome::GreenOver16));
    element.set_property("output", OutputChoice::Overlay);
    let (pipeline, sink) = pipeline(&element, 400, false);
    let bus = pipeline.bus().unwrap();
    // A handler that reads and sets properties where a warning is posted must not wait for itself.
    let handled = element.clone();
    bus.set_sync_handler(move |_, message| {
        if message.type_() == gst::MessageType::Warning {
            let _ = handled.property::<Option<String>>("classes");
            handled.set_property("opacity", 0.25);
        }
        gst::BusSyncReply::Pass
    });
    pipeline.set_state(gst::State::Playing).unwrap();
    let puller = std::thread::spawn(move || {
        let mut frames = 0;
        while sink.pull_sample().is_ok() {
            frames += 1;
        }
        frames
    });
    let mut warnings = 0;
    while !puller.is_finished() {
        for spec in element.list_properties() {
            if spec.owner_type() != gstsapiensseg::SapiensSeg::static_type() {
                continue;
            }
            let _ = element.property_value(spec.name());
            if spec.flags().contains(glib::ParamFlags::WRITABLE) {
                element.set_property_from_value(spec.name(), spec.default_value());
            }
        }
        element.set_property("classes", "Hair, 3");
        element.set_property("interval", 3_u32);
        element.set_property("opacity", 1.0);
        element.set_property_from_str("late", "drop");
        element.set_property("post-messages", true);
        element.set_property("classes", "Hair,Tentacle");
        let kept = element.property::<Option<String>>("classes");
        assert_eq!(kept.as_deref(), Some("Hair, 3"), "the old value is to be kept");
        while let Some(message) = bus.pop_filtered(&[gst::MessageType::Warning, gst::MessageType::Error]) {
            let gst::MessageView::Warning(warning) = message.view() else { panic!("{message:?}") };
            assert!(warning.error().to_string().contains("Tentacle"), "{warning:?}");
            warnings += 1;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(puller.join().unwrap(), 400, "frames out");
    assert!(warnings > 0);
    pipeline.set_state(gst::State::Null).unwrap();
}

#[test]
fn interval_infers_every_third_frame_and_reuses_between() {
    let inferred = Arc::new(AtomicUsize::new(0));
    let counter = inferred.clone();
    let element = element_of(2, move |_| {
        counter.fetch_add(1, Ordering::SeqCst);
        turn(2, Outcome::GreenOver16)
    });
    element.set_property("interval", 3_u32);
    let rig = Rig::new(element);
    rig.begin(&rgb(16, 8));
    for number in 0..12 {
        rig.push(frame(number)).unwrap();
    }
    rig.source.push_event(gst::event::Eos::new());
    for (number, buffer) in (0..).zip(buffers(&rig.wait_eos())) {
        let meta = SapiensSegMeta::from_buffer(&buffer).unwrap();
        let from = number / 3 * 3;
        assert_eq!(buffer.pts(), Some(time(number)));
        assert_eq!(meta.reused, number != from, "frame {number}");
        assert_eq!(meta.labels_pts, Some(time(from)), "frame {number}");
        assert!(meta.mask.map_readable().unwrap().iter().all(|&label| u64::from(label) == from));
    }
    assert_eq!(inferred.load(Ordering::SeqCst), 4);
    let stats = rig.element.property::<gst::Structure>("stats");
    assert_eq!(stats.get::<u64>("frames"), Ok(12));
    assert_eq!(stats.get::<u64>("inferred"), Ok(4));
    assert_eq!(stats.get::<u64>("reused"), Ok(8));
}

/// Set in the process that the test below runs itself in, so that no other test's memory is counted.
const ALONE: &str = "SAPIENSSEG_TEST_ALONE";

#[test]
fn ten_thousand_frames_in_flat_memory() {
    if std::env::var_os(ALONE).is_none() {
        let mut alone = std::process::Command::new(std::env::current_exe().unwrap());
        alone.args(["--exact", "lifecycle::ten_thousand_frames_in_flat_memory", "--nocapture"]);
        let output = alone.env(ALONE, "1").output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        println!("{said}");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(said.contains("1 passed"), "the test is called something else now");
        return;
    }
    fn resident_kib() -> usize {
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
        statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4
    }
    let element = green_element();
    element.set_property("output", OutputChoice::Overlay);
    let rig = Rig::new(element);
    rig.begin(&rgb(320, 240));
    let start = Instant::now();
    let (mut early, mut out) = (0, 0);
    for number in 0..10_000 {
        rig.push(sized_frame(number, 320, 240)).unwrap();
        if number % 100 == 99 {
            // What the rig holds is not the element's.
            let seen = rig.wait_buffers(100);
            for (place, buffer) in (number - 99..).zip(&seen) {
                assert_eq!(buffer.pts(), Some(time(place)));
            }
            out += seen.len();
            rig.forget();
        }
        if number == 1_000 {
            early = resident_kib();
        }
    }
    let late = resident_kib();
    println!("10,000 frames in {:?}: {early} KiB after 1,000, {late} KiB after 10,000", start.elapsed());
    assert_eq!(out, 10_000);
    // Allocators keep some; a kilobyte leaked per frame would be more.
    assert!(late < early + 8 * 1024, "memory grew from {early} to {late} KiB");
}
