//! Labels painted over their frame in the device's memory: `cuda/overlay.cu`.

use std::sync::Arc;

use super::frame::{Pixels, PlaneMut, rows_of_blocks};
use super::modules::Function;
use super::{Buffer, CudaError, Gpu, Slice, Stream, number};
use crate::frame::{Layout, Tint};

/// Pixels, or blocks that share a sample of chroma, of a block of threads, as in `cuda/overlay.cu`.
const COLUMNS: usize = 32;
const ROWS: usize = 4;

/// Each label's tint, on the device.
#[derive(Debug)]
pub struct Tints(Buffer<u16>);

impl Tints {
    /// Copies them there.
    ///
    /// # Errors
    /// If there is no memory for them, or what the driver says.
    pub fn new(stream: &Stream, tints: &[Tint; 256]) -> Result<Self, CudaError> {
        let values: Vec<u16> =
            tints.iter().flat_map(|&Tint { keep, add: [a, b, c] }| [keep, a, b, c]).collect();
        let mut buffer = Buffer::new(stream.gpu(), values.len())?;
        stream.upload(&values, buffer.slice_mut(..))?;
        Ok(Self(buffer))
    }
}

/// A frame to paint on.
#[derive(Debug)]
pub struct Canvas<'a, 'b> {
    /// Where the components lie.
    pub layout: Layout,
    /// Pixels in a row.
    pub width: usize,
    /// Rows.
    pub height: usize,
    /// As many as the layout has.
    pub planes: &'a mut [PlaneMut<'b>],
}

/// The kernel that paints.
#[derive(Debug)]
pub struct Overlay(Function);

/// As `cuda/overlay.cu` takes them.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Arguments {
    pixels: Pixels,
    labels: u64,
    tints: u64,
}

impl Overlay {
    /// Finds it.
    ///
    /// # Errors
    /// If it can't be found.
    pub fn new(gpu: &Arc<Gpu>) -> Result<Self, CudaError> {
        Function::find(gpu, "overlay", (COLUMNS * ROWS) as u32, 0).map(Self)
    }

    /// Gives every pixel its label's tint, and every sample of chroma the mean of its pixels'. `labels` are `[height, width]`.
    ///
    /// # Errors
    /// What the driver says.
    ///
    /// # Panics
    /// If there aren't that many labels, or a plane is too small.
    pub fn run(
        &self,
        stream: &Stream,
        canvas: Canvas<'_, '_>,
        labels: Slice<'_, u8>,
        tints: &Tints,
    ) -> Result<(), CudaError> {
        let Canvas { layout, width, height, planes } = canvas;
        assert_eq!(labels.len(), width * height, "overlay: labels of {width} x {height}");
        let planes = planes.iter().map(|plane| (plane.bytes.at(stream), plane.bytes.len(), plane.stride));
        let arguments = Arguments {
            pixels: Pixels::new(layout, width, height, planes),
            labels: labels.at(stream),
            tints: tints.0.slice(..).at(stream),
        };
        let (block_width, block_height) = match layout {
            Layout::Packed(_) | Layout::Gray => (1, 1),
            Layout::Yuv(yuv) => (yuv.block_width, yuv.block_height),
        };
        let columns = width.div_ceil(block_width).div_ceil(COLUMNS);
        let rows = height.div_ceil(block_height).div_ceil(ROWS);
        // SAFETY: the struct is the kernel's, and planes and labels were measured above.
        unsafe { stream.launch(&self.0, [number(columns), rows_of_blocks(rows), 1], &arguments) }
    }
}
