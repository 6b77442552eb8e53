//! The loops around the tiles: blocks for the caches and tasks for the threads.
//!
//! A task is a block of rows times a stretch of panels. It packs its rows, then goes through the panels a few at a time and
//! through k in stretches, so that what a stretch needs stays where it is needed: a panel's stretch in the first-level cache
//! while all the block's rows pass by it, rows, panels and sums in the second. Nothing a value depends on comes from the
//! number of threads: sums run along k in stretches that the level and the caches decide, and over rows in blocks that do too.

use std::ops::Range;

use super::epilogue::{Finish, Shared, SharedThen, finish};
use super::pack::{Convert, OnLoad, interleave_on_load, side_by_side};
use super::tile::{MAX_ROWS, Tile, Unit};
use super::{Epilogue, Then, Weights};
use crate::cpu::caches::Caches;
use crate::cpu::threads::SharedMut;
use crate::cpu::{Aligned, Element, Threads};

/// Memory that products compute in: one per set of threads, and of use for all products. It grows with the first product of
/// each size and stays as it is from then on.
#[derive(Debug)]
pub struct Workspace {
    caches: Caches,
    threads: Vec<Scratch>,
}

#[derive(Debug)]
struct Scratch {
    /// `[group][k / depth][height][depth]`.
    left: Aligned<f32>,
    /// `[panel][group][height][columns]`.
    sums: Aligned<f32>,
}

impl Default for Workspace {
    fn default() -> Self {
        Self { caches: Caches::detect(), threads: Vec::new() }
    }
}

impl Workspace {
    fn grow(&mut self, threads: usize, left: usize, sums: usize) {
        if self.threads.len() < threads {
            self.threads
                .resize_with(threads, || Scratch { left: Aligned::zeros(0), sums: Aligned::zeros(0) });
        }
        for scratch in &mut self.threads {
            if scratch.left.len() < left {
                scratch.left = Aligned::zeros(left);
            }
            if scratch.sums.len() < sums {
                scratch.sums = Aligned::zeros(sums);
            }
        }
    }
}

/// Where a product's rows come from and go to. A product has parts that differ in their weights: a ConvTranspose's phases.
pub(super) trait Rows<A>: Sync {
    /// Where a segment of the left operand's rows from `first` on lies, or null for zeros. A segment has as many values as
    /// the weights' have.
    fn segments(&self, part: usize, first: usize, segment: usize, to: &mut [*const A]);

    /// The output rows of the rows from `first` on.
    fn outputs(&self, part: usize, first: usize, to: &mut [usize]);
}

/// How a product is cut.
#[derive(Clone, Copy, Debug)]
struct Plan {
    /// Rows in a block: whole tiles.
    block: usize,
    blocks: usize,
    /// Panels in a task.
    stretch: usize,
    stretches: usize,
    /// Panels whose sums are kept at a time.
    panels: usize,
    /// Units of k between which sums go to memory and come back.
    steps: usize,
}

impl Plan {
    fn new<W: Element>(
        caches: Caches,
        threads: usize,
        m: usize,
        parts: &[Weights<W>],
        independent: bool,
    ) -> Self {
        let weights = &parts[0];
        let (shape, total) = (weights.shape, weights.steps());
        let step_bytes = shape.columns() * size_of::<f32>();
        // A panel's stretch of k fills half of the first-level cache, and stretches are of nearly the same length.
        let stretches = total.div_ceil(caches.l1 / 2 / step_bytes);
        let steps = total.div_ceil(stretches).next_multiple_of(shape.depth);
        // Rows, panels and sums fill a quarter of the second-level cache each.
        let quarter = caches.l2 / 4;
        let panels = (quarter / (steps * step_bytes)).clamp(1, weights.panel_count());
        let tile_bytes = shape.rows * steps * weights.left_units() * size_of::<f32>();
        let most = (quarter / tile_bytes).max(1);
        let tiles = m.div_ceil(shape.rows);
        // Enough tasks that threads end at about the same time, but no smaller blocks than make packing worth while.
        // Where sums over rows are taken, blocks are what their order depends on, so threads have no say.
        let wanted = if threads == 1 { 1 } else { 4 * threads };
        let per_part = wanted.div_ceil(parts.len());
        let block = if independent {
            most.min(tiles)
        } else {
            tiles.div_ceil(per_part).clamp(most.min(4), most).min(tiles)
        };
        let blocks = tiles.div_ceil(block);
        // Evenly, so that the last block isn't a sliver.
        let block = tiles.div_ceil(blocks);
        let blocks = tiles.div_ceil(block);
        let splits = per_part.div_ceil(blocks).clamp(1, weights.panel_count());
        let stretch = weights.panel_count().div_ceil(splits);
        Self {
            block: block * shape.rows,
            blocks,
            stretch,
            stretches: weights.panel_count().div_ceil(stretch),
            panels: panels.min(stretch),
            steps,
        }
    }
}

/// Computes a product. All parts have weights of one shape.
///
/// # Safety
/// `rows` gives readable segments for every row below `m`, and output rows that differ for all rows and parts and lie
/// within `out` `[.., outputs]`.
#[allow(clippy::too_many_arguments, reason = "operands and what computes them")]
pub(super) unsafe fn drive<A: Element, W: Element, O: Element>(
    threads: &mut Threads,
    workspace: &mut Workspace,
    rows: &impl Rows<A>,
    m: usize,
    parts: &[Weights<W>],
    on_load: OnLoad<'_>,
    epilogue: Epilogue<'_>,
    out: &mut [O],
) {
    if m == 0 {
        return;
    }
    let weights = &parts[0];
    let (shape, outputs) = (weights.shape, weights.outputs());
    let Epilogue { bias, mut then } = epilogue;
    assert!(bias.is_none_or(|bias| bias.len() == weights.n), "a bias for each of {} columns", weights.n);
    assert_eq!(matches!(then, Then::SwiGlu), weights.gated, "gated weights go with SwiGLU");
    let independent = matches!(then, Then::Moments(_));
    let plan = Plan::new(workspace.caches, threads.count(), m, parts, independent);
    let shared = match &mut then {
        Then::Store => SharedThen::Store,
        Then::Gelu => SharedThen::Gelu,
        Then::SwiGlu => SharedThen::SwiGlu,
        Then::Add => SharedThen::Add,
        Then::ScaleAdd(gamma) => {
            assert_eq!(gamma.len(), outputs, "a gamma for each column");
            SharedThen::ScaleAdd(gamma)
        }
        Then::Moments(moments) => SharedThen::Moments(moments.prepare(parts.len() * plan.blocks, outputs)),
    };
    let left = plan.block * weights.steps() * weights.left_units();
    let tiles = plan.block / shape.rows;
    let sums = plan.panels * tiles * shape.rows * shape.columns();
    workspace.grow(threads.count(), left, sums);
    let epilogue = Shared { bias, then: shared };
    let out = SharedMut(out.as_mut_ptr());
    let tasks = parts.len() * plan.blocks * plan.stretches;
    threads.run_with(&mut workspace.threads, tasks, |scratch, task| {
        let (block, stretch) = (task / plan.stretches, task % plan.stretches);
        let (part, first) = (block / plan.blocks, block % plan.blocks * plan.block);
        let panels = stretch * plan.stretch..((stretch + 1) * plan.stretch).min(weights.panel_count());
        let block = Block {
            plan,
            rows,
            part,
            first,
            count: plan.block.min(m - first),
            weights: &parts[part],
            index: block,
            epilogue,
            out,
        };
        block.pack(on_load, &mut scratch.left);
        block.run(panels, &scratch.left, &mut scratch.sums);
    });
    if let Then::Moments(moments) = then {
        moments.finish(threads, m * parts.len());
    }
}

/// The rows of one task. Only made by [`drive`], with what its caller vouched for.
struct Block<'a, R, W, O> {
    plan: Plan,
    rows: &'a R,
    part: usize,
    /// Its first row and how many it has.
    first: usize,
    count: usize,
    weights: &'a Weights<W>,
    index: usize,
    epilogue: Shared<'a>,
    out: SharedMut<O>,
}

impl<R, W: Element, O: Element> Block<'_, R, W, O> {
    /// The tiles that the rows are cut into: first row within the block, rows that exist, height.
    fn tiles(&self) -> impl Iterator<Item = (usize, usize, usize)> {
        let (shape, count) = (self.weights.shape, self.count);
        (0..count).step_by(shape.rows).map(move |first| {
            let rows = shape.rows.min(count - first);
            (first, rows, shape.height(rows))
        })
    }

    /// Units that a row has when packed.
    fn row_units(&self) -> usize {
        self.weights.steps() * self.weights.left_units()
    }

    fn pack<A: Element>(&self, on_load: OnLoad<'_>, left: &mut [f32])
    where
        R: Rows<A>,
    {
        let weights = self.weights;
        let convert = match (W::IS_BF16, weights.shape.pairs) {
            (false, _) => Convert::Float32,
            (true, false) => Convert::Rounded,
            (true, true) => Convert::Pairs,
        };
        for (first, count, height) in self.tiles() {
            let tile = &mut left[first * self.row_units()..][..height * self.row_units()];
            for segment in 0..weights.segments {
                let mut rows = [std::ptr::null(); MAX_ROWS];
                self.rows.segments(self.part, self.first + first, segment, &mut rows[..count]);
                // The rows that a tile has too many repeat the last.
                let last = rows[count - 1];
                rows[count..].fill(last);
                let units = weights.segment_steps() * weights.left_units();
                let to = tile[segment * units * height..][..units * height].as_mut_ptr().cast();
                let (level, rows, len) = (weights.level, &rows[..height], weights.segment);
                // SAFETY: `drive`'s caller vouched for the rows; `to` has the segment's units for every row.
                unsafe {
                    match weights.shape.depth {
                        1 => interleave_on_load(level, convert, on_load, rows, len, to, height),
                        depth => side_by_side(level, on_load, rows, len, to, depth),
                    }
                }
            }
        }
    }

    fn run<A: Element>(&self, panels: Range<usize>, left: &[f32], sums: &mut [f32])
    where
        R: Rows<A>,
    {
        let (plan, weights, shape) = (self.plan, self.weights, self.weights.shape);
        let unit = Unit::new(weights.level, W::IS_BF16);
        let tile_len = shape.rows * shape.columns();
        for first_panel in panels.clone().step_by(plan.panels) {
            let panels = first_panel..panels.end.min(first_panel + plan.panels);
            for step in (0..weights.steps()).step_by(plan.steps) {
                let steps = plan.steps.min(weights.steps() - step);
                let last = step + steps == weights.steps();
                // With one stretch of k no sum waits for another, and all can use the same place.
                let one = step == 0 && last;
                let mut place = 0;
                for panel in panels.clone() {
                    let b = weights.panel(panel, step);
                    for (first, count, height) in self.tiles() {
                        let a = &left[first * self.row_units() + step * weights.left_units() * height..];
                        let sums = &mut sums[place..place + tile_len];
                        let tile = Tile {
                            steps,
                            a: a[..steps * weights.left_units() * height].as_ptr().cast(),
                            b: b[..steps * shape.columns()].as_ptr().cast(),
                            sums: sums.as_mut_ptr(),
                            first: step == 0,
                        };
                        // SAFETY: the slices have just been checked; both operands were packed for these weights' shape.
                        unsafe { unit.multiply(height, tile) };
                        if last {
                            self.finish(panel, first, count, sums);
                        }
                        place += if one { 0 } else { tile_len };
                    }
                }
            }
        }
    }

    fn finish<A: Element>(&self, panel: usize, first: usize, count: usize, sums: &[f32])
    where
        R: Rows<A>,
    {
        let outputs = self.weights.outputs();
        let column = panel * self.weights.panel_outputs();
        let mut indices = [0; MAX_ROWS];
        self.rows.outputs(self.part, self.first + first, &mut indices[..count]);
        // SAFETY: `drive`'s caller vouched for output rows to be within the output.
        let rows = indices.map(|row| unsafe { self.out.at(row * outputs) });
        let tile = Finish {
            sums: sums.as_ptr(),
            rows: &rows[..count],
            column,
            count: self.weights.panel_outputs().min(outputs - column),
            outputs,
            block: self.index,
            epilogue: self.epilogue,
        };
        // SAFETY: `drive`'s caller vouched for output rows to differ, and tasks of the same rows have other columns, as
        // have their moments.
        unsafe { finish(self.weights.level, tile) };
    }
}
