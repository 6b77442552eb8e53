//! The operations that burn's CPU backend is slow at, so that a backend may bring its own.

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

use crate::ops;

/// A backend the networks run on: any of burn's. Every method has a default of burn's own operations, so
/// `impl PortableBackend for MyBackend {}` is enough, and differentiates where the backend does.
pub trait PortableBackend: Backend {
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
}

#[cfg(feature = "autodiff")]
impl<B: Backend, C: burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy> PortableBackend
    for burn::backend::Autodiff<B, C>
{
}
