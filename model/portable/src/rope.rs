//! The rotary embedding, in bfloat16 with every step rounded, as the authors' code computes it even in float32.

use burn::tensor::{Tensor, TensorData};
use half::bf16;

use crate::backend::PortableBackend;

/// Base of the periods.
const BASE: f32 = 100.0;

/// Cosines and sines of every patch's angles at one input size.
#[derive(Debug, Clone)]
pub(crate) struct Rope<B: PortableBackend> {
    /// `[N, head_dim]`, values of bfloat16.
    pub(crate) cos: Tensor<B, 2>,
    /// As `cos`.
    pub(crate) sin: Tensor<B, 2>,
}

/// Rounds to the nearest bfloat16, ties to even.
fn round(x: f32) -> f32 {
    bf16::from_f32(x).to_f32()
}

/// `backbone.rope_embed.periods`: `head_dim / 4` of them, for the rows' coordinates and the columns' alike.
fn periods(head_dim: usize) -> Vec<f32> {
    let half = head_dim as f32 / 2.0;
    (0..head_dim / 4).map(|j| round(BASE.powf(round(2.0 * j as f32 / half)))).collect()
}

/// Centre of `index` among `count`, from -1 to 1.
fn coordinate(index: usize, count: usize) -> f32 {
    let unit = round(round(index as f32 + 0.5) / count as f32);
    round(round(unit * 2.0) - 1.0)
}

/// Cosines and sines, each `[rows * columns, head_dim]`.
fn tables([rows, columns]: [usize; 2], head_dim: usize) -> (Vec<f32>, Vec<f32>) {
    let periods = periods(head_dim);
    let angles = |index, count| {
        let turn = round(std::f32::consts::TAU * coordinate(index, count));
        periods.iter().map(move |period| round(turn / period))
    };
    let mut all = Vec::with_capacity(rows * columns * head_dim);
    for row in 0..rows {
        for column in 0..columns {
            // The rows' angles, the columns' angles, and both again for the other half of the head.
            for _ in 0..2 {
                all.extend(angles(row, rows).chain(angles(column, columns)));
            }
        }
    }
    all.iter().map(|angle: &f32| (round(angle.cos()), round(angle.sin()))).unzip()
}

impl<B: PortableBackend> Rope<B> {
    pub(crate) fn new(grid: [usize; 2], head_dim: usize, device: &B::Device) -> Self {
        let (cos, sin) = tables(grid, head_dim);
        let tensor =
            |values| Tensor::from_data(TensorData::new(values, [grid[0] * grid[1], head_dim]), device);
        Self { cos: tensor(cos), sin: tensor(sin) }
    }

    /// Queries or keys `[batch, tokens, heads, head_dim]`: the patches, which come last, are rotated; the tokens
    /// before them are only rounded.
    pub(crate) fn apply(&self, x: Tensor<B, 4>) -> Tensor<B, 4> {
        B::rotary_bf16(x, self.cos.clone(), self.sin.clone())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use safetensors::SafeTensors;

    use super::*;

    #[test]
    fn tables_are_the_references_to_the_bit() {
        for (file, grid) in [("", [8, 6]), ("-160x64", [10, 4])] {
            let file = format!("../../tests/data/tiny-sapiens2.activations{file}.safetensors");
            let bytes = std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap();
            let tensors = SafeTensors::deserialize(&bytes).unwrap();
            let (cos, sin) = tables(grid, 16);
            for (name, table) in [("rope.cos", cos), ("rope.sin", sin)] {
                let table: Vec<u8> = table.iter().flat_map(|x| x.to_le_bytes()).collect();
                assert!(tensors.tensor(name).unwrap().data() == table, "{name} of {grid:?}");
            }
        }
    }
}
