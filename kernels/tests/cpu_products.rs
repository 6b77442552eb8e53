//! Products at every level of this CPU against the naive ones, at sizes around and far from those of tiles and blocks.
//!
//! Outputs are full of NaN before, and what lies behind them must be as it was.

#![allow(clippy::unwrap_used, reason = "test code")]

#[path = "support/levels.rs"]
mod levels;
mod support;

use half::bf16;
use levels::each_level;
use sapiens_kernels::cpu::product::{
    ConvTranspose, Epilogue, Moments, PATCH, Then, Weights, Workspace, conv_transpose, norm_silu, patch_rows,
    pixel_patches, product, product_norm_silu,
};
use sapiens_kernels::cpu::{Element, Level, Threads, probe};
use sapiens_kernels::{ImageRef, reference};
use support::generated;

/// Values after an output that nobody may touch.
const GUARD: usize = 64;

/// As [`each_level`], with memory to compute in.
fn at_every_level(check: impl Fn(Level, &mut Threads, &mut Workspace)) {
    each_level(|level, threads| check(level, threads, &mut Workspace::default()));
}

/// Values that the type holds exactly, so that sums alone can differ.
fn tensor<E: Element>(name: &str, shape: &[usize]) -> (Vec<E>, Vec<f32>) {
    let values: Vec<E> = generated(name, shape, 6).into_iter().map(E::from_f32).collect();
    let exact = values.iter().map(|value| value.to_f32()).collect();
    (values, exact)
}

/// Runs `f` on a guarded output that holds `before`, or NaN, and returns what it holds then.
fn guarded<O: Element>(len: usize, before: Option<&[f32]>, f: impl FnOnce(&mut [O])) -> Vec<f32> {
    let mut out = vec![O::NAN; len];
    if let Some(before) = before {
        out.iter_mut().zip(before).for_each(|(to, &from)| *to = O::from_f32(from));
    }
    out.extend((0..GUARD).map(|i| O::from_f32(i as f32)));
    f(&mut out[..len]);
    let guard = out.split_off(len);
    assert!(guard.iter().enumerate().all(|(i, value)| value.to_f32() == i as f32), "written past the end");
    out.into_iter().map(Element::to_f32).collect()
}

/// Float32 sums of `terms`, whose absolute values sum up to `magnitude`, differ from float64's by a few roundings of it,
/// growing like the root of their number; an output in bfloat16 is rounded once more, to 8 bits.
fn assert_close<O: Element>(what: &str, actual: &[f32], expected: &[f32], magnitude: &[f32]) {
    assert_eq!(actual.len(), expected.len(), "{what}");
    for (i, ((&a, &e), &magnitude)) in actual.iter().zip(expected).zip(magnitude).enumerate() {
        let rounding = if O::IS_BF16 { e.abs() / 256.0 } else { 0.0 };
        let tolerance = 1e-6 * magnitude + rounding + 1e-6;
        assert!((a - e).abs() <= tolerance, "{what}: {a} at {i} instead of {e}, {tolerance:e} allowed");
    }
}

/// `linear` of absolute values.
fn magnitudes(x: &[f32], weight: &[f32], k: usize) -> Vec<f32> {
    let absolute = |values: &[f32]| values.iter().map(|value| value.abs()).collect::<Vec<_>>();
    reference::linear(&absolute(x), &absolute(weight), None, k)
}

/// Every epilogue of one product.
fn check_product<A: Element, W: Element, O: Element>(
    level: Level,
    threads: &mut Threads,
    workspace: &mut Workspace,
    [m, n, k]: [usize; 3],
) {
    let what = |then: &str| {
        let types = [A::IS_BF16, W::IS_BF16, O::IS_BF16].map(|bf16| if bf16 { "bf16" } else { "f32" });
        format!("{level}, {} threads, {types:?}, {m} x {n} x {k}, {then}", threads.count())
    };
    let names = ["store", "bias", "gelu", "add", "scale", "moments", "swiglu"].map(what);
    let (x, mut exact_x) = tensor::<A>("x.weight", &[m, k]);
    let (_, weight) = tensor::<W>("w.weight", &[n, k]);
    if W::IS_BF16 {
        // What meets bfloat16 weights is rounded as they are.
        exact_x.iter_mut().for_each(|x| *x = bf16::from_f32(*x).to_f32());
    }
    let bias = generated("w.bias", &[n], 1);
    let gamma = generated("gamma.weight", &[n], 2);
    let (_, residual) = tensor::<O>("residual.bias", &[m, n]);
    let row = |index: usize, to: &mut [f32]| to.copy_from_slice(&weight[index * k..][..k]);
    let weights = Weights::<W>::pack(level, threads, n, k, row);
    assert_eq!((weights.inputs(), weights.outputs(), weights.level()), (k, n, level));

    let plain = reference::linear(&exact_x, &weight, None, k);
    let biased = reference::linear(&exact_x, &weight, Some(&bias), k);
    let magnitude = magnitudes(&exact_x, &weight, k);
    let mut run = |epilogue: Epilogue<'_>, before: Option<&[f32]>| {
        guarded::<O>(m * n, before, |out| product(threads, workspace, &x, &weights, epilogue, out))
    };
    let out = run(Epilogue::STORE, None);
    assert_close::<O>(&names[0], &out, &plain, &magnitude);
    let out = run(Epilogue::bias(&bias, Then::Store), None);
    assert_close::<O>(&names[1], &out, &biased, &magnitude);
    // GELU grows at most 1.13 times as fast as its argument.
    let mut expected = biased.clone();
    reference::gelu(&mut expected);
    let out = run(Epilogue::bias(&bias, Then::Gelu), None);
    assert_close::<O>(
        &names[2],
        &out,
        &expected,
        &magnitude.iter().map(|m| 1.13 * m + 1.0).collect::<Vec<_>>(),
    );
    let mut expected = residual.clone();
    reference::scale_residual(&mut expected, &biased, None);
    let out = run(Epilogue::bias(&bias, Then::Add), Some(&residual));
    assert_close::<O>(&names[3], &out, &expected, &magnitude);
    let mut expected = residual.clone();
    reference::scale_residual(&mut expected, &biased, Some(&gamma));
    let out = run(Epilogue::bias(&bias, Then::ScaleAdd(&gamma)), Some(&residual));
    assert_close::<O>(&names[4], &out, &expected, &magnitude.iter().map(|m| 1.25 * m).collect::<Vec<_>>());
    let mut moments = Moments::new(1e-5);
    let out = run(Epilogue::bias(&bias, Then::Moments(&mut moments)), None);
    assert_close::<O>(&names[5], &out, &biased, &magnitude);
    check_moments(&names[5], &moments, &biased, &magnitude, n);

    if n.is_multiple_of(2) {
        let weights = Weights::<W>::pack_gated(level, threads, n / 2, k, row);
        assert_eq!(weights.outputs(), n / 2);
        let out = guarded::<O>(m * n / 2, None, |out| {
            product(threads, workspace, &x, &weights, Epilogue::bias(&bias, Then::SwiGlu), out);
        });
        let expected = reference::swiglu(&biased, n / 2);
        // Each factor errs like a sum, times how large the other is; silu grows at most 1.1 times as fast as its argument.
        let magnitude: Vec<f32> = (0..m * n / 2)
            .map(|i| {
                let gate = i / (n / 2) * n + i % (n / 2);
                let value = gate + n / 2;
                1.1 * (magnitude[gate] + 1.0) * biased[value].abs()
                    + (magnitude[value] + 1.0) * biased[gate].abs()
            })
            .collect();
        assert_close::<O>(&names[6], &out, &expected, &magnitude);
    }
}

/// Means and deviations against float64 ones of the expected values. A sum of a tile's squares errs by some roundings.
fn check_moments(what: &str, moments: &Moments, values: &[f32], magnitude: &[f32], channels: usize) {
    let rows = (values.len() / channels) as f64;
    let largest = f64::from(magnitude.iter().copied().fold(1.0, f32::max));
    for channel in 0..channels {
        let column = || values.iter().skip(channel).step_by(channels).map(|&value| f64::from(value));
        let mean = column().sum::<f64>() / rows;
        let variance = column().map(|value| (value - mean).powi(2)).sum::<f64>() / rows;
        let actual = f64::from(moments.mean()[channel]);
        assert!((actual - mean).abs() <= 1e-6 * largest, "{what}: mean {actual} instead of {mean}");
        // Compared as variances, since a variance of nothing has an inverse that the least error moves.
        let actual = f64::from(moments.inverse()[channel]).powi(-2) - 1e-5;
        let tolerance = 2e-6 * (largest * largest + variance);
        assert!((actual - variance).abs() <= tolerance, "{what}: variance {actual} instead of {variance}");
    }
}

/// Both sides of every level's tile, of an odd pair, of one stretch of k and two, of several panels and blocks.
const SIZES: [[usize; 3]; 16] = [
    [1, 1, 1],
    [1, 2, 3],
    [2, 30, 5],
    [3, 31, 7],
    [5, 32, 8],
    [6, 33, 15],
    [7, 16, 16],
    [13, 17, 17],
    [14, 64, 31],
    [15, 66, 64],
    [29, 96, 65],
    [31, 128, 129],
    [64, 15, 257],
    [97, 50, 300],
    [401, 34, 33],
    [1, 302, 1030],
];

#[test]
fn float32_products() {
    at_every_level(|level, threads, workspace| {
        for size in SIZES {
            check_product::<f32, f32, f32>(level, threads, workspace, size);
        }
    });
}

#[test]
fn bfloat16_products() {
    at_every_level(|level, threads, workspace| {
        for size in SIZES {
            check_product::<bf16, bf16, f32>(level, threads, workspace, size);
            check_product::<bf16, bf16, bf16>(level, threads, workspace, size);
        }
    });
}

#[test]
fn products_of_mixed_types() {
    at_every_level(|level, threads, workspace| {
        for size in [[1, 1, 1], [7, 34, 5], [17, 40, 259], [60, 33, 64]] {
            check_product::<f32, bf16, f32>(level, threads, workspace, size);
            check_product::<f32, bf16, bf16>(level, threads, workspace, size);
            check_product::<bf16, f32, f32>(level, threads, workspace, size);
            check_product::<f32, f32, bf16>(level, threads, workspace, size);
        }
    });
}

#[test]
fn nothing_is_made_of_no_rows() {
    let mut threads = Threads::new(2).unwrap();
    let weights = Weights::<f32>::pack(Level::best(), &mut threads, 3, 4, |_, to| to.fill(1.0));
    product::<f32, f32, f32>(
        &mut threads,
        &mut Workspace::default(),
        &[],
        &weights,
        Epilogue::STORE,
        &mut [],
    );
}

/// What a product sums in which order has nothing to do with the number of threads.
#[test]
fn results_are_the_same_for_every_number_of_threads() {
    let [m, n, k] = [700, 70, 520];
    let x = generated("x.weight", &[m, k], 1);
    let weight = generated("w.weight", &[n, k], 2);
    for level in sapiens_stand_in_amx::levels() {
        let results = [1, 2, 5].map(|count| {
            let threads = &mut Threads::new(count).unwrap();
            let weights = Weights::<bf16>::pack(level, threads, n, k, |i, to| {
                to.copy_from_slice(&weight[i * k..][..k])
            });
            let mut moments = Moments::new(1e-5);
            let mut out = vec![f32::NAN; m * n];
            let epilogue = Epilogue { bias: None, then: Then::Moments(&mut moments) };
            product(threads, &mut Workspace::default(), &x, &weights, epilogue, &mut out);
            (out, moments.mean().to_vec(), moments.inverse().to_vec())
        });
        assert!(results[1..].iter().all(|result| *result == results[0]), "{level}");
    }
}

/// What products are measured against comes to its end at every level, those whose instructions are emulated included.
#[test]
fn the_probe_runs() {
    for level in sapiens_stand_in_amx::levels() {
        for bf16 in [false, true] {
            assert!(probe::run(level, bf16) > 1_000_000, "{level}");
        }
    }
}

/// `[c, pixels]` from `[pixels, c]`, and back with the sizes exchanged.
fn transposed(values: &[f32], columns: usize) -> Vec<f32> {
    let rows = values.len() / columns;
    (0..values.len()).map(|i| values[i % rows * columns + i / rows]).collect()
}

fn check_deconv<E: Element>(
    level: Level,
    threads: &mut Threads,
    workspace: &mut Workspace,
    [h, w, inputs, outputs]: [usize; 4],
) {
    let what = format!(
        "{level}, {} threads, bf16 {}, {h} x {w} x {inputs} to {outputs}",
        threads.count(),
        E::IS_BF16
    );
    let (x, exact_x) = tensor::<E>("x.weight", &[h * w, inputs]);
    let (_, weight) = tensor::<E>("deconv_layers.weight", &[inputs, outputs, 4, 4]);
    let weights = ConvTranspose::<E>::pack(level, threads, inputs, outputs, |input, to| {
        to.copy_from_slice(&weight[input * outputs * 16..][..outputs * 16]);
    });
    assert_eq!((weights.inputs(), weights.outputs()), (inputs, outputs));
    let planar = |x: &[f32], weight: &[f32]| {
        let out = reference::conv_transpose_k4s2p1(&transposed(x, inputs), h, w, weight, outputs);
        transposed(&out, 4 * h * w)
    };
    let absolute = |values: &[f32]| values.iter().map(|value| value.abs()).collect::<Vec<_>>();
    let expected = planar(&exact_x, &weight);
    let magnitude = planar(&absolute(&exact_x), &absolute(&weight));
    let mut moments = Moments::new(1e-5);
    let out = guarded::<f32>(expected.len(), None, |out| {
        let epilogue = Epilogue { bias: None, then: Then::Moments(&mut moments) };
        conv_transpose(threads, workspace, &x, [h, w], &weights, epilogue, out);
    });
    assert_close::<f32>(&what, &out, &expected, &magnitude);
    check_moments(&what, &moments, &expected, &magnitude, outputs);
}

/// Moments of products with different means in each channel.
fn some_moments(level: Level, threads: &mut Threads, workspace: &mut Workspace, channels: usize) -> Moments {
    let weights =
        Weights::<f32>::pack(level, threads, channels, 2, |i, to| to.copy_from_slice(&[1.0, i as f32 * 0.1]));
    let mut moments = Moments::new(1e-5);
    let mut out = vec![0.0; 3 * channels];
    let epilogue = Epilogue { bias: None, then: Then::Moments(&mut moments) };
    product(threads, workspace, &[0.5f32, 0.3, -0.2, 0.1, 0.9, 0.2], &weights, epilogue, &mut out);
    moments
}

fn naive_norm_silu<E: Element>(x: &mut [f32], moments: &Moments) {
    for pixel in x.chunks_exact_mut(moments.mean().len()) {
        for ((x, mean), inverse) in pixel.iter_mut().zip(moments.mean()).zip(moments.inverse()) {
            *x = (*x - mean) * inverse;
        }
    }
    reference::silu(x);
    x.iter_mut().for_each(|x| *x = E::from_f32(*x).to_f32());
}

#[test]
fn conv_transposes() {
    at_every_level(|level, threads, workspace| {
        for size in
            [[1, 1, 1, 1], [1, 2, 3, 5], [2, 3, 17, 31], [3, 5, 64, 33], [5, 7, 70, 24], [12, 11, 24, 40]]
        {
            check_deconv::<f32>(level, threads, workspace, size);
            check_deconv::<bf16>(level, threads, workspace, size);
        }
    });
}

#[test]
fn products_of_normed_rows() {
    fn check<E: Element>(
        level: Level,
        threads: &mut Threads,
        workspace: &mut Workspace,
        [m, n, k]: [usize; 3],
    ) {
        let (x, mut exact_x) = tensor::<E>("x.weight", &[m, k]);
        let (_, weight) = tensor::<E>("w.weight", &[n, k]);
        let row = |index: usize, to: &mut [f32]| to.copy_from_slice(&weight[index * k..][..k]);
        let weights = Weights::<E>::pack(level, threads, n, k, row);
        let norm = some_moments(level, threads, workspace, k);
        naive_norm_silu::<E>(&mut exact_x, &norm);
        let expected = reference::linear(&exact_x, &weight, None, k);
        let mut alone = x.clone();
        norm_silu(level, threads, &mut alone, &norm);
        let alone: Vec<f32> = alone.into_iter().map(Element::to_f32).collect();
        let ones = vec![4.0; alone.len()];
        assert_close::<E>(&format!("{level}, {m} x {k}, norm and silu alone"), &alone, &exact_x, &ones);
        // In bfloat16 a normed value may be rounded the other way than the naive one, by up to 1/128 of it.
        let slack = if E::IS_BF16 { 1e4 } else { 4.0 };
        let magnitude: Vec<f32> = magnitudes(&exact_x, &weight, k).iter().map(|m| slack * m).collect();
        let out = guarded::<f32>(m * n, None, |out| {
            product_norm_silu(threads, workspace, &x, &norm, &weights, Epilogue::STORE, out);
        });
        assert_close::<f32>(&format!("{level}, {m} x {n} x {k}, normed"), &out, &expected, &magnitude);
    }
    at_every_level(|level, threads, workspace| {
        for size in [[1, 1, 1], [15, 33, 7], [40, 28, 300], [201, 64, 64]] {
            check::<f32>(level, threads, workspace, size);
            check::<bf16>(level, threads, workspace, size);
        }
    });
}

/// Patches cut out and multiplied are the patch embedding.
#[test]
fn patch_embedding() {
    at_every_level(|level, threads, workspace| {
        for ([height, width], d) in [([16, 16], 3), ([32, 48], 40)] {
            let k = 3 * PATCH * PATCH;
            let image = generated("image.weight", &[3, height, width], 1);
            let weight = generated("projection.weight", &[d, 3, PATCH, PATCH], 2);
            let bias = generated("projection.bias", &[d], 3);
            let weights =
                Weights::<f32>::pack(level, threads, d, k, |i, to| to.copy_from_slice(&weight[i * k..][..k]));
            let mut rows = vec![f32::NAN; image.len()];
            patch_rows(threads, &image, [height, width], &mut rows);
            let out = guarded::<f32>(image.len() / k * d, None, |out| {
                product(threads, workspace, &rows, &weights, Epilogue::bias(&bias, Then::Store), out);
            });
            let expected = reference::patch_embed(&image, height, width, &weight, &bias);
            assert_close::<f32>(&format!("{level}"), &out, &expected, &magnitudes(&rows, &weight, k));
            let mut rounded = vec![bf16::NAN; image.len()];
            patch_rows(threads, &image, [height, width], &mut rounded);
            assert!(rounded.iter().zip(&rows).all(|(a, &b)| *a == bf16::from_f32(b)));
        }
    });
}

/// Patches straight from pixels are those of the canvas that holds them.
#[test]
fn patches_of_pixels() {
    let levels: [[f32; 256]; 3] =
        std::array::from_fn(|channel| std::array::from_fn(|level| level as f32 * 0.017 - channel as f32));
    for ([height, width], [canvas_height, canvas_width]) in [
        ([1, 1], [16, 16]),
        ([16, 16], [16, 16]),
        ([17, 31], [32, 32]),
        ([20, 5], [48, 64]),
        ([45, 61], [64, 64]),
    ] {
        let stride = 3 * width + 7;
        let pixels: Vec<u8> = (0..stride * height).map(|i| ((i * 40_503) >> 5) as u8).collect();
        let mut canvas = vec![0.0; 3 * canvas_height * canvas_width];
        for (channel, plane) in canvas.chunks_exact_mut(canvas_height * canvas_width).enumerate() {
            for (y, row) in plane.chunks_exact_mut(canvas_width).take(height).enumerate() {
                for (x, value) in row.iter_mut().take(width).enumerate() {
                    *value = levels[channel][usize::from(pixels[y * stride + 3 * x + channel])];
                }
            }
        }
        for count in [1, 3] {
            let threads = &mut Threads::new(count).unwrap();
            let mut expected = vec![bf16::NAN; canvas.len()];
            patch_rows(threads, &canvas, [canvas_height, canvas_width], &mut expected);
            let rounded = levels.map(|levels| levels.map(bf16::from_f32));
            let image = ImageRef::new(&pixels, width, height, stride);
            let found = guarded::<bf16>(canvas.len(), None, |rows| {
                pixel_patches(threads, image, &rounded, [canvas_height, canvas_width], rows);
            });
            let equal = found.iter().zip(&expected).all(|(a, b)| *a == b.to_f32());
            assert!(equal, "{width} x {height} on {canvas_width} x {canvas_height}");
        }
    }
}
