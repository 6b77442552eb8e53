//! The `mask` pad: a stream of its own beside the frames.

use gst::prelude::*;
use gstsapiensseg::SapiensSeg;
use sapiens_model::engine::fake::Outcome;

use crate::common::{element_of, green_element, turn};
use crate::live_rig::{Rig, Tap, eventually, labels_of, meta};

/// A GRAY8 mask's labels, its rows a multiple of four bytes apart or as its meta says.
fn labels(buffer: &gst::BufferRef, (width, height): (u32, u32)) -> Vec<u8> {
    let stride = match buffer.meta::<gst_video::VideoMeta>() {
        Some(meta) => meta.stride()[0] as usize,
        None => width.next_multiple_of(4) as usize,
    };
    let map = buffer.map_readable().unwrap();
    assert!(map.len() >= stride * (height as usize - 1) + width as usize);
    map.chunks(stride).take(height as usize).flat_map(|row| row[..width as usize].to_vec()).collect()
}

/// Each mask is that of the frame: same times, its labels.
fn assert_masks_of(frames: &[gst::Buffer], masks: &[gst::Buffer], first: u64, size: (u32, u32)) {
    assert_eq!(frames.len(), masks.len());
    for (n, (frame, mask)) in (first..).zip(frames.iter().zip(masks)) {
        assert_eq!((mask.pts(), mask.duration()), (frame.pts(), frame.duration()), "frame {n}");
        assert_eq!(labels(mask, size), labels_of(size, n), "frame {n}");
    }
}

fn caps(tap: &Tap) -> gst::Caps {
    let event = tap.event(gst::EventType::Caps);
    let gst::EventView::Caps(caps) = event.view() else { unreachable!() };
    caps.caps_owned()
}

fn stream(tap: &Tap) -> (String, Option<gst::GroupId>) {
    let event = tap.event(gst::EventType::StreamStart);
    let gst::EventView::StreamStart(start) = event.view() else { unreachable!() };
    (start.stream_id().to_owned(), start.group_id())
}

/// The mask's stream has its own identity, in the frames' group, its own caps, and the frames' segment.
fn assert_announced(rig: &Rig, mask: &Tap) {
    use gst::EventType::{Caps, Segment, StreamStart};
    let kinds: Vec<_> = mask.kinds().into_iter().take(4).collect();
    assert_eq!(kinds, [Some(StreamStart), Some(Caps), Some(Segment), None]);
    let (id, group) = stream(mask);
    let (frames_id, frames_group) = stream(&rig.src);
    assert_ne!(id, frames_id);
    assert!(group.is_some() && group == frames_group);
    let expected = caps(&rig.src);
    let mut expected = expected.structure(0).unwrap().to_owned();
    expected.set("format", "GRAY8");
    assert_eq!(caps(mask), gst::Caps::from(expected));
}

#[test]
fn masks_leave_beside_frames_with_their_times_and_labels() {
    for size in [(61, 45), (64, 48), (1, 1), (3, 200)] {
        let mut rig = Rig::file(green_element());
        rig.size = size;
        let (_, mask) = rig.add_mask();
        rig.start("25/1");
        for n in 0..20 {
            rig.push(n).unwrap();
        }
        let (frames, masks) = (rig.src.wait_frames(20), mask.wait_frames(20));
        assert_announced(&rig, &mask);
        assert_masks_of(&frames, &masks, 0, size);
        for (frame, mask) in frames.iter().zip(&masks) {
            let meta = meta(frame).unwrap();
            assert_eq!(meta.mask.map_readable().unwrap().as_slice(), labels(mask, size));
        }
    }
}

#[test]
fn masks_have_the_stride_that_caps_mean_unless_downstream_reads_the_meta() {
    for reads_meta in [false, true] {
        let rig = Rig::file(green_element());
        let pad = rig.element.request_pad_simple("mask").unwrap();
        let mask = Tap::reading_video_meta(reads_meta);
        pad.link(&mask.pad).unwrap();
        rig.start("25/1");
        // What downstream reads is known once it has the caps, so for sure after the first mask.
        for n in 0..2 {
            rig.push(n).unwrap();
            mask.wait_frames(n as usize + 1);
        }
        let masks = mask.frames();
        assert_eq!(masks[1].size(), if reads_meta { 61 * 45 } else { 64 * 45 });
        assert_masks_of(&rig.src.wait_frames(2), &masks, 0, rig.size);
    }
}

#[test]
fn a_mask_pad_without_a_peer_changes_nothing() {
    let rig = Rig::file(green_element());
    let _pad = rig.element.request_pad_simple("mask").unwrap();
    rig.start("25/1");
    for n in 0..20 {
        rig.push(n).unwrap();
    }
    assert_eq!(rig.src.wait_frames(20).len(), 20);
    assert!(rig.up.push_event(gst::event::Eos::new()));
    rig.src.wait_event(gst::EventType::Eos);
}

#[test]
fn frames_without_a_peer_are_no_error_while_masks_have_one() {
    let rig = Rig::file(green_element());
    let (_, mask) = rig.add_mask();
    rig.element.static_pad("src").unwrap().unlink(&rig.src.pad).unwrap();
    rig.start("25/1");
    for n in 0..20 {
        rig.push(n).unwrap();
    }
    assert_eq!(mask.wait_frames(20).len(), 20);
    assert_eq!(rig.src.frames().len(), 0);
}

#[test]
fn neither_linked_is_not_linked() {
    let rig = Rig::file(green_element());
    let (pad, mask) = rig.add_mask();
    pad.unlink(&mask.pad).unwrap();
    rig.element.static_pad("src").unwrap().unlink(&rig.src.pad).unwrap();
    rig.start("25/1");
    let answers: Vec<_> = (0..50).map(|n| rig.push(n)).collect();
    assert_eq!(answers.last(), Some(&Err(gst::FlowError::NotLinked)));
}

#[test]
fn there_is_one_mask_pad() {
    let rig = Rig::file(green_element());
    let (pad, _) = rig.add_mask();
    let template = rig.element.pad_template("mask").unwrap();
    assert!(rig.element.request_pad(&template, None, None).is_none());
    rig.element.release_request_pad(&pad);
    assert!(rig.element.request_pad(&template, None, None).is_some());
}

#[test]
fn a_pad_requested_while_playing_is_told_what_the_stream_is() {
    let rig = Rig::file(green_element());
    rig.start("25/1");
    for n in 0..5 {
        rig.push(n).unwrap();
    }
    rig.src.wait_frames(5);
    let (_, mask) = rig.add_mask();
    for n in 5..15 {
        rig.push(n).unwrap();
    }
    let (frames, masks) = (rig.src.wait_frames(15), mask.wait_frames(10));
    assert_announced(&rig, &mask);
    assert_masks_of(&frames[5..], &masks, 5, rig.size);
}

#[test]
fn a_pad_may_come_and_go_while_frames_flow() {
    let rig = Rig::file(green_element());
    rig.start("25/1");
    let mut n = 0;
    for round in 0..30 {
        let (pad, mask) = rig.add_mask();
        for _ in 0..4 {
            rig.push(n).unwrap();
            n += 1;
        }
        if round % 3 == 0 {
            mask.wait_frames(1);
        }
        if round % 3 == 1 {
            mask.block(true);
            rig.push(n).unwrap();
            n += 1;
            mask.wait_blocked();
            // Its task waits downstream; as a sink that goes to READY does, that gives up once the pad goes.
            let release = std::thread::spawn({
                let (element, pad) = (rig.element.clone(), pad.clone());
                move || element.release_request_pad(&pad)
            });
            eventually("a flushing pad", || pad.pad_flags().contains(gst::PadFlags::FLUSHING));
            mask.answer(Err(gst::FlowError::Flushing));
            mask.block(false);
            release.join().unwrap();
        } else {
            rig.element.release_request_pad(&pad);
        }
        assert!(pad.parent().is_none() && !pad.is_active());
    }
    rig.push(n).unwrap();
    assert_eq!(rig.src.wait_frames(n as usize + 1).len(), n as usize + 1);
}

#[test]
fn a_blocked_mask_branch_keeps_frames_waiting_and_loses_none() {
    let rig = Rig::file(green_element());
    let (_, mask) = rig.add_mask();
    rig.start("25/1");
    mask.block(true);
    std::thread::scope(|scope| {
        let feed = scope.spawn(|| (0..40).for_each(|n| assert!(rig.push(n).is_ok())));
        mask.wait_blocked();
        std::thread::sleep(std::time::Duration::from_millis(100));
        assert!(rig.src.frames().len() < 10, "{} frames left alone", rig.src.frames().len());
        mask.block(false);
        feed.join().unwrap();
    });
    assert_masks_of(&rig.src.wait_frames(40), &mask.wait_frames(40), 0, rig.size);
}

#[test]
fn an_error_in_either_branch_reaches_upstream() {
    for of_mask in [false, true] {
        let rig = Rig::file(green_element());
        let (_, mask) = rig.add_mask();
        rig.start("25/1");
        let failing = if of_mask { &mask } else { &rig.src };
        failing.answer(Err(gst::FlowError::Error));
        let answers: Vec<_> = (0..50).map(|n| rig.push(n)).collect();
        assert_eq!(answers.last(), Some(&Err(gst::FlowError::Error)), "mask: {of_mask}");
    }
}

#[test]
fn the_stream_ends_when_both_branches_have_had_enough() {
    let rig = Rig::file(green_element());
    let (_, mask) = rig.add_mask();
    rig.start("25/1");
    mask.answer(Err(gst::FlowError::Eos));
    for n in 0..20 {
        rig.push(n).unwrap();
    }
    assert_eq!(rig.src.wait_frames(20).len(), 20);
    rig.src.answer(Err(gst::FlowError::Eos));
    let answers: Vec<_> = (20..70).map(|n| rig.push(n)).collect();
    assert_eq!(answers.last(), Some(&Err(gst::FlowError::Eos)));
}

#[test]
fn events_reach_both_branches_in_their_place() {
    use gst::EventType::{Eos, Gap, Tag};
    let rig = Rig::file(green_element());
    let (_, mask) = rig.add_mask();
    rig.start("25/1");
    rig.push(0).unwrap();
    let gap = gst::event::Gap::builder(gst::ClockTime::from_mseconds(40)).build();
    assert!(rig.up.push_event(gap));
    rig.push(2).unwrap();
    let mut tags = gst::TagList::new();
    tags.get_mut().unwrap().add::<gst::tags::Title>(&"a", gst::TagMergeMode::Append);
    assert!(rig.up.push_event(gst::event::Tag::new(tags)));
    assert!(rig.up.push_event(gst::event::Eos::new()));
    for tap in [&rig.src, &mask] {
        tap.wait_event(Eos);
        assert_eq!(tap.kinds()[3..], [None, Some(Gap), None, Some(Tag), Some(Eos)]);
    }
}

#[test]
fn a_flush_reaches_both_branches_and_the_stream_goes_on() {
    let rig = Rig::file(element_of(2, |_| turn(2, Outcome::GreenOver16)));
    let (_, mask) = rig.add_mask();
    rig.start("25/1");
    for round in 0..20 {
        for n in 0..round % 5 {
            rig.push(n).unwrap();
        }
        for tap in [&rig.src, &mask] {
            tap.clear();
            tap.answer(Err(gst::FlowError::Flushing));
        }
        assert!(rig.up.push_event(gst::event::FlushStart::new()));
        for tap in [&rig.src, &mask] {
            tap.wait_event(gst::EventType::FlushStart);
            tap.answer(Ok(gst::FlowSuccess::Ok));
        }
        assert!(rig.up.push_event(gst::event::FlushStop::new(true)));
        for tap in [&rig.src, &mask] {
            tap.wait_event(gst::EventType::FlushStop);
            tap.clear();
        }
        rig.segment();
        for n in 5..10 {
            rig.push(n).unwrap();
        }
        let (frames, masks) = (rig.src.wait_frames(5), mask.wait_frames(5));
        assert_masks_of(&frames, &masks, 5, rig.size);
        for tap in [&rig.src, &mask] {
            let segment = tap.kinds().iter().position(|kind| *kind == Some(gst::EventType::Segment));
            let frame = tap.kinds().iter().position(Option::is_none);
            assert!(segment.is_some() && segment < frame, "{:?}", tap.kinds());
        }
    }
}

/// `videotestsrc` into the element, and both pads into sinks, with or without queues.
fn two_sinks(element: &SapiensSeg, queues: bool, source: &str) -> gst::Pipeline {
    let queue = if queues { "queue !" } else { "" };
    let line = format!(
        "{source} ! video/x-raw,format=RGB,width=61,height=45,framerate=25/1 ! identity name=in \
         {queue} fakesink name=frames sync=false {queue} fakesink name=masks sync=false"
    )
    .replace(
        "identity name=in queue ! fakesink name=frames",
        "identity name=in queue name=f ! fakesink name=frames",
    )
    .replace("sync=false queue ! fakesink name=masks", "sync=false queue name=m ! fakesink name=masks");
    let pipeline = gst::parse::launch(&line).unwrap().downcast::<gst::Pipeline>().unwrap();
    pipeline.add(element).unwrap();
    let named = |name| pipeline.by_name(name).unwrap();
    named("in").link(element).unwrap();
    let (frames, masks) = if queues { ("f", "m") } else { ("frames", "masks") };
    element.link_pads(Some("src"), &named(frames), Some("sink")).unwrap();
    element.link_pads(Some("mask"), &named(masks), Some("sink")).unwrap();
    pipeline
}

fn wait_for(pipeline: &gst::Pipeline, kind: gst::MessageType) {
    let bus = pipeline.bus().unwrap();
    let message = bus
        .timed_pop_filtered(gst::ClockTime::from_seconds(15), &[kind, gst::MessageType::Error])
        .unwrap_or_else(|| panic!("no {kind:?} message"));
    assert_eq!(message.type_(), kind, "{message:?}");
}

#[test]
fn both_branches_preroll_play_seek_and_end_with_and_without_queues() {
    for queues in [false, true] {
        for _ in 0..5 {
            let element = green_element();
            let pipeline = two_sinks(&element, queues, "videotestsrc num-buffers=60");
            pipeline.set_state(gst::State::Paused).unwrap();
            wait_for(&pipeline, gst::MessageType::AsyncDone);
            pipeline.set_state(gst::State::Playing).unwrap();
            wait_for(&pipeline, gst::MessageType::Eos);
            let flags = gst::SeekFlags::FLUSH | gst::SeekFlags::ACCURATE;
            pipeline.seek_simple(flags, gst::ClockTime::from_mseconds(400)).unwrap();
            wait_for(&pipeline, gst::MessageType::AsyncDone);
            wait_for(&pipeline, gst::MessageType::Eos);
            pipeline.set_state(gst::State::Null).unwrap();
        }
    }
}

#[test]
fn a_live_source_feeds_both_branches() {
    let element = green_element();
    let pipeline = two_sinks(&element, false, "videotestsrc is-live=true num-buffers=20");
    pipeline.set_state(gst::State::Playing).unwrap();
    wait_for(&pipeline, gst::MessageType::Eos);
    pipeline.set_state(gst::State::Null).unwrap();
}

#[test]
fn a_sink_is_linked_and_unlinked_while_playing() {
    let element = green_element();
    let pipeline = gst::Pipeline::new();
    let source = gst::ElementFactory::make("videotestsrc").build().unwrap();
    let frames = gst::ElementFactory::make("fakesink").build().unwrap();
    pipeline.add_many([&source, element.upcast_ref(), &frames]).unwrap();
    gst::Element::link_many([&source, element.upcast_ref(), &frames]).unwrap();
    pipeline.set_state(gst::State::Playing).unwrap();
    for _ in 0..20 {
        let sink = gst::ElementFactory::make("fakesink").property("async", false).build().unwrap();
        pipeline.add(&sink).unwrap();
        let pad = element.request_pad_simple("mask").unwrap();
        pad.link(&sink.static_pad("sink").unwrap()).unwrap();
        sink.sync_state_with_parent().unwrap();
        eventually("a mask", || sink.property::<Option<gst::Sample>>("last-sample").is_some());
        let sample = sink.property::<Option<gst::Sample>>("last-sample").unwrap();
        assert_eq!(sample.caps().unwrap().structure(0).unwrap().get::<&str>("format"), Ok("GRAY8"));
        element.release_request_pad(&pad);
        pipeline.remove(&sink).unwrap();
        sink.set_state(gst::State::Null).unwrap();
    }
    let error = pipeline.bus().unwrap().pop_filtered(&[gst::MessageType::Error]);
    assert!(error.is_none(), "{error:?}");
    pipeline.set_state(gst::State::Null).unwrap();
}

#[test]
fn an_element_starts_again_with_its_mask_pad() {
    let rig = Rig::file(green_element());
    let (_, mask) = rig.add_mask();
    for _ in 0..10 {
        rig.start("25/1");
        for n in 0..6 {
            rig.push(n).unwrap();
        }
        assert_masks_of(&rig.src.wait_frames(6), &mask.wait_frames(6), 0, rig.size);
        assert_announced(&rig, &mask);
        rig.up.set_active(false).unwrap();
        rig.element.set_state(gst::State::Ready).unwrap();
        rig.src.clear();
        mask.clear();
    }
}
