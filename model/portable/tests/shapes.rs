//! Head dims, grids and grouped keys of the other variants, on small networks: against burn's own operations where
//! there is something to compare, and the same bytes on every run.

// Helpers outside #[test] functions, which clippy.toml doesn't know as tests.
#![allow(clippy::unwrap_used)]

use burn::tensor::{Tensor, TensorData};
use burn_flex::Flex;
use rayon::ThreadPoolBuilder;
use sapiens_portable::{CpuNetwork, Dims, Family, PortableBackend, ops};

mod common;

fn values(name: &str, shape: &[usize], scale: f32) -> Vec<f32> {
    common::generated_input(1, shape.iter().product::<usize>().div_ceil(3), name.len() as u64)
        .into_iter()
        .take(shape.iter().product())
        .map(|x| x * scale)
        .collect()
}

fn tensor<const D: usize>(name: &str, shape: [usize; D], scale: f32) -> Tensor<Flex, D> {
    Tensor::from_data(TensorData::new(values(name, &shape, scale), shape), &Default::default())
}

fn close<const D: usize>(what: &str, found: Tensor<Flex, D>, expected: Tensor<Flex, D>, tolerance: f32) {
    assert_eq!(found.dims(), expected.dims(), "{what}");
    let [found, expected] = [found, expected].map(|t| t.into_data().to_vec::<f32>().unwrap());
    let (max, _) = common::difference(what, &found, &expected);
    assert!(max <= tolerance, "{what}: {max}");
}

#[test]
fn attention_is_burns() {
    for (heads, kv_heads, n, head_dim) in
        [(4, 4, 1, 60), (4, 2, 9, 76), (2, 1, 33, 80), (3, 3, 130, 64), (2, 2, 600, 16)]
    {
        // Large scores, so that the softmax is far from flat.
        let q = tensor("q", [2, n, heads, head_dim], 2.0).swap_dims(1, 2);
        let k = tensor("ke", [2, n, kv_heads, head_dim], 2.0).swap_dims(1, 2);
        let v = tensor("val", [2, n, kv_heads, head_dim], 1.0).swap_dims(1, 2);
        let expected = ops::scaled_dot_product(q.clone(), k.clone(), v.clone());
        let what = format!("{heads}/{kv_heads} heads of {head_dim}, {n}");
        close(&what, <Flex as PortableBackend>::scaled_dot_product(q, k, v), expected, 1e-5);
    }
}

#[test]
fn elementwise_operations_are_burns() {
    let x = tensor("x", [2, 5, 3, 52], 3.0);
    let expected = ops::instance_norm_silu(x.clone(), 1e-5);
    close("instance_norm_silu", Flex::instance_norm_silu(x.clone(), 1e-5), expected, 1e-5);
    let large = tensor("x", [1, 61, 67, 20], 3.0) + 50.0;
    let expected = ops::instance_norm_silu(large.clone(), 1e-5);
    close("instance_norm_silu + 50", Flex::instance_norm_silu(large, 1e-5), expected, 1e-4);
    let weight = tensor("we", [52], 1.0);
    close("rms_norm", Flex::rms_norm(x.clone(), weight.clone(), 1e-6), ops::rms_norm(x, weight, 1e-6), 1e-5);
    let x = tensor("x", [2, 7, 38], 8.0);
    close("swiglu", Flex::swiglu(x.clone()), ops::swiglu(x), 1e-5);
    let x = tensor("x", [2, 9, 3, 76], 3.0);
    // Angles in bfloat16, as the tables have them.
    let [cos, sin] = ["co", "sin"].map(|name| {
        tensor(name, [6, 76], 0.5).cast(burn::tensor::DType::BF16).cast(burn::tensor::DType::F32)
    });
    let expected = ops::rotary_bf16(x.clone(), cos.clone(), sin.clone());
    close("rotary_bf16", Flex::rotary_bf16(x, cos, sin), expected, 0.0);
}

/// The error function's complement by its continued fraction and series, in f64.
fn erfc(z: f64) -> f64 {
    if z < 2.0 {
        let (mut term, mut sum) = (z, z);
        for n in 1..200 {
            term *= -z * z / f64::from(n);
            sum += term / f64::from(2 * n + 1);
        }
        return 1.0 - sum * std::f64::consts::FRAC_2_SQRT_PI;
    }
    let fraction = (1..200).rev().fold(z, |f, n| z + f64::from(n) / 2.0 / f);
    (-z * z).exp() / fraction / std::f64::consts::PI.sqrt()
}

#[test]
fn gelu_is_exact_to_a_millionth() {
    let x: Vec<f32> = (-130_000..=130_000).map(|i| i as f32 * 1e-4).collect();
    let tensor = Tensor::<Flex, 1>::from_data(x.as_slice(), &Default::default());
    let y = Flex::gelu_erf(tensor).into_data().to_vec::<f32>().unwrap();
    let mut worst = (0.0, 0.0);
    for (&x, &y) in x.iter().zip(&y) {
        let t = f64::from(x).abs();
        let tail = t * 0.5 * erfc(t / std::f64::consts::SQRT_2);
        let error = (f64::from(y) - (f64::from(x).max(0.0) - tail)).abs();
        if error > worst.0 {
            worst = (error, x);
        }
    }
    println!("gelu max error {:.2e} at {}", worst.0, worst.1);
    assert!(worst.0 <= 1e-6);
}

/// Small networks with the head dims of the large variants.
fn small(heads: usize, head_dim: usize, second: bool) -> Dims {
    let base = if second { common::tiny_sapiens2() } else { common::tiny_sapiens() };
    let embed_dim = heads * head_dim;
    let family = if second { Family::Sapiens2 { full_kv_layers: 1 } } else { base.family };
    Dims { family, embed_dim, heads, layers: 3, ffn_dim: 2 * embed_dim, ..base }
}

#[test]
fn every_head_dim_and_grid() {
    for dims in [small(2, 60, false), small(2, 80, false), small(4, 76, true), small(2, 80, true)] {
        let network = common::network(&dims, 5);
        for (height, width) in [(16, 16), (16, 48), (48, 16), (112, 208), (128, 96)] {
            let logits = network.forward(common::generated_input(height, width, 3), height, width);
            assert_eq!([logits.height, logits.width], dims.logits_size(height, width));
            assert_eq!(logits.values.len(), dims.classes * logits.height * logits.width);
            assert!(logits.values.iter().all(|x| x.is_finite()), "{dims:?} at {height} x {width}");
        }
    }
}

#[test]
fn the_same_bytes_on_any_number_of_threads() {
    for dims in [common::tiny_sapiens(), common::tiny_sapiens2()] {
        let network = common::network(&dims, 5);
        let run = |threads| {
            let pool = ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| network.forward(common::generated_input(240, 208, 3), 240, 208))
        };
        let bits = |threads| run(threads).values.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        let once = bits(1);
        assert!(once == bits(1), "two runs differ");
        assert!(once == bits(3), "threads change the result");
    }
}

#[test]
fn another_size_and_back() {
    let network = common::network(&common::tiny_sapiens(), 5);
    let first = network.forward(common::generated_input(128, 96, 3), 128, 96);
    network.forward(common::generated_input(64, 64, 3), 64, 64);
    assert_eq!(first, network.clone().forward(common::generated_input(128, 96, 3), 128, 96));
}

#[test]
fn a_failing_source_stops_the_load() {
    let result = CpuNetwork::load(&common::tiny_sapiens(), &Default::default(), |name, shape| {
        if name.ends_with("ln1.bias") { Err(name.to_owned()) } else { Ok(vec![0.0; shape.iter().product()]) }
    });
    assert_eq!(result.err().as_deref(), Some("backbone.layers.0.ln1.bias"));
}

#[test]
fn threads_may_share_a_network() {
    fn shared<T: Send + Sync + Clone + 'static>() {}
    shared::<CpuNetwork>();
}
