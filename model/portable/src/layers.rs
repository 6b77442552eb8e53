//! Layers that both families and the head are made of, with the checkpoint's own weight layouts.

use burn::module::{Module, Param};
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

use crate::backend::PortableBackend;
use crate::dims::PATCH;
use crate::ops;
use crate::values::Values;

/// Epsilon of LayerNorm and RMSNorm in both families.
pub(crate) const NORM_EPSILON: f64 = 1e-6;

/// `x · weightᵀ + bias`.
#[derive(Module, Debug)]
pub(crate) struct Linear<B: Backend> {
    /// `[out, in]`.
    weight: Param<Tensor<B, 2>>,
    /// `[out]`.
    bias: Param<Tensor<B, 1>>,
}

impl<B: PortableBackend> Linear<B> {
    pub(crate) fn load<E>(
        v: &mut Values<'_, B, E>,
        name: &str,
        input: usize,
        output: usize,
    ) -> Result<Self, E> {
        Ok(Self {
            weight: v.param(&format!("{name}.weight"), [output, input])?,
            bias: v.param(&format!("{name}.bias"), [output])?,
        })
    }

    /// `[batch, n, in]` to `[batch, n, out]`.
    pub(crate) fn forward(&self, x: Tensor<B, 3>) -> Tensor<B, 3> {
        B::affine(x, self.weight.val(), self.bias.val())
    }
}

/// A 1x1 convolution, which is a linear layer on every pixel.
#[derive(Module, Debug)]
pub(crate) struct Conv1x1<B: Backend> {
    /// `[out, in, 1, 1]`.
    weight: Param<Tensor<B, 4>>,
    /// `[out]`.
    bias: Param<Tensor<B, 1>>,
}

impl<B: PortableBackend> Conv1x1<B> {
    pub(crate) fn load<E>(
        v: &mut Values<'_, B, E>,
        name: &str,
        input: usize,
        output: usize,
    ) -> Result<Self, E> {
        Ok(Self {
            weight: v.param(&format!("{name}.weight"), [output, input, 1, 1])?,
            bias: v.param(&format!("{name}.bias"), [output])?,
        })
    }

    /// `[batch, h, w, in]` to `[batch, h, w, out]`.
    pub(crate) fn forward(&self, x: Tensor<B, 4>) -> Tensor<B, 4> {
        let [batch, h, w, input] = x.dims();
        let [output] = self.bias.dims();
        let weight = self.weight.val().reshape([output, input]);
        B::affine(x.reshape([batch, h * w, input]), weight, self.bias.val()).reshape([batch, h, w, output])
    }
}

/// The convolution of kernel and stride 16 that makes tokens of patches: a linear layer on every patch.
#[derive(Module, Debug)]
pub(crate) struct PatchEmbed<B: Backend> {
    /// `[D, 3, 16, 16]`.
    weight: Param<Tensor<B, 4>>,
    /// `[D]`.
    bias: Param<Tensor<B, 1>>,
}

impl<B: PortableBackend> PatchEmbed<B> {
    pub(crate) fn load<E>(v: &mut Values<'_, B, E>, embed_dim: usize) -> Result<Self, E> {
        let name = "backbone.patch_embed.projection";
        Ok(Self {
            weight: v.param(&format!("{name}.weight"), [embed_dim, 3, PATCH, PATCH])?,
            bias: v.param(&format!("{name}.bias"), [embed_dim])?,
        })
    }

    /// `[batch, 3, 16 h, 16 w]` to `[batch, h * w, D]`, in row-major order of the grid.
    pub(crate) fn forward(&self, input: Tensor<B, 4>) -> Tensor<B, 3> {
        let [batch, channels, height, width] = input.dims();
        assert!(height % PATCH == 0 && width % PATCH == 0, "{height} x {width} is no multiple of {PATCH}");
        let (h, w, patch) = (height / PATCH, width / PATCH, channels * PATCH * PATCH);
        let patches = input
            .reshape([batch, channels, h, PATCH, w, PATCH])
            .permute([0, 2, 4, 1, 3, 5])
            .reshape([batch, h * w, patch]);
        let [embed_dim] = self.bias.dims();
        B::affine(patches, self.weight.val().reshape([embed_dim, patch]), self.bias.val())
    }
}

/// LayerNorm over the channels.
#[derive(Module, Debug)]
pub(crate) struct LayerNorm<B: Backend> {
    weight: Param<Tensor<B, 1>>,
    bias: Param<Tensor<B, 1>>,
}

impl<B: PortableBackend> LayerNorm<B> {
    pub(crate) fn load<E>(v: &mut Values<'_, B, E>, name: &str, channels: usize) -> Result<Self, E> {
        Ok(Self {
            weight: v.param(&format!("{name}.weight"), [channels])?,
            bias: v.param(&format!("{name}.bias"), [channels])?,
        })
    }

    /// `[batch, n, channels]`, normalised over the channels.
    pub(crate) fn forward(&self, x: Tensor<B, 3>) -> Tensor<B, 3> {
        ops::layer_norm(x, self.weight.val(), self.bias.val(), NORM_EPSILON)
    }
}

/// RMSNorm over the last dimension.
#[derive(Module, Debug)]
pub(crate) struct RmsNorm<B: Backend> {
    weight: Param<Tensor<B, 1>>,
}

impl<B: PortableBackend> RmsNorm<B> {
    pub(crate) fn load<E>(v: &mut Values<'_, B, E>, name: &str, channels: usize) -> Result<Self, E> {
        Ok(Self { weight: v.param(&format!("{name}.weight"), [channels])? })
    }

    /// Any shape that ends in `channels`, normalised over them.
    pub(crate) fn forward<const D: usize>(&self, x: Tensor<B, D>) -> Tensor<B, D> {
        B::rms_norm(x, self.weight.val(), NORM_EPSILON)
    }
}
