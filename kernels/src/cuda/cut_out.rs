//! Frames cut out along their labels in the device's memory: `cuda/cut_out.cu`.

use std::sync::Arc;

use super::frame::{Pixels, rows_of_blocks};
use super::modules::Function;
use super::overlay::Canvas;
use super::{Buffer, CudaError, Gpu, Slice, Stream, number};
use crate::frame::{Layout, Packed};

/// Pixels of a block of threads, as in `cuda/cut_out.cu`.
const COLUMNS: usize = 128;
const ROWS: usize = 4;
const THREADS: u32 = 128;

/// Which labels are shown, on the device.
#[derive(Debug)]
pub struct Shown(Buffer<u8>);

impl Shown {
    /// Copies it there.
    ///
    /// # Errors
    /// If there is no memory for it, or what the driver says.
    pub fn new(stream: &Stream, shown: &[bool; 256]) -> Result<Self, CudaError> {
        let mut buffer = Buffer::new(stream.gpu(), shown.len())?;
        stream.upload(&shown.map(u8::from), buffer.slice_mut(..))?;
        Ok(Self(buffer))
    }
}

/// The kernel that cuts out.
#[derive(Debug)]
pub struct CutOut(Function);

/// As `cuda/cut_out.cu` takes them.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Arguments {
    pixels: Pixels,
    labels: u64,
    shown: u64,
    alpha: i32,
    keeps: u32,
}

impl CutOut {
    /// Finds it.
    ///
    /// # Errors
    /// If it can't be found.
    pub fn new(gpu: &Arc<Gpu>) -> Result<Self, CudaError> {
        Function::find(gpu, "cut_out", THREADS, 0).map(Self)
    }

    /// Makes every pixel transparent whose label isn't shown, and where there are no labels all of them. Alpha is the one byte of
    /// a pixel that is none of R, G and B. Where it has a meaning (`has_alpha`) that of shown pixels stays, and where it was
    /// unused it becomes 255. `labels` are `[height, width]`.
    ///
    /// # Errors
    /// What the driver says.
    ///
    /// # Panics
    /// If pixels have no byte for alpha, there aren't that many labels, or the plane is too small.
    pub fn run(
        &self,
        stream: &Stream,
        canvas: Canvas<'_, '_>,
        has_alpha: bool,
        labels: Option<Slice<'_, u8>>,
        shown: &Shown,
    ) -> Result<(), CudaError> {
        let Canvas { layout, width, height, planes } = canvas;
        let alpha = from_r_to_alpha(layout);
        let planes = planes.iter().map(|plane| (plane.bytes.at(stream), plane.bytes.len(), plane.stride));
        let pixels = Pixels::new(layout, width, height, planes);
        let fits = labels.is_none_or(|labels| labels.len() == width * height);
        assert!(fits, "cut_out: labels of {width} x {height}");
        let arguments = Arguments {
            pixels,
            labels: labels.map_or(0, |labels| labels.at(stream)),
            shown: shown.0.slice(..).at(stream),
            alpha,
            keeps: u32::from(has_alpha),
        };
        let grid = [number(width.div_ceil(COLUMNS)), rows_of_blocks(height.div_ceil(ROWS)), 1];
        // SAFETY: the struct is the kernel's; the plane and the labels were measured above, and alpha is within a pixel.
        unsafe { stream.launch(&self.0, grid, &arguments) }
    }
}

/// Bytes from a pixel's R to the one that no colour has.
fn from_r_to_alpha(layout: Layout) -> i32 {
    if let Layout::Packed(Packed { step: 4, r, g, b }) = layout {
        let mut left = (0..4).filter(|byte| ![r, g, b].contains(byte));
        if let (Some(alpha), None) = (left.next(), left.next()) {
            return alpha as i32 - r as i32;
        }
    }
    panic!("cut_out: {layout:?} has no byte for alpha")
}
