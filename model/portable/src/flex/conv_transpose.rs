//! ConvTranspose on the CPU for maps of a moderate size, whose windows may all be in memory at once: what
//! [`ops::conv_transpose`](crate::ops::conv_transpose) does, without a copy for each of its steps.

use burn::tensor::Tensor;
use burn_flex::Flex;
use rayon::prelude::*;

use super::product::{Matrix, product};
use super::{contiguous, from};

/// Values of an image's windows at most: 64 MB.
const WINDOW_VALUES: usize = 1 << 24;
/// Values of the weight at most: 2 MB.
const WEIGHT_VALUES: usize = 1 << 19;

/// Whether the windows of an image of `x`, `[batch, h, w, in]`, may all be in memory, and the weight is small.
pub(super) fn fits(x: &Tensor<Flex, 4>, weight: &Tensor<Flex, 4>) -> bool {
    let [_, h, w, input] = x.dims();
    (h + 1) * (w + 1) * 4 * input <= WINDOW_VALUES && weight.shape().num_elements() <= WEIGHT_VALUES
}

/// See [`PortableBackend::conv_transpose`](crate::PortableBackend::conv_transpose).
pub(super) fn conv_transpose(x: Tensor<Flex, 4>, weight: Tensor<Flex, 4>) -> Tensor<Flex, 4> {
    let [batch, h, w, input] = x.dims();
    let [_, output, _, _] = weight.dims();
    let matrix = contiguous(block_matrix(weight));
    let x = contiguous(x);
    let mut all = vec![0.0; batch * 4 * h * w * output];
    for (x, y) in x.storage::<f32>().chunks_exact(h * w * input).zip(all.chunks_exact_mut(4 * h * w * output))
    {
        let windows = windows(x, [h, w], input);
        let blocks = product(
            [(h + 1) * (w + 1), 4 * input, 4 * output],
            Matrix::dense(&windows, 4 * input),
            Matrix::dense(matrix.storage(), 4 * output),
        );
        y.par_chunks_mut(2 * w * output).enumerate().for_each(|(y, row)| {
            // Row y is row i of the blocks of row r, pixel x pixel j of block c: the outermost lie half outside.
            let (r, i) = (y.div_ceil(2), (y + 1) % 2);
            for (x, pixel) in row.chunks_exact_mut(output).enumerate() {
                let (c, j) = (x.div_ceil(2), (x + 1) % 2);
                let block = &blocks[(r * (w + 1) + c) * 4 * output..][..4 * output];
                pixel.copy_from_slice(&block[(2 * i + j) * output..][..output]);
            }
        });
    }
    from(all, [batch, 2 * h, 2 * w, output])
}

/// The matrix `[4 in, 4 out]` that makes the 2 x 2 block of output of a 2 x 2 window of input.
pub(super) fn block_matrix(weight: Tensor<Flex, 4>) -> Tensor<Flex, 2> {
    let [input, output, _, _] = weight.dims();
    weight
        .reshape([input, output, 2, 2, 2, 2])
        .flip([2, 4])
        .permute([2, 4, 0, 3, 5, 1])
        .reshape([4 * input, 4 * output])
}

/// All 2 x 2 windows of a map `[h, w, channels]` padded by one: `[(h + 1) (w + 1), 2, 2, channels]`.
pub(super) fn windows(x: &[f32], [h, w]: [usize; 2], channels: usize) -> Vec<f32> {
    let mut all = vec![0.0; (h + 1) * (w + 1) * 4 * channels];
    all.par_chunks_mut((w + 1) * 4 * channels).enumerate().for_each(|(row, windows)| {
        for (column, window) in windows.chunks_exact_mut(4 * channels).enumerate() {
            for (i, corners) in window.chunks_exact_mut(2 * channels).enumerate() {
                let Some(y) = (row + i).checked_sub(1).filter(|&y| y < h) else { continue };
                // The corners that lie within the map, which are neighbours in it.
                let (first, last) = (column.max(1) - 1, (column + 1).min(w));
                let at = (first + 1 - column) * channels;
                let source = &x[(y * w + first) * channels..(y * w + last) * channels];
                corners[at..][..source.len()].copy_from_slice(source);
            }
        }
    });
    all
}
