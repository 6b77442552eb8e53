//! Weights that are functions of their names, and the reference data.

// Each test target uses a part of this.
#![allow(dead_code)]
#![allow(clippy::unwrap_used)]

use std::convert::Infallible;
use std::path::Path;

use rayon::prelude::*;
use safetensors::SafeTensors;
use sapiens_portable::{CpuNetwork, Dims, Family};

/// `u` of element `i` of the tensor whose name and seed give `base`: in [-1, 1), exact.
fn unit(base: u64, i: u64) -> f32 {
    let z = base.wrapping_add((i + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    let z = z ^ (z >> 31);
    (z >> 40) as f32 * (-23f32).exp2() - 1.0
}

fn fnv1a64(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3))
}

fn affine(name: &str, count: usize, seed: u64, scale: f32, offset: f32) -> Vec<f32> {
    let base = fnv1a64(name) ^ seed;
    let mut values = vec![0.0; count];
    values.par_chunks_mut(1 << 14).enumerate().for_each(|(chunk, values)| {
        let first = (chunk << 14) as u64;
        for (i, value) in values.iter_mut().enumerate() {
            *value = unit(base, first + i as u64) * scale + offset;
        }
    });
    values
}

/// The generated values of the tensor `name`.
pub fn generated(name: &str, shape: &[usize], seed: u64) -> Vec<f32> {
    let count = shape.iter().product();
    let (scale, offset) = if name.ends_with(".bias") {
        (0.1, 0.0)
    } else if ["pos_embed", "cls_token", "storage_tokens"].iter().any(|end| name.ends_with(end)) {
        (0.5, 0.0)
    } else if shape.len() == 1 {
        if name.contains(".gamma") { (0.5, 0.0) } else { (0.25, 1.0) }
    } else {
        let fan = if name.contains("deconv_layers") { shape[0] * 4 } else { shape[1..].iter().product() };
        ((3.0 / fan as f64).sqrt() as f32, 0.0)
    };
    affine(name, count, seed, scale, offset)
}

/// The generated input, `[3, height, width]`.
pub fn generated_input(height: usize, width: usize, seed: u64) -> Vec<f32> {
    affine("input", 3 * height * width, seed, 2.0, 0.0)
}

/// A network with generated weights.
pub fn network(dims: &Dims, seed: u64) -> CpuNetwork {
    let values = |name: &str, shape: &[usize]| Ok::<_, Infallible>(generated(name, shape, seed));
    CpuNetwork::load(dims, &Default::default(), values).unwrap()
}

pub fn tiny_sapiens() -> Dims {
    Dims {
        family: Family::Sapiens { pos_embed_grid: [8, 6] },
        embed_dim: 64,
        layers: 3,
        heads: 4,
        ffn_dim: 256,
        deconv_channels: vec![48; 3],
        conv_channels: vec![48; 3],
        classes: 28,
    }
}

pub fn tiny_sapiens2() -> Dims {
    Dims {
        family: Family::Sapiens2 { full_kv_layers: 8 },
        embed_dim: 64,
        layers: 18,
        heads: 4,
        ffn_dim: 256,
        deconv_channels: vec![32, 24, 16, 16],
        conv_channels: vec![16, 16],
        classes: 29,
    }
}

/// A published variant's dims, by its nick.
pub fn variant(nick: &str) -> Option<Dims> {
    let (embed_dim, layers, heads) = match nick.trim_start_matches("sapiens2-") {
        "0.3b" | "0.4b" => (1024, 24, 16),
        "0.6b" | "0.8b" => (1280, 32, 16),
        "1b" => (1536, 40, 24),
        "2b" => (1920, 48, 32),
        "5b" => (2432, 56, 32),
        _ => return None,
    };
    let second = nick.starts_with("sapiens2-");
    let full_kv_layers = 8;
    Some(Dims {
        family: if second {
            Family::Sapiens2 { full_kv_layers }
        } else {
            Family::Sapiens { pos_embed_grid: [64, 48] }
        },
        embed_dim,
        layers,
        heads,
        ffn_dim: 4 * embed_dim,
        deconv_channels: if second { vec![512, 256, 128, 64] } else { vec![768; 3] },
        conv_channels: if second { vec![64; 2] } else { vec![768; 3] },
        classes: if second { 29 } else { 28 },
    })
}

/// The tensors of a file in `tests/data`: name, shape, values.
pub fn reference(file: &str) -> Vec<(String, Vec<usize>, Vec<f32>)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data").join(file);
    let bytes = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let values =
        |bytes: &[u8]| bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    tensors.iter().map(|(name, view)| (name.to_owned(), view.shape().to_vec(), values(view.data()))).collect()
}

/// Largest and mean absolute difference, printed.
pub fn difference(what: &str, found: &[f32], expected: &[f32]) -> (f32, f32) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let differences = found.iter().zip(expected).map(|(a, b)| (a - b).abs());
    // `max` would drop a NaN.
    let max = differences.clone().fold(0.0, |m, d| if d <= m { m } else { d });
    let mean = differences.map(f64::from).sum::<f64>() / found.len() as f64;
    println!("{what:24} max {max:.2e} mean {mean:.2e}");
    (max, mean as f32)
}

/// The process's largest resident size so far, in GB.
pub fn peak_rss_gb() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:")).unwrap_or("0 kB");
    let kilobytes = line.trim().trim_end_matches(" kB").parse::<f64>().unwrap_or(0.0);
    kilobytes * 1024.0 / 1e9
}
