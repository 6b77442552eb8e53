//! Pixel formats as a table: where each component of a pixel lies.

use std::fmt;

use sapiens_kernels::frame::{Component, Layout, Packed, Yuv};

/// Order of components in memory, by GStreamer's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PixelFormat {
    /// 3 bytes: R, G, B.
    Rgb,
    /// 3 bytes: B, G, R.
    Bgr,
    /// 4 bytes: R, G, B, alpha.
    Rgba,
    /// 4 bytes: B, G, R, alpha.
    Bgra,
    /// 4 bytes: alpha, R, G, B.
    Argb,
    /// 4 bytes: alpha, B, G, R.
    Abgr,
    /// 4 bytes: R, G, B, unused.
    Rgbx,
    /// 4 bytes: B, G, R, unused.
    Bgrx,
    /// 4 bytes: unused, R, G, B.
    Xrgb,
    /// 4 bytes: unused, B, G, R.
    Xbgr,
    /// 1 byte: luma.
    Gray8,
    /// A plane of Y, a plane of U and V in turn, each for 2 x 2 pixels.
    Nv12,
    /// A plane of Y, a plane of V and U in turn, each for 2 x 2 pixels.
    Nv21,
    /// Planes Y, U, V; U and V for 2 x 2 pixels.
    I420,
    /// Planes Y, V, U; U and V for 2 x 2 pixels.
    Yv12,
    /// Y, U, Y, V for two pixels.
    Yuy2,
    /// U, Y, V, Y for two pixels.
    Uyvy,
}

const fn packed(step: usize, r: usize, g: usize, b: usize) -> Layout {
    Layout::Packed(Packed { step, r, g, b })
}

/// 4:2:0 with luma in plane 0; `(plane, offset, step)` of U and V.
const fn yuv420(u: (usize, usize, usize), v: (usize, usize, usize)) -> Layout {
    let y = Component { plane: 0, offset: 0, step: 1 };
    let u = Component { plane: u.0, offset: u.1, step: u.2 };
    let v = Component { plane: v.0, offset: v.1, step: v.2 };
    Layout::Yuv(Yuv { y, u, v, block_width: 2, block_height: 2 })
}

/// 4:2:2 in one plane; offsets of the first Y, U and V.
const fn yuv422(y: usize, u: usize, v: usize) -> Layout {
    let y = Component { plane: 0, offset: y, step: 2 };
    let u = Component { plane: 0, offset: u, step: 4 };
    let v = Component { plane: 0, offset: v, step: 4 };
    Layout::Yuv(Yuv { y, u, v, block_width: 2, block_height: 1 })
}

impl PixelFormat {
    /// Every format there is.
    pub const ALL: [PixelFormat; 17] = [
        PixelFormat::Rgb,
        PixelFormat::Bgr,
        PixelFormat::Rgba,
        PixelFormat::Bgra,
        PixelFormat::Argb,
        PixelFormat::Abgr,
        PixelFormat::Rgbx,
        PixelFormat::Bgrx,
        PixelFormat::Xrgb,
        PixelFormat::Xbgr,
        PixelFormat::Gray8,
        PixelFormat::Nv12,
        PixelFormat::Nv21,
        PixelFormat::I420,
        PixelFormat::Yv12,
        PixelFormat::Yuy2,
        PixelFormat::Uyvy,
    ];

    /// Planes of a frame in this format.
    pub fn planes(self) -> usize {
        self.layout().planes()
    }

    pub(crate) const fn layout(self) -> Layout {
        match self {
            PixelFormat::Rgb => packed(3, 0, 1, 2),
            PixelFormat::Bgr => packed(3, 2, 1, 0),
            PixelFormat::Rgba | PixelFormat::Rgbx => packed(4, 0, 1, 2),
            PixelFormat::Bgra | PixelFormat::Bgrx => packed(4, 2, 1, 0),
            PixelFormat::Argb | PixelFormat::Xrgb => packed(4, 1, 2, 3),
            PixelFormat::Abgr | PixelFormat::Xbgr => packed(4, 3, 2, 1),
            PixelFormat::Gray8 => Layout::Gray,
            PixelFormat::Nv12 => yuv420((1, 0, 2), (1, 1, 2)),
            PixelFormat::Nv21 => yuv420((1, 1, 2), (1, 0, 2)),
            PixelFormat::I420 => yuv420((1, 0, 1), (2, 0, 1)),
            PixelFormat::Yv12 => yuv420((2, 0, 1), (1, 0, 1)),
            PixelFormat::Yuy2 => yuv422(0, 1, 3),
            PixelFormat::Uyvy => yuv422(1, 0, 2),
        }
    }
}

impl fmt::Display for PixelFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PixelFormat::Rgb => "RGB",
            PixelFormat::Bgr => "BGR",
            PixelFormat::Rgba => "RGBA",
            PixelFormat::Bgra => "BGRA",
            PixelFormat::Argb => "ARGB",
            PixelFormat::Abgr => "ABGR",
            PixelFormat::Rgbx => "RGBx",
            PixelFormat::Bgrx => "BGRx",
            PixelFormat::Xrgb => "xRGB",
            PixelFormat::Xbgr => "xBGR",
            PixelFormat::Gray8 => "GRAY8",
            PixelFormat::Nv12 => "NV12",
            PixelFormat::Nv21 => "NV21",
            PixelFormat::I420 => "I420",
            PixelFormat::Yv12 => "YV12",
            PixelFormat::Yuy2 => "YUY2",
            PixelFormat::Uyvy => "UYVY",
        })
    }
}
