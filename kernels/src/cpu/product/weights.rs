//! Weights, laid out once for the level that multiplies them.
//!
//! Panels of as many columns as a tile has, each `[k][columns]` in units of 32 bits (a float32, or a pair of bfloat16 that are
//! neighbours in k), so that the innermost loop reads them from one end to the other.

use std::marker::PhantomData;

use super::pack::{self, Convert};
use super::tile::Shape;
use crate::cpu::threads::SharedMut;
use crate::cpu::{Aligned, Element, Level, Threads};

/// Weights `[n, k]` of a product `x [m, k]` times them transposed, packed for one level.
#[derive(Debug)]
pub struct Weights<W> {
    pub(super) level: Level,
    pub(super) shape: Shape,
    pub(super) n: usize,
    pub(super) segments: usize,
    pub(super) segment: usize,
    pub(super) gated: bool,
    panels: Aligned<f32>,
    element: PhantomData<W>,
}

impl<W: Element> Weights<W> {
    /// Packs `n` rows of `k` weights, which `row(index, to)` writes, on all threads. They come in no order, and are
    /// rounded to `W`.
    pub fn pack(
        level: Level,
        threads: &mut Threads,
        n: usize,
        k: usize,
        row: impl Fn(usize, &mut [f32]) + Sync,
    ) -> Self {
        Self::pack_segments(level, threads, n, [1, k], false, row)
    }

    /// Packs a SwiGLU's weights, `2 * hidden` rows of `k`: the first half is the gate, and columns of the two halves that
    /// meet are put beside each other.
    pub fn pack_gated(
        level: Level,
        threads: &mut Threads,
        hidden: usize,
        k: usize,
        row: impl Fn(usize, &mut [f32]) + Sync,
    ) -> Self {
        Self::pack_segments(level, threads, 2 * hidden, [1, k], true, row)
    }

    /// As [`pack`](Self::pack), with rows of `segments` times `segment` weights: each segment meets one of the left operand's.
    pub(super) fn pack_segments(
        level: Level,
        threads: &mut Threads,
        n: usize,
        [segments, segment]: [usize; 2],
        gated: bool,
        row: impl Fn(usize, &mut [f32]) + Sync,
    ) -> Self {
        assert!(n > 0 && segments > 0 && segment > 0, "weights of {n} x {segments} x {segment}");
        let shape = Shape::new(level, W::IS_BF16);
        let mut weights = Self {
            level,
            shape,
            n,
            segments,
            segment,
            gated,
            panels: Aligned::zeros(0),
            element: PhantomData,
        };
        let panel_len = weights.steps() * shape.columns();
        weights.panels = Aligned::zeros(weights.panel_count() * panel_len);
        let panels = SharedMut(weights.panels.as_mut_ptr());
        let layout = &weights;
        // Zeros stand for columns that a last panel has too many and for what a segment is padded with, so only what exists
        // is written.
        threads.run(weights.panel_count(), |_, panel| {
            let mut values = vec![0.0; shape.lanes * segments * segment];
            for half in 0..2 {
                let (first, count) = layout.rows_of(panel, half);
                let values = &mut values[..count * segments * segment];
                for (i, values) in values.chunks_exact_mut(segments * segment).enumerate() {
                    row(first + i, values);
                }
                for s in 0..segments {
                    let rows: Vec<_> = values
                        .chunks_exact(segments * segment)
                        .map(|row| row[s * segment..].as_ptr())
                        .collect();
                    let convert = if W::IS_BF16 { Convert::Pairs } else { Convert::Float32 };
                    // SAFETY: each row has a segment to read. The panel is this task's alone, and the columns of this
                    // half of it from segment `s` on have room for `len` steps a row stride apart.
                    unsafe {
                        let to = panels.at(panel * panel_len + s * layout.segment_steps() * shape.columns());
                        let to = to.add(half * shape.lanes).cast();
                        pack::interleave(level, convert, &rows, segment, to, shape.columns());
                    }
                }
            }
        });
        weights
    }

    /// Rows of the right operand that one half of a panel holds: the first and how many.
    fn rows_of(&self, panel: usize, half: usize) -> (usize, usize) {
        let lanes = self.shape.lanes;
        let (first, begin, end) = if self.gated {
            (panel * lanes, half * self.n / 2, self.n / 2)
        } else {
            ((2 * panel + half) * lanes, 0, self.n)
        };
        (begin + first, end.saturating_sub(first).min(lanes))
    }

    /// Columns of the result: for a SwiGLU half of `n`.
    pub fn outputs(&self) -> usize {
        if self.gated { self.n / 2 } else { self.n }
    }

    /// Values in a row of the left operand.
    pub fn inputs(&self) -> usize {
        self.segments * self.segment
    }

    /// The level that they are packed for.
    pub fn level(&self) -> Level {
        self.level
    }

    /// Columns of the result that a panel makes.
    pub(super) fn panel_outputs(&self) -> usize {
        if self.gated { self.shape.lanes } else { self.shape.columns() }
    }

    pub(super) fn panel_count(&self) -> usize {
        self.outputs().div_ceil(self.panel_outputs())
    }

    /// Units of k in a segment. An odd bfloat16 at the end is paired with a zero, and zeros follow up to a multiple of
    /// the depth.
    pub(super) fn segment_steps(&self) -> usize {
        let units = if W::IS_BF16 { self.segment.div_ceil(2) } else { self.segment };
        units.next_multiple_of(self.shape.depth)
    }

    /// Units of k in a panel.
    pub(super) fn steps(&self) -> usize {
        self.segments * self.segment_steps()
    }

    /// Units that the packed left operand has for one of the right's.
    pub(super) fn left_units(&self) -> usize {
        if W::IS_BF16 && !self.shape.pairs { 2 } else { 1 }
    }

    /// The units of a panel from `step` on.
    pub(super) fn panel(&self, panel: usize, step: usize) -> &[f32] {
        let columns = self.shape.columns();
        let len = self.steps() * columns;
        &self.panels[panel * len + step * columns..(panel + 1) * len]
    }
}
