//! The rotary position embedding of a token grid, in bfloat16 with every step rounded.
//!
//! The rounding belongs to the definition: networks were trained with it, and leaving it out moves the outcome. Values
//! are float32 that bfloat16 can hold.

use half::bf16;

fn round(x: f32) -> f32 {
    bf16::from_f32(x).to_f32()
}

/// The periods of the angles, `[head_dim / 4]`: `100^(2j / (head_dim / 2))`, the exponent rounded too.
pub fn rope_periods(head_dim: usize) -> Vec<f32> {
    assert!(head_dim > 0 && head_dim.is_multiple_of(4), "rope: head dim {head_dim} is no multiple of 4");
    let half = (head_dim / 2) as f32;
    (0..head_dim / 4).map(|j| round(100.0f32.powf(round(2.0 * j as f32 / half)))).collect()
}

/// Sines and cosines of a grid of tokens, each `[h * w, head_dim]`.
#[derive(Clone, Debug, PartialEq)]
pub struct RopeTables {
    /// Length of one head's vectors.
    pub head_dim: usize,
    /// Sine of every token's angles.
    pub sin: Vec<f32>,
    /// Cosine of every token's angles.
    pub cos: Vec<f32>,
}

impl RopeTables {
    /// Of `h` rows of `w` tokens. A token's angles are its row's over all `periods` (`[head_dim / 4]`), then its
    /// column's, and that list once more. Coordinates go from -1 to 1 over each side, an angle is
    /// `2 pi * coordinate / period`.
    pub fn new(h: usize, w: usize, periods: &[f32]) -> Self {
        let coordinate = |i: usize, n: usize| {
            let centre = round(round(i as f32 + 0.5) / n as f32);
            round(centre * 2.0 - 1.0)
        };
        let angles = |coordinate: f32| {
            let turn = round(std::f32::consts::TAU * coordinate);
            periods.iter().map(move |period| round(turn / period))
        };
        let head_dim = periods.len() * 4;
        let mut all = Vec::with_capacity(h * w * head_dim);
        for row in 0..h {
            for column in 0..w {
                for _ in 0..2 {
                    all.extend(angles(coordinate(row, h)));
                    all.extend(angles(coordinate(column, w)));
                }
            }
        }
        Self {
            head_dim,
            sin: all.iter().map(|angle| round(angle.sin())).collect(),
            cos: all.iter().map(|angle| round(angle.cos())).collect(),
        }
    }
}

/// Rotates queries or keys `x [prefix + h * w, heads, head_dim]` in place: `x * cos + rot(x) * sin` with
/// `rot([a | b]) = [-b | a]` on the halves of each head's vector. The `prefix` tokens are rounded but not rotated.
pub fn rope(x: &mut [f32], heads: usize, prefix: usize, tables: &RopeTables) {
    let head_dim = tables.head_dim;
    let tokens = super::rows(x.len(), heads * head_dim, "rope");
    assert_eq!(tokens, prefix + tables.sin.len() / head_dim, "rope, tokens");
    x.iter_mut().for_each(|x| *x = round(*x));
    for (patch, token) in x.chunks_exact_mut(heads * head_dim).skip(prefix).enumerate() {
        let sin = &tables.sin[patch * head_dim..][..head_dim];
        let cos = &tables.cos[patch * head_dim..][..head_dim];
        for head in token.chunks_exact_mut(head_dim) {
            let half = head_dim / 2;
            let before = head.to_vec();
            for (i, value) in head.iter_mut().enumerate() {
                let turned = if i < half { -before[i + half] } else { before[i - half] };
                *value = round(round(before[i] * cos[i]) + round(turned * sin[i]));
            }
        }
    }
}
