//! Reads the labels that `sapiensseg` puts on frames, in Rust.
//!
//! ```sh
//! cargo run -p gst-plugin-sapiensseg --example read_meta -- \
//!     "filesrc location=clip.mp4 ! decodebin ! videoconvert ! sapiensseg"
//! ```
//!
//! The argument is a pipeline in gst-launch's words, up to where frames have their labels; this program adds an
//! appsink and prints a line per frame: its time, and how many pixels each class has. The plugin is found as
//! GStreamer finds plugins, by `GST_PLUGIN_PATH` for one that isn't installed. Nothing of the plugin is linked: the
//! meta is one of GStreamer's custom metas, which are read by name.
#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::error::Error;
use std::process::ExitCode;

use gst::prelude::*;
use gst_app::AppSink;

/// What the plugin calls its meta.
const META: &str = "SapiensSegMeta";

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let (Some(pipeline), None) = (arguments.next(), arguments.next()) else {
        eprintln!("usage: read_meta 'SOURCE ! ... ! sapiensseg ...'");
        return ExitCode::from(2);
    };
    match run(&pipeline) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("read_meta: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(description: &str) -> Result<(), Box<dyn Error>> {
    gst::init()?;
    // sync=false: frames are read as fast as they are labelled, not at the pace of the clip.
    let pipeline = gst::parse::launch(&format!("{description} ! appsink name=labelled sync=false"))?
        .downcast::<gst::Pipeline>()
        .map_err(|_| "the description has one element only")?;
    let frames = pipeline
        .by_name("labelled")
        .and_then(|sink| sink.downcast::<AppSink>().ok())
        .ok_or("the appsink is gone")?;

    // A model that isn't there, say, fails at once.
    let started = pipeline.set_state(gst::State::Playing);
    // An error is the end of the samples, too.
    while started.is_ok() {
        let Ok(sample) = frames.pull_sample() else { break };
        if let Some(frame) = sample.buffer() {
            println!("{}", describe(frame)?);
        }
    }
    // What went wrong, if anything, the bus says.
    let error = pipeline.bus().and_then(|bus| bus.pop_filtered(&[gst::MessageType::Error]));
    pipeline.set_state(gst::State::Null)?;
    match error.as_ref().map(|message| message.view()) {
        Some(gst::MessageView::Error(error)) => Err(error.error().into()),
        _ => Ok(started.map(drop)?),
    }
}

/// A frame's time and its classes with their pixels.
fn describe(frame: &gst::BufferRef) -> Result<String, Box<dyn Error>> {
    let time = seconds(frame.pts().map(|pts| pts.nseconds()));
    // Frames of a live stream that leave before any labels are there have no meta.
    let Ok(meta) = gst::meta::CustomMeta::from_buffer(frame, META) else {
        return Ok(format!("{time}: no labels"));
    };
    let fields = meta.structure();
    let classes = fields.get::<gst::ArrayRef<'_>>("classes")?;
    let mask = fields.get::<gst::Buffer>("mask")?;
    // A byte per pixel, row after row, width times height of them: no padding to mind.
    let labels = mask.map_readable()?;

    let mut pixels = [0u64; 256];
    labels.iter().for_each(|label| pixels[usize::from(*label)] += 1);
    let mut present = Vec::new();
    for (name, pixels) in classes.iter().zip(pixels).filter(|(_, pixels)| *pixels > 0) {
        present.push(format!("{} {pixels}", name.get::<&str>()?));
    }

    // Labels may be those of an earlier frame: of every Nth with interval=N, of the last that was ready in time in
    // a live stream.
    let reused = fields.get::<bool>("reused")?;
    let of = fields.get::<u64>("labels-pts")?;
    let of = if reused {
        format!(" (labels of {})", seconds((of != u64::MAX).then_some(of)))
    } else {
        String::new()
    };
    Ok(format!("{time}: {}{of}", present.join(", ")))
}

fn seconds(nanoseconds: Option<u64>) -> String {
    nanoseconds.map_or_else(|| "no time".to_owned(), |ns| format!("{:.3} s", ns as f64 / 1e9))
}
