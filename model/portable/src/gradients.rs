//! The operations' gradients in burn's own: what burn's Autodiff makes of [`ops`](crate::ops). The meaning of the
//! `_backward` methods of [`PortableBackend`](crate::PortableBackend), on any backend.

use burn::backend::Autodiff;
use burn::tensor::Tensor;
use burn::tensor::backend::{AutodiffBackend, Backend};

use crate::ops;

type Gradients<B> = <Autodiff<B> as AutodiffBackend>::Gradients;

/// `x` as a variable.
fn variable<B: Backend, const D: usize>(x: Tensor<B, D>) -> Tensor<Autodiff<B>, D> {
    Tensor::from_inner(x).require_grad()
}

/// Gradients of all variables that `y` was made of, given that of `y`.
fn backward<B: Backend, const D: usize>(y: Tensor<Autodiff<B>, D>, gradient: Tensor<B, D>) -> Gradients<B> {
    (y * Tensor::from_inner(gradient)).sum().backward()
}

/// That of `x`, zero where nothing depends on it.
fn of<B: Backend, const D: usize>(x: &Tensor<Autodiff<B>, D>, gradients: &Gradients<B>) -> Tensor<B, D> {
    x.grad(gradients).unwrap_or_else(|| x.clone().inner().zeros_like())
}

pub(crate) fn linear<B: Backend>(
    x: Tensor<B, 3>,
    weight: Tensor<B, 2>,
    bias: Tensor<B, 1>,
    gradient: Tensor<B, 3>,
) -> (Tensor<B, 3>, Tensor<B, 2>, Tensor<B, 1>) {
    let (x, weight, bias) = (variable(x), variable(weight), variable(bias));
    let gradients = backward(ops::linear(x.clone(), weight.clone(), bias.clone()), gradient);
    (of(&x, &gradients), of(&weight, &gradients), of(&bias, &gradients))
}

pub(crate) fn swiglu<B: Backend>(x: Tensor<B, 3>, gradient: Tensor<B, 3>) -> Tensor<B, 3> {
    let x = variable(x);
    of(&x, &backward(ops::swiglu(x.clone()), gradient))
}

pub(crate) fn rms_norm<B: Backend>(
    x: Tensor<B, 2>,
    weight: Tensor<B, 1>,
    epsilon: f64,
    gradient: Tensor<B, 2>,
) -> (Tensor<B, 2>, Tensor<B, 1>) {
    let (x, weight) = (variable(x), variable(weight));
    let gradients = backward(ops::rms_norm(x.clone(), weight.clone(), epsilon), gradient);
    (of(&x, &gradients), of(&weight, &gradients))
}

pub(crate) fn instance_norm_silu<B: Backend>(
    x: Tensor<B, 4>,
    epsilon: f64,
    gradient: Tensor<B, 4>,
) -> Tensor<B, 4> {
    let x = variable(x);
    of(&x, &backward(ops::instance_norm_silu(x.clone(), epsilon), gradient))
}

pub(crate) fn scaled_dot_product<B: Backend>(
    q: Tensor<B, 4>,
    k: Tensor<B, 4>,
    v: Tensor<B, 4>,
    gradient: Tensor<B, 3>,
) -> [Tensor<B, 4>; 3] {
    let variables = [q, k, v].map(variable);
    let [q, k, v] = variables.clone();
    let gradients = backward(ops::scaled_dot_product(q, k, v), gradient);
    variables.map(|x| of(&x, &gradients))
}

/// The rounding counts as the identity, so this is the rotation backwards.
pub(crate) fn rotary_bf16<B: Backend>(
    cos: Tensor<B, 2>,
    sin: Tensor<B, 2>,
    gradient: Tensor<B, 4>,
) -> Tensor<B, 4> {
    let [_, tokens, _, head_dim] = gradient.dims();
    let [patches, _] = cos.dims();
    let [cos, sin] = [cos, sin].map(|t| t.reshape([1, patches, 1, head_dim]));
    let (prefix, half) = (tokens - patches, head_dim / 2);
    let patch = gradient.clone().narrow(1, prefix, patches);
    let by_sin = patch.clone() * sin;
    let (a, b) = (by_sin.clone().narrow(3, 0, half), by_sin.narrow(3, half, half));
    let rotated = patch * cos + Tensor::cat(vec![b, -a], 3);
    if prefix == 0 { rotated } else { Tensor::cat(vec![gradient.narrow(1, 0, prefix), rotated], 1) }
}

pub(crate) fn conv_transpose<B: Backend>(
    x: Tensor<B, 4>,
    weight: Tensor<B, 4>,
    gradient: Tensor<B, 4>,
) -> (Tensor<B, 4>, Tensor<B, 4>) {
    let (x, weight) = (variable(x), variable(weight));
    let gradients = backward(ops::conv_transpose(x.clone(), weight.clone()), gradient);
    (of(&x, &gradients), of(&weight, &gradients))
}
