//! What travels keeps its place: frames, events, queries, caps.

use std::time::{Duration, Instant};

use gst::prelude::*;
use gstsapiensseg::{OutputChoice, SapiensSegMeta};
use sapiens_model::engine::fake::Outcome;

use crate::bare::{
    LIMIT, Rig, Seen, buffers, describe_buffer, describe_event, described, frame, in_time, rgb, segment, time,
};
use crate::common::{element_of, green_element, turn};

#[test]
fn all_frames_come_out_before_the_end_of_the_stream_in_order_and_once() {
    for count in [0, 1, 2, 20] {
        let rig = Rig::new(element_of(2, |number| turn(3 + number as u64 % 4, Outcome::GreenOver16)));
        rig.begin(&rgb(16, 8));
        for number in 0..count {
            rig.push(frame(number)).unwrap();
        }
        assert!(rig.event(gst::event::Eos::new()));
        let out = buffers(&rig.wait_eos());
        assert_eq!(out.len() as u64, count);
        for (number, buffer) in (0..).zip(&out) {
            assert_eq!(buffer.pts(), Some(time(number)));
            let mask = SapiensSegMeta::from_buffer(buffer).unwrap().mask;
            assert!(mask.map_readable().unwrap().iter().all(|&label| u64::from(label) == number % 16));
        }
        // And nothing after it.
        std::thread::sleep(Duration::from_millis(10));
        assert_eq!(buffers(&rig.seen()).len() as u64, count);
    }
}

#[test]
fn events_between_frames_in_flight_keep_their_place() {
    let rig = Rig::new(element_of(3, |number| turn(5 + number as u64 % 3 * 7, Outcome::GreenOver16)));
    let custom = |name: &str| gst::Structure::builder(name).field("n", 1).build();
    let tags = |title: &str| {
        let mut tags = gst::TagList::new();
        tags.get_mut().unwrap().add::<gst::tags::Title>(&title, gst::TagMergeMode::Replace);
        gst::event::Tag::new(tags)
    };
    let mut number = 0;
    let mut sent = Vec::new();
    let mut send = |events: Vec<gst::Event>| {
        for event in events {
            sent.push(describe_event(&event));
            assert!(rig.event(event));
        }
        for _ in 0..2 {
            let buffer = frame(number);
            number += 1;
            sent.push(describe_buffer(&buffer));
            rig.push(buffer).unwrap();
        }
    };
    let later = |from: u64| {
        let mut segment = gst::FormattedSegment::<gst::ClockTime>::new();
        segment.set_start(time(from));
        gst::event::Segment::new(&segment)
    };
    send(vec![gst::event::StreamStart::new("a"), gst::event::Caps::new(&rgb(16, 8)), segment()]);
    send(vec![gst::event::Gap::new(time(2), time(1))]);
    send(vec![tags("first")]);
    send(vec![gst::event::CustomDownstream::new(custom("passing"))]);
    send(vec![gst::event::CustomDownstreamSticky::new(custom("sticking"))]);
    send(vec![later(1), gst::event::Gap::builder(time(20)).build()]);
    // The same size seen at another shape of pixel, so that frames still fit.
    let mut caps = rgb(16, 8);
    caps.get_mut().unwrap().set("pixel-aspect-ratio", gst::Fraction::new(4, 3));
    send(vec![gst::event::Caps::new(&caps), tags("second"), later(2)]);
    let toc = gst::event::Toc::new(&gst::Toc::new(gst::TocScope::Global), false);
    send(vec![toc, gst::event::SegmentDone::new(time(3))]);
    send(vec![gst::event::StreamStart::new("b"), gst::event::Caps::new(&rgb(16, 8)), segment()]);
    let eos = gst::event::Eos::new();
    sent.push(describe_event(&eos));
    assert!(rig.event(eos));
    assert_eq!(described(&rig.wait_eos()), sent);
}

#[test]
fn events_out_of_band_overtake_frames() {
    let rig = Rig::new(element_of(2, |_| turn(1000, Outcome::Fill(1))));
    rig.begin(&rgb(16, 8));
    rig.push(frame(0)).unwrap();
    let urgent = gst::event::CustomDownstreamOob::new(gst::Structure::new_empty("urgent"));
    let description = describe_event(&urgent);
    let start = Instant::now();
    assert!(rig.event(urgent));
    assert!(start.elapsed() < Duration::from_millis(800));
    assert!(described(&rig.seen()).contains(&description));
    assert!(buffers(&rig.seen()).is_empty());
}

#[test]
fn a_stream_after_the_end_of_one_comes_through() {
    let rig = Rig::new(green_element());
    for _ in 0..3 {
        rig.forget();
        rig.begin(&rgb(16, 8));
        rig.push(frame(0)).unwrap();
        assert!(rig.event(gst::event::Eos::new()));
        let out: Vec<_> = rig.wait_eos().iter().map(|seen| matches!(seen, Seen::Buffer(..))).collect();
        assert_eq!(out, [false, false, false, true, false], "start, caps, segment, frame, end");
    }
}

#[test]
fn each_frame_leaves_with_its_own_caps_and_a_mask_of_its_own_size() {
    for output in [OutputChoice::Meta, OutputChoice::Overlay, OutputChoice::Mask] {
        let element = element_of(2, |_| turn(4, Outcome::GreenOver16));
        element.set_property("output", output);
        let rig = Rig::new(element);
        assert!(rig.event(gst::event::StreamStart::new("sizes")));
        let shapes = [("RGB", 16, 8), ("RGB", 32, 4), ("NV12", 32, 4), ("GRAY8", 8, 64), ("BGRA", 16, 8)];
        for number in 0..15_u64 {
            let (format, width, height) = shapes[number as usize / 2 % shapes.len()];
            let format = gst_video::VideoFormat::from_string(format);
            let info = gst_video::VideoInfo::builder(format, width, height).fps(30).build().unwrap();
            assert!(rig.event(gst::event::Caps::new(&info.to_caps().unwrap())));
            if number == 0 {
                assert!(rig.event(segment()));
            }
            let mut buffer = gst::Buffer::from_mut_slice(vec![0x30_u8; info.size()]);
            buffer.get_mut().unwrap().set_pts(time(number));
            rig.push(buffer).unwrap();
        }
        assert!(rig.event(gst::event::Eos::new()));
        let mut number = 0;
        for seen in rig.wait_eos() {
            let Seen::Buffer(buffer, caps) = seen else { continue };
            let (format, width, height) = shapes[number / 2 % shapes.len()];
            let caps = caps.unwrap();
            let info = gst_video::VideoInfo::from_caps(&caps).unwrap();
            let format = if output == OutputChoice::Mask { "GRAY8" } else { format };
            assert_eq!(
                (info.format().to_str().as_str(), info.width(), info.height()),
                (format, width, height)
            );
            let meta = SapiensSegMeta::from_buffer(&buffer).unwrap();
            assert_eq!((meta.width, meta.height), (width, height), "frame {number}, {output:?}");
            assert_eq!(meta.mask.size(), (width * height) as usize);
            assert!(buffer.size() >= info.size());
            number += 1;
        }
        assert_eq!(number, 15);
    }
}

#[test]
fn serialized_queries_are_answered_in_their_turn() {
    let queries: [fn() -> gst::Query; 2] =
        [|| gst::query::Allocation::new(Some(&rgb(16, 8)), true).into(), || gst::query::Drain::new().into()];
    let rig = Rig::new(element_of(2, |_| turn(30, Outcome::Fill(1))));
    rig.begin(&rgb(16, 8));
    let mut number = 0;
    for make in queries {
        for _ in 0..3 {
            rig.push(frame(number)).unwrap();
            number += 1;
        }
        let mut query = make();
        let name = format!("query {}", query.type_().name());
        assert!(rig.source.peer_query(query.get_mut().unwrap()), "{name}");
        let seen = described(&rig.seen());
        let place = seen.iter().position(|seen| *seen == name).unwrap_or_else(|| panic!("{name}: {seen:?}"));
        let before = seen[..place].iter().filter(|seen| seen.starts_with("buffer")).count();
        assert_eq!(before as u64, number, "{name} among {seen:?}");
    }
    // One that waits when a flush comes is answered, with no.
    rig.push(frame(number)).unwrap();
    let source = rig.source.clone();
    let asker = std::thread::spawn(move || source.peer_query(&mut gst::query::Drain::new()));
    std::thread::sleep(Duration::from_millis(5));
    rig.event(gst::event::FlushStart::new());
    let (answered, _) = in_time("the query", LIMIT, move || asker.join().unwrap());
    assert!(!answered);
}

#[test]
fn other_queries_do_not_wait() {
    let rig = Rig::new(element_of(2, |_| turn(1000, Outcome::Fill(1))));
    rig.begin(&rgb(16, 8));
    rig.push(frame(0)).unwrap();
    rig.push(frame(1)).unwrap();
    let start = Instant::now();
    assert!(rig.source.peer_query_accept_caps(&rgb(16, 8)));
    assert!(!rig.source.peer_query_caps(None).is_empty());
    assert!(!rig.sink.peer_query_caps(None).is_empty());
    rig.sink.peer_query(&mut gst::query::Latency::new());
    rig.sink.peer_query_position::<gst::ClockTime>();
    rig.sink.peer_query_duration::<gst::ClockTime>();
    // A custom query isn't serialized.
    let mut query = gst::query::Custom::new(gst::Structure::new_empty("ask"));
    assert!(rig.source.peer_query(&mut query));
    assert_eq!(query.structure().unwrap().get::<bool>("answered"), Ok(true));
    assert!(start.elapsed() < Duration::from_millis(800), "took {:?}", start.elapsed());
    assert!(buffers(&rig.seen()).is_empty());
}

#[test]
fn the_answer_about_allocation_has_video_meta_and_enough_buffers() {
    for (slots, output) in [(1, OutputChoice::Meta), (2, OutputChoice::Overlay), (4, OutputChoice::Mask)] {
        let element = element_of(slots, |_| turn(0, Outcome::Fill(1)));
        element.set_property("output", output);
        let rig = Rig::new(element);
        rig.begin(&rgb(16, 8));
        let mut query = gst::query::Allocation::new(Some(&rgb(16, 8)), true);
        assert!(rig.source.peer_query(&mut query));
        assert!(query.find_allocation_meta::<gst_video::VideoMeta>().is_some());
        let (_, size, min, max) = query.allocation_pools().next().expect("no word on buffers");
        assert!(min > slots as u32 && (max == 0 || max >= min), "min {min}, max {max}");
        assert_eq!(size, 16 * 8 * 3);
    }
}

#[test]
fn an_upstream_pool_of_few_buffers_does_not_deadlock() {
    for (count, output) in [
        (2, OutputChoice::Meta),
        (3, OutputChoice::Meta),
        (2, OutputChoice::Overlay),
        (1, OutputChoice::Mask),
    ] {
        let element = element_of(2, |_| turn(1, Outcome::Fill(1)));
        element.set_property("output", output);
        let pipeline = gst::Pipeline::new();
        let sink = gst::ElementFactory::make("fakesink")
            .property("sync", false)
            // The last frame stays with the sink: that takes one of two.
            .property("enable-last-sample", count > 1)
            .build()
            .unwrap();
        pipeline.add_many([element.upcast_ref(), &sink]).unwrap();
        element.link(&sink).unwrap();
        pipeline.set_state(gst::State::Playing).unwrap();
        let source = gst::Pad::builder(gst::PadDirection::Src).build();
        source.link(&element.static_pad("sink").unwrap()).unwrap();
        source.set_active(true).unwrap();
        let pool = gst_video::VideoBufferPool::new();
        let mut config = pool.config();
        config.set_params(Some(&rgb(16, 8)), 16 * 8 * 3, count, count);
        pool.set_config(config).unwrap();
        pool.set_active(true).unwrap();
        let pusher = source.clone();
        in_time("200 frames from a small pool", LIMIT, move || {
            pusher.push_event(gst::event::StreamStart::new("pool"));
            pusher.push_event(gst::event::Caps::new(&rgb(16, 8)));
            pusher.push_event(segment());
            for number in 0..200 {
                let mut buffer = pool.acquire_buffer(None).unwrap();
                buffer.get_mut().unwrap().set_pts(time(number));
                pusher.push(buffer).unwrap();
            }
            pusher.push_event(gst::event::Eos::new());
            pool.set_active(false).unwrap();
        });
        source.set_active(false).unwrap();
        pipeline.set_state(gst::State::Null).unwrap();
    }
}

#[test]
fn the_frame_on_the_other_branch_of_a_tee_is_untouched() {
    let raw = "videotestsrc num-buffers=20 pattern=smpte ! video/x-raw,format=RGB,width=64,height=48";
    let frames = |sink: &gst_app::AppSink| -> Vec<Vec<u8>> {
        std::iter::from_fn(|| sink.pull_sample().ok())
            .map(|sample| sample.buffer().unwrap().map_readable().unwrap().to_vec())
            .collect()
    };
    crate::common::init();
    let plain = gst::parse::launch(&format!("{raw} ! appsink sync=false name=out"))
        .unwrap()
        .downcast::<gst::Pipeline>();
    let plain = plain.unwrap();
    plain.set_state(gst::State::Playing).unwrap();
    let expected = frames(&plain.by_name("out").unwrap().downcast().unwrap());
    plain.set_state(gst::State::Null).unwrap();
    assert_eq!(expected.len(), 20);

    let element = element_of(2, |_| turn(2, Outcome::Fill(3)));
    element.set_property("output", OutputChoice::Overlay);
    element.set_property("opacity", 1.0);
    let text = format!(
        "{raw} ! tee name=t t. ! queue name=painted t. ! queue ! appsink sync=false max-buffers=0 name=out"
    );
    let pipeline = gst::parse::launch(&text).unwrap().downcast::<gst::Pipeline>().unwrap();
    let painted = gst_app::AppSink::builder().sync(false).build();
    pipeline.add_many([element.upcast_ref::<gst::Element>(), painted.upcast_ref()]).unwrap();
    let queue = pipeline.by_name("painted").unwrap();
    gst::Element::link_many([&queue, element.upcast_ref(), painted.upcast_ref()]).unwrap();
    pipeline.set_state(gst::State::Playing).unwrap();
    let untouched: gst_app::AppSink = pipeline.by_name("out").unwrap().downcast().unwrap();
    // Kept as buffers until all is painted: what is compared is what is in them then.
    let kept: Vec<_> = std::iter::from_fn(|| untouched.pull_sample().ok()).collect();
    let painted = frames(&painted);
    assert_eq!((kept.len(), painted.len()), (20, 20));
    for ((sample, expected), painted) in kept.iter().zip(&expected).zip(&painted) {
        assert!(sample.buffer().unwrap().map_readable().unwrap().as_slice() == expected.as_slice());
        assert!(painted != expected, "nothing was painted");
    }
    pipeline.set_state(gst::State::Null).unwrap();
}

#[test]
fn interlaced_and_foreign_caps_are_refused() {
    let rig = Rig::new(green_element());
    assert!(rig.event(gst::event::StreamStart::new("interlaced")));
    let mut interlaced = rgb(16, 8);
    interlaced.get_mut().unwrap().set("interlace-mode", "interleaved");
    let foreign =
        "video/x-raw,format=P010_10LE,width=16,height=8,framerate=30/1".parse::<gst::Caps>().unwrap();
    for caps in [interlaced, foreign] {
        assert!(!rig.source.peer_query_accept_caps(&caps), "{caps}");
        rig.event(gst::event::Caps::new(&caps));
        rig.event(segment());
        assert_eq!(rig.push(frame(0)), Err(gst::FlowError::NotNegotiated));
    }
    // Those that go come through all the same.
    assert!(rig.event(gst::event::Caps::new(&rgb(16, 8))));
    rig.push(frame(1)).unwrap();
    rig.wait_buffers(1);
}

#[test]
fn a_frame_before_its_caps_is_an_error_and_not_a_hang() {
    let rig = Rig::new(green_element());
    assert!(rig.event(gst::event::StreamStart::new("no caps")));
    assert!(rig.event(segment()));
    assert_eq!(rig.push(frame(0)), Err(gst::FlowError::NotNegotiated));
    assert!(rig.error().contains("before its caps"));
}

#[test]
fn sticky_events_leave_in_order_even_when_they_come_late() {
    let rig = Rig::new(green_element());
    let pad = rig.element.static_pad("src").unwrap();
    rig.begin(&rgb(16, 8));
    rig.push(frame(0)).unwrap();
    rig.wait_buffers(1);
    let mut types = Vec::new();
    pad.sticky_events_foreach(|event| {
        types.push(event.type_());
        std::ops::ControlFlow::Continue(gst::EventForeachAction::Keep)
    });
    assert_eq!(types, [gst::EventType::StreamStart, gst::EventType::Caps, gst::EventType::Segment]);
}

#[test]
fn caps_that_come_before_the_start_of_the_stream_are_kept() {
    let rig = Rig::new(green_element());
    rig.event(gst::event::Caps::new(&rgb(16, 8)));
    assert!(rig.event(gst::event::StreamStart::new("late")));
    assert!(rig.event(segment()));
    rig.push(frame(0)).unwrap();
    assert_eq!(rig.wait_buffers(1)[0].pts(), Some(time(0)));
}
