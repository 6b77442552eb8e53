//! From a checkpoint's tensors to weights on the device: converted, padded with zeros to what the kernels read at once, one tensor
//! after the other.

use half::slice::{HalfBitsSliceExt, HalfFloatSliceExt};
use half::{bf16, f16};
use sapiens_kernels::cuda::product::deconv_weights;
use sapiens_kernels::cuda::{Buffer, Plain, Precision, Stream};

use super::network::{CHUNK, Linear, Norm, head_stride};
use crate::engine::sizes::Sizes;
use crate::engine::trained_grid;
use crate::error::Result;
use crate::weights::Weights;

pub(super) struct Loader<'a> {
    weights: &'a Weights,
    stream: &'a Stream,
    precision: Precision,
}

impl<'a> Loader<'a> {
    pub fn new(weights: &'a Weights, stream: &'a Stream, precision: Precision) -> Self {
        Self { weights, stream, precision }
    }

    /// All values of a tensor.
    pub fn values(&self, name: &str) -> Result<Vec<f32>> {
        self.weights.tensor_f32(name)
    }

    /// Values to the device.
    pub fn upload<T: Plain>(&self, values: &[T]) -> Result<Buffer<T>> {
        let mut buffer = Buffer::new(self.stream.gpu(), values.len())?;
        self.stream.upload(values, buffer.slice_mut(..))?;
        Ok(buffer)
    }

    /// The position embedding and its rows and columns.
    pub fn pos_embed(&self) -> Result<(Vec<f32>, (usize, usize))> {
        Ok((self.values("backbone.pos_embed")?, trained_grid(self.weights)?))
    }

    pub fn layer_norm(&self, name: &str) -> Result<Norm> {
        let bias = Some(self.upload(&self.values(&format!("{name}.bias"))?)?);
        Ok(Norm { bias, ..self.rms_norm(name)? })
    }

    pub fn rms_norm(&self, name: &str) -> Result<Norm> {
        Ok(Norm { weight: self.upload(&self.values(&format!("{name}.weight"))?)?, bias: None })
    }

    /// Values as they are stored, on the device.
    fn stored(&self, values: &[f32]) -> Result<Buffer<u16>> {
        let mut bits = vec![0u16; values.len()];
        match self.precision {
            Precision::F16 | Precision::F16Promoted => {
                bits.reinterpret_cast_mut::<f16>().convert_from_f32_slice(values);
            }
            Precision::Bf16 => bits.reinterpret_cast_mut::<bf16>().convert_from_f32_slice(values),
        }
        self.upload(&bits)
    }

    fn finished(&self, weights: &[f32], bias: Option<&[f32]>, columns: usize) -> Result<Linear> {
        let bias = bias.map(|bias| self.upload(bias)).transpose()?;
        Ok(Linear { weights: self.stored(weights)?, bias, columns })
    }

    /// A linear layer of rows of `depth`. The patch embedding is stored the same way.
    pub fn linear(&self, name: &str, depth: usize) -> Result<Linear> {
        let weights = self.values(&format!("{name}.weight"))?;
        let bias = self.values(&format!("{name}.bias"))?;
        debug_assert_eq!(weights.len(), bias.len() * depth, "{name}");
        self.finished(&weights, Some(&bias), bias.len())
    }

    /// One or several layers to heads as one, each head's rows followed by zeros up to the stride of heads.
    pub fn heads(&self, names: &[&str], sizes: &Sizes) -> Result<Linear> {
        let (mut weights, mut biases) = (Vec::new(), Vec::new());
        let (depth, head_dim, stride) = (sizes.embed_dim, sizes.head_dim(), head_stride(sizes));
        for name in names {
            weights.extend(padded(
                &self.values(&format!("{name}.weight"))?,
                head_dim * depth,
                stride * depth,
            ));
            biases.extend(padded(&self.values(&format!("{name}.bias"))?, head_dim, stride));
        }
        self.finished(&weights, Some(&biases), biases.len())
    }

    /// The layer from heads, with zeros for what is between them.
    pub fn projection(&self, name: &str, sizes: &Sizes) -> Result<Linear> {
        let weights = self.values(&format!("{name}.weight"))?;
        let bias = self.values(&format!("{name}.bias"))?;
        let weights = padded(&weights, sizes.head_dim(), head_stride(sizes));
        self.finished(&weights, Some(&bias), bias.len())
    }

    /// A SwiGLU's first layer: rows of both halves in turn.
    pub fn gated(&self, name: &str, hidden: usize, depth: usize) -> Result<Linear> {
        let weights = self.values(&format!("{name}.weight"))?;
        let bias = self.values(&format!("{name}.bias"))?;
        self.finished(&in_turn(&weights, hidden * depth, depth), Some(&in_turn(&bias, hidden, 1)), 2 * hidden)
    }

    /// A 1x1 convolution before an InstanceNorm, to which a bias changes nothing.
    pub fn conv(&self, name: &str, inputs: usize, outputs: usize) -> Result<Linear> {
        let weights =
            padded(&self.values(&format!("{name}.weight"))?, inputs, inputs.next_multiple_of(CHUNK));
        let columns = outputs.next_multiple_of(CHUNK);
        let weights = padded(&weights, weights.len(), weights.len() / outputs * columns);
        self.finished(&weights, None, columns)
    }

    /// The last 1x1 convolution.
    pub fn classifier(&self, name: &str, inputs: usize, classes: usize) -> Result<Linear> {
        let weights =
            padded(&self.values(&format!("{name}.weight"))?, inputs, inputs.next_multiple_of(CHUNK));
        let columns = classes.next_multiple_of(4);
        let weights = padded(&weights, weights.len(), weights.len() / classes * columns);
        let bias = padded(&self.values(&format!("{name}.bias"))?, classes, columns);
        self.finished(&weights, Some(&bias), columns)
    }

    /// A ConvTranspose, `[inputs, outputs, 4, 4]`.
    pub fn conv_transpose(&self, name: &str, inputs: usize, outputs: usize) -> Result<Linear> {
        let [channels, columns] = [inputs, outputs].map(|count| count.next_multiple_of(CHUNK));
        let weights = padded(&self.values(name)?, outputs * 16, columns * 16);
        let weights = padded(&weights, weights.len(), channels * columns * 16);
        self.finished(&deconv_weights(&weights, channels, columns), None, columns)
    }
}

/// Groups of `len` values followed by zeros up to `stride`.
fn padded(values: &[f32], len: usize, stride: usize) -> Vec<f32> {
    if len == stride {
        return values.to_vec();
    }
    let mut out = Vec::with_capacity(values.len() / len * stride);
    for group in values.chunks_exact(len) {
        out.extend_from_slice(group);
        out.resize(out.len() + stride - len, 0.0);
    }
    out
}

/// Rows of `len` of the first `half` values and of those behind it, in turn.
fn in_turn(values: &[f32], half: usize, len: usize) -> Vec<f32> {
    let (first, second) = values.split_at(half);
    first.chunks_exact(len).zip(second.chunks_exact(len)).flat_map(|(a, b)| [a, b].concat()).collect()
}
