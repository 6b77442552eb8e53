//! The position embedding at another grid than it was trained for: bicubic, in float32, once per input size.

use burn::tensor::{Tensor, TensorData};

use crate::backend::PortableBackend;

/// The cubic kernel's free parameter.
const A: f32 = -0.75;

/// The four source indices of each of `output` positions among `input` and their weights: half-pixel centres, no
/// antialiasing, indices clamped to the edge.
fn taps(input: usize, output: usize) -> Vec<[(usize, f32); 4]> {
    let near = |d: f32| ((A + 2.0) * d - (A + 3.0)) * d * d + 1.0;
    let far = |d: f32| ((A * d - 5.0 * A) * d + 8.0 * A) * d - 4.0 * A;
    let scale = input as f32 / output as f32;
    (0..output)
        .map(|o| {
            let centre = scale * (o as f32 + 0.5) - 0.5;
            let floor = centre.floor();
            let t = centre - floor;
            let weights = [far(t + 1.0), near(t), near(1.0 - t), far(2.0 - t)];
            std::array::from_fn(|i| {
                let index = (floor as isize + i as isize - 1).clamp(0, input as isize - 1);
                (index as usize, weights[i])
            })
        })
        .collect()
}

/// `table`, `[1, from rows * from columns, D]`, at the grid `to`.
pub(crate) fn resized<B: PortableBackend>(
    table: Tensor<B, 3>,
    from: [usize; 2],
    to: [usize; 2],
) -> Tensor<B, 3> {
    let device = table.device();
    let d = table.dims()[2];
    let source: Vec<f32> = table.into_data().iter::<f32>().collect();
    let (rows, columns) = (taps(from[0], to[0]), taps(from[1], to[1]));
    let mut result = Vec::with_capacity(to[0] * to[1] * d);
    for row in &rows {
        for column in &columns {
            let start = result.len();
            result.resize(start + d, 0.0);
            let token = &mut result[start..];
            for &(y, wy) in row {
                for &(x, wx) in column {
                    let source = &source[(y * from[1] + x) * d..][..d];
                    token.iter_mut().zip(source).for_each(|(t, s)| *t += wy * wx * s);
                }
            }
        }
    }
    Tensor::from_data(TensorData::new(result, [1, to[0] * to[1], d]), &device)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_sum_to_one_and_keep_a_ramp() {
        for (input, output) in [(8, 10), (6, 4), (64, 1), (48, 96), (4, 4)] {
            for (o, taps) in taps(input, output).iter().enumerate() {
                let sum: f32 = taps.iter().map(|&(_, w)| w).sum();
                assert!((sum - 1.0).abs() < 1e-5, "{input} to {output}, {o}: {sum}");
                if input == output {
                    assert_eq!(taps[1], (o, 1.0));
                }
            }
        }
    }
}
