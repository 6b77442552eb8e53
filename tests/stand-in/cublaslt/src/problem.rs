//! What is to be multiplied, as a caller describes it.

use std::hash::{DefaultHasher, Hash, Hasher};

use crate::driver::Arguments;

const COMPUTE_32F: u32 = 68;
const R_32F: u32 = 0;
const R_16F: u32 = 2;
const R_16BF: u32 = 14;

/// `cublasLtMatmulDesc_t`.
#[derive(Clone, Copy)]
pub struct Operation {
    transposed: [bool; 2],
    pub epilogue: Epilogue,
    /// Of as many values of the result's type as it has rows.
    pub bias: u64,
}

/// What follows a product.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub enum Epilogue {
    Default,
    Bias,
}

fn number(bytes: &[u8]) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.try_into().ok()?))
}

fn long(bytes: &[u8]) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.try_into().ok()?))
}

impl Operation {
    /// Float32 sums and scales: nothing else is known.
    pub fn new(compute: u32, scale: u32) -> Option<Self> {
        let known = compute == COMPUTE_32F && scale == R_32F;
        known.then_some(Self { transposed: [false; 2], epilogue: Epilogue::Default, bias: 0 })
    }

    /// TRANSA and TRANSB, EPILOGUE, BIAS_POINTER.
    pub fn set(&mut self, attribute: u32, bytes: &[u8]) -> Option<()> {
        match attribute {
            3 | 4 => {
                self.transposed[attribute as usize - 3] = match number(bytes)? {
                    0 => false,
                    1 => true,
                    _ => return None,
                }
            }
            7 => {
                self.epilogue = match number(bytes)? {
                    1 => Epilogue::Default,
                    4 => Epilogue::Bias,
                    _ => return None,
                }
            }
            8 => self.bias = long(bytes)?,
            _ => return None,
        }
        Some(())
    }
}

/// `cublasLtMatrixLayout_t`: columns of `rows` values, `stride` apart.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Layout {
    kind: u32,
    rows: u64,
    columns: u64,
    stride: u64,
}

impl Layout {
    pub fn new(kind: u32, rows: u64, columns: u64, stride: i64) -> Option<Self> {
        let stride = u64::try_from(stride).ok()?;
        let known = [R_32F, R_16F, R_16BF].contains(&kind) && rows > 0 && columns > 0 && stride >= rows;
        known.then_some(Self { kind, rows, columns, stride })
    }
}

/// `cublasLtMatmulPreference_t`.
#[derive(Clone, Copy)]
pub struct Preference {
    pub workspace: u64,
    /// Of A, B, C and D.
    pub alignments: [u32; 4],
    /// How parts of a divided depth may be summed: bits.
    pub reductions: u32,
}

impl Default for Preference {
    fn default() -> Self {
        Self { workspace: 0, alignments: [256; 4], reductions: 7 }
    }
}

impl Preference {
    /// MAX_WORKSPACE_BYTES, REDUCTION_SCHEME_MASK, and MIN_ALIGNMENT_A_BYTES to that of D.
    pub fn set(&mut self, attribute: u32, bytes: &[u8]) -> Option<()> {
        match attribute {
            1 => self.workspace = long(bytes)?,
            3 => self.reductions = number(bytes)?,
            5..=8 => {
                let alignment = number(bytes).filter(|bytes| bytes.is_power_of_two())?;
                self.alignments[attribute as usize - 5] = alignment;
            }
            _ => return None,
        }
        Some(())
    }
}

/// A transposed times B, of one type of 16 bits, to that or to float32.
#[derive(Hash)]
pub struct Problem {
    pub depth: u64,
    pub added: Layout,
    pub stored: Layout,
    operands: [Layout; 2],
    epilogue: Epilogue,
}

impl Problem {
    /// None where it is no problem that is known, or sizes don't fit together.
    pub fn new(operation: Operation, [a, b, c, d]: [Layout; 4]) -> Option<Self> {
        let fits = operation.transposed == [true, false]
            && a.kind == b.kind
            && a.kind != R_32F
            && [a.kind, R_32F].contains(&d.kind)
            && c == d
            && a.rows == b.rows
            && [d.rows, d.columns] == [a.columns, b.columns];
        let problem =
            Self { depth: a.rows, added: c, stored: d, operands: [a, b], epilogue: operation.epilogue };
        fits.then_some(problem)
    }

    pub fn hash(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        Hash::hash(self, &mut hasher);
        hasher.finish()
    }

    /// As the driver's kernel takes them.
    pub fn arguments(
        &self,
        [a, b, _, d]: [usize; 4],
        [alpha, beta]: [f32; 2],
        operation: Operation,
        (workspace, workspace_bytes): (usize, usize),
    ) -> Arguments {
        let [a_layout, b_layout] = self.operands;
        let bias = if operation.epilogue == Epilogue::Bias { operation.bias } else { 0 };
        Arguments {
            a: a as u64,
            b: b as u64,
            d: d as u64,
            bias,
            workspace: workspace as u64,
            workspace_bytes: workspace_bytes as u64,
            rows: self.stored.rows,
            columns: self.stored.columns,
            depth: self.depth,
            a_stride: a_layout.stride,
            b_stride: b_layout.stride,
            d_stride: self.stored.stride,
            alpha,
            beta,
            bfloat16: u32::from(a_layout.kind == R_16BF),
            wide: u32::from(self.stored.kind == R_32F),
        }
    }
}
