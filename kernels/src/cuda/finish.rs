//! What follows products whose results are already stored as 16-bit values: `cuda/finish.cu`. The same as
//! [`Products`](super::product::Products) does with its sums.

use std::sync::Arc;

use super::modules::Function;
use super::product::{Destination, MomentBlocks, Out};
use super::{CudaError, Gpu, Precision, Slice, SliceMut, Stream, aligned, number, size};

const THREADS: u32 = 256;
/// Columns and rows of a thread.
const COLUMNS: usize = 4;
const ROWS: usize = 4;

const MOMENT_THREADS: u32 = 256;
/// Columns of a block of threads.
const MOMENT_COLUMNS: usize = 128;

/// The kernels of one way to store values.
#[derive(Debug)]
pub struct Finish {
    finish: Function,
    moments: Function,
}

/// As `cuda/finish.cu` takes them.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Arguments {
    raw: u64,
    bias: u64,
    out: u64,
    scale: u64,
    rows: u32,
    columns: u32,
    stride: u32,
    out_stride: u32,
    then: u32,
    unused: u32,
}

#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct MomentArguments {
    values: u64,
    moments: u64,
    rows: u32,
    columns: u32,
    stride: u32,
    unused: u32,
}

/// What is done, as `cuda/finish.cu` numbers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Then {
    Gelu = 1,
    SwiGlu = 2,
    Add = 3,
}

/// What is read, and what goes into it.
struct Source<'a> {
    address: u64,
    stride: usize,
    /// Rows and columns.
    size: [usize; 2],
    bias: Option<Slice<'a, f32>>,
    scale: Option<Slice<'a, f32>>,
}

impl Finish {
    /// Rows of a block of [`moments`](Self::moments).
    pub const MOMENT_ROWS: usize = 64;

    /// Of products of `precision`.
    ///
    /// # Errors
    /// [`CudaError::NoBf16`], or if the kernels can't be found.
    pub fn new(gpu: &Arc<Gpu>, precision: Precision) -> Result<Self, CudaError> {
        precision.check(gpu.properties().capability)?;
        let name = precision.storage();
        // Two sums over the warps, of four columns.
        let sums = 2 * MOMENT_THREADS * COLUMNS as u32 * size_of::<f32>() as u32;
        Ok(Self {
            finish: Function::find(gpu, &format!("finish_{name}"), THREADS, 0)?,
            moments: Function::find(gpu, &format!("finish_moments_{name}"), MOMENT_THREADS, sums)?,
        })
    }

    /// Values `[rows, columns]` plus a bias `[columns]` if there is one, through GELU in its exact form, where they are.
    ///
    /// # Errors
    /// If it can't be queued.
    ///
    /// # Panics
    /// If sizes don't fit together, columns or the stride are no multiples of 4, or addresses are none of 16 bytes.
    pub fn gelu_in_place(
        &self,
        stream: &Stream,
        values: Out<'_, u16>,
        size: [usize; 2],
        bias: Option<Slice<'_, f32>>,
    ) -> Result<(), CudaError> {
        let out = values.anything(stream);
        let source = Source { address: out.pointer, stride: out.stride, size, bias, scale: None };
        self.run(stream, source, out, Then::Gelu)
    }

    /// `raw` `[rows, columns]` plus a bias `[columns]` if there is one; then the first of every two neighbouring columns through SiLU,
    /// times the second: `out` has half as many columns.
    ///
    /// # Errors
    /// If it can't be queued.
    ///
    /// # Panics
    /// If sizes don't fit together, columns are no multiple of 4, `out`'s stride is none of 2, or addresses are none of 16 bytes.
    pub fn swiglu(
        &self,
        stream: &Stream,
        raw: Slice<'_, u16>,
        size: [usize; 2],
        bias: Option<Slice<'_, f32>>,
        out: Out<'_, u16>,
    ) -> Result<(), CudaError> {
        let source = Source::dense(stream, raw, size, bias, None);
        self.run(stream, source, out.anything(stream), Then::SwiGlu)
    }

    /// `out += scale * (raw + bias)`: of `raw` and `out` `[rows, columns]`, of a bias and a scale `[columns]` if there are any.
    ///
    /// # Errors
    /// If it can't be queued.
    ///
    /// # Panics
    /// If sizes don't fit together, columns or `out`'s stride are no multiples of 4, or addresses are none of 16 bytes.
    pub fn add(
        &self,
        stream: &Stream,
        raw: Slice<'_, u16>,
        size: [usize; 2],
        bias: Option<Slice<'_, f32>>,
        scale: Option<Slice<'_, f32>>,
        out: Out<'_, f32>,
    ) -> Result<(), CudaError> {
        let source = Source::dense(stream, raw, size, bias, scale);
        self.run(stream, source, out.anything(stream), Then::Add)
    }

    /// How the moments of values `[rows, columns]` lie: `[blocks, 2, columns]`, with [`MOMENT_ROWS`](Self::MOMENT_ROWS) a block.
    pub fn moment_blocks([rows, columns]: [usize; 2]) -> MomentBlocks {
        MomentBlocks { phases: 1, rows, block_rows: Self::MOMENT_ROWS, columns }
    }

    /// The moments of values `[rows, columns]` whose rows are `stride` apart, for an InstanceNorm: as many as
    /// [`moment_blocks`](Self::moment_blocks) says.
    ///
    /// # Errors
    /// If it can't be queued.
    ///
    /// # Panics
    /// If sizes don't fit together, columns or the stride are no multiples of 4, or addresses are none of 16 bytes.
    pub fn moments(
        &self,
        stream: &Stream,
        values: Slice<'_, u16>,
        stride: usize,
        size @ [rows, columns]: [usize; 2],
        moments: SliceMut<'_, f32>,
    ) -> Result<(), CudaError> {
        check_rows("values", values.len(), stride, size, COLUMNS);
        let blocks = Self::moment_blocks(size);
        assert!(moments.len() >= blocks.len(), "finish: {} moments", moments.len());
        let arguments = MomentArguments {
            values: aligned(values.at(stream)),
            moments: aligned(moments.at(stream)),
            rows: number(rows),
            columns: number(columns),
            stride: number(stride),
            unused: 0,
        };
        let grid = [rows.div_ceil(Self::MOMENT_ROWS), columns.div_ceil(MOMENT_COLUMNS), 1].map(number);
        // SAFETY: the struct is the kernel's, and all that it names was measured above.
        unsafe { stream.launch(&self.moments, grid, &arguments) }
    }

    /// What all of them have in common. The source was measured, columns too, or is `out`.
    fn run(
        &self,
        stream: &Stream,
        source: Source<'_>,
        out: Destination,
        then: Then,
    ) -> Result<(), CudaError> {
        let Source { address, stride, size: [rows, columns], bias, scale } = source;
        // Of others four are stored at once.
        let (used, group) =
            if then == Then::SwiGlu { (columns / 2, COLUMNS / 2) } else { (columns, COLUMNS) };
        check_rows("results", out.len, out.stride, [rows, used], group);
        for (of, what) in [(bias, "biases"), (scale, "scales")] {
            assert!(of.is_none_or(|of| of.len() >= columns), "finish: {what} for {columns} columns");
        }
        let address_of = |of: Option<Slice<'_, f32>>| of.map_or(0, |of| aligned(of.at(stream)));
        let arguments = Arguments {
            raw: aligned(address),
            bias: address_of(bias),
            out: aligned(out.pointer),
            scale: address_of(scale),
            rows: number(rows),
            columns: number(columns),
            stride: number(stride),
            out_stride: number(out.stride),
            then: then as u32,
            unused: 0,
        };
        let threads = size(&[rows.div_ceil(ROWS), columns / COLUMNS]);
        let blocks = threads.div_ceil(THREADS as usize);
        // Rows are counted in as many bits, those of threads that find none too.
        number(size(&[blocks, THREADS as usize, ROWS]));
        // SAFETY: the struct is the kernel's, and all that it names was measured above and by who made the source.
        unsafe { stream.launch(&self.finish, [number(blocks), 1, 1], &arguments) }
    }
}

impl<'a> Source<'a> {
    /// Rows without gaps, measured.
    fn dense(
        stream: &Stream,
        raw: Slice<'_, u16>,
        size @ [_, columns]: [usize; 2],
        bias: Option<Slice<'a, f32>>,
        scale: Option<Slice<'a, f32>>,
    ) -> Self {
        check_rows("values", raw.len(), columns, size, COLUMNS);
        Self { address: raw.at(stream), stride: columns, size, bias, scale }
    }
}

/// Rows of `columns`, `stride` apart, that a thread reads or writes `group` values of at once, in memory for `len`.
fn check_rows(what: &str, len: usize, stride: usize, [rows, columns]: [usize; 2], group: usize) {
    let whole = columns.is_multiple_of(group) && stride.is_multiple_of(group);
    assert!(stride >= columns && whole, "finish: {what} in rows of {columns}, {stride} apart");
    assert!(
        rows == 0 || len >= size(&[rows - 1, stride]) + columns,
        "finish: {len} {what} in {rows} rows of {columns}"
    );
}
