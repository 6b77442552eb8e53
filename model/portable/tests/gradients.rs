//! The CPU backend's gradients against what burn's Autodiff makes of the operations written in burn's own.

// Helpers outside #[test] functions, which clippy.toml doesn't know as tests.
#![allow(clippy::unwrap_used)]

use burn::backend::Autodiff;
use burn::tensor::{Tensor, TensorData};
use burn_flex::Flex;
use sapiens_portable::{PortableBackend, ops};

mod common;

type Differentiable = Autodiff<Flex>;

/// Values from -1 to 1.
fn random<const D: usize>(shape: [usize; D], seed: u64) -> Tensor<Flex, D> {
    let count: usize = shape.iter().product();
    let values = common::generated_input(count.div_ceil(3), 1, seed)[..count].to_vec();
    Tensor::from_data(TensorData::new(values, shape), &Default::default())
}

fn variable<const D: usize>(shape: [usize; D], seed: u64) -> Tensor<Differentiable, D> {
    Tensor::from_inner(random(shape, seed)).require_grad()
}

/// Largest difference relative to the largest value.
fn difference<const D: usize>(a: Tensor<Flex, D>, b: Tensor<Flex, D>) -> f32 {
    assert_eq!(a.dims(), b.dims());
    let largest = b.clone().abs().max().into_scalar();
    assert!(largest > 0.0, "no gradient at all");
    (a - b).abs().max().into_scalar() / largest
}

/// Both ways' gradients of `inputs` through a weighted sum of the results.
macro_rules! compare {
    ([$($x:ident),+], $fast:expr, $naive:expr, $tolerance:expr) => {{
        let (fast, naive) = ($fast, $naive);
        let weights = Tensor::<Differentiable, _>::from_inner(random(fast.dims(), 99));
        let value = difference(fast.clone().inner(), naive.clone().inner());
        assert!(value <= $tolerance, "results differ by {value}");
        let fast = (fast * weights.clone()).sum().backward();
        let naive = (naive * weights).sum().backward();
        $({
            let d = difference($x.grad(&fast).unwrap(), $x.grad(&naive).unwrap());
            println!("{}: {d:.1e}", stringify!($x));
            assert!(d <= $tolerance, "gradients of {} differ by {d}", stringify!($x));
        })+
    }};
}

/// Float32 sums in another order.
const ROUNDING: f32 = 2e-5;

#[test]
fn affine() {
    for [batch, n, input, output] in [[1, 1, 1, 1], [3, 41, 37, 33], [2, 900, 24, 29]] {
        let (x, weight) = (variable([batch, n, input], 1), variable([output, input], 2));
        let bias = variable([output], 3);
        compare!(
            [x, weight, bias],
            Differentiable::affine(x.clone(), weight.clone(), bias.clone()),
            ops::linear(x.clone(), weight.clone(), bias.clone()),
            ROUNDING
        );
    }
}

#[test]
fn swiglu() {
    let x = variable([2, 5, 38], 1);
    compare!([x], Differentiable::swiglu(x.clone()), ops::swiglu(x.clone()), ROUNDING);
}

#[test]
fn rms_norm() {
    // More rows than one block holds.
    for (rows, channels) in [(7, 33), (1200, 20)] {
        let (x, weight) = (variable([1, rows, channels], 1), variable([channels], 2));
        compare!(
            [x, weight],
            Differentiable::rms_norm(x.clone(), weight.clone(), 1e-6),
            ops::rms_norm(x.clone(), weight.clone(), 1e-6),
            ROUNDING
        );
    }
}

#[test]
fn instance_norm_silu() {
    for [rows, columns, channels] in [[3, 5, 7], [40, 31, 24]] {
        let x = variable([2, rows, columns, channels], 3);
        compare!(
            [x],
            Differentiable::instance_norm_silu(x.clone(), 1e-5),
            ops::instance_norm_silu(x.clone(), 1e-5),
            ROUNDING
        );
    }
}

#[test]
fn scaled_dot_product() {
    for kv_heads in [4, 2, 1] {
        let (q, k) = (variable([2, 4, 37, 12], 1), variable([2, kv_heads, 37, 12], 2));
        let v = variable([2, kv_heads, 37, 12], 3);
        compare!(
            [q, k, v],
            Differentiable::scaled_dot_product(q.clone(), k.clone(), v.clone()),
            ops::scaled_dot_product(q.clone(), k.clone(), v.clone()),
            ROUNDING
        );
    }
}

#[test]
fn rotary() {
    let (patches, head_dim) = (6, 8);
    let angle = random([patches, head_dim / 2], 5);
    let table =
        |t: Tensor<Flex, 2>| Tensor::<Differentiable, 2>::from_inner(Tensor::cat(vec![t.clone(), t], 1));
    let (cos, sin) = (table(angle.clone().cos()), table(angle.sin()));
    let x = variable([2, patches + 3, 3, head_dim], 1);
    // burn's cast rounds the gradients to bfloat16 as well, several times over.
    compare!(
        [x],
        Differentiable::rotary_bf16(x.clone(), cos.clone(), sin.clone()),
        ops::rotary_bf16(x.clone(), cos.clone(), sin.clone()),
        0.01
    );
}

#[test]
fn conv_transpose() {
    for [h, w, input, output] in [[1, 1, 3, 2], [5, 3, 7, 4]] {
        let (x, weight) = (variable([2, h, w, input], 1), variable([input, output, 4, 4], 2));
        compare!(
            [x, weight],
            Differentiable::conv_transpose(x.clone(), weight.clone()),
            ops::conv_transpose(x.clone(), weight.clone()),
            ROUNDING
        );
    }
}
