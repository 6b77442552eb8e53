//! What the tests of the programs share: clips made here, files and folders read back, processes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use gst::prelude::*;
use gst_video::prelude::*;

pub fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data").join(name)
}

/// A program with the tiny model, which has random weights and takes a few milliseconds a frame.
pub fn program(path: &str) -> Command {
    let mut command = Command::new(path);
    for variable in
        ["SAPIENS_NONCOMMERCIAL", "SAPIENS2_LICENSE_ACCEPTED", "SAPIENS_CHECKPOINT_ROOT", "RUST_LOG"]
    {
        command.env_remove(variable);
    }
    command.env("G_DEBUG", "fatal-criticals");
    command.arg("--card").arg(data("tiny-sapiens2.toml"));
    command.arg("--weights").arg(data("tiny-sapiens2.safetensors"));
    command
}

pub fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Runs a pipeline to its end.
pub fn launch(pipeline: &str) {
    gst::init().unwrap();
    let pipeline = gst::parse::launch(pipeline).unwrap();
    pipeline.set_state(gst::State::Playing).unwrap();
    let bus = pipeline.bus().unwrap();
    let message = bus.timed_pop_filtered(None, &[gst::MessageType::Eos, gst::MessageType::Error]);
    let message = message.unwrap();
    pipeline.set_state(gst::State::Null).unwrap();
    assert_eq!(message.type_(), gst::MessageType::Eos, "{message:?}");
}

/// Frames of a video file in a format, each with its time in milliseconds and its bytes, rows without padding.
pub fn decode(path: &Path, format: &str) -> Vec<(u64, Vec<u8>)> {
    gst::init().unwrap();
    let pipeline = gst::parse::launch(&format!(
        "filesrc location={} ! decodebin ! videoconvert ! video/x-raw,format={format} ! appsink name=sink sync=false",
        path.display()
    ));
    let pipeline = pipeline.unwrap().downcast::<gst::Pipeline>().unwrap();
    let sink = pipeline.by_name("sink").unwrap().downcast::<gst_app::AppSink>().unwrap();
    pipeline.set_state(gst::State::Playing).unwrap();
    let mut frames = Vec::new();
    while let Ok(sample) = sink.pull_sample() {
        let info = gst_video::VideoInfo::from_caps(sample.caps().unwrap()).unwrap();
        let frame =
            gst_video::VideoFrameRef::from_buffer_ref_readable(sample.buffer().unwrap(), &info).unwrap();
        let (row, stride) =
            (info.width() as usize * info.comp_pstride(0) as usize, info.stride()[0] as usize);
        assert_eq!(frame.plane_stride()[0] as usize, stride);
        let plane = frame.plane_data(0).unwrap();
        let bytes =
            plane.chunks(stride).take(info.height() as usize).flat_map(|bytes| &bytes[..row]).copied();
        frames.push((sample.buffer().unwrap().pts().unwrap().mseconds(), bytes.collect()));
    }
    let error = pipeline.bus().unwrap().pop_filtered(&[gst::MessageType::Error]);
    pipeline.set_state(gst::State::Null).unwrap();
    assert!(error.is_none(), "{}: {error:?}", path.display());
    frames
}

/// All files below a folder with their bytes.
#[allow(dead_code, reason = "each test uses its part")]
pub fn tree(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(&next).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(folder).unwrap().to_owned();
            if path.is_dir() {
                // An empty folder that shouldn't be there is a difference, too.
                files.insert(name, Vec::new());
                folders.push(path);
            } else {
                files.insert(name, std::fs::read(&path).unwrap());
            }
        }
    }
    files
}
