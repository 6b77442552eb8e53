//! The network on burn, as an engine: preprocessing before it, resize and argmax after it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use rayon::prelude::*;
use sapiens_kernels::ResizeArgmax;
use sapiens_portable as portable;

use super::worker::panicked;
use super::{Engine, Logits, Network, Output, Timing, Worker, label_window, trained_grid};
use crate::backend::{Backend, Device};
use crate::card::{Family, ModelCard};
use crate::error::{ErrorKind, Result, SegmentError};
use crate::frame::Frame;
use crate::input_size::{InputSize, Placement};
use crate::label_map::LabelMap;
use crate::preprocess::Preprocessor;
use crate::segmenter::Options;
use crate::shared;
use crate::weights::Weights;

/// The engine of `card` and `weights`.
pub(crate) fn engine(
    card: &Arc<ModelCard>,
    weights: &Weights,
    backend: Backend,
    options: &Options,
) -> Result<Box<dyn Engine>> {
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(options.threads)
        .thread_name(|index| format!("sapiens-{index}"))
        .build()
        .map_err(|error| {
            SegmentError::new(ErrorKind::Engine, format!("can't start {} threads: {error}", options.threads))
                .with_source(error)
        })?;
    let key = shared::Key { card: card.clone(), weights: weights.identity().clone(), backend, context: None };
    // burn panics where a GPU fails.
    let network = shared::network(&key, || {
        let loaded = catch_unwind(AssertUnwindSafe(|| pool.install(|| load(card, weights, backend.device))));
        loaded.unwrap_or_else(|panic| Err(panicked(&*panic)))
    })?;
    let network = PortableNetwork {
        preprocessor: Preprocessor::new(&card.input),
        card: card.clone(),
        network,
        bands: Bands::new(pool.current_num_threads()),
        pool,
        input_size: options.input_size,
        keep_logits: options.keep_logits,
    };
    Ok(Box::new(Worker::start(backend, options.slots, network)?))
}

/// The network on burn, whichever of its backends it is on.
trait Forward: Send + Sync {
    /// Logits of a planar input `[3, height, width]`.
    fn forward(&self, input: Vec<f32>, height: usize, width: usize) -> portable::Logits;
}

impl<B: portable::PortableBackend> Forward for portable::Network<B>
where
    Self: Send + Sync,
{
    fn forward(&self, input: Vec<f32>, height: usize, width: usize) -> portable::Logits {
        portable::Network::forward(self, input, height, width)
    }
}

/// Where the backend says.
fn load(card: &ModelCard, weights: &Weights, device: Device) -> Result<Box<dyn Forward>> {
    let dims = dims(card, weights)?;
    let values = |name: &str, _: &[usize]| weights.tensor_f32(name);
    match device {
        Device::Cpu => Ok(Box::new(portable::CpuNetwork::load(&dims, &Default::default(), values)?)),
        #[cfg(feature = "portable-cuda")]
        Device::Cuda(index) => {
            let device = portable::cuda_device(index as usize);
            Ok(Box::new(portable::CudaNetwork::load(&dims, &device, values)?))
        }
        #[cfg(not(feature = "portable-cuda"))]
        Device::Cuda(_) => unreachable!("no request resolves to {device} in a build without `portable-cuda`"),
    }
}

fn dims(card: &ModelCard, weights: &Weights) -> Result<portable::Dims> {
    let network = &card.network;
    let family = match card.family {
        Family::Sapiens => {
            let (rows, columns) = trained_grid(weights)?;
            portable::Family::Sapiens { pos_embed_grid: [rows, columns] }
        }
        Family::Sapiens2 => {
            portable::Family::Sapiens2 { full_kv_layers: network.full_kv_layers.unwrap_or(0) }
        }
    };
    Ok(portable::Dims {
        family,
        embed_dim: network.embed_dim,
        layers: network.layers,
        heads: network.heads,
        ffn_dim: network.ffn_dim,
        deconv_channels: network.deconv_channels.clone(),
        conv_channels: network.conv_channels.clone(),
        classes: card.classes.len(),
    })
}

struct PortableNetwork {
    card: Arc<ModelCard>,
    network: Arc<Box<dyn Forward>>,
    preprocessor: Preprocessor,
    bands: Bands,
    pool: rayon::ThreadPool,
    input_size: InputSize,
    keep_logits: bool,
}

impl Network for PortableNetwork {
    fn infer(&mut self, frame: Box<dyn Frame>, output: &mut Output) -> Result<()> {
        let Self { card, network, preprocessor, bands, pool, input_size, keep_logits } = self;
        let view = frame.pixels().on_host()?;
        let (frame_width, frame_height) = (view.width(), view.height());
        let placement = input_size.place(card, frame_width, frame_height)?;
        let start = Instant::now();
        // The network takes its input by value, so this is made anew for each frame.
        let mut input = Vec::new();
        preprocessor.run(&view, placement, &mut input);
        drop(frame);
        let preprocessed = Instant::now();
        let (width, height) = placement.canvas;
        let logits = pool.install(|| network.forward(input, height, width));
        let inferred = Instant::now();
        output.labels.resize(frame_width, frame_height);
        pool.install(|| bands.label(&logits, placement, &mut output.labels));
        output.timing = Timing {
            preprocess: preprocessed - start,
            network: inferred - preprocessed,
            postprocess: inferred.elapsed(),
            ..Timing::default()
        };
        let portable::Logits { values, classes, height, width } = logits;
        output.logits = keep_logits.then_some(Logits { values, classes, height, width });
        Ok(())
    }
}

/// Resize and argmax, a band of rows per thread.
struct Bands {
    threads: Vec<ResizeArgmax>,
}

impl Bands {
    fn new(threads: usize) -> Self {
        Self { threads: (0..threads.max(1)).map(|_| ResizeArgmax::new()).collect() }
    }

    fn label(&mut self, logits: &portable::Logits, placement: Placement, labels: &mut LabelMap) {
        let (width, height) = (labels.width(), labels.height());
        let window = label_window(placement, width, height);
        let logits =
            sapiens_kernels::Logits::new(&logits.values, logits.classes, logits.height, logits.width);
        let rows_per_band = height.div_ceil(self.threads.len());
        let bands = labels.labels_mut().par_chunks_mut(rows_per_band * width);
        bands.zip(&mut self.threads).enumerate().for_each(|(band, (out, resize_argmax))| {
            let first = band * rows_per_band;
            resize_argmax.run(logits, window, first..first + out.len() / width, out);
        });
    }
}
