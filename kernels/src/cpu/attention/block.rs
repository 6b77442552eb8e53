//! A block of one head's queries against all of that head's keys and values, which were packed before: scores of a
//! block of keys, their softmax with a running maximum, and the sums of values. The matrix of all scores never exists.

use super::dots::{Dots, Softmax, Tile};
use super::pack::{self, Part, Preparation};
use super::{MAX_PANEL, Packing};
use crate::cpu::simd::{MAX_LANES, Simd, Task, store};
use crate::cpu::{Aligned, Element};

/// The most queries that a block has.
pub(super) const MAX_QUERIES: usize = 32;

/// What one thread needs for a block.
#[derive(Debug)]
pub(super) struct Scratch {
    /// `[QUERIES]` rows of units.
    queries: Aligned<f32>,
    /// `[QUERIES][KEYS]` scores, and in the front of each row the units that softmax made of them.
    scores: Aligned<f32>,
    /// `[QUERIES][width]`: sums of values, weighted as if the largest score so far were the largest.
    sums: Aligned<f32>,
    /// `[QUERIES][MAX_LANES]`: sums of the weights, lane by lane.
    weights: Aligned<f32>,
    largest: [f32; MAX_QUERIES],
    /// What the sums and weights so far are multiplied by because a larger score came.
    factors: [f32; MAX_QUERIES],
    /// Rows of a panel of keys before it is turned.
    pub rows: Aligned<f32>,
}

impl Scratch {
    pub(super) fn new(packing: Packing) -> Self {
        let Packing { head_dim, width, panel, step, queries, keys } = packing;
        // A row has at most as many units as values.
        let row = head_dim.next_multiple_of(step);
        Self {
            queries: Aligned::zeros(queries * row),
            scores: Aligned::zeros(queries * keys),
            sums: Aligned::zeros(queries * width),
            weights: Aligned::zeros(queries * MAX_LANES),
            largest: [0.0; MAX_QUERIES],
            factors: [0.0; MAX_QUERIES],
            rows: Aligned::zeros(panel * row),
        }
    }
}

/// One block. It is only made with pointers that [`super::Attention`] vouches for.
pub(super) struct Block<'a, A, B, E, O> {
    /// Arithmetic of the scores and of the sums of values.
    pub dots: (A, B),
    pub packing: Packing,
    pub tokens: usize,
    /// At most [`Dots::QUERIES`].
    pub queries: Part<'a, E>,
    pub preparation: Preparation<'a>,
    /// Panels of this head's keys.
    pub keys: *const u32,
    /// This head's values.
    pub values: *const u32,
    pub scratch: &'a mut Scratch,
    /// Where this head's part of the first token goes.
    pub out: *mut O,
    pub out_stride: usize,
}

impl<A, B, E, O> Task for Block<'_, A, B, E, O>
where
    A: Dots,
    B: Dots<Simd = A::Simd>,
    E: Element,
    O: Element,
{
    type Output = ();

    #[inline(always)]
    fn run(mut self) {
        let () = Self::FITTING;
        let to = self.scratch.queries.as_mut_ptr().cast();
        // SAFETY: a block has at most `QUERIES` queries.
        unsafe { pack::rows::<A, E>(self.dots.0, self.queries, self.preparation, to) };
        self.scratch.largest = [f32::NEG_INFINITY; MAX_QUERIES];
        self.scratch.weights.fill(0.0);
        for first in (0..self.tokens).step_by(A::KEYS) {
            let count = A::KEYS.min(self.tokens - first);
            self.score(first, count);
            for query in 0..self.count() {
                self.softmax(query, count);
            }
            self.sum_values(first, count);
        }
        self.finish();
    }
}

impl<A, B, E, O> Block<'_, A, B, E, O>
where
    A: Dots,
    B: Dots<Simd = A::Simd>,
    E: Element,
    O: Element,
{
    const LANES: usize = A::Simd::LANES;
    /// Blocks of keys are whole panels, whole pairs of vectors and whole steps, and both products cut them alike.
    const FITTING: () = assert!(
        A::KEYS.is_multiple_of(MAX_PANEL)
            && A::KEYS.is_multiple_of(2 * MAX_LANES)
            && A::KEYS.is_multiple_of(B::DEPTH * B::STEP)
            && A::QUERIES <= MAX_QUERIES
            && A::QUERIES.is_multiple_of(A::ROWS)
            && A::ROWS == B::ROWS
    );

    #[inline(always)]
    fn count(&self) -> usize {
        self.queries.last - self.queries.first
    }

    #[inline(always)]
    fn score(&mut self, first: usize, count: usize) {
        let Packing { head_dim, panel, .. } = self.packing;
        let units = A::units(head_dim);
        for column in (0..count).step_by(panel) {
            let width = panel.min(count - column).div_ceil(Self::LANES);
            for row in (0..self.count()).step_by(A::ROWS) {
                // SAFETY: queries and scores have rows up to the next multiple of `ROWS`, the scores columns up to
                // `KEYS`, and the keys whole panels. This runs in `vectorize`.
                unsafe {
                    let tile = Tile {
                        steps: units,
                        a: self.scratch.queries.as_ptr().add(row * units).cast(),
                        a_stride: units,
                        b: self.keys.add((first + column) * units),
                        b_stride: panel,
                        sums: self.scratch.scores.as_mut_ptr().add(row * A::KEYS + column),
                        sums_stride: A::KEYS,
                        factors: None,
                    };
                    self.dots.0.multiply(width, tile);
                }
            }
        }
    }

    /// Turns one query's scores of a block into `2^(scale (score - largest))`.
    #[inline(always)]
    fn softmax(&mut self, query: usize, count: usize) {
        let simd = self.dots.0.simd();
        let scale = (self.packing.head_dim as f32).sqrt().recip() * std::f32::consts::LOG2_E;
        let scores = &mut self.scratch.scores[query * A::KEYS..][..count.next_multiple_of(2 * Self::LANES)];
        scores[count..].fill(f32::NEG_INFINITY);
        let vectors = scores.len() / Self::LANES;
        let scores = scores.as_mut_ptr();
        // SAFETY: there are so many whole vectors, an even number of them; units are written to where scores have
        // been read.
        unsafe {
            let mut largest = [simd.splat(f32::NEG_INFINITY); 2];
            for i in (0..vectors).step_by(2) {
                let from = scores.add(i * Self::LANES);
                largest[0] = simd.max(simd.load(from), largest[0]);
                largest[1] = simd.max(simd.load(from.add(Self::LANES)), largest[1]);
            }
            let before = self.scratch.largest[query];
            let largest = simd.largest(simd.max(largest[0], largest[1])).max(before);
            // Of the first block nothing is kept; most later ones bring no larger score.
            let factor = if largest == before { 1.0 } else { ((before - largest) * scale).exp2() };
            self.scratch.largest[query] = largest;
            self.scratch.factors[query] = factor;

            let weights = self.scratch.weights.as_mut_ptr().add(query * MAX_LANES);
            let mut sums = [simd.mul(simd.load(weights), simd.splat(factor)), simd.splat(0.0)];
            let (scale, shift) = (simd.splat(scale), simd.splat(-largest * scale));
            for i in (0..vectors).step_by(2) {
                let from = scores.add(i * Self::LANES);
                let low = Self::power(simd, simd.mul_add(simd.load(from), scale, shift));
                let high = Self::power(simd, simd.mul_add(simd.load(from.add(Self::LANES)), scale, shift));
                sums = [simd.add(sums[0], low), simd.add(sums[1], high)];
                self.dots.1.store_units(scores.cast::<u32>().add(i * Self::LANES / B::DEPTH), low, high);
            }
            simd.store(weights, simd.add(sums[0], sums[1]));
        }
    }

    #[inline(always)]
    fn power(simd: A::Simd, x: <A::Simd as Simd>::V) -> <A::Simd as Simd>::V {
        if B::DEPTH == 1 { simd.exp2::<false>(x) } else { simd.exp2::<true>(x) }
    }

    #[inline(always)]
    fn sum_values(&mut self, first: usize, count: usize) {
        let width = self.packing.width;
        let vectors = width / Self::LANES;
        let parts = vectors.div_ceil(A::Simd::WIDTH);
        let mut column = 0;
        for part in 0..parts {
            // As equal as can be.
            let vectors = (vectors + part) / parts;
            for row in (0..self.count()).step_by(B::ROWS) {
                // SAFETY: as in `score`; the values have `width` columns for each unit of tokens, and weights and values
                // have zeros up to whole steps of units.
                unsafe {
                    let tile = Tile {
                        steps: B::units(count),
                        a: self.scratch.scores.as_ptr().add(row * A::KEYS).cast(),
                        a_stride: A::KEYS,
                        b: self.values.add(first / B::DEPTH * width + column),
                        b_stride: width,
                        sums: self.scratch.sums.as_mut_ptr().add(row * width + column),
                        sums_stride: width,
                        factors: (first > 0).then(|| self.scratch.factors.as_ptr().add(row)),
                    };
                    self.dots.1.multiply(vectors, tile);
                }
            }
            column += vectors * Self::LANES;
        }
    }

    /// Divides by the sums of the weights.
    #[inline(always)]
    fn finish(&mut self) {
        let simd = self.dots.0.simd();
        let Packing { head_dim, width, .. } = self.packing;
        for query in 0..self.count() {
            // SAFETY: the token's row of the output holds this head's part, which is this block's alone.
            unsafe {
                let weight = simd.total(simd.load(self.scratch.weights.as_ptr().add(query * MAX_LANES)));
                let share = simd.splat(1.0 / weight);
                let from = self.scratch.sums.as_ptr().add(query * width);
                let to = self.out.add(query * self.out_stride);
                for i in (0..head_dim).step_by(Self::LANES) {
                    let count = Self::LANES.min(head_dim - i);
                    store(simd, to.add(i), simd.mul(simd.load(from.add(i)), share), count);
                }
            }
        }
    }
}
