//! A network on an input that is no frame, as it is held against the authors' numbers.

use std::sync::Arc;

use sapiens_kernels::cpu::Threads;
use sapiens_kernels::cpu::product::patch_rows;
use sapiens_kernels::cuda::product::Products;
use sapiens_kernels::cuda::{Gpu, Precision, Stream};

use super::network::{Network, logits_stride};
use super::workspace::Workspace;
use crate::card::ModelCard;
use crate::engine::Logits;
use crate::error::{ErrorKind, Result, SegmentError};
use crate::weights::Weights;

/// A network on a device, without the engine around it.
#[derive(Debug)]
pub struct BareNetwork {
    // Goes first: who drops it waits until nothing uses the rest.
    stream: Stream,
    network: Network,
}

impl BareNetwork {
    /// Brings the weights there, to be stored and multiplied as `products` do.
    ///
    /// # Errors
    /// `BackendUnavailable` if the kernels don't have the card's sizes; what the driver says, and whatever reading weights gives.
    pub fn load(card: &ModelCard, weights: &Weights, gpu: &Arc<Gpu>, products: Products) -> Result<Self> {
        let network = Network::load(card, weights, gpu, products)?;
        Ok(Self { stream: Stream::new(gpu)?, network })
    }

    /// Logits of an input `[3, height, width]`, planar and normalised, whose sides are multiples of 16.
    ///
    /// # Errors
    /// What the driver says.
    pub fn logits(&self, size: [usize; 2], input: &[f32]) -> Result<Logits> {
        let Self { stream, network } = self;
        let mut workspace = Workspace::new(network, stream, size)?;
        let mut rows = vec![0.0f32; input.len()];
        let mut threads = Threads::new(1).map_err(|error| {
            SegmentError::new(ErrorKind::Engine, format!("can't start a thread: {error}")).with_source(error)
        })?;
        patch_rows(&mut threads, input, size, &mut rows);
        let rows: Vec<u16> = rows.into_iter().map(|x| network.precision().encode(x)).collect();
        stream.upload(&rows, workspace.patches())?;
        network.forward(stream, &mut workspace, &mut |_, _| Ok(()))?;
        let mut values = vec![0.0; workspace.logits.len()];
        stream.download(workspace.logits.slice(..), &mut values)?;
        let sizes = network.sizes();
        Ok(Logits::of_pixels(&values, sizes.classes, logits_stride(sizes), sizes.logits(size)))
    }
}

/// How far logits of the tiny networks may be from the authors': mean and 99th percentile. Float16 has three bits more than
/// bfloat16, which may be as far as the processor's engine in it.
pub fn allowed_of_tiny(precision: Precision) -> [f32; 2] {
    match precision {
        Precision::F16 => [0.004, 0.016],
        Precision::F16Promoted => [0.008, 0.03],
        Precision::Bf16 => [0.02, 0.08],
    }
}
