//! The project's own kernels on the processor, as an engine: preprocessing before them, resize and argmax after.
//!
//! [`network`] has the packed weights and the forward pass, [`load`] packs them, [`workspace`] is the memory. Everything
//! that a frame needs is made for the first frame of its size; from the second on nothing is allocated.

mod load;
mod memory;
mod network;
#[cfg(test)]
mod tests;
mod workspace;

use std::sync::Arc;
use std::time::Instant;

use half::bf16;
use sapiens_kernels::cpu::product::pixel_patches;
use sapiens_kernels::cpu::{Element, PixelLogits, ResizeArgmax, Threads};

use self::network::Network;
use self::workspace::Workspace;
use super::{Engine, Logits, Output, Timing, Worker, label_window};
use crate::backend::{Backend, Precision};
use crate::card::ModelCard;
use crate::error::{ErrorKind, Result, SegmentError};
use crate::frame::Frame;
use crate::input_size::InputSize;
use crate::preprocess::Preprocessor;
use crate::segmenter::Options;
use crate::shared;
use crate::weights::Weights;
use crate::work::parameters;

/// The engine of `card` and `weights`.
pub(crate) fn engine(
    card: &Arc<ModelCard>,
    weights: &Weights,
    backend: Backend,
    options: &Options,
) -> Result<Box<dyn Engine>> {
    match backend.precision {
        Precision::F32 => of_element::<f32>(card, weights, backend, options),
        Precision::Bf16 => of_element::<bf16>(card, weights, backend, options),
        Precision::F16 => unreachable!("no request resolves to {backend}"),
    }
}

fn of_element<E: Element>(
    card: &Arc<ModelCard>,
    weights: &Weights,
    backend: Backend,
    options: &Options,
) -> Result<Box<dyn Engine>> {
    let (level, count) = (backend.level()?, options.thread_count()?);
    let mut threads = Threads::new(count).map_err(|error| {
        SegmentError::new(ErrorKind::Engine, format!("can't start {count} threads: {error}"))
            .with_source(error)
    })?;
    let key = shared::Key { card: card.clone(), weights: weights.identity().clone(), backend, context: None };
    let network = shared::network(&key, || {
        let bytes = parameters(card) as u64 * size_of::<E>() as u64;
        memory::expect(bytes, &format!("{} in {}", card.name(), backend.precision))?;
        Network::<E>::load(card, weights, level, &mut threads)
    })?;
    let preprocessor = Preprocessor::new(&card.input);
    let network = CpuNetwork {
        levels: Box::new(preprocessor.normalized().map(|levels| levels.map(E::from_f32))),
        preprocessor,
        resize_argmax: ResizeArgmax::new(level, threads.count()),
        card: card.clone(),
        network,
        threads,
        workspace: None,
        input_size: options.input_size,
        keep_logits: options.keep_logits,
    };
    Ok(Box::new(Worker::start(backend, options.slots, network)?))
}

struct CpuNetwork<E> {
    card: Arc<ModelCard>,
    network: Arc<Network<E>>,
    threads: Threads,
    preprocessor: Preprocessor,
    /// The preprocessor's values as the patch embedding takes them.
    levels: Box<[[E; 256]; 3]>,
    /// Of the last input size: a stream's frames all have one size.
    workspace: Option<Workspace<E>>,
    resize_argmax: ResizeArgmax,
    input_size: InputSize,
    keep_logits: bool,
}

impl<E: Element> super::Network for CpuNetwork<E> {
    fn infer(&mut self, frame: Box<dyn Frame>, output: &mut Output) -> Result<()> {
        let Self { card, network, threads, preprocessor, levels, workspace, resize_argmax, .. } = self;
        let view = frame.pixels().on_host()?;
        let (frame_width, frame_height) = (view.width(), view.height());
        let placement = self.input_size.place(card, frame_width, frame_height)?;
        let start = Instant::now();
        let image = preprocessor.resize(&view, placement);
        drop(frame);
        let size = [placement.canvas.1, placement.canvas.0];
        // The old one goes before the new one comes: both may be large.
        let same = workspace.take().filter(|workspace| workspace.size == size);
        let workspace = workspace.insert(match same {
            Some(workspace) => workspace,
            None => Workspace::new(network, size, threads.count())?,
        });
        pixel_patches(threads, image, levels, size, workspace.patches());
        let preprocessed = Instant::now();
        let stages = network.forward(threads, workspace);
        let inferred = Instant::now();
        output.labels.resize(frame_width, frame_height);
        let [height, width] = network.sizes.logits(workspace.size);
        let classes = network.sizes.classes;
        let logits = PixelLogits::new(&workspace.logits, classes, classes, height, width);
        let window = label_window(placement, frame_width, frame_height);
        resize_argmax.run(threads, logits, window, output.labels.labels_mut());
        output.timing = Timing {
            preprocess: preprocessed - start,
            network: inferred - preprocessed,
            postprocess: inferred.elapsed(),
            stages,
            device: None,
        };
        output.logits =
            self.keep_logits.then(|| Logits::of_pixels(&workspace.logits, classes, classes, [height, width]));
        Ok(())
    }
}
