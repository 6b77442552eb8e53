//! What products cost at the shapes of the networks, at every level of this CPU, on one thread and on several.
//!
//! `cargo run --release -p sapiens-kernels --example cpu_products [threads] [product] [level]`. Shares are of a probe: the same
//! multiply-add from registers alone, on one thread, timed in the same run.
#![allow(unsafe_code, clippy::print_stdout, clippy::unwrap_used)]

use std::time::Instant;

use half::bf16;
use sapiens_kernels::cpu::product::{
    ConvTranspose, Epilogue, Moments, Then, Weights, Workspace, conv_transpose, norm_silu, product,
    product_norm_silu,
};
use sapiens_kernels::cpu::{Element, Level, Threads, probe};

fn main() {
    let mut arguments = std::env::args().skip(1);
    let count = arguments.next().map_or(1, |count| count.parse().unwrap());
    let filter = arguments.next().unwrap_or_default();
    let only = arguments.next();
    println!("{:<11}{:<6}{:<34}{:>3} thr{:>10} GFLOP/s{:>9}", "level", "type", "product", "", "", "of peak");
    for level in Level::all_available() {
        if only.as_ref().is_some_and(|only| only != level.name()) {
            continue;
        }
        for threads in if count == 1 { vec![1] } else { vec![1, count] } {
            let mut bench = Bench {
                level,
                threads: Threads::new(threads).unwrap(),
                workspace: Workspace::default(),
                filter: &filter,
            };
            bench.all::<f32>("f32");
            bench.all::<bf16>("bf16");
        }
    }
}

struct Bench<'a> {
    level: Level,
    threads: Threads,
    workspace: Workspace,
    filter: &'a str,
}

fn value(i: usize) -> f32 {
    ((i as u32).wrapping_mul(0x9E37_79B1) >> 8) as f32 / 8_388_608.0 - 1.0
}

fn values<E: Element>(len: usize) -> Vec<E> {
    (0..len).map(|i| E::from_f32(value(i))).collect()
}

impl Bench<'_> {
    fn all<E: Element>(&mut self, kind: &str) {
        self.linear::<E>(kind, "0.3b proj, residual", [3072, 1024, 1024], |b| Epilogue::bias(b, Then::Add));
        self.linear::<E>(kind, "0.3b ffn 0, gelu", [3072, 4096, 1024], |b| Epilogue::bias(b, Then::Gelu));
        self.linear::<E>(kind, "0.3b ffn 1, residual", [3072, 1024, 4096], |b| Epilogue::bias(b, Then::Add));
        self.linear::<E>(kind, "sapiens2 w12, swiglu", [3081, 8192, 1024], |b| {
            Epilogue::bias(b, Then::SwiGlu)
        });
        self.linear::<E>(kind, "0.3b patches", [3072, 1024, 768], |b| Epilogue::bias(b, Then::Store));
        self.deconv::<E>(kind, "0.3b deconv 3", [128, 96], 768, 768);
        self.deconv::<E>(kind, "sapiens2 deconv 4", [256, 192], 128, 64);
        self.conv1x1::<E>(kind, "0.3b conv 1x1", [128 * 96, 768]);
        self.conv1x1::<E>(kind, "sapiens2 conv 1x1", [512 * 384, 64]);
        self.linear::<E>(kind, "demo qkv", [201, 576, 192], |b| Epilogue::bias(b, Then::Store));
        self.linear::<E>(kind, "demo ffn, gelu", [201, 384, 192], |b| Epilogue::bias(b, Then::Gelu));
        self.deconv::<E>(kind, "demo deconv 1", [16, 12], 192, 96);
        self.deconv::<E>(kind, "demo deconv 2", [32, 24], 96, 64);
        self.deconv::<E>(kind, "demo deconv 4", [128, 96], 32, 24);
        self.conv1x1::<E>(kind, "demo conv 1x1", [320 * 240, 24]);
    }

    fn linear<E: Element>(
        &mut self,
        kind: &str,
        name: &str,
        [m, n, k]: [usize; 3],
        epilogue: impl Fn(&[f32]) -> Epilogue<'_>,
    ) {
        if !name.contains(self.filter) {
            return;
        }
        let x = values::<E>(m * k);
        let bias = values::<f32>(n);
        let gated = matches!(epilogue(&bias).then, Then::SwiGlu);
        let row = |index: usize, to: &mut [f32]| {
            to.iter_mut().enumerate().for_each(|(i, to)| *to = value(index * k + i) * 0.05)
        };
        let weights = if gated {
            Weights::<E>::pack_gated(self.level, &mut self.threads, n / 2, k, row)
        } else {
            Weights::<E>::pack(self.level, &mut self.threads, n, k, row)
        };
        let mut out = vec![E::default(); m * weights.outputs()];
        let one = self.threads.count() == 1;
        let Self { threads, workspace, .. } = self;
        let times = time(self.level, E::IS_BF16, one, || {
            product(threads, workspace, &x, &weights, epilogue(&bias), &mut out);
        });
        self.print(kind, &format!("{name} {m}x{n}x{k}"), 2.0 * (m * n * k) as f64, times);
    }

    fn deconv<E: Element>(
        &mut self,
        kind: &str,
        name: &str,
        [h, w]: [usize; 2],
        inputs: usize,
        outputs: usize,
    ) {
        if !name.contains(self.filter) {
            return;
        }
        let x = values::<E>(h * w * inputs);
        let weights =
            ConvTranspose::<E>::pack(self.level, &mut self.threads, inputs, outputs, |input, to| {
                to.iter_mut().enumerate().for_each(|(i, to)| *to = value(input * outputs * 16 + i) * 0.05);
            });
        let level = self.level;
        let mut out = vec![E::default(); 4 * h * w * outputs];
        let mut moments = Moments::new(1e-5);
        let one = self.threads.count() == 1;
        let Self { threads, workspace, .. } = self;
        let flop = 2.0 * (4 * h * w * 4 * inputs * outputs) as f64;
        let times = time(self.level, E::IS_BF16, one, || {
            let epilogue = Epilogue { bias: None, then: Then::Moments(&mut moments) };
            conv_transpose(threads, workspace, &x, [h, w], &weights, epilogue, &mut out);
        });
        self.print(kind, &format!("{name} {h}x{w}x{inputs}>{outputs}"), flop, times);
        let values = (4 * h * w * outputs) as f64;
        let Self { threads, .. } = self;
        let (seconds, _) = time(level, E::IS_BF16, one, || norm_silu(level, threads, &mut out, &moments));
        println!(
            "{:>80}{:>10.2} ms, {:.2} ns a value",
            "norm + silu after it",
            seconds * 1e3,
            seconds * 1e9 / values
        );
    }

    fn conv1x1<E: Element>(&mut self, kind: &str, name: &str, [m, k]: [usize; 2]) {
        if !name.contains(self.filter) {
            return;
        }
        let n = k;
        let x = values::<E>(m * k);
        let row = |index: usize, to: &mut [f32]| {
            to.iter_mut().enumerate().for_each(|(i, to)| *to = value(index * k + i) * 0.05)
        };
        let weights = Weights::<E>::pack(self.level, &mut self.threads, n, k, row);
        let mut out = vec![E::default(); m * n];
        let mut norm = Moments::new(1e-5);
        let mut moments = Moments::new(1e-5);
        let one = self.threads.count() == 1;
        let Self { threads, workspace, .. } = self;
        let plain = time(self.level, E::IS_BF16, one, || {
            let epilogue = Epilogue { bias: None, then: Then::Moments(&mut norm) };
            product(threads, workspace, &x, &weights, epilogue, &mut out);
        });
        let on_load = time(self.level, E::IS_BF16, one, || {
            let epilogue = Epilogue { bias: None, then: Then::Moments(&mut moments) };
            product_norm_silu(threads, workspace, &x, &norm, &weights, epilogue, &mut out);
        });
        let flop = 2.0 * (m * n * k) as f64;
        self.print(kind, &format!("{name} {m}x{n}x{k}"), flop, plain);
        self.print(kind, &format!("{name}, norm + silu on load"), flop, on_load);
    }

    fn print(&self, kind: &str, name: &str, flop: f64, (seconds, peak): (f64, f64)) {
        let (level, count) = (self.level, self.threads.count());
        let speed = flop / seconds / 1e9;
        let share = speed / peak / count as f64 * 100.0;
        println!(
            "{level:<11}{kind:<6}{name:<38}{count:>2}{speed:>10.1}{share:>13.0} %   {:.2} ms",
            seconds * 1e3
        );
    }
}

/// The best time of several, and the best GFLOP/s of the probe, taken in turns. One thread's is its time on the processor,
/// so that other programs disturb it little; several threads' is by the clock.
fn time(level: Level, bf16: bool, one: bool, mut run: impl FnMut()) -> (f64, f64) {
    run();
    let (mut best, mut peak) = (f64::INFINITY, 0.0f64);
    let begin = Instant::now();
    let mut rounds = 0;
    while rounds < 3 || begin.elapsed().as_secs_f64() < 0.5 {
        let start = seconds(one);
        run();
        best = best.min(seconds(one) - start);
        let start = seconds(true);
        let operations = probe::run(level, bf16);
        peak = peak.max(operations as f64 / (seconds(true) - start) / 1e9);
        rounds += 1;
    }
    (best, peak)
}

/// This thread's time on the processor, or the clock's.
fn seconds(of_thread: bool) -> f64 {
    let clock = if of_thread { libc::CLOCK_THREAD_CPUTIME_ID } else { libc::CLOCK_MONOTONIC };
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a place for the answer.
    assert_eq!(unsafe { libc::clock_gettime(clock, &mut now) }, 0);
    now.tv_sec as f64 + now.tv_nsec as f64 * 1e-9
}
