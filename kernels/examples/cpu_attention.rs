//! Prints how long one layer's attention, the norms and the labels take at every level, beside what one core's
//! multiply-adds can do from registers:
//! `cargo run --release -p sapiens-kernels --example cpu_attention [threads] [level]`.

use std::time::Instant;

use half::bf16;
use sapiens_kernels::cpu::{
    Attention, AttentionInput, AttentionShape, Element, Heads, Level, PixelLogits, QkNorm, ResizeArgmax,
    Rotary, Threads, layer_norm, probe, rms_norm,
};
use sapiens_kernels::{LabelWindow, Logits};

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
    threads: &mut Threads,
    (name, shape, prefix, tries): (&str, AttentionShape, Option<usize>, usize),
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
    let mut attention = Attention::<E>::new(level, shape, threads.count());
    let seconds = best_of(tries, || attention.run(threads, shape, input, &mut out));
    let exponentials = (tokens * tokens * heads) as f64;
    let operations = 4.0 * exponentials * head_dim as f64;
    println!(
        "{level:>10} {:4} {name:14} {:8.2} ms {:6.1} GFLOP/s {:5.2} G exp/s {:4.0} % of the peak",
        if E::IS_BF16 { "bf16" } else { "f32" },
        seconds * 1e3,
        operations / seconds / 1e9,
        exponentials / seconds / 1e9,
        operations / seconds / peak(level, E::IS_BF16) / threads.count() as f64 * 100.0,
    );
}

fn norms<E: Element>(level: Level, threads: &mut Threads) {
    let (rows, channels) = (3072, 1024);
    let x = values::<E>(rows * channels);
    let (weight, bias) = (vec![1.0; channels], vec![0.5; channels]);
    let mut out = vec![E::default(); x.len()];
    let layer = best_of(30, || layer_norm(level, threads, &x, (&weight, &bias), 1e-6, &mut out));
    let rms = best_of(30, || rms_norm(level, threads, &x, &weight, 1e-6, &mut out));
    let rate = |seconds: f64| (size_of_val(&*x) * 2) as f64 / seconds / 1e9;
    println!(
        "{level:>10} {:4} norms of {rows} x {channels}: layer {:.2} ms, {:.1} GB/s; rms {:.2} ms, {:.1} GB/s",
        if E::IS_BF16 { "bf16" } else { "f32" },
        layer * 1e3,
        rate(layer),
        rms * 1e3,
        rate(rms),
    );
}

const CLASSES: usize = 29;

/// Discs of one class each before a background, as an image has areas, or nothing but noise.
fn logits(height: usize, width: usize, noise: bool) -> Vec<f32> {
    let mut planes = values::<f32>(CLASSES * height * width);
    let radius = height / 8;
    for y in 0..if noise { 0 } else { height } {
        for x in 0..width {
            let (cy, cx) = (y % (3 * radius), x % (3 * radius));
            let inside = cy.abs_diff(radius).pow(2) + cx.abs_diff(radius).pow(2) < radius * radius;
            let class =
                if inside { 1 + (y / (3 * radius) * 5 + x / (3 * radius)) % (CLASSES - 1) } else { 0 };
            planes[(class * height + y) * width + x] += 8.0;
        }
    }
    planes
}

/// Beside the same from planes, which is made of plain code.
fn labels(
    level: Level,
    threads: &mut Threads,
    (height, width): (usize, usize),
    (full_height, full_width): (usize, usize),
) {
    let window = LabelWindow::whole(full_height, full_width);
    let mut out = vec![0; full_height * full_width];
    for noise in [false, true] {
        let planes = logits(height, width, noise);
        let plane = height * width;
        let pixels: Vec<f32> =
            (0..plane * CLASSES).map(|i| planes[i % CLASSES * plane + i / CLASSES]).collect();
        let narrow: Vec<bf16> = pixels.iter().map(|&value| bf16::from_f32(value)).collect();
        let mut argmax = ResizeArgmax::new(level, threads.count());
        let wide = PixelLogits::new(&pixels, CLASSES, CLASSES, height, width);
        let wide = best_of(15, || argmax.run(threads, wide, window, &mut out));
        let narrow = PixelLogits::new(&narrow, CLASSES, CLASSES, height, width);
        let narrow = best_of(15, || argmax.run(threads, narrow, window, &mut out));
        let mut portable = sapiens_kernels::ResizeArgmax::new();
        let planes = Logits::new(&planes, CLASSES, height, width);
        let portable = best_of(15, || portable.run(planes, window, 0..full_height, &mut out));
        println!(
            "{level:>10} labels {CLASSES} x {height} x {width} to {full_width} x {full_height}, {}: \
             f32 {:.2} ms, bf16 {:.2} ms, planes {:.2} ms",
            if noise { "noise" } else { "areas" },
            wide * 1e3,
            narrow * 1e3,
            portable * 1e3,
        );
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let mut threads = Threads::new(args.next().map_or(Ok(1), |count| count.parse())?)?;
    let levels = match args.next() {
        Some(name) => vec![Level::at_most(&name)?],
        None => Level::all_available(),
    };
    let shape = |tokens, heads, kv_heads, head_dim| AttentionShape { tokens, heads, kv_heads, head_dim };
    for &level in &levels {
        for bf16 in [true, false] {
            println!("{level}, bf16 {bf16}: {:.1} GFLOP/s from registers", peak(level, bf16) / 1e9);
        }
        let tries = if level == levels[0] { 8 } else { 4 };
        let cases = [
            ("0.3b", shape(3072, 16, 16, 64), None, tries),
            ("sapiens2-0.4b", shape(3081, 16, 8, 64), Some(9), tries),
            ("demo", shape(201, 6, 6, 32), Some(9), 100),
        ];
        for case in cases {
            attention::<bf16>(level, &mut threads, case);
            attention::<f32>(level, &mut threads, case);
        }
        norms::<bf16>(level, &mut threads);
        norms::<f32>(level, &mut threads);
        labels(level, &mut threads, (1024, 768), (1080, 1920));
        labels(level, &mut threads, (256, 192), (480, 640));
    }
    Ok(())
}
