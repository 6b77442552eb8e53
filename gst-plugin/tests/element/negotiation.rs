//! Which caps are offered, taken and refused, and what the caps that leave say.

use gst::prelude::*;
use gst_check::Harness;
use gst_video::VideoFormat;
use gstsapiensseg::{OutputChoice, SapiensSeg};

use crate::common::{green_element, init};
use crate::frames::{self, ALPHA, FORMATS, Lay, Picture};

const OUTPUTS: [OutputChoice; 4] =
    [OutputChoice::Meta, OutputChoice::Overlay, OutputChoice::Mask, OutputChoice::Alpha];

fn element(output: OutputChoice) -> SapiensSeg {
    let element = green_element();
    // Or a machine's GPU might have its say before the element starts.
    element.set_property("device", "cpu");
    element.set_property("output", output);
    element
}

fn caps(text: &str) -> gst::Caps {
    init();
    text.parse().unwrap()
}

/// Names of all formats that caps have, in order.
fn formats(caps: &gst::Caps) -> Vec<String> {
    let mut names = Vec::new();
    for structure in caps.iter() {
        match structure.value("format").unwrap().get::<gst::List>() {
            Ok(list) => names.extend(list.iter().map(|value| value.get::<String>().unwrap())),
            Err(_) => names.push(structure.get::<String>("format").unwrap()),
        }
    }
    names
}

fn names(formats: impl IntoIterator<Item = VideoFormat>) -> Vec<String> {
    formats.into_iter().map(|format| format.to_string()).collect()
}

fn query(pad: &gst::Pad, filter: Option<&str>) -> gst::Caps {
    pad.query_caps(filter.map(caps).as_ref())
}

/// What an element in a harness makes of caps: those that come out; none if they're refused.
fn through(output: OutputChoice, given: &str) -> Option<gst::Caps> {
    let mut harness = Harness::with_element(&element(output), Some("sink"), Some("src"));
    let given = caps(given);
    let info = gst_video::VideoInfo::from_caps(&given).ok()?;
    let accepted = harness.push_event(gst::event::StreamStart::new("caps"))
        && harness.push_event(gst::event::Caps::new(&given));
    if !accepted {
        return None;
    }
    harness.push_event(gst::event::Segment::new(&gst::FormattedSegment::<gst::ClockTime>::new()));
    harness.push(Picture::of_labels(&info, Lay::Default, |_, _| 1).buffer(0)).ok()?;
    harness.pull().ok()?;
    harness.sinkpad()?.current_caps()
}

#[test]
fn queries_without_peers_answer_with_everything_in_every_state() {
    for state in [gst::State::Null, gst::State::Ready, gst::State::Playing] {
        for output in OUTPUTS {
            let element = element(output);
            element.set_state(state).unwrap();
            let (sink, source) = (element.static_pad("sink").unwrap(), element.static_pad("src").unwrap());
            let alpha_in = names(ALPHA.map(|(format, _)| format));
            let (mut ins, mut outs) = match output {
                OutputChoice::Meta | OutputChoice::Overlay => (names(FORMATS), names(FORMATS)),
                OutputChoice::Mask => (names(FORMATS), vec!["GRAY8".to_owned()]),
                OutputChoice::Alpha => (alpha_in, names(ALPHA[..4].iter().map(|(format, _)| *format))),
            };
            let (mut found_in, mut found_out) =
                (formats(&query(&sink, None)), formats(&query(&source, None)));
            for list in [&mut ins, &mut outs, &mut found_in, &mut found_out] {
                list.sort();
            }
            assert_eq!((found_in, found_out), (ins, outs), "{output:?} in {state:?}");

            let filtered = query(&sink, Some("video/x-raw,format={BGRx,NV12,Y444},width=[10,20],height=5"));
            let expected: &[&str] = if output == OutputChoice::Alpha { &["BGRx"] } else { &["BGRx", "NV12"] };
            assert_eq!(formats(&filtered), expected, "{output:?} in {state:?}");
            let structure = filtered.structure(0).unwrap();
            assert_eq!(structure.get::<gst::IntRange<i32>>("width").unwrap(), gst::IntRange::new(10, 20));
            assert_eq!(structure.get::<i32>("height"), Ok(5));
            assert_eq!(structure.get::<&str>("interlace-mode"), Ok("progressive"));
            for filter in
                ["video/x-raw,format=P010_10LE", "video/x-raw,format=NV12,interlace-mode=interleaved"]
            {
                assert!(query(&sink, Some(filter)).is_empty(), "{filter}");
            }
            assert!(query(&sink, Some("audio/x-raw")).is_empty());
            assert!(query(&source, Some("image/jpeg")).is_empty());
            element.set_state(gst::State::Null).unwrap();
        }
    }
}

#[test]
fn what_is_accepted_depends_on_the_output() {
    let size = "width=64,height=48,framerate=30/1";
    for output in OUTPUTS {
        let element = element(output);
        let sink = element.static_pad("sink").unwrap();
        for format in FORMATS {
            let takes = output != OutputChoice::Alpha || ALPHA.iter().any(|(alpha, _)| *alpha == format);
            let caps = caps(&format!("video/x-raw,format={format},{size}"));
            assert_eq!(sink.query_accept_caps(&caps), takes, "{output:?} {format}");
        }
        for refused in [
            format!("video/x-raw,format=Y444,{size}"),
            format!("video/x-raw,format=NV12,interlace-mode=interleaved,{size}"),
            format!("video/x-raw,format=BGRA,interlace-mode=mixed,{size}"),
            format!("video/x-raw(format:Interlaced),format=BGRA,interlace-mode=alternate,{size}"),
            format!("video/x-raw(memory:CUDAMemory),format=BGRA,{size}"),
            format!("video/x-raw(memory:DMABuf),format=BGRA,{size}"),
            format!("video/x-raw(memory:GLMemory),format=BGRA,{size}"),
            "video/x-raw,format=BGRA,width=40000,height=48,framerate=30/1".to_owned(),
            "audio/x-raw,format=S16LE,rate=48000,channels=2,layout=interleaved".to_owned(),
        ] {
            assert!(!sink.query_accept_caps(&caps(&refused)), "{output:?} {refused}");
        }
    }
}

#[cfg(feature = "cuda")]
#[test]
fn frames_in_a_gpus_memory_are_offered_where_they_may_be_taken() {
    let filter = Some("video/x-raw(memory:CUDAMemory)");
    for output in OUTPUTS {
        let element = element(output);
        let (sink, source) = (element.static_pad("sink").unwrap(), element.static_pad("src").unwrap());
        assert!(query(&sink, filter).is_empty() && query(&source, filter).is_empty(), "{output:?}");
        element.set_property("device", "cuda");
        let all = ["NV12", "I420", "RGB", "BGR", "RGBA", "BGRA", "RGBx", "BGRx"];
        let (ins, outs): (&[&str], &[&str]) = match output {
            OutputChoice::Meta | OutputChoice::Overlay => (&all, &all),
            OutputChoice::Mask => (&all, &[]),
            OutputChoice::Alpha => (&all[4..], &all[4..6]),
        };
        let sorted = |mut names: Vec<String>| {
            names.sort();
            names.join(" ")
        };
        let names = |names: &[&str]| sorted(names.iter().map(|&name| name.to_owned()).collect());
        assert_eq!(sorted(formats(&query(&sink, filter))), names(ins), "{output:?}");
        assert_eq!(sorted(formats(&query(&source, filter))), names(outs), "{output:?}");
        // What runs after all decides.
        element.set_state(gst::State::Playing).unwrap();
        assert!(query(&sink, filter).is_empty() && query(&source, filter).is_empty(), "{output:?}");
        element.set_state(gst::State::Null).unwrap();
    }
}

#[test]
fn caps_that_are_refused_are_refused_as_events_too() {
    for (output, refused) in [
        (
            OutputChoice::Meta,
            "video/x-raw,format=NV12,interlace-mode=interleaved,width=64,height=48,framerate=30/1",
        ),
        (OutputChoice::Meta, "video/x-raw(memory:DMABuf),format=NV12,width=64,height=48,framerate=30/1"),
        (
            OutputChoice::Overlay,
            "video/x-raw(memory:CUDAMemory),format=NV12,width=64,height=48,framerate=30/1",
        ),
        (OutputChoice::Alpha, "video/x-raw,format=NV12,width=64,height=48,framerate=30/1"),
    ] {
        assert_eq!(through(output, refused), None, "{output:?} {refused}");
    }
}

#[test]
fn every_field_of_the_caps_passes_through() {
    let given = "video/x-raw,format=I420,width=62,height=46,framerate=25/2,pixel-aspect-ratio=12/11,\
        colorimetry=bt709,chroma-site=mpeg2,multiview-mode=mono,interlace-mode=progressive,max-framerate=50/1,views=1";
    for output in [OutputChoice::Meta, OutputChoice::Overlay] {
        assert_eq!(through(output, given), Some(caps(given)), "{output:?}");
    }
    let mut mask = caps(given);
    {
        let structure = mask.get_mut().unwrap().structure_mut(0).unwrap();
        structure.set("format", "GRAY8");
        structure.remove_fields(["colorimetry", "chroma-site"]);
    }
    assert_eq!(through(OutputChoice::Mask, given), Some(mask));
    for (format, twin) in ALPHA {
        let text = |format| {
            format!(
                "video/x-raw,format={format},width=62,height=46,framerate=25/2,pixel-aspect-ratio=12/11,\
                 colorimetry=sRGB,multiview-mode=mono"
            )
        };
        assert_eq!(through(OutputChoice::Alpha, &text(format)), Some(caps(&text(twin))));
    }
}

#[test]
fn a_variable_frame_rate_and_none_are_taken() {
    for rate in ["framerate=0/1", "framerate=30000/1001"] {
        let given = format!("video/x-raw,format=NV12,width=16,height=16,{rate}");
        assert_eq!(through(OutputChoice::Meta, &given), Some(caps(&given)));
    }
}

/// The format that a source of any format gives when `sink` is what is behind the element.
fn chosen(output: &str, sink: &str) -> Result<(String, String), String> {
    init();
    let text = format!(
        "videotestsrc num-buffers=1 name=source ! sapiensseg name=seg device=cpu output={output} ! capsfilter caps=\"{sink}\" ! fakesink"
    );
    let pipeline = gst::parse::launch(&text).map_err(|error| error.to_string())?;
    let pipeline = pipeline.downcast::<gst::Pipeline>().unwrap();
    let seg = pipeline.by_name("seg").unwrap().downcast::<SapiensSeg>().unwrap();
    seg.set_segmenter(|| {
        let turn = |_| crate::common::turn(0, sapiens_model::engine::fake::Outcome::GreenOver16);
        let engine = sapiens_model::engine::fake::engine(2, Box::new(turn))?;
        let card = sapiens_model::ModelCard::of(sapiens_model::Variant::Sapiens1b);
        Ok(sapiens_model::Segmenter::with_engine(card, engine))
    });
    pipeline.set_state(gst::State::Playing).unwrap();
    let end = [gst::MessageType::Eos, gst::MessageType::Error];
    let message = pipeline.bus().unwrap().timed_pop_filtered(gst::ClockTime::from_seconds(20), &end);
    let result = match message.expect("no end").view() {
        gst::MessageView::Error(error) => Err(format!("{} {:?}", error.error(), error.debug())),
        _ => {
            let format = |pad: &str| {
                let caps = seg.static_pad(pad).unwrap().current_caps().unwrap();
                formats(&caps).remove(0)
            };
            Ok((format("sink"), format("src")))
        }
    };
    pipeline.set_state(gst::State::Null).unwrap();
    result
}

#[test]
fn downstream_chooses_the_format() {
    let pair = |a: &str, b: &str| Ok((a.to_owned(), b.to_owned()));
    assert_eq!(chosen("meta", "video/x-raw,format=UYVY"), pair("UYVY", "UYVY"));
    assert_eq!(chosen("overlay", "video/x-raw,format=BGR"), pair("BGR", "BGR"));
    assert_eq!(chosen("alpha", "video/x-raw,format=ABGR"), pair("ABGR", "ABGR"));
    let (frames, mask) = chosen("mask", "video/x-raw,format=GRAY8").unwrap();
    assert!(names(FORMATS).contains(&frames) && mask == "GRAY8", "{frames} {mask}");
    // The first of several in caps that upstream is asked to choose from.
    let element = element(OutputChoice::Alpha);
    let filter = gst::ElementFactory::make("capsfilter")
        .property("caps", caps("video/x-raw,format={ABGR,RGBA}"))
        .build()
        .unwrap();
    element.static_pad("src").unwrap().link(&filter.static_pad("sink").unwrap()).unwrap();
    let offered = query(&element.static_pad("sink").unwrap(), None);
    assert_eq!(formats(&offered), ["ABGR", "xBGR", "RGBA", "RGBx"]);
    let filtered = query(&element.static_pad("sink").unwrap(), Some("video/x-raw,format={RGBx,xBGR}"));
    assert_eq!(formats(&filtered), ["RGBx", "xBGR"], "a filter's own order goes first");
}

#[test]
fn what_cannot_be_is_said_readably() {
    // videotestsrc can give alpha formats; nothing downstream of alpha is NV12.
    for (output, sink) in [
        ("alpha", "video/x-raw,format=NV12"),
        ("mask", "video/x-raw,format=RGB"),
        ("meta", "video/x-raw,format=Y444"),
        ("meta", "video/x-raw(memory:CUDAMemory),format=NV12"),
        ("alpha", "video/x-raw(memory:CUDAMemory),format=BGRA"),
        ("alpha", "video/x-raw,format=BGRx"),
    ] {
        let error = chosen(output, sink).unwrap_err();
        assert!(error.contains("link") || error.contains("negotiat"), "{output} {sink}: {error}");
    }
    // As a user would write it.
    let text = "videotestsrc num-buffers=1 ! video/x-raw,format=NV12 ! sapiensseg output=alpha ! fakesink";
    let error = gst::parse::launch(text).unwrap_err().to_string();
    assert!(error.contains("sapiensseg") && error.contains("can't handle caps"), "{error}");
    assert!(error.contains("NV12"), "{error}");
}

#[test]
fn the_mask_pad_offers_gray_of_the_size_that_comes_in() {
    for output in OUTPUTS {
        let element = element(output);
        let mask = element.request_pad_simple("mask").unwrap();
        assert_eq!(formats(&query(&mask, None)), ["GRAY8"], "{output:?}");
        assert!(query(&mask, Some("video/x-raw,format=RGB")).is_empty(), "{output:?}");
        let filter = gst::ElementFactory::make("capsfilter")
            .property("caps", caps("video/x-raw,width=70,height=50,pixel-aspect-ratio=4/3"))
            .build()
            .unwrap();
        filter.static_pad("src").unwrap().link(&element.static_pad("sink").unwrap()).unwrap();
        let offered = query(&mask, None);
        let structure = offered.structure(0).unwrap();
        assert_eq!((structure.get::<i32>("width"), structure.get::<i32>("height")), (Ok(70), Ok(50)));
        let ratio = structure.get::<gst::Fraction>("pixel-aspect-ratio");
        assert_eq!(ratio, Ok(gst::Fraction::new(4, 3)), "{output:?}");
        element.release_request_pad(&mask);
    }
}

#[test]
fn who_takes_masks_has_a_say_in_their_size() {
    for output in OUTPUTS {
        let element = element(output);
        let mask = element.request_pad_simple("mask").unwrap();
        let filter = gst::ElementFactory::make("capsfilter")
            .property("caps", caps("video/x-raw,width=320,height=[1,240]"))
            .build()
            .unwrap();
        mask.link(&filter.static_pad("sink").unwrap()).unwrap();
        let sink = element.static_pad("sink").unwrap();
        let offered = query(&sink, Some("video/x-raw,format=BGRA,height=[200,480]"));
        let structure = offered.structure(0).unwrap();
        assert_eq!(structure.get::<i32>("width"), Ok(320), "{output:?}");
        let heights = structure.get::<gst::IntRange<i32>>("height");
        assert_eq!(heights.unwrap(), gst::IntRange::new(200, 240), "{output:?}");
        assert!(
            !sink.query_accept_caps(&caps("video/x-raw,format=BGRA,width=640,height=240,framerate=30/1"))
        );
        element.release_request_pad(&mask);
        assert!(sink.query_accept_caps(&caps("video/x-raw,format=BGRA,width=640,height=240,framerate=30/1")));
    }
}

#[test]
fn sizes_and_formats_change_in_mid_stream() {
    let mut harness = Harness::with_element(&element(OutputChoice::Overlay), Some("sink"), Some("src"));
    for (number, (format, size)) in [
        (VideoFormat::Nv12, (64, 48)),
        (VideoFormat::Bgra, (64, 48)),
        (VideoFormat::Bgra, (17, 90)),
        (VideoFormat::Gray8, (1, 1)),
        (VideoFormat::Yuy2, (321, 5)),
    ]
    .into_iter()
    .enumerate()
    {
        let info = frames::info(format, size);
        let caps = info.to_caps().unwrap();
        harness.set_src_caps(caps.clone());
        harness
            .push(Picture::of_labels(&info, Lay::Default, |x, _| (x % 16) as u8).buffer(number as u64))
            .unwrap();
        let out = harness.pull().unwrap();
        assert_eq!(out.size(), info.size());
        assert_eq!(harness.sinkpad().unwrap().current_caps(), Some(caps));
    }
}
