//! InstanceNorm and SiLU as a pass of their own, between two ConvTransposes. A ConvTranspose would do them 16 times for
//! every value if it did them on load, as a 1x1 convolution does: `cpu_products` prints what either costs.

use super::Moments;
use crate::cpu::simd::{self, Simd, Task, math, with_simd};
use crate::cpu::threads::SharedMut;
use crate::cpu::{Element, Level, Threads};

/// `x [pixels, channels]` becomes `silu((x - mean) * inverse)`.
///
/// # Panics
/// If `x` isn't whole pixels of the moments' channels.
pub fn norm_silu<E: Element>(level: Level, threads: &mut Threads, x: &mut [E], moments: &Moments) {
    /// Values of a task, about: small enough to spread, large enough not to matter.
    const VALUES: usize = 1 << 15;
    let channels = moments.mean().len();
    assert!(
        channels > 0 && x.len().is_multiple_of(channels),
        "{} values are no pixels of {channels}",
        x.len()
    );
    let pixels = x.len() / channels;
    let per_task = (VALUES / channels).max(1);
    let values = SharedMut(x.as_mut_ptr());
    threads.run(pixels.div_ceil(per_task), |_, task| {
        let count = per_task.min(pixels - task * per_task);
        // SAFETY: tasks' pixels are disjoint and within `x`.
        let values = unsafe {
            std::slice::from_raw_parts_mut(values.at(task * per_task * channels), count * channels)
        };
        with_simd!(level, |simd| simd.vectorize(Pixels { simd, values, moments }));
    });
}

struct Pixels<'a, S, E> {
    simd: S,
    values: &'a mut [E],
    moments: &'a Moments,
}

impl<S: Simd, E: Element> Task for Pixels<'_, S, E> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Self { simd, values, moments } = self;
        let (mean, inverse) = (moments.mean(), moments.inverse());
        for pixel in values.chunks_exact_mut(mean.len()) {
            let parts = pixel.chunks_mut(S::LANES).zip(mean.chunks(S::LANES)).zip(inverse.chunks(S::LANES));
            for ((x, mean), inverse) in parts {
                // SAFETY: the three parts have one length, at most the lanes.
                unsafe {
                    let v = simd.sub(
                        simd::load(simd, x.as_ptr(), x.len()),
                        simd::load(simd, mean.as_ptr(), mean.len()),
                    );
                    let v = simd.mul(v, simd::load(simd, inverse.as_ptr(), inverse.len()));
                    simd::store(simd, x.as_mut_ptr(), math::silu(simd, v), x.len());
                }
            }
        }
    }
}
