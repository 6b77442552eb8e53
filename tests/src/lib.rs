//! What the end-to-end tests share: the reference data and ways to compare with it.
#![allow(clippy::expect_used)] // A test that can't go on has failed.

pub mod gstreamer;

use std::path::{Path, PathBuf};

use image::RgbImage;
use safetensors::{Dtype, SafeTensors};

/// A file of `tests/data`.
pub fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("data").join(name)
}

/// A photo of `tests/data`.
///
/// # Panics
/// If it isn't there or no image.
pub fn photo(name: &str) -> RgbImage {
    image::open(data(name)).unwrap_or_else(|error| panic!("{name}: {error}")).into_rgb8()
}

/// A safetensors file of `tests/data`, in memory.
pub struct Golden {
    name: String,
    bytes: Vec<u8>,
}

impl Golden {
    /// Reads a file.
    ///
    /// # Panics
    /// If it isn't there.
    pub fn read(name: &str) -> Self {
        let bytes = std::fs::read(data(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        Self { name: name.to_owned(), bytes }
    }

    fn tensor(&self, tensor: &str, dtype: Dtype) -> Vec<u8> {
        let file =
            SafeTensors::deserialize(&self.bytes).unwrap_or_else(|error| panic!("{}: {error}", self.name));
        let view = file.tensor(tensor).unwrap_or_else(|error| panic!("{}: {tensor}: {error}", self.name));
        assert_eq!(view.dtype(), dtype, "{}: {tensor}", self.name);
        view.data().to_vec()
    }

    /// The values of a float32 tensor.
    ///
    /// # Panics
    /// If it isn't there or has another type.
    pub fn f32(&self, tensor: &str) -> Vec<f32> {
        self.tensor(tensor, Dtype::F32)
            .as_chunks::<4>()
            .0
            .iter()
            .map(|bytes| f32::from_le_bytes(*bytes))
            .collect()
    }

    /// The values of a uint8 tensor.
    ///
    /// # Panics
    /// If it isn't there or has another type.
    pub fn u8(&self, tensor: &str) -> Vec<u8> {
        self.tensor(tensor, Dtype::U8)
    }
}

/// How far values are from what they should be.
#[derive(Debug, Clone, Copy)]
pub struct Difference {
    /// The largest.
    pub max: f64,
    /// On average.
    pub mean: f64,
}

/// Absolute differences of two equally long lists. NaN counts as infinitely far.
///
/// # Panics
/// If the lengths differ.
pub fn difference(ours: &[f32], theirs: &[f32]) -> Difference {
    assert_eq!(ours.len(), theirs.len());
    let distances = || {
        ours.iter().zip(theirs).map(|(a, b)| {
            let distance = (f64::from(*a) - f64::from(*b)).abs();
            if distance.is_nan() { f64::INFINITY } else { distance }
        })
    };
    Difference { max: distances().fold(0.0, f64::max), mean: distances().sum::<f64>() / ours.len() as f64 }
}
