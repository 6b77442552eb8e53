//! The operations that burn's CPU backend is slow at, so that a backend may bring its own.

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

#[cfg(feature = "autodiff")]
use crate::gradients;
use crate::ops;

/// A backend the networks run on: any of burn's. Every method has a default of burn's own operations, so
/// `impl PortableBackend for MyBackend {}` is enough, and differentiates where the backend does.
pub trait PortableBackend: Backend {
    /// `x · weightᵀ + bias`: `[batch, n, in]`, `[out, in]`, `[out]` to `[batch, n, out]`.
    fn affine(x: Tensor<Self, 3>, weight: Tensor<Self, 2>, bias: Tensor<Self, 1>) -> Tensor<Self, 3> {
        ops::linear(x, weight, bias)
    }

    /// GELU by the error function: `x Φ(x)`.
    fn gelu_erf<const D: usize>(x: Tensor<Self, D>) -> Tensor<Self, D> {
        ops::gelu_erf(x)
    }

    /// `silu(a) * b` for `x` = `[.., a | b]`: the last dimension is halved.
    fn swiglu(x: Tensor<Self, 3>) -> Tensor<Self, 3> {
        ops::swiglu(x)
    }

    /// `x / sqrt(mean(x²) + epsilon) * weight` over the last dimension.
    fn rms_norm<const D: usize>(
        x: Tensor<Self, D>,
        weight: Tensor<Self, 1>,
        epsilon: f64,
    ) -> Tensor<Self, D> {
        ops::rms_norm(x, weight, epsilon)
    }

    /// InstanceNorm without weights over rows and columns of `[batch, rows, columns, channels]`, then SiLU.
    fn instance_norm_silu(x: Tensor<Self, 4>, epsilon: f64) -> Tensor<Self, 4> {
        ops::instance_norm_silu(x, epsilon)
    }

    /// `softmax(q kᵀ / sqrt(head_dim)) v` for every head: `q` is `[batch, heads, n, head_dim]`, `k` and `v` have as many
    /// heads or a divisor of them, each serving that many neighbouring query heads. The result is
    /// `[batch, n, heads * head_dim]`.
    fn scaled_dot_product(q: Tensor<Self, 4>, k: Tensor<Self, 4>, v: Tensor<Self, 4>) -> Tensor<Self, 3> {
        ops::scaled_dot_product(q, k, v)
    }

    /// The rotary embedding of `[batch, tokens, heads, head_dim]` by `cos` and `sin`, `[patches, head_dim]`, every step
    /// rounded to bfloat16. The patches are the last tokens; those before are rounded only.
    fn rotary_bf16(x: Tensor<Self, 4>, cos: Tensor<Self, 2>, sin: Tensor<Self, 2>) -> Tensor<Self, 4> {
        ops::rotary_bf16(x, cos, sin)
    }

    /// ConvTranspose2d of kernel 4, stride 2, padding 1, without bias: `[batch, h, w, in]` by `[in, out, 4, 4]` to
    /// `[batch, 2 h, 2 w, out]`.
    fn conv_transpose(x: Tensor<Self, 4>, weight: Tensor<Self, 4>) -> Tensor<Self, 4> {
        ops::conv_transpose(x, weight)
    }

    /// Gradients of [`affine`](Self::affine)'s `x`, `weight` and `bias` from the result's.
    #[cfg(feature = "autodiff")]
    fn affine_backward(
        x: Tensor<Self, 3>,
        weight: Tensor<Self, 2>,
        bias: Tensor<Self, 1>,
        gradient: Tensor<Self, 3>,
    ) -> (Tensor<Self, 3>, Tensor<Self, 2>, Tensor<Self, 1>) {
        gradients::linear(x, weight, bias, gradient)
    }

    /// Gradient of [`swiglu`](Self::swiglu)'s `x` from the result's.
    #[cfg(feature = "autodiff")]
    fn swiglu_backward(x: Tensor<Self, 3>, gradient: Tensor<Self, 3>) -> Tensor<Self, 3> {
        gradients::swiglu(x, gradient)
    }

    /// Gradients of [`rms_norm`](Self::rms_norm)'s `x` and `weight` from the result's, for `[rows, channels]`.
    #[cfg(feature = "autodiff")]
    fn rms_norm_backward(
        x: Tensor<Self, 2>,
        weight: Tensor<Self, 1>,
        epsilon: f64,
        gradient: Tensor<Self, 2>,
    ) -> (Tensor<Self, 2>, Tensor<Self, 1>) {
        gradients::rms_norm(x, weight, epsilon, gradient)
    }

    /// Gradient of [`instance_norm_silu`](Self::instance_norm_silu)'s `x` from the result's.
    #[cfg(feature = "autodiff")]
    fn instance_norm_silu_backward(
        x: Tensor<Self, 4>,
        epsilon: f64,
        gradient: Tensor<Self, 4>,
    ) -> Tensor<Self, 4> {
        gradients::instance_norm_silu(x, epsilon, gradient)
    }

    /// Gradients of [`scaled_dot_product`](Self::scaled_dot_product)'s `q`, `k` and `v` from the result's.
    #[cfg(feature = "autodiff")]
    fn scaled_dot_product_backward(
        q: Tensor<Self, 4>,
        k: Tensor<Self, 4>,
        v: Tensor<Self, 4>,
        gradient: Tensor<Self, 3>,
    ) -> [Tensor<Self, 4>; 3] {
        gradients::scaled_dot_product(q, k, v, gradient)
    }

    /// Gradient of [`rotary_bf16`](Self::rotary_bf16)'s `x` from the result's. Rounding, whose slope is zero almost
    /// everywhere, counts as the identity.
    #[cfg(feature = "autodiff")]
    fn rotary_bf16_backward(
        cos: Tensor<Self, 2>,
        sin: Tensor<Self, 2>,
        gradient: Tensor<Self, 4>,
    ) -> Tensor<Self, 4> {
        gradients::rotary_bf16(cos, sin, gradient)
    }

    /// Gradients of [`conv_transpose`](Self::conv_transpose)'s `x` and `weight` from the result's.
    #[cfg(feature = "autodiff")]
    fn conv_transpose_backward(
        x: Tensor<Self, 4>,
        weight: Tensor<Self, 4>,
        gradient: Tensor<Self, 4>,
    ) -> (Tensor<Self, 4>, Tensor<Self, 4>) {
        gradients::conv_transpose(x, weight, gradient)
    }
}
