//! Frames to RGB, labels onto frames and frames cut out along them, pixel by pixel.

use crate::frame::{Layout, Tint, YuvToRgb};

/// Packed R, G, B of a frame of `(width, height)`; `planes` are bytes and strides. Chroma is repeated over its block.
pub fn frame_rgb(
    layout: Layout,
    (width, height): (usize, usize),
    planes: &[(&[u8], usize)],
    to_rgb: YuvToRgb,
) -> Vec<u8> {
    let at = |plane: usize, y: usize, x: usize| planes[plane].0[y * planes[plane].1 + x];
    let mut rgb = Vec::with_capacity(width * height * 3);
    for (x, y) in pixels(width, height) {
        rgb.extend(match layout {
            Layout::Packed(packed) => {
                [packed.r, packed.g, packed.b].map(|offset| at(0, y, x * packed.step + offset))
            }
            Layout::Gray => convert(to_rgb, [at(0, y, x), 128, 128]),
            Layout::Yuv(yuv) => {
                let (column, row) = (x / yuv.block_width, y / yuv.block_height);
                let luma = at(yuv.y.plane, y, yuv.y.offset + x * yuv.y.step);
                let [u, v] = [yuv.u, yuv.v].map(|part| at(part.plane, row, part.offset + column * part.step));
                convert(to_rgb, [luma, u, v])
            }
        });
    }
    rgb
}

/// Gives every component of a frame of `(width, height)` the mean of its pixels' labels' tints; `planes` are bytes and strides.
pub fn paint_labels(
    layout: Layout,
    (width, height): (usize, usize),
    planes: &mut [(Vec<u8>, usize)],
    labels: &[u8],
    tints: &[Tint; 256],
) {
    let mut mix = |plane: usize, y: usize, x: usize, part: usize, block: &[u8]| {
        let (bytes, stride) = &mut planes[plane];
        let value = &mut bytes[y * *stride + x];
        let (mut keep, mut add) = (0, 0);
        for &label in block {
            keep += u32::from(tints[usize::from(label)].keep);
            add += u32::from(tints[usize::from(label)].add[part]);
        }
        let whole = u32::from(Tint::OPAQUE) * block.len() as u32;
        *value = ((u32::from(*value) * keep + add + whole / 2) / whole) as u8;
    };
    for (x, y) in pixels(width, height) {
        let label = &labels[y * width + x..][..1];
        match layout {
            Layout::Packed(packed) => {
                for (part, offset) in [packed.r, packed.g, packed.b].into_iter().enumerate() {
                    mix(0, y, x * packed.step + offset, part, label);
                }
            }
            Layout::Gray => mix(0, y, x, 0, label),
            Layout::Yuv(yuv) => {
                mix(yuv.y.plane, y, yuv.y.offset + x * yuv.y.step, 0, label);
                if x.is_multiple_of(yuv.block_width) && y.is_multiple_of(yuv.block_height) {
                    let rows = y..(y + yuv.block_height).min(height);
                    let columns = x..(x + yuv.block_width).min(width);
                    let block: Vec<u8> =
                        rows.flat_map(|y| labels[y * width..][columns.clone()].iter().copied()).collect();
                    for (part, to) in [(1, yuv.u), (2, yuv.v)] {
                        let column = to.offset + x / yuv.block_width * to.step;
                        mix(to.plane, y / yuv.block_height, column, part, &block);
                    }
                }
            }
        }
    }
}

/// Makes byte `alpha` of every pixel of four whose label isn't `shown` 0, and of all pixels where there are no labels. That of the
/// others stays if it `has_alpha`, else it becomes 255. `plane` is bytes and stride of a frame of `(width, height)`.
pub fn cut_out(
    (bytes, stride): (&mut [u8], usize),
    (width, height): (usize, usize),
    (alpha, has_alpha): (usize, bool),
    labels: Option<&[u8]>,
    shown: &[bool; 256],
) {
    for (x, y) in pixels(width, height) {
        let value = &mut bytes[y * stride + 4 * x + alpha];
        if !labels.is_some_and(|labels| shown[usize::from(labels[y * width + x])]) {
            *value = 0;
        } else if !has_alpha {
            *value = 255;
        }
    }
}

fn pixels(width: usize, height: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..height).flat_map(move |y| (0..width).map(move |x| (x, y)))
}

/// In fixed point, rounded once, ties up.
fn convert(to_rgb: YuvToRgb, [y, u, v]: [u8; 3]) -> [u8; 3] {
    let [y, u, v] = [i32::from(y) - to_rgb.y_offset, i32::from(u) - 128, i32::from(v) - 128];
    let luma = y * to_rgb.y;
    [luma + v * to_rgb.v_to_r, luma + u * to_rgb.u_to_g + v * to_rgb.v_to_g, luma + u * to_rgb.u_to_b]
        .map(|fixed| ((fixed + (1 << 15)) >> 16).clamp(0, 255) as u8)
}
