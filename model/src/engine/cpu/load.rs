//! From a checkpoint's tensors to packed weights, on all threads: each reads the rows that it packs, so no float32 copy of
//! a large tensor is ever whole in memory, but for one ConvTranspose's at a time.

use std::sync::{Mutex, PoisonError};

use sapiens_kernels::cpu::product::ConvTranspose;
use sapiens_kernels::cpu::product::Weights as Packed;
use sapiens_kernels::cpu::{Element, Level, Threads};

use super::network::{Linear, Norm};
use crate::engine::trained_grid;
use crate::error::{Result, SegmentError};
use crate::weights::Weights;

pub(super) struct Loader<'a> {
    weights: &'a Weights,
    level: Level,
    threads: &'a mut Threads,
}

/// The first error of several threads.
#[derive(Default)]
struct FirstError(Mutex<Option<SegmentError>>);

impl FirstError {
    fn note(&self, result: Result<()>) {
        if let Err(error) = result {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        }
    }

    fn or<T>(self, value: T) -> Result<T> {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(value), Err)
    }
}

impl<'a> Loader<'a> {
    pub fn new(weights: &'a Weights, level: Level, threads: &'a mut Threads) -> Self {
        Self { weights, level, threads }
    }

    /// All values of a small tensor.
    pub fn values(&self, name: &str) -> Result<Vec<f32>> {
        self.weights.tensor_f32(name)
    }

    /// The position embedding and its rows and columns.
    pub fn pos_embed(&self) -> Result<(Vec<f32>, (usize, usize))> {
        Ok((self.values("backbone.pos_embed")?, trained_grid(self.weights)?))
    }

    pub fn layer_norm(&self, name: &str) -> Result<Norm> {
        Ok(Norm::Layer {
            weight: self.values(&format!("{name}.weight"))?,
            bias: self.values(&format!("{name}.bias"))?,
        })
    }

    pub fn rms_norm(&self, name: &str) -> Result<Norm> {
        Ok(Norm::Rms { weight: self.values(&format!("{name}.weight"))? })
    }

    /// A linear layer of rows of `k`, or several of the same input as one. A 1x1 convolution and the patch embedding are
    /// stored the same way.
    pub fn linear<E: Element>(&mut self, names: &[&str], k: usize) -> Result<Linear<E>> {
        let mut bias = Vec::new();
        // Of every part its weight's name and the row after its last.
        let mut parts = Vec::new();
        for name in names {
            bias.extend(self.values(&format!("{name}.bias"))?);
            parts.push((format!("{name}.weight"), bias.len()));
        }
        let (errors, source) = (FirstError::default(), self.weights);
        let packed = Packed::pack(self.level, self.threads, bias.len(), k, |row, to| {
            let part = parts.partition_point(|&(_, end)| end <= row);
            let first = part.checked_sub(1).map_or(0, |before| parts[before].1);
            errors.note(source.read_f32_from(&parts[part].0, (row - first) * k, to));
        });
        errors.or(Linear { weights: packed, bias })
    }

    /// A SwiGLU's first layer.
    pub fn gated<E: Element>(&mut self, name: &str, hidden: usize, k: usize) -> Result<Linear<E>> {
        let bias = self.values(&format!("{name}.bias"))?;
        let weight = format!("{name}.weight");
        let (errors, source) = (FirstError::default(), self.weights);
        let packed = Packed::pack_gated(self.level, self.threads, hidden, k, |row, to| {
            errors.note(source.read_f32_from(&weight, row * k, to));
        });
        errors.or(Linear { weights: packed, bias })
    }

    pub fn conv_transpose<E: Element>(
        &mut self,
        name: &str,
        inputs: usize,
        outputs: usize,
    ) -> Result<ConvTranspose<E>> {
        let (errors, source) = (FirstError::default(), self.weights);
        let packed = ConvTranspose::pack(self.level, self.threads, inputs, outputs, |input, to| {
            errors.note(source.read_f32_from(name, input * to.len(), to));
        });
        errors.or(packed)
    }
}
