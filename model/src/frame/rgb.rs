//! Any frame as packed RGB, which is what the authors' preprocessing starts from.

use sapiens_kernels::frame::YuvToRgb;

use super::{FrameView, Layout, Packed, PixelFormat, Yuv, yuv_to_rgb};

impl FrameView<'_> {
    /// Writes the frame as packed R, G, B rows without padding: `height * width * 3` bytes.
    ///
    /// Chroma is repeated over its block of pixels, not interpolated. Alpha is ignored.
    ///
    /// # Panics
    /// If `rgb` has another length.
    pub fn write_rgb(&self, rgb: &mut [u8]) {
        let (width, height) = (self.width(), self.height());
        assert_eq!(rgb.len(), width * height * 3, "an RGB image of {width} x {height}");
        let rows = rgb.chunks_exact_mut(width * 3).enumerate();
        match self.info().format.layout() {
            _ if self.info().format == PixelFormat::Rgb => {
                rows.for_each(|(y, out)| out.copy_from_slice(self.row(0, y)));
            }
            // A constant step lets the compiler vectorise the shuffle.
            Layout::Packed(packed) if packed.step == 3 => {
                rows.for_each(|(y, out)| packed_row::<3>(self.row(0, y), packed, out));
            }
            Layout::Packed(packed) => {
                rows.for_each(|(y, out)| packed_row::<4>(self.row(0, y), packed, out));
            }
            Layout::Gray => {
                let convert = yuv_to_rgb(self.info().colorimetry);
                let levels: [u8; 256] = std::array::from_fn(|y| convert.convert(y as u8, [0; 3])[0]);
                rows.for_each(|(y, out)| {
                    for (out, &luma) in out.chunks_exact_mut(3).zip(self.row(0, y)) {
                        out.fill(levels[usize::from(luma)]);
                    }
                });
            }
            Layout::Yuv(yuv) => {
                let convert = yuv_to_rgb(self.info().colorimetry);
                rows.for_each(|(y, out)| self.yuv_row(y, yuv, convert, out));
            }
        }
    }

    fn yuv_row(&self, y: usize, yuv: Yuv, convert: YuvToRgb, out: &mut [u8]) {
        let chroma_y = y / yuv.block_height;
        let luma = self.row(yuv.y.plane, y)[yuv.y.offset..].iter().step_by(yuv.y.step);
        let us = self.row(yuv.u.plane, chroma_y)[yuv.u.offset..].iter().step_by(yuv.u.step);
        let vs = self.row(yuv.v.plane, chroma_y)[yuv.v.offset..].iter().step_by(yuv.v.step);
        let mut luma = luma.copied();
        for (out, (&u, &v)) in out.chunks_mut(3 * yuv.block_width).zip(us.zip(vs)) {
            let chroma = convert.chroma(u, v);
            for (out, y) in out.chunks_exact_mut(3).zip(&mut luma) {
                out.copy_from_slice(&convert.convert(y, chroma));
            }
        }
    }
}

fn packed_row<const STEP: usize>(row: &[u8], packed: Packed, out: &mut [u8]) {
    for (out, pixel) in out.chunks_exact_mut(3).zip(row.chunks_exact(STEP)) {
        out[0] = pixel[packed.r];
        out[1] = pixel[packed.g];
        out[2] = pixel[packed.b];
    }
}
