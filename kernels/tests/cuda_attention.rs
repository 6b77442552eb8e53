//! Attention on the GPU against the naive one, with and without the second family's norms and rotation.

#![cfg(feature = "cuda")]
#![allow(clippy::unwrap_used, reason = "test code")]

mod support;

use sapiens_kernels::cuda::attention::{Angles, Attention, QkNorm, QkvShape, Rotary};
use sapiens_kernels::cuda::{Precision, Stream};
use sapiens_kernels::reference;
use support::gpu;

/// `[tokens, stride]` with zeros where heads are padded.
fn padded(shape: QkvShape, scale: f32) -> Vec<f32> {
    let QkvShape { tokens, head_dim, head_stride, .. } = shape;
    let vectors = tokens * shape.stride() / head_stride;
    let values = support::generated("qkv", &[vectors, head_dim, 1], 6);
    // Of the same spread, whatever the head's length.
    let scale = scale * (head_dim as f32).sqrt();
    let mut out = vec![0.0; vectors * head_stride];
    for (to, from) in out.chunks_exact_mut(head_stride).zip(values.chunks_exact(head_dim)) {
        to.iter_mut().zip(from).for_each(|(to, from)| *to = from * scale);
    }
    out
}

/// Heads `first` to `first + count` of all tokens, without padding.
fn heads(shape: QkvShape, values: &[f32], first: usize, count: usize) -> Vec<f32> {
    let QkvShape { head_dim, head_stride, .. } = shape;
    values
        .chunks_exact(shape.stride())
        .flat_map(|token| token[first * head_stride..].chunks_exact(head_stride).take(count))
        .flat_map(|head| head[..head_dim].to_vec())
        .collect()
}

fn check_attention(stream: &Stream, precision: Precision, shape: QkvShape) {
    let QkvShape { tokens, heads: count, kv_heads, head_dim, head_stride } = shape;
    let longest = [32, 64, 80, 128].into_iter().find(|longest| head_dim <= *longest).unwrap();
    if !gpu::is_wanted("SAPIENS_TEST_INSTANCE", &longest.to_string()) {
        return;
    }
    // Scores from -8 to 8: shares that differ by orders of magnitude.
    let (qkv, exact) = gpu::stored(stream, precision, &padded(shape, 1.5));
    let attention = Attention::new(stream.gpu(), precision, head_dim).unwrap();
    let mut out = gpu::poisoned(stream, tokens * count * head_stride);
    attention.run(stream, shape, qkv.slice(..), out.slice_mut(..)).unwrap();
    let actual = gpu::download_stored(stream, precision, &out);

    let [q, k, v] = [(0, count), (count, kv_heads), (count + kv_heads, kv_heads)]
        .map(|(first, count)| heads(shape, &exact, first, count));
    let expected =
        reference::attention(&q, &k, &v, reference::AttentionShape { heads: count, kv_heads, head_dim });
    // Values are up to 2.6 large. Shares and results are rounded once each; scores that are summed in float16 are off by up to a
    // hundredth, and the shares with them.
    let tolerance = match precision {
        Precision::F16 => 4e-3,
        Precision::F16Promoted => 4e-2,
        Precision::Bf16 => 3e-2,
    };
    let capability = stream.gpu().properties().capability;
    let vectors = actual.chunks_exact(head_stride).zip(expected.chunks_exact(head_dim));
    for (i, (actual, expected)) in vectors.enumerate() {
        for (a, e) in actual.iter().zip(expected) {
            assert!(
                (a - e).abs() <= tolerance,
                "{capability}, {precision:?}, {shape:?}: {a} in {i} instead of {e}"
            );
        }
        assert!(actual[head_dim..].iter().all(|&x| x == 0.0), "{capability}, {shape:?}: padding isn't zero");
    }
}

#[cfg_attr(test, test)]
pub(crate) fn attention_agrees_with_the_naive_one() {
    let shape = |tokens, heads, kv_heads, head_dim: usize| QkvShape {
        tokens,
        heads,
        kv_heads,
        head_dim,
        head_stride: head_dim.next_multiple_of(8),
    };
    gpu::each(|stream, precision| {
        for shape in [
            // One token; around a block of keys and of queries; every length of heads, some of them padded; grouped keys.
            shape(1, 1, 1, 16),
            shape(63, 2, 1, 32),
            shape(65, 2, 2, 64),
            shape(130, 1, 1, 60),
            shape(150, 2, 1, 76),
            shape(64, 1, 1, 80),
            shape(97, 4, 2, 20),
            shape(129, 1, 1, 128),
            shape(70, 2, 1, 100),
        ] {
            check_attention(stream, precision, shape);
        }
    });
}

/// Shares of one key alone, far in front of the others, whose scores are large: nothing overflows, whether it comes before
/// them or after.
#[cfg_attr(test, test)]
pub(crate) fn large_scores_choose_one_key() {
    gpu::each(|stream, precision| {
        for chosen in [3, 77] {
            let shape = QkvShape { tokens: 80, heads: 1, kv_heads: 1, head_dim: 64, head_stride: 64 };
            let mut values = vec![0.0f32; shape.tokens * shape.stride()];
            for (token, row) in values.chunks_exact_mut(shape.stride()).enumerate() {
                row[..64].fill(60.0);
                row[64..128].fill(if token == chosen { 60.0 } else { -60.0 });
                row[128..].fill(token as f32);
            }
            let (qkv, _) = gpu::stored(stream, precision, &values);
            let attention = Attention::new(stream.gpu(), precision, 64).unwrap();
            let mut out = gpu::poisoned(stream, shape.tokens * 64);
            attention.run(stream, shape, qkv.slice(..), out.slice_mut(..)).unwrap();
            let actual = gpu::download_stored(stream, precision, &out);
            // Of a score of 29000 the exponent is known to a thousandth, and so is the share.
            let off = |x: &f32| (x - chosen as f32).abs();
            assert!(actual.iter().all(|x| off(x) < 0.3), "{precision:?}: {:?}", &actual[..4]);
        }
    });
}

/// Norm and rotation. Roundings to bfloat16 may fall to the other side where the norm's last bits differ: one step of it then, in few
/// values.
#[cfg_attr(test, test)]
pub(crate) fn norms_and_rotation_agree_with_the_naive_ones() {
    gpu::each(|stream, precision| {
        // Of vectors as tiny as the last ones epsilon is half of the mean square.
        for (grid, prefix, count, kv_heads, head_dim, scale) in [
            ((3, 5), 9, 4, 2, 64, 3.0),
            ((4, 3), 9, 2, 1, 76, 3.0),
            ((2, 2), 1, 6, 3, 32, 3.0),
            ((1, 7), 0, 1, 1, 128, 3.0),
            ((2, 3), 1, 2, 1, 64, 1e-3),
        ] {
            let tokens = prefix + grid.0 * grid.1;
            let shape = QkvShape {
                tokens,
                heads: count,
                kv_heads,
                head_dim,
                head_stride: head_dim.next_multiple_of(8),
            };
            let (mut qkv, exact) = gpu::stored(stream, precision, &padded(shape, scale));
            let tables = reference::RopeTables::new(grid.0, grid.1, &reference::rope_periods(head_dim));
            let half = |table: &[f32]| -> Vec<f32> {
                table.chunks_exact(head_dim).flat_map(|angles| angles[..head_dim / 2].to_vec()).collect()
            };
            let (sin, cos) =
                (gpu::upload(stream, &half(&tables.sin)), gpu::upload(stream, &half(&tables.cos)));
            let weights = ["q.norm", "k.norm"].map(|name| support::generated(name, &[head_dim], 6));
            let [q, k] = weights.each_ref().map(|weight| gpu::upload(stream, weight));
            let rotary = Rotary::new(stream.gpu(), precision).unwrap();
            let norm = QkNorm { q: q.slice(..), k: k.slice(..), epsilon: 1e-6 };
            let angles = Angles { prefix, sin: sin.slice(..), cos: cos.slice(..) };
            rotary.run(stream, shape, qkv.slice_mut(..), norm, angles).unwrap();
            let actual = gpu::download_stored(stream, precision, &qkv);

            let mut off = 0;
            for (first, count, weight) in [(0, count, &weights[0]), (count, kv_heads, &weights[1])] {
                let mut expected = reference::rms_norm(&heads(shape, &exact, first, count), weight, 1e-6);
                reference::rope(&mut expected, count, prefix, &tables);
                for (a, e) in heads(shape, &actual, first, count).iter().zip(&expected) {
                    off += usize::from(a != e);
                    assert!(
                        (a - e).abs() <= e.abs().max(1.0) / 64.0,
                        "{precision:?}, {shape:?}: {a} instead of {e}"
                    );
                }
            }
            let all = tokens * (count + kv_heads) * head_dim;
            assert!(off * 100 <= all, "{precision:?}, {shape:?}: {off} of {all} values differ");
            let values = heads(shape, &actual, count + kv_heads, kv_heads);
            assert_eq!(values, heads(shape, &exact, count + kv_heads, kv_heads), "values were touched");
        }
    });
}
