//! Products of tokens and weights, and the residual with a scale.

use super::rows;

/// `x [M, K]` times `weight [N, K]` transposed plus `bias [N]`, giving `[M, N]`; `inputs` is K. Sums in float64.
pub fn linear(x: &[f32], weight: &[f32], bias: Option<&[f32]>, inputs: usize) -> Vec<f32> {
    let tokens = rows(x.len(), inputs, "linear, x");
    let outputs = rows(weight.len(), inputs, "linear, weight");
    if let Some(bias) = bias {
        assert_eq!(bias.len(), outputs, "linear, bias");
    }
    let mut out = Vec::with_capacity(tokens * outputs);
    for x in x.chunks_exact(inputs) {
        for (n, weight) in weight.chunks_exact(inputs).enumerate() {
            let product: f64 = x.iter().zip(weight).map(|(&x, &w)| f64::from(x) * f64::from(w)).sum();
            out.push((product + bias.map_or(0.0, |bias| f64::from(bias[n]))) as f32);
        }
    }
    out
}

/// `x += scale * branch`, `x` and `branch` `[rows, D]`, `scale [D]` (LayerScale); a plain residual without a scale.
pub fn scale_residual(x: &mut [f32], branch: &[f32], scale: Option<&[f32]>) {
    assert_eq!(x.len(), branch.len(), "scale_residual");
    if let Some(scale) = scale {
        rows(x.len(), scale.len(), "scale_residual, scale");
    }
    for (i, (x, &branch)) in x.iter_mut().zip(branch).enumerate() {
        let scale = scale.map_or(1.0, |scale| scale[i % scale.len()]);
        *x = (f64::from(*x) + f64::from(scale) * f64::from(branch)) as f32;
    }
}
