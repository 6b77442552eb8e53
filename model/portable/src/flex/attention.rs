//! Attention on the CPU without a matrix of all scores: a block of query rows at a time, for one head after the
//! other, so that the block's scores stay in the cache between the two products.

use burn::tensor::{Tensor, TensorData};
use burn_flex::Flex;
use rayon::prelude::*;

use super::{contiguous, math};

/// Query rows of a block. With more, the two products would each start threads of their own.
const ROWS: usize = 32;

/// See [`PortableBackend::scaled_dot_product`](crate::PortableBackend::scaled_dot_product).
pub(super) fn scaled_dot_product(
    q: Tensor<Flex, 4>,
    k: Tensor<Flex, 4>,
    v: Tensor<Flex, 4>,
) -> Tensor<Flex, 3> {
    let arch = pulp::Arch::new();
    let device = q.device();
    let [batch, heads, n, head_dim] = q.dims();
    let [_, kv_heads, tokens, _] = k.dims();
    let scale = (1.0 / (head_dim as f64).sqrt()) as f32;
    // Dropping dimensions of a view copies what the view shows, so the rows are chosen first.
    let head = |t: &Tensor<Flex, 4>, b: usize, h: usize, first: usize, count: usize| -> Tensor<Flex, 2> {
        t.clone().narrow(0, b, 1).narrow(1, h, 1).narrow(2, first, count).squeeze_dims(&[0, 1])
    };
    let packed = |t: Tensor<Flex, 2>| -> Tensor<Flex, 2> { super::tensor(contiguous(t)) };
    let mut result = vec![0.0; batch * n * heads * head_dim];
    for (b, image) in result.chunks_exact_mut(n * heads * head_dim).enumerate() {
        // Keys transposed: each product then reads its operands along rows.
        let keys_values: Vec<_> = (0..kv_heads)
            .into_par_iter()
            .map(|h| (packed(head(&k, b, h, 0, tokens).transpose()), head(&v, b, h, 0, tokens)))
            .collect();
        image.par_chunks_mut(ROWS * heads * head_dim).enumerate().for_each(|(block, result)| {
            let count = result.len() / (heads * head_dim);
            for h in 0..heads {
                let (keys, values) = &keys_values[h * kv_heads / heads];
                let queries = head(&q, b, h, block * ROWS, count);
                let mut scores = contiguous(queries.matmul(keys.clone()));
                let sums =
                    arch.dispatch(math::Exponentials { rows: scores.storage_mut(), length: tokens, scale });
                let y = contiguous(super::tensor::<2>(scores).matmul(values.clone()));
                let y = y.storage::<f32>().chunks_exact(head_dim);
                for ((token, y), sum) in result.chunks_exact_mut(heads * head_dim).zip(y).zip(sums) {
                    token[h * head_dim..][..head_dim].iter_mut().zip(y).for_each(|(t, y)| *t = y / sum);
                }
            }
        });
    }
    Tensor::from_data(TensorData::new(result, [batch, n, heads * head_dim]), &device)
}
