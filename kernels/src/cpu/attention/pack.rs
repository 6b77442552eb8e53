//! From queries, keys and values as the products left them to what the query blocks multiply: normed, rotated, in
//! units of 32 bits, keys lying in columns.

use super::dots::Dots;
use super::{Heads, MAX_HEAD_DIM, MAX_PANEL, QkNorm, Rotary};
use crate::cpu::Element;
use crate::cpu::simd::{Simd, bf16_bits};

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
    fn prepare<E: Element>(self, vector: &[E], token: usize, row: &mut [f32; MAX_HEAD_DIM]) {
        let row = &mut row[..vector.len()];
        for (to, from) in row.iter_mut().zip(vector) {
            *to = from.to_f32();
        }
        if let Some((weight, epsilon)) = self.norm {
            let factor = 1.0 / (squares(row) / row.len() as f32 + epsilon).sqrt();
            for (value, weight) in row.iter_mut().zip(weight) {
                *value = *value * factor * weight;
            }
        }
        let Some(Rotary { prefix, sin, cos }) = self.rotary else { return };
        for value in row.iter_mut() {
            *value = round(*value);
        }
        if token < prefix {
            return;
        }
        let half = row.len() / 2;
        let angles = (token - prefix) * half..(token - prefix + 1) * half;
        let (a, b) = row.split_at_mut(half);
        for (((a, b), sin), cos) in a.iter_mut().zip(b).zip(&sin[angles.clone()]).zip(&cos[angles]) {
            let (x, y) = (*a, *b);
            *a = round(round(x * cos) + round(-y * sin));
            *b = round(round(y * cos) + round(x * sin));
        }
    }
}

/// The nearest bfloat16. Networks were trained with the rotation in bfloat16, so that its roundings are part of it.
#[inline(always)]
fn round(value: f32) -> f32 {
    f32::from_bits(u32::from(bf16_bits(value)) << 16)
}

/// The sum of squares, in so many sums that none is long and they fill vectors.
#[inline(always)]
fn squares(row: &[f32]) -> f32 {
    const SUMS: usize = 16;
    let mut sums = [0.0; SUMS];
    let (whole, rest) = row.as_chunks::<SUMS>();
    for chunk in whole {
        for (sum, value) in sums.iter_mut().zip(chunk) {
            *sum += value * value;
        }
    }
    for (sum, value) in sums.iter_mut().zip(rest) {
        *sum += value * value;
    }
    sums.iter().sum()
}

/// Writes a row's values as units.
///
/// # Safety
/// `row.len() / DEPTH` units can be written; the length is even.
#[inline(always)]
unsafe fn write_units<D: Dots>(row: &[f32], to: *mut u32) {
    for (i, &value) in row.iter().enumerate() {
        // SAFETY: the caller's promise.
        unsafe {
            match D::DEPTH {
                1 => *to.add(i) = value.to_bits(),
                _ => *to.cast::<u16>().add(i) = bf16_bits(value),
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

/// Queries, or keys before they are turned, as rows of units.
///
/// # Safety
/// A row for each token can be written to `to`.
#[inline(always)]
pub(super) unsafe fn rows<D: Dots, E: Element>(
    part: Part<'_, E>,
    preparation: Preparation<'_>,
    to: *mut u32,
) {
    let Part { head_dim, first, last, .. } = part;
    let mut row = [0.0; MAX_HEAD_DIM];
    for token in first..last {
        preparation.prepare(part.vector(token), token, &mut row);
        // SAFETY: the caller's promise.
        unsafe { write_units::<D>(&row[..head_dim], to.add((token - first) * (head_dim / D::DEPTH))) };
    }
}

/// Keys as a panel of `columns` columns, zeros where there is no token.
///
/// # Safety
/// `rows` has `columns` rows of units, `to` a panel.
#[inline(always)]
pub(super) unsafe fn keys<D: Dots, E: Element>(
    dots: D,
    part: Part<'_, E>,
    columns: usize,
    preparation: Preparation<'_>,
    rows: *mut u32,
    to: *mut u32,
) {
    let units = part.head_dim / D::DEPTH;
    let count = part.last - part.first;
    // SAFETY: the caller's promise.
    unsafe {
        self::rows::<D, E>(part, preparation, rows);
        rows.add(count * units).write_bytes(0, (columns - count) * units);
        let mut pointers = [std::ptr::null::<u32>(); MAX_PANEL];
        for (i, pointer) in pointers[..columns].iter_mut().enumerate() {
            *pointer = rows.add(i * units);
        }
        dots.simd().interleave(&pointers[..columns], units, to, columns);
    }
}

/// Values, `[tokens / DEPTH][width]` units, zeros beyond the head dim and beside the last token where it has no partner.
///
/// # Safety
/// So many units can be written.
#[inline(always)]
pub(super) unsafe fn values<D: Dots, E: Element>(part: Part<'_, E>, width: usize, to: *mut u32) {
    let Part { head_dim, first, last, .. } = part;
    for (i, token) in (first..last).step_by(D::DEPTH).enumerate() {
        let vector = part.vector(token);
        // SAFETY: the caller's promise.
        let to = unsafe { std::slice::from_raw_parts_mut(to.add(i * width), width) };
        let (to, rest) = to.split_at_mut(head_dim);
        rest.fill(0);
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
    u32::from(bf16_bits(low.to_f32())) | u32::from(bf16_bits(high.to_f32())) << 16
}
