//! The words that the kernels are written in: on the stand-in this holds the emulator, on a card the PTX, against the same
//! expectations.

#![cfg(feature = "cuda-check")]
#![allow(clippy::unwrap_used, reason = "test code")]

mod support;

use half::{bf16, f16};
use sapiens_kernels::cuda::words::{RESULTS, Words};
use sapiens_kernels::cuda::{Precision, Stream};
use support::gpu;

/// What each lane gets.
fn run(stream: &Stream, words: Words, input: &[u32]) -> Vec<[u32; 8]> {
    let input = gpu::upload(stream, input);
    let mut out = gpu::poisoned(stream, RESULTS);
    words.run(stream, input.slice(..), out.slice_mut(..)).unwrap();
    gpu::download(stream, &out).as_chunks().0.to_vec()
}

fn on_every_device(check: impl Fn(&Stream)) {
    for gpu in gpu::all() {
        check(&Stream::new(&gpu).unwrap());
    }
}

/// Values of all sizes, some of them halfway between two that 16 bits can hold.
fn values(count: usize) -> Vec<f32> {
    let special = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        1.0 + f32::powi(2.0, -11),
        1.0 + 3.0 * f32::powi(2.0, -11),
        1.0 + f32::powi(2.0, -8),
        1.0 + 3.0 * f32::powi(2.0, -8),
        65504.0,
        65520.0,
        1e-5,
        6e-8,
        1e30,
        f32::INFINITY,
        f32::NEG_INFINITY,
    ];
    let random = support::generated("words", &[count, 3], 6);
    let spread = random.iter().enumerate().map(|(i, x)| x * f32::powi(2.0, i as i32 % 24 - 12));
    special.into_iter().chain(spread).take(count).collect()
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|x| x.to_bits()).collect()
}

#[cfg_attr(test, test)]
pub(crate) fn conversions_round_to_even() {
    on_every_device(|stream| {
        let values = values(64);
        let half = |x: f32| u32::from(f16::from_f32(x).to_bits());
        let brain = |x: f32| u32::from(bf16::from_f32(x).to_bits());
        let wide_half = |x: f32| f16::from_f32(x).to_f32().to_bits();
        let wide_brain = |x: f32| bf16::from_f32(x).to_f32().to_bits();
        for (lane, got) in run(stream, Words::Convert, &bits(&values)).iter().enumerate() {
            let [low, high] = [values[2 * lane], values[2 * lane + 1]];
            let expected = [
                half(low) | half(high) << 16,
                half(low),
                wide_half(low),
                wide_half(high),
                brain(low),
                wide_brain(low),
                brain(low) | brain(high) << 16,
                wide_brain(high),
            ];
            assert_eq!(*got, expected, "{low} and {high}");
        }
    });
}

#[cfg_attr(test, test)]
pub(crate) fn functions_are_as_exact_as_they_say() {
    on_every_device(|stream| {
        // Denormal results are zero on the device, and far from where the networks are.
        let values: Vec<f32> =
            values(47).into_iter().filter(|x| x.is_finite() && x.abs() < 100.0).take(32).collect();
        assert_eq!(values.len(), 32);
        for (&x, got) in values.iter().zip(run(stream, Words::Functions, &bits(&values))) {
            let got = got.map(f32::from_bits);
            // Two units of the last place and the other way of counting them.
            let close = |a: f32, b: f32| a == b || (a - b).abs() <= 4e-7 * b.abs();
            assert!(close(got[0], x.exp2()), "2^{x} is {}", got[0]);
            // Denormals are taken for zero.
            assert!(x.abs() < 1e-37 || close(got[1], 1.0 / x), "1 / {x} is {}", got[1]);
            assert!(close(got[2], 1.0 / (x * x + 1.0).sqrt()), "1 / sqrt({x}^2 + 1) is {}", got[2]);
            let gelu_at = |x: f32| {
                let mut y = [x * std::f32::consts::SQRT_2];
                sapiens_kernels::reference::gelu(&mut y);
                y[0]
            };
            // erf by way of the naive GELU, which is x/2 (1 + erf(x / sqrt 2)).
            let erf = if x.abs() < 1e-3 {
                x * std::f32::consts::FRAC_2_SQRT_PI
            } else {
                2.0 * gelu_at(x) / (x * std::f32::consts::SQRT_2) - 1.0
            };
            assert!((got[3] - erf).abs() <= 2e-6, "erf({x}) is {} instead of {erf}", got[3]);
            let exact = [x * 1.1, x * 1.1 + 0.3, x / 1.1, x.mul_add(1.1, 0.3)];
            assert_eq!(got[4..], exact, "of {x}");
        }
    });
}

#[cfg_attr(test, test)]
pub(crate) fn lanes_exchange_values() {
    on_every_device(|stream| {
        let values: Vec<f32> = (0..32).map(|i| (i * i) as f32 - 100.0).collect();
        for (lane, got) in run(stream, Words::Exchange, &bits(&values)).iter().enumerate() {
            for (bit, &got) in got[..5].iter().enumerate() {
                assert_eq!(f32::from_bits(got), values[lane ^ (1 << bit)], "lane {lane}, bit {bit}");
            }
            assert_eq!(f32::from_bits(got[5]), values.iter().sum::<f32>(), "lane {lane}");
            assert_eq!(f32::from_bits(got[6]), values[lane], "lane {lane}");
            assert_eq!(got[7], lane as u32);
        }
    });
}

#[cfg_attr(test, test)]
pub(crate) fn matrices_are_spread_over_lanes() {
    on_every_device(|stream| {
        // Value (m, row, column) says where it is.
        let at = |m: u32, row: u32, column: u32| m << 8 | row << 4 | column;
        let input: Vec<u32> = (0..128)
            .map(|i| {
                let (m, row, column) = (i / 32, i / 4 % 8, i % 4 * 2);
                at(m, row, column) | at(m, row, column + 1) << 16
            })
            .collect();
        for (lane, got) in run(stream, Words::Matrices, &input).iter().enumerate() {
            let (row, column) = (lane as u32 / 4, lane as u32 % 4 * 2);
            for m in 0..4 {
                let expected = at(m, row, column) | at(m, row, column + 1) << 16;
                assert_eq!(got[m as usize], expected, "matrix {m}, lane {lane}");
                let expected = at(m, column, row) | at(m, column + 1, row) << 16;
                assert_eq!(got[4 + m as usize], expected, "transposed matrix {m}, lane {lane}");
            }
        }
    });
}

#[cfg_attr(test, test)]
pub(crate) fn copies_arrive_or_are_zero() {
    on_every_device(|stream| {
        let input: Vec<u32> = (1..=128).collect();
        for (lane, got) in run(stream, Words::Copies, &input).iter().enumerate() {
            let other = lane ^ 1;
            for i in 0..4 {
                let expected = if other.is_multiple_of(3) { 0 } else { input[4 * other + i] };
                assert_eq!(got[i], expected, "16 bytes of lane {other}");
            }
            for i in 0..2 {
                let expected = if other % 3 == 1 { 0 } else { input[2 * other + i] };
                assert_eq!(got[4 + i], expected, "8 bytes of lane {other}");
            }
        }
    });
}

#[cfg_attr(test, test)]
pub(crate) fn matrices_are_multiplied() {
    gpu::each(|stream, precision| {
        let a = support::generated("a", &[16, 32, 1], 6);
        let b = support::generated("b", &[32, 8, 1], 6);
        let d = support::generated("d", &[16, 8, 1], 6);
        let stored = |x: f32| u32::from(precision.encode(3.0 * x));
        let pair = |low: f32, high: f32| stored(low) | stored(high) << 16;
        let mut input = Vec::new();
        for lane in 0..32 {
            let (group, two) = (lane / 4, lane % 4 * 2);
            for i in 0..8 {
                let at = (group + i % 2 * 8) * 32 + i / 4 * 16 + i % 4 / 2 * 8 + two;
                input.push(pair(a[at], a[at + 1]));
            }
            for i in 0..4 {
                let row = i * 8 + two;
                input.push(pair(b[row * 8 + group], b[(row + 1) * 8 + group]));
            }
            for i in 0..4 {
                input.push(d[(group + i / 2 * 8) * 8 + two + i % 2].to_bits());
            }
        }
        let exact = |x: f32| f64::from(precision.decode(precision.encode(3.0 * x)));
        for (lane, got) in run(stream, Words::Multiply(precision), &input).iter().enumerate() {
            for (i, &got) in got[..4].iter().enumerate() {
                let (row, column) = (lane / 4 + i / 2 * 8, lane % 4 * 2 + i % 2);
                let terms = (0..32).map(|k| exact(a[row * 32 + k]) * exact(b[k * 8 + column]));
                let (sum, magnitude) = terms.fold((0.0, 0.0), |(sum, size), x| (sum + x, size + x.abs()));
                let expected = sum + f64::from(d[row * 8 + column]);
                let off = (f64::from(f32::from_bits(got)) - expected).abs();
                let allowed = f64::from(gpu::sum_error(precision)) * magnitude + 1e-6;
                assert!(
                    off <= allowed,
                    "{precision:?}: ({row}, {column}) is off by {off:e}, {allowed:e} allowed"
                );
            }
            assert_eq!(got[4..], [u32::MAX; 4], "written past the end");
        }
        // Sums in float16 must show: else it would not be they that are tested.
        if precision == Precision::F16Promoted {
            let large: Vec<u32> = (0..32)
                .flat_map(|_| {
                    let ones = pair(1.0 / 3.0, 1.0 / 3.0);
                    let mut lane = vec![ones; 8];
                    lane.extend([pair(2048.0 / 3.0, 1.0 / 3.0); 4]);
                    lane.extend([0; 4]);
                    lane
                })
                .collect();
            // Beside thousands ones are lost in float16, and not in float32.
            for got in run(stream, Words::Multiply(precision), &large) {
                assert_eq!(f32::from_bits(got[0]), 16.0 * 2048.0);
            }
        }
    });
}
