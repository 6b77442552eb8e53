//! Rows into the order that the innermost loop reads them in, in units of 32 bits: `[k][rows]`, or `[k / depth][rows][depth]`.

use std::mem::MaybeUninit;

use half::bf16;

use crate::cpu::simd::{self, Simd, Task, with_simd};
use crate::cpu::{Element, Level};

/// What becomes of values on their way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Convert {
    /// Float32 as they are.
    Float32,
    /// Float32, rounded to bfloat16: what multiplies bfloat16 weights has their precision at every level.
    Rounded,
    /// Pairs of bfloat16.
    Pairs,
}

impl Convert {
    /// Units that `len` values become. An odd value at the end is followed by a zero wherever values go in pairs.
    pub(super) fn units(self, len: usize) -> usize {
        match self {
            Self::Float32 => len,
            Self::Rounded => len.next_multiple_of(2),
            Self::Pairs => len.div_ceil(2),
        }
    }
}

/// What the left operand's values go through when they are loaded, given a stretch of channels.
#[derive(Clone, Copy, Debug)]
pub(super) enum OnLoad<'a> {
    Nothing,
    /// `silu((x - mean) * inverse)`.
    NormSilu {
        mean: &'a [f32],
        inverse: &'a [f32],
    },
}

impl OnLoad<'_> {
    fn is_nothing(self) -> bool {
        matches!(self, Self::Nothing)
    }
}

/// Values of a row that are converted at a time: a tile's rows of them stay in the first-level cache.
const CHUNK: usize = 256;
/// Rows that are interleaved at a time.
const ROWS: usize = 16;

/// Interleaves the rows, at most [`ROWS`] of `len` values: `to[c * row_stride + r]` is unit `c` of row `r`.
///
/// # Safety
/// Each row has `len` values to read, and `to` has `units(len) * row_stride` units to write; at most `row_stride` rows.
pub(super) unsafe fn interleave<E: Element>(
    level: Level,
    convert: Convert,
    rows: &[*const E],
    len: usize,
    to: *mut u32,
    row_stride: usize,
) {
    // SAFETY: the caller's promise.
    unsafe { interleave_on_load(level, convert, OnLoad::Nothing, rows, len, to, row_stride) }
}

/// As [`interleave`], for rows that go through `on_load`. Null rows are zeros whatever it is.
///
/// # Safety
/// As there; `on_load` is of at least `len` channels.
pub(super) unsafe fn interleave_on_load<E: Element>(
    level: Level,
    convert: Convert,
    on_load: OnLoad<'_>,
    rows: &[*const E],
    len: usize,
    to: *mut u32,
    row_stride: usize,
) {
    assert!(rows.len() <= ROWS.min(row_stride), "{} rows {row_stride} apart", rows.len());
    with_simd!(level, |simd| simd.vectorize(Interleave {
        simd,
        convert,
        on_load,
        rows,
        len,
        to,
        row_stride
    }));
}

/// Only made by [`interleave_on_load`], with what its caller vouched for.
struct Interleave<'a, S, E> {
    simd: S,
    convert: Convert,
    on_load: OnLoad<'a>,
    rows: &'a [*const E],
    len: usize,
    to: *mut u32,
    row_stride: usize,
}

impl<S: Simd, E: Element> Task for Interleave<'_, S, E> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Self { simd, convert, on_load, rows, len, to, row_stride } = self;
        let as_they_are = match convert {
            Convert::Float32 => !E::IS_BF16,
            Convert::Rounded => false,
            // A last pair of one value can't be read as a unit.
            Convert::Pairs => E::IS_BF16 && len.is_multiple_of(2),
        };
        let no_nulls = rows.iter().all(|row| !row.is_null());
        if as_they_are && on_load.is_nothing() && no_nulls {
            let mut units = [std::ptr::null(); ROWS];
            for (units, row) in units.iter_mut().zip(rows) {
                *units = row.cast::<u32>();
            }
            // SAFETY: the caller's promise.
            unsafe { simd.interleave(&units[..rows.len()], convert.units(len), to, row_stride) };
            return;
        }
        // Not zeroed: a head with few channels fills a small part of it, thousands of times in a frame.
        let mut buffer = [const { MaybeUninit::<[u32; CHUNK]>::uninit() }; ROWS];
        let mut lines = [std::ptr::null_mut(); ROWS];
        for (line, buffer) in lines.iter_mut().zip(&mut buffer) {
            *line = buffer.as_mut_ptr().cast::<u32>();
        }
        let lines = &lines[..rows.len()];
        let mut units = [std::ptr::null(); ROWS];
        for (units, &line) in units.iter_mut().zip(lines) {
            *units = line.cast_const();
        }
        for begin in (0..len).step_by(CHUNK) {
            let count = CHUNK.min(len - begin);
            // SAFETY: rows have `count` values from `begin` on, and each line has room for them. `to` has room for every chunk;
            // chunks are an even number of values.
            unsafe {
                fetch(simd, convert, on_load, rows, begin, count, lines);
                let to = to.add(convert.units(begin) * row_stride);
                simd.interleave(&units[..rows.len()], convert.units(count), to, row_stride);
            }
        }
    }
}

/// Lays rows of `len` values out as `[k / depth][rows][depth]` units, pairs of bfloat16, with zeros behind the last value. Null rows
/// are zeros.
///
/// # Safety
/// Each row has `len` values to read, and `to` has `ceil(len / (2 * depth)) * depth` units for each row to write; `on_load` is of
/// at least `len` channels.
pub(super) unsafe fn side_by_side<E: Element>(
    level: Level,
    on_load: OnLoad<'_>,
    rows: &[*const E],
    len: usize,
    to: *mut u32,
    depth: usize,
) {
    with_simd!(level, |simd| simd.vectorize(SideBySide { simd, on_load, rows, len, to, depth }));
}

/// Only made by [`side_by_side`], with what its caller vouched for.
struct SideBySide<'a, S, E> {
    simd: S,
    on_load: OnLoad<'a>,
    rows: &'a [*const E],
    len: usize,
    to: *mut u32,
    depth: usize,
}

impl<S: Simd, E: Element> Task for SideBySide<'_, S, E> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Self { simd, on_load, rows, len, to, depth } = self;
        let as_they_are = E::IS_BF16 && on_load.is_nothing();
        for (r, &row) in rows.iter().enumerate() {
            for begin in (0..len).step_by(2 * depth) {
                let count = (2 * depth).min(len - begin);
                // SAFETY: the row has `count` values from `begin` on. Every row has `depth` units to write in each step.
                unsafe {
                    let to = to.add(begin / 2 * rows.len() + r * depth);
                    if row.is_null() || count < 2 * depth {
                        to.write_bytes(0, depth);
                    }
                    if as_they_are && !row.is_null() {
                        std::ptr::copy_nonoverlapping(row.add(begin), to.cast(), count);
                    } else {
                        fetch(simd, Convert::Pairs, on_load, &[row], begin, count, &[to]);
                    }
                }
            }
        }
    }
}

/// Converts `count` values of each row, of channels from `channel` on. Null rows are zeros.
///
/// # Safety
/// From each row that isn't null `count` values can be read from `channel` on, to each line `convert.units(count)` units written.
#[inline(always)]
unsafe fn fetch<S: Simd, E: Element>(
    simd: S,
    convert: Convert,
    on_load: OnLoad<'_>,
    rows: &[*const E],
    channel: usize,
    count: usize,
    lines: &[*mut u32],
) {
    for i in (0..count).step_by(S::LANES) {
        let part = S::LANES.min(count - i);
        // Before the rows: where channels are few, they are what takes the time.
        let norm = match on_load {
            OnLoad::Nothing => None,
            // SAFETY: the slices have `part` values.
            OnLoad::NormSilu { mean, inverse } => Some(
                [mean, inverse]
                    .map(|values| unsafe { simd::load(simd, values[channel + i..][..part].as_ptr(), part) }),
            ),
        };
        for (&row, &line) in rows.iter().zip(lines) {
            // SAFETY: the caller's promise; `part` values from `i` on are within it.
            unsafe {
                let v = match norm {
                    _ if row.is_null() => simd.splat(0.0),
                    None => simd::load(simd, row.add(channel + i), part),
                    Some([mean, inverse]) => {
                        let v = simd.sub(simd::load(simd, row.add(channel + i), part), mean);
                        simd::math::silu(simd, simd.mul(v, inverse))
                    }
                };
                match convert {
                    Convert::Float32 => simd::store(simd, line.add(i).cast::<f32>(), v, part),
                    Convert::Rounded => simd::store(simd, line.add(i).cast::<f32>(), round(simd, v), part),
                    Convert::Pairs => simd::store(simd, line.cast::<bf16>().add(i), v, part),
                }
            }
        }
    }
    if count % 2 == 1 {
        for &line in lines {
            // SAFETY: the caller's promise: a unit, or half of one, more than `count` values where that is odd.
            unsafe {
                match convert {
                    Convert::Float32 => (),
                    Convert::Rounded => line.add(count).write(0),
                    Convert::Pairs => line.cast::<u16>().add(count).write(0),
                }
            }
        }
    }
}

/// To the nearest bfloat16.
#[inline(always)]
fn round<S: Simd>(simd: S, v: S::V) -> S::V {
    let mut bits = [0u16; simd::MAX_LANES];
    // SAFETY: there is room for the lanes of every level.
    unsafe {
        simd.store_bf16(bits.as_mut_ptr(), v);
        simd.load_bf16(bits.as_ptr())
    }
}
