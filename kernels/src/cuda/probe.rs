//! What the device's matrix units do when nothing else is asked of them (`cuda/probe.cu`).

use super::modules::Function;
use super::{CudaError, Precision, SliceMut, Stream, number};

const THREADS: usize = 256;
const CHAINS: usize = 8;
/// Of one matrix instruction of a warp: 16 x 8 x 16, multiplications and additions counted apart.
const FLOP: f64 = 2.0 * 16.0 * 8.0 * 16.0;

/// As `cuda/probe.cu` takes them.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Arguments {
    out: u64,
    rounds: u32,
}

/// Results of a run on a device of so many multiprocessors: two blocks on each.
pub fn results(multiprocessors: u32) -> usize {
    2 * multiprocessors as usize * THREADS
}

/// Queues a run and says how much work it is, in floating-point operations.
///
/// # Errors
/// [`CudaError::NoBf16`], or if it can't be queued.
///
/// # Panics
/// If there is no room for the results.
pub fn run(
    stream: &Stream,
    precision: Precision,
    rounds: u32,
    out: SliceMut<'_, f32>,
) -> Result<f64, CudaError> {
    let properties = stream.gpu().properties();
    precision.check(properties.capability)?;
    let count = results(properties.multiprocessors);
    assert!(out.len() >= count, "probe: room for {}", out.len());
    let function =
        { Function::find(stream.gpu(), &format!("probe_{}", precision.name()), THREADS as u32, 0)? };
    let blocks = count / THREADS;
    // SAFETY: the struct is the kernel's, and every thread has a result.
    unsafe { stream.launch(&function, [number(blocks), 1, 1], &Arguments { out: out.at(stream), rounds })? };
    Ok(FLOP * f64::from(rounds) * (CHAINS * count / 32) as f64)
}
