//! What the tests share: the authors' tensors, generated tensors, differences.
#![allow(dead_code, reason = "each test uses its part")]
#![allow(clippy::unwrap_used, reason = "test code")]

#[cfg(feature = "cuda")]
pub mod frames;
#[cfg(feature = "cuda")]
pub mod gpu;

use std::collections::HashMap;
use std::path::PathBuf;

use safetensors::{Dtype, SafeTensors};
use sapiens_kernels::cpu::Element;
use sapiens_kernels::reference;

/// The tensors of one file, in float32 or bytes, with their shapes.
pub struct Tensors {
    floats: HashMap<String, Vec<f32>>,
    bytes: HashMap<String, Vec<u8>>,
    shapes: HashMap<String, Vec<usize>>,
}

/// In this crate's test data, else in the workspace's.
fn data(name: &str) -> PathBuf {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let own = root.join("tests/data").join(name);
    if own.exists() { own } else { root.join("../tests/data").join(name) }
}

impl Tensors {
    pub fn read(name: &str) -> Self {
        let bytes = std::fs::read(data(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        let file = SafeTensors::deserialize(&bytes).unwrap();
        let mut tensors = Self { floats: HashMap::new(), bytes: HashMap::new(), shapes: HashMap::new() };
        for (name, view) in file.tensors() {
            tensors.shapes.insert(name.clone(), view.shape().to_vec());
            match view.dtype() {
                Dtype::F32 => {
                    let values = view.data().as_chunks().0.iter().map(|&b| f32::from_le_bytes(b)).collect();
                    tensors.floats.insert(name, values);
                }
                Dtype::U8 => {
                    tensors.bytes.insert(name, view.data().to_vec());
                }
                Dtype::BF16 => {
                    let value = |&b: &[u8; 2]| half::bf16::from_le_bytes(b).to_f32();
                    tensors.floats.insert(name, view.data().as_chunks().0.iter().map(value).collect());
                }
                other => panic!("tensor {name} is {other:?}"),
            }
        }
        tensors
    }

    pub fn f32(&self, name: &str) -> &[f32] {
        self.floats.get(name).unwrap_or_else(|| panic!("no tensor {name}"))
    }

    pub fn u8(&self, name: &str) -> &[u8] {
        self.bytes.get(name).unwrap_or_else(|| panic!("no tensor {name}"))
    }

    pub fn shape(&self, name: &str) -> &[usize] {
        &self.shapes[name]
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.shapes.keys().map(String::as_str)
    }

    pub fn has(&self, name: &str) -> bool {
        self.shapes.contains_key(name)
    }
}

/// A photo's RGB bytes, width and height.
pub fn photo(name: &str) -> (Vec<u8>, usize, usize) {
    let photo = image::open(data(name)).unwrap().to_rgb8();
    let (width, height) = photo.dimensions();
    (photo.into_raw(), width as usize, height as usize)
}

/// FNV-1a of 64 bits.
pub fn fnv1a64(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |h, &b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3))
}

/// Weights that are a function of name, shape and seed: SplitMix64 of the name's FNV-1a hash.
pub fn generated(name: &str, shape: &[usize], seed: u64) -> Vec<f32> {
    let hash = fnv1a64(name.as_bytes());
    let (scale, offset) = if name.ends_with(".bias") {
        (0.1, 0.0)
    } else if ["pos_embed", "cls_token", "storage_tokens"].iter().any(|end| name.ends_with(end)) {
        (0.5, 0.0)
    } else if shape.len() == 1 {
        if name.contains(".gamma") { (0.5, 0.0) } else { (0.25, 1.0) }
    } else {
        let fan: usize =
            if name.contains("deconv_layers") { shape[0] * 4 } else { shape[1..].iter().product() };
        ((3.0 / fan as f64).sqrt() as f32, 0.0)
    };
    reference::generate(hash ^ seed, 0, shape.iter().product(), scale, offset)
}

/// A deterministic image of `width * height * 3` bytes: every fourth one extreme, so that sums reach their limits.
pub fn hash_image(width: usize, height: usize) -> Vec<u8> {
    let seed = (width * 31 + height) as u32;
    (0..(width * height * 3) as u32)
        .map(|i| {
            let mut h = i.wrapping_mul(0x9E37_79B1) ^ seed.wrapping_mul(0x85EB_CA6B);
            h = (h ^ (h >> 15)).wrapping_mul(0x2C1B_3C6D);
            h = (h ^ (h >> 12)).wrapping_mul(0x297A_2D39);
            h ^= h >> 15;
            match h & 7 {
                0 => 0,
                1 => 255,
                _ => (h >> 8) as u8,
            }
        })
        .collect()
}

/// Largest and mean absolute difference. NaN counts as infinite.
pub fn difference(actual: &[f32], expected: &[f32]) -> (f64, f64) {
    assert_eq!(actual.len(), expected.len(), "lengths");
    let mut max = 0.0f64;
    let mut sum = 0.0;
    for (&a, &e) in actual.iter().zip(expected) {
        let difference = (f64::from(a) - f64::from(e)).abs();
        let difference = if difference.is_nan() { f64::INFINITY } else { difference };
        max = max.max(difference);
        sum += difference;
    }
    (max, sum / actual.len() as f64)
}

/// `len` generated values and the same in float32: the type holds them exactly.
pub fn stored<E: Element>(name: &str, len: usize, scale: f32) -> (Vec<E>, Vec<f32>) {
    let values = generated(name, &[len, 3], 6).into_iter().step_by(3);
    let values: Vec<E> = values.map(|value| E::from_f32(value * scale)).collect();
    let exact = values.iter().map(|value| value.to_f32()).collect();
    (values, exact)
}

/// What `f` writes to an output full of NaN. Nothing may be written past its end.
pub fn written<O: Element>(len: usize, f: impl FnOnce(&mut [O])) -> Vec<f32> {
    const GUARD: usize = 64;
    let mut out = vec![O::NAN; len];
    out.extend((0..GUARD).map(|i| O::from_f32(i as f32)));
    f(&mut out[..len]);
    let guard = out.split_off(len);
    assert!(guard.iter().enumerate().all(|(i, value)| value.to_f32() == i as f32), "written past the end");
    out.into_iter().map(Element::to_f32).collect()
}
