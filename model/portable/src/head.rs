//! The segmentation head of both families: ConvTransposes that double the size, 1x1 convolutions, classes.
//!
//! Maps are channels-last, `[batch, rows, columns, channels]`, as the backbone's tokens are.

use burn::module::{Module, Param};
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

use crate::backend::PortableBackend;
use crate::dims::Dims;
use crate::layers::Conv1x1;
use crate::model::Observer;
use crate::step::Step;
use crate::values::Values;

/// Epsilon of the head's InstanceNorms.
const EPSILON: f64 = 1e-5;

/// Convolution, InstanceNorm and SiLU come in threes in the authors' lists.
const STRIDE_IN_LIST: usize = 3;

/// `decode_head`.
#[derive(Module, Debug)]
pub(crate) struct Head<B: Backend> {
    deconv_layers: Vec<ConvTranspose<B>>,
    conv_layers: Vec<Conv1x1<B>>,
    conv_seg: Conv1x1<B>,
}

/// ConvTranspose2d of kernel 4, stride 2, padding 1, without bias.
#[derive(Module, Debug)]
struct ConvTranspose<B: Backend> {
    /// `[in, out, 4, 4]`.
    weight: Param<Tensor<B, 4>>,
}

impl<B: PortableBackend> Head<B> {
    pub(crate) fn load<E>(dims: &Dims, v: &mut Values<'_, B, E>) -> Result<Self, E> {
        let mut channels = dims.embed_dim;
        let mut deconv_layers = Vec::new();
        for (i, &output) in dims.deconv_channels.iter().enumerate() {
            let name = format!("decode_head.deconv_layers.{}.weight", STRIDE_IN_LIST * i);
            deconv_layers.push(ConvTranspose { weight: v.param(&name, [channels, output, 4, 4])? });
            channels = output;
        }
        let mut conv_layers = Vec::new();
        for (i, &output) in dims.conv_channels.iter().enumerate() {
            let name = format!("decode_head.conv_layers.{}", STRIDE_IN_LIST * i);
            conv_layers.push(Conv1x1::load(v, &name, channels, output)?);
            channels = output;
        }
        let conv_seg = Conv1x1::load(v, "decode_head.conv_seg", channels, dims.classes)?;
        Ok(Self { deconv_layers, conv_layers, conv_seg })
    }

    /// Features `[batch, h, w, D]` to logits `[batch, rows, columns, classes]`.
    pub(crate) fn forward(&self, features: Tensor<B, 4>, observer: &mut Observer<'_, B>) -> Tensor<B, 4> {
        let mut x = features;
        for (i, deconv) in self.deconv_layers.iter().enumerate() {
            x = B::conv_transpose(x, deconv.weight.val());
            observer.map(Step::Deconv(i), &x);
            x = B::instance_norm_silu(x, EPSILON);
            observer.map(Step::DeconvNorm(i), &x);
        }
        for (i, conv) in self.conv_layers.iter().enumerate() {
            x = B::instance_norm_silu(conv.forward(x), EPSILON);
            observer.map(Step::Conv(i), &x);
        }
        let logits = self.conv_seg.forward(x);
        observer.map(Step::Logits, &logits);
        logits
    }
}
