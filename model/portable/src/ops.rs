//! The networks' operations in burn's own: what [`PortableBackend`](crate::PortableBackend) means, on any backend.

use burn::tensor::backend::Backend;
use burn::tensor::ops::{AttentionModuleOptions, PadMode};
use burn::tensor::{DType, Tensor, TensorPrimitive, activation, module};

pub use crate::flex::exp;

/// `x · weightᵀ + bias`: `[batch, n, in]`, `[out, in]`, `[out]` to `[batch, n, out]`.
pub fn linear<B: Backend>(x: Tensor<B, 3>, weight: Tensor<B, 2>, bias: Tensor<B, 1>) -> Tensor<B, 3> {
    let [batch, n, input] = x.dims();
    let [output, _] = weight.dims();
    // One matrix for the whole batch: burn parallelises a batched product over the batch only.
    let y = x.reshape([batch * n, input]).matmul(weight.transpose()) + bias.unsqueeze();
    y.reshape([batch, n, output])
}

/// See [`PortableBackend::gelu_erf`](crate::PortableBackend::gelu_erf).
pub fn gelu_erf<B: Backend, const D: usize>(x: Tensor<B, D>) -> Tensor<B, D> {
    activation::gelu(x)
}

/// See [`PortableBackend::swiglu`](crate::PortableBackend::swiglu).
pub fn swiglu<B: Backend>(x: Tensor<B, 3>) -> Tensor<B, 3> {
    let half = x.dims()[2] / 2;
    activation::silu(x.clone().narrow(2, 0, half)) * x.narrow(2, half, half)
}

/// LayerNorm over the channels of `[batch, n, channels]`.
pub fn layer_norm<B: Backend>(
    x: Tensor<B, 3>,
    weight: Tensor<B, 1>,
    bias: Tensor<B, 1>,
    epsilon: f64,
) -> Tensor<B, 3> {
    let [weight, bias] = [weight, bias].map(|t| t.into_primitive().tensor());
    let y = B::layer_norm(x.into_primitive().tensor(), weight, Some(bias), epsilon);
    Tensor::from_primitive(TensorPrimitive::Float(y))
}

/// See [`PortableBackend::rms_norm`](crate::PortableBackend::rms_norm).
pub fn rms_norm<B: Backend, const D: usize>(
    x: Tensor<B, D>,
    weight: Tensor<B, 1>,
    epsilon: f64,
) -> Tensor<B, D> {
    let rms = (x.clone().square().mean_dim(D - 1) + epsilon).sqrt();
    x / rms * weight.unsqueeze()
}

/// See [`PortableBackend::instance_norm_silu`](crate::PortableBackend::instance_norm_silu).
pub fn instance_norm_silu<B: Backend>(x: Tensor<B, 4>, epsilon: f64) -> Tensor<B, 4> {
    let [batch, rows, columns, channels] = x.dims();
    let x = x.reshape([batch, rows * columns, channels]);
    let x = x.clone() - x.mean_dim(1);
    let variance = x.clone().square().mean_dim(1);
    activation::silu(x / (variance + epsilon).sqrt()).reshape([batch, rows, columns, channels])
}

/// See [`PortableBackend::scaled_dot_product`](crate::PortableBackend::scaled_dot_product).
pub fn scaled_dot_product<B: Backend>(q: Tensor<B, 4>, k: Tensor<B, 4>, v: Tensor<B, 4>) -> Tensor<B, 3> {
    let [batch, heads, n, head_dim] = q.dims();
    let [k, v] = [k, v].map(|t| {
        let [_, kv_heads, tokens, _] = t.dims();
        if kv_heads == heads {
            return t;
        }
        let group = heads / kv_heads;
        t.unsqueeze_dim::<5>(2).repeat_dim(2, group).reshape([batch, heads, tokens, head_dim])
    });
    let y = module::attention(q, k, v, None, None, AttentionModuleOptions::default());
    y.swap_dims(1, 2).reshape([batch, n, heads * head_dim])
}

/// See [`PortableBackend::rotary_bf16`](crate::PortableBackend::rotary_bf16).
pub fn rotary_bf16<B: Backend>(x: Tensor<B, 4>, cos: Tensor<B, 2>, sin: Tensor<B, 2>) -> Tensor<B, 4> {
    let working = x.dtype();
    let round = |t: Tensor<B, 4>| t.cast(DType::BF16).cast(working);
    let [_, tokens, _, head_dim] = x.dims();
    let [patches, _] = cos.dims();
    let [cos, sin] = [cos, sin].map(|t| t.reshape([1, patches, 1, head_dim]));
    let (prefix, half) = (tokens - patches, head_dim / 2);
    let x = round(x);
    let patch = x.clone().narrow(1, prefix, patches);
    let (a, b) = (patch.clone().narrow(3, 0, half), patch.clone().narrow(3, half, half));
    let rotated = round(round(patch * cos) + round(Tensor::cat(vec![-b, a], 3) * sin));
    if prefix == 0 { rotated } else { Tensor::cat(vec![x.narrow(1, 0, prefix), rotated], 1) }
}

/// Values in one band's matrix of windows, see [`conv_transpose`]: 64 MB.
const BAND_VALUES: usize = 1 << 24;

/// ConvTranspose2d of kernel 4, stride 2, padding 1: `[batch, h, w, in]` by `[in, out, 4, 4]` to
/// `[batch, 2 h, 2 w, out]`.
///
/// Every 2 x 2 window of the input (padded by one) yields the 2 x 2 block of output around its centre, by one matrix
/// `[4 in, 4 out]`. Done in bands of rows, so that the windows of a large map needn't all be in memory.
pub fn conv_transpose<B: Backend>(x: Tensor<B, 4>, weight: Tensor<B, 4>) -> Tensor<B, 4> {
    let [batch, h, w, input] = x.dims();
    let [_, output, _, _] = weight.dims();
    // Kernel row 2 (1 - i) + a ties row i of a window to row a of its block; columns alike.
    let matrix = weight
        .reshape([input, output, 2, 2, 2, 2])
        .flip([2, 4])
        .permute([2, 4, 0, 3, 5, 1])
        .reshape([4 * input, 4 * output]);
    let x = x.pad([(0, 0), (1, 1), (1, 1), (0, 0)], PadMode::Constant(0.0));
    let (rows, columns) = (h + 1, w + 1);
    let band_rows = (BAND_VALUES / (batch * columns * 4 * input)).clamp(1, rows);
    let bands = (0..rows).step_by(band_rows).map(|start| {
        let count = band_rows.min(rows - start);
        let corner = |i: usize, j: usize| x.clone().narrow(1, start + i, count).narrow(2, j, columns);
        let windows = Tensor::cat(vec![corner(0, 0), corner(0, 1), corner(1, 0), corner(1, 1)], 3);
        let blocks = windows.reshape([batch * count * columns, 4 * input]).matmul(matrix.clone());
        let band = blocks
            .reshape([batch, count, columns, 2, 2, output])
            .permute([0, 1, 3, 2, 4, 5])
            .reshape([batch, 2 * count, 2 * columns, output]);
        // The outermost blocks lie half outside.
        let first = usize::from(start == 0);
        let last = usize::from(start + count == rows);
        band.narrow(1, first, 2 * count - first - last).narrow(2, 1, 2 * w)
    });
    Tensor::cat(bands.collect(), 1)
}
