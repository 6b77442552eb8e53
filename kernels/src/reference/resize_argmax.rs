//! Labels from logits, pixel by pixel.

use std::ops::Range;

/// Labels of `rows` of the top left `out_width` columns of `logits [classes, h, w]` stretched to `full` (height, width).
///
/// Bilinear as PyTorch's `upsample_bilinear2d` with `align_corners = false`, in float32:
/// `h0 * (w0 * a + w1 * b) + h1 * (w0 * c + w1 * d)`. The lowest of the largest classes wins; NaN never does.
pub fn resize_argmax(
    logits: &[f32],
    (classes, h, w): (usize, usize, usize),
    full: (usize, usize),
    rows: Range<usize>,
    out_width: usize,
) -> Vec<u8> {
    assert_eq!(logits.len(), classes * h * w, "resize_argmax, logits");
    let mut labels = Vec::with_capacity(rows.len() * out_width);
    for y in rows {
        let (y0, y1, h0, h1) = taps(y, h, full.0);
        for x in 0..out_width {
            let (x0, x1, w0, w1) = taps(x, w, full.1);
            let mut best = (0, f32::NEG_INFINITY);
            for class in 0..classes {
                let at = |y: usize, x: usize| logits[(class * h + y) * w + x];
                let value =
                    h0 * (w0 * at(y0, x0) + w1 * at(y0, x1)) + h1 * (w0 * at(y1, x0) + w1 * at(y1, x1));
                if value > best.1 {
                    best = (class as u8, value);
                }
            }
            labels.push(best.0);
        }
    }
    labels
}

/// The two source indices of position `i` of `o` and their weights.
fn taps(i: usize, n: usize, o: usize) -> (usize, usize, f32, f32) {
    if n == o {
        return (i, i, 1.0, 0.0);
    }
    let position = ((i as f32 + 0.5) * (n as f32 / o as f32) - 0.5).max(0.0);
    let first = (position.floor() as usize).min(n - 1);
    let share = (position - first as f32).clamp(0.0, 1.0);
    (first, (first + 1).min(n - 1), 1.0 - share, share)
}
