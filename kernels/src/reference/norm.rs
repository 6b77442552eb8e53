//! Normalisations, with their statistics in float64 and biased variances.

use super::rows;

/// LayerNorm of each row of `x [rows, D]` with `weight [D]` and `bias [D]`.
pub fn layer_norm(x: &[f32], weight: &[f32], bias: &[f32], eps: f64) -> Vec<f32> {
    assert_eq!(weight.len(), bias.len(), "layer_norm");
    rows(x.len(), weight.len(), "layer_norm");
    let normalise = |row: &[f32]| {
        let (mean, deviation) = moments(row, eps);
        let scaled = |i: usize, value: f32| (f64::from(value) - mean) / deviation * f64::from(weight[i]);
        row.iter()
            .enumerate()
            .map(|(i, &value)| (scaled(i, value) + f64::from(bias[i])) as f32)
            .collect::<Vec<_>>()
    };
    x.chunks_exact(weight.len()).flat_map(normalise).collect()
}

/// RMSNorm of each row of `x [rows, D]` with `weight [D]`: `x / sqrt(mean(x^2) + eps) * weight`.
pub fn rms_norm(x: &[f32], weight: &[f32], eps: f64) -> Vec<f32> {
    rows(x.len(), weight.len(), "rms_norm");
    let normalise = |row: &[f32]| {
        let squares: f64 = row.iter().map(|&value| f64::from(value).powi(2)).sum();
        let root = (squares / row.len() as f64 + eps).sqrt();
        row.iter()
            .zip(weight)
            .map(|(&value, &weight)| (f64::from(value) / root * f64::from(weight)) as f32)
            .collect::<Vec<_>>()
    };
    x.chunks_exact(weight.len()).flat_map(normalise).collect()
}

/// InstanceNorm of each plane of `x [C, plane]`, without weights.
pub fn instance_norm(x: &mut [f32], plane: usize, eps: f64) {
    rows(x.len(), plane, "instance_norm");
    for plane in x.chunks_exact_mut(plane) {
        let (mean, deviation) = moments(plane, eps);
        for value in plane {
            *value = ((f64::from(*value) - mean) / deviation) as f32;
        }
    }
}

/// Mean, and the root of the biased variance plus `eps`.
fn moments(values: &[f32], eps: f64) -> (f64, f64) {
    let count = values.len() as f64;
    let mean = values.iter().map(|&value| f64::from(value)).sum::<f64>() / count;
    let variance = values.iter().map(|&value| (f64::from(value) - mean).powi(2)).sum::<f64>() / count;
    (mean, (variance + eps).sqrt())
}
