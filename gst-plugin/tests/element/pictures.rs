//! Pictures against references that aren't ours: the ITU's definitions and GStreamer's own converter.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use gst::prelude::*;
use gst_check::Harness;
use gst_video::prelude::*;
use gst_video::{VideoColorMatrix, VideoColorRange, VideoColorimetry, VideoFormat, VideoInfo};
use gstsapiensseg::{OutputChoice, SapiensSeg, SapiensSegMeta};
use sapiens_model::engine::fake::Outcome;
use sapiens_model::{ModelCard, Palette, Variant};

use crate::common::{element_of, green_element, init, turn};
use crate::frames::{self, Lay, Picture};

const YUV: [VideoFormat; 6] = [
    VideoFormat::Nv12,
    VideoFormat::Nv21,
    VideoFormat::I420,
    VideoFormat::Yv12,
    VideoFormat::Yuy2,
    VideoFormat::Uyvy,
];

fn palette() -> Palette {
    Palette::of(&ModelCard::of(Variant::Sapiens1b))
}

/// An element that labels everything with `class`.
fn filled(class: u8, output: OutputChoice) -> SapiensSeg {
    let element = element_of(2, move |_| turn(0, Outcome::Fill(class)));
    element.set_property("output", output);
    element
}

/// Matrices and ranges, each as GStreamer has them and with the weights of R and B in luma.
fn colorimetries() -> Vec<(VideoColorimetry, f64, f64, bool)> {
    let matrices = [
        (VideoColorMatrix::Bt601, 0.299, 0.114),
        (VideoColorMatrix::Bt709, 0.2126, 0.0722),
        (VideoColorMatrix::Bt2020, 0.2627, 0.0593),
    ];
    let ranges = [(VideoColorRange::Range0_255, true), (VideoColorRange::Range16_235, false)];
    let both = matrices.iter().flat_map(|matrix| ranges.iter().map(move |range| (*matrix, *range)));
    both.map(|((matrix, kr, kb), (range, full))| {
        let transfer = gst_video::VideoTransferFunction::Bt709;
        let primaries = gst_video::VideoColorPrimaries::Bt709;
        (VideoColorimetry::new(range, matrix, transfer, primaries), kr, kb, full)
    })
    .collect()
}

fn yuv_info(format: VideoFormat, size: (u32, u32), colorimetry: &VideoColorimetry) -> VideoInfo {
    VideoInfo::builder(format, size.0, size.1)
        .fps(gst::Fraction::new(30, 1))
        .colorimetry(colorimetry)
        .build()
        .unwrap()
}

/// A frame of one class through the element at full opacity; its Y, U and V, the same everywhere.
fn painted(info: &VideoInfo, class: u8) -> Vec<u8> {
    let element = filled(class, OutputChoice::Overlay);
    element.set_property("opacity", 1.0);
    let mut harness = Harness::with_element(&element, Some("sink"), Some("src"));
    harness.set_src_caps(info.to_caps().unwrap());
    let picture = Picture::of_labels(info, Lay::Default, |x, y| ((x + y) % 16) as u8);
    harness.push(picture.buffer(0)).unwrap();
    let out = frames::bytes(&harness.pull().unwrap());
    let (width, height) = picture.size();
    let first: Vec<u8> = (0..frames::colors(info)).map(|c| out[picture.at(c, 0, 0)]).collect();
    for y in 0..height {
        for x in 0..width {
            for (c, value) in (0..).zip(&first) {
                assert_eq!(out[picture.at(c, x, y)], *value, "{} at {x},{y}", info.format());
            }
        }
    }
    first
}

#[test]
fn colours_are_right_under_every_matrix_and_range() {
    let mut worst: f64 = 0.0;
    for format in YUV {
        for (colorimetry, kr, kb, full) in colorimetries() {
            for class in [1, 7, 12, 14, 20, 27] {
                let yuv = painted(&yuv_info(format, (7, 5), &colorimetry), class);
                let (offset, luma, chroma) = if full { (0.0, 255.0, 255.0) } else { (16.0, 219.0, 224.0) };
                let y = (f64::from(yuv[0]) - offset) / luma;
                let pb = (f64::from(yuv[1]) - 128.0) / chroma;
                let pr = (f64::from(yuv[2]) - 128.0) / chroma;
                let (r, b) = (y + 2.0 * (1.0 - kr) * pr, y + 2.0 * (1.0 - kb) * pb);
                let g = (y - kr * r - kb * b) / (1.0 - kr - kb);
                for (found, expected) in [r, g, b].into_iter().zip(palette().color(class)) {
                    let error = (found * 255.0 - f64::from(expected)).abs();
                    worst = worst.max(error);
                    assert!(
                        error <= 2.0,
                        "{format} {colorimetry} class {class}: {:?} is {r} {g} {b}, expected {:?}",
                        yuv,
                        palette().color(class)
                    );
                }
            }
        }
    }
    println!("largest distance: {worst:.2} levels");
}

#[test]
fn colours_are_those_that_videoconvert_makes() {
    for format in [VideoFormat::Nv12, VideoFormat::I420, VideoFormat::Yuy2] {
        for (colorimetry, ..) in colorimetries() {
            for class in [7, 14] {
                let info = yuv_info(format, (16, 16), &colorimetry);
                let mut converter = Harness::new("videoconvert");
                converter.set_sink_caps(info.to_caps().unwrap());
                let rgb = VideoInfo::builder(VideoFormat::Rgb, 16, 16).fps(gst::Fraction::new(30, 1));
                let rgb = rgb.build().unwrap();
                converter.set_src_caps(rgb.to_caps().unwrap());
                let solid: Vec<u8> = palette().color(class).repeat(16 * 16);
                converter.push(gst::Buffer::from_mut_slice(solid)).unwrap();
                let converted = frames::bytes(&converter.pull().unwrap());
                let picture = Picture::new(&info, Lay::Default);
                let theirs: Vec<u8> = (0..3).map(|c| converted[picture.at(c, 4, 4)]).collect();
                let ours = painted(&info, class);
                for (ours, theirs) in ours.iter().zip(&theirs) {
                    assert!(
                        ours.abs_diff(*theirs) <= 2,
                        "{format} {colorimetry} class {class}: {ours} for {theirs}"
                    );
                }
            }
        }
    }
}

#[test]
fn gray_frames_get_the_brightness_of_the_colour() {
    for class in [7, 14, 20] {
        let [r, g, b] = palette().color(class).map(f64::from);
        let expected = 0.299 * r + 0.587 * g + 0.114 * b;
        let found = painted(&frames::info(VideoFormat::Gray8, (9, 4)), class);
        assert_eq!(found.len(), 1);
        assert!((f64::from(found[0]) - expected).abs() <= 0.5, "class {class}: {found:?} for {expected}");
    }
}

#[test]
fn opacity_goes_from_nothing_to_everything_and_may_change_while_playing() {
    let element = filled(14, OutputChoice::Overlay);
    let mut harness = Harness::with_element(&element, Some("sink"), Some("src"));
    let info = frames::info(VideoFormat::Rgb, (12, 3));
    harness.set_src_caps(info.to_caps().unwrap());
    let picture = Picture::of_labels(&info, Lay::Default, |x, _| x as u8);
    let color = palette().color(14);
    for opacity in [0.0, 0.5, 1.0, 0.25] {
        element.set_property("opacity", opacity);
        harness.push(picture.buffer(0)).unwrap();
        let out = frames::bytes(&harness.pull().unwrap());
        for (i, (found, before)) in out.iter().zip(&picture.bytes).enumerate() {
            let mixed = f64::from(*before) * (1.0 - opacity) + f64::from(color[i % 3]) * opacity;
            assert_eq!(*found, (mixed + 0.5).floor() as u8, "opacity {opacity}, byte {i}");
        }
    }
}

#[test]
fn classes_are_chosen_by_name_or_number_in_any_case() {
    let card = ModelCard::of(Variant::Sapiens1b);
    let name = |class: usize| card.classes[class].name.clone();
    let element = green_element();
    element.set_property("output", OutputChoice::Alpha);
    let mut harness = Harness::with_element(&element, Some("sink"), Some("src"));
    let info = frames::info(VideoFormat::Bgrx, (16, 1));
    harness.set_src_caps(info.to_caps().unwrap());
    let picture = Picture::of_labels(&info, Lay::Default, |x, _| x as u8);
    for (classes, shown) in [
        (Some(name(3)), vec![3]),
        (Some(format!("{}, {} ,7", name(5).to_uppercase(), name(9).to_lowercase())), vec![5, 7, 9]),
        (Some("0".to_owned()), vec![0]),
        (Some(String::new()), vec![]),
        (None, (1..16).collect()),
    ] {
        element.set_property("classes", &classes);
        harness.push(picture.buffer(0)).unwrap();
        let out = frames::bytes(&harness.pull().unwrap());
        let opaque: Vec<usize> = (0..16).filter(|x| out[x * 4 + 3] == 255).collect();
        assert_eq!(opaque, shown, "{classes:?}");
    }
}

/// What comes out of a pipeline's appsinks by name, in order.
fn run(text: &str, element: impl FnOnce(&gst::Pipeline), sinks: &[&str]) -> Vec<Vec<gst::Sample>> {
    init();
    let pipeline = gst::parse::launch(text).unwrap().downcast::<gst::Pipeline>().unwrap();
    element(&pipeline);
    pipeline.set_state(gst::State::Playing).unwrap();
    let bus = pipeline.bus().unwrap();
    let end = [gst::MessageType::Eos, gst::MessageType::Error];
    let message = bus.timed_pop_filtered(gst::ClockTime::from_seconds(20), &end).expect("no end");
    if let gst::MessageView::Error(error) = message.view() {
        panic!("{} {:?}", error.error(), error.debug());
    }
    let samples = sinks.iter().map(|name| {
        let sink = pipeline.by_name(name).unwrap().downcast::<gst_app::AppSink>().unwrap();
        std::iter::from_fn(|| sink.try_pull_sample(gst::ClockTime::ZERO)).collect()
    });
    let samples = samples.collect();
    pipeline.set_state(gst::State::Null).unwrap();
    samples
}

/// Puts the element of `make` where a pipeline has `queue name=here`.
fn replace(pipeline: &gst::Pipeline, element: &SapiensSeg) {
    let here = pipeline.by_name("here").unwrap();
    let before = here.static_pad("sink").unwrap().peer().unwrap();
    let after = here.static_pad("src").unwrap().peer().unwrap();
    pipeline.remove(&here).unwrap();
    pipeline.add(element).unwrap();
    before.link(&element.static_pad("sink").unwrap()).unwrap();
    element.static_pad("src").unwrap().link(&after).unwrap();
}

#[test]
fn the_other_branch_of_a_tee_sees_the_frame_as_it_was() {
    for (output, format) in
        [(OutputChoice::Overlay, "NV12"), (OutputChoice::Overlay, "BGRx"), (OutputChoice::Alpha, "BGRA")]
    {
        let source = format!(
            "videotestsrc num-buffers=6 pattern=gradient ! video/x-raw,format={format},width=164,height=90,framerate=30/1"
        );
        let plain =
            run(&format!("{source} ! appsink name=a sync=false wait-on-eos=false"), |_| (), &["a"]).remove(0);
        let branches = run(
            &format!(
                "{source} ! tee name=t ! queue ! queue name=here ! appsink name=a sync=false wait-on-eos=false \
                 t. ! queue ! appsink name=b sync=false wait-on-eos=false"
            ),
            |pipeline| {
                let element = green_element();
                element.set_property("output", output);
                replace(pipeline, &element);
            },
            &["a", "b"],
        );
        assert_eq!((branches[0].len(), branches[1].len(), plain.len()), (6, 6, 6));
        for ((painted, other), plain) in branches[0].iter().zip(&branches[1]).zip(&plain) {
            let bytes = |sample: &gst::Sample| frames::bytes(sample.buffer().unwrap());
            assert!(bytes(other) == bytes(plain), "{output:?} {format}: the other branch's frame changed");
            assert!(bytes(painted) != bytes(plain), "{output:?} {format}: nothing was painted");
        }
    }
}

#[test]
fn masks_have_padding_unless_downstream_knows_of_strides() {
    let element = green_element();
    element.set_property("output", OutputChoice::Mask);
    let mut harness = Harness::with_element(&element, Some("sink"), Some("src"));
    let knows = Arc::new(AtomicBool::new(false));
    let answer = knows.clone();
    let source = element.static_pad("src").unwrap();
    source.add_probe(gst::PadProbeType::QUERY_DOWNSTREAM | gst::PadProbeType::PUSH, move |_, info| {
        let gst::QueryViewMut::Allocation(query) = info.query_mut().unwrap().view_mut() else {
            return gst::PadProbeReturn::Ok;
        };
        if answer.load(Ordering::Relaxed) {
            query.add_allocation_meta::<gst_video::VideoMeta>(None);
        }
        gst::PadProbeReturn::Handled
    });
    let info = frames::info(VideoFormat::Rgb, (61, 45));
    harness.set_src_caps(info.to_caps().unwrap());
    let label = |x: usize, y: usize| ((x * 3 + y) % 16) as u8;
    // Others are linked while frames flow.
    for (metas, stride) in [(false, 64), (true, 61), (false, 64)] {
        knows.store(metas, Ordering::Relaxed);
        harness.push_upstream_event(gst::event::Reconfigure::new());
        harness.push(Picture::of_labels(&info, Lay::Default, label).buffer(0)).unwrap();
        let out = harness.pull().unwrap();
        let caps = harness.sinkpad().unwrap().current_caps().unwrap();
        let info = VideoInfo::from_caps(&caps).unwrap();
        assert_eq!((info.format(), info.width(), info.height()), (VideoFormat::Gray8, 61, 45));
        assert_eq!(out.size(), stride * 45, "video metas: {metas}");
        let bytes = frames::bytes(&out);
        assert!((0..45).all(|y| (0..61).all(|x| bytes[y * stride + x] == label(x, y))), "{metas}");
        assert_eq!(out.meta::<gst_video::VideoMeta>().map(|meta| meta.stride()[0]), metas.then_some(61));
    }
}

#[test]
fn tall_and_wide_are_not_swapped() {
    for (width, height) in [(48, 400), (400, 48)] {
        for output in [OutputChoice::Meta, OutputChoice::Mask] {
            let element = green_element();
            element.set_property("output", output);
            let mut harness = Harness::with_element(&element, Some("sink"), Some("src"));
            let info = frames::info(VideoFormat::I420, (width, height));
            harness.set_src_caps(info.to_caps().unwrap());
            // Left and right differ in the upper part alone.
            let label = |x: usize, y: usize| match (x * 2 < width as usize, y * 4 < height as usize) {
                (true, true) => 3,
                (false, true) => 5,
                _ => 9,
            };
            harness.push(Picture::of_labels(&info, Lay::Default, label).buffer(0)).unwrap();
            let out = harness.pull().unwrap();
            let meta = SapiensSegMeta::from_buffer(&out).unwrap();
            let mask = frames::bytes(&meta.mask);
            for (i, found) in mask.iter().enumerate() {
                let (x, y) = (i % width as usize, i / width as usize);
                assert_eq!(*found, label(x, y), "{output:?} at {x},{y}");
            }
        }
    }
}

#[test]
fn a_mask_of_odd_width_survives_a_converter_and_a_scaler() {
    // 2 x 2 pixels each, so that the scaler's nearest neighbour is a plain repetition.
    let samples = run(
        "videotestsrc num-buffers=2 pattern=white ! video/x-raw,format=RGB,width=61,height=45 ! queue name=here ! \
         videoscale method=nearest-neighbour ! video/x-raw,width=122,height=90 ! appsink name=a sync=false wait-on-eos=false",
        |pipeline| {
            let element = green_element();
            element.set_property("output", OutputChoice::Mask);
            replace(pipeline, &element);
        },
        &["a"],
    );
    assert_eq!(samples[0].len(), 2);
    for sample in &samples[0] {
        let info = VideoInfo::from_caps(sample.caps().unwrap()).unwrap();
        let frame =
            gst_video::VideoFrame::from_buffer_readable(sample.buffer_owned().unwrap(), &info).unwrap();
        let stride = frame.plane_stride()[0] as usize;
        let bytes = frame.plane_data(0).unwrap();
        // White: 255 / 16 everywhere, to the last column and row.
        assert!((0..90).all(|y| bytes[y * stride..][..122].iter().all(|label| *label == 15)));
    }
}

#[test]
fn times_pass_through_every_output() {
    for output in [OutputChoice::Meta, OutputChoice::Overlay, OutputChoice::Mask, OutputChoice::Alpha] {
        let element = green_element();
        element.set_property("output", output);
        let mut harness = Harness::with_element(&element, Some("sink"), Some("src"));
        let info = frames::info(VideoFormat::Bgra, (8, 8));
        harness.set_src_caps(info.to_caps().unwrap());
        let mut buffer = Picture::of_labels(&info, Lay::Default, |_, _| 1).buffer(700);
        buffer.make_mut().set_offset(23);
        buffer.make_mut().set_flags(gst::BufferFlags::DISCONT);
        harness.push(buffer).unwrap();
        let out = harness.pull().unwrap();
        assert_eq!(out.pts().map(Duration::from), Some(Duration::from_millis(700)), "{output:?}");
        assert_eq!(out.duration().map(Duration::from), Some(Duration::from_millis(33)), "{output:?}");
        assert_eq!(out.offset(), 23, "{output:?}");
        assert!(out.flags().contains(gst::BufferFlags::DISCONT), "{output:?}");
    }
}
