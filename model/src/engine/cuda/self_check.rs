//! Whether a device computes what the processor does, asked before the first network runs there: a driver or a card that the kernels
//! have never met is to fail with an error, not with labels that are somebody's imagination.

use std::sync::{Arc, Mutex, PoisonError};

use sapiens_kernels::cpu::Level;
use sapiens_kernels::cuda::{Gpu, Precision as Stored};

use super::CudaEngine;
use super::network::Network;
use crate::backend::{Backend, Device, Mode, Precision};
use crate::card::ModelCard;
use crate::engine::{Engine, Output, cpu};
use crate::error::{ErrorKind, Result, SegmentError};
use crate::frame::OwnedFrame;
use crate::input_size::InputSize;
use crate::segmenter::Options;
use crate::variant::Variant;
use crate::weights::Weights;

/// Sides of the network's input and of the frame.
const INPUT: usize = 32;
const FRAME: [usize; 2] = [45, 37];

/// Logits of generated weights are around 1: in bfloat16 they differ by some hundredths, and by more than this where something is wrong.
const ALLOWED: f32 = 0.1;

/// Runs the least network of each family on the device and on the processor, the first time in this process.
///
/// # Errors
/// `BackendUnavailable` if their logits differ by more than rounding makes them.
pub(super) fn self_check(gpu: &Arc<Gpu>, backend: Backend, stored: Stored) -> Result<()> {
    static DONE: Mutex<Vec<(usize, Stored)>> = Mutex::new(Vec::new());
    // Whoever comes meanwhile waits for the outcome.
    let mut done = DONE.lock().unwrap_or_else(PoisonError::into_inner);
    let what = (gpu.index(), stored);
    if done.contains(&what) {
        return Ok(());
    }
    for variant in [Variant::Sapiens03b, Variant::Sapiens2_04b] {
        let difference = difference(gpu, backend, stored, variant)?;
        log::debug!("self-check of {} with {variant}: logits differ by {difference}", backend.device);
        if difference.is_nan() || difference > ALLOWED {
            let (device, name) = (backend.device, &gpu.properties().name);
            return Err(SegmentError::new(
                ErrorKind::BackendUnavailable,
                format!(
                    "{device} ({name}) fails its self-check: logits of a small network differ from the processor's by {difference}, expected at most {ALLOWED}; please report this with what `make device-check` says, and use device=cpu"
                ),
            ));
        }
    }
    done.push(what);
    Ok(())
}

/// Mean of the differences between both devices' logits.
fn difference(gpu: &Arc<Gpu>, backend: Backend, stored: Stored, variant: Variant) -> Result<f32> {
    let mut card = ModelCard::of(variant);
    let network = &mut card.network;
    (network.layers, network.embed_dim, network.heads, network.ffn_dim) = (1, 32, 2, 32);
    (network.deconv_channels, network.conv_channels) = (vec![8], vec![8]);
    let card = Arc::new(card);
    let weights = Weights::generated(&card, 7);
    let options = Options {
        input_size: InputSize::Fixed { width: INPUT, height: INPUT },
        slots: 1,
        threads: 1,
        keep_logits: true,
        ..Options::default()
    };
    let level = Level::detect()
        .map_err(|error| SegmentError::new(ErrorKind::BackendUnavailable, error.to_string()))?;
    let on_cpu = Backend {
        mode: Mode::Kernels,
        device: Device::Cpu,
        precision: Precision::F32,
        instructions: Some(level.name()),
    };
    let network = Arc::new(Network::load(&card, &weights, gpu, stored)?);
    let expected = logits(&*cpu::engine(&card, &weights, on_cpu, &options)?)?;
    let found = logits(&CudaEngine::new(&card, network, backend, &options)?)?;
    assert_eq!(found.len(), expected.len(), "both are asked to keep them");
    let sum: f32 = found.iter().zip(&expected).map(|(a, b)| (a - b).abs()).sum();
    Ok(sum / expected.len().max(1) as f32)
}

fn logits(engine: &dyn Engine) -> Result<Vec<f32>> {
    let [width, height] = FRAME;
    let pixels: Vec<u8> = (0..width * height * 3).map(|i| ((i * 40_503) >> 4) as u8).collect();
    let frame = OwnedFrame::rgb(width, height, pixels)?;
    let mut output = Output::default();
    // The second time it is another way on a GPU.
    for _ in 0..2 {
        engine.submit(0, Box::new(frame.clone()))?;
        engine.finish(0, &mut output)?;
    }
    Ok(output.logits.map(|logits| logits.values).unwrap_or_default())
}
