//! What applications do with such pipelines: seek, change caps, start over, bring a context of their own.
//!
//! They need a process whose driver is the stand-in. Each scenario is an ignored test that its twin runs in a child.

use std::process::Command;
use std::str::FromStr;

use gst::prelude::*;
use sapiens_tests::gstreamer::Tools;
use tempfile::TempDir;

use super::{CUDA, TINY, assert_nothing_left, calls, run};

/// Set in children.
const CHILD: &str = "SAPIENS_TEST_CHILD";

const LIMIT: gst::ClockTime = gst::ClockTime::from_seconds(60);

/// Runs a scenario in a child: what it said, and the stand-in's log. Nothing of what it made is left.
fn in_child(scenario: &str) -> Option<(String, String)> {
    let tools = Tools::with_cuda()?;
    let folder = TempDir::new().unwrap();
    let log = folder.path().join("log");
    let mut command: Command = tools.command(std::env::current_exe().unwrap().to_str().unwrap());
    let name = format!("applications::{scenario}");
    let text = run(command
        .args(["--ignored", "--exact", &name, "--nocapture"])
        .env(CHILD, "1")
        .env("SAPIENS_STAND_IN_LOG", &log));
    assert!(text.contains("1 passed"), "{text}");
    let log = std::fs::read_to_string(log).unwrap();
    assert_nothing_left(&log);
    Some((text, log))
}

/// Whether this is a child; a scenario that somebody runs by itself does nothing.
fn is_child() -> bool {
    let is_child = std::env::var_os(CHILD).is_some();
    if is_child {
        gst::init().unwrap();
    }
    is_child
}

macro_rules! scenarios {
    ($($test:ident = $scenario:ident;)*) => {$(
        #[test]
        fn $test() {
            in_child(stringify!($scenario));
        }
    )*};
}

scenarios! {
    seeks_and_flushes_go_on = seeks;
    caps_may_change_in_mid_stream = caps_change;
    it_starts_over_and_over = cycles;
    frames_of_another_context_are_followed = other_contexts;
    frames_that_are_elsewhere_than_their_caps_say_are_refused = elsewhere;
}

#[test]
fn an_application_brings_its_context() {
    if let Some((_, log)) = in_child("own_context") {
        // Beside it the one that GStreamer's plugin makes to look what devices there are.
        assert_eq!(calls(&log, &["cuCtxCreate_v2"]), 2, "{log}");
        assert_eq!(calls(&log, &["cuDevicePrimaryCtxRetain"]), 0, "{log}");
    }
}

#[test]
fn what_can_not_be_is_said_with_what_to_do() {
    let Some((text, _)) = in_child("mixed") else { return };
    for expected in [
        "frames in CUDA memory are taken by the kernels with device=cuda, and kernels cpu",
        "frames come in CUDA memory, and what is behind takes the machine's: put cudadownload there",
        "frames come in the machine's memory, and what is behind takes CUDA memory: put cudaupload there",
    ] {
        assert!(text.contains(expected), "{expected:?} is not in\n{text}");
    }
}

/// A pipeline with an `appsink` of the name `sink`.
struct Pipeline {
    pipeline: gst::Pipeline,
    sink: gst_app::AppSink,
}

impl Pipeline {
    fn new(text: &str) -> Self {
        let pipeline = gst::parse::launch(&format!("{text} ! appsink name=sink sync=false")).unwrap();
        let pipeline = pipeline.downcast::<gst::Pipeline>().unwrap();
        let sink = pipeline.by_name("sink").unwrap().downcast().unwrap();
        Self { pipeline, sink }
    }

    fn source(&self) -> gst_app::AppSrc {
        self.pipeline.by_name("source").unwrap().downcast().unwrap()
    }

    fn start(&self) {
        self.pipeline.set_state(gst::State::Playing).unwrap();
    }

    fn stop(&self) {
        self.pipeline.set_state(gst::State::Null).unwrap();
    }

    /// The next frame's bytes; none at the end.
    fn frame(&self) -> Option<Vec<u8>> {
        let sample = self.sample()?;
        let buffer = sample.buffer().unwrap();
        Some(buffer.map_readable().unwrap().to_vec())
    }

    fn sample(&self) -> Option<gst::Sample> {
        let sample = self.sink.try_pull_sample(LIMIT);
        if sample.is_none() {
            let error = self.error();
            assert!(error.is_none() && self.sink.is_eos(), "{error:?}");
        }
        sample
    }

    fn rest(&self) -> Vec<Vec<u8>> {
        std::iter::from_fn(|| self.frame()).collect()
    }

    /// What the bus says that went wrong.
    fn error(&self) -> Option<String> {
        let bus = self.pipeline.bus().unwrap();
        let message = bus.pop_filtered(&[gst::MessageType::Error])?;
        let gst::MessageView::Error(error) = message.view() else { return None };
        Some(format!("{} {:?}", error.error(), error.debug()))
    }
}

impl Drop for Pipeline {
    fn drop(&mut self) {
        self.stop();
    }
}

fn source(frames: usize) -> String {
    format!(
        "videotestsrc num-buffers={frames} pattern=ball ! video/x-raw,format=BGRA,width=40,height=24,framerate=25/1"
    )
}

fn overlay(more: &str) -> String {
    format!("sapiensseg name=seg {TINY} output=overlay {more}")
}

fn on_cuda(frames: usize) -> String {
    format!("{} ! cudaupload ! {CUDA} ! {} ! cudadownload ! video/x-raw", source(frames), overlay(""))
}

fn on_host(frames: usize) -> String {
    format!("{} ! {}", source(frames), overlay(""))
}

#[test]
#[ignore = "runs in a child"]
fn seeks() {
    if !is_child() {
        return;
    }
    let pipeline = Pipeline::new(&on_cuda(1000));
    pipeline.start();
    for to in [0, 400, 80, 2000, 0] {
        assert!(pipeline.frame().is_some());
        let to = gst::ClockTime::from_mseconds(to);
        pipeline.pipeline.seek_simple(gst::SeekFlags::FLUSH, to).unwrap();
        let first = pipeline.sample().unwrap().buffer().unwrap().pts();
        assert_eq!(first, Some(to));
    }
    let (start, stop) = (gst::ClockTime::from_mseconds(120), gst::ClockTime::from_mseconds(240));
    let flags = gst::SeekFlags::FLUSH;
    pipeline.pipeline.seek(1.0, flags, gst::SeekType::Set, start, gst::SeekType::Set, stop).unwrap();
    assert_eq!(pipeline.rest().len(), 3);
}

#[test]
#[ignore = "runs in a child"]
fn caps_change() {
    if !is_child() {
        return;
    }
    let run = |elements: &str| {
        let pipeline = Pipeline::new(&format!("appsrc name=source format=time ! {elements}"));
        pipeline.start();
        let source = pipeline.source();
        let mut number = 0;
        for (format, width, height) in
            [("NV12", 40, 24), ("RGBA", 40, 24), ("RGBA", 24, 40), ("I420", 24, 40)]
        {
            let text = format!("video/x-raw,format={format},width={width},height={height},framerate=25/1");
            let caps = gst::Caps::from_str(&text).unwrap();
            let size = gst_video::VideoInfo::from_caps(&caps).unwrap().size();
            for _ in 0..2 {
                let mut buffer =
                    gst::Buffer::from_slice((0..size).map(|n| (n * 7) as u8).collect::<Vec<_>>());
                buffer.get_mut().unwrap().set_pts(gst::ClockTime::from_mseconds(40 * number));
                number += 1;
                source.push_sample(&gst::Sample::builder().buffer(&buffer).caps(&caps).build()).unwrap();
            }
        }
        source.end_of_stream().unwrap();
        pipeline.rest()
    };
    let found = run(&format!("cudaupload ! {CUDA} ! {} ! cudadownload ! video/x-raw", overlay("")));
    assert_eq!(found.len(), 8);
    assert!(found == run(&overlay("")), "frames differ");
}

#[test]
#[ignore = "runs in a child"]
fn cycles() {
    if !is_child() {
        return;
    }
    let expected = Pipeline::new(&on_host(3));
    expected.start();
    let expected = expected.rest();
    assert_eq!(expected.len(), 3);
    let pipeline = Pipeline::new(&on_cuda(3));
    for _ in 0..3 {
        pipeline.start();
        assert!(pipeline.rest() == expected, "frames differ");
        pipeline.stop();
    }
    // Stopped in mid-stream, too.
    pipeline.start();
    assert!(pipeline.frame().is_some());
}

/// What an element for CUDA shares with who asks.
fn shared_context(pipeline: &Pipeline) -> gst::Context {
    let upload = pipeline.pipeline.by_name("upload").unwrap();
    upload.context("gst.cuda.context").unwrap()
}

#[test]
#[ignore = "runs in a child"]
fn own_context() {
    if !is_child() {
        return;
    }
    let first = Pipeline::new(&format!("{} ! cudaupload name=upload ! {CUDA}", source(1)));
    first.start();
    assert!(first.sample().is_some());
    let context = shared_context(&first);
    let pipeline = Pipeline::new(&on_cuda(2));
    pipeline.pipeline.set_context(&context);
    pipeline.start();
    assert_eq!(pipeline.rest().len(), 2);
}

#[test]
#[ignore = "runs in a child"]
fn other_contexts() {
    if !is_child() {
        return;
    }
    let expected = Pipeline::new(&format!("{} ! {}", source(4), overlay("interval=4")));
    expected.start();
    let expected = expected.rest();

    let follower = Pipeline::new(&format!(
        "appsrc name=source format=time ! {} ! cudadownload ! video/x-raw",
        overlay("interval=4")
    ));
    let painted = follower.pipeline.by_name("seg").unwrap().static_pad("src").unwrap();
    painted.add_probe(gst::PadProbeType::BUFFER, |_, info| {
        let Some(buffer) = info.buffer() else { return gst::PadProbeReturn::Ok };
        // What others said of the frame goes with it, but for how it lay.
        assert_eq!(buffer.iter_meta::<gst_video::VideoRegionOfInterestMeta>().count(), 1);
        assert_eq!(buffer.iter_meta::<gst_video::VideoMeta>().count(), 1);
        gst::PadProbeReturn::Ok
    });
    follower.sink.set_max_buffers(1);
    follower.start();
    for meta in [gst::BufferCopyFlags::META, gst::BufferCopyFlags::empty()] {
        // Another context each time. The memory itself says how it lies where no meta does.
        let maker = Pipeline::new(&format!("{} ! cudaupload name=upload ! {CUDA}", source(4)));
        maker.start();
        while let Some(sample) = maker.sample() {
            let flags = gst::BufferCopyFlags::TIMESTAMPS | gst::BufferCopyFlags::MEMORY | meta;
            let mut buffer = sample.buffer().unwrap().copy_region(flags, ..).unwrap();
            gst_video::VideoRegionOfInterestMeta::add(buffer.make_mut(), "face", (1, 2, 3, 4));
            let caps = sample.caps().unwrap().to_owned();
            let sample = gst::Sample::builder().buffer(&buffer).caps(&caps).build();
            follower.source().push_sample(&sample).unwrap();
        }
    }
    follower.source().end_of_stream().unwrap();
    // Those of the first context are still on their way when the second one's come, and stay there for a while.
    std::thread::sleep(std::time::Duration::from_secs(2));
    assert!(follower.rest() == [expected.clone(), expected].concat(), "frames differ");
}

/// The error that a pipeline ends with when a frame of these caps comes, whose bytes are in the machine's memory.
fn error_of(elements: &str, features: &str) -> String {
    let pipeline = Pipeline::new(&format!("appsrc name=source format=time ! {elements}"));
    pipeline.start();
    let caps = format!("{features},format=BGRA,width=8,height=8,framerate=25/1");
    let caps = gst::Caps::from_str(&caps).unwrap();
    let buffer = gst::Buffer::from_slice(vec![0; 8 * 8 * 4]);
    pipeline.source().push_sample(&gst::Sample::builder().buffer(&buffer).caps(&caps).build()).unwrap();
    pipeline.source().end_of_stream().unwrap();
    let bus = pipeline.pipeline.bus().unwrap();
    let message = bus.timed_pop_filtered(LIMIT, &[gst::MessageType::Error]).unwrap();
    let gst::MessageView::Error(error) = message.view() else { unreachable!() };
    format!("{} {:?}", error.error(), error.debug())
}

#[test]
#[ignore = "runs in a child"]
fn elsewhere() {
    if !is_child() {
        return;
    }
    let error = error_of(&overlay(""), CUDA);
    assert!(error.contains("is in the machine's memory"), "{error}");
}

#[test]
#[ignore = "runs in a child"]
fn mixed() {
    if !is_child() {
        return;
    }
    for (elements, features) in [
        (overlay("").replace("device=cuda", "device=cpu"), CUDA),
        (format!("{} ! video/x-raw", overlay("")), CUDA),
        (format!("{} ! {CUDA}", overlay("")), "video/x-raw"),
    ] {
        let error = error_of(&elements, features);
        assert!(error.contains("not-negotiated"), "{error}");
    }
}
