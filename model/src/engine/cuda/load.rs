//! From a checkpoint's tensors to weights on the device: bytes go up as the checkpoint has them, or generated weights are made there, one
//! tensor after the other; they are converted and laid out there, padded with zeros to what the kernels read at once. [`layout`] says how.

mod layout;
#[cfg(test)]
mod tests;

use sapiens_kernels::cuda::generate::{Generate, Uniform};
use sapiens_kernels::cuda::pack::{Format, Gather, Pack, Packed, Source};
use sapiens_kernels::cuda::{Buffer, Plain, Precision, SliceMut, Stream};

use self::layout::{heads, in_turn, padded, phases, whole};
use super::network::{CHUNK, Linear, Norm, head_stride};
use crate::engine::sizes::Sizes;
use crate::engine::trained_grid;
use crate::error::Result;
use crate::weights::{Generated, Origin, RawValues, Weights};

pub(super) struct Loader<'a> {
    weights: &'a Weights,
    stream: &'a Stream,
    generate: Generate,
    pack: Pack,
    /// A tensor as the checkpoint has it, one after the other: as long as the longest so far.
    staging: Buffer<u8>,
}

impl<'a> Loader<'a> {
    pub fn new(weights: &'a Weights, stream: &'a Stream, precision: Precision) -> Result<Self> {
        let gpu = stream.gpu();
        let (generate, pack) = (Generate::new(gpu)?, Pack::new(gpu, precision)?);
        Ok(Self { weights, stream, generate, pack, staging: Buffer::new(gpu, 0)? })
    }

    /// Waits until all weights are made, so that any stream may read them.
    pub fn finish(self) -> Result<()> {
        Ok(self.stream.synchronize()?)
    }

    /// The position embedding, which the host stretches to each grid, and its rows and columns.
    pub fn pos_embed(&self) -> Result<(Vec<f32>, (usize, usize))> {
        Ok((self.weights.tensor_f32("backbone.pos_embed")?, trained_grid(self.weights)?))
    }

    /// Tensors in float32, one behind the other.
    pub fn vector(&mut self, names: &[&str]) -> Result<Buffer<f32>> {
        let part = |&name: &&str| (name.to_owned(), vec![whole(self.len(name))]);
        let parts: Vec<_> = names.iter().map(part).collect();
        self.packed(&parts)
    }

    pub fn layer_norm(&mut self, name: &str) -> Result<Norm> {
        let bias = Some(self.vector(&[&format!("{name}.bias")])?);
        Ok(Norm { bias, ..self.rms_norm(name)? })
    }

    pub fn rms_norm(&mut self, name: &str) -> Result<Norm> {
        Ok(Norm { weight: self.vector(&[&format!("{name}.weight")])?, bias: None })
    }

    /// A linear layer of rows of `depth`. The patch embedding is stored the same way.
    pub fn linear(&mut self, name: &str, depth: usize) -> Result<Linear> {
        self.biased(&[name], |outputs| [whole(outputs * depth), whole(outputs)])
    }

    /// One or several layers to heads as one, each head's rows followed by zeros up to the stride of heads.
    pub fn heads(&mut self, names: &[&str], sizes: &Sizes) -> Result<Linear> {
        let rows = [sizes.head_dim(), head_stride(sizes)];
        self.biased(names, |outputs| [sizes.embed_dim, 1].map(|depth| heads(outputs / rows[0], rows, depth)))
    }

    /// The layer from heads, with zeros for what is between them.
    pub fn projection(&mut self, name: &str, sizes: &Sizes) -> Result<Linear> {
        let columns = [sizes.head_dim(), head_stride(sizes)];
        self.biased(&[name], |outputs| [padded([outputs * sizes.heads; 2], columns), whole(outputs)])
    }

    /// A SwiGLU's first layer: rows of both halves in turn.
    pub fn gated(&mut self, name: &str, hidden: usize, depth: usize) -> Result<Linear> {
        self.biased(&[name], |_| [depth, 1].map(|depth| in_turn(hidden, depth)))
    }

    /// A 1x1 convolution before an InstanceNorm, to which a bias changes nothing.
    pub fn conv(&mut self, name: &str, inputs: usize, outputs: usize) -> Result<Linear> {
        let [depth, columns] = [inputs, outputs].map(|count| count.next_multiple_of(CHUNK));
        let layout = padded([outputs, columns], [inputs, depth]);
        let weights = self.packed(&[(format!("{name}.weight"), vec![layout])])?;
        Ok(Linear { weights, bias: None, columns })
    }

    /// The last 1x1 convolution.
    pub fn classifier(&mut self, name: &str, inputs: usize, classes: usize) -> Result<Linear> {
        let rows = [classes, classes.next_multiple_of(4)];
        let depths = [[inputs, inputs.next_multiple_of(CHUNK)], [1, 1]];
        self.biased(&[name], |_| depths.map(|depth| padded(rows, depth)))
    }

    /// A ConvTranspose, `[inputs, outputs, 4, 4]`.
    pub fn conv_transpose(&mut self, name: &str, inputs: usize, outputs: usize) -> Result<Linear> {
        let [channels, columns] = [inputs, outputs].map(|count| count.next_multiple_of(CHUNK));
        let layouts = phases([inputs, channels], [outputs, columns]);
        let weights = self.packed(&[(name.to_owned(), layouts.to_vec())])?;
        Ok(Linear { weights, bias: None, columns })
    }

    /// Layers as one, of each of which `layouts` says for its number of outputs how weights and biases lie.
    fn biased(&mut self, names: &[&str], layouts: impl Fn(usize) -> [Gather; 2]) -> Result<Linear> {
        let (mut weights, mut biases, mut columns) = (Vec::new(), Vec::new(), 0);
        for name in names {
            let bias_name = format!("{name}.bias");
            let [weight, bias] = layouts(self.len(&bias_name));
            columns += bias.count();
            weights.push((format!("{name}.weight"), vec![weight]));
            biases.push((bias_name, vec![bias]));
        }
        let bias = Some(self.packed(&biases)?);
        Ok(Linear { weights: self.packed(&weights)?, bias, columns })
    }

    /// Values of a tensor; of one that isn't there none, which reading it will say.
    fn len(&self, name: &str) -> usize {
        self.weights.shape(name).map_or(0, |shape| shape.iter().product())
    }

    /// Tensors, each laid out in one or several ways, one behind the other.
    fn packed<T: Plain>(&mut self, tensors: &[(String, Vec<Gather>)]) -> Result<Buffer<T>>
    where
        for<'b> Packed<'b>: From<SliceMut<'b, T>>,
    {
        let counts = tensors.iter().flat_map(|(_, layouts)| layouts).map(Gather::count);
        let mut buffer = Buffer::new(self.stream.gpu(), counts.sum())?;
        let mut start = 0;
        for (name, layouts) in tensors {
            let (format, len) = self.stage(name)?;
            let source = Source { format, bytes: self.staging.slice(..len) };
            for layout in layouts {
                let end = start + layout.count();
                let out = buffer.slice_mut(start..end).into();
                self.pack.run(self.stream, source, layout, out)?;
                start = end;
            }
        }
        Ok(buffer)
    }

    /// Brings a tensor up as it is, or makes it, behind what is still made of the last one; says what its bytes are and how many.
    fn stage(&mut self, name: &str) -> Result<(Format, usize)> {
        let raw = match self.weights.origin(name)? {
            Origin::Stored(raw) => raw,
            Origin::Generated { values: Generated { base, scale, offset }, count } => {
                let len = count * Format::F32.bytes();
                self.make_room(len)?;
                let values = Uniform { base, first: 0, scale, offset };
                self.generate.run(self.stream, values, self.staging.slice_mut(..len))?;
                return Ok((Format::F32, len));
            }
        };
        let (format, bytes) = match &raw {
            RawValues::F32(bytes) => (Format::F32, &**bytes),
            RawValues::F16(bytes) => (Format::F16, *bytes),
            RawValues::Bf16(bytes) => (Format::Bf16, *bytes),
        };
        self.make_room(bytes.len())?;
        self.stream.upload(bytes, self.staging.slice_mut(..bytes.len()))?;
        Ok((format, bytes.len()))
    }

    /// For a tensor of so many bytes.
    fn make_room(&mut self, bytes: usize) -> Result<()> {
        if self.staging.len() < bytes {
            let gpu = self.stream.gpu();
            // The old one goes before the new one comes: both may be large.
            self.staging = Buffer::new(gpu, 0)?;
            self.staging = Buffer::new(gpu, bytes)?;
        }
        Ok(())
    }
}
