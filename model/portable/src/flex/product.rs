//! Matrix products where one matrix is a few hundred wide, as a small network's weights are: it fits the cache, so that
//! a product is little but its inner loop. burn's own are made for large matrices.

use pulp::{Simd, WithSimd};
use rayon::prelude::*;

/// Rows of the result that are computed together.
const ROWS: usize = 8;
/// Registers of columns that are computed together.
const REGISTERS: usize = 2;
/// Rows that are worth a thread, which arranges all of `b` for itself.
const MIN_ROWS: usize = 64;
/// Terms of a sum that are added up before they go to the result: their part of `b` stays in the cache.
const DEPTH: usize = 256;

/// A matrix within a slice: element `(i, j)` is at `i * row + j * column`.
#[derive(Clone, Copy, Debug)]
pub struct Matrix<'a> {
    /// Where they are.
    pub values: &'a [f32],
    /// From one row to the next.
    pub row: usize,
    /// From one column to the next.
    pub column: usize,
}

impl<'a> Matrix<'a> {
    /// Dense rows of `columns` values.
    pub fn dense(values: &'a [f32], columns: usize) -> Self {
        Self { values, row: columns, column: 1 }
    }

    /// Rows as columns.
    pub fn transposed(self) -> Self {
        Self { row: self.column, column: self.row, ..self }
    }
}

/// `a b`, dense: `a` is `[m, k]`, `b` `[k, n]`. Shared by the threads of the caller's pool; a value is the same
/// whatever their number.
///
/// # Panics
/// If a matrix has fewer values than that.
pub fn product([m, k, n]: [usize; 3], a: Matrix<'_>, b: Matrix<'_>) -> Vec<f32> {
    let mut c = vec![0.0; m * n];
    let rows = m.div_ceil(rayon::current_num_threads()).next_multiple_of(ROWS).max(MIN_ROWS);
    c.par_chunks_mut(rows * n).enumerate().for_each(|(i, c)| {
        let values = &a.values[i * rows * a.row..];
        add_product([c.len() / n, k, n], Matrix { values, ..a }, b, c);
    });
    c
}

/// `c += a b`: `a` is `[m, k]`, `b` `[k, n]`, `c` `[m, n]` and dense.
fn add_product([m, k, n]: [usize; 3], a: Matrix<'_>, b: Matrix<'_>, c: &mut [f32]) {
    assert_eq!(c.len(), m * n, "values of {m} x {n}");
    pulp::Arch::new().dispatch(Product { size: [m, k, n], a, b, c });
}

struct Product<'a> {
    size: [usize; 3],
    a: Matrix<'a>,
    b: Matrix<'a>,
    c: &'a mut [f32],
}

impl WithSimd for Product<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { size: [m, k, n], a, b, c } = self;
        let width = REGISTERS * S::F32_LANES;
        // Columns of `b` for one tile lie side by side, zero beyond the last.
        let mut panels = vec![0.0; DEPTH.min(k) * n.next_multiple_of(width)];
        for start in (0..k).step_by(DEPTH) {
            let depth = DEPTH.min(k - start);
            for (i, panel) in panels.chunks_exact_mut(DEPTH.min(k) * width).enumerate() {
                let columns = width.min(n - i * width);
                pack(b, start, i * width, columns, width, &mut panel[..depth * width]);
            }
            for first in (0..m).step_by(ROWS) {
                let rows = ROWS.min(m - first);
                for (i, panel) in panels.chunks_exact(DEPTH.min(k) * width).enumerate() {
                    let (panel, _) = S::as_simd_f32s(&panel[..depth * width]);
                    let (panel, _) = panel.as_chunks::<REGISTERS>();
                    let values = &a.values[first * a.row + start * a.column..];
                    let sums = match (rows, a.column) {
                        (ROWS, 1) => rows_tile(simd, values, a.row, panel),
                        (ROWS, _) if a.row == 1 => columns_tile(simd, values, a.column, panel),
                        _ => edge_tile(simd, Matrix { values, ..a }, rows, panel),
                    };
                    let columns = width.min(n - i * width);
                    for (r, sums) in sums.into_iter().enumerate().take(rows) {
                        let target = &mut c[(first + r) * n + i * width..][..columns];
                        for (target, sums) in target.chunks_mut(S::F32_LANES).zip(sums) {
                            let old = simd.partial_load_f32s(target);
                            simd.partial_store_f32s(target, simd.add_f32s(old, sums));
                        }
                    }
                }
            }
        }
    }
}

/// Columns `first..first + count` of the rows of `b` from `start` on, as rows of `width`, as many as `packed` holds.
#[inline(always)]
fn pack(b: Matrix<'_>, start: usize, first: usize, count: usize, width: usize, packed: &mut [f32]) {
    if b.column == 1 {
        for (p, packed) in packed.chunks_exact_mut(width).enumerate() {
            packed[..count].copy_from_slice(&b.values[(start + p) * b.row + first..][..count]);
        }
    } else {
        for (p, packed) in packed.chunks_exact_mut(width).enumerate() {
            let at = (start + p) * b.row + first * b.column;
            for (j, x) in packed[..count].iter_mut().enumerate() {
                *x = b.values[at + j * b.column];
            }
        }
    }
}

type Sums<F> = [[F; REGISTERS]; ROWS];

#[inline(always)]
fn add_outer<S: Simd>(simd: S, a: [f32; ROWS], b: &[S::f32s; REGISTERS], sums: &mut Sums<S::f32s>) {
    for r in 0..ROWS {
        let x = simd.splat_f32s(a[r]);
        for j in 0..REGISTERS {
            sums[r][j] = simd.mul_add_f32s(x, b[j], sums[r][j]);
        }
    }
}

/// A tile of rows of `a` that are dense, `row` apart.
#[inline(always)]
fn rows_tile<S: Simd>(simd: S, a: &[f32], row: usize, b: &[[S::f32s; REGISTERS]]) -> Sums<S::f32s> {
    let mut sums = [[simd.splat_f32s(0.0); REGISTERS]; ROWS];
    let rows: [&[f32]; ROWS] = std::array::from_fn(|r| &a[r * row..][..b.len()]);
    for (p, b) in b.iter().enumerate() {
        add_outer(simd, std::array::from_fn(|r| rows[r][p]), b, &mut sums);
    }
    sums
}

/// A tile of rows of `a` whose columns are dense, `column` apart.
#[inline(always)]
fn columns_tile<S: Simd>(simd: S, a: &[f32], column: usize, b: &[[S::f32s; REGISTERS]]) -> Sums<S::f32s> {
    let mut sums = [[simd.splat_f32s(0.0); REGISTERS]; ROWS];
    for (a, b) in a.chunks(column).zip(b) {
        if let Some(a) = a.first_chunk::<ROWS>() {
            add_outer(simd, *a, b, &mut sums);
        }
    }
    sums
}

/// Fewer rows than a tile has, or neither rows nor columns dense.
#[inline(always)]
fn edge_tile<S: Simd>(simd: S, a: Matrix<'_>, rows: usize, b: &[[S::f32s; REGISTERS]]) -> Sums<S::f32s> {
    let mut sums = [[simd.splat_f32s(0.0); REGISTERS]; ROWS];
    for (p, b) in b.iter().enumerate() {
        let value = |r| if r < rows { a.values[r * a.row + p * a.column] } else { 0.0 };
        add_outer(simd, std::array::from_fn(value), b, &mut sums);
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(count: usize, seed: u64) -> Vec<f32> {
        (0..count as u64).map(|i| ((i + seed) as f32 * 1.3).sin()).collect()
    }

    #[test]
    fn is_the_product() {
        for [m, k, n] in [[1, 1, 1], [7, 5, 9], [8, 300, 32], [17, 515, 70], [9, 3, 33]] {
            let (a, b) = (values(m * k, 1), values(k * n, 2));
            for (ta, tb) in [(false, false), (false, true), (true, false), (true, true)] {
                let a = if ta { Matrix::dense(&a, m).transposed() } else { Matrix::dense(&a, k) };
                let b = if tb { Matrix::dense(&b, k).transposed() } else { Matrix::dense(&b, n) };
                let mut c = vec![1.0; m * n];
                add_product([m, k, n], a, b, &mut c);
                for i in 0..m {
                    for j in 0..n {
                        let term = |p| {
                            f64::from(a.values[i * a.row + p * a.column])
                                * f64::from(b.values[p * b.row + j * b.column])
                        };
                        let expected = 1.0 + (0..k).map(term).sum::<f64>();
                        let found = f64::from(c[i * n + j]);
                        // Float32 sums of up to 515 terms below 1, of one sign where the sines fall so.
                        assert!((found - expected).abs() < 1e-3, "{m} {k} {n} {ta} {tb}: {found} {expected}");
                    }
                }
            }
        }
    }
}
