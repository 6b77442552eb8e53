//! What the element itself costs a frame, beside `identity`: processor time of every thread but the engine's.
//!
//! `cargo run --release -p gst-plugin-sapiensseg --no-default-features --features fake-engine --example element_cost`
//!
//! Frames of 1920 x 1080 are pushed into an element's sink pad and given back by whatever is linked behind, so that
//! no frame is allocated while time is taken. The engine is the fake one with given labels: it copies them and
//! looks at no pixel, on a thread of its own, which is left out. What is left is the pushing thread (chain,
//! submission, queue), the thread that waits for labels and the task on the src pad (meta, picture, push). The time
//! is what Linux says each thread has run (`/proc/self/task/*/schedstat`), and so doesn't count waiting for the
//! engine or for other programs; a switch to another thread is counted on both sides.
//!
//! Labels: `people` has two people in half-ellipses with a band of a different class every 60 rows, about 40 % of
//! the frame; `noise` has a class of its own for each pixel, which no network gives and no run shortens.

#![allow(clippy::print_stdout)]

use std::collections::HashMap;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use crossbeam::channel::{Receiver, Sender, unbounded};
use gst::prelude::*;
use gst_video::{VideoFormat, VideoInfo};
use gstsapiensseg::{OutputChoice, SapiensSeg};
use sapiens_model::engine::fake::{self, Outcome, Turn};
use sapiens_model::{LabelMap, ModelCard, Segmenter, Variant};

const WIDTH: usize = 1920;
const HEIGHT: usize = 1080;

/// Frames whose time is taken together: the clock of a thread is read only around them.
const BATCH: usize = 20;
const BATCHES: usize = 15;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> Result<()> {
    gst::init()?;
    gstsapiensseg::plugin_register_static()?;
    let (people, noise) = (people(), noise());
    let shown = people.labels().iter().filter(|label| **label != 0).count();
    println!(
        "{WIDTH} x {HEIGHT}, median of {BATCHES} batches of {BATCH} frames, milliseconds of processor time a frame;"
    );
    println!("people cover {:.0} % of the frame", 100.0 * shown as f64 / (WIDTH * HEIGHT) as f64);
    println!("{:<8} {:<6} {:>10} {:>10}", "output", "format", "people", "noise");
    for format in
        [VideoFormat::Nv12, VideoFormat::I420, VideoFormat::Yuy2, VideoFormat::Bgra, VideoFormat::Rgb]
    {
        let identity = gst::ElementFactory::make("identity").build()?;
        println!("{:<8} {:<6} {:>10.3}", "identity", format.to_str(), cost(&identity, format)?);
        for output in [OutputChoice::Meta, OutputChoice::Overlay, OutputChoice::Mask, OutputChoice::Alpha] {
            if output == OutputChoice::Alpha && format != VideoFormat::Bgra {
                continue;
            }
            let of = |labels: &Arc<LabelMap>| cost(element(output, labels)?.upcast_ref(), format);
            let (people, noise) = (of(&people)?, of(&noise)?);
            let name = format!("{output:?}").to_lowercase();
            println!("{name:<8} {:<6} {people:>10.3} {noise:>10.3}", format.to_str());
        }
    }
    Ok(())
}

fn people() -> Arc<LabelMap> {
    let mut map = LabelMap::new(WIDTH, HEIGHT);
    for (y, row) in map.labels_mut().chunks_exact_mut(WIDTH).enumerate() {
        for (x, label) in row.iter_mut().enumerate() {
            for (person, center) in [(0, 560.0), (1, 1380.0)] {
                let across = (x as f64 - center) / 270.0;
                let down = (y as f64 - HEIGHT as f64) / 990.0;
                if across * across + down * down < 1.0 {
                    *label = (1 + (y / 60 + x / 130 * 7 + person * 3) % 27) as u8;
                }
            }
        }
    }
    Arc::new(map)
}

fn noise() -> Arc<LabelMap> {
    let mut map = LabelMap::new(WIDTH, HEIGHT);
    let mut state = 1u32;
    for label in map.labels_mut() {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        *label = (state % 28) as u8;
    }
    Arc::new(map)
}

fn element(output: OutputChoice, labels: &Arc<LabelMap>) -> Result<SapiensSeg> {
    let element = gst::ElementFactory::make("sapiensseg").property("output", output).build()?;
    let element = element.downcast::<SapiensSeg>().map_err(|_| "another element of this name")?;
    let labels = labels.clone();
    element.set_segmenter(move || {
        let labels = labels.clone();
        let turn = move |_| Turn { delay: Duration::ZERO, outcome: Outcome::Labels(labels.clone()) };
        Ok(Segmenter::with_engine(ModelCard::of(Variant::Sapiens1b), fake::engine(2, Box::new(turn))?))
    });
    Ok(element)
}

/// Milliseconds of processor time a frame.
fn cost(element: &gst::Element, format: VideoFormat) -> Result<f64> {
    let info =
        VideoInfo::builder(format, WIDTH as u32, HEIGHT as u32).fps(gst::Fraction::new(30, 1)).build()?;
    let (given_back, frames): (Sender<gst::Buffer>, Receiver<gst::Buffer>) = unbounded();
    let source = gst::Pad::new(gst::PadDirection::Src);
    let sink = gst::Pad::builder(gst::PadDirection::Sink)
        .chain_function(move |_, _, buffer| {
            // The other side hears of it when it counts.
            given_back.send(buffer).map(|()| gst::FlowSuccess::Ok).map_err(|_| gst::FlowError::Error)
        })
        .build();
    let (element_sink, element_source) = match (element.static_pad("sink"), element.static_pad("src")) {
        (Some(sink), Some(source)) => (sink, source),
        _ => return Err("an element without pads".into()),
    };
    source.link(&element_sink)?;
    element_source.link(&sink)?;
    sink.set_active(true)?;
    source.set_active(true)?;
    element.set_state(gst::State::Playing)?;
    source.push_event(gst::event::StreamStart::new("cost"));
    source.push_event(gst::event::Caps::new(&info.to_caps()?));
    source.push_event(gst::event::Segment::new(&gst::FormattedSegment::<gst::ClockTime>::new()));

    // Memory goes round. With output=mask what comes back is masks: frames' memory is held meanwhile, else its
    // being freed would be counted.
    let masks =
        element.has_property("output") && element.property::<OutputChoice>("output") == OutputChoice::Mask;
    let fresh = |_| gst::Memory::from_mut_slice(vec![100; info.size()]);
    let mut pool: Vec<gst::Memory> = (0..BATCH).map(fresh).collect();
    let mut milliseconds = Vec::new();
    for batch in 0..=BATCHES {
        let mut pushed = Vec::new();
        let held = if masks { pool.clone() } else { Vec::new() };
        for (number, memory) in pool.drain(..).enumerate() {
            let time = gst::ClockTime::from_mseconds(((batch * BATCH + number) * 33) as u64);
            let mut buffer = gst::Buffer::new();
            let writable = buffer.make_mut();
            writable.append_memory(memory);
            writable.set_pts(time);
            pushed.push(buffer);
        }
        let before = run_by_threads()?;
        for buffer in pushed {
            source.push(buffer)?;
        }
        let mut back = Vec::new();
        for _ in 0..BATCH {
            back.push(frames.recv_timeout(Duration::from_secs(20))?);
        }
        let after = run_by_threads()?;
        let mine = |(thread, time): (&String, &u64)| time - before.get(thread).unwrap_or(&0);
        let run: u64 = after.iter().map(mine).sum();
        // The first batch warms up.
        if batch > 0 {
            milliseconds.push(run as f64 / 1e6 / BATCH as f64);
        }
        pool = if masks { held } else { back.iter().filter_map(|buffer| buffer.memory(0)).collect() };
    }
    element.set_state(gst::State::Null)?;
    milliseconds.sort_by(f64::total_cmp);
    Ok(milliseconds[milliseconds.len() / 2])
}

/// Nanoseconds that each thread of this process has run, but for the engine's.
fn run_by_threads() -> Result<HashMap<String, u64>> {
    // Linux brings a thread's time up to date when it stops running.
    std::thread::sleep(Duration::from_millis(2));
    let mut threads = HashMap::new();
    for task in std::fs::read_dir("/proc/self/task")? {
        let task = task?.path();
        let name = std::fs::read_to_string(task.join("comm"))?;
        if name.trim() != "sapiens-engine" {
            let times = std::fs::read_to_string(task.join("schedstat"))?;
            let run = times.split(' ').next().unwrap_or_default().parse()?;
            threads.insert(task.display().to_string(), run);
        }
    }
    Ok(threads)
}
