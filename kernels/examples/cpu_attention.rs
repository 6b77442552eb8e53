//! Prints how long one layer's attention takes on one core at every level, beside what the core's multiply-adds can do:
//! `cargo run --release -p sapiens-kernels --example cpu_attention`.

use std::time::Instant;

use half::bf16;
use sapiens_kernels::cpu::{
    Attention, AttentionInput, AttentionShape, Element, Heads, Level, QkNorm, Rotary, Threads, probe,
};

/// Seconds of the fastest of several calls, after one that warms up.
fn best_of(count: usize, mut call: impl FnMut()) -> f64 {
    call();
    (0..count)
        .map(|_| {
            let start = Instant::now();
            call();
            start.elapsed().as_secs_f64()
        })
        .fold(f64::INFINITY, f64::min)
}

fn values<E: Element>(count: usize) -> Vec<E> {
    let byte = |i: usize| (i.wrapping_mul(0x9E37_79B1) >> 13) as u8;
    (0..count).map(|i| E::from_f32(f32::from(byte(i)) / 64.0 - 2.0)).collect()
}

/// Operations a second that multiply-adds from registers reach: the best of many short tries, since others may use
/// the machine too.
fn peak(level: Level, bf16: bool) -> f64 {
    let mut operations = 0;
    let seconds = best_of(100, || operations = probe::run(level, bf16));
    operations as f64 / seconds
}

fn attention<E: Element>(
    level: Level,
    name: &str,
    shape: AttentionShape,
    prefix: Option<usize>,
    tries: usize,
) {
    let AttentionShape { tokens, heads, kv_heads, head_dim } = shape;
    let q = values::<E>(tokens * heads * head_dim);
    let kv = values::<E>(tokens * kv_heads * head_dim);
    let weight = vec![1.0; head_dim];
    let angles = vec![0.5; (tokens - prefix.unwrap_or(0)) * head_dim / 2];
    let input = AttentionInput {
        q: Heads::new(&q, heads * head_dim),
        k: Heads::new(&kv, kv_heads * head_dim),
        v: Heads::new(&kv, kv_heads * head_dim),
        norm: prefix.map(|_| QkNorm { q: &weight, k: &weight, epsilon: 1e-6 }),
        rotary: prefix.map(|prefix| Rotary { prefix, sin: &angles, cos: &angles }),
    };
    let mut out = vec![E::default(); q.len()];
    let Ok(mut threads) = Threads::new(1) else { return };
    let mut attention = Attention::<E>::new(level, shape, 1);
    let seconds = best_of(tries, || attention.run(&mut threads, shape, input, &mut out));
    let exponentials = (tokens * tokens * heads) as f64;
    let operations = 4.0 * exponentials * head_dim as f64;
    println!(
        "{level:>10} {:4} {name:14} {:8.2} ms {:6.1} GFLOP/s {:5.2} G exp/s {:4.0} % of the peak",
        if E::IS_BF16 { "bf16" } else { "f32" },
        seconds * 1e3,
        operations / seconds / 1e9,
        exponentials / seconds / 1e9,
        operations / seconds / peak(level, E::IS_BF16) * 100.0,
    );
}

fn main() {
    let shape = |tokens, heads, kv_heads, head_dim| AttentionShape { tokens, heads, kv_heads, head_dim };
    for level in Level::all_available() {
        for bf16 in [true, false] {
            println!("{level}, bf16 {bf16}: {:.1} GFLOP/s from registers", peak(level, bf16) / 1e9);
        }
        let tries = if level == Level::all_available()[0] { 5 } else { 2 };
        let cases = [
            ("0.3b", shape(3072, 16, 16, 64), None, tries),
            ("sapiens2-0.4b", shape(3081, 16, 8, 64), Some(9), tries),
            ("demo", shape(201, 6, 6, 32), Some(9), 100),
        ];
        for (name, shape, prefix, tries) in cases {
            attention::<bf16>(level, name, shape, prefix, tries);
            attention::<f32>(level, name, shape, prefix, tries);
        }
    }
}
