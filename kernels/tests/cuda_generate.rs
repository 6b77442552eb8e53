//! Values made on the device out of their places: every bit equal to the naive twin's.

#![cfg(feature = "cuda")]
#![allow(clippy::unwrap_used, reason = "test code")]

mod support;

use sapiens_kernels::cuda::generate::{Generate, Uniform};
use sapiens_kernels::cuda::{CudaError, Stream};
use sapiens_kernels::reference;
use support::gpu;

/// Bytes before and behind the results, which stay as they are.
const GUARDS: [usize; 2] = [12, 20];

/// Counts around those of a block's threads, and values that have something to get wrong.
fn runs() -> Vec<(usize, Uniform)> {
    let base = support::fnv1a64(b"backbone.blocks.0.attn.wq.weight");
    let uniform = |base, first, scale, offset| Uniform { base, first, scale, offset };
    vec![
        // As tensors of a network are.
        (1, uniform(0, 0, 0.5, 0.0)),
        (255, uniform(base, 0, 0.1, 0.0)),
        (256, uniform(base ^ 3, 0, 0.25, 1.0)),
        (257, uniform(!base, 0, (3.0f64 / 1024.0).sqrt() as f32, 0.0)),
        (1021, uniform(base, 7, 1.0, 0.0)),
        // A product that has to be rounded before something is added to it.
        (700, uniform(base, 1, 0.1, 0.7)),
        (300, uniform(base, 12_345, -1.3, -0.1)),
        // Places that 32 bits don't hold, and the last one.
        (300, uniform(base, (1 << 32) - 100, 1.0, 0.0)),
        (130, uniform(base, 0x0123_4567_89AB_CDEF, 1.0, 0.0)),
        (130, uniform(u64::MAX, u64::MAX - 64, 1.0, 0.0)),
        // Denormals, on the way and at the end; what is too large.
        (200, uniform(base, 0, 1e-38, 0.0)),
        (200, uniform(base, 0, 3e-40, 1.5e-38)),
        (200, uniform(base, 0, f32::MAX, f32::MAX)),
        // Nothing.
        (0, uniform(base, 0, 1.0, 0.0)),
    ]
}

/// The bits of what is made.
fn made(stream: &Stream, count: usize, values: Uniform) -> Result<Vec<u32>, CudaError> {
    let [before, behind] = GUARDS;
    let (bytes, room) = (4 * count, before + 4 * count + behind);
    let mut buffer = gpu::poisoned(stream, room);
    Generate::new(stream.gpu())?.run(stream, values, buffer.slice_mut(before..before + bytes))?;
    let found: Vec<u8> = gpu::download(stream, &buffer);
    let (first, rest) = found.split_at(before);
    let (found, last) = rest.split_at(bytes);
    assert!([first, last].concat().iter().all(|&byte| byte == 0xFF), "{count} of {values:?}");
    Ok(found.as_chunks().0.iter().map(|&bytes| u32::from_le_bytes(bytes)).collect())
}

#[cfg_attr(test, test)]
pub(crate) fn equals_the_naive_twin_to_the_bit() {
    gpu::each_device(|stream| {
        for (count, values) in runs() {
            let Uniform { base, first, scale, offset } = values;
            let expected = reference::generate(base, first, count, scale, offset);
            let found = made(stream, count, values).unwrap();
            assert_eq!(found.len(), count);
            for (at, (found, expected)) in found.into_iter().zip(expected).enumerate() {
                let what = format!("{values:?}: {} at {at} of {count}", f32::from_bits(found));
                assert_eq!(found, expected.to_bits(), "{what}, expected {expected}");
            }
        }
    });
}

/// A product and a sum that become one operation would be rounded once, which the emulator never does by itself.
#[test]
fn nothing_is_fused() {
    for ptx in [
        include_str!("../cuda/ptx/compute_75/generate.ptx"),
        include_str!("../cuda/ptx/compute_80/generate.ptx"),
    ] {
        assert!(ptx.contains("mul.rn.f32") && ptx.contains("add.rn.f32") && !ptx.contains("fma."));
    }
}

/// What it says when asked to make as many bytes, from one on.
#[cfg(test)]
fn refusal(from: usize, bytes: usize) -> String {
    let stream = Stream::new(&gpu::all()[0]).unwrap();
    let panic = std::panic::catch_unwind(|| {
        let mut out = gpu::poisoned(&stream, from + bytes);
        let values = Uniform { base: 1, first: 0, scale: 1.0, offset: 0.0 };
        let _ = Generate::new(stream.gpu()).unwrap().run(&stream, values, out.slice_mut(from..));
    });
    panic.unwrap_err().downcast_ref::<String>().unwrap().clone()
}

#[test]
fn lengths_and_addresses_are_checked() {
    assert!(refusal(0, 10).contains("generate: 10 bytes"));
    assert!(refusal(2, 8).contains("of values of 4"));
}
