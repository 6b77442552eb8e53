//! A trained position embedding stretched to another grid.

/// Bicubic interpolation of `tokens [from.0 * from.1, D]`, a grid of rows and columns, to `[to.0 * to.1, D]`: a = -0.75,
/// half-pixel centres, no antialiasing, edges clamped. Positions and weights in float32 as PyTorch's
/// `upsample_bicubic2d` has them, first along x, then along y.
pub fn position_embedding(tokens: &[f32], from: (usize, usize), to: (usize, usize)) -> Vec<f32> {
    let dim = tokens.len() / (from.0 * from.1);
    assert_eq!(tokens.len(), from.0 * from.1 * dim, "position_embedding of {from:?}");
    if from == to {
        return tokens.to_vec();
    }
    let mut out = Vec::with_capacity(to.0 * to.1 * dim);
    for y in 0..to.0 {
        let (rows, row_weights) = taps(y, from.0, to.0);
        for x in 0..to.1 {
            let (columns, column_weights) = taps(x, from.1, to.1);
            for d in 0..dim {
                let along_x = |row: usize| {
                    let value = |column: usize| tokens[(row * from.1 + column) * dim + d];
                    weighted(columns.map(value), column_weights)
                };
                out.push(weighted(rows.map(along_x), row_weights));
            }
        }
    }
    out
}

fn weighted(values: [f32; 4], weights: [f32; 4]) -> f32 {
    values.iter().zip(weights).map(|(value, weight)| value * weight).sum()
}

/// The four source indices of position `i` of `o`, clamped to `n`, and their weights.
fn taps(i: usize, n: usize, o: usize) -> ([usize; 4], [f32; 4]) {
    const A: f32 = -0.75;
    let position = n as f32 / o as f32 * (i as f32 + 0.5) - 0.5;
    let second = position.floor();
    let t = position - second;
    let near = |x: f32| ((A + 2.0) * x - (A + 3.0)) * x * x + 1.0;
    let far = |x: f32| ((A * x - 5.0 * A) * x + 8.0 * A) * x - 4.0 * A;
    let indices = [-1, 0, 1, 2].map(|k| (second as isize + k).clamp(0, n as isize - 1) as usize);
    (indices, [far(t + 1.0), near(t), near(1.0 - t), far(2.0 - t)])
}
