//! `make demo`: a clip of drawn people (or one of the user's) through one plain pipeline, and a picture of what came out.

mod clip;
mod sheet;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use gst::prelude::*;
use sapiens_cli::complain;
use sapiens_examples::{bus_error, start_gstreamer};
use sapiens_model::{ModelCard, Variant};

/// Labels a short clip and shows what came out: a video with an overlay, and a sheet of frames beside it.
#[derive(Parser)]
#[command(name = "demo", version)]
struct Arguments {
    /// The clip to label; without it one of drawn people is made.
    #[arg(long, value_name = "FILE")]
    input: Option<PathBuf>,

    /// Folder to write to; made if it isn't there.
    #[arg(short, long, value_name = "DIR", default_value = "demo")]
    output: PathBuf,

    /// The model: demo needs nothing and knows drawn figures only.
    #[arg(long, value_name = "NAME", default_value = "demo")]
    variant: String,

    /// Which drawn clip is made.
    #[arg(long, value_name = "N", default_value_t = 17)]
    seed: u64,

    /// How long the drawn clip is.
    #[arg(long, value_name = "SECONDS", default_value_t = 6.0, value_parser = seconds)]
    seconds: f64,
}

fn seconds(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|seconds| (0.1..=600.0).contains(seconds))
        .ok_or_else(|| "expected 0.1 to 600".to_owned())
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            complain(&message);
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), String> {
    let variant: Variant = arguments.variant.parse().map_err(|error| format!("{error}"))?;
    let card = ModelCard::of(variant);
    start_gstreamer()?;
    let folder = &arguments.output;
    std::fs::create_dir_all(folder).map_err(|error| format!("can't make {}: {error}", folder.display()))?;
    let input = match &arguments.input {
        Some(path) if path.is_file() => path.clone(),
        Some(path) => return Err(format!("{}: expected a video file, found none", path.display())),
        None => {
            let path = folder.join("clip.webm");
            anstream::println!("drawing {} s of moving figures: {}", arguments.seconds, path.display());
            clip::write(&path, arguments.seed, arguments.seconds)?;
            path
        }
    };
    let overlay = folder.join("overlay.webm");
    let run = label(&input, &overlay, variant)?;
    let sheet = folder.join("sheet.png");
    sheet::write(&sheet, &input, &overlay, run.frames, &card, &run.pixels)?;
    run.print(&card);
    anstream::println!("\nwritten\n  {}\n  {}", overlay.display(), sheet.display());
    if variant.has_built_in_weights() {
        anstream::println!(
            "\nThe demo model was trained on drawn figures and knows nothing of photographs. For real people:\n  \
             target/release/sapiens fetch sapiens2-0.4b --accept-license      # read its licence first\n  \
             SAPIENS2_LICENSE_ACCEPTED=1 make demo VARIANT=sapiens2-0.4b INPUT=people.mp4"
        );
    }
    Ok(())
}

/// What became of a clip.
struct Run {
    frames: u64,
    took: Duration,
    backend: String,
    inference: Duration,
    /// Pixels by class number, over all frames.
    pixels: BTreeMap<u32, u64>,
    all_pixels: u64,
}

/// A path as a pipeline's description quotes it.
fn quoted(path: &Path) -> String {
    format!("\"{}\"", path.display().to_string().replace('\\', "\\\\").replace('"', "\\\""))
}

/// Runs the pipeline to its end.
fn label(input: &Path, output: &Path, variant: Variant) -> Result<Run, String> {
    let description = format!(
        "filesrc location={} ! decodebin ! videoconvert ! sapiensseg name=seg variant={variant} output=overlay \
         post-messages=true ! videoconvert ! vp8enc deadline=1 cpu-used=4 target-bitrate=6000000 ! webmmux ! filesink \
         location={}",
        quoted(input),
        quoted(output)
    );
    let shell = description.replace(" post-messages=true", "").replace(" name=seg", "");
    anstream::println!("\nGST_PLUGIN_PATH=target/release gst-launch-1.0 {shell}\n");
    let pipeline = gst::parse::launch(&description).map_err(|error| format!("the pipeline: {error}"))?;
    let Some(pipeline) = pipeline.downcast_ref::<gst::Pipeline>() else {
        return Err("the pipeline: expected several elements, found one".to_owned());
    };
    let start = Instant::now();
    let result = play(pipeline);
    let took = start.elapsed();
    let statistics = pipeline.by_name("seg").map(|element| element.property::<gst::Structure>("stats"));
    let stopped = pipeline.set_state(gst::State::Null);
    let (pixels, all_pixels) = result?;
    stopped.map_err(|error| format!("the pipeline doesn't stop: {error}"))?;
    let field = |name: &str| statistics.as_ref().and_then(|stats| stats.get::<u64>(name).ok()).unwrap_or(0);
    let frames = field("frames");
    if frames == 0 {
        return Err(format!("{}: expected a video, found no frames in it", input.display()));
    }
    let backend = statistics.as_ref().and_then(|stats| stats.get::<String>("backend").ok());
    Ok(Run {
        frames,
        took,
        backend: backend.unwrap_or_default(),
        inference: Duration::from_nanos(field("inference-mean-ns")),
        pixels,
        all_pixels,
    })
}

/// Plays to the end of the stream; gives the pixels of each class, and all there were.
fn play(pipeline: &gst::Pipeline) -> Result<(BTreeMap<u32, u64>, u64), String> {
    let bus = pipeline.bus().ok_or("the pipeline has no bus")?;
    let mut pixels = BTreeMap::new();
    let mut all_pixels = 0;
    // What went wrong is on the bus.
    let _ = pipeline.set_state(gst::State::Playing);
    for message in bus.iter_timed(gst::ClockTime::NONE) {
        match message.view() {
            gst::MessageView::Eos(_) => return Ok((pixels, all_pixels)),
            gst::MessageView::Error(error) => return Err(bus_error(error)),
            gst::MessageView::Element(_) => {
                let Some(structure) = message.structure().filter(|s| s.name() == "sapiensseg") else {
                    continue;
                };
                let side = |name: &str| u64::from(structure.get::<u32>(name).unwrap_or(0));
                all_pixels += side("width") * side("height");
                let Ok(regions) = structure.get::<gst::Array>("regions") else { continue };
                for region in regions.iter().filter_map(|region| region.get::<gst::Structure>().ok()) {
                    if let (Ok(class), Ok(count)) = (region.get::<u32>("id"), region.get::<u64>("pixels")) {
                        *pixels.entry(class).or_insert(0) += count;
                    }
                }
            }
            _ => {}
        }
    }
    Err("the pipeline stopped without an end".to_owned())
}

impl Run {
    fn print(&self, card: &ModelCard) {
        let rate = self.frames as f64 / self.took.as_secs_f64();
        anstream::println!(
            "{} frames in {:.1} s: {rate:.1} frames per second, decoding and encoding included",
            self.frames,
            self.took.as_secs_f64()
        );
        anstream::println!(
            "{} on {}: {:.1} ms a frame from pixels to labels",
            card.name(),
            self.backend,
            self.inference.as_secs_f64() * 1e3
        );
        let mut largest: Vec<_> = self.pixels.iter().filter(|(class, _)| **class != 0).collect();
        largest.sort_by_key(|(_, pixels)| std::cmp::Reverse(**pixels));
        anstream::println!("\nthe largest classes, of all pixels");
        for (class, pixels) in largest.into_iter().take(5) {
            let name = card.classes.get(*class as usize).map_or("?", |class| class.name.as_str());
            anstream::println!("  {name:<16} {:5.1} %", *pixels as f64 * 100.0 / self.all_pixels as f64);
        }
    }
}
