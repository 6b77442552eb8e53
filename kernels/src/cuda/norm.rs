//! Norms: of tokens (`cuda/norm.cu`), and of a map's channels with the SiLU behind it (`cuda/instance_norm.cu`).

use std::sync::Arc;

use super::modules::Function;
use super::product::MomentBlocks;
use super::{CudaError, Gpu, Precision, Slice, SliceMut, Stream, aligned, number, size};

const THREADS: u32 = 128;
/// The longest row: what a block of threads keeps in registers.
pub const MAX_COLUMNS: usize = 4096;

/// As `cuda/norm.cu` takes them.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct NormArguments {
    x: u64,
    weight: u64,
    bias: u64,
    out: u64,
    columns: u32,
    epsilon: f32,
}

/// LayerNorm and RMSNorm.
#[derive(Debug)]
pub struct Norm {
    function: Function,
}

impl Norm {
    /// With results of one precision.
    ///
    /// # Errors
    /// [`CudaError::NoBf16`], or if the kernel can't be found.
    pub fn new(gpu: &Arc<Gpu>, precision: Precision) -> Result<Self, CudaError> {
        precision.check(gpu.properties().capability)?;
        let name = format!("norm_{}", precision.storage());
        // Two sums over the warps.
        let shared_memory = 2 * THREADS / 32 * size_of::<f32>() as u32;
        Ok(Self { function: Function::find(gpu, &name, THREADS, shared_memory)? })
    }

    /// LayerNorm of rows as long as `weight`, or RMSNorm where there is no bias.
    ///
    /// # Errors
    /// If it can't be queued.
    ///
    /// # Panics
    /// If sizes don't fit together, or rows are longer than 4096 or no multiple of 4.
    pub fn run(
        &self,
        stream: &Stream,
        x: Slice<'_, f32>,
        weight: Slice<'_, f32>,
        bias: Option<Slice<'_, f32>>,
        epsilon: f32,
        out: SliceMut<'_, u16>,
    ) -> Result<(), CudaError> {
        let columns = weight.len();
        assert!(
            columns > 0 && columns <= MAX_COLUMNS && columns.is_multiple_of(4),
            "norm: rows of {columns}"
        );
        assert!(x.len().is_multiple_of(columns) && out.len() >= x.len(), "norm: {} values", x.len());
        assert!(bias.is_none_or(|bias| bias.len() == columns), "norm: a bias for rows of {columns}");
        let arguments = NormArguments {
            x: aligned(x.at(stream)),
            weight: aligned(weight.at(stream)),
            bias: bias.map_or(0, |bias| aligned(bias.at(stream))),
            out: aligned(out.at(stream)),
            columns: number(columns),
            epsilon,
        };
        // SAFETY: the struct is the kernel's, and all that it names was measured above.
        unsafe { stream.launch(&self.function, [number(x.len() / columns), 1, 1], &arguments) }
    }
}

const STATISTICS_THREADS: u32 = 1024;
/// Columns of a block of threads.
const STATISTICS_COLUMNS: usize = 32;
const APPLY_THREADS: u32 = 256;
/// Values of a block of threads.
const APPLY_VALUES: usize = APPLY_THREADS as usize * 8;

/// As `cuda/instance_norm.cu` takes them.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct StatisticsArguments {
    moments: u64,
    statistics: u64,
    phases: u32,
    blocks: u32,
    rows: u32,
    block_rows: u32,
    columns: u32,
    epsilon: f32,
}

#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct ApplyArguments {
    x: u64,
    statistics: u64,
    values: u64,
    columns: u32,
}

/// InstanceNorm without weights, and SiLU.
#[derive(Debug)]
pub struct InstanceNorm {
    statistics: Function,
    apply: Function,
}

impl InstanceNorm {
    /// Of maps of one precision.
    ///
    /// # Errors
    /// [`CudaError::NoBf16`], or if the kernels can't be found.
    pub fn new(gpu: &Arc<Gpu>, precision: Precision) -> Result<Self, CudaError> {
        precision.check(gpu.properties().capability)?;
        let sums = STATISTICS_THREADS * size_of::<f32>() as u32;
        let name = format!("instance_norm_silu_{}", precision.storage());
        Ok(Self {
            statistics: Function::find(gpu, "instance_norm_statistics", STATISTICS_THREADS, sums)?,
            apply: Function::find(gpu, &name, APPLY_THREADS, 0)?,
        })
    }

    /// Norm and SiLU of a map `[pixels, columns]` in place, from the moments that its product left. `statistics` is room for
    /// `[2, columns]`.
    ///
    /// # Errors
    /// If it can't be queued.
    ///
    /// # Panics
    /// If sizes don't fit together, or columns are no multiple of 8.
    pub fn run(
        &self,
        stream: &Stream,
        x: SliceMut<'_, u16>,
        blocks: MomentBlocks,
        moments: Slice<'_, f32>,
        epsilon: f32,
        statistics: SliceMut<'_, f32>,
    ) -> Result<(), CudaError> {
        let MomentBlocks { phases, rows, block_rows, columns } = blocks;
        assert!(columns.is_multiple_of(8) && columns > 0, "instance_norm: {columns} columns");
        assert_eq!(x.len(), size(&[phases, rows, columns]), "instance_norm: values");
        assert!(moments.len() >= blocks.len(), "instance_norm: {} moments", moments.len());
        assert!(statistics.len() >= 2 * columns, "instance_norm: room for {}", statistics.len());
        let arguments = StatisticsArguments {
            moments: moments.at(stream),
            statistics: aligned(statistics.at(stream)),
            phases: number(phases),
            blocks: number(rows.div_ceil(block_rows)),
            rows: number(rows),
            block_rows: number(block_rows),
            columns: number(columns),
            epsilon,
        };
        // SAFETY: the struct is the kernel's, and all that it names was measured above.
        unsafe {
            stream.launch(
                &self.statistics,
                [number(columns.div_ceil(STATISTICS_COLUMNS)), 1, 1],
                &arguments,
            )?;
        }
        let arguments = ApplyArguments {
            x: aligned(x.at(stream)),
            statistics: statistics.at(stream),
            values: x.len() as u64,
            columns: number(columns),
        };
        // SAFETY: as above.
        unsafe { stream.launch(&self.apply, [number(x.len().div_ceil(APPLY_VALUES)), 1, 1], &arguments) }
    }
}
