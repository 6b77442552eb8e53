//! LayerNorm and RMSNorm at every level of this CPU against the naive ones. Outputs are full of NaN before, and what lies
//! behind them must be as it was.

#[path = "support/levels.rs"]
mod levels;
mod support;

use half::bf16;
use levels::each_level;
use sapiens_kernels::cpu::{Element, layer_norm, rms_norm};
use sapiens_kernels::reference;
use support::{generated, stored, written};

/// Float32 sums over a row, in some dozens of parts, and as many roundings per value as there are steps; an output in
/// bfloat16 is rounded once more, to 8 bits.
fn assert_close<O: Element>(what: &str, actual: &[f32], expected: &[f32]) {
    for (&a, &e) in actual.iter().zip(expected) {
        let tolerance = 2e-6 * (1.0 + e.abs()) + if O::IS_BF16 { e.abs() / 256.0 } else { 0.0 };
        assert!((a - e).abs() <= tolerance, "{what}: {a}, not {e}");
    }
}

fn equal_the_naive_ones<E: Element, O: Element>() {
    for channels in [1, 2, 4, 15, 16, 17, 63, 64, 65, 67, 192, 1024, 1280, 1920, 2431] {
        for rows in [1, 2, 9, 15, 17, 201] {
            let (x, exact) = stored::<E>("x", rows * channels, 3.0);
            let (weight, bias) = (generated("w", &[channels], 6), generated("w.bias", &[channels], 6));
            let layer = reference::layer_norm(&exact, &weight, &bias, 1e-6);
            let rms = reference::rms_norm(&exact, &weight, 1e-6);
            each_level(|level, threads| {
                let what = format!("{level}, {rows} rows of {channels}");
                let actual = written::<O>(x.len(), |out| {
                    layer_norm(level, threads, &x, (&weight, &bias), 1e-6, out);
                });
                assert_close::<O>(&format!("layer_norm, {what}"), &actual, &layer);
                let actual = written::<O>(x.len(), |out| rms_norm(level, threads, &x, &weight, 1e-6, out));
                assert_close::<O>(&format!("rms_norm, {what}"), &actual, &rms);
            });
        }
    }
}

#[test]
fn float32() {
    equal_the_naive_ones::<f32, f32>();
    equal_the_naive_ones::<f32, bf16>();
}

#[test]
fn bfloat16() {
    equal_the_naive_ones::<bf16, bf16>();
    equal_the_naive_ones::<bf16, f32>();
}

#[test]
fn a_mean_far_from_zero_costs_no_more_than_the_values_own_rounding() {
    let channels = 1024;
    let x: Vec<f32> = generated("x", &[channels, 1], 6).into_iter().map(|x| x * 20.0 + 1000.0).collect();
    let (weight, bias) = (vec![1.0; channels], vec![0.0; channels]);
    let expected = reference::layer_norm(&x, &weight, &bias, 1e-6);
    each_level(|level, threads| {
        let actual = written::<f32>(channels, |out| {
            layer_norm(level, threads, &x, (&weight, &bias), 1e-6, out);
        });
        // The mean is off by a rounding of 1000, 6e-5, in units of the deviation, which is about 0.6.
        let (max, _) = support::difference(&actual, &expected);
        assert!(max <= 2e-4, "{level}: {max:e}");
    });
}
