//! What a frame takes in whole networks, through the library, on this machine's card.

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sapiens_kernels::cuda::{Gpu, Precision as Stored};
use sapiens_model::{
    BackendRequest, Colorimetry, DeviceRequest, DeviceSpans, ErrorKind, Frame, FrameInfo, InputSize, Mode,
    ModelCard, Options, Output, OwnedFrame, PixelFormat, Pixels, Precision, Segmenter, Stage, Timing,
    Variant, Weights, Work, parameters,
};
use serde::Serialize;
use serde_json::{Value, json};

use crate::budget::Budget;
use sapiens_device_check::timeline::Timeline;

/// Frames in flight.
const SLOTS: usize = 2;
/// Frames of a timeline.
const SHOWN: usize = 6;

/// Which networks, on what, how often.
pub struct Plan {
    cards: Vec<ModelCard>,
    input_size: InputSize,
    /// Width and height.
    frame: [usize; 2],
    /// Of each figure.
    frames: usize,
    /// In which a stream's frames should be.
    stream: Duration,
}

impl Plan {
    /// Both families' smallest and their middle ones, at the cards' size.
    pub fn full() -> Self {
        let variants = [Variant::Sapiens03b, Variant::Sapiens2_04b, Variant::Sapiens1b, Variant::Sapiens2_1b];
        Self {
            cards: variants.into_iter().map(ModelCard::of).collect(),
            input_size: InputSize::Card,
            frame: [1280, 720],
            frames: 15,
            stream: Duration::from_secs(2),
        }
    }

    /// The least of both families on the least input, to try the program itself.
    pub fn small() -> Self {
        let shrunk = |variant| {
            let mut card = ModelCard::of(variant);
            let network = &mut card.network;
            (network.layers, network.embed_dim, network.heads, network.ffn_dim) = (1, 32, 2, 32);
            (network.deconv_channels, network.conv_channels) = (vec![8], vec![8]);
            card
        };
        Self {
            cards: [Variant::Sapiens03b, Variant::Sapiens2_04b].map(shrunk).into(),
            input_size: InputSize::Fixed { width: 32, height: 32 },
            frame: [62, 46],
            frames: 1,
            stream: Duration::ZERO,
        }
    }
}

/// A network's figures in one precision.
#[derive(Debug, Serialize)]
pub struct NetworkTimes {
    pub network: String,
    pub precision: &'static str,
    /// What it consists of, as PyTorch's side reads it.
    pub card: Value,
    /// Width and height.
    pub input: [usize; 2],
    pub frame: [usize; 2],
    /// Why there are no figures.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_run: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub times: Option<Times>,
}

/// All times are medians but the first two.
#[derive(Debug, Serialize)]
pub struct Times {
    /// With weights that are generated on the device: what a checkpoint takes to come up is not in it.
    pub load_ms: f64,
    pub first_frame_ms: f64,
    /// From one frame's labels to the next's, two in flight.
    pub stream_frame_ms: f64,
    pub stream_frames: usize,
    /// From a frame to its labels where it is the only one.
    pub latency_ms: f64,
    pub preprocess_ms: f64,
    pub network_ms: f64,
    pub postprocess_ms: f64,
    /// Arithmetic of the network by formula, by its time.
    pub tflop_per_second: f64,
    /// Of its parts, each launch on its own.
    pub stages: Vec<StageTime>,
    /// Kernels and copies of the network.
    pub launches: usize,
    pub peak_memory_mib: f64,
    pub timeline: Timeline,
}

#[derive(Debug, Serialize)]
pub struct StageTime {
    pub stage: &'static str,
    pub ms: f64,
    /// Zero for what does no products.
    pub tflop_per_second: f64,
}

/// Times all networks, first in float16.
///
/// # Errors
/// If a frame can't be brought to the network's input.
pub fn run(gpu: &Arc<Gpu>, plan: &Plan, budget: &mut Budget) -> Result<Vec<NetworkTimes>, Box<dyn Error>> {
    let f16 = match gpu.properties().fastest_f16() {
        Stored::F16Promoted => "f16, promoted",
        _ => "f16",
    };
    let mut all = Vec::new();
    for (name, precision) in [(f16, Precision::F16), ("bf16", Precision::Bf16)] {
        for card in &plan.cards {
            let (width, height) = plan.input_size.network_input(card, plan.frame[0], plan.frame[1])?;
            let measured = budget
                .spend(|| measure(gpu, plan, card, precision))
                .unwrap_or_else(|| Ok(Err("no time is left".to_owned())));
            // One that fails is no reason not to time the others.
            let (times, not_run) = match measured {
                Ok(Ok(times)) => (Some(times), None),
                Ok(Err(reason)) => (None, Some(reason)),
                Err(error) => (None, Some(error.to_string())),
            };
            let times = NetworkTimes {
                network: card.name().to_owned(),
                precision: name,
                card: describe(card),
                input: [width, height],
                frame: plan.frame,
                not_run,
                times,
            };
            times.print();
            all.push(times);
        }
    }
    Ok(all)
}

/// The figures, or why there are none.
fn measure(
    gpu: &Arc<Gpu>,
    plan: &Plan,
    card: &ModelCard,
    precision: Precision,
) -> Result<Result<Times, String>, Box<dyn Error>> {
    let (needed, free) = (2 * parameters(card), gpu.free_memory()?);
    if needed > free {
        let mib = |bytes: usize| bytes >> 20;
        return Ok(Err(format!("its weights take {} MiB, and {} MiB are free", mib(needed), mib(free))));
    }
    let device = DeviceRequest::Cuda(Some(gpu.index() as u32));
    let backend = BackendRequest { mode: Some(Mode::Kernels), device, precision: Some(precision) };
    let options = Options { backend, input_size: plan.input_size, slots: SLOTS, ..Options::default() };
    let start = Instant::now();
    let segmenter = match Segmenter::new(card.clone(), &Weights::generated(card, 3), options) {
        Ok(segmenter) => segmenter,
        Err(error) if error.kind() == ErrorKind::BackendUnavailable => return Ok(Err(error.to_string())),
        Err(error) => return Err(error.into()),
    };
    let load_ms = milliseconds(start.elapsed());
    let frame = picture(plan.frame)?;
    let first_frame_ms = milliseconds(alone(&segmenter, &frame)?.0);
    let frames = (0..plan.frames).map(|_| alone(&segmenter, &frame)).collect::<Result<Vec<_>, _>>()?;
    let of_frames = |part: &dyn Fn(&(Duration, Timing)) -> Duration| median(frames.iter().map(part));
    let (latency_ms, network_ms) = (of_frames(&|frame| frame.0), of_frames(&|frame| frame.1.network));
    let stream_frames = (plan.stream.as_secs_f64() * 1e3 / latency_ms) as usize;
    let (intervals, spans) = stream(&segmenter, &frame, stream_frames.clamp(SHOWN + SLOTS, 200))?;
    segmenter.time_stages(true);
    let in_stages = (0..plan.frames).map(|_| alone(&segmenter, &frame)).collect::<Result<Vec<_>, _>>()?;
    let used = segmenter.device_use().ok_or("the network runs on no GPU")?;
    let (width, height) = plan.input_size.network_input(card, plan.frame[0], plan.frame[1])?;
    let work = Work::of(card, width, height);
    let stages = Stage::ALL.map(|stage| {
        let ms = median(in_stages.iter().map(|(_, timing)| timing.stages.of(stage)));
        StageTime { stage: stage.name(), ms, tflop_per_second: work.stage(stage) / ms / 1e9 }
    });
    Ok(Ok(Times {
        load_ms,
        first_frame_ms,
        stream_frames: intervals.len(),
        stream_frame_ms: median(intervals.into_iter()),
        latency_ms,
        preprocess_ms: of_frames(&|frame| frame.1.preprocess),
        network_ms,
        postprocess_ms: of_frames(&|frame| frame.1.postprocess),
        tflop_per_second: work.total() / network_ms / 1e9,
        stages: stages.into_iter().filter(|stage| stage.ms > 0.0).collect(),
        launches: used.launches,
        peak_memory_mib: used.peak_memory as f64 / f64::from(1 << 20),
        // Not the last ones, behind which nothing comes.
        timeline: Timeline::new(SLOTS, &spans, spans.len() - SLOTS - SHOWN..spans.len() - SLOTS),
    }))
}

/// One frame on its own: from its pixels to its labels.
fn alone(segmenter: &Segmenter, frame: &Shared) -> sapiens_model::Result<(Duration, Timing)> {
    let mut output = Output::default();
    let start = Instant::now();
    segmenter.submit(frame.clone())?;
    segmenter.receive(&mut output)?;
    Ok((start.elapsed(), output.timing))
}

/// Frames with two in flight: the time from each one's labels to the next's, and when the device did what.
fn stream(
    segmenter: &Segmenter,
    frame: &Shared,
    count: usize,
) -> sapiens_model::Result<(Vec<Duration>, Vec<DeviceSpans>)> {
    let (mut intervals, mut spans) = (Vec::new(), Vec::new());
    let mut output = Output::default();
    for _ in 0..SLOTS {
        segmenter.submit(frame.clone())?;
    }
    let mut last = None;
    for number in 0..count {
        segmenter.receive(&mut output)?;
        let now = Instant::now();
        intervals.extend(last.map(|last| now - last));
        last = Some(now);
        spans.extend(output.timing.device);
        if number + SLOTS < count {
            segmenter.submit(frame.clone())?;
        }
    }
    Ok((intervals, spans))
}

/// Pixels that are made once.
#[derive(Clone)]
struct Shared(Arc<OwnedFrame>);

impl Frame for Shared {
    fn pixels(&self) -> Pixels<'_> {
        self.0.pixels()
    }
}

/// NV12, as decoders and cameras give it.
fn picture([width, height]: [usize; 2]) -> sapiens_model::Result<Shared> {
    let info = FrameInfo { format: PixelFormat::Nv12, width, height, colorimetry: Colorimetry::default() };
    let planes = (0..PixelFormat::Nv12.planes()).map(|index| {
        let (row_bytes, rows) = info.plane_size(index);
        let value = |i: usize| ((i / row_bytes * 3 + i % row_bytes * 2) % 251) as u8;
        ((0..row_bytes * rows).map(value).collect(), row_bytes)
    });
    Ok(Shared(Arc::new(OwnedFrame::new(info, planes.collect())?)))
}

/// What `tools/peer_bench` makes its networks of.
fn describe(card: &ModelCard) -> Value {
    let network = &card.network;
    json!({
        "family": card.family.to_string(),
        "input": { "height": card.input.height, "width": card.input.width },
        "network": {
            "embed_dim": network.embed_dim,
            "layers": network.layers,
            "heads": network.heads,
            "ffn_dim": network.ffn_dim,
            "full_kv_layers": network.full_kv_layers,
            "deconv_channels": network.deconv_channels,
            "conv_channels": network.conv_channels,
            "classes": card.classes.len(),
        },
    })
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// In milliseconds.
fn median(times: impl Iterator<Item = Duration>) -> f64 {
    let mut times: Vec<_> = times.collect();
    times.sort();
    times.get(times.len() / 2).copied().map_or(0.0, milliseconds)
}
