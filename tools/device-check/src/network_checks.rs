//! Whole networks with generated weights against the authors' logits: tiny ones, and the full-size ones' slices.

use std::error::Error;
use std::sync::Arc;

use sapiens_kernels::cuda::product::Products;
use sapiens_kernels::cuda::{CudaError, Gpu, Precision};
use sapiens_model::engine::reference_data::{
    Difference, FULL_SIZE_SEED, difference, generated_input, slice, tensors, torch_bf16,
};
use sapiens_model::engine::{BareNetwork, allowed_of_tiny};
use sapiens_model::{ErrorKind, ModelCard, Variant, Weights};
use serde::Serialize;

use crate::budget::Budget;
use sapiens_device_check::steps::precisions;

/// A file of the reference data, in this program.
macro_rules! data {
    ($file:literal) => {
        include_bytes!(concat!("../../../tests/data/", $file))
    };
}

/// The card as text, the seed of its weights, and the file.
const TINY: [(&str, u64, &[u8]); 4] = [
    (
        include_str!("../../../tests/data/tiny-sapiens.toml"),
        1,
        data!("tiny-sapiens.activations-160x64.safetensors"),
    ),
    (
        include_str!("../../../tests/data/tiny-sapiens2.toml"),
        2,
        data!("tiny-sapiens2.activations-160x64.safetensors"),
    ),
    (include_str!("../../../tests/data/tiny-sapiens.toml"), 1, data!("tiny-sapiens.activations.safetensors")),
    (
        include_str!("../../../tests/data/tiny-sapiens2.toml"),
        2,
        data!("tiny-sapiens2.activations.safetensors"),
    ),
];

const FULL_SIZE: [(Variant, &[u8]); 2] = [
    (Variant::Sapiens03b, data!("sapiens-0.3b.logits.safetensors")),
    (Variant::Sapiens2_04b, data!("sapiens2-0.4b.logits.safetensors")),
];

/// How far a network is from the authors' numbers.
#[derive(Debug, Serialize)]
pub struct NetworkCheck {
    network: String,
    precision: &'static str,
    /// Width and height.
    input: [usize; 2],
    mean: f32,
    p99: f32,
    /// Mean and 99th percentile that are right still.
    allowed: [f32; 2],
    pub right: bool,
}

/// What is expected of a network.
struct Reference {
    card: ModelCard,
    seed: u64,
    /// Height and width.
    size: [usize; 2],
    input: Vec<f32>,
    logits: Vec<f32>,
    /// PyTorch's own bfloat16's mean and 99th percentile, where the logits are a slice of a full-size network's.
    torch_bf16: Option<[f32; 2]>,
}

/// Checks all networks in every precision that the device has. With `small` only one size and one precision of the tiny ones.
///
/// # Errors
/// If a network can't be run.
pub fn run(gpu: &Arc<Gpu>, small: bool, budget: &mut Budget) -> Result<Vec<NetworkCheck>, Box<dyn Error>> {
    let mut checks = Vec::new();
    for (card, seed, file) in &TINY[..if small { 2 } else { 4 }] {
        let reference = Reference::tiny(card, *seed, file)?;
        for (name, precision) in &precisions()[..if small { 1 } else { 3 }] {
            checks.extend(check(gpu, &reference, name, *precision)?);
        }
    }
    if small {
        return Ok(checks);
    }
    for (variant, file) in FULL_SIZE {
        let reference = Reference::full_size(variant, file)?;
        let fastest = gpu.properties().fastest_f16();
        for (name, precision) in precisions() {
            if ![fastest, Precision::Bf16].contains(&precision) {
                continue;
            }
            match budget.spend(|| check(gpu, &reference, name, precision)) {
                Some(found) => checks.extend(found?),
                None => anstream::println!("not run  {variant}, {name}: no time is left"),
            }
        }
    }
    Ok(checks)
}

/// Checks one, and says how it went; nothing where the device doesn't have the precision.
fn check(
    gpu: &Arc<Gpu>,
    reference: &Reference,
    name: &'static str,
    precision: Precision,
) -> Result<Option<NetworkCheck>, Box<dyn Error>> {
    let Reference { card, seed, size, input, logits, torch_bf16 } = reference;
    let products = match Products::new(gpu, precision) {
        Ok(products) => products,
        Err(error @ CudaError::NoBf16 { .. }) => {
            anstream::println!("not run  {}, {name}: {error}", card.name());
            return Ok(None);
        }
        Err(error) => return Err(error.into()),
    };
    let network = match BareNetwork::load(card, &Weights::generated(card, *seed), gpu, products) {
        Ok(network) => network,
        Err(error) if error.kind() == ErrorKind::BackendUnavailable => {
            anstream::println!("not run  {}, {name}: {error}", card.name());
            return Ok(None);
        }
        Err(error) => return Err(error.into()),
    };
    let found = network.logits(*size, input)?;
    let found = if torch_bf16.is_some() { slice(card.family, &found) } else { found.values };
    if found.len() != logits.len() {
        return Err(format!("{} gives {} logits, expected {}", card.name(), found.len(), logits.len()).into());
    }
    let Difference { mean, p99, .. } = difference(&found, logits);
    let allowed = match (torch_bf16, precision) {
        (None, _) => allowed_of_tiny(precision),
        // Three bits more than bfloat16 with the same sums: half of what that may be off by is generous.
        (Some(torch), Precision::F16) => torch.map(|x| 1.25 * x / 2.0),
        (Some(torch), _) => torch.map(|x| 1.25 * x),
    };
    let check = NetworkCheck {
        network: card.name().to_owned(),
        precision: name,
        input: [size[1], size[0]],
        mean,
        p99,
        allowed,
        right: mean <= allowed[0] && p99 <= allowed[1],
    };
    check.print();
    Ok(Some(check))
}

impl NetworkCheck {
    fn print(&self) {
        let Self { network, precision, input: [width, height], mean, p99, allowed, right } = self;
        let verdict = if *right { "right" } else { "WRONG" };
        anstream::println!(
            "{verdict}  {network}, {width} x {height}, {precision}: logits differ by {mean:.5} (at most {:.5}), 99 % by {p99:.4} ({:.4})",
            allowed[0],
            allowed[1]
        );
    }
}

impl Reference {
    fn tiny(card: &str, seed: u64, file: &[u8]) -> Result<Self, Box<dyn Error>> {
        let card = ModelCard::from_toml(card, "of the reference data")?;
        let mut tensors = tensors(file)?;
        let mut take =
            |name: &str| tensors.remove(name).ok_or_else(|| format!("no {name} in the reference data"));
        let ((shape, input), (_, logits)) = (take("input")?, take("logits")?);
        let [_, _, height, width] = shape[..] else {
            return Err(format!("an input {shape:?} in the reference data").into());
        };
        Ok(Self { card, seed, size: [height, width], input, logits, torch_bf16: None })
    }

    fn full_size(variant: Variant, file: &[u8]) -> Result<Self, Box<dyn Error>> {
        let card = ModelCard::of(variant);
        let (_, logits) =
            tensors(file)?.remove("logits.slice").ok_or("no logits.slice in the reference data")?;
        let size = [card.input.height, card.input.width];
        Ok(Self {
            seed: FULL_SIZE_SEED,
            size,
            input: generated_input(size[0], size[1]),
            logits,
            torch_bf16: torch_bf16(variant),
            card,
        })
    }
}
