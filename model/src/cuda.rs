//! What a program needs that has frames in an NVIDIA GPU's memory: it says which context they are in, hands them over where
//! they lie, and has labels painted on them there.
//!
//! A network works in one context. [`Segmenter::in_context`](crate::Segmenter::in_context) makes it the program's own.

pub use sapiens_kernels::cuda::foreign::{Context, ContextId, ForeignPlane, ForeignStream};

pub use crate::frame::CudaFrame;
use crate::label_map::LabelMap;
use crate::palette::Palette;

/// Labels to be shown on a frame in a GPU's memory.
#[derive(Debug)]
pub struct Painting<'a> {
    /// The frame, which stays as it is.
    pub frame: &'a CudaFrame,
    /// A frame of the same size and layout that nobody else uses: it becomes the frame with the labels shown on it. What it was
    /// doesn't matter.
    pub canvas: &'a mut CudaFrame,
    /// None at the start of a live stream.
    pub labels: Option<&'a LabelMap>,
    /// Which classes are shown, and in what colours.
    pub palette: &'a Palette,
    /// What is made of them.
    pub look: Look,
}

/// What a network takes of a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceUse {
    /// Bytes of the GPU's memory that there are for weights, forward passes and frames, of all who share the network.
    pub memory: usize,
    /// The most that there ever were.
    pub peak_memory: usize,
    /// Kernels and copies of one forward pass, preprocessing and labels aside; 0 before the first frame.
    pub launches: usize,
}

/// How labels are shown.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Look {
    /// As [`paint_overlay`](crate::paint_overlay) does it.
    Overlay {
        /// Of the colours, 0 to 1.
        opacity: f64,
    },
    /// As [`apply_alpha`](crate::apply_alpha) does it.
    CutOut,
}
