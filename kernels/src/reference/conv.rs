//! Convolutions over planar images, with sums in float64.

use super::rows;

/// Conv2d with kernel and stride 16: `image [channels, height, width]`, `weight [D, channels, 16, 16]`, `bias [D]`, giving
/// tokens `[height/16 * width/16, D]` in row-major order of the grid.
pub fn patch_embed(image: &[f32], height: usize, width: usize, weight: &[f32], bias: &[f32]) -> Vec<f32> {
    const P: usize = 16;
    let channels = rows(image.len(), height * width, "patch_embed, image");
    assert!(height.is_multiple_of(P) && width.is_multiple_of(P), "patch_embed: {height} x {width}");
    assert_eq!(weight.len(), bias.len() * channels * P * P, "patch_embed, weight");
    let mut out = Vec::with_capacity(height / P * (width / P) * bias.len());
    for top in (0..height).step_by(P) {
        for left in (0..width).step_by(P) {
            for (weight, &bias) in weight.chunks_exact(channels * P * P).zip(bias) {
                let mut sum = f64::from(bias);
                for (i, &weight) in weight.iter().enumerate() {
                    let (channel, y, x) = (i / (P * P), top + i / P % P, left + i % P);
                    sum += f64::from(weight) * f64::from(image[(channel * height + y) * width + x]);
                }
                out.push(sum as f32);
            }
        }
    }
    out
}

/// ConvTranspose2d with kernel 4, stride 2, padding 1, no bias: `x [channels, h, w]`, `weight [channels, outputs, 4, 4]`,
/// giving `[outputs, 2h, 2w]`. Source pixel `(y, x)` times `weight[..][ky][kx]` lands on `(2y - 1 + ky, 2x - 1 + kx)`.
pub fn conv_transpose_k4s2p1(x: &[f32], h: usize, w: usize, weight: &[f32], outputs: usize) -> Vec<f32> {
    let channels = rows(x.len(), h * w, "conv_transpose, x");
    assert_eq!(weight.len(), channels * outputs * 16, "conv_transpose, weight");
    let (out_h, out_w) = (2 * h, 2 * w);
    let mut sums = vec![0.0f64; outputs * out_h * out_w];
    for channel in 0..channels {
        for output in 0..outputs {
            let kernel = &weight[(channel * outputs + output) * 16..][..16];
            for (i, &value) in x[channel * h * w..][..h * w].iter().enumerate() {
                for (tap, &weight) in kernel.iter().enumerate() {
                    let (y, x) = (2 * (i / w) + tap / 4, 2 * (i % w) + tap % 4);
                    if (1..=out_h).contains(&y) && (1..=out_w).contains(&x) {
                        sums[(output * out_h + y - 1) * out_w + x - 1] +=
                            f64::from(value) * f64::from(weight);
                    }
                }
            }
        }
    }
    sums.into_iter().map(|sum| sum as f32).collect()
}

/// Conv2d with kernel 1: `x [channels, plane]`, `weight [outputs, channels]`, `bias [outputs]`, giving `[outputs, plane]`.
pub fn conv1x1(x: &[f32], plane: usize, weight: &[f32], bias: &[f32]) -> Vec<f32> {
    let channels = rows(x.len(), plane, "conv1x1, x");
    assert_eq!(weight.len(), channels * bias.len(), "conv1x1, weight");
    let mut out = Vec::with_capacity(bias.len() * plane);
    for (weight, &bias) in weight.chunks_exact(channels).zip(bias) {
        for i in 0..plane {
            let product: f64 = weight
                .iter()
                .enumerate()
                .map(|(c, &weight)| f64::from(weight) * f64::from(x[c * plane + i]))
                .sum();
            out.push((product + f64::from(bias)) as f32);
        }
    }
    out
}
