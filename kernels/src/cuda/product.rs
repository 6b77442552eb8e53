//! Products of tokens or pixels and weights, with what follows them: `cuda/product.cu`.
//!
//! ConvTranspose2d with kernel 4, stride 2 and padding 1 is four products of one kernel: see there.

use std::sync::Arc;

use super::cublaslt::{CublasLt, Room};
use super::finish::Finish;
use super::modules::Function;
use super::{
    Capability, CudaError, Gpu, Plain, Precision, Properties, Slice, SliceMut, Stream, aligned, number, size,
};

/// Which part of a product a block computes. `cuda/product.cu` has the same sizes under the same names.
#[derive(Debug)]
struct Tile {
    /// Rows and columns of a block.
    rows: u32,
    columns: u32,
    /// Rows of a warp: of each block of them there are moments.
    warp_rows: u32,
    threads: u32,
    /// Share of the multiprocessor's rate that one block after the other reaches, by how often it reads what it
    /// multiplies. An estimate: none of it is measured yet.
    efficiency: f64,
}

/// Depth of a slice in bytes.
const SLICE: u32 = 128;

/// The code of [`Then::Store`].
const STORE: u32 = 0;

const TILES: [Tile; 3] = [
    // Where shared memory is large (A100, H100, B200): each value that is read is multiplied 64 times, so that reading keeps up
    // with the fastest multipliers. Its sums leave no registers for sums in float16 beside them.
    Tile { rows: 128, columns: 256, warp_rows: 64, threads: 256, efficiency: 1.0 },
    // What fits the 100 KiB of GeForce cards, and Turing's 64 with two stages.
    Tile { rows: 128, columns: 128, warp_rows: 64, threads: 256, efficiency: 0.9 },
    // For products so small that larger tiles would leave multiprocessors without work, and for few columns.
    Tile { rows: 64, columns: 64, warp_rows: 32, threads: 128, efficiency: 0.65 },
];

impl Tile {
    fn shared_memory(&self, capability: Capability) -> u32 {
        let stages = if capability < Capability::AMPERE { 2 } else { 3 };
        stages * (self.rows + self.columns) * SLICE
    }

    fn blocks(&self, rows: usize, columns: usize) -> [u32; 2] {
        [rows.div_ceil(self.rows as usize) as u32, columns.div_ceil(self.columns as usize) as u32]
    }
}

/// What follows a product. Rows of `out` are `stride` values apart.
#[derive(Debug)]
pub enum Then<'a> {
    /// Stored.
    Store(Out<'a, u16>),
    /// Stored in float32.
    StoreF32(Out<'a, f32>),
    /// Through GELU in its exact form, and stored.
    Gelu(Out<'a, u16>),
    /// The first of every two neighbouring columns through SiLU, times the second: half as many columns.
    SwiGlu(Out<'a, u16>),
    /// Added, times a scale `[columns]` if there is one, to what is there.
    Add(Out<'a, f32>, Option<Slice<'a, f32>>),
    /// Stored, and moments of each column beside it, for an InstanceNorm: as many as [`Products::moments`] says. There can be no bias.
    Moments(Out<'a, u16>, SliceMut<'a, f32>),
}

/// Where results go.
#[derive(Debug)]
pub struct Out<'a, T> {
    /// All of them.
    pub values: SliceMut<'a, T>,
    /// Values from the start of a row to that of the next.
    pub stride: usize,
}

impl Then<'_> {
    /// Where results go, and values from the start of a row to that of the next.
    pub(super) fn destination(&self, stream: &Stream) -> (u64, usize) {
        let Destination { pointer, stride, .. } = match self {
            Then::Store(out) | Then::Gelu(out) | Then::SwiGlu(out) | Then::Moments(out, _) => {
                out.anything(stream)
            }
            Then::StoreF32(out) | Then::Add(out, _) => out.anything(stream),
        };
        (pointer, stride)
    }
}

impl<T: Plain> Out<'_, T> {
    pub(super) fn anything(&self, stream: &Stream) -> Destination {
        Destination { pointer: self.values.at(stream), len: self.values.len(), stride: self.stride }
    }
}

/// An [`Out`] of any type.
pub(super) struct Destination {
    pub(super) pointer: u64,
    pub(super) len: usize,
    pub(super) stride: usize,
}

/// A matrix or a map with channels last: rows of `depth` values, `stride` apart.
#[derive(Debug, Clone, Copy)]
pub struct Rows<'a> {
    /// All of them.
    pub values: Slice<'a, u16>,
    /// Rows there are.
    pub rows: usize,
    /// Values of a row.
    pub depth: usize,
    /// Values from the start of a row to that of the next.
    pub stride: usize,
}

/// Weights `[columns, depth]` and a bias.
#[derive(Debug, Clone, Copy)]
pub struct Linear<'a> {
    /// `[columns, depth]`.
    pub weights: Slice<'a, u16>,
    /// `[columns]`.
    pub bias: Option<Slice<'a, f32>>,
    /// Outputs.
    pub columns: usize,
}

/// A map `[height, width, channels]`.
#[derive(Debug, Clone, Copy)]
pub struct Map<'a> {
    /// All of it.
    pub values: Slice<'a, u16>,
    /// Rows of pixels.
    pub height: usize,
    /// Pixels of a row.
    pub width: usize,
    /// Values of a pixel.
    pub channels: usize,
}

/// As `cuda/product.cu` takes them.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Arguments {
    a: u64,
    weights: u64,
    bias: u64,
    out: u64,
    scale: u64,
    moments: u64,
    rows: u32,
    columns: u32,
    depth: u32,
    a_stride: u32,
    out_stride: u32,
    then: u32,
    height: u32,
    width: u32,
    channels: u32,
    unused: u32,
}

/// The kernels of one precision.
#[derive(Debug)]
pub struct Products {
    precision: Precision,
    multiprocessors: u32,
    /// What multiplies where it can.
    cublaslt: Option<CublasLt>,
    /// Those that the device can run: of a product and of a ConvTranspose.
    kernels: Vec<(&'static Tile, Function, Function)>,
}

impl Products {
    /// Those of `precision` on the stream's device.
    ///
    /// # Errors
    /// [`CudaError::NoBf16`], or if the kernels can't be found.
    pub fn new(gpu: &Arc<Gpu>, precision: Precision) -> Result<Self, CudaError> {
        let Properties { capability, multiprocessors, shared_memory_of_block, .. } = *gpu.properties();
        precision.check(capability)?;
        let mut kernels = Vec::new();
        for tile in &TILES {
            let shared_memory = tile.shared_memory(capability);
            let too_many_sums = precision == Precision::F16Promoted && tile.columns == 256;
            if shared_memory as usize > shared_memory_of_block || too_many_sums {
                continue;
            }
            let function = |operation: &str| {
                let name = format!("{operation}_{}_{}x{}", precision.name(), tile.rows, tile.columns);
                Function::find(gpu, &name, tile.threads, shared_memory)
            };
            kernels.push((tile, function("product")?, function("deconv")?));
        }
        Ok(Self { precision, multiprocessors, cublaslt: None, kernels })
    }

    /// With cuBLASLt for the products that it has an algorithm for, of those that are given room for it.
    ///
    /// # Errors
    /// As [`CublasLt::open`].
    pub fn with_cublaslt(self, gpu: &Arc<Gpu>) -> Result<Self, CudaError> {
        Ok(Self { cublaslt: Some(CublasLt::open(gpu, self.precision)?), ..self })
    }

    /// cuBLASLt, where it is used.
    pub fn cublaslt(&self) -> Option<&CublasLt> {
        self.cublaslt.as_ref()
    }

    /// The precision.
    pub fn precision(&self) -> Precision {
        self.precision
    }

    /// Rows and columns of each tile that the device can run.
    pub fn tiles(&self) -> Vec<[u32; 2]> {
        self.kernels.iter().map(|(tile, ..)| [tile.rows, tile.columns]).collect()
    }

    /// Without all tiles but one, to check or to time that one.
    ///
    /// # Panics
    /// If the device can't run it.
    pub fn limited_to(mut self, [rows, columns]: [u32; 2]) -> Self {
        self.kernels.retain(|(tile, ..)| tile.rows == rows && tile.columns == columns);
        assert!(!self.kernels.is_empty(), "no tile of {rows} x {columns}");
        self
    }

    /// The kernel with which a product is probably done first: blocks go over the multiprocessors in waves.
    fn choose(&self, rows: usize, columns: usize, phases: u32) -> &(&'static Tile, Function, Function) {
        let time = |tile: &Tile| {
            let [m, n] = tile.blocks(rows, columns);
            let waves = (m * n * phases).div_ceil(self.multiprocessors);
            f64::from(waves * tile.rows * tile.columns) / tile.efficiency
        };
        let mut best = &self.kernels[0];
        for kernel in &self.kernels[1..] {
            if time(kernel.0) < time(best.0) {
                best = kernel;
            }
        }
        best
    }

    /// How the moments of a product of `rows` and `columns` are laid out: `[blocks, 2, columns]`.
    pub fn moments(&self, rows: usize, columns: usize) -> MomentBlocks {
        if self.cublaslt.is_some() {
            return Finish::moment_blocks([rows, columns]);
        }
        self.moment_blocks(rows, columns, 1)
    }

    /// The same for a ConvTranspose of a map of `height` x `width`.
    pub fn deconv_moments(&self, height: usize, width: usize, columns: usize) -> MomentBlocks {
        self.moment_blocks(height * width, columns, 4)
    }

    fn moment_blocks(&self, rows: usize, columns: usize, phases: u32) -> MomentBlocks {
        let (tile, ..) = self.choose(rows, columns, phases);
        MomentBlocks { phases: phases as usize, rows, block_rows: tile.warp_rows as usize, columns }
    }

    /// `a weights^T`, and what follows. Without `room`, which cuBLASLt wants, the own kernel does it.
    ///
    /// # Errors
    /// If it can't be queued.
    ///
    /// # Panics
    /// If sizes don't fit together, the depth is no multiple of 8, columns are none of 4, or addresses are none of 16 bytes.
    pub fn product(
        &self,
        stream: &Stream,
        a: Rows<'_>,
        linear: Linear<'_>,
        then: Then<'_>,
        room: Option<&mut Room>,
    ) -> Result<(), CudaError> {
        let Rows { values, rows, depth, stride } = a;
        assert!(
            stride >= depth && stride.is_multiple_of(8),
            "product: rows of {depth} values {stride} apart"
        );
        assert!(
            rows == 0 || values.len() >= size(&[rows - 1, stride]) + depth,
            "product: {rows} rows of {depth}"
        );
        let kernel = self.choose(rows, linear.columns, 1);
        let blocks = self.moments(rows, linear.columns);
        let arguments = Arguments {
            a: aligned(values.at(stream)),
            rows: number(rows),
            depth: number(depth),
            a_stride: number(stride),
            ..self.arguments(stream, blocks, linear, depth, &then)
        };
        let [m, n] = kernel.0.blocks(rows, linear.columns);
        // SAFETY: the struct is the kernel's, and all that it names was measured above and in `arguments`.
        let launch = |arguments| unsafe { stream.launch(&kernel.1, [m, n, 1], arguments) };
        let Some(cublaslt) = &self.cublaslt else { return launch(&arguments) };
        let then = match room {
            Some(room) => cublaslt.product(stream, a, linear, then, room)?,
            None => Some(then),
        };
        match then {
            None => Ok(()),
            Some(Then::Moments(Out { values, stride }, moments)) => {
                // In the blocks that cuBLASLt's would have, since nobody knew whose product it would be.
                launch(&Arguments { then: STORE, moments: 0, ..arguments })?;
                cublaslt.moments(stream, values.as_slice(), stride, [rows, linear.columns], moments)
            }
            Some(_) => launch(&arguments),
        }
    }

    /// ConvTranspose2d with kernel 4, stride 2 and padding 1 of `map`, giving `[2 height, 2 width, columns]`. Weights are
    /// `[4, columns, 4, channels]` as [`deconv_weights`] lays them out.
    ///
    /// # Errors
    /// If it can't be queued.
    ///
    /// # Panics
    /// As [`product`](Self::product) does.
    pub fn deconv(
        &self,
        stream: &Stream,
        map: Map<'_>,
        linear: Linear<'_>,
        then: Then<'_>,
    ) -> Result<(), CudaError> {
        let Map { values, height, width, channels } = map;
        let (rows, depth) = (size(&[height, width]), size(&[4, channels]));
        assert!(channels > 0 && channels.is_multiple_of(8), "deconv: {channels} channels");
        assert!(values.len() >= size(&[rows, channels]), "deconv: {height} x {width} x {channels}");
        let kernel = self.choose(rows, linear.columns, 4);
        let blocks = self.deconv_moments(height, width, linear.columns);
        let arguments = Arguments {
            a: aligned(values.at(stream)),
            rows: number(rows),
            depth: number(depth),
            a_stride: 0,
            height: number(height),
            width: number(width),
            channels: number(channels),
            ..self.arguments(stream, blocks, linear, depth, &then)
        };
        let [m, n] = kernel.0.blocks(rows, linear.columns);
        // SAFETY: the struct is the kernel's, and all that it names was measured above and in `arguments`.
        unsafe { stream.launch(&kernel.2, [m, n, 4], &arguments) }
    }

    /// What both have in common, checked. Of as many products with as many rows as `blocks` of moments say.
    fn arguments(
        &self,
        stream: &Stream,
        blocks: MomentBlocks,
        linear: Linear<'_>,
        depth: usize,
        then: &Then<'_>,
    ) -> Arguments {
        let MomentBlocks { phases, rows, .. } = blocks;
        let Linear { weights, bias, columns } = linear;
        assert!(
            depth.is_multiple_of(8) && columns.is_multiple_of(4),
            "product: {columns} columns of {depth}"
        );
        assert!(
            weights.len() >= size(&[phases, columns, depth]),
            "product: weights of {columns} columns of {depth}"
        );
        let (mut scale, mut moments, mut group) = (0, 0, 4);
        let (code, out, used) = match then {
            Then::Store(out) => (STORE, out.anything(stream), columns),
            Then::Gelu(out) => (1, out.anything(stream), columns),
            Then::SwiGlu(out) => {
                // Two of them are stored at once, of others four.
                group = 2;
                (2, out.anything(stream), columns / 2)
            }
            Then::Add(out, by) => {
                if let Some(by) = by {
                    assert!(by.len() >= columns, "product: {} scales", by.len());
                    scale = aligned(by.at(stream));
                }
                (3, out.anything(stream), columns)
            }
            Then::StoreF32(out) => (4, out.anything(stream), columns),
            Then::Moments(out, to) => {
                assert!(bias.is_none(), "product: a bias before an InstanceNorm");
                assert!(to.len() >= blocks.len(), "product: {} moments", to.len());
                moments = aligned(to.at(stream));
                (5, out.anything(stream), columns)
            }
        };
        let Destination { pointer, len, stride } = out;
        assert!(
            stride >= used && stride.is_multiple_of(group),
            "product: results of {used} values {stride} apart"
        );
        assert!(
            rows == 0 || len >= size(&[phases * rows - 1, stride]) + used,
            "product: room for {len} results"
        );
        if let Some(bias) = bias {
            assert!(bias.len() >= columns, "product: {} biases", bias.len());
        }
        Arguments {
            a: 0,
            weights: aligned(weights.at(stream)),
            bias: bias.map_or(0, |bias| aligned(bias.at(stream))),
            out: aligned(pointer),
            scale,
            moments,
            rows: 0,
            columns: number(columns),
            depth: 0,
            a_stride: 0,
            out_stride: number(stride),
            then: code,
            height: 0,
            width: 0,
            channels: 0,
            unused: 0,
        }
    }
}

/// How the moments beside a product's results lie: `[phases * row blocks, 2, columns]`, of each column of each block of rows the mean
/// and the sum of squared distances from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MomentBlocks {
    /// Products side by side: one, or a ConvTranspose's four.
    pub phases: usize,
    /// Rows of each.
    pub rows: usize,
    /// Rows of a block; the last of a phase may have fewer.
    pub block_rows: usize,
    /// Columns.
    pub columns: usize,
}

impl MomentBlocks {
    /// Values in all.
    pub fn len(&self) -> usize {
        size(&[self.phases, self.rows.div_ceil(self.block_rows), 2, self.columns])
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Weights of a ConvTranspose2d `[channels, columns, 4, 4]` as [`Products::deconv`] takes them: `[4, columns, 4, channels]`.
///
/// Row `2 y` of the result gets kernel row 1 times row `y` and kernel row 3 times row `y - 1`; row `2 y + 1` kernel row 2 times row
/// `y` and kernel row 0 times row `y + 1`. Columns alike.
///
/// # Panics
/// If there aren't that many.
pub fn deconv_weights<T: Copy>(weights: &[T], channels: usize, columns: usize) -> Vec<T> {
    assert_eq!(weights.len(), channels * columns * 16, "deconv_weights");
    const KERNEL: [[usize; 2]; 2] = [[1, 3], [2, 0]];
    let mut out = Vec::with_capacity(weights.len());
    for (phase, column, tap) in (0..4)
        .flat_map(|phase| (0..columns).flat_map(move |column| (0..4).map(move |tap| (phase, column, tap))))
    {
        let (y, x) = (KERNEL[phase / 2][tap / 2], KERNEL[phase % 2][tap % 2]);
        out.extend((0..channels).map(|channel| weights[(channel * columns + column) * 16 + 4 * y + x]));
    }
    out
}
