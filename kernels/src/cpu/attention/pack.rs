//! From queries, keys and values as the products left them to what the query blocks multiply: normed, rotated, in
//! units of 32 bits, keys lying in columns.

use super::dots::Dots;
use super::{Heads, MAX_HEAD_DIM, MAX_PANEL, QkNorm, Rotary};
use crate::cpu::Element;
use crate::cpu::simd::{Simd, bf16_bits, load, store};

/// What becomes of a query or key before it is multiplied.
#[derive(Clone, Copy)]
pub(super) struct Preparation<'a> {
    /// Weights of the RMSNorm and its epsilon.
    pub norm: Option<(&'a [f32], f32)>,
    pub rotary: Option<Rotary<'a>>,
}

impl<'a> Preparation<'a> {
    pub(super) fn of_queries(norm: Option<QkNorm<'a>>, rotary: Option<Rotary<'a>>) -> Self {
        Self { norm: norm.map(|norm| (norm.q, norm.epsilon)), rotary }
    }

    pub(super) fn of_keys(norm: Option<QkNorm<'a>>, rotary: Option<Rotary<'a>>) -> Self {
        Self { norm: norm.map(|norm| (norm.k, norm.epsilon)), rotary }
    }

    /// One head's vector of one token, ready to be multiplied, in `row`.
    #[inline(always)]
    fn prepare<S: Simd, E: Element>(
        self,
        simd: S,
        vector: &[E],
        token: usize,
        row: &mut [f32; MAX_HEAD_DIM],
    ) {
        let row = &mut row[..vector.len()];
        let squares = copy(simd, vector, row);
        if let Some((weight, epsilon)) = self.norm {
            let factor = simd.splat(1.0 / (squares / row.len() as f32 + epsilon).sqrt());
            for i in (0..row.len()).step_by(S::LANES) {
                let value = simd.mul(part(simd, row, i), factor);
                set_part(simd, row, i, simd.mul(value, part(simd, weight, i)));
            }
        }
        let Some(Rotary { prefix, sin, cos }) = self.rotary else { return };
        if token < prefix {
            for i in (0..row.len()).step_by(S::LANES) {
                let value = simd.round_bf16(part(simd, row, i));
                set_part(simd, row, i, value);
            }
            return;
        }
        // The networks were trained with the rotation in bfloat16, so its roundings are part of it.
        let half = row.len() / 2;
        let angles = (token - prefix) * half..(token - prefix + 1) * half;
        let (sin, cos) = (&sin[angles.clone()], &cos[angles]);
        let (a, b) = row.split_at_mut(half);
        for i in (0..half).step_by(S::LANES) {
            let (x, y) = (simd.round_bf16(part(simd, a, i)), simd.round_bf16(part(simd, b, i)));
            let (sin, cos) = (part(simd, sin, i), part(simd, cos, i));
            let xc = simd.round_bf16(simd.mul(x, cos));
            let ys = simd.round_bf16(simd.mul(y, sin));
            let yc = simd.round_bf16(simd.mul(y, cos));
            let xs = simd.round_bf16(simd.mul(x, sin));
            set_part(simd, a, i, simd.round_bf16(simd.sub(xc, ys)));
            set_part(simd, b, i, simd.round_bf16(simd.add(yc, xs)));
        }
    }
}

/// The vector of values from `i` on, zero beyond the last.
#[inline(always)]
fn part<S: Simd, E: Element>(simd: S, values: &[E], i: usize) -> S::V {
    let values = &values[i..];
    // SAFETY: as many values as there are.
    unsafe { load(simd, values.as_ptr(), values.len().min(S::LANES)) }
}

#[inline(always)]
fn set_part<S: Simd>(simd: S, values: &mut [f32], i: usize, v: S::V) {
    let values = &mut values[i..];
    // SAFETY: as many values as there are.
    unsafe { store(simd, values.as_mut_ptr(), v, values.len().min(S::LANES)) };
}

/// Copies values and gives the sum of their squares.
#[inline(always)]
fn copy<S: Simd, E: Element>(simd: S, from: &[E], to: &mut [f32]) -> f32 {
    let mut squares = simd.splat(0.0);
    for i in (0..from.len()).step_by(S::LANES) {
        let v = part(simd, from, i);
        squares = simd.mul_add(v, v, squares);
        set_part(simd, to, i, v);
    }
    simd.total(squares)
}

/// Bits of the nearest bfloat16.
#[inline(always)]
fn bits<E: Element>(value: E) -> u16 {
    if E::IS_BF16 {
        // SAFETY: this `Element` is bfloat16, which is its 16 bits.
        unsafe { std::mem::transmute_copy(&value) }
    } else {
        bf16_bits(value.to_f32())
    }
}

/// Writes a row's values as units.
///
/// # Safety
/// `row.len() / DEPTH` units can be written; the length is even.
#[inline(always)]
unsafe fn write_units<D: Dots, E: Element>(row: &[E], to: *mut u32) {
    // SAFETY: the caller's promise.
    unsafe {
        if D::DEPTH == 1 {
            let to = std::slice::from_raw_parts_mut(to, row.len());
            for (to, value) in to.iter_mut().zip(row) {
                *to = value.to_f32().to_bits();
            }
        } else {
            let to = std::slice::from_raw_parts_mut(to.cast::<u16>(), row.len());
            for (to, value) in to.iter_mut().zip(row) {
                *to = bits(*value);
            }
        }
    }
}

/// One head's vectors of the tokens from `first` to `last`.
#[derive(Clone, Copy)]
pub(super) struct Part<'a, E> {
    pub heads: Heads<'a, E>,
    pub head: usize,
    pub head_dim: usize,
    pub first: usize,
    pub last: usize,
}

impl<'a, E: Element> Part<'a, E> {
    #[inline(always)]
    fn vector(self, token: usize) -> &'a [E] {
        self.heads.vector(token, self.head, self.head_dim)
    }
}

/// Queries, or keys before they are turned, as rows of units, with zeros up to whole steps of them.
///
/// # Safety
/// A row for each token can be written to `to`.
#[inline(always)]
pub(super) unsafe fn rows<D: Dots, E: Element>(
    dots: D,
    part: Part<'_, E>,
    preparation: Preparation<'_>,
    to: *mut u32,
) {
    let Part { head_dim, first, last, .. } = part;
    let (units, used) = (D::units(head_dim), head_dim / D::DEPTH);
    let mut row = [0.0; MAX_HEAD_DIM];
    for token in first..last {
        // SAFETY: the caller's promise.
        unsafe {
            let to = to.add((token - first) * units);
            to.add(used).write_bytes(0, units - used);
            if preparation.norm.is_none() && preparation.rotary.is_none() {
                write_units::<D, E>(part.vector(token), to);
            } else {
                preparation.prepare(dots.simd(), part.vector(token), token, &mut row);
                write_units::<D, f32>(&row[..head_dim], to);
            }
        }
    }
}

/// Keys as a panel of `columns` columns. Those for which there is no token stay as they are: their scores are never used.
///
/// # Safety
/// `rows` has a row of units for each token, `to` a panel, which holds as many columns.
#[inline(always)]
pub(super) unsafe fn keys<D: Dots, E: Element>(
    dots: D,
    part: Part<'_, E>,
    columns: usize,
    preparation: Preparation<'_>,
    rows: *mut u32,
    to: *mut u32,
) {
    let units = D::units(part.head_dim);
    let count = part.last - part.first;
    // SAFETY: the caller's promise.
    unsafe {
        self::rows::<D, E>(dots, part, preparation, rows);
        let mut pointers = [std::ptr::null::<u32>(); MAX_PANEL];
        for (i, pointer) in pointers[..count].iter_mut().enumerate() {
            *pointer = rows.add(i * units);
        }
        dots.simd().interleave(&pointers[..count], units, to, columns);
    }
}

/// Values, `[units of tokens][width]`, zero beside the last token where it has no partner and behind it up to a whole step of
/// units. What lies beyond the head dim is not written.
///
/// # Safety
/// So many units can be written.
#[inline(always)]
pub(super) unsafe fn values<D: Dots, E: Element>(part: Part<'_, E>, width: usize, to: *mut u32) {
    let Part { head_dim, first, last, .. } = part;
    for i in (last - first).div_ceil(D::DEPTH)..D::units(last - first) {
        // SAFETY: the caller's promise.
        unsafe { to.add(i * width).write_bytes(0, head_dim) };
    }
    for (i, token) in (first..last).step_by(D::DEPTH).enumerate() {
        let vector = part.vector(token);
        // SAFETY: the caller's promise.
        let to = unsafe { std::slice::from_raw_parts_mut(to.add(i * width), head_dim) };
        if D::DEPTH == 1 {
            for (to, from) in to.iter_mut().zip(vector) {
                *to = from.to_f32().to_bits();
            }
        } else if token + 1 < last {
            for ((to, low), high) in to.iter_mut().zip(vector).zip(part.vector(token + 1)) {
                *to = unit(*low, *high);
            }
        } else {
            for (to, low) in to.iter_mut().zip(vector) {
                *to = unit(*low, E::default());
            }
        }
    }
}

#[inline(always)]
fn unit<E: Element>(low: E, high: E) -> u32 {
    u32::from(bits(low)) | u32::from(bits(high)) << 16
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::Level;
    use crate::cpu::simd::{Task, with_simd};
    use crate::reference;

    struct Prepare<'a, S> {
        simd: S,
        preparation: Preparation<'a>,
        x: &'a [f32],
        head_dim: usize,
    }

    impl<S: Simd> Task for Prepare<'_, S> {
        type Output = Vec<f32>;

        #[inline(always)]
        fn run(self) -> Vec<f32> {
            let mut out = Vec::new();
            for (token, vector) in self.x.chunks_exact(self.head_dim).enumerate() {
                let mut row = [f32::NAN; MAX_HEAD_DIM];
                self.preparation.prepare(self.simd, vector, token, &mut row);
                out.extend(&row[..self.head_dim]);
            }
            out
        }
    }

    /// Queries prepared here and there, element by element: equal, but where float32 sums put a value on the other
    /// side of a rounding than float64 sums. That is rare, and then it is one step of bfloat16.
    #[test]
    fn norm_and_rotation_round_as_the_definition_does() {
        let (h, w, prefix) = (7, 5, 9);
        for head_dim in (4..=MAX_HEAD_DIM).step_by(4) {
            let tables = reference::RopeTables::new(h, w, &reference::rope_periods(head_dim));
            let half = |table: &[f32]| -> Vec<f32> {
                table.chunks_exact(head_dim).flat_map(|row| &row[..head_dim / 2]).copied().collect()
            };
            let (sin, cos) = (half(&tables.sin), half(&tables.cos));
            let weight: Vec<f32> = (0..head_dim).map(|i| 0.5 + (i * 7 % 11) as f32 / 10.0).collect();
            let tokens = prefix + h * w;
            let x: Vec<f32> =
                (0..tokens * head_dim).map(|i| ((i * 7919 % 20011) as f32 / 10000.0 - 1.0) * 3.0).collect();
            for norm in [None, Some((&*weight, 1e-6))] {
                let mut expected = match norm {
                    Some((weight, epsilon)) => reference::rms_norm(&x, weight, f64::from(epsilon)),
                    None => x.clone(),
                };
                reference::rope(&mut expected, 1, prefix, &tables);
                let preparation = Preparation { norm, rotary: Some(Rotary { prefix, sin: &sin, cos: &cos }) };
                for level in Level::all_available() {
                    let actual = with_simd!(level, |simd| {
                        simd.vectorize(Prepare { simd, preparation, x: &x, head_dim })
                    });
                    let differing = actual.iter().zip(&expected).filter(|(a, e)| a != e).count();
                    assert!(
                        norm.is_some() && differing * 1000 <= actual.len() || differing == 0,
                        "{level}, head dim {head_dim}: {differing} of {} differ",
                        actual.len()
                    );
                    // The sum of two values may be smaller than a step of either.
                    let largest = expected.iter().fold(0.0f32, |largest, value| largest.max(value.abs()));
                    for (a, e) in actual.iter().zip(&expected) {
                        assert!(
                            (a - e).abs() <= largest / 128.0,
                            "{level}, head dim {head_dim}: {a}, not {e}"
                        );
                    }
                }
            }
        }
    }
}
