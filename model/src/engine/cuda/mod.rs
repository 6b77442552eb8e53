//! The project's own kernels on an NVIDIA GPU, as an engine: a frame goes up, its labels come down.
//!
//! [`network`] has the weights on the device and the forward pass, [`load`] brings them there, [`workspace`] is the memory of a
//! frame. What depends on a size is made for the first frame of that size.

mod load;
mod network;
#[cfg(test)]
mod tests;
mod workspace;

use std::sync::Arc;
use std::time::Duration;

use sapiens_kernels::Filter;
use sapiens_kernels::cuda::frame::{Frame as DeviceFrame, Patches, Plane, ResizeTables};
use sapiens_kernels::cuda::resize_argmax::{PixelLogits, ResizeArgmax};
use sapiens_kernels::cuda::{Buffer, CudaError, Event, Gpu, Precision as Stored, Properties, Stream};

use self::network::{Network, logits_stride};
use self::workspace::Workspace;
use super::{Engine, Logits, Output, Place, StageTimes, Timing, Worker, label_window};
use crate::backend::{Backend, Device, Precision};
use crate::card::{ModelCard, ResizeRule};
use crate::error::{ErrorKind, Result, SegmentError};
use crate::frame::{Frame, FrameInfo, FrameView, yuv_to_rgb};
use crate::input_size::{InputSize, Placement};
use crate::segmenter::Options;
use crate::shared;
use crate::weights::Weights;

impl From<CudaError> for SegmentError {
    fn from(error: CudaError) -> Self {
        let kind = match error {
            CudaError::OutOfMemory { .. } | CudaError::Failed { .. } => ErrorKind::Engine,
            _ => ErrorKind::BackendUnavailable,
        };
        Self::new(kind, error.to_string()).with_source(error)
    }
}

/// What the device of a number says of itself, if it can run the kernels.
pub(crate) fn properties(index: u32) -> Result<Properties> {
    Ok(Gpu::properties_of(index as usize)?)
}

/// How values are stored and summed in a precision on a device.
fn stored(precision: Precision, properties: &Properties) -> Stored {
    match precision {
        Precision::F16 => properties.fastest_f16(),
        Precision::Bf16 => Stored::Bf16,
        Precision::F32 => unreachable!("no request for a GPU resolves to {precision}"),
    }
}

/// The engine of `card` and `weights`.
pub(crate) fn engine(
    card: &Arc<ModelCard>,
    weights: &Weights,
    backend: Backend,
    options: &Options,
    place: Place,
) -> Result<Box<dyn Engine>> {
    let Device::Cuda(index) = backend.device else { unreachable!("{backend} is no GPU's") };
    let context = place.as_ref().map(|context| context.id().number());
    let key = shared::Key { card: card.clone(), weights: weights.identity().clone(), backend, context };
    let network = shared::network(&key, || {
        let gpu = match place {
            None => Gpu::open(index as usize)?,
            Some(context) => Gpu::adopt(context)?,
        };
        if gpu.index() != index as usize {
            return Err(SegmentError::new(
                ErrorKind::BackendUnavailable,
                format!("a CUDA context of GPU {}: expected one of {}", gpu.index(), backend.device),
            ));
        }
        let precision = stored(backend.precision, gpu.properties());
        Network::load(card, weights, &gpu, precision)
    })?;
    Ok(Box::new(Worker::start(backend, options.slots, CudaNetwork::new(card, network, options)?)?))
}

struct CudaNetwork {
    card: Arc<ModelCard>,
    network: Arc<Network>,
    input_size: InputSize,
    keep_logits: bool,
    stream: Stream,
    patches: Patches,
    resize_argmax: ResizeArgmax,
    /// Before the frame's patches are made, before the network, after it, after the labels.
    events: [Event; 4],
    /// Of the last input size: a stream's frames all have one size.
    workspace: Option<Workspace>,
    /// Of the last frame's size and placement.
    frame: Option<FrameMemory>,
}

/// What a frame needs outside of the network.
struct FrameMemory {
    info: FrameInfo,
    placement: Placement,
    tables: ResizeTables,
    /// All planes, one after the other.
    planes: Buffer<u8>,
    /// Of each plane its start, length and stride.
    parts: Vec<[usize; 3]>,
    labels: Buffer<u8>,
}

impl CudaNetwork {
    fn new(card: &Arc<ModelCard>, network: Arc<Network>, options: &Options) -> Result<Self> {
        let gpu = network.gpu();
        let stream = Stream::new(gpu)?;
        let patches = Patches::new(&stream, network.precision(), card.input.mean, card.input.std)?;
        let event = || Event::new(gpu, true);
        Ok(Self {
            card: card.clone(),
            input_size: options.input_size,
            keep_logits: options.keep_logits,
            patches,
            resize_argmax: ResizeArgmax::new(gpu)?,
            events: [event()?, event()?, event()?, event()?],
            workspace: None,
            frame: None,
            stream,
            network,
        })
    }

    /// What this frame needs, which is what the last one needed if it was like this one.
    fn frame_memory(&mut self, view: &FrameView<'_>, placement: Placement) -> Result<&mut FrameMemory> {
        let parts = FrameMemory::parts(view);
        let same = self.frame.take().filter(|memory| {
            memory.info == view.info() && memory.placement == placement && memory.parts == parts
        });
        let memory = match same {
            Some(memory) => memory,
            None => FrameMemory::new(&self.stream, view.info(), placement, parts, self.card.input.resize)?,
        };
        Ok(self.frame.insert(memory))
    }
}

impl FrameMemory {
    /// Where each plane goes: its start, length and stride.
    fn parts(view: &FrameView<'_>) -> Vec<[usize; 3]> {
        let mut start = 0;
        let planes = (0..view.info().format.planes()).map(|index| {
            let (len, stride) = (view.plane(index).data.len(), view.plane(index).stride);
            let part = [start, len, stride];
            start += len;
            part
        });
        planes.collect()
    }

    fn new(
        stream: &Stream,
        info: FrameInfo,
        placement: Placement,
        parts: Vec<[usize; 3]>,
        rule: ResizeRule,
    ) -> Result<Self> {
        let (width, height) = (info.width, info.height);
        let filter = match rule {
            ResizeRule::Linear => Filter::Linear,
            ResizeRule::AreaOrCubic if placement.image.0 < width => Filter::Area,
            ResizeRule::AreaOrCubic => Filter::Cubic,
        };
        Ok(Self {
            tables: ResizeTables::new(stream, filter, (width, height), placement.image)?,
            planes: Buffer::new(stream.gpu(), parts.iter().map(|[_, len, _]| len).sum())?,
            labels: Buffer::new(stream.gpu(), width * height)?,
            info,
            placement,
            parts,
        })
    }
}

impl super::Network for CudaNetwork {
    fn infer(&mut self, frame: Box<dyn Frame>, output: &mut Output) -> Result<()> {
        let view = frame.pixels().on_host()?;
        let info = view.info();
        let placement = self.input_size.place(&self.card, info.width, info.height)?;
        let start = std::time::Instant::now();
        self.frame_memory(&view, placement)?;
        let Self { network, stream, workspace, events, .. } = self;
        let Some(memory) = &mut self.frame else { unreachable!("it was just made") };
        for (index, &[start, len, _]) in memory.parts.iter().enumerate() {
            stream.upload(view.plane(index).data, memory.planes.slice_mut(start..start + len))?;
        }
        drop(frame);
        let uploaded = start.elapsed();

        let size = [placement.canvas.1, placement.canvas.0];
        // The old one goes before the new one comes: both may be large.
        let same = workspace.take().filter(|workspace| workspace.size == size);
        let workspace = workspace.insert(match same {
            Some(workspace) => workspace,
            None => Workspace::new(network, stream, size)?,
        });
        let planes: Vec<Plane<'_>> = memory
            .parts
            .iter()
            .map(|&[start, len, stride]| Plane { bytes: memory.planes.slice(start..start + len), stride })
            .collect();
        let frame = DeviceFrame {
            layout: info.format.layout(),
            width: info.width,
            height: info.height,
            planes: &planes,
            to_rgb: yuv_to_rgb(info.colorimetry),
        };
        events[0].record(stream)?;
        self.patches.run(stream, frame, &memory.tables, placement.canvas, workspace.patches())?;
        events[1].record(stream)?;
        network.forward(stream, workspace)?;
        events[2].record(stream)?;
        let sizes = network.sizes();
        let [height, width] = sizes.logits(workspace.size);
        let logits = PixelLogits {
            values: workspace.logits.slice(..),
            classes: sizes.classes,
            stride: logits_stride(sizes),
            height,
            width,
        };
        let window = label_window(placement, info.width, info.height);
        self.resize_argmax.run(stream, logits, window, memory.labels.slice_mut(..))?;
        events[3].record(stream)?;
        output.labels.resize(info.width, info.height);
        stream.download(memory.labels.slice(..), output.labels.labels_mut())?;
        output.logits = match self.keep_logits {
            true => Some(planar(stream, logits)?),
            false => None,
        };
        let between = |first: usize| -> Result<Duration> {
            let ms = events[first + 1].milliseconds_since(&events[first])?;
            Ok(Duration::from_secs_f32(ms.max(0.0) / 1e3))
        };
        output.timing = Timing {
            preprocess: uploaded + between(0)?,
            network: between(1)?,
            postprocess: between(2)?,
            stages: StageTimes::default(),
        };
        Ok(())
    }
}

/// Logits as an output carries them.
fn planar(stream: &Stream, logits: PixelLogits<'_>) -> Result<Logits> {
    let PixelLogits { classes, stride, height, width, .. } = logits;
    let mut values = vec![0.0; logits.values.len()];
    stream.download(logits.values, &mut values)?;
    let plane = |class: usize| values[class..].iter().step_by(stride).copied();
    Ok(Logits { values: (0..classes).flat_map(plane).collect(), classes, height, width })
}
