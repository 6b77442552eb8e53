//! Whether a device computes what the processor does, asked before the first network runs there: a driver or a card that the kernels
//! have never met is to fail with an error, not with labels that are somebody's imagination.

use std::sync::{Arc, Mutex, PoisonError};

use sapiens_kernels::cpu::Level;
use sapiens_kernels::cuda::product::Products;
use sapiens_kernels::cuda::{Gpu, Precision as Stored};

use super::CudaEngine;
use super::network::Network;
use crate::backend::{Backend, Device, Mode, Precision};
use crate::card::{Family, ModelCard};
use crate::engine::{Engine, Output, cpu};
use crate::error::{ErrorKind, Result, SegmentError};
use crate::frame::OwnedFrame;
use crate::input_size::InputSize;
use crate::segmenter::Options;
use crate::weights::Weights;

/// Width and height of the network's input and of the frame.
const INPUT: [usize; 2] = [128, 160];
const FRAME: [usize; 2] = [45, 37];

/// Logits of generated weights are around 1: in bfloat16 they differ by some hundredths, and by more than this where something is wrong.
const ALLOWED: f32 = 0.1;

/// How the way is called in which cuBLASLt multiplies.
const CUBLASLT_WAY: &str = "cuBLASLt";

/// What was found to be right in this process: device, precision, family and head dim, and whether cuBLASLt multiplies.
type Known = (usize, Stored, Family, usize, bool);

/// Runs a small network of the card's family, with heads like its, on the device and on the processor: once with each tile of products,
/// and once with cuBLASLt where `products` are its. Once in a process is enough.
///
/// # Errors
/// `BackendUnavailable` if their logits differ by more than rounding makes them.
pub(super) fn self_check(
    card: &ModelCard,
    gpu: &Arc<Gpu>,
    backend: Backend,
    products: &Products,
) -> Result<()> {
    static KNOWN: Mutex<Vec<Known>> = Mutex::new(Vec::new());
    // Whoever comes meanwhile waits for the outcome.
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let (stored, with_cublaslt) = (products.precision(), products.cublaslt().is_some());
    let what = (gpu.index(), stored, card.family, card.network.head_dim(), with_cublaslt);
    if known.contains(&what) {
        return Ok(());
    }
    let small = Arc::new(small(card));
    let weights = Weights::generated(&small, 7);
    let options = Options {
        input_size: InputSize::Fixed { width: INPUT[0], height: INPUT[1] },
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
    let expected = logits(&*cpu::engine(&small, &weights, on_cpu, &options)?)?;
    let mut ways = Vec::new();
    for tile in products.tiles() {
        let [rows, columns] = tile;
        ways.push((format!("tile {rows} x {columns}"), Products::new(gpu, stored)?.limited_to(tile)));
    }
    if with_cublaslt {
        ways.push((CUBLASLT_WAY.to_owned(), Products::new(gpu, stored)?.with_cublaslt(gpu)?));
    }
    for (way, products) in ways {
        let network = Network::load(&small, &weights, gpu, products)?;
        let found = logits(&CudaEngine::new(&small, Arc::new(network), backend, &options)?)?;
        assert_eq!(found.len(), expected.len(), "both are asked to keep them");
        let sum: f32 = found.iter().zip(&expected).map(|(a, b)| (a - b).abs()).sum();
        let difference = sum / expected.len().max(1) as f32;
        log::debug!("self-check of {}, {way}: logits differ by {difference}", backend.device);
        if difference.is_nan() || difference > ALLOWED {
            let (device, name) = (backend.device, &gpu.properties().name);
            let instead = if way == CUBLASLT_WAY { "do without SAPIENS_CUBLASLT" } else { "use device=cpu" };
            return Err(SegmentError::new(
                ErrorKind::BackendUnavailable,
                format!(
                    "{device} ({name}) fails its self-check ({way}): logits of a small network differ from the processor's by {difference}, expected at most {ALLOWED}; please report this with what `make device-check` says, and {instead}"
                ),
            ));
        }
    }
    known.push(what);
    Ok(())
}

/// Two heads, each as long as the card's; tokens for more than one block of attention.
fn small(card: &ModelCard) -> ModelCard {
    let mut small = card.clone();
    let dim = 2 * card.network.head_dim();
    let network = &mut small.network;
    (network.layers, network.embed_dim, network.heads) = (1, dim.next_multiple_of(8), 2);
    network.ffn_dim = 64;
    (network.deconv_channels, network.conv_channels) = (vec![8], vec![8]);
    small
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
