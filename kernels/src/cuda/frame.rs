//! From a frame in the device's memory to the network's input as rows of patches: `cuda/frame.cu`. And a frame as kernels take it.

use std::sync::Arc;

use super::modules::Function;
use super::{Buffer, CudaError, Gpu, Precision, Slice, SliceMut, Stream, number};
use crate::Filter;
use crate::cpu::product::PATCH;
use crate::frame::{Layout, MAX_PLANES, YuvToRgb};
use crate::image::MAX_SIDE;
use crate::resize::{Arithmetic, Axis, Tables};

/// A plane: rows of bytes, `stride` apart.
#[derive(Debug, Clone, Copy)]
pub struct Plane<'a> {
    /// At least to the last byte of the last row. Any address will do.
    pub bytes: Slice<'a, u8>,
    /// Bytes from one row's start to the next. Any number will do.
    pub stride: usize,
}

/// A plane to paint on.
#[derive(Debug)]
pub struct PlaneMut<'a> {
    /// As in [`Plane`].
    pub bytes: SliceMut<'a, u8>,
    /// As in [`Plane`].
    pub stride: usize,
}

/// A frame to read.
#[derive(Debug, Clone, Copy)]
pub struct Frame<'a> {
    /// Where the components lie.
    pub layout: Layout,
    /// Pixels in a row.
    pub width: usize,
    /// Rows.
    pub height: usize,
    /// As many as the layout has.
    pub planes: &'a [Plane<'a>],
    /// How YUV and gray become RGB; nothing to packed RGB.
    pub to_rgb: YuvToRgb,
}

/// A resize's tables on the device: which pixels become which, and by which weights.
#[derive(Debug)]
pub struct ResizeTables {
    from: (usize, usize),
    to: (usize, usize),
    arithmetic: Arithmetic,
    columns: AxisTable,
    rows: AxisTable,
}

#[derive(Debug)]
struct AxisTable {
    spans: Buffer<i32>,
    weights: Buffer<f32>,
}

impl ResizeTables {
    /// Those of [`Resizer::resize`](crate::Resizer::resize) with images of these widths and heights.
    ///
    /// # Errors
    /// If there is no memory for them, or what the driver says.
    ///
    /// # Panics
    /// If a side is 0.
    pub fn new(
        stream: &Stream,
        filter: Filter,
        from: (usize, usize),
        to: (usize, usize),
    ) -> Result<Self, CudaError> {
        assert!(from.0.min(from.1).min(to.0).min(to.1) > 0, "a resize of {from:?} to {to:?}");
        let Tables { arithmetic, columns, rows } = Tables::new(filter, from, to);
        let upload = |axis: Axis| {
            let spans = axis.spans.as_flattened();
            let mut table = AxisTable {
                spans: Buffer::new(stream.gpu(), spans.len())?,
                weights: Buffer::new(stream.gpu(), axis.weights.len())?,
            };
            stream.upload(spans, table.spans.slice_mut(..))?;
            stream.upload(&axis.weights, table.weights.slice_mut(..))?;
            Ok(table)
        };
        Ok(Self { from, to, arithmetic, columns: upload(columns)?, rows: upload(rows)? })
    }
}

/// The kernels that make patches, and what they do with each level of R, G and B.
#[derive(Debug)]
pub struct Patches {
    linear: Function,
    area: Function,
    boxes: Function,
    cubic: Function,
    levels: Buffer<u16>,
}

/// As `cuda/frame.cuh` has it.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct Pixels {
    parts: [u64; 3],
    strides: [u32; 3],
    steps: [u32; 3],
    width: u32,
    height: u32,
    colours: u32,
    block_x: u32,
    block_y: u32,
    unused: u32,
}

/// As `cuda/frame.cu` takes them.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Arguments {
    pixels: Pixels,
    to_rgb: YuvToRgb,
    /// Spans and weights of columns and of rows.
    axes: [u64; 4],
    levels: u64,
    out: u64,
    width: u32,
    height: u32,
    scale: f32,
    unused: u32,
}

impl Patches {
    /// Those that make `(level - mean) / std` of each colour's levels.
    ///
    /// # Errors
    /// If the kernels can't be found, or what the driver says.
    pub fn new(
        stream: &Stream,
        precision: Precision,
        mean: [f32; 3],
        std: [f32; 3],
    ) -> Result<Self, CudaError> {
        let gpu: &Arc<Gpu> = stream.gpu();
        let function = |name| Function::find(gpu, name, (PATCH * PATCH / 2) as u32, 0);
        let levels: Vec<u16> = (0..3 * 256)
            .map(|i| precision.encode(((i % 256) as f32 - mean[i / 256]) / std[i / 256]))
            .collect();
        let mut patches = Self {
            linear: function("patches_linear")?,
            area: function("patches_area")?,
            boxes: function("patches_box")?,
            cubic: function("patches_cubic")?,
            levels: Buffer::new(stream.gpu(), levels.len())?,
        };
        stream.upload(&levels, patches.levels.slice_mut(..))?;
        Ok(patches)
    }

    /// Makes `out [canvas height / 16 * canvas width / 16, 3 * 256]`, patches as
    /// [`patch_rows`](crate::cpu::product::patch_rows) has them, of a canvas of this width and height whose top left is the resized
    /// frame, and the rest zero.
    ///
    /// # Errors
    /// What the driver says.
    ///
    /// # Panics
    /// If the tables are another frame size's, the canvas is no multiple of 16 or smaller than what they make, or a length
    /// or a stride is too small.
    pub fn run(
        &self,
        stream: &Stream,
        frame: Frame<'_>,
        tables: &ResizeTables,
        canvas: (usize, usize),
        out: SliceMut<'_, u16>,
    ) -> Result<(), CudaError> {
        let ResizeTables { from, to, arithmetic, columns, rows } = tables;
        assert_eq!((frame.width, frame.height), *from, "patches: tables of another size");
        assert!(
            canvas.0.is_multiple_of(PATCH) && canvas.1.is_multiple_of(PATCH),
            "patches of {} x {}",
            canvas.0,
            canvas.1
        );
        assert!(to.0 <= canvas.0 && to.1 <= canvas.1, "patches: {to:?} don't fit into {canvas:?}");
        assert_eq!(out.len(), canvas.0 * canvas.1 * 3, "patches have all of the canvas' values");
        assert!(out.at(stream).is_multiple_of(4), "patches: an address that is no multiple of 4 bytes");
        let (kernel, scale) = match *arithmetic {
            Arithmetic::Linear => (&self.linear, 0.0),
            Arithmetic::Area => (&self.area, 0.0),
            Arithmetic::Cubic => (&self.cubic, 0.0),
            Arithmetic::Box { ties_up: true, .. } => (&self.boxes, 0.0),
            Arithmetic::Box { scale, ties_up: false } => (&self.boxes, scale),
        };
        let planes =
            frame.planes.iter().map(|plane| (plane.bytes.at(stream), plane.bytes.len(), plane.stride));
        let arguments = Arguments {
            pixels: Pixels::new(frame.layout, frame.width, frame.height, planes),
            to_rgb: frame.to_rgb,
            axes: [
                columns.spans.slice(..).at(stream),
                columns.weights.slice(..).at(stream),
                rows.spans.slice(..).at(stream),
                rows.weights.slice(..).at(stream),
            ],
            levels: self.levels.slice(..).at(stream),
            out: out.at(stream),
            width: number(to.0),
            height: number(to.1),
            scale,
            unused: 0,
        };
        let grid = [number(canvas.0 / PATCH), rows_of_blocks(canvas.1 / PATCH), 1];
        // SAFETY: the struct is the kernel's; the planes and the patches were measured above, the tables are those of both sizes.
        unsafe { stream.launch(kernel, grid, &arguments) }
    }
}

impl Pixels {
    /// From each plane's address, length and stride.
    ///
    /// # Panics
    /// If there are more or fewer than the layout has, or one is too small.
    pub(super) fn new(
        layout: Layout,
        width: usize,
        height: usize,
        planes: impl ExactSizeIterator<Item = (u64, usize, usize)>,
    ) -> Self {
        // Kernels count pixels in signed numbers too.
        assert!(
            (1..=MAX_SIDE).contains(&width) && (1..=MAX_SIDE).contains(&height),
            "a frame of {width} x {height} pixels"
        );
        assert_eq!(planes.len(), layout.planes(), "planes of a frame");
        let count = planes.len();
        let (mut given, mut sizes) = ([(0, 0); MAX_PLANES], [(0, 0); MAX_PLANES]);
        for (index, (pointer, len, stride)) in planes.enumerate() {
            let (row_bytes, rows) = layout.plane_size(index, width, height);
            assert!(
                stride >= row_bytes && len >= stride * (rows - 1) + row_bytes,
                "plane {index}: {len} bytes, {stride} a row, hold no {rows} rows of {row_bytes}"
            );
            given[index] = (pointer, number(stride));
            sizes[index] = (len, stride);
        }
        // Plane, offset and step of each component.
        let (colours, parts, block) = match layout {
            Layout::Packed(packed) => {
                (0, [packed.r, packed.g, packed.b].map(|offset| (0, offset, packed.step)), (1, 1))
            }
            Layout::Gray => (1, [(0, 0, 1); 3], (1, 1)),
            Layout::Yuv(yuv) => {
                let parts = [yuv.y, yuv.u, yuv.v].map(|part| (part.plane, part.offset, part.step));
                (2, parts, (yuv.block_width, yuv.block_height))
            }
        };
        let blocks = [block.0, block.1].iter().all(|side| (1..=2).contains(side));
        assert!(blocks, "blocks of {block:?} pixels");
        // The first component of YUV has a sample for each pixel, the others for each block.
        for (i, (plane, offset, step)) in parts.into_iter().enumerate() {
            let shared = if i == 0 { (1, 1) } else { block };
            let [columns, rows] = [width.div_ceil(shared.0), height.div_ceil(shared.1)];
            let fits = plane < count && step <= MAX_STEP && {
                let (len, stride) = sizes[plane];
                let row = offset.saturating_add((columns - 1) * step);
                row < stride && (rows - 1) * stride + row < len
            };
            assert!(fits, "component {i} of {layout:?} lies outside of its plane");
        }
        Self {
            parts: parts.map(|(plane, offset, _)| given[plane].0 + offset as u64),
            strides: parts.map(|(plane, _, _)| given[plane].1),
            steps: parts.map(|(_, _, step)| number(step)),
            width: number(width),
            height: number(height),
            colours,
            block_x: block.0.ilog2(),
            block_y: block.1.ilog2(),
            unused: 0,
        }
    }
}

/// Bytes from one sample to the next at most: far more than any format has.
const MAX_STEP: usize = 64;

/// Blocks along the second dimension of a grid.
pub(super) fn rows_of_blocks(count: usize) -> u32 {
    assert!(count <= usize::from(u16::MAX), "{count} rows of blocks");
    count as u32
}
