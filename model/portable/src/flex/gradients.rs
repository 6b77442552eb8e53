//! Gradients of the CPU backend's operations, for training.
//!
//! As in the forward direction, work is cut into blocks of a fixed size and partial sums are added in the blocks'
//! order, so that no result depends on the number of threads.

use burn::tensor::Tensor;
use burn_flex::{Flex, FlexTensor};
use rayon::prelude::*;

use super::conv_transpose::{block_matrix, windows};
use super::product::{Matrix, product};
use super::{BLOCK, contiguous, from, gradient_math as math, moments, tensor, values};

/// Adds vectors up in their order.
fn total(parts: Vec<Vec<f32>>, length: usize) -> Vec<f32> {
    let mut sum = vec![0.0; length];
    for part in parts {
        sum.iter_mut().zip(part).for_each(|(s, x)| *s += x);
    }
    sum
}

pub(super) fn linear(
    x: Tensor<Flex, 3>,
    weight: Tensor<Flex, 2>,
    gradient: Tensor<Flex, 3>,
) -> (Tensor<Flex, 3>, Tensor<Flex, 2>, Tensor<Flex, 1>) {
    let (shape, [output, input]) = (x.dims(), weight.dims());
    let arch = pulp::Arch::new();
    let rows = shape[0] * shape[1];
    let (x, weight, gradient) = (contiguous(x), contiguous(weight), contiguous(gradient));
    let (x, weight) = (Matrix::dense(x.storage(), input), Matrix::dense(weight.storage(), input));
    let block = BLOCK.next_multiple_of(output);
    let bias = gradient
        .storage::<f32>()
        .par_chunks(block)
        .map(|rows| arch.dispatch(math::ColumnSums { rows, columns: output }))
        .collect();
    let gradient = Matrix::dense(gradient.storage(), output);
    let of_x = product([rows, output, input], gradient, weight);
    let of_weight = product([output, rows, input], gradient.transposed(), x);
    (from(of_x, shape), from(of_weight, [output, input]), from(total(bias, output), [output]))
}

pub(super) fn swiglu(x: Tensor<Flex, 3>, gradient: Tensor<Flex, 3>) -> Tensor<Flex, 3> {
    let arch = pulp::Arch::new();
    let shape = x.dims();
    let both = shape[2];
    let (x, gradient) = (contiguous(x), contiguous(gradient));
    let mut result = vec![0.0; shape.iter().product()];
    result
        .par_chunks_mut(both)
        .zip(x.storage::<f32>().par_chunks(both))
        .zip(gradient.storage::<f32>().par_chunks(both / 2))
        .for_each(|((result, row), gradient)| arch.dispatch(math::SwiGlu { row, gradient, result }));
    from(result, shape)
}

pub(super) fn rms_norm(
    x: Tensor<Flex, 2>,
    weight: Tensor<Flex, 1>,
    epsilon: f64,
    gradient: Tensor<Flex, 2>,
) -> (Tensor<Flex, 2>, Tensor<Flex, 1>) {
    let arch = pulp::Arch::new();
    let shape = x.dims();
    let channels = shape[1];
    let weight = values(&weight);
    let (x, gradient) = (contiguous(x), contiguous(gradient));
    let mut result = vec![0.0; shape.iter().product()];
    let block = BLOCK.next_multiple_of(channels);
    let parts: Vec<_> = result
        .par_chunks_mut(block)
        .zip(x.storage::<f32>().par_chunks(block))
        .zip(gradient.storage::<f32>().par_chunks(block))
        .map(|((result, rows), gradient)| {
            let epsilon = epsilon as f32;
            arch.dispatch(math::RmsNorm { rows, gradient, weight: &weight, epsilon, result })
        })
        .collect();
    (from(result, shape), from(total(parts, channels), [channels]))
}

pub(super) fn instance_norm_silu(
    x: Tensor<Flex, 4>,
    epsilon: f64,
    gradient: Tensor<Flex, 4>,
) -> Tensor<Flex, 4> {
    let arch = pulp::Arch::new();
    let shape = x.dims();
    let [_, rows, columns, channels] = shape;
    let (x, gradient) = (contiguous(x), contiguous(gradient));
    let image = rows * columns * channels;
    let block = BLOCK.next_multiple_of(channels);
    let mut result = vec![0.0; shape.iter().product()];
    for ((result, x), gradient) in result
        .chunks_exact_mut(image)
        .zip(x.storage::<f32>().chunks_exact(image))
        .zip(gradient.storage::<f32>().chunks_exact(image))
    {
        let (mean, inverse) = moments(x, channels, epsilon);
        let (mean, inverse) = (mean.as_slice(), inverse.as_slice());
        // The gradient of the normalised values first, with what its projections need.
        let (sums, products): (Vec<_>, Vec<_>) = result
            .par_chunks_mut(block)
            .zip(x.par_chunks(block))
            .zip(gradient.par_chunks(block))
            .map(|((result, x), gradient)| {
                arch.dispatch(math::NormSilu { x, gradient, mean, inverse, result })
            })
            .unzip();
        let share = |parts| -> Vec<f32> {
            let count = (rows * columns) as f32;
            total(parts, channels).into_iter().map(|sum| sum / count).collect()
        };
        let (sum, product) = (share(sums), share(products));
        result.par_chunks_mut(block).zip(x.par_chunks(block)).for_each(|(result, x)| {
            arch.dispatch(math::Norm { x, mean, inverse, sum: &sum, product: &product, result });
        });
    }
    from(result, shape)
}

pub(super) fn rotary_bf16(
    cos: Tensor<Flex, 2>,
    sin: Tensor<Flex, 2>,
    gradient: Tensor<Flex, 4>,
) -> Tensor<Flex, 4> {
    let arch = pulp::Arch::new();
    let ([_, tokens, heads, head_dim], [patches, _]) = (gradient.dims(), cos.dims());
    let (cos, sin) = (contiguous(cos), contiguous(sin));
    let (cos, sin) = (cos.storage::<f32>(), sin.storage::<f32>());
    let mut result = contiguous(gradient);
    result.storage_mut::<f32>().par_chunks_mut(heads * head_dim).enumerate().for_each(|(i, token)| {
        if let Some(p) = (i % tokens).checked_sub(tokens - patches) {
            let (cos, sin) = (&cos[p * head_dim..][..head_dim], &sin[p * head_dim..][..head_dim]);
            arch.dispatch(math::Rotary { token, cos, sin });
        }
    });
    tensor(result)
}

/// One head of one image: `[rows, head_dim]`, dense.
fn head(t: &Tensor<Flex, 4>, b: usize, h: usize) -> FlexTensor {
    contiguous(t.clone().narrow(0, b, 1).narrow(1, h, 1))
}

pub(super) fn scaled_dot_product(
    q: Tensor<Flex, 4>,
    k: Tensor<Flex, 4>,
    v: Tensor<Flex, 4>,
    gradient: Tensor<Flex, 3>,
) -> [Tensor<Flex, 4>; 3] {
    let [batch, heads, n, head_dim] = q.dims();
    let [_, kv_heads, tokens, _] = k.dims();
    let scale = (1.0 / (head_dim as f64).sqrt()) as f32;
    let gradient = gradient.reshape([batch, n, heads, head_dim]).swap_dims(1, 2);
    let group = heads / kv_heads;
    // A task is a key/value head with the query heads it serves, whose gradients of keys and values add up.
    let tasks: Vec<_> = (0..batch * kv_heads)
        .into_par_iter()
        .map(|task| {
            let (b, h) = (task / kv_heads, task % kv_heads);
            let (keys, values) = (head(&k, b, h), head(&v, b, h));
            let mut all = [vec![], vec![0.0; tokens * head_dim], vec![0.0; tokens * head_dim]];
            for query in h * group..(h + 1) * group {
                let (queries, gradient) = (head(&q, b, query), head(&gradient, b, query));
                let [of_q, of_k, of_v] = one_head(
                    queries.storage(),
                    keys.storage(),
                    values.storage(),
                    gradient.storage(),
                    head_dim,
                    scale,
                );
                all[0].extend(of_q);
                all[1].iter_mut().zip(of_k).for_each(|(sum, x)| *sum += x);
                all[2].iter_mut().zip(of_v).for_each(|(sum, x)| *sum += x);
            }
            all
        })
        .collect();
    let mut all = [vec![], vec![], vec![]];
    for task in tasks {
        all.iter_mut().zip(task).for_each(|(all, part)| all.extend(part));
    }
    let [q, k, v] = all;
    let keys = [batch, kv_heads, tokens, head_dim];
    [from(q, [batch, heads, n, head_dim]), from(k, keys), from(v, keys)]
}

fn one_head(q: &[f32], k: &[f32], v: &[f32], gradient: &[f32], head_dim: usize, scale: f32) -> [Vec<f32>; 3] {
    let arch = pulp::Arch::new();
    let (n, length) = (q.len() / head_dim, k.len() / head_dim);
    let [q, k, v, gradient] = [q, k, v, gradient].map(|x| Matrix::dense(x, head_dim));
    let mut shares = product([n, head_dim, length], q, k.transposed());
    arch.dispatch(math::Softmax { rows: &mut shares, length, scale });
    let mut of_scores = product([n, head_dim, length], gradient, v.transposed());
    arch.dispatch(math::SoftmaxGradient { shares: &shares, rows: &mut of_scores, length, scale });
    let (shares, of_scores) = (Matrix::dense(&shares, length), Matrix::dense(&of_scores, length));
    [
        product([n, length, head_dim], of_scores, k),
        product([length, n, head_dim], of_scores.transposed(), q),
        product([length, n, head_dim], shares.transposed(), gradient),
    ]
}

/// As the forward pass: a product of the matrix of all 2 x 2 windows of the padded input, `[windows, 4 in]`, and
/// [`block_matrix`]. Unlike there, all windows of an image are in memory at once.
pub(super) fn conv_transpose(
    x: Tensor<Flex, 4>,
    weight: Tensor<Flex, 4>,
    gradient: Tensor<Flex, 4>,
) -> (Tensor<Flex, 4>, Tensor<Flex, 4>) {
    let shape = x.dims();
    let [batch, h, w, input] = shape;
    let [_, output, _, _] = weight.dims();
    let matrix = contiguous(block_matrix(weight));
    let matrix = Matrix::dense(matrix.storage(), 4 * output);
    let (x, gradient) = (contiguous(x), contiguous(gradient));
    let count = (h + 1) * (w + 1);
    let mut of_matrices = Vec::new();
    let mut of_x = vec![0.0; batch * h * w * input];
    for ((x, gradient), of_x) in x
        .storage::<f32>()
        .chunks_exact(h * w * input)
        .zip(gradient.storage::<f32>().chunks_exact(4 * h * w * output))
        .zip(of_x.chunks_exact_mut(h * w * input))
    {
        let (windows, blocks) = (windows(x, [h, w], input), blocks(gradient, [h, w], output));
        let (windows, blocks) = (Matrix::dense(&windows, 4 * input), Matrix::dense(&blocks, 4 * output));
        of_matrices.push(product([4 * input, count, 4 * output], windows.transposed(), blocks));
        let of_windows = product([count, 4 * output, 4 * input], blocks, matrix.transposed());
        add_windows(&of_windows, [h, w], input, of_x);
    }
    let of_matrix = total(of_matrices, 16 * input * output);
    let of_weight = from(of_matrix, [2, 2, input, 2, 2, output])
        .permute([2, 5, 0, 3, 1, 4])
        .flip([2, 4])
        .reshape([input, output, 4, 4]);
    (from(of_x, shape), of_weight)
}

/// The 2 x 2 blocks of a map `[2 h, 2 w, channels]` padded by one: `[(h + 1) (w + 1), 2, 2, channels]`.
fn blocks(x: &[f32], [h, w]: [usize; 2], channels: usize) -> Vec<f32> {
    let mut all = vec![0.0; (h + 1) * (w + 1) * 4 * channels];
    all.par_chunks_mut((w + 1) * 4 * channels).enumerate().for_each(|(row, blocks)| {
        for (column, block) in blocks.chunks_exact_mut(4 * channels).enumerate() {
            for (i, pixels) in block.chunks_exact_mut(2 * channels).enumerate() {
                let Some(y) = (2 * row + i).checked_sub(1).filter(|&y| y < 2 * h) else { continue };
                let (first, last) = ((2 * column).max(1) - 1, (2 * column + 1).min(2 * w));
                let at = (first + 1 - 2 * column) * channels;
                let source = &x[(y * 2 * w + first) * channels..(y * 2 * w + last) * channels];
                pixels[at..][..source.len()].copy_from_slice(source);
            }
        }
    });
    all
}

/// The reverse of [`windows`]: every pixel gets the sum over the windows it is in.
fn add_windows(windows: &[f32], [h, w]: [usize; 2], channels: usize, x: &mut [f32]) {
    let arch = pulp::Arch::new();
    x.par_chunks_mut(w * channels).enumerate().for_each(|(y, row)| {
        arch.dispatch(math::AddWindows { windows, size: [h, w], channels, y, row });
    });
}
