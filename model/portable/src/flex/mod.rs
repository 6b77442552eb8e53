//! [`PortableBackend`] for burn's CPU backend, in float32: what burn does element by element with scalar
//! exponentials, or on one thread, done in vectors on the caller's rayon pool.
//!
//! Every result is independent of the number of threads: work is cut into blocks of a fixed size, and partial sums
//! are added in the blocks' order.

mod attention;
mod conv_transpose;
#[cfg(feature = "autodiff")]
mod gradient_math;
#[cfg(feature = "autodiff")]
mod gradients;
mod linear;
mod math;
mod product;

pub use math::exp;
pub use product::{Matrix, product};

use burn::tensor::{DType, Tensor, TensorData, TensorPrimitive};
use burn_flex::{Flex, FlexTensor};
use rayon::prelude::*;

use crate::backend::PortableBackend;
use crate::ops;

/// Values that one task works on: 64 kB, so that a block's several passes stay in the L2 cache.
const BLOCK: usize = 1 << 14;

/// The tensor's own storage if nothing else uses it, else a copy, contiguous.
fn contiguous<const D: usize>(x: Tensor<Flex, D>) -> FlexTensor {
    let mut x = x.into_primitive().tensor();
    if !x.is_contiguous() || x.as_slice::<f32>().is_some_and(|own| own.len() != x.storage::<f32>().len()) {
        x = x.to_contiguous();
    }
    x
}

fn from<const D: usize>(values: Vec<f32>, shape: [usize; D]) -> Tensor<Flex, D> {
    Tensor::from_data(TensorData::new(values, shape), &Default::default())
}

fn tensor<const D: usize>(x: FlexTensor) -> Tensor<Flex, D> {
    Tensor::from_primitive(TensorPrimitive::Float(x))
}

/// The whole of a contiguous tensor's values.
fn values<const D: usize>(x: &Tensor<Flex, D>) -> Vec<f32> {
    contiguous(x.clone()).storage::<f32>().to_vec()
}

impl PortableBackend for Flex {
    fn gelu_erf<const D: usize>(x: Tensor<Self, D>) -> Tensor<Self, D> {
        if x.dtype() != DType::F32 {
            return ops::gelu_erf(x);
        }
        let arch = pulp::Arch::new();
        let mut x = contiguous(x);
        x.storage_mut().par_chunks_mut(BLOCK).for_each(|block| arch.dispatch(math::Gelu(block)));
        tensor(x)
    }

    fn swiglu(x: Tensor<Self, 3>) -> Tensor<Self, 3> {
        if x.dtype() != DType::F32 {
            return ops::swiglu(x);
        }
        let arch = pulp::Arch::new();
        let (device, [batch, n, both]) = (x.device(), x.dims());
        let x = contiguous(x);
        let mut result = vec![0.0; batch * n * both / 2];
        result
            .par_chunks_mut(both / 2)
            .zip(x.storage::<f32>().par_chunks(both))
            .for_each(|(result, row)| arch.dispatch(math::SwiGlu { row, result }));
        Tensor::from_data(TensorData::new(result, [batch, n, both / 2]), &device)
    }

    fn rms_norm<const D: usize>(
        x: Tensor<Self, D>,
        weight: Tensor<Self, 1>,
        epsilon: f64,
    ) -> Tensor<Self, D> {
        if x.dtype() != DType::F32 || weight.dtype() != DType::F32 {
            return ops::rms_norm(x, weight, epsilon);
        }
        let arch = pulp::Arch::new();
        let weight = values(&weight);
        let (weight, epsilon) = (weight.as_slice(), epsilon as f32);
        let block = BLOCK.next_multiple_of(weight.len());
        let mut x = contiguous(x);
        x.storage_mut()
            .par_chunks_mut(block)
            .for_each(|rows| arch.dispatch(math::RmsNorm { rows, weight, epsilon }));
        tensor(x)
    }

    fn instance_norm_silu(x: Tensor<Self, 4>, epsilon: f64) -> Tensor<Self, 4> {
        if x.dtype() != DType::F32 {
            return ops::instance_norm_silu(x, epsilon);
        }
        let [_, rows, columns, channels] = x.dims();
        let mut x = contiguous(x);
        for image in x.storage_mut::<f32>().chunks_exact_mut(rows * columns * channels) {
            instance_norm_silu(image, channels, epsilon);
        }
        tensor(x)
    }

    fn scaled_dot_product(q: Tensor<Self, 4>, k: Tensor<Self, 4>, v: Tensor<Self, 4>) -> Tensor<Self, 3> {
        if [&q, &k, &v].iter().any(|t| t.dtype() != DType::F32) {
            return ops::scaled_dot_product(q, k, v);
        }
        attention::scaled_dot_product(q, k, v)
    }

    fn rotary_bf16(x: Tensor<Self, 4>, cos: Tensor<Self, 2>, sin: Tensor<Self, 2>) -> Tensor<Self, 4> {
        if [x.dtype(), cos.dtype(), sin.dtype()] != [DType::F32; 3] {
            return ops::rotary_bf16(x, cos, sin);
        }
        let arch = pulp::Arch::new();
        let ([_, tokens, heads, head_dim], [patches, _]) = (x.dims(), cos.dims());
        let (cos, sin) = (contiguous(cos), contiguous(sin));
        let (cos, sin) = (cos.storage::<f32>(), sin.storage::<f32>());
        let mut x = contiguous(x);
        x.storage_mut::<f32>().par_chunks_mut(heads * head_dim).enumerate().for_each(|(i, token)| {
            let patch = (i % tokens).checked_sub(tokens - patches);
            let angles = patch.map(|p| (&cos[p * head_dim..][..head_dim], &sin[p * head_dim..][..head_dim]));
            arch.dispatch(math::Rotary { token, head_dim, angles });
        });
        tensor(x)
    }

    fn affine(x: Tensor<Self, 3>, weight: Tensor<Self, 2>, bias: Tensor<Self, 1>) -> Tensor<Self, 3> {
        if [x.dtype(), weight.dtype(), bias.dtype()] != [DType::F32; 3] || !linear::fits(&weight) {
            return ops::linear(x, weight, bias);
        }
        linear::linear(x, weight, bias)
    }

    fn conv_transpose(x: Tensor<Self, 4>, weight: Tensor<Self, 4>) -> Tensor<Self, 4> {
        if [x.dtype(), weight.dtype()] != [DType::F32; 2] || !conv_transpose::fits(&x, &weight) {
            return ops::conv_transpose(x, weight);
        }
        conv_transpose::conv_transpose(x, weight)
    }

    #[cfg(feature = "autodiff")]
    fn affine_backward(
        x: Tensor<Self, 3>,
        weight: Tensor<Self, 2>,
        bias: Tensor<Self, 1>,
        gradient: Tensor<Self, 3>,
    ) -> (Tensor<Self, 3>, Tensor<Self, 2>, Tensor<Self, 1>) {
        let all = [x.dtype(), weight.dtype(), bias.dtype(), gradient.dtype()];
        if all != [DType::F32; 4] || !linear::fits(&weight) {
            return crate::gradients::linear(x, weight, bias, gradient);
        }
        gradients::linear(x, weight, gradient)
    }

    #[cfg(feature = "autodiff")]
    fn swiglu_backward(x: Tensor<Self, 3>, gradient: Tensor<Self, 3>) -> Tensor<Self, 3> {
        if [x.dtype(), gradient.dtype()] != [DType::F32; 2] {
            return crate::gradients::swiglu(x, gradient);
        }
        gradients::swiglu(x, gradient)
    }

    #[cfg(feature = "autodiff")]
    fn rms_norm_backward(
        x: Tensor<Self, 2>,
        weight: Tensor<Self, 1>,
        epsilon: f64,
        gradient: Tensor<Self, 2>,
    ) -> (Tensor<Self, 2>, Tensor<Self, 1>) {
        if [x.dtype(), weight.dtype(), gradient.dtype()] != [DType::F32; 3] {
            return crate::gradients::rms_norm(x, weight, epsilon, gradient);
        }
        gradients::rms_norm(x, weight, epsilon, gradient)
    }

    #[cfg(feature = "autodiff")]
    fn instance_norm_silu_backward(
        x: Tensor<Self, 4>,
        epsilon: f64,
        gradient: Tensor<Self, 4>,
    ) -> Tensor<Self, 4> {
        if [x.dtype(), gradient.dtype()] != [DType::F32; 2] {
            return crate::gradients::instance_norm_silu(x, epsilon, gradient);
        }
        gradients::instance_norm_silu(x, epsilon, gradient)
    }

    #[cfg(feature = "autodiff")]
    fn scaled_dot_product_backward(
        q: Tensor<Self, 4>,
        k: Tensor<Self, 4>,
        v: Tensor<Self, 4>,
        gradient: Tensor<Self, 3>,
    ) -> [Tensor<Self, 4>; 3] {
        if [q.dtype(), k.dtype(), v.dtype(), gradient.dtype()] != [DType::F32; 4] {
            return crate::gradients::scaled_dot_product(q, k, v, gradient);
        }
        gradients::scaled_dot_product(q, k, v, gradient)
    }

    #[cfg(feature = "autodiff")]
    fn rotary_bf16_backward(
        cos: Tensor<Self, 2>,
        sin: Tensor<Self, 2>,
        gradient: Tensor<Self, 4>,
    ) -> Tensor<Self, 4> {
        if [cos.dtype(), sin.dtype(), gradient.dtype()] != [DType::F32; 3] {
            return crate::gradients::rotary_bf16(cos, sin, gradient);
        }
        gradients::rotary_bf16(cos, sin, gradient)
    }

    #[cfg(feature = "autodiff")]
    fn conv_transpose_backward(
        x: Tensor<Self, 4>,
        weight: Tensor<Self, 4>,
        gradient: Tensor<Self, 4>,
    ) -> (Tensor<Self, 4>, Tensor<Self, 4>) {
        if [x.dtype(), weight.dtype(), gradient.dtype()] != [DType::F32; 3]
            || !conv_transpose::fits(&x, &weight)
        {
            return crate::gradients::conv_transpose(x, weight, gradient);
        }
        gradients::conv_transpose(x, weight, gradient)
    }
}

/// One image's planes, `[pixels, channels]`.
fn instance_norm_silu(image: &mut [f32], channels: usize, epsilon: f64) {
    let arch = pulp::Arch::new();
    let (mean, inverse) = moments(image, channels, epsilon);
    image
        .par_chunks_mut(BLOCK.next_multiple_of(channels))
        .for_each(|pixels| arch.dispatch(math::NormSilu { pixels, mean: &mean, inverse: &inverse }));
}

/// Mean and `1 / sqrt(variance + epsilon)` of every channel of `[pixels, channels]`.
fn moments(image: &[f32], channels: usize, epsilon: f64) -> (Vec<f32>, Vec<f32>) {
    let arch = pulp::Arch::new();
    let block = BLOCK.next_multiple_of(channels);
    let moments: Vec<_> = image
        .par_chunks(block)
        .map(|pixels| ((pixels.len() / channels) as f64, arch.dispatch(math::Moments { pixels, channels })))
        .collect();
    let count = (image.len() / channels) as f64;
    let mut mean = vec![0f64; channels];
    for (n, (block_mean, _)) in &moments {
        mean.iter_mut().zip(block_mean).for_each(|(m, &x)| *m += n / count * f64::from(x));
    }
    // Each block's squares are about its own mean; moving them to the common mean adds n times the square of the move.
    let mut variance = vec![0f64; channels];
    for (n, (block_mean, squares)) in &moments {
        for (c, v) in variance.iter_mut().enumerate() {
            let moved = f64::from(block_mean[c]) - mean[c];
            *v += (f64::from(squares[c]) + n * moved * moved) / count;
        }
    }
    let mean: Vec<_> = mean.iter().map(|&m| m as f32).collect();
    let inverse: Vec<_> = variance.iter().map(|v| (1.0 / (v + epsilon).sqrt()) as f32).collect();
    (mean, inverse)
}
