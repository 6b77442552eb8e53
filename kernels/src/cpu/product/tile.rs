//! The innermost loops: one tile of `rows` times two vectors of columns, summed over a stretch of k.
//!
//! Both operands are packed, in units of 32 bits: a float32, or a pair of bfloat16 that are neighbours in k. With AMX the tile
//! is four of its registers, else vector registers hold it. Two vectors of columns because SwiGLU's two halves then meet in one tile, and because with as many rows as registers allow that
//! is the tile with the fewest loads per multiplication.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::__m512;

use std::hint::black_box;

use crate::cpu::Level;
#[cfg(target_arch = "x86_64")]
use crate::cpu::amx::{self, Configured};
#[cfg(target_arch = "x86_64")]
use crate::cpu::level::{Avx512, Avx512Bf16};
use crate::cpu::simd::{Simd, Task, with_simd};

/// How a level and a weight type tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    /// Rows of a whole tile, the first of `heights`.
    pub rows: usize,
    /// Tile heights that are compiled, beside which the last rows of a matrix are padded.
    heights: &'static [usize],
    /// Columns of a vector; a tile has two.
    pub lanes: usize,
    /// Whether the left operand is packed as bfloat16 pairs, else as float32.
    pub pairs: bool,
    /// Units of k that are summed at once, of which the left operand has each row's next to each other. Beside their
    /// multiples k is padded.
    pub depth: usize,
}

impl Shape {
    pub(super) fn new(level: Level, bf16: bool) -> Self {
        /// Of tiles in vector registers.
        const HEIGHTS: [usize; 6] = [14, 10, 6, 4, 2, 1];
        #[cfg(target_arch = "x86_64")]
        if let (Level::Amx(_), true) = (level, bf16) {
            const HEIGHTS: [usize; 2] = [2 * amx::SIDE, amx::SIDE];
            let (rows, lanes, depth) = (HEIGHTS[0], amx::SIDE, amx::DEPTH);
            return Self { rows, heights: &HEIGHTS, lanes, pairs: true, depth };
        }
        let (heights, lanes) = match level {
            Level::Amx(_) | Level::Avx512Bf16(_) | Level::Avx512(_) => (&HEIGHTS[..], 16),
            Level::Avx2(_) => (&HEIGHTS[2..], 8),
            Level::Scalar(_) => (&HEIGHTS[3..], 4),
        };
        let pairs = bf16 && matches!(level, Level::Avx512Bf16(_));
        Self { rows: heights[0], heights, lanes, pairs, depth: 1 }
    }

    /// Columns of a tile.
    pub(super) fn columns(self) -> usize {
        2 * self.lanes
    }

    /// The least height of tile that there is for so many rows.
    pub(super) fn height(self, rows: usize) -> usize {
        self.heights.iter().copied().rfind(|&height| height >= rows).unwrap_or(self.rows)
    }
}

/// The most rows that a tile has.
pub(super) const MAX_ROWS: usize = 32;

/// The operands of one tile.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tile {
    /// Units of the right operand's k to sum over.
    pub steps: usize,
    /// Left operand, `[k / depth][height][depth]`.
    pub a: *const u32,
    /// Right operand, `[k][columns]`.
    pub b: *const u32,
    /// Sums, `[height][columns]`.
    pub sums: *mut f32,
    /// Whether the sums begin at zero, else at what they are.
    pub first: bool,
}

/// What multiplies tiles, on the thread that made it.
pub(super) enum Unit {
    /// Vector registers.
    Vectors { level: Level, bf16: bool },
    #[cfg(target_arch = "x86_64")]
    Tiles(Configured),
}

impl Unit {
    /// For operands packed for [`Shape::new`] of the same.
    pub(super) fn new(level: Level, bf16: bool) -> Self {
        match (level, bf16) {
            #[cfg(target_arch = "x86_64")]
            (Level::Amx(token), true) => Self::Tiles(Configured::new(token)),
            _ => Self::Vectors { level, bf16 },
        }
    }

    /// Sums up one tile, of a height that [`Shape::height`] gave.
    ///
    /// # Safety
    /// The operands are packed for this unit's shape, and hold what their descriptions say.
    pub(super) unsafe fn multiply(&self, height: usize, tile: Tile) {
        // SAFETY: the caller's promise.
        unsafe {
            match *self {
                #[cfg(target_arch = "x86_64")]
                Self::Tiles(_) => in_tiles(height, tile),
                #[cfg(target_arch = "x86_64")]
                Self::Vectors { level: Level::Avx512Bf16(token), bf16: true } => {
                    of_height(BFloat16Dot(token), height, tile);
                }
                Self::Vectors { level, bf16: true } => {
                    with_simd!(level, |simd| of_height(Widened(simd), height, tile));
                }
                Self::Vectors { level, bf16: false } => {
                    with_simd!(level, |simd| of_height(Float32(simd), height, tile));
                }
            }
        }
    }
}

/// # Safety
/// As [`Unit::multiply`], of [`Unit::Tiles`].
#[cfg(target_arch = "x86_64")]
unsafe fn in_tiles(height: usize, tile: Tile) {
    const UNIT: usize = size_of::<u32>();
    let Tile { steps, a, b, sums, first } = tile;
    let columns = 2 * amx::SIDE * UNIT;
    debug_assert!(steps.is_multiple_of(amx::DEPTH));
    let operands = amx::Operands {
        steps: steps / amx::DEPTH,
        a: a.cast(),
        a_row: amx::DEPTH * UNIT,
        a_band: amx::SIDE * amx::DEPTH * UNIT,
        a_step: height * amx::DEPTH * UNIT,
        b: b.cast(),
        b_unit: columns,
        sums,
        sums_row: columns,
        first,
    };
    // SAFETY: the caller's promise.
    unsafe {
        if height > amx::SIDE {
            amx::multiply::<2, 2>(operands);
        } else {
            amx::multiply::<1, 2>(operands);
        }
    }
}

/// # Safety
/// As [`Unit::multiply`].
#[inline(always)]
unsafe fn of_height<M: Multiply>(multiply: M, height: usize, tile: Tile) {
    match height {
        14 => multiply.vectorize(Sum::<M, 14> { multiply, tile }),
        10 => multiply.vectorize(Sum::<M, 10> { multiply, tile }),
        6 => multiply.vectorize(Sum::<M, 6> { multiply, tile }),
        4 => multiply.vectorize(Sum::<M, 4> { multiply, tile }),
        2 => multiply.vectorize(Sum::<M, 2> { multiply, tile }),
        1 => multiply.vectorize(Sum::<M, 1> { multiply, tile }),
        _ => unreachable!("no tile of {height} rows"),
    }
}

/// The sums of a tile, in registers.
type Sums<S, const R: usize> = [[<S as Simd>::V; 2]; R];

type Lanes<M> = <<M as Multiply>::Simd as Simd>::V;

/// How one step in k is multiplied.
trait Multiply: Copy {
    type Simd: Simd;
    /// Multiplications and additions of one lane in [`multiply_add`](Self::multiply_add).
    const OPERATIONS: usize;
    /// Units that the left operand has for one of the right's.
    const LEFT_UNITS: usize;

    fn simd(self) -> Self::Simd;

    /// Runs a task compiled with the features that the multiplication needs.
    #[inline(always)]
    fn vectorize<T: Task>(self, task: T) -> T::Output {
        self.simd().vectorize(task)
    }

    /// One instruction's worth of the step, from registers.
    fn multiply_add(self, a: Lanes<Self>, b: Lanes<Self>, sum: Lanes<Self>) -> Lanes<Self>;

    /// A step of one left unit for each right one; otherwise it is another.
    ///
    /// # Safety
    /// `a` has `LEFT_UNITS * R` units, `b` two vectors.
    #[inline(always)]
    unsafe fn step<const R: usize>(self, a: *const u32, b: *const u32, sums: &mut Sums<Self::Simd, R>) {
        let simd = self.simd();
        // SAFETY: the caller's promise.
        unsafe {
            let (a, b): (*const f32, *const f32) = (a.cast(), b.cast());
            let b = [simd.load(b), simd.load(b.add(Self::Simd::LANES))];
            for (r, sums) in sums.iter_mut().enumerate() {
                let a = simd.splat(*a.add(r));
                *sums = [self.multiply_add(a, b[0], sums[0]), self.multiply_add(a, b[1], sums[1])];
            }
        }
    }
}

/// Sums up one tile. It is only made with a tile for whose pointers [`Unit::multiply`]'s caller has vouched.
struct Sum<M, const R: usize> {
    multiply: M,
    tile: Tile,
}

impl<M: Multiply, const R: usize> Task for Sum<M, R> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let (simd, Tile { steps, mut a, mut b, sums: out, first }) = (self.multiply.simd(), self.tile);
        let lanes = M::Simd::LANES;
        // SAFETY: the operands hold `steps` units in k and the sums `[R][2 * lanes]`; pointers end one past that.
        unsafe {
            let mut sums = [[simd.splat(0.0); 2]; R];
            if !first {
                for (r, sums) in sums.iter_mut().enumerate() {
                    let from = out.add(r * 2 * lanes);
                    *sums = [simd.load(from), simd.load(from.add(lanes))];
                }
            }
            for _ in 0..steps {
                self.multiply.step(a, b, &mut sums);
                a = a.add(M::LEFT_UNITS * R);
                b = b.add(2 * lanes);
            }
            for (r, sums) in sums.iter().enumerate() {
                let to = out.add(r * 2 * lanes);
                simd.store(to, sums[0]);
                simd.store(to.add(lanes), sums[1]);
            }
        }
    }
}

/// Float32 times float32.
#[derive(Clone, Copy)]
struct Float32<S>(S);

impl<S: Simd> Multiply for Float32<S> {
    type Simd = S;
    const OPERATIONS: usize = 2;
    const LEFT_UNITS: usize = 1;

    #[inline(always)]
    fn simd(self) -> S {
        self.0
    }

    #[inline(always)]
    fn multiply_add(self, a: S::V, b: S::V, sum: S::V) -> S::V {
        self.0.mul_add(a, b, sum)
    }
}

/// Bfloat16 weights, widened on the way, times left values that were widened when they were packed.
#[derive(Clone, Copy)]
struct Widened<S>(S);

impl<S: Simd> Multiply for Widened<S> {
    type Simd = S;
    const OPERATIONS: usize = 2;
    const LEFT_UNITS: usize = 2;

    #[inline(always)]
    fn simd(self) -> S {
        self.0
    }

    #[inline(always)]
    fn multiply_add(self, a: S::V, b: S::V, sum: S::V) -> S::V {
        self.0.mul_add(a, b, sum)
    }

    #[inline(always)]
    unsafe fn step<const R: usize>(self, a: *const u32, b: *const u32, sums: &mut Sums<S, R>) {
        let simd = self.0;
        // SAFETY: the caller's promise.
        unsafe {
            let (a, b): (*const f32, *const f32) = (a.cast(), b.cast());
            // Loaded twice: keeping the pairs would cost two registers that the tile needs.
            let low = [simd.low_bf16(simd.load(b)), simd.low_bf16(simd.load(b.add(S::LANES)))];
            for (r, sums) in sums.iter_mut().enumerate() {
                let a = simd.splat(*a.add(r));
                *sums = [simd.mul_add(a, low[0], sums[0]), simd.mul_add(a, low[1], sums[1])];
            }
            let high = [simd.high_bf16(simd.load(b)), simd.high_bf16(simd.load(b.add(S::LANES)))];
            for (r, sums) in sums.iter_mut().enumerate() {
                let a = simd.splat(*a.add(R + r));
                *sums = [simd.mul_add(a, high[0], sums[0]), simd.mul_add(a, high[1], sums[1])];
            }
        }
    }
}

/// Pairs of bfloat16 times pairs, both products added to a float32 by one instruction. It takes subnormal numbers as zero.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
struct BFloat16Dot(Avx512Bf16);

#[cfg(target_arch = "x86_64")]
impl Multiply for BFloat16Dot {
    type Simd = Avx512;
    const OPERATIONS: usize = 4;
    const LEFT_UNITS: usize = 1;

    #[inline(always)]
    fn simd(self) -> Avx512 {
        self.0.avx512()
    }

    #[inline(always)]
    fn vectorize<T: Task>(self, task: T) -> T::Output {
        self.0.vectorize(task)
    }

    #[inline(always)]
    fn multiply_add(self, a: __m512, b: __m512, sum: __m512) -> __m512 {
        self.0.dot_pairs(a, b, sum)
    }
}

/// Does `rounds` times some multiply-adds with operands in registers, and returns the operations that were.
pub(in crate::cpu) fn from_registers(level: Level, bf16: bool, rounds: usize) -> usize {
    match (level, bf16) {
        #[cfg(target_arch = "x86_64")]
        (Level::Amx(token), true) => amx::from_registers(token, rounds / 16),
        #[cfg(target_arch = "x86_64")]
        (Level::Avx512Bf16(token), true) => {
            let multiply = BFloat16Dot(token);
            multiply.vectorize(FromRegisters { multiply, rounds })
        }
        _ => with_simd!(level, |simd| simd.vectorize(FromRegisters { multiply: Float32(simd), rounds })),
    }
}

struct FromRegisters<M> {
    multiply: M,
    rounds: usize,
}

impl<M: Multiply> Task for FromRegisters<M> {
    type Output = usize;

    #[inline(always)]
    fn run(self) -> usize {
        /// More chains than a multiplication's latency times the units, and few enough for every level's registers.
        const CHAINS: usize = 12;
        let simd = self.multiply.simd();
        let [a, b] = [1.0, 0.5].map(|value| simd.splat(black_box(value)));
        let mut sums = [simd.splat(0.0); CHAINS];
        for _ in 0..self.rounds {
            for sum in &mut sums {
                *sum = self.multiply.multiply_add(a, b, *sum);
            }
        }
        black_box(sums);
        self.rounds * CHAINS * M::Simd::LANES * M::OPERATIONS
    }
}
