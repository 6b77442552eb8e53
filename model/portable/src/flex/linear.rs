//! Linear layers on the CPU whose weights fit the cache.

use burn::tensor::Tensor;
use burn_flex::Flex;
use rayon::prelude::*;

use super::product::{Matrix, product};
use super::{contiguous, from};

/// Values of a weight at most: 1 MB, what a core's own cache holds.
const WEIGHT_VALUES: usize = 1 << 18;

/// Whether a weight is small enough for [`linear`].
pub(super) fn fits(weight: &Tensor<Flex, 2>) -> bool {
    weight.shape().num_elements() <= WEIGHT_VALUES
}

/// See [`PortableBackend::affine`](crate::PortableBackend::linear).
pub(super) fn linear(x: Tensor<Flex, 3>, weight: Tensor<Flex, 2>, bias: Tensor<Flex, 1>) -> Tensor<Flex, 3> {
    let ([batch, n, input], [output, _]) = (x.dims(), weight.dims());
    let (x, weight, bias) = (contiguous(x), contiguous(weight), contiguous(bias));
    let weight = Matrix::dense(weight.storage(), input).transposed();
    let mut y = product([batch * n, input, output], Matrix::dense(x.storage(), input), weight);
    y.par_chunks_mut(output).with_min_len(64).for_each(|row| {
        row.iter_mut().zip(bias.storage::<f32>()).for_each(|(y, b)| *y += b);
    });
    from(y, [batch, n, output])
}
