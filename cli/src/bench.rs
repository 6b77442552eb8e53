//! `sapiens bench`: what a model takes on this machine, through the whole library, measured and printed.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use sapiens_model::{
    Output, OwnedFrame, Result, Segmenter, Stage, Timing, Weights, Work, parameters, peak_rate,
};
use serde::Serialize;

use crate::any_model::AnyModelArguments;
use crate::json;

/// Seed of generated weights, where no weights are named.
const SEED: u64 = 3;

#[derive(Args)]
#[command(after_help = "\
Without --weights the weights are generated: nothing is downloaded, no licence is needed, and the arithmetic is the
same. Examples:
  sapiens bench --variant sapiens2-0.4b --input-size width=384,height=512
  sapiens bench --variant 0.3b --frames 20 --json > bench.json")]
pub(crate) struct Arguments {
    /// Frames measured.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    frames: u32,

    /// Frames before those, not measured.
    #[arg(long, value_name = "N", default_value_t = 1)]
    warm_up: u32,

    /// Size of the frames that come in.
    #[arg(long, value_name = "WxH", default_value = "1280x720", value_parser = size)]
    frame_size: (usize, usize),

    /// Print JSON instead of a table.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    model: AnyModelArguments,
}

fn size(text: &str) -> std::result::Result<(usize, usize), String> {
    let sides = text.split_once('x').and_then(|(w, h)| Some((w.parse().ok()?, h.parse().ok()?)));
    sides
        .filter(|(width, height)| (1..=16384).contains(width) && (1..=16384).contains(height))
        .ok_or_else(|| "expected a width and a height from 1 to 16384, as in 1280x720".to_owned())
}

/// All times in milliseconds.
#[derive(Serialize)]
struct Report {
    model: String,
    backend: String,
    weights: String,
    parameters: usize,
    frame: [usize; 2],
    input: [usize; 2],
    processor: String,
    threads: usize,
    frames: usize,
    load_ms: f64,
    first_frame_ms: f64,
    steps: Steps,
    /// What the network step consists of, on a GPU in as many frames more; empty where the backend doesn't tell.
    stages: Vec<StageReport>,
    frames_per_second: f64,
    /// Arithmetic of one frame, by formula.
    tflop_per_frame: f64,
    tflop_per_second: f64,
    /// What this processor's multiply-add does from registers alone, on as many threads, measured in this run.
    peak_tflop_per_second: Option<f64>,
    /// Of the process, from its start.
    peak_memory_mib: Option<f64>,
    gpu: Option<GpuReport>,
}

/// What the network takes of a GPU.
#[derive(Serialize)]
struct GpuReport {
    peak_memory_mib: f64,
    /// Kernels and copies of the forward pass.
    launches: usize,
}

#[derive(Serialize)]
struct Steps {
    preprocess: Spread,
    network: Spread,
    postprocess: Spread,
    total: Spread,
}

/// A part of the network, all layers together.
#[derive(Serialize)]
struct StageReport {
    stage: &'static str,
    median: f64,
    /// Arithmetic of one frame; zero for what does no products.
    tflop: f64,
    tflop_per_second: f64,
}

#[derive(Serialize)]
struct Spread {
    median: f64,
    fastest: f64,
    slowest: f64,
}

impl Spread {
    fn of(timings: &[Timing], step: impl Fn(&Timing) -> Duration) -> Self {
        let mut times: Vec<_> = timings.iter().map(|timing| milliseconds(step(timing))).collect();
        times.sort_by(f64::total_cmp);
        let middle = times.len() / 2;
        let median = if times.len().is_multiple_of(2) {
            (times[middle - 1] + times[middle]) / 2.0
        } else {
            times[middle]
        };
        Self { median, fastest: times[0], slowest: times[times.len() - 1] }
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let card = arguments.model.model.card()?;
    let options = arguments.model.model.options()?;
    let start = Instant::now();
    let weights = if arguments.model.names_weights() {
        arguments.model.weights(&card)?
    } else {
        Weights::generated(&card, SEED)
    };
    let described = weights.describe().to_owned();
    let segmenter = Segmenter::new(card, &weights, options)?;
    drop(weights);
    let load = start.elapsed();
    let (width, height) = arguments.frame_size;
    let frame = frame(width, height);
    let mut output = Output::default();
    let start = Instant::now();
    infer(&segmenter, &frame, arguments.frame_size, &mut output)?;
    let first_frame = start.elapsed();
    for _ in 1..arguments.warm_up {
        infer(&segmenter, &frame, arguments.frame_size, &mut output)?;
    }
    let mut timings = Vec::new();
    for _ in 0..arguments.frames {
        infer(&segmenter, &frame, arguments.frame_size, &mut output)?;
        timings.push(output.timing);
    }
    let mut in_stages = timings.clone();
    if segmenter.device_use().is_some() {
        // Frames of their own: a GPU takes longer for those.
        segmenter.time_stages(true);
        in_stages.clear();
        for _ in 0..arguments.frames {
            infer(&segmenter, &frame, arguments.frame_size, &mut output)?;
            in_stages.push(output.timing);
        }
    }
    let card = segmenter.card();
    let input = options.input_size.network_input(card, width, height)?;
    let work_of_stages = Work::of(card, input.0, input.1);
    let work = work_of_stages.total() / 1e12;
    let steps = Steps {
        preprocess: Spread::of(&timings, |timing| timing.preprocess),
        network: Spread::of(&timings, |timing| timing.network),
        postprocess: Spread::of(&timings, |timing| timing.postprocess),
        total: Spread::of(&timings, Timing::total),
    };
    let threads = options.thread_count()?;
    let report = Report {
        model: card.name().to_owned(),
        backend: segmenter.backend().to_string(),
        weights: described,
        parameters: parameters(card),
        frame: [width, height],
        input: [input.0, input.1],
        processor: processor(),
        threads,
        frames: timings.len(),
        load_ms: milliseconds(load),
        first_frame_ms: milliseconds(first_frame),
        frames_per_second: 1e3 / steps.total.median,
        tflop_per_frame: work,
        tflop_per_second: work * 1e3 / steps.network.median,
        steps,
        stages: stages(&in_stages, &work_of_stages),
        gpu: gpu(&segmenter),
        // After the memory, to which it adds nothing that counts.
        peak_memory_mib: peak_memory(),
        peak_tflop_per_second: peak_rate(segmenter.backend(), threads).map(|rate| rate / 1e12),
    };
    if arguments.json {
        json::print(&report);
    } else {
        print(&report);
    }
    Ok(ExitCode::SUCCESS)
}

fn stages(timings: &[Timing], work: &Work) -> Vec<StageReport> {
    let stages = Stage::ALL.map(|stage| {
        let median = Spread::of(timings, |timing| timing.stages.of(stage)).median;
        let tflop = work.stage(stage) / 1e12;
        StageReport { stage: stage.name(), median, tflop, tflop_per_second: tflop * 1e3 / median }
    });
    // A backend that tells nothing, and a stage that this network doesn't have.
    stages.into_iter().filter(|stage| stage.median > 0.0).collect()
}

fn gpu(segmenter: &Segmenter) -> Option<GpuReport> {
    let found = segmenter.device_use()?;
    let peak_memory_mib = found.peak_memory as f64 / f64::from(1 << 20);
    Some(GpuReport { peak_memory_mib, launches: found.launches })
}

fn infer(
    segmenter: &Segmenter,
    pixels: &[u8],
    (width, height): (usize, usize),
    output: &mut Output,
) -> Result<()> {
    segmenter.submit(OwnedFrame::rgb(width, height, pixels.to_vec())?)?;
    segmenter.receive(output)
}

/// A picture with something in it everywhere: smooth colours with a grain on them.
fn frame(width: usize, height: usize) -> Vec<u8> {
    let mut state = 1_u32;
    let mut pixels = Vec::with_capacity(width * height * 3);
    for y in 0..height {
        for x in 0..width {
            for channel in [x * 255 / width, y * 255 / height, (x + y) * 255 / (width + height)] {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                pixels.push((channel as u32 * 7 / 8 + (state >> 27)) as u8);
            }
        }
    }
    pixels
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// The processor's name, as Linux gives it.
fn processor() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    name.map_or(std::env::consts::ARCH.to_owned(), |(_, name)| name.trim().to_owned())
}

/// The most memory this process ever had resident, as Linux counts it.
fn peak_memory() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kibibytes: f64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    Some(kibibytes / 1024.0)
}

fn print(report: &Report) {
    let Report { frame, input, steps, .. } = report;
    anstream::println!("model       {} ({:.3} B parameters)", report.model, report.parameters as f64 / 1e9);
    anstream::println!("weights     {}", report.weights);
    anstream::println!("backend     {}, {} threads, {}", report.backend, report.threads, report.processor);
    anstream::println!("frame       {} x {}, network input {} x {}", frame[0], frame[1], input[0], input[1]);
    anstream::println!("load        {:.0} ms, first frame {:.0} ms", report.load_ms, report.first_frame_ms);
    if let Some(peak) = report.peak_memory_mib {
        anstream::println!("memory      {peak:.0} MiB at most");
    }
    if let Some(GpuReport { peak_memory_mib, launches }) = &report.gpu {
        anstream::println!(
            "on the GPU  {peak_memory_mib:.0} MiB at most, {launches} launches in the network, made as one"
        );
    }
    anstream::println!("\n{:<14}{:>12}{:>12}{:>12}", "step", "median ms", "fastest", "slowest");
    for (name, spread) in [
        ("preprocess", &steps.preprocess),
        ("network", &steps.network),
        ("postprocess", &steps.postprocess),
        ("total", &steps.total),
    ] {
        let Spread { median, fastest, slowest } = spread;
        anstream::println!("{name:<14}{median:>12.2}{fastest:>12.2}{slowest:>12.2}");
    }
    let share = |rate: f64| {
        report.peak_tflop_per_second.map_or(String::new(), |peak| format!("{:.0} %", 100.0 * rate / peak))
    };
    if !report.stages.is_empty() {
        anstream::println!(
            "\n{:<14}{:>12}{:>12}{:>12}{:>12}",
            "in the network",
            "median ms",
            "TFLOP",
            "TFLOP/s",
            "of peak"
        );
    }
    for StageReport { stage, median, tflop, tflop_per_second } in &report.stages {
        if *tflop > 0.0 {
            let share = share(*tflop_per_second);
            anstream::println!("{stage:<14}{median:>12.2}{tflop:>12.4}{tflop_per_second:>12.3}{share:>12}");
        } else {
            anstream::println!("{stage:<14}{median:>12.2}");
        }
    }
    anstream::println!(
        "\n{:.3} frames per second; {:.3} TFLOP per frame, {:.3} TFLOP/s in the network ({} frames)",
        report.frames_per_second,
        report.tflop_per_frame,
        report.tflop_per_second,
        report.frames
    );
    if let Some(peak) = report.peak_tflop_per_second {
        anstream::println!(
            "peak of these instructions, from registers: {peak:.3} TFLOP/s; the network reaches {}",
            share(report.tflop_per_second)
        );
    }
}
