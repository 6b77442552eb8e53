//! Norms on the GPU against the naive ones.

#![cfg(feature = "cuda")]
#![allow(clippy::unwrap_used, reason = "test code")]

mod support;

use sapiens_kernels::cuda::norm::{InstanceNorm, Norm};
use sapiens_kernels::cuda::product::MomentBlocks;
use sapiens_kernels::reference;
use support::gpu;

#[cfg_attr(test, test)]
pub(crate) fn norms_of_rows_agree_with_the_naive_ones() {
    gpu::each(|stream, precision| {
        let norm = Norm::new(stream.gpu(), precision).unwrap();
        // Far from zero, a variance from sums of squares would be lost; of tiny values epsilon is the larger part of it.
        let (far, tiny) = ((20.0, 3.0), (0.0, 5e-4));
        for (rows, columns, (mean, spread)) in [
            (1, 4, far),
            (3, 192, far),
            (3, 192, tiny),
            (2, 1024, far),
            (2, 1920, far),
            (1, 2432, far),
            (2, 4096, far),
        ] {
            let spread = spread * (columns as f32).sqrt();
            let x = support::generated("x", &[rows, columns, 1], 6);
            let x: Vec<f32> = x.iter().map(|x| mean + spread * x).collect();
            let weight = support::generated("norm.weight", &[columns], 6);
            let bias = support::generated("norm.bias", &[columns], 6);
            let device = [&x, &weight, &bias].map(|values| gpu::upload(stream, values));
            for biased in [true, false] {
                let expected = if biased {
                    reference::layer_norm(&x, &weight, &bias, 1e-6)
                } else {
                    reference::rms_norm(&x, &weight, 1e-6)
                };
                let mut out = gpu::poisoned(stream, x.len());
                let [x, weight, bias] = device.each_ref().map(|values| values.slice(..));
                norm.run(stream, x, weight, biased.then_some(bias), 1e-6, out.slice_mut(..)).unwrap();
                let actual = gpu::download_stored(stream, precision, &out);
                for (a, e) in actual.iter().zip(&expected) {
                    // Distances from the mean lose a digit.
                    let tolerance = gpu::rounding(precision) * e.abs() + 1e-5;
                    assert!(
                        (a - e).abs() <= tolerance,
                        "{precision:?}, {rows} x {columns}: {a} instead of {e}"
                    );
                }
            }
        }
    });
}

/// From moments as a product leaves them, of one product or of a ConvTranspose's four phases.
#[cfg_attr(test, test)]
pub(crate) fn instance_norms_agree_with_the_naive_ones() {
    gpu::each(|stream, precision| {
        let norm = InstanceNorm::new(stream.gpu(), precision).unwrap();
        for (phases, rows, block_rows, columns) in
            [(1, 1, 64, 8), (1, 130, 64, 40), (4, 100, 32, 24), (4, 4100, 64, 16)]
        {
            let what = format!("{precision:?}, {phases} x {rows} x {columns}");
            let values: Vec<f32> = support::generated("map", &[phases * rows, columns, 1], 6);
            // Channels with means of their own, some of them large.
            let values: Vec<f32> =
                values.iter().enumerate().map(|(i, x)| x * 2.0 + (i % columns) as f32).collect();
            let (mut x, exact) = gpu::stored(stream, precision, &values);
            let blocks = MomentBlocks { phases, rows, block_rows, columns };
            let mut moments = Vec::new();
            for phase in exact.chunks_exact(rows * columns) {
                for block in phase.chunks(block_rows * columns) {
                    let of =
                        |column: usize| block.iter().skip(column).step_by(columns).map(|&x| f64::from(x));
                    let count = (block.len() / columns) as f64;
                    let means: Vec<f64> =
                        (0..columns).map(|column| of(column).sum::<f64>() / count).collect();
                    moments.extend(means.iter().map(|&mean| mean as f32));
                    let squares =
                        |column: usize| of(column).map(|x| (x - means[column]).powi(2)).sum::<f64>();
                    moments.extend((0..columns).map(|column| squares(column) as f32));
                }
            }
            let moments = gpu::upload(stream, &moments);
            let mut statistics = gpu::poisoned(stream, 2 * columns);
            norm.run(stream, x.slice_mut(..), blocks, moments.slice(..), 1e-5, statistics.slice_mut(..))
                .unwrap();
            let actual = gpu::download_stored(stream, precision, &x);

            let pixels = phases * rows;
            let mut planes: Vec<f32> = (0..columns)
                .flat_map(|c| exact.iter().skip(c).step_by(columns).copied().collect::<Vec<_>>())
                .collect();
            reference::instance_norm(&mut planes, pixels, 1e-5);
            reference::silu(&mut planes);
            for (i, a) in actual.iter().enumerate() {
                let e = planes[i % columns * pixels + i / columns];
                let tolerance = gpu::rounding(precision) * e.abs() + 1e-4;
                assert!((a - e).abs() <= tolerance, "{what}: {a} at {i} instead of {e}");
            }
        }
    });
}
