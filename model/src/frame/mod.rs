//! Frames as they come from cameras, decoders and image files: borrowed, strided planes.
//!
//! The first thing in the flow. Knows pixel layouts, nothing of networks.

mod colorimetry;
#[cfg(feature = "cuda")]
mod cuda;
mod format;
mod rgb;

pub use colorimetry::{Colorimetry, Matrix, Range};
pub(crate) use colorimetry::{RgbToYuv, yuv_to_rgb};
#[cfg(feature = "cuda")]
pub use cuda::CudaFrame;
pub use format::PixelFormat;
pub use sapiens_kernels::frame::MAX_PLANES;
pub(crate) use sapiens_kernels::frame::{Component, Layout, Packed, Yuv};

use crate::error::{ErrorKind, Result, SegmentError};

/// Largest width or height of a frame; keeps every size computed from them far from overflow.
pub const MAX_FRAME_SIDE: usize = 1 << 15;

/// Most bytes from one row to the next: what graphics cards count with.
const MAX_STRIDE: usize = i32::MAX as usize;

/// One plane: rows of bytes, each `stride` bytes after the one before.
#[derive(Debug, Clone, Copy, Default)]
pub struct Plane<'a> {
    /// From the first byte of the first row; at least to the last byte of the last row.
    pub data: &'a [u8],
    /// Bytes from one row's start to the next.
    pub stride: usize,
}

/// A plane that may be painted on.
#[derive(Debug, Default)]
pub struct PlaneMut<'a> {
    /// As in [`Plane`].
    pub data: &'a mut [u8],
    /// As in [`Plane`].
    pub stride: usize,
}

/// Format, size and colorimetry: what planes mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameInfo {
    /// Order of components in memory.
    pub format: PixelFormat,
    /// Pixels in a row.
    pub width: usize,
    /// Rows.
    pub height: usize,
    /// How YUV and gray values become RGB; RGB formats ignore it.
    pub colorimetry: Colorimetry,
}

impl FrameInfo {
    /// Bytes of a row and number of rows of plane `index`, without padding.
    pub fn plane_size(&self, index: usize) -> (usize, usize) {
        self.format.layout().plane_size(index, self.width, self.height)
    }

    /// Whether planes of these lengths and strides can hold such a frame.
    fn check(&self, planes: impl ExactSizeIterator<Item = (usize, usize)>) -> Result<()> {
        let invalid = |what: String| Err(SegmentError::new(ErrorKind::InvalidFrame, what));
        let FrameInfo { format, width, height, .. } = *self;
        if width == 0 || height == 0 || width > MAX_FRAME_SIDE || height > MAX_FRAME_SIDE {
            return invalid(format!(
                "a {format} frame of {width} x {height} pixels: expected 1 to {MAX_FRAME_SIDE} each way"
            ));
        }
        let expected = format.layout().planes();
        if planes.len() != expected {
            return invalid(format!("a {format} frame of {} planes: expected {expected}", planes.len()));
        }
        for (index, (len, stride)) in planes.enumerate() {
            let (row_bytes, rows) = self.plane_size(index);
            if stride < row_bytes {
                return invalid(format!(
                    "plane {index} of a {width} x {height} {format} frame has stride {stride}: expected at least {row_bytes}"
                ));
            }
            if stride > MAX_STRIDE {
                return invalid(format!(
                    "plane {index} of a {width} x {height} {format} frame has stride {stride}: expected at most {MAX_STRIDE}"
                ));
            }
            let needed = stride as u64 * (rows as u64 - 1) + row_bytes as u64;
            if (len as u64) < needed {
                return invalid(format!(
                    "plane {index} of a {width} x {height} {format} frame with stride {stride} has {len} bytes: expected at least {needed}"
                ));
            }
        }
        Ok(())
    }
}

/// A frame to read: borrowed planes whose sizes have been checked.
#[derive(Debug, Clone, Copy)]
pub struct FrameView<'a> {
    info: FrameInfo,
    planes: [Plane<'a>; MAX_PLANES],
}

impl<'a> FrameView<'a> {
    /// Puts planes and their meaning together.
    ///
    /// # Errors
    /// `InvalidFrame` if a size is 0 or enormous, a stride shorter than a row, or a plane shorter than its rows.
    pub fn new(info: FrameInfo, planes: &[Plane<'a>]) -> Result<Self> {
        info.check(planes.iter().map(|plane| (plane.data.len(), plane.stride)))?;
        let mut own = [Plane::default(); MAX_PLANES];
        own[..planes.len()].copy_from_slice(planes);
        Ok(Self { info, planes: own })
    }

    /// An RGB image without padding between rows.
    ///
    /// # Errors
    /// `InvalidFrame`, as for [`FrameView::new`].
    pub fn rgb(width: usize, height: usize, data: &'a [u8]) -> Result<Self> {
        let info = FrameInfo { format: PixelFormat::Rgb, width, height, colorimetry: Colorimetry::default() };
        Self::new(info, &[Plane { data, stride: width.saturating_mul(3) }])
    }

    /// Format, size and colorimetry.
    pub fn info(&self) -> FrameInfo {
        self.info
    }

    /// Pixels in a row.
    pub fn width(&self) -> usize {
        self.info.width
    }

    /// Rows.
    pub fn height(&self) -> usize {
        self.info.height
    }

    /// Plane `index` from its first byte to that of its last pixel.
    #[cfg(feature = "cuda")]
    pub(crate) fn plane(&self, index: usize) -> Plane<'a> {
        let (row_bytes, rows) = self.info.plane_size(index);
        let Plane { data, stride } = self.planes[index];
        Plane { data: &data[..stride * (rows - 1) + row_bytes], stride }
    }

    /// Row `y` of plane `index` (in the plane's own rows), without padding.
    pub(crate) fn row(&self, index: usize, y: usize) -> &'a [u8] {
        let (row_bytes, _) = self.info.plane_size(index);
        let Plane { data, stride } = self.planes[index];
        &data[y * stride..][..row_bytes]
    }
}

/// A frame to paint on.
#[derive(Debug)]
pub struct FrameViewMut<'a> {
    info: FrameInfo,
    planes: [PlaneMut<'a>; MAX_PLANES],
}

impl<'a> FrameViewMut<'a> {
    /// Puts planes and their meaning together; `planes` has as many as the format.
    ///
    /// # Errors
    /// `InvalidFrame`, as for [`FrameView::new`].
    pub fn new<const N: usize>(info: FrameInfo, planes: [PlaneMut<'a>; N]) -> Result<Self> {
        info.check(planes.iter().map(|plane| (plane.data.len(), plane.stride)))?;
        let mut given = planes.into_iter();
        Ok(Self { info, planes: std::array::from_fn(|_| given.next().unwrap_or_default()) })
    }

    /// An RGB image without padding between rows.
    ///
    /// # Errors
    /// `InvalidFrame`, as for [`FrameView::new`].
    pub fn rgb(width: usize, height: usize, data: &'a mut [u8]) -> Result<Self> {
        let info = FrameInfo { format: PixelFormat::Rgb, width, height, colorimetry: Colorimetry::default() };
        Self::new(info, [PlaneMut { data, stride: width.saturating_mul(3) }])
    }

    /// Format, size and colorimetry.
    pub fn info(&self) -> FrameInfo {
        self.info
    }

    /// Row `y` of plane `index`, without padding.
    pub(crate) fn row_mut(&mut self, index: usize, y: usize) -> &mut [u8] {
        let (row_bytes, _) = self.info.plane_size(index);
        let PlaneMut { data, stride } = &mut self.planes[index];
        &mut data[y * *stride..][..row_bytes]
    }
}

/// Something that keeps a frame's pixels alive while it is being looked at.
///
/// Inference is asynchronous, so an engine is given a guard that owns the pixels (a mapped video buffer, a
/// decoded image) instead of a borrow, and drops it as soon as it has read them.
pub trait Frame: Send + 'static {
    /// The pixels.
    fn pixels(&self) -> Pixels<'_>;
}

/// Where a frame's pixels are.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Pixels<'a> {
    /// In the machine's memory.
    Host(FrameView<'a>),
    /// In an NVIDIA GPU's.
    #[cfg(feature = "cuda")]
    Cuda(&'a CudaFrame),
}

impl<'a> Pixels<'a> {
    /// For an engine that reads the machine's memory only.
    ///
    /// # Errors
    /// `InvalidFrame` if they are elsewhere.
    pub(crate) fn on_host(self) -> Result<FrameView<'a>> {
        match self {
            Pixels::Host(view) => Ok(view),
            #[cfg(feature = "cuda")]
            Pixels::Cuda(frame) => {
                let FrameInfo { format, width, height, .. } = frame.info();
                Err(SegmentError::new(
                    ErrorKind::InvalidFrame,
                    format!(
                        "a {width} x {height} {format} frame in a GPU's memory: expected one in the machine's"
                    ),
                ))
            }
        }
    }
}

/// A frame that owns its bytes.
#[derive(Debug, Clone)]
pub struct OwnedFrame {
    info: FrameInfo,
    planes: Vec<(Vec<u8>, usize)>,
}

impl OwnedFrame {
    /// A frame of `planes`, each its bytes and its stride.
    ///
    /// # Errors
    /// `InvalidFrame`, as for [`FrameView::new`].
    pub fn new(info: FrameInfo, planes: Vec<(Vec<u8>, usize)>) -> Result<Self> {
        info.check(planes.iter().map(|(data, stride)| (data.len(), *stride)))?;
        Ok(Self { info, planes })
    }

    /// An RGB image without padding between rows.
    ///
    /// # Errors
    /// `InvalidFrame`, as for [`FrameView::new`].
    pub fn rgb(width: usize, height: usize, data: Vec<u8>) -> Result<Self> {
        let info = FrameInfo { format: PixelFormat::Rgb, width, height, colorimetry: Colorimetry::default() };
        Self::new(info, vec![(data, width.saturating_mul(3))])
    }
}

impl OwnedFrame {
    /// The pixels.
    pub fn view(&self) -> FrameView<'_> {
        let mut planes = [Plane::default(); MAX_PLANES];
        for (plane, (data, stride)) in planes.iter_mut().zip(&self.planes) {
            *plane = Plane { data, stride: *stride };
        }
        FrameView { info: self.info, planes }
    }
}

impl Frame for OwnedFrame {
    fn pixels(&self) -> Pixels<'_> {
        Pixels::Host(self.view())
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
