//! How YUV values become RGB and back: ITU-R BT.601, BT.709 and BT.2020 (non-constant luminance), full and limited range.

use sapiens_kernels::frame::YuvToRgb;

/// Which weights of R, G and B make luma.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Matrix {
    /// ITU-R BT.601: standard definition, JPEG.
    #[default]
    Bt601,
    /// ITU-R BT.709: high definition.
    Bt709,
    /// ITU-R BT.2020 with non-constant luminance: ultra-high definition.
    Bt2020,
}

impl Matrix {
    /// The weights of R and B in luma; G has the rest.
    fn weights(self) -> (f64, f64) {
        match self {
            Matrix::Bt601 => (0.299, 0.114),
            Matrix::Bt709 => (0.2126, 0.0722),
            Matrix::Bt2020 => (0.2627, 0.0593),
        }
    }
}

/// Which 8-bit values stand for black and white.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Range {
    /// 0 to 255.
    Full,
    /// Luma 16 to 235, chroma 16 to 240: video's usual range.
    #[default]
    Limited,
}

impl Range {
    /// Luma's offset, luma's span, chroma's span. Chroma is centred on 128.
    fn spans(self) -> (f64, f64, f64) {
        match self {
            Range::Full => (0.0, 255.0, 255.0),
            Range::Limited => (16.0, 219.0, 224.0),
        }
    }
}

/// Matrix and range together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Colorimetry {
    /// Which weights make luma.
    pub matrix: Matrix,
    /// Which values are black and white.
    pub range: Range,
}

/// YUV to RGB in fixed point; exact to within half a level plus 1/256.
pub(crate) fn yuv_to_rgb(colorimetry: Colorimetry) -> YuvToRgb {
    let (kr, kb) = colorimetry.matrix.weights();
    let kg = 1.0 - kr - kb;
    let (y_offset, y_span, c_span) = colorimetry.range.spans();
    let fixed = |value: f64| (value * f64::from(1 << YuvToRgb::BITS)).round() as i32;
    let chroma = 255.0 / c_span;
    YuvToRgb {
        y_offset: y_offset as i32,
        y: fixed(255.0 / y_span),
        v_to_r: fixed(2.0 * (1.0 - kr) * chroma),
        u_to_g: fixed(-2.0 * (1.0 - kb) * kb / kg * chroma),
        v_to_g: fixed(-2.0 * (1.0 - kr) * kr / kg * chroma),
        u_to_b: fixed(2.0 * (1.0 - kb) * chroma),
    }
}

/// RGB to YUV, for the few colours of a palette.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RgbToYuv {
    colorimetry: Colorimetry,
}

impl RgbToYuv {
    pub(crate) fn new(colorimetry: Colorimetry) -> Self {
        Self { colorimetry }
    }

    /// Y, U, V of a colour, rounded to the nearest 8-bit value.
    pub(crate) fn convert(&self, rgb: [u8; 3]) -> [u8; 3] {
        let [r, g, b] = rgb.map(f64::from);
        let (kr, kb) = self.colorimetry.matrix.weights();
        let (y_offset, y_span, c_span) = self.colorimetry.range.spans();
        let luma = kr * r + (1.0 - kr - kb) * g + kb * b;
        let u = (b - luma) / (2.0 * (1.0 - kb));
        let v = (r - luma) / (2.0 * (1.0 - kr));
        [y_offset + luma * y_span / 255.0, 128.0 + u * c_span / 255.0, 128.0 + v * c_span / 255.0]
            .map(|value| value.round().clamp(0.0, 255.0) as u8)
    }
}
