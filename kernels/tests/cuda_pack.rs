//! Checkpoints' values laid out as weights on the device: every bit equal to the naive twin's and the conversions of the crate
//! `half`.

#![cfg(feature = "cuda")]
#![allow(clippy::unwrap_used, reason = "test code")]

mod support;

use half::{bf16, f16};
use sapiens_kernels::cuda::pack::{Format, Gather, Pack, Packed, Source};
use sapiens_kernels::cuda::product::deconv_weights;
use sapiens_kernels::cuda::{CudaError, Precision, Stream};
use sapiens_kernels::reference;
use support::gpu;

const FORMATS: [Format; 3] = [Format::F32, Format::F16, Format::Bf16];

/// Values that have something to convert: halfway between two results, too large, denormal, none at all.
fn values(count: usize) -> Vec<f32> {
    let special = [
        0.0,
        -0.0,
        1.0 + f32::powi(2.0, -11),
        1.0 + 3.0 * f32::powi(2.0, -11),
        -1.0 - f32::powi(2.0, -8),
        1.0 + 3.0 * f32::powi(2.0, -8),
        65504.0,
        65519.99,
        65520.0,
        -1e30,
        f32::MAX,
        f32::powi(2.0, -24),
        f32::powi(2.0, -25),
        1.5 * f32::powi(2.0, -25),
        -6.1e-5,
        f32::powi(2.0, -130),
        1e-45,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
    ];
    let noise = support::generated("pack", &[count, 3], 6);
    let spread = noise.iter().enumerate().map(|(i, x)| x * f32::powi(2.0, i as i32 % 40 - 24));
    // Not all in front: what is tested may read the end alone.
    let mut values: Vec<f32> = spread.take(count).collect();
    for (i, value) in special.into_iter().enumerate() {
        if let Some(to) = values.get_mut(i * 7 % count) {
            *to = value;
        }
    }
    values
}

/// The bytes of a format, and the values that they are.
fn stored(format: Format, values: &[f32]) -> (Vec<u8>, Vec<f32>) {
    let each = |value: f32| match format {
        Format::F32 => (value.to_le_bytes().to_vec(), value),
        Format::F16 => {
            let half = f16::from_f32(value);
            (half.to_le_bytes().to_vec(), half.to_f32())
        }
        Format::Bf16 => {
            let half = bf16::from_f32(value);
            (half.to_le_bytes().to_vec(), half.to_f32())
        }
    };
    let (bytes, values): (Vec<_>, Vec<_>) = values.iter().map(|&value| each(value)).unzip();
    (bytes.concat(), values)
}

/// Values before and behind the results, which stay as they are.
const GUARDS: [usize; 2] = [3, 5];

/// Bits as the precision stores them, and those of float32.
fn packed(
    stream: &Stream,
    precision: Precision,
    format: Format,
    bytes: &[u8],
    gather: &Gather,
) -> Result<(Vec<u16>, Vec<u32>), CudaError> {
    let pack = Pack::new(stream.gpu(), precision)?;
    let bytes = gpu::upload(stream, bytes);
    let source = Source { format, bytes: bytes.slice(..) };
    let [before, behind] = GUARDS;
    let (count, room) = (gather.count(), before + gather.count() + behind);
    let (mut bits, mut floats) = (gpu::poisoned(stream, room), gpu::poisoned(stream, room));
    pack.run(stream, source, gather, Packed::Stored(bits.slice_mut(before..before + count)))?;
    pack.run(stream, source, gather, Packed::F32(floats.slice_mut(before..before + count)))?;
    let bits: Vec<u16> = gpu::download(stream, &bits);
    let floats: Vec<f32> = gpu::download(stream, &floats);
    let floats: Vec<u32> = floats.into_iter().map(f32::to_bits).collect();
    let around = |at: usize| at < before || at >= before + count;
    assert!((0..room).filter(|&at| around(at)).all(|at| bits[at] == u16::MAX && floats[at] == u32::MAX));
    Ok((bits[before..][..count].to_vec(), floats[before..][..count].to_vec()))
}

fn gather(first: usize, sizes: [usize; 4], limits: [usize; 4], strides: [isize; 4]) -> Gather {
    Gather { first, sizes, limits, strides }
}

/// Layouts of as many values.
fn layouts() -> Vec<(usize, Gather)> {
    let all = usize::MAX;
    vec![
        (1, gather(0, [1; 4], [1; 4], [0; 4])),
        (777, gather(0, [1, 1, 1, 777], [1, 1, 1, all], [0, 0, 0, 1])),
        // Rows with zeros behind them, and rows of zeros.
        (15, gather(0, [1, 1, 5, 8], [1, 1, 3, 5], [-9, 99, 5, 1])),
        (2 * 3 * 7, gather(0, [2, 5, 7, 1], [2, 3, 7, 1], [21, 7, 1, 0])),
        (61, gather(0, [3, 4, 5, 6], [2, 3, 4, 5], [30, 10, 2, 1])),
        // Swapped, turned round, repeated.
        (13 * 37, gather(0, [1, 1, 37, 13], [1, 1, 37, 13], [0, 0, 1, 37])),
        (97, gather(96, [1, 1, 1, 97], [1, 1, 1, 97], [0, 0, 0, -1])),
        (120, gather(119, [2, 3, 4, 5], [2, 3, 4, 5], [-60, -20, -5, -1])),
        (11, gather(3, [4, 1, 3, 2], [4, 1, 3, 1], [0, 0, 3, -2])),
        // Two halves' rows in turn.
        (2 * 9 * 4, gather(0, [1, 9, 2, 4], [1, 9, 2, 4], [0, 4, 36, 1])),
        // A dimension without anything to read, wherever that would be.
        (1, gather(usize::MAX, [2, 2, 2, 2], [2, 0, 2, 2], [isize::MIN, 1, isize::MAX, 1])),
        // Indices that aren't there would be anywhere.
        (4, gather(1, [3, 1, 5, 2], [1, 1, 1, 2], [isize::MAX, 0, isize::MIN, 2])),
        // Nothing.
        (5, gather(0, [1, 0, 3, 4], [1, 1, 3, 4], [0, 0, 0, 1])),
    ]
}

#[cfg_attr(test, test)]
pub(crate) fn equals_the_naive_twin_to_the_bit() {
    gpu::each(|stream, precision| {
        for format in FORMATS {
            for (count, gather) in layouts() {
                let (bytes, exact) = stored(format, &values(count));
                let Gather { first, sizes, limits, strides } = gather;
                let expected = reference::gather(&exact, first, sizes, limits, strides);
                let (bits, floats) = packed(stream, precision, format, &bytes, &gather).unwrap();
                assert_eq!(bits.len(), expected.len());
                for (at, &value) in expected.iter().enumerate() {
                    let what = format!("{precision:?} from {format:?}, {gather:?}: {value} at {at}");
                    if value.is_nan() {
                        // Which one it is may differ.
                        assert!(precision.decode(bits[at]).is_nan() && f32::from_bits(floats[at]).is_nan());
                    } else {
                        assert_eq!(bits[at], precision.encode(value), "{what}");
                        assert_eq!(floats[at], value.to_bits(), "{what}");
                    }
                }
            }
        }
    });
}

/// The four of a ConvTranspose are one launch each: taps are steps, some of them back.
#[cfg_attr(test, test)]
pub(crate) fn phases_are_those_of_a_deconv() {
    gpu::each(|stream, precision| {
        let (channels, columns) = (5, 7);
        let (bytes, exact) = stored(Format::Bf16, &support::generated("deconv", &[channels, columns, 16], 6));
        let expected: Vec<u16> =
            deconv_weights(&exact, channels, columns).into_iter().map(|x| precision.encode(x)).collect();
        for (phase, expected) in expected.chunks_exact(columns * 4 * channels).enumerate() {
            let [(y, down), (x, right)] = [phase / 2, phase % 2].map(|odd| [(1, 2), (2, -2)][odd]);
            let sizes = [columns, 2, 2, channels];
            let strides = [16, 4 * down, right, 16 * columns as isize];
            let gather = gather(4 * y + x, sizes, sizes, strides);
            let (found, _) = packed(stream, precision, Format::Bf16, &bytes, &gather).unwrap();
            assert_eq!(found, expected, "{precision:?}, phase {phase}");
        }
    });
}

/// What it says when asked to make `gather` of as many bytes, from one on, with room for as many values.
#[cfg(test)]
fn refusal(format: Format, from: usize, bytes: usize, gather: Gather, room: usize) -> String {
    let stream = Stream::new(&gpu::all()[0]).unwrap();
    let panic = std::panic::catch_unwind(|| {
        let pack = Pack::new(stream.gpu(), Precision::F16).unwrap();
        let (source, mut out) = (gpu::poisoned(&stream, from + bytes), gpu::poisoned(&stream, room));
        let source = Source { format, bytes: source.slice(from..) };
        let _ = pack.run(&stream, source, &gather, Packed::Stored(out.slice_mut(..)));
    });
    panic.unwrap_err().downcast_ref::<String>().unwrap().clone()
}

#[test]
fn what_reaches_out_of_a_tensor_is_refused() {
    let ones = |first, size, stride| gather(first, [1, 1, size, 1], [1, 1, size, 1], [0, 0, stride, 0]);
    for (gather, reads) in [
        (ones(0, 9, 1), "0 to 8 of 8"),
        (ones(8, 1, 1), "8 to 8 of 8"),
        (ones(6, 8, -1), "-1 to 6 of 8"),
        (ones(1, 2, 7), "1 to 8 of 8"),
        (ones(0, 2, isize::MIN), "-9223372036854775808 to 0 of 8"),
        (ones(usize::MAX, 2, isize::MAX), "18446744073709551615 to 27670116110564327422 of 8"),
        // Steps there and back meet in the middle, and reach out on the way.
        (gather(4, [1, 1, 3, 3], [1, 1, 3, 3], [0, 0, 3, -3]), "-2 to 10 of 8"),
    ] {
        let message = refusal(Format::F16, 0, 16, gather, gather.count());
        assert!(message.contains(&format!("reads values {reads}")), "{message}");
    }
}

#[test]
fn lengths_and_addresses_are_checked() {
    let two = gather(0, [1, 1, 1, 2], [1, 1, 1, 2], [0, 0, 0, 1]);
    assert!(refusal(Format::F32, 0, 8, two, 3).contains("room for [1, 1, 1, 2]"));
    assert!(refusal(Format::F32, 0, 10, two, 2).contains("10 bytes"));
    assert!(refusal(Format::F32, 2, 8, two, 2).contains("of values of 4"));
    assert!(refusal(Format::Bf16, 1, 8, two, 2).contains("of values of 2"));
    let many = Gather { sizes: [usize::MAX, 2, 1, 1], ..two };
    assert!(refusal(Format::F32, 0, 8, many, 2).contains("more values than there can be"));
}

#[test]
fn turing_has_no_bfloat16() {
    for gpu in gpu::all().iter().filter(|gpu| gpu.properties().capability.major < 8) {
        let found = gpu.properties().capability;
        assert_eq!(Pack::new(gpu, Precision::Bf16).unwrap_err(), CudaError::NoBf16 { found });
    }
}
