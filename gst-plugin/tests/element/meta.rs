//! `SapiensSegMeta`: what it says, and what becomes of it downstream.

use gst::prelude::*;
use gst_app::{AppSink, AppSrc};
use gst_video::VideoFrameExt;
use gstsapiensseg::SapiensSeg;
use sapiens_model::engine::fake::Outcome;

use crate::common::{element_of, green_element, turn};
use crate::live_rig::{Rig, green_frame, labels_of, meta};

const SIZE: (u32, u32) = (64, 48);
const FRAME: gst::ClockTime = gst::ClockTime::from_mseconds(40);

/// Runs `count` frames through the element and what is downstream of it; gives what comes out.
fn through(element: &SapiensSeg, downstream: &str, count: u64) -> Vec<gst::Sample> {
    let line = format!("{downstream} ! appsink name=out sync=false");
    let bin = gst::parse::bin_from_description_with_name(&line, true, "downstream").unwrap();
    let pipeline = gst::Pipeline::new();
    let caps = format!("video/x-raw,format=RGB,width={},height={},framerate=25/1", SIZE.0, SIZE.1);
    let source = AppSrc::builder().format(gst::Format::Time).caps(&caps.parse().unwrap()).build();
    let out = bin.by_name("out").unwrap().downcast::<AppSink>().unwrap();
    pipeline.add_many([source.upcast_ref(), element.upcast_ref(), bin.upcast_ref::<gst::Element>()]).unwrap();
    gst::Element::link_many([source.upcast_ref(), element.upcast_ref(), bin.upcast_ref::<gst::Element>()])
        .unwrap();
    pipeline.set_state(gst::State::Playing).unwrap();
    for n in 0..count {
        source.push_buffer(green_frame(SIZE, n, n * FRAME, FRAME)).unwrap();
    }
    source.end_of_stream().unwrap();
    let samples: Vec<_> = std::iter::from_fn(|| out.pull_sample().ok()).collect();
    let error = pipeline.bus().unwrap().pop_filtered(&[gst::MessageType::Error, gst::MessageType::Warning]);
    assert!(error.is_none(), "{downstream}: {error:?}");
    pipeline.set_state(gst::State::Null).unwrap();
    assert_eq!(samples.len(), count as usize, "{downstream}");
    samples
}

/// The meta's mask, after its size has been compared with the frame's.
fn mask_of(sample: &gst::Sample) -> Option<Vec<u8>> {
    let meta = meta(sample.buffer().unwrap())?;
    let caps = sample.caps().unwrap().structure(0).unwrap();
    let size = (caps.get::<i32>("width").unwrap() as u32, caps.get::<i32>("height").unwrap() as u32);
    assert_eq!((meta.width, meta.height), size, "the mask doesn't fit the frame");
    let video = meta.mask.meta::<gst_video::VideoMeta>().unwrap();
    assert_eq!((video.width(), video.height(), video.stride()[0]), (size.0, size.1, size.0 as i32));
    let labels = meta.mask.map_readable().unwrap().to_vec();
    assert_eq!(labels.len(), (size.0 * size.1) as usize);
    Some(labels)
}

/// Frames that have been pushed through come with the labels of their `size`.
fn assert_kept(downstream: &str, size: (u32, u32)) {
    for (n, sample) in (0..).zip(through(&green_element(), downstream, 3)) {
        assert!(mask_of(&sample).is_some_and(|mask| mask == labels_of(size, n)), "{downstream}: frame {n}");
    }
}

fn assert_gone(downstream: &str) {
    for sample in through(&green_element(), downstream, 3) {
        assert!(mask_of(&sample).is_none(), "{downstream}");
    }
}

#[test]
fn every_field_is_there() {
    let rig = Rig::file(element_of(2, |_| turn(7, Outcome::GreenOver16)));
    rig.element.set_property("interval", 2u32);
    rig.start("25/1");
    for n in 0..4 {
        rig.push(n).unwrap();
    }
    for (n, frame) in (0..).zip(rig.src.wait_frames(4)) {
        let inferred = n / 2 * 2;
        let custom = gst::meta::CustomMeta::from_buffer(&frame, gstsapiensseg::meta::NAME).unwrap();
        let names: Vec<_> = custom.structure().fields().map(ToString::to_string).collect();
        let expected = [
            "mask",
            "width",
            "height",
            "classes",
            "colors",
            "variant",
            "backend",
            "reused",
            "labels-pts",
            "inference-ns",
        ];
        assert_eq!(names, expected);
        let meta = meta(&frame).unwrap();
        assert_eq!((meta.width, meta.height), rig.size);
        assert_eq!(meta.mask.map_readable().unwrap().as_slice(), labels_of(rig.size, inferred));
        assert_eq!((meta.classes.len(), meta.colors.len()), (28, 28));
        assert_eq!((meta.colors[0], meta.colors[3]), ([50, 50, 50], [255, 0, 109]));
        assert_eq!((meta.classes[0].as_str(), meta.classes[3].as_str()), ("Background", "Hair"));
        assert_eq!(meta.variant, "1b");
        assert_eq!(meta.backend, "portable cpu f32");
        assert_eq!(meta.reused, n != inferred);
        assert_eq!(meta.labels_pts, Some(inferred * FRAME));
        assert_eq!(meta.inference, gst::ClockTime::from_mseconds(7));
    }
}

#[test]
fn what_leaves_the_frame_as_it_is_keeps_the_meta() {
    for downstream in [
        "identity",
        "queue",
        "tee ! queue",
        "videoconvert ! video/x-raw,format=I420",
        "videoconvert ! video/x-raw,format=I420 ! videoconvert ! video/x-raw,format=BGRA",
        "videoscale ! video/x-raw,width=64,height=48",
        "videobalance saturation=0.5",
        "videorate ! video/x-raw,framerate=25/1",
    ] {
        assert_kept(downstream, SIZE);
    }
}

#[test]
fn scaling_scales_the_mask() {
    for (downstream, size) in [
        ("videoscale ! video/x-raw,width=32,height=24", (32, 24)),
        ("videoscale ! video/x-raw,width=128,height=96", (128, 96)),
        ("videoconvertscale ! video/x-raw,format=NV12,width=16,height=12", (16, 12)),
        // The pixels change their shape, the picture doesn't.
        ("videoscale ! video/x-raw,width=48,height=64", (48, 64)),
        ("videoscale ! video/x-raw,width=32,height=24 ! videoscale ! video/x-raw,width=64,height=48", SIZE),
    ] {
        assert_kept(downstream, size);
    }
}

#[test]
fn where_the_picture_moves_the_meta_goes() {
    for downstream in [
        "videoscale ! video/x-raw,width=64,height=64,pixel-aspect-ratio=1/1",
        "videoscale add-borders=false ! video/x-raw,width=64,height=64,pixel-aspect-ratio=1/1",
        "videocrop left=16",
        "videocrop top=8 bottom=8 left=8 right=8",
        "videobox left=8",
        "videobox left=-8",
        "videoflip video-direction=90r",
        "videoflip video-direction=180",
        "videoflip video-direction=horiz",
    ] {
        assert_gone(downstream);
    }
}

#[test]
fn copies_have_the_meta_and_parts_have_not() {
    let rig = Rig::file(green_element());
    rig.start("25/1");
    rig.push(3).unwrap();
    let frame = rig.src.wait_frames(1).remove(0);
    for copy in [frame.copy(), frame.copy_deep().unwrap()] {
        let (ours, theirs) = (meta(&frame).unwrap(), meta(&copy).unwrap());
        assert_eq!(theirs.mask.map_readable().unwrap().as_slice(), labels_of(rig.size, 3));
        assert_eq!((ours.classes, ours.labels_pts), (theirs.classes, theirs.labels_pts));
    }
    let part = frame.copy_region(gst::BufferCopyFlags::META | gst::BufferCopyFlags::MEMORY, 0..100).unwrap();
    assert!(meta(&part).is_none());
}

#[test]
fn a_reader_may_keep_the_mask_and_write_a_copy_of_it() {
    let rig = Rig::file(green_element());
    rig.start("25/1");
    rig.push(0).unwrap();
    let mut kept = meta(&rig.src.wait_frames(1)[0]).unwrap().mask;
    rig.src.clear();
    for n in 1..20 {
        rig.push(n).unwrap();
    }
    rig.src.wait_frames(19);
    assert_eq!(kept.map_readable().unwrap().as_slice(), labels_of(rig.size, 0), "memory was used again");
    kept.make_mut().map_writable().unwrap().fill(9);
    for (n, frame) in (1..).zip(rig.src.frames()) {
        assert_eq!(meta(&frame).unwrap().mask.map_readable().unwrap().as_slice(), labels_of(rig.size, n));
    }
}

#[test]
fn a_second_element_has_the_last_word() {
    let other = element_of(1, |_| turn(0, Outcome::Fill(20)));
    let rig = Rig::file(green_element());
    let src = rig.element.static_pad("src").unwrap();
    src.unlink(&rig.src.pad).unwrap();
    src.link(&other.static_pad("sink").unwrap()).unwrap();
    other.static_pad("src").unwrap().link(&rig.src.pad).unwrap();
    other.set_state(gst::State::Playing).unwrap();
    rig.start("25/1");
    rig.push(0).unwrap();
    let frame = rig.src.wait_frames(1).remove(0);
    let metas =
        frame.iter_meta::<gst::Meta>().filter(|meta| meta.api().name().contains("SapiensSeg")).count();
    assert_eq!(metas, 1);
    assert!(meta(&frame).unwrap().mask.map_readable().unwrap().iter().all(|label| *label == 20));
    other.set_state(gst::State::Null).unwrap();
}

#[test]
fn frames_themselves_are_untouched() {
    let samples = through(&green_element(), "identity", 3);
    for (n, sample) in (0..).zip(samples) {
        let given = green_frame(SIZE, n, n * FRAME, FRAME);
        let left = sample.buffer().unwrap();
        assert_eq!(left.map_readable().unwrap().as_slice(), given.map_readable().unwrap().as_slice());
        assert_eq!((left.pts(), left.duration()), (given.pts(), given.duration()));
        let info = gst_video::VideoInfo::from_caps(sample.caps().unwrap()).unwrap();
        assert_eq!(gst_video::VideoFrameRef::from_buffer_ref_readable(left, &info).unwrap().width(), SIZE.0);
    }
}
