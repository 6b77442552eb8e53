//! Labels at the frame's size from the network's logits: `cuda/resize_argmax.cu`.

use std::sync::Arc;

use super::frame::rows_of_blocks;
use super::modules::Function;
use super::{CudaError, Gpu, Slice, SliceMut, Stream, aligned, number, size};
use crate::LabelWindow;

/// Columns and rows of labels of a block, and its threads, as in `cuda/resize_argmax.cu`.
const COLUMNS: usize = 64;
const ROWS: usize = 8;
const THREADS: u32 = 256;

/// Logits of one image, `[height, width, stride]`, of whose every `stride` values the first are the classes.
#[derive(Debug, Clone, Copy)]
pub struct PixelLogits<'a> {
    /// All of them.
    pub values: Slice<'a, f32>,
    /// Classes, at most 256.
    pub classes: usize,
    /// Values from one pixel to the next, a multiple of 4.
    pub stride: usize,
    /// Rows of pixels.
    pub height: usize,
    /// Pixels of a row.
    pub width: usize,
}

/// The kernel that makes labels.
#[derive(Debug)]
pub struct ResizeArgmax(Function);

/// As `cuda/resize_argmax.cu` takes them.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Arguments {
    logits: u64,
    labels: u64,
    classes: u32,
    stride: u32,
    height: u32,
    width: u32,
    full_height: u32,
    full_width: u32,
    rows: u32,
    columns: u32,
    step_y: f32,
    step_x: f32,
}

impl ResizeArgmax {
    /// Finds it.
    ///
    /// # Errors
    /// If it can't be found.
    pub fn new(gpu: &Arc<Gpu>) -> Result<Self, CudaError> {
        Function::find(gpu, "resize_argmax", THREADS, 0).map(Self)
    }

    /// Makes the label image `out [window.height, window.width]`, equal to [`reference::resize_argmax`](crate::reference::resize_argmax).
    ///
    /// The label is the class with the largest value after the resize, the lowest of them where several tie. NaN never
    /// wins: where all classes are NaN the label is 0.
    ///
    /// # Errors
    /// What the driver says.
    ///
    /// # Panics
    /// If the window is empty or larger than what the logits are stretched to, or sizes don't fit together.
    pub fn run(
        &self,
        stream: &Stream,
        logits: PixelLogits<'_>,
        window: LabelWindow,
        out: SliceMut<'_, u8>,
    ) -> Result<(), CudaError> {
        let PixelLogits { values, classes, stride, height, width } = logits;
        assert!((1..=256).contains(&classes), "{classes} classes: labels of 8 bits need 1 to 256");
        assert!(classes <= stride && stride.is_multiple_of(4), "{classes} classes every {stride} values");
        assert!(height > 0 && width > 0, "logits of {width} x {height} pixels");
        assert_eq!(
            values.len(),
            size(&[height, width, stride]),
            "length of logits [{height}, {width}, {stride}]"
        );
        let LabelWindow { full_height, full_width, height: rows, width: columns } = window;
        assert!(
            (1..=full_height).contains(&rows) && (1..=full_width).contains(&columns),
            "{window:?} is empty or larger than the whole"
        );
        assert_eq!(out.len(), size(&[rows, columns]), "bytes of {columns} x {rows} labels");
        let arguments = Arguments {
            logits: aligned(values.at(stream)),
            labels: out.at(stream),
            classes: number(classes),
            stride: number(stride),
            height: number(height),
            width: number(width),
            full_height: number(full_height),
            full_width: number(full_width),
            rows: number(rows),
            columns: number(columns),
            step_y: height as f32 / full_height as f32,
            step_x: width as f32 / full_width as f32,
        };
        let grid = [number(columns.div_ceil(COLUMNS)), rows_of_blocks(rows.div_ceil(ROWS)), 1];
        // SAFETY: the struct is the kernel's, and logits and labels were measured above.
        unsafe { stream.launch(&self.0, grid, &arguments) }
    }
}
