//! Products and ConvTransposes on the GPU against the naive ones: every tile, every precision, everything that can follow, at sizes
//! around and far from those of tiles; and products by cuBLASLt, where there is one. Outputs are no numbers before.

#![cfg(feature = "cuda")]
#![allow(clippy::unwrap_used, reason = "test code")]

mod support;

use sapiens_kernels::cuda::product::{Linear, Map, MomentBlocks, Out, Products, Rows, Then, deconv_weights};
use sapiens_kernels::cuda::{Buffer, CudaError, Precision, Stream};
use sapiens_kernels::reference;
use support::gpu;

/// Runs a check with every tile that each device has.
fn with_every_tile(mut check: impl FnMut(&Stream, &Products, &str)) {
    gpu::each(|stream, precision| {
        let all = Products::new(stream.gpu(), precision).unwrap();
        let wanted = |[rows, columns]: &[u32; 2]| {
            gpu::is_wanted("SAPIENS_TEST_INSTANCE", &format!("{rows}x{columns}"))
        };
        for tile in all.tiles().into_iter().filter(wanted) {
            let only = Products::new(stream.gpu(), precision).unwrap().limited_to(tile);
            let capability = stream.gpu().properties().capability;
            check(stream, &only, &format!("{capability}, {precision:?}, {tile:?}"));
        }
    });
}

/// A device's products by cuBLASLt, or None where there is none: on a card whose machine lacks it.
fn with_cublaslt(stream: &Stream, precision: Precision) -> Option<Products> {
    sapiens_stand_in_loader::open_cublaslt();
    match Products::new(stream.gpu(), precision).unwrap().with_cublaslt(stream.gpu()) {
        Err(error @ (CudaError::NoCublasLt { .. } | CudaError::CublasLtVersion { .. }))
            if sapiens_stand_in_loader::wants_card() =>
        {
            eprintln!("skipped: {error}");
            None
        }
        products => Some(products.unwrap()),
    }
}

/// Each value within the rounding of its sum and of its stored form; `slope` is how much what follows stretches errors.
fn assert_close(
    what: &str,
    precision: Precision,
    stored: bool,
    slope: f32,
    actual: &[f32],
    expected: &[f32],
    magnitude: &[f32],
) {
    assert_eq!(actual.len(), expected.len(), "{what}");
    for (i, ((&a, &e), &magnitude)) in actual.iter().zip(expected).zip(magnitude).enumerate() {
        let rounding = if stored { gpu::rounding(precision) * e.abs() + 1e-7 } else { 1e-6 };
        let tolerance = slope * gpu::sum_error(precision) * magnitude + rounding + 1e-6;
        assert!((a - e).abs() <= tolerance, "{what}: {a} at {i} instead of {e}, {tolerance:e} allowed");
    }
}

/// `linear` of absolute values.
fn magnitudes(x: &[f32], weights: &[f32], depth: usize) -> Vec<f32> {
    let absolute = |values: &[f32]| values.iter().map(|value| value.abs()).collect::<Vec<_>>();
    reference::linear(&absolute(x), &absolute(weights), None, depth)
}

struct Operands {
    x: Buffer<u16>,
    exact: Vec<f32>,
    weights: Buffer<u16>,
    exact_weights: Vec<f32>,
    bias: Vec<f32>,
    size: [usize; 3],
    stride: usize,
}

impl Operands {
    /// Rows of `x` with a gap between them that holds no numbers.
    fn new(stream: &Stream, precision: Precision, size @ [rows, columns, depth]: [usize; 3]) -> Self {
        let stride = depth + 8;
        let exact: Vec<f32> = support::generated("x", &[rows, depth, 1], 6);
        let exact: Vec<f32> = exact.iter().map(|&x| precision.decode(precision.encode(x * 10.0))).collect();
        let mut bits = vec![0xFFFF; rows * stride];
        for (to, from) in bits.chunks_exact_mut(stride).zip(exact.chunks_exact(depth)) {
            to.iter_mut().zip(from).for_each(|(to, &from)| *to = precision.encode(from));
        }
        let (weights, exact_weights) = gpu::generated(stream, precision, "weights", &[columns, depth]);
        let bias = support::generated("b.bias", &[columns], 6);
        Self { x: gpu::upload(stream, &bits), exact, weights, exact_weights, bias, size, stride }
    }

    fn rows(&self) -> Rows<'_> {
        let [rows, _, depth] = self.size;
        Rows { values: self.x.slice(..), rows, depth, stride: self.stride }
    }

    fn naive(&self, bias: bool) -> Vec<f32> {
        reference::linear(&self.exact, &self.exact_weights, bias.then_some(&self.bias), self.size[2])
    }
}

fn out<T: sapiens_kernels::cuda::Plain>(buffer: &mut Buffer<T>, stride: usize) -> Out<'_, T> {
    Out { values: buffer.slice_mut(..), stride }
}

/// Everything that can follow one product.
fn check_product(
    stream: &Stream,
    products: &Products,
    what: &str,
    size @ [rows, columns, depth]: [usize; 3],
) {
    let precision = products.precision();
    let mut room = products.cublaslt().map(|cublaslt| cublaslt.room(rows * columns).unwrap());
    let operands = Operands::new(stream, precision, size);
    let magnitude = magnitudes(&operands.exact, &operands.exact_weights, depth);
    let bias = gpu::upload(stream, &operands.bias);
    let linear = |bias| Linear { weights: operands.weights.slice(..), bias, columns };
    let biased = linear(Some(bias.slice(..)));
    let what = |then: &str| format!("{what}, {rows} x {columns} x {depth}, {then}");
    let (plain, raw) = (operands.naive(true), operands.naive(false));
    // By cuBLASLt a bias is rounded before it is added, or the product before anything follows it.
    let sixteen_bits =
        if room.is_some() { gpu::rounding(precision) / gpu::sum_error(precision) } else { 0.0 };
    let stages = raw.iter().zip(operands.bias.iter().cycle()).map(|(x, bias)| x.abs() + bias.abs());
    let coarse: Vec<f32> =
        magnitude.iter().zip(stages).map(|(magnitude, size)| magnitude + sixteen_bits * size).collect();

    let mut stored = gpu::poisoned(stream, rows * columns);
    products
        .product(stream, operands.rows(), biased, Then::Store(out(&mut stored, columns)), room.as_mut())
        .unwrap();
    let actual = gpu::download_stored(stream, precision, &stored);
    assert_close(&what("store"), precision, true, 1.0, &actual, &plain, &coarse);

    let mut wide = gpu::poisoned(stream, rows * columns);
    products
        .product(stream, operands.rows(), biased, Then::StoreF32(out(&mut wide, columns)), room.as_mut())
        .unwrap();
    assert_close(
        &what("store f32"),
        precision,
        false,
        1.0,
        &gpu::download(stream, &wide),
        &plain,
        &magnitude,
    );

    let mut stored = gpu::poisoned(stream, rows * columns);
    products
        .product(stream, operands.rows(), biased, Then::Gelu(out(&mut stored, columns)), room.as_mut())
        .unwrap();
    let mut expected = plain.clone();
    reference::gelu(&mut expected);
    let actual = gpu::download_stored(stream, precision, &stored);
    // GELU's slope is at most 1.13.
    assert_close(&what("gelu"), precision, true, 1.2, &actual, &expected, &coarse);

    let mut stored = gpu::poisoned(stream, rows * columns / 2);
    products
        .product(stream, operands.rows(), biased, Then::SwiGlu(out(&mut stored, columns / 2)), room.as_mut())
        .unwrap();
    let halves = |x: &[f32]| -> Vec<f32> {
        let rows = x.chunks_exact(columns);
        rows.flat_map(|row| row.iter().step_by(2).chain(row.iter().skip(1).step_by(2)).copied()).collect()
    };
    let expected = reference::swiglu(&halves(&plain), columns / 2);
    // Of a product, each factor's error is stretched by the other.
    let slopes: Vec<f32> = plain
        .chunks_exact(2)
        .zip(coarse.chunks_exact(2))
        .map(|(x, m)| m[0] * x[1].abs() * 1.2 + m[1] * x[0].abs() + gpu::sum_error(precision) * m[0] * m[1])
        .collect();
    let actual = gpu::download_stored(stream, precision, &stored);
    assert_close(&what("swiglu"), precision, true, 1.0, &actual, &expected, &slopes);

    for scaled in [false, true] {
        let before = support::generated("before", &[rows, columns], 6);
        let scales = support::generated("gamma", &[columns], 6);
        let (mut sum, scale) = (gpu::upload(stream, &before), gpu::upload(stream, &scales));
        let then = Then::Add(out(&mut sum, columns), scaled.then(|| scale.slice(..)));
        products.product(stream, operands.rows(), biased, then, room.as_mut()).unwrap();
        let mut expected = before.clone();
        reference::scale_residual(&mut expected, &plain, scaled.then_some(&scales[..]));
        let actual = gpu::download(stream, &sum);
        let magnitude = if scaled { &coarse } else { &magnitude };
        assert_close(&what("add"), precision, false, 2.0, &actual, &expected, magnitude);
    }

    let mut stored = gpu::poisoned(stream, rows * columns);
    let blocks = products.moments(rows, columns);
    let mut moments = gpu::poisoned(stream, blocks.len());
    let then = Then::Moments(out(&mut stored, columns), moments.slice_mut(..));
    products.product(stream, operands.rows(), linear(None), then, room.as_mut()).unwrap();
    let actual = gpu::download_stored(stream, precision, &stored);
    assert_close(&what("moments"), precision, true, 1.0, &actual, &raw, &magnitude);
    // By cuBLASLt they are those of what is stored.
    let of = if room.is_some() { &actual } else { &raw };
    check_moments(&what("moments"), precision, blocks, &gpu::download(stream, &moments), of, depth);
}

/// Moments of `values` `[phases * rows, columns]`, one phase after the other.
fn check_moments(
    what: &str,
    precision: Precision,
    blocks: MomentBlocks,
    moments: &[f32],
    values: &[f32],
    depth: usize,
) {
    let MomentBlocks { phases, rows, block_rows, columns } = blocks;
    let mut moments = moments.chunks_exact(columns);
    // Values are about 1 large, and sums of absolute products about the root of the depth.
    let tolerance = 10.0 * gpu::sum_error(precision) * (depth as f32).sqrt() + 1e-5;
    for phase in 0..phases {
        let phase = &values[phase * rows * columns..][..rows * columns];
        for block in phase.chunks(block_rows * columns) {
            let (means, squares) = (moments.next().unwrap(), moments.next().unwrap());
            for column in 0..columns {
                let values: Vec<f64> =
                    block.iter().skip(column).step_by(columns).map(|&x| f64::from(x)).collect();
                let count = values.len() as f64;
                let mean = values.iter().sum::<f64>() / count;
                let square = values.iter().map(|x| (x - mean).powi(2)).sum::<f64>();
                let size = values.iter().fold(1.0, |size, x| x.abs().max(size)) as f32;
                let (a, b) = (means[column], squares[column]);
                assert!((a - mean as f32).abs() <= tolerance * size, "{what}: mean {a} instead of {mean}");
                let off = (b - square as f32).abs();
                assert!(
                    off <= 4.0 * tolerance * size * size * count as f32,
                    "{what}: {b} instead of {square}"
                );
            }
        }
    }
    assert!(moments.next().is_none(), "{what}: more moments");
}

#[cfg_attr(test, test)]
pub(crate) fn products_agree_with_the_naive_ones() {
    with_every_tile(|stream, products, what| {
        // Less than a chunk of anything; around a tile's sides and a slice's depth; several of each.
        for size in [[1, 4, 8], [33, 60, 64], [65, 132, 72], [128, 256, 128], [200, 72, 328]] {
            check_product(stream, products, what, size);
        }
    });
}

/// How many products this thread has queued by the stand-in for cuBLASLt; nothing on a card.
fn multiplied() -> Option<u64> {
    (!sapiens_stand_in_loader::wants_card()).then(sapiens_stand_in_loader::inside::multiplied)
}

#[cfg_attr(test, test)]
pub(crate) fn products_by_cublaslt_agree_with_the_naive_ones() {
    gpu::each(|stream, precision| {
        let Some(products) = with_cublaslt(stream, precision) else { return };
        let what = format!("cuBLASLt, {}, {precision:?}", stream.gpu().properties().capability);
        // The stand-in has no algorithm for the depths of 8 and of 72, which the own kernel does then.
        for size @ [.., depth] in
            [[1, 4, 8], [1, 4, 16], [33, 60, 64], [65, 132, 72], [130, 256, 128], [8, 64, 4096]]
        {
            let before = multiplied();
            check_product(stream, &products, &what, size);
            let expected = if depth % 16 == 0 { 7 } else { 0 };
            if let (Some(before), Some(after)) = (before, multiplied()) {
                assert_eq!(after - before, expected, "{what}, {size:?}");
            }
        }
    });
}

/// One product with rows that start at any multiple of 8 values, as the heads of keys do.
#[cfg_attr(test, test)]
pub(crate) fn results_may_have_gaps() {
    gpu::each(|stream, precision| {
        let own = Products::new(stream.gpu(), precision).unwrap();
        for products in [Some(own), with_cublaslt(stream, precision)].iter().flatten() {
            let [rows, columns, depth] = [70, 24, 48];
            let mut room = products.cublaslt().map(|cublaslt| cublaslt.room(0).unwrap());
            let operands = Operands::new(stream, precision, [rows, columns, depth]);
            let stride = 36;
            let mut stored = gpu::poisoned(stream, rows * stride);
            let linear = Linear { weights: operands.weights.slice(..), bias: None, columns };
            let then = Then::Store(out(&mut stored, stride));
            products.product(stream, operands.rows(), linear, then, room.as_mut()).unwrap();
            let bits = gpu::download(stream, &stored);
            for (row, expected) in bits.chunks_exact(stride).zip(operands.naive(false).chunks_exact(columns))
            {
                assert!(row[columns..].iter().all(|&bits| bits == 0xFFFF), "a gap was written to");
                for (&bits, expected) in row.iter().zip(expected) {
                    assert!(
                        (precision.decode(bits) - expected).abs() < 0.3,
                        "{bits:04x} instead of {expected}"
                    );
                }
            }
        }
    });
}

#[cfg_attr(test, test)]
pub(crate) fn deconvs_agree_with_the_naive_ones() {
    with_every_tile(|stream, products, what| {
        let precision = products.precision();
        for [height, width, channels, columns] in
            [[1, 1, 8, 8], [3, 5, 24, 32], [9, 16, 64, 72], [17, 4, 96, 8]]
        {
            let what = format!("{what}, {height} x {width} x {channels}, {columns}");
            let (x, exact) = gpu::generated(stream, precision, "map", &[height, width, channels]);
            let weights = support::generated("deconv_layers.weight", &[channels, columns, 4, 4], 6);
            let rounded: Vec<f32> = weights.iter().map(|&w| precision.decode(precision.encode(w))).collect();
            let (packed, _) = gpu::stored(stream, precision, &deconv_weights(&weights, channels, columns));
            let planar = |x: &[f32], channels: usize| -> Vec<f32> {
                (0..channels)
                    .flat_map(|c| x.iter().skip(c).step_by(channels).copied().collect::<Vec<_>>())
                    .collect()
            };
            let naive = |x: &[f32], weights: &[f32]| {
                let planes = planar(x, channels);
                let out = reference::conv_transpose_k4s2p1(&planes, height, width, weights, columns);
                // Planes to pixels is what pixels to planes is, with sides swapped.
                planar(&out, 4 * height * width)
            };
            let absolute = |x: &[f32]| x.iter().map(|x| x.abs()).collect::<Vec<_>>();
            let expected = naive(&exact, &rounded);
            let magnitude = naive(&absolute(&exact), &absolute(&rounded));

            let map = Map { values: x.slice(..), height, width, channels };
            let linear = Linear { weights: packed.slice(..), bias: None, columns };
            let mut stored = gpu::poisoned(stream, expected.len());
            let blocks = products.deconv_moments(height, width, columns);
            let mut moments = gpu::poisoned(stream, blocks.len());
            let then = Then::Moments(out(&mut stored, columns), moments.slice_mut(..));
            products.deconv(stream, map, linear, then).unwrap();
            let actual = gpu::download_stored(stream, precision, &stored);
            assert_close(&what, precision, true, 1.0, &actual, &expected, &magnitude);

            let mut phases = Vec::with_capacity(expected.len());
            for phase in 0..4 {
                for pixel in 0..height * width {
                    let (y, x) = (2 * (pixel / width) + phase / 2, 2 * (pixel % width) + phase % 2);
                    phases.extend_from_slice(&expected[(y * 2 * width + x) * columns..][..columns]);
                }
            }
            check_moments(&what, precision, blocks, &gpu::download(stream, &moments), &phases, 4 * channels);
        }
    });
}
