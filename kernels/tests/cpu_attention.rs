//! Attention at every level of this CPU against the naive one. Outputs are full of NaN before, what lies behind them must
//! be as it was, and what lies between the rows of an operand is NaN.

#[path = "support/levels.rs"]
mod levels;
mod support;

use half::bf16;
use levels::each_level;
use sapiens_kernels::cpu::{
    Attention, AttentionInput, AttentionShape, Element, Heads, Level, QkNorm, Rotary, Threads,
};
use sapiens_kernels::reference;
use support::{generated, stored, written};

/// NaN between two tokens of an operand.
const GAP: usize = 5;

/// Rows apart from each other.
fn spread<E: Element>(values: &[E], row: usize) -> Vec<E> {
    values.chunks_exact(row).flat_map(|row| row.iter().copied().chain([E::NAN; GAP])).collect()
}

struct Operands<E> {
    shape: AttentionShape,
    /// As stored, rows apart, and in float32.
    q: (Vec<E>, Vec<f32>),
    k: (Vec<E>, Vec<f32>),
    v: (Vec<E>, Vec<f32>),
}

impl<E: Element> Operands<E> {
    /// Scores are about as large as `scale` squared.
    fn new(shape: AttentionShape, scale: f32) -> Self {
        let AttentionShape { tokens, heads, kv_heads, head_dim } = shape;
        let operand = |name: &str, heads: usize, scale: f32| {
            let (values, exact) = stored::<E>(name, tokens * heads * head_dim, scale);
            (spread(&values, heads * head_dim), exact)
        };
        Self {
            shape,
            q: operand("q", heads, scale * 3.0),
            k: operand("k", kv_heads, scale * 3.0),
            v: operand("v", kv_heads, 2.0),
        }
    }

    fn input(&self) -> AttentionInput<'_, E> {
        let AttentionShape { heads, kv_heads, head_dim, .. } = self.shape;
        AttentionInput {
            q: Heads::new(&self.q.0, heads * head_dim + GAP),
            k: Heads::new(&self.k.0, kv_heads * head_dim + GAP),
            v: Heads::new(&self.v.0, kv_heads * head_dim + GAP),
            norm: None,
            rotary: None,
        }
    }

    fn expected(&self, q: &[f32], k: &[f32]) -> Vec<f32> {
        let AttentionShape { heads, kv_heads, head_dim, .. } = self.shape;
        reference::attention(q, k, &self.v.1, reference::AttentionShape { heads, kv_heads, head_dim })
    }
}

fn run<E: Element, O: Element>(
    attention: &mut Attention<E>,
    threads: &mut Threads,
    shape: AttentionShape,
    input: AttentionInput<'_, E>,
) -> Vec<f32> {
    let len = shape.tokens * shape.heads * shape.head_dim;
    written::<O>(len, |out| attention.run(threads, shape, input, out))
}

/// Each result is a mean of values, which are below 2, so that errors are measured by that. In float32: a score is off by
/// some roundings of the sum of its terms' sizes, and the weight relatively by as much as the score absolutely. With
/// pairs of bfloat16, each weight is rounded to 8 bits, by up to 1/512 of it, and so is their mean by up to that
/// of 2; mostly far less, as roundings go both ways. An output in bfloat16 is rounded once more.
fn assert_close<E: Element, O: Element>(level: Level, what: &str, actual: &[f32], expected: &[f32]) {
    let pairs = E::IS_BF16 && level.multiplies_bf16();
    assert_eq!(actual.len(), expected.len());
    for (i, (&a, &e)) in actual.iter().zip(expected).enumerate() {
        let rounding = if O::IS_BF16 { e.abs() / 256.0 } else { 0.0 };
        let tolerance = if pairs { 4e-3 } else { 2e-5 } + rounding;
        assert!((a - e).abs() <= tolerance, "{level}, {what}: {a} at {i}, not {e}, {tolerance:e} allowed");
    }
}

/// Tokens, heads, key/value heads and head dim.
fn shapes() -> Vec<AttentionShape> {
    let mut shapes = Vec::new();
    let heads = [(1, 1), (3, 3), (4, 2), (3, 1)];
    for (i, head_dim) in [4, 12, 32, 48, 60, 64, 76, 80, 100, 128].into_iter().enumerate() {
        for (j, tokens) in [1, 2, 9, 15, 17, 67, 201].into_iter().enumerate() {
            let (heads, kv_heads) = heads[(i + j) % heads.len()];
            shapes.push(AttentionShape { tokens, heads, kv_heads, head_dim });
        }
    }
    // Past one and two blocks of keys.
    for (tokens, head_dim) in [(512, 64), (521, 60), (1031, 32), (1025, 76)] {
        shapes.push(AttentionShape { tokens, heads: 2, kv_heads: 1, head_dim });
    }
    shapes
}

fn equals_the_naive_one<E: Element, O: Element>(scale: f32) {
    for shape in shapes() {
        let operands = Operands::<E>::new(shape, scale);
        let expected = operands.expected(&operands.q.1, &operands.k.1);
        each_level(|level, threads| {
            let mut attention = Attention::new(level, shape, threads.count());
            let actual = run::<E, O>(&mut attention, threads, shape, operands.input());
            assert_close::<E, O>(level, &format!("{shape:?}"), &actual, &expected);
        });
    }
}

#[test]
fn float32_equals_the_naive_one() {
    equals_the_naive_one::<f32, f32>(1.0);
}

#[test]
fn bfloat16_equals_the_naive_one() {
    equals_the_naive_one::<bf16, f32>(1.0);
    equals_the_naive_one::<bf16, bf16>(1.0);
}

#[test]
fn float32_to_bfloat16_equals_the_naive_one() {
    equals_the_naive_one::<f32, bf16>(0.5);
}

#[test]
fn queries_keys_and_values_of_one_projection() {
    let shape = AttentionShape { tokens: 50, heads: 6, kv_heads: 6, head_dim: 32 };
    let row = 6 * 32;
    let (qkv, exact) = stored::<f32>("qkv", 50 * 3 * row, 2.0);
    let third = |i: usize| -> Vec<f32> {
        exact.chunks_exact(3 * row).flat_map(|token| &token[i * row..(i + 1) * row]).copied().collect()
    };
    let sizes = reference::AttentionShape { heads: 6, kv_heads: 6, head_dim: 32 };
    let expected = reference::attention(&third(0), &third(1), &third(2), sizes);
    let input = AttentionInput {
        q: Heads::new(&qkv, 3 * row),
        k: Heads::new(&qkv[row..], 3 * row),
        v: Heads::new(&qkv[2 * row..], 3 * row),
        norm: None,
        rotary: None,
    };
    each_level(|level, threads| {
        let mut attention = Attention::new(level, shape, threads.count());
        let actual = run::<f32, f32>(&mut attention, threads, shape, input);
        assert_close::<f32, f32>(level, "one projection", &actual, &expected);
    });
}

/// Every block of keys brings larger scores than those before, up to where a difference of two is beyond what an exponential
/// can tell from zero.
#[test]
fn growing_scores_are_rescaled() {
    scaled_keys::<f32>(|token| token as f32 / 50.0);
    scaled_keys::<bf16>(|token| token as f32 / 50.0);
}

#[test]
fn scores_that_grow_no_more_are_not_rescaled() {
    let first = |token| if token < 256 { 4.0 } else { 0.1 };
    scaled_keys::<f32>(first);
    scaled_keys::<bf16>(first);
}

/// With each token's keys times something of their own.
fn scaled_keys<E: Element>(scale: impl Fn(usize) -> f32) {
    let shape = AttentionShape { tokens: 1100, heads: 1, kv_heads: 1, head_dim: 16 };
    let mut operands = Operands::<E>::new(shape, 1.0);
    let scaled = operands.k.1.iter().enumerate().map(|(i, key)| E::from_f32(key * scale(i / 16)));
    let scaled: Vec<E> = scaled.collect();
    operands.k = (spread(&scaled, 16), scaled.iter().map(|key| key.to_f32()).collect());
    let expected = operands.expected(&operands.q.1, &operands.k.1);
    each_level(|level, threads| {
        let mut attention = Attention::new(level, shape, threads.count());
        let actual = run::<E, f32>(&mut attention, threads, shape, operands.input());
        // Scores are up to 300 here, and their roundings with them. Pairs as in `assert_close`.
        let tolerance = if E::IS_BF16 && level.multiplies_bf16() { 4e-3 } else { 3e-4 };
        for (i, (a, e)) in actual.iter().zip(&expected).enumerate() {
            assert!((a - e).abs() <= tolerance, "{level}, bf16 {}: {a} at {i}, not {e}", E::IS_BF16);
        }
    });
}

/// Norm and rotation happen in the packing. Where they round a value to the other side than float64 does (one in some
/// thousands), it is off by 1/256, one of `head_dim` terms of its token's scores.
fn norm_and_rotation<E: Element>() {
    for (prefix, (h, w), heads, kv_heads, head_dim) in
        [(9, (16, 12), 4, 2, 32), (9, (5, 7), 2, 2, 76), (0, (3, 3), 1, 1, 64), (1, (13, 45), 2, 1, 80)]
    {
        let shape = AttentionShape { tokens: prefix + h * w, heads, kv_heads, head_dim };
        let operands = Operands::<E>::new(shape, 1.0);
        let tables = reference::RopeTables::new(h, w, &reference::rope_periods(head_dim));
        let half = |table: &[f32]| -> Vec<f32> {
            table.chunks_exact(head_dim).flat_map(|row| &row[..head_dim / 2]).copied().collect()
        };
        let (sin, cos) = (half(&tables.sin), half(&tables.cos));
        let weights = ["q_norm", "k_norm"].map(|name| generated(name, &[head_dim], 6));
        for normed in [false, true] {
            let prepared = |x: &[f32], heads: usize, weight: &[f32]| {
                let mut x = if normed { reference::rms_norm(x, weight, 1e-6) } else { x.to_vec() };
                reference::rope(&mut x, heads, prefix, &tables);
                x
            };
            let q = prepared(&operands.q.1, heads, &weights[0]);
            let k = prepared(&operands.k.1, kv_heads, &weights[1]);
            let expected = operands.expected(&q, &k);
            let norm = normed.then_some(QkNorm { q: &weights[0], k: &weights[1], epsilon: 1e-6 });
            let rotary = Some(Rotary { prefix, sin: &sin, cos: &cos });
            each_level(|level, threads| {
                let mut attention = Attention::new(level, shape, threads.count());
                let input = AttentionInput { norm, rotary, ..operands.input() };
                let actual = run::<E, f32>(&mut attention, threads, shape, input);
                if normed {
                    let (max, mean) = support::difference(&actual, &expected);
                    let allowed = if E::IS_BF16 { (5e-3, 1e-3) } else { (5e-3, 1e-4) };
                    assert!(max <= allowed.0 && mean <= allowed.1, "{level}, {shape:?}: {max:e}, {mean:e}");
                } else {
                    assert_close::<E, f32>(level, &format!("rotated {shape:?}"), &actual, &expected);
                }
            });
        }
    }
}

#[test]
fn norm_and_rotation_in_float32() {
    norm_and_rotation::<f32>();
}

#[test]
fn norm_and_rotation_in_bfloat16() {
    norm_and_rotation::<bf16>();
}

#[test]
fn memory_of_one_shape_serves_smaller_ones_whatever_it_held() {
    let shape = |tokens, heads, kv_heads| AttentionShape { tokens, heads, kv_heads, head_dim: 60 };
    fn check<E: Element>(shape: impl Fn(usize, usize, usize) -> AttentionShape) {
        each_level(|level, threads| {
            let mut attention = Attention::<E>::new(level, shape(600, 4, 4), threads.count());
            for (sizes, poison) in [
                (shape(600, 4, 4), true),
                (shape(45, 4, 2), false),
                (shape(599, 4, 4), true),
                (shape(523, 2, 1), false),
            ] {
                let mut operands = Operands::<E>::new(sizes, 1.0);
                if poison {
                    operands.v.0.fill(E::NAN);
                    operands.k.0.fill(E::NAN);
                    run::<E, f32>(&mut attention, threads, sizes, operands.input());
                } else {
                    let actual = run::<E, f32>(&mut attention, threads, sizes, operands.input());
                    let expected = operands.expected(&operands.q.1, &operands.k.1);
                    assert_close::<E, f32>(level, &format!("{sizes:?}"), &actual, &expected);
                }
            }
        });
    }
    check::<f32>(shape);
    check::<bf16>(shape);
}

#[test]
#[should_panic(expected = "exceeds")]
fn a_shape_beyond_the_memory_is_refused() {
    let shape = AttentionShape { tokens: 5, heads: 2, kv_heads: 2, head_dim: 8 };
    let operands = Operands::<f32>::new(AttentionShape { tokens: 6, ..shape }, 1.0);
    let mut attention = Attention::new(Level::best(), shape, 1);
    run::<f32, f32>(&mut attention, &mut Threads::new(1).unwrap(), operands.shape, operands.input());
}

#[test]
#[should_panic(expected = "attention, k: 33 values, not 34")]
fn a_short_operand_is_refused() {
    let shape = AttentionShape { tokens: 3, heads: 2, kv_heads: 1, head_dim: 8 };
    let operands = Operands::<f32>::new(shape, 1.0);
    let mut input = operands.input();
    input.k = Heads::new(&operands.k.0[..33], 13);
    let mut attention = Attention::new(Level::best(), shape, 1);
    run::<f32, f32>(&mut attention, &mut Threads::new(1).unwrap(), shape, input);
}
