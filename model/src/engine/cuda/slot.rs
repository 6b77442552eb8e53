//! A frame in flight: its stream, its memory, and what is queued for it before and after the forward pass.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sapiens_kernels::cuda::frame::{Frame as DeviceFrame, Patches, Plane, ResizeTables};
use sapiens_kernels::cuda::resize_argmax::{PixelLogits, ResizeArgmax};
use sapiens_kernels::cuda::{Buffer, Event, Gpu, Staging, Stream};

use super::super::{DeviceSpans, Logits, Output, Span, Timing, label_window};
use super::between;
use super::pass::Pass;
use super::stages::StageMarks;
use crate::card::{ModelCard, ResizeRule};
use crate::error::{ErrorKind, Result, SegmentError};
use crate::frame::{Frame, FrameInfo, FrameView, MAX_PLANES, Pixels, yuv_to_rgb};
use crate::input_size::Placement;
use crate::preprocess::filter;

pub(super) struct Slot {
    // Goes first: who drops it waits until nothing uses the rest.
    stream: Stream,
    marks: Marks,
    /// Where they were asked for.
    stages: StageMarks,
    /// Marks a stream of others, which this one waits for.
    foreign: Event,
    /// Of the last frame: a stream's frames are all alike.
    memory: Option<FrameMemory>,
    /// A frame that lies on the device, until its labels are there.
    held: Option<Box<dyn Frame>>,
    /// Of the frame in flight: what its pixels took to be copied.
    copied: Duration,
}

/// What a frame is to tell besides its labels.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked {
    pub logits: bool,
    pub stages: bool,
}

/// Between the parts of a frame's work.
struct Marks {
    begin: Event,
    received: Event,
    turn: Event,
    patches: Event,
    logits: Event,
    labels: Event,
}

/// What a frame needs outside of the forward pass.
struct FrameMemory {
    info: FrameInfo,
    placement: Placement,
    parts: Parts,
    tables: ResizeTables,
    /// All planes, one after the other, here and on the device. Empty for frames that are there already.
    staging: Staging<u8>,
    planes: Buffer<u8>,
    /// On the device and here.
    labels: Buffer<u8>,
    sent: Staging<u8>,
    /// Where logits are asked for.
    logits: Option<SentLogits>,
}

/// Of each plane that comes from the machine's memory where it starts on the device, its length and its stride.
type Parts = [[usize; 3]; MAX_PLANES];

struct SentLogits {
    values: Staging<f32>,
    classes: usize,
    stride: usize,
    height: usize,
    width: usize,
}

impl Slot {
    pub fn new(gpu: &Arc<Gpu>) -> Result<Self> {
        let mark = || Event::new(gpu, true);
        let marks = Marks {
            begin: mark()?,
            received: mark()?,
            turn: mark()?,
            patches: mark()?,
            logits: mark()?,
            labels: mark()?,
        };
        Ok(Self {
            stream: Stream::new(gpu)?,
            marks,
            stages: StageMarks::default(),
            foreign: Event::new(gpu, false)?,
            memory: None,
            held: None,
            copied: Duration::ZERO,
        })
    }

    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Takes a frame. Pixels in the machine's memory are copied, and the frame is dropped; of others the stream waits until
    /// they are written.
    pub fn receive(
        &mut self,
        frame: Box<dyn Frame>,
        placement: Placement,
        card: &ModelCard,
        gpu: &Arc<Gpu>,
    ) -> Result<()> {
        let start = Instant::now();
        let held = match frame.pixels() {
            Pixels::Host(view) => {
                let parts = FrameMemory::parts(&view);
                let memory = self.memory_for(view.info(), placement, parts, card)?;
                let bytes = memory.staging.write()?;
                for (index, &[start, len, _]) in
                    memory.parts[..view.info().format.planes()].iter().enumerate()
                {
                    bytes[start..start + len].copy_from_slice(view.plane(index).data);
                }
                false
            }
            Pixels::Cuda(frame) => {
                frame.check_context(gpu.context_id())?;
                self.memory_for(frame.info(), placement, Parts::default(), card)?;
                true
            }
        };
        self.copied = start.elapsed();
        let Self { stream, marks, foreign, memory, .. } = self;
        marks.begin.record(stream)?;
        match (frame.pixels(), memory) {
            (Pixels::Cuda(frame), _) => stream.wait_for_foreign(frame.written_in(), foreign)?,
            (Pixels::Host(_), Some(memory)) => memory.staging.upload(stream, memory.planes.slice_mut(..))?,
            (Pixels::Host(_), None) => unreachable!("it was just made"),
        }
        self.held = held.then_some(frame);
        Ok(self.marks.received.record(&self.stream)?)
    }

    /// Queues the forward pass and the labels, behind the last work on what all slots share, and marks its end.
    pub fn compute(
        &mut self,
        pass: &mut Pass,
        free: &Event,
        patches: &Patches,
        resize_argmax: &ResizeArgmax,
        asked: Asked,
    ) -> Result<()> {
        let Self { stream, marks, stages, memory, held, .. } = self;
        let Some(memory) = memory else { unreachable!("it was made for this frame") };
        let FrameMemory { info, placement, parts, tables, planes, labels, logits: sent, .. } = memory;
        stream.wait(free)?;
        marks.turn.record(stream)?;
        let count = info.format.planes();
        let held = held.as_ref().map(|frame| frame.pixels());
        let planes: [Plane<'_>; MAX_PLANES] = std::array::from_fn(|index| {
            // What is beyond the last isn't looked at.
            let index = index.min(count - 1);
            match held {
                Some(Pixels::Cuda(frame)) => frame.planes()[index].plane(),
                _ => {
                    let [start, len, stride] = parts[index];
                    Plane { bytes: planes.slice(start..start + len), stride }
                }
            }
        });
        let frame = DeviceFrame {
            layout: info.format.layout(),
            width: info.width,
            height: info.height,
            planes: &planes[..count],
            to_rgb: yuv_to_rgb(info.colorimetry),
        };
        patches.run(stream, frame, tables, placement.canvas, pass.patches())?;
        marks.patches.record(stream)?;
        stages.clear();
        if asked.stages {
            pass.run_in_stages(stream, stages)?;
        } else {
            pass.run(stream)?;
        }
        marks.logits.record(stream)?;
        let window = label_window(*placement, info.width, info.height);
        let logits = pass.logits();
        resize_argmax.run(stream, logits, window, labels.slice_mut(..))?;
        if asked.logits {
            SentLogits::send(sent, stream, logits)?;
        }
        marks.labels.record(stream)?;
        Ok(free.record(stream)?)
    }

    /// Queues the labels' way down.
    pub fn send(&mut self) -> Result<()> {
        let Self { stream, memory, .. } = self;
        let Some(memory) = memory else { unreachable!("it was made for this frame") };
        Ok(memory.sent.download(stream, memory.labels.slice(..))?)
    }

    /// Waits for the labels. `output` stays as it was if they don't come. Times are counted from `origin`.
    pub fn finish(&mut self, output: &mut Output, origin: &Event) -> Result<()> {
        let Self { marks, stages, memory, held, copied, .. } = self;
        let Some(memory) = memory else {
            return Err(SegmentError::new(ErrorKind::Engine, "the slot has no frame"));
        };
        let labels = memory.sent.read()?;
        *held = None;
        let span = |first: &Event, last: &Event| -> Result<Span> {
            Ok(Span { begin: between(origin, first)?, end: between(origin, last)? })
        };
        let device = DeviceSpans {
            upload: span(&marks.begin, &marks.received)?,
            compute: span(&marks.turn, &marks.labels)?,
            download: span(&marks.labels, memory.sent.copied())?,
        };
        let timing = Timing {
            preprocess: *copied
                + between(&marks.begin, &marks.received)?
                + between(&marks.turn, &marks.patches)?,
            network: between(&marks.patches, &marks.logits)?,
            postprocess: between(&marks.logits, memory.sent.copied())?,
            stages: stages.times(&marks.patches)?,
            device: Some(device),
        };
        let logits = memory.logits.as_ref().map(SentLogits::planar).transpose()?;
        output.labels.resize(memory.info.width, memory.info.height);
        output.labels.labels_mut().copy_from_slice(labels);
        (output.logits, output.timing) = (logits, timing);
        Ok(())
    }

    /// After a failure: waits until nothing of the frame is used any more, and lets go of it.
    pub fn clear(&mut self) {
        let _ = self.stream.synchronize();
        self.held = None;
    }

    /// What this frame needs, which is what the last one needed if it was like this one.
    fn memory_for(
        &mut self,
        info: FrameInfo,
        placement: Placement,
        parts: Parts,
        card: &ModelCard,
    ) -> Result<&mut FrameMemory> {
        let same = self
            .memory
            .take()
            .filter(|memory| memory.info == info && memory.placement == placement && memory.parts == parts);
        let memory = match same {
            Some(memory) => memory,
            None => FrameMemory::new(&self.stream, info, placement, parts, card.input.resize)?,
        };
        Ok(self.memory.insert(memory))
    }
}

impl FrameMemory {
    /// Where each plane goes: its start, length and stride.
    fn parts(view: &FrameView<'_>) -> Parts {
        let (mut parts, mut start) = (Parts::default(), 0);
        for (index, part) in parts[..view.info().format.planes()].iter_mut().enumerate() {
            let (len, stride) = (view.plane(index).data.len(), view.plane(index).stride);
            *part = [start, len, stride];
            start += len;
        }
        parts
    }

    fn new(
        stream: &Stream,
        info: FrameInfo,
        placement: Placement,
        parts: Parts,
        rule: ResizeRule,
    ) -> Result<Self> {
        let (width, height) = (info.width, info.height);
        let filter = filter(rule, width, placement.image.0);
        let (gpu, bytes) = (stream.gpu(), parts.iter().map(|[_, len, _]| len).sum());
        Ok(Self {
            tables: ResizeTables::new(stream, filter, (width, height), placement.image)?,
            staging: Staging::new(gpu, bytes)?,
            planes: Buffer::new(gpu, bytes)?,
            labels: Buffer::new(gpu, width * height)?,
            sent: Staging::new(gpu, width * height)?,
            logits: None,
            info,
            placement,
            parts,
        })
    }
}

impl SentLogits {
    /// Queues the logits' way down into `sent`, which is made anew for another size.
    fn send(sent: &mut Option<Self>, stream: &Stream, logits: PixelLogits<'_>) -> Result<()> {
        let PixelLogits { values, classes, stride, height, width } = logits;
        let same = sent
            .take()
            .filter(|sent| (sent.values.len(), sent.stride, sent.width) == (values.len(), stride, width));
        let sent = sent.insert(match same {
            Some(same) => same,
            None => {
                let values = Staging::new(stream.gpu(), values.len())?;
                Self { values, classes, stride, height, width }
            }
        });
        Ok(sent.values.download(stream, values)?)
    }

    /// As an output carries them.
    fn planar(&self) -> Result<Logits> {
        let Self { ref values, classes, stride, height, width } = *self;
        Ok(Logits::of_pixels(values.read()?, classes, stride, [height, width]))
    }
}
