//! Devices for the tests of the CUDA kernels: the stand-in for the driver, on which kernels run on the processor, or a card's own
//! driver where `SAPIENS_TEST_CUDA` is set.
#![allow(clippy::unwrap_used, reason = "test code")]

use std::sync::Arc;

use sapiens_kernels::cuda::{Buffer, CudaError, Gpu, Plain, Precision, Stream};
use sapiens_stand_in_loader as stand_in;

/// All devices.
pub fn all() -> Vec<Arc<Gpu>> {
    stand_in::open();
    let open = |index| match Gpu::open(index) {
        Ok(gpu) => Some(Some(gpu)),
        Err(CudaError::NoDevice { count, .. }) if count > 0 => None,
        Err(error @ CudaError::TooOld { .. }) => {
            eprintln!("skipped: {error}");
            Some(None)
        }
        Err(error) => panic!("GPU {index}: {error}"),
    };
    (0..).map_while(open).flatten().collect()
}

/// Runs a check on every device.
pub fn each_device(mut check: impl FnMut(&Stream)) {
    for gpu in all() {
        check(&Stream::new(&gpu).unwrap());
    }
}

/// Whether there is a check for this instance of a kernel: for all of them, unless the one in which `cuda_mutations.rs` has
/// planted a mistake is named.
pub fn is_wanted(variable: &str, name: &str) -> bool {
    std::env::var(variable).map_or(true, |wanted| wanted == name)
}

/// Runs a check with every precision that each device has.
pub fn each(mut check: impl FnMut(&Stream, Precision)) {
    for gpu in all() {
        let stream = Stream::new(&gpu).unwrap();
        let precisions =
            [("f16", Precision::F16), ("f16_promoted", Precision::F16Promoted), ("bf16", Precision::Bf16)];
        for (name, precision) in precisions {
            let turing = gpu.properties().capability.major < 8;
            if (precision != Precision::Bf16 || !turing) && is_wanted("SAPIENS_TEST_PRECISION", name) {
                check(&stream, precision);
            }
        }
    }
}

/// Values on the device.
pub fn upload<T: Plain>(stream: &Stream, values: &[T]) -> Buffer<T> {
    let mut buffer = Buffer::new(stream.gpu(), values.len()).unwrap();
    stream.upload(values, buffer.slice_mut(..)).unwrap();
    buffer
}

/// Room on the device, all bits of which are set: no number in any type.
pub fn poisoned<T: Plain>(stream: &Stream, len: usize) -> Buffer<T> {
    let mut buffer = Buffer::new(stream.gpu(), len).unwrap();
    stream.fill(buffer.slice_mut(..), 0xFF).unwrap();
    buffer
}

/// Values from the device.
pub fn download<T: Plain + Default>(stream: &Stream, buffer: &Buffer<T>) -> Vec<T> {
    let mut values = vec![T::default(); buffer.len()];
    stream.download(buffer.slice(..), &mut values).unwrap();
    values
}

/// Stored values from the device.
pub fn download_stored(stream: &Stream, precision: Precision, buffer: &Buffer<u16>) -> Vec<f32> {
    download(stream, buffer).into_iter().map(|bits| precision.decode(bits)).collect()
}

/// Generated values on the device, and the same as the device has them.
pub fn generated(
    stream: &Stream,
    precision: Precision,
    name: &str,
    shape: &[usize],
) -> (Buffer<u16>, Vec<f32>) {
    stored(stream, precision, &super::generated(name, shape, 6))
}

/// Values on the device as it stores them, and the same.
pub fn stored(stream: &Stream, precision: Precision, values: &[f32]) -> (Buffer<u16>, Vec<f32>) {
    let bits: Vec<u16> = values.iter().map(|&value| precision.encode(value)).collect();
    let exact = bits.iter().map(|&bits| precision.decode(bits)).collect();
    (upload(stream, &bits), exact)
}

/// Half a unit of the last place that a stored value has, relative to it.
pub fn rounding(precision: Precision) -> f32 {
    match precision {
        Precision::F16 | Precision::F16Promoted => 1.0 / 2048.0,
        Precision::Bf16 => 1.0 / 256.0,
    }
}

/// How far a sum of products may be off, relative to the sum of their absolute values.
pub fn sum_error(precision: Precision) -> f32 {
    match precision {
        // A few roundings of float32.
        Precision::F16 | Precision::Bf16 => 2e-6,
        // Roundings of float16, one for each step of 16.
        Precision::F16Promoted => 1e-3,
    }
}
