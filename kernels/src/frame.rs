//! Frames as they come from cameras and decoders: where a pixel's components lie in the planes, and how YUV becomes RGB. Knows no
//! format by its name.

/// Packed R, G, B in one plane: byte offsets within a pixel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packed {
    /// Bytes from one pixel to the next.
    pub step: usize,
    /// Offset of R.
    pub r: usize,
    /// Offset of G.
    pub g: usize,
    /// Offset of B.
    pub b: usize,
}

/// One component of a YUV format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Component {
    /// Its plane.
    pub plane: usize,
    /// Offset of its first sample in a row.
    pub offset: usize,
    /// Bytes from one sample to the next.
    pub step: usize,
}

/// Y, U, V somewhere in one to three planes; U and V for blocks of pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Yuv {
    /// One sample per pixel.
    pub y: Component,
    /// One sample per `block_width` x `block_height` pixels.
    pub u: Component,
    /// As `u`.
    pub v: Component,
    /// 2 in every format there is.
    pub block_width: usize,
    /// 1 or 2.
    pub block_height: usize,
}

/// Where the components lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// R, G and B side by side.
    Packed(Packed),
    /// Luma alone, a byte a pixel.
    Gray,
    /// Luma and chroma.
    Yuv(Yuv),
}

/// Planes of a frame at most.
pub const MAX_PLANES: usize = 3;

impl Layout {
    /// Planes of this layout.
    pub fn planes(&self) -> usize {
        match self {
            Layout::Packed(_) | Layout::Gray => 1,
            Layout::Yuv(yuv) => yuv.u.plane.max(yuv.v.plane) + 1,
        }
    }

    /// Bytes of a row and number of rows of a plane of a `width` x `height` frame.
    pub fn plane_size(&self, index: usize, width: usize, height: usize) -> (usize, usize) {
        match self {
            Layout::Packed(packed) => (width * packed.step, height),
            Layout::Gray => (width, height),
            Layout::Yuv(yuv) if yuv.u.plane == yuv.y.plane => {
                // Packed 4:2:2: whole pairs, so that an odd last pixel has its chroma.
                (width.div_ceil(yuv.block_width) * yuv.u.step, height)
            }
            Layout::Yuv(_) if index == 0 => (width, height),
            Layout::Yuv(yuv) => {
                (width.div_ceil(yuv.block_width) * yuv.u.step, height.div_ceil(yuv.block_height))
            }
        }
    }
}

/// YUV to RGB in fixed point. With differences of 9 bits and factors below 3 everything stays within 28 bits.
// As kernels take it.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct YuvToRgb {
    /// The luma of black.
    pub y_offset: i32,
    /// What a level of luma adds to R, G and B, as all factors in units of 2^-[`YuvToRgb::BITS`].
    pub y: i32,
    /// What a level of V adds to R.
    pub v_to_r: i32,
    /// What a level of U adds to G.
    pub u_to_g: i32,
    /// What a level of V adds to G.
    pub v_to_g: i32,
    /// What a level of U adds to B.
    pub u_to_b: i32,
}

impl YuvToRgb {
    /// Fractional bits of the factors.
    pub const BITS: u32 = 16;

    /// The luma part, ready for [`YuvToRgb::convert`].
    #[inline(always)]
    fn luma(&self, y: u8) -> i32 {
        (i32::from(y) - self.y_offset) * self.y + (1 << (Self::BITS - 1))
    }

    /// What a chroma pair adds to R, G and B.
    #[inline(always)]
    pub fn chroma(&self, u: u8, v: u8) -> [i32; 3] {
        let (u, v) = (i32::from(u) - 128, i32::from(v) - 128);
        [self.v_to_r * v, self.u_to_g * u + self.v_to_g * v, self.u_to_b * u]
    }

    /// R, G, B of a pixel.
    #[inline(always)]
    pub fn convert(&self, y: u8, chroma: [i32; 3]) -> [u8; 3] {
        let luma = self.luma(y);
        chroma.map(|part| ((luma + part) >> Self::BITS).clamp(0, 255) as u8)
    }
}

/// What one label does to a pixel: `keep` 256ths of it stay, and `add` is added to each component.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tint {
    /// Of [`Tint::OPAQUE`].
    pub keep: u16,
    /// 256ths of a level to each of R, G, B or Y, U, V. With `keep` levels they never exceed 255 * 256, so that 16 bits hold
    /// the sum and its rounding.
    pub add: [u16; 3],
}

impl Tint {
    /// The whole of something.
    pub const OPAQUE: u16 = 256;
}
