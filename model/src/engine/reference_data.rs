//! The authors' numbers of the tiny networks, for the tests of every engine of our own kernels.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use safetensors::SafeTensors;

/// Shape and values of each tensor of a file of the reference data.
pub(super) type Tensors = HashMap<String, (Vec<usize>, Vec<f32>)>;

pub(super) fn data(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data").join(file)
}

pub(super) fn reference(file: &str) -> Tensors {
    let bytes = std::fs::read(data(file)).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let values = |bytes: &[u8]| bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
    tensors.iter().map(|(name, t)| (name.to_owned(), (t.shape().to_vec(), values(t.data())))).collect()
}

/// Card, seed of its weights, and the files of two sizes.
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
