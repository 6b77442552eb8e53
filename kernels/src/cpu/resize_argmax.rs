//! The last step: class labels at the frame's size from the network's logits as its last product left them, a pixel's
//! classes side by side. What [`crate::ResizeArgmax`] computes of planes, and held against the same naive twin.
//!
//! Most of an image lies inside of things. Where the four pixels around a place agree on the winner, it wins all over the
//! place between them: blending multiplies by weights that aren't negative, adds, and rounds, none of which changes
//! the order of two classes. So only what lies between pixels that disagree is blended. (Rounding can make two classes equal;
//! there the naive twin takes the lower, where this may keep the one that was larger.)
#![allow(unsafe_code)]

use super::simd::{self, Simd, Task, with_simd};
use super::threads::SharedMut;
use super::{Element, Level, Threads};
use crate::LabelWindow;
use crate::resize_argmax::Taps;

/// Logits of one image, `[height, width, stride]`, of whose every `stride` values the first are the classes.
#[derive(Clone, Copy, Debug)]
pub struct PixelLogits<'a, E> {
    values: &'a [E],
    classes: usize,
    stride: usize,
    height: usize,
    width: usize,
}

impl<'a, E: Element> PixelLogits<'a, E> {
    /// A view of `values`.
    ///
    /// # Panics
    /// If there are no or more than 256 classes, a side is 0, or the values aren't so many.
    pub fn new(values: &'a [E], classes: usize, stride: usize, height: usize, width: usize) -> Self {
        assert!((1..=256).contains(&classes), "{classes} classes: labels of 8 bits need 1 to 256");
        assert!(classes <= stride, "{classes} classes every {stride} values");
        assert!(height > 0 && width > 0, "logits of {width} x {height} pixels");
        assert_eq!(values.len(), height * width * stride, "length of logits [{height}, {width}, {stride}]");
        Self { values, classes, stride, height, width }
    }
}

/// Makes label images, keeping its tables and buffers: a stream of equal frames allocates nothing after the first.
#[derive(Debug)]
pub struct ResizeArgmax {
    level: Level,
    /// Sizes that the tables were made for: logits width, full width, label width.
    columns_for: (usize, usize, usize),
    columns: Vec<Taps>,
    cells: Vec<Cell>,
    scratch: Vec<Rows>,
}

/// Label columns that lie between the same two columns of the logits.
#[derive(Clone, Copy, Debug)]
struct Cell {
    between: [u32; 2],
    first: u32,
    last: u32,
}

/// A pixel whose winner says nothing about its neighbourhood, or a cell whose pixels have different winners.
const NONE: u16 = u16::MAX;

/// What one thread knows of two rows of the logits.
#[derive(Debug, Default)]
struct Rows {
    pixels: Vec<u16>,
    /// Which row each of `winners` is of.
    held: [usize; 2],
    /// The winner of each cell's two pixels in this row, if they have the same.
    winners: [Vec<u16>; 2],
}

impl ResizeArgmax {
    /// For so many threads.
    pub fn new(level: Level, threads: usize) -> Self {
        let scratch = (0..threads).map(|_| Rows::default()).collect();
        Self { level, columns_for: (0, 0, 0), columns: Vec::new(), cells: Vec::new(), scratch }
    }

    /// Writes the label image to `out`, `window.width` bytes a row, nothing between them.
    ///
    /// The label is the class with the largest value after the resize, the lowest of them where several tie. NaN never
    /// wins (an infinite logit can become NaN in the blend): where all classes are NaN the label is 0.
    ///
    /// # Panics
    /// If the window is empty or larger than what the logits are stretched to, `out` has another length, or there are
    /// more threads than this was made for.
    pub fn run<E: Element>(
        &mut self,
        threads: &mut Threads,
        logits: PixelLogits<'_, E>,
        window: LabelWindow,
        out: &mut [u8],
    ) {
        /// Rows of the logits to a task: the two that it shares with its neighbours are looked at twice.
        const ROWS: usize = 16;
        let LabelWindow { full_height, full_width, height, width } = window;
        assert!(
            (1..=full_height).contains(&height) && (1..=full_width).contains(&width),
            "{window:?} is empty or larger than the whole"
        );
        assert_eq!(out.len(), height * width, "bytes of {width} x {height} labels");
        self.prepare(logits.width, full_width, width);
        let winners_pay = full_height * full_width >= logits.height * logits.width;
        let per_task = (ROWS * full_height / logits.height).max(1);
        let (level, columns, cells) = (self.level, &*self.columns, &*self.cells);
        let out = SharedMut(out.as_mut_ptr());
        threads.run_with(&mut self.scratch, height.div_ceil(per_task), |rows, task| {
            let first = task * per_task;
            let count = per_task.min(height - first);
            // SAFETY: tasks' rows are disjoint and within the label image.
            let out = unsafe { std::slice::from_raw_parts_mut(out.at(first * width), count * width) };
            with_simd!(level, |simd| simd.vectorize(Band {
                simd,
                logits,
                full_height,
                first,
                width,
                columns,
                cells,
                winners_pay,
                rows,
                out,
            }));
        });
    }

    fn prepare(&mut self, n: usize, full: usize, width: usize) {
        if self.columns_for == (n, full, width) {
            return;
        }
        self.columns_for = (n, full, width);
        self.columns.clear();
        self.columns.extend((0..width).map(|x| Taps::new(x, n, full)));
        self.cells.clear();
        for (x, taps) in (0..).zip(&self.columns) {
            match self.cells.last_mut() {
                Some(cell) if cell.between == taps.index => cell.last = x + 1,
                _ => self.cells.push(Cell { between: taps.index, first: x, last: x + 1 }),
            }
        }
    }
}

/// Rows of the label image from `first` on.
struct Band<'a, S, E> {
    simd: S,
    logits: PixelLogits<'a, E>,
    full_height: usize,
    first: usize,
    width: usize,
    columns: &'a [Taps],
    cells: &'a [Cell],
    /// Whether there are enough label pixels between the logits' that finding their winners first is less work.
    winners_pay: bool,
    rows: &'a mut Rows,
    out: &'a mut [u8],
}

impl<S: Simd, E: Element> Task for Band<'_, S, E> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        // The numbers of vectors that 28 and 29 classes have are compiled for themselves.
        match self.logits.classes.div_ceil(S::LANES) {
            1 => self.with_vectors::<1>(),
            2 => self.with_vectors::<2>(),
            4 => self.with_vectors::<4>(),
            _ => self.with_vectors::<MAX_VECTORS>(),
        }
    }
}

/// Vectors of four lanes that hold 256 classes.
const MAX_VECTORS: usize = 64;

impl<S: Simd, E: Element> Band<'_, S, E> {
    #[inline(always)]
    fn with_vectors<const N: usize>(self) {
        let Self { simd, logits, full_height, first, width, columns, cells, winners_pay, rows, out } = self;
        let classes = Classes::<S, E, N>::new(simd, logits);
        rows.held = [usize::MAX; 2];
        for (y, out) in (first..).zip(out.chunks_exact_mut(width)) {
            let taps = Taps::new(y, logits.height, full_height);
            let pair = taps.index.map(|y| y as usize);
            if !winners_pay {
                classes.blend(pair, taps.weight, columns, out);
                continue;
            }
            rows.require(&classes, cells, pair);
            let [upper, lower] = &rows.winners;
            let (upper, lower) = (&upper[..cells.len()], &lower[..cells.len()]);
            let mut i = 0;
            while i < cells.len() {
                let winner = common(upper[i], lower[i]);
                let begin = cells[i].first as usize;
                i += 1;
                while i < cells.len() && common(upper[i], lower[i]) == winner {
                    i += 1;
                }
                let run = begin..cells[i - 1].last as usize;
                if winner == NONE {
                    classes.blend(pair, taps.weight, &columns[run.clone()], &mut out[run]);
                } else {
                    out[run].fill(winner as u8);
                }
            }
        }
    }
}

#[inline(always)]
fn common(a: u16, b: u16) -> u16 {
    if a == b { a } else { NONE }
}

impl Rows {
    /// Makes sure that the winners are those of two rows of the logits.
    #[inline(always)]
    fn require<S: Simd, E: Element, const N: usize>(
        &mut self,
        classes: &Classes<'_, S, E, N>,
        cells: &[Cell],
        pair: [usize; 2],
    ) {
        if self.held[0] != pair[0] {
            self.held.swap(0, 1);
            self.winners.swap(0, 1);
        }
        for (i, y) in pair.into_iter().enumerate() {
            if self.held[i] == y {
                continue;
            }
            self.held[i] = y;
            self.pixels.clear();
            for x in 0..classes.logits.width {
                self.pixels.push(classes.winner(y, x));
            }
            self.winners[i].clear();
            for cell in cells {
                let [a, b] = cell.between.map(|x| self.pixels[x as usize]);
                self.winners[i].push(common(a, b));
            }
        }
    }
}

/// Reads pixels' classes, as `vectors` vectors, at most `N`.
struct Classes<'a, S: Simd, E, const N: usize> {
    simd: S,
    logits: PixelLogits<'a, E>,
    vectors: usize,
    /// Added to the last vector: zero for classes, minus infinity beyond them.
    beyond: S::V,
}

impl<'a, S: Simd, E: Element, const N: usize> Classes<'a, S, E, N> {
    #[inline(always)]
    fn new(simd: S, logits: PixelLogits<'a, E>) -> Self {
        let vectors = logits.classes.div_ceil(S::LANES);
        let mut beyond = [f32::NEG_INFINITY; simd::MAX_LANES];
        beyond[..logits.classes - (vectors - 1) * S::LANES].fill(0.0);
        // SAFETY: there is room for every level's lanes.
        let beyond = unsafe { simd.load(beyond.as_ptr()) };
        // Where it is known, the loops over vectors disappear.
        let vectors = if N < MAX_VECTORS { N } else { vectors };
        Self { simd, logits, vectors, beyond }
    }

    /// Vector `i` of the pixel at `at`; lanes beyond its classes mean nothing.
    #[inline(always)]
    fn load(&self, at: usize, i: usize) -> S::V {
        let values = &self.logits.values[at + i * S::LANES..];
        // SAFETY: as many values as there are.
        unsafe { simd::load(self.simd, values.as_ptr(), values.len().min(S::LANES)) }
    }

    #[inline(always)]
    fn at(&self, y: usize, x: usize) -> usize {
        (y * self.logits.width + x) * self.logits.stride
    }

    /// The largest value and the lowest class that has it. NaN is not larger than anything: `max` gives its second
    /// operand where either is NaN.
    #[inline(always)]
    fn largest(&self, values: &[S::V; N]) -> (f32, u16) {
        let simd = self.simd;
        let mut largest = simd.splat(f32::NEG_INFINITY);
        for v in &values[..self.vectors] {
            largest = simd.max(*v, largest);
        }
        let largest = simd.largest(largest);
        if largest == f32::NEG_INFINITY {
            return (largest, 0);
        }
        let wanted = simd.splat(largest);
        for (i, v) in values[..self.vectors].iter().enumerate() {
            let lanes = simd.equal(*v, wanted);
            if lanes != 0 {
                return (largest, (i * S::LANES) as u16 + lanes.trailing_zeros() as u16);
            }
        }
        (largest, 0)
    }

    /// The winner of one pixel of the logits, if its value is a number that stays finite in any blend.
    #[inline(always)]
    fn winner(&self, y: usize, x: usize) -> u16 {
        let at = self.at(y, x);
        let mut values = [self.simd.splat(0.0); N];
        for (i, v) in values[..self.vectors].iter_mut().enumerate() {
            *v = self.load(at, i);
        }
        values[self.vectors - 1] = self.simd.add(values[self.vectors - 1], self.beyond);
        let (value, class) = self.largest(&values);
        if value.abs() < f32::MAX / 2.0 { class } else { NONE }
    }

    /// Labels of some columns of one row, between two rows of the logits.
    #[inline(always)]
    fn blend(&self, pair: [usize; 2], weight: [f32; 2], columns: &[Taps], out: &mut [u8]) {
        let simd = self.simd;
        let (upper, lower) = (simd.splat(weight[0]), simd.splat(weight[1]));
        for (out, taps) in out.iter_mut().zip(columns) {
            let (left, right) = (simd.splat(taps.weight[0]), simd.splat(taps.weight[1]));
            let [x0, x1] = taps.index.map(|x| x as usize);
            let above = [self.at(pair[0], x0), self.at(pair[0], x1)];
            let below = [self.at(pair[1], x0), self.at(pair[1], x1)];
            let mut values = [simd.splat(0.0); N];
            for (i, v) in values[..self.vectors].iter_mut().enumerate() {
                // Every product and sum is rounded, as the definition has it.
                let a =
                    simd.add(simd.mul(left, self.load(above[0], i)), simd.mul(right, self.load(above[1], i)));
                let b =
                    simd.add(simd.mul(left, self.load(below[0], i)), simd.mul(right, self.load(below[1], i)));
                *v = simd.add(simd.mul(upper, a), simd.mul(lower, b));
            }
            values[self.vectors - 1] = simd.add(values[self.vectors - 1], self.beyond);
            *out = self.largest(&values).1 as u8;
        }
    }
}
