//! The authors' numbers, and how far results are from them: for the tests of every engine of our own kernels, and for `device-check`.

use std::collections::HashMap;
#[cfg(test)]
use std::path::{Path, PathBuf};

use safetensors::{SafeTensorError, SafeTensors};

use super::Logits;
use crate::card::Family;
use crate::variant::Variant;
use crate::weights::{fnv1a64, uniform};

/// Shape and values of each tensor of a file of the reference data.
pub type Tensors = HashMap<String, (Vec<usize>, Vec<f32>)>;

/// All tensors of a file's bytes, which are float32.
///
/// # Errors
/// If they are no safetensors.
pub fn tensors(bytes: &[u8]) -> Result<Tensors, SafeTensorError> {
    let tensors = SafeTensors::deserialize(bytes)?;
    let values = |bytes: &[u8]| bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
    Ok(tensors.iter().map(|(name, t)| (name.to_owned(), (t.shape().to_vec(), values(t.data())))).collect())
}

#[cfg(test)]
pub(super) fn data(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data").join(file)
}

#[cfg(test)]
pub(super) fn reference(file: &str) -> Tensors {
    tensors(&std::fs::read(data(file)).unwrap()).unwrap()
}

/// Card, seed of its weights, and the files of two sizes.
#[cfg(test)]
pub(super) const TINY: [(&str, u64, [&str; 2]); 2] = [
    (
        "tiny-sapiens.toml",
        1,
        ["tiny-sapiens.activations.safetensors", "tiny-sapiens.activations-160x64.safetensors"],
    ),
    (
        "tiny-sapiens2.toml",
        2,
        ["tiny-sapiens2.activations.safetensors", "tiny-sapiens2.activations-160x64.safetensors"],
    ),
];

/// Seed of the full-size networks' generated weights.
pub const FULL_SIZE_SEED: u64 = 3;

/// Input `[3, height, width]` of the full-size networks: `2 u` of the name "input" and seed 9, as the reference's README defines
/// them.
pub fn generated_input(height: usize, width: usize) -> Vec<f32> {
    let base = fnv1a64("input") ^ 9;
    (0..(3 * height * width) as u64).map(|i| 2.0 * uniform(base, i)).collect()
}

/// Of a full-size network's logits the part that the reference has: every so many rows and columns from a first one on.
pub fn slice(family: Family, logits: &Logits) -> Vec<f32> {
    let (first, step) = match family {
        Family::Sapiens => (4, 8),
        Family::Sapiens2 => (8, 16),
    };
    let mut slice = Vec::new();
    for plane in logits.values.chunks_exact(logits.height * logits.width) {
        for row in plane.chunks_exact(logits.width).skip(first).step_by(step) {
            slice.extend(row.iter().skip(first).step_by(step));
        }
    }
    slice
}

/// How far PyTorch's own bfloat16 is from the reference at full size: mean and 99th percentile, where they are known.
pub fn torch_bf16(variant: Variant) -> Option<[f32; 2]> {
    match variant {
        Variant::Sapiens03b => Some([0.0124, 0.041]),
        Variant::Sapiens1b => Some([0.0163, 0.053]),
        Variant::Sapiens2_04b => Some([0.0175, 0.064]),
        Variant::Sapiens2_1b => Some([0.0232, 0.084]),
        _ => None,
    }
}

/// Absolute differences: the largest, the mean and the 99th percentile.
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs, reason = "said above")]
pub struct Difference {
    pub max: f32,
    pub mean: f32,
    pub p99: f32,
}

/// How much values differ.
///
/// # Panics
/// If there are none, or not equally many.
pub fn difference(found: &[f32], expected: &[f32]) -> Difference {
    assert_eq!(found.len(), expected.len());
    let mut all: Vec<f32> = found.iter().zip(expected).map(|(a, b)| (a - b).abs()).collect();
    // NaN is the largest of all in this order.
    all.sort_by(f32::total_cmp);
    let mean = all.iter().map(|&d| f64::from(d)).sum::<f64>() / all.len() as f64;
    Difference { max: all[all.len() - 1], mean: mean as f32, p99: all[all.len() * 99 / 100] }
}
