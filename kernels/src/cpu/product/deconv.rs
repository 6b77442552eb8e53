//! ConvTranspose2d with kernel 4, stride 2 and padding 1, channels last, as four products.
//!
//! An output pixel of one parity sees 2 x 2 input pixels, each through one of the kernel's taps. So the outputs of one phase,
//! `(y % 2, x % 2)`, are a product of rows of four pixels' channels, which are found where they lie: no image of columns is made.

use super::drive::{Rows, drive};
use super::pack::OnLoad;
use super::{Epilogue, Weights, Workspace};
use crate::cpu::{Element, Level, Threads};

/// A ConvTranspose's weights, packed for one level.
#[derive(Debug)]
pub struct ConvTranspose<W> {
    phases: Vec<Weights<W>>,
}

/// Along one axis, for an even and an odd output: the two input pixels it sees, as offsets from its half, and the kernel's
/// taps it sees them through. Input `i` times tap `t` lands on `2 i - 1 + t`.
const TAPS: [[(isize, usize); 2]; 2] = [[(-1, 3), (0, 1)], [(0, 2), (1, 0)]];

impl<W: Element> ConvTranspose<W> {
    /// Packs `weight [inputs, outputs, 4, 4]`, the checkpoint's layout, of which `weight(input, to)` writes the
    /// `outputs * 16` weights of one input channel.
    pub fn pack(
        level: Level,
        threads: &mut Threads,
        inputs: usize,
        outputs: usize,
        weight: impl Fn(usize, &mut [f32]) + Sync,
    ) -> Self {
        // The checkpoint has the input channel outside, a panel wants it inside. The transpose goes through memory once,
        // as [outputs][16][inputs].
        let mut transposed = vec![0.0f32; outputs * 16 * inputs];
        let to = crate::cpu::threads::SharedMut(transposed.as_mut_ptr());
        // So many input channels at a time that whole cache lines are written.
        const CHANNELS: usize = 16;
        threads.run(inputs.div_ceil(CHANNELS), |_, task| {
            let first = task * CHANNELS;
            let count = CHANNELS.min(inputs - first);
            let mut values = vec![0.0; count * outputs * 16];
            for (i, values) in values.chunks_exact_mut(outputs * 16).enumerate() {
                weight(first + i, values);
            }
            for column in 0..outputs * 16 {
                for i in 0..count {
                    // SAFETY: within the allocation, and these input channels are this task's alone.
                    unsafe { *to.at(column * inputs + first + i) = values[i * outputs * 16 + column] };
                }
            }
        });
        let phases = (0..4)
            .map(|phase| {
                Weights::pack_segments(level, threads, outputs, [4, inputs], false, |output, to| {
                    for (segment, to) in to.chunks_exact_mut(inputs).enumerate() {
                        let (_, ky) = TAPS[phase / 2][segment / 2];
                        let (_, kx) = TAPS[phase % 2][segment % 2];
                        to.copy_from_slice(&transposed[(output * 16 + ky * 4 + kx) * inputs..][..inputs]);
                    }
                })
            })
            .collect();
        Self { phases }
    }

    /// Channels of the input.
    pub fn inputs(&self) -> usize {
        self.phases[0].segment
    }

    /// Channels of the output.
    pub fn outputs(&self) -> usize {
        self.phases[0].outputs()
    }
}

/// `out [2 h, 2 w, outputs] = epilogue(ConvTranspose(x [h, w, inputs]))`.
///
/// # Panics
/// If lengths don't fit together.
pub fn conv_transpose<A: Element, W: Element, O: Element>(
    threads: &mut Threads,
    workspace: &mut Workspace,
    x: &[A],
    [h, w]: [usize; 2],
    weights: &ConvTranspose<W>,
    epilogue: Epilogue<'_>,
    out: &mut [O],
) {
    let (inputs, outputs) = (weights.inputs(), weights.outputs());
    assert_eq!(x.len(), h * w * inputs, "an input of {h} x {w} x {inputs}");
    assert_eq!(out.len(), 4 * x.len() / inputs * outputs, "an output of {} x {} x {outputs}", 2 * h, 2 * w);
    let rows = Phases { x, h, w, inputs };
    // SAFETY: segments are pixels within `x`; output pixels of phases and rows differ and are within `out`.
    unsafe { drive(threads, workspace, &rows, h * w, &weights.phases, OnLoad::Nothing, epilogue, out) };
}

/// A row is a pixel of the input's grid, its segments are the four pixels that its output of one phase sees.
struct Phases<'a, A> {
    x: &'a [A],
    h: usize,
    w: usize,
    inputs: usize,
}

impl<A> Phases<'_, A> {
    /// The pixels from one on.
    fn pixels(&self, first: usize) -> impl Iterator<Item = (usize, usize)> {
        let (mut y, mut x) = (first / self.w, first % self.w);
        std::iter::from_fn(move || {
            let pixel = (y, x);
            x += 1;
            if x == self.w {
                (y, x) = (y + 1, 0);
            }
            Some(pixel)
        })
    }
}

impl<A: Element> Rows<A> for Phases<'_, A> {
    fn segments(&self, phase: usize, first: usize, segment: usize, to: &mut [*const A]) {
        let (dy, _) = TAPS[phase / 2][segment / 2];
        let (dx, _) = TAPS[phase % 2][segment % 2];
        for (to, (y, x)) in to.iter_mut().zip(self.pixels(first)) {
            // Above and left of the image wraps around to far below and right of it.
            let (y, x) = (y.wrapping_add_signed(dy), x.wrapping_add_signed(dx));
            *to = if y < self.h && x < self.w {
                self.x[(y * self.w + x) * self.inputs..][..self.inputs].as_ptr()
            } else {
                std::ptr::null()
            };
        }
    }

    fn outputs(&self, phase: usize, first: usize, to: &mut [usize]) {
        for (to, (y, x)) in to.iter_mut().zip(self.pixels(first)) {
            *to = (2 * y + phase / 2) * 2 * self.w + 2 * x + phase % 2;
        }
    }
}
