//! Frames in every layout, here and on the device.

use sapiens_kernels::cuda::frame::Plane;
use sapiens_kernels::cuda::{Buffer, Gpu, Stream};
use sapiens_kernels::frame::{Component, Layout, Packed, Yuv, YuvToRgb};
use std::sync::Arc;

use super::hash_image;

/// BT.601, limited range.
pub const LIMITED_601: YuvToRgb =
    YuvToRgb { y_offset: 16, y: 76309, v_to_r: 104597, u_to_g: -25675, v_to_g: -53279, u_to_b: 132201 };

/// BT.709, full range.
pub const FULL_709: YuvToRgb =
    YuvToRgb { y_offset: 0, y: 65536, v_to_r: 103206, u_to_g: -12276, v_to_g: -30679, u_to_b: 121609 };

const fn packed(step: usize, r: usize, g: usize, b: usize) -> Layout {
    Layout::Packed(Packed { step, r, g, b })
}

/// Plane, offset and step of Y, U and V.
const fn yuv(parts: [(usize, usize, usize); 3], block_height: usize) -> Layout {
    const fn component((plane, offset, step): (usize, usize, usize)) -> Component {
        Component { plane, offset, step }
    }
    let [y, u, v] = parts;
    let (y, u, v) = (component(y), component(u), component(v));
    Layout::Yuv(Yuv { y, u, v, block_width: 2, block_height })
}

/// Layouts by the names of formats that have them.
pub const LAYOUTS: [(&str, Layout); 10] = [
    ("NV12", yuv([(0, 0, 1), (1, 0, 2), (1, 1, 2)], 2)),
    ("RGB", packed(3, 0, 1, 2)),
    ("I420", yuv([(0, 0, 1), (1, 0, 1), (2, 0, 1)], 2)),
    ("BGRA, BGRx", packed(4, 2, 1, 0)),
    ("YV12", yuv([(0, 0, 1), (2, 0, 1), (1, 0, 1)], 2)),
    ("BGR", packed(3, 2, 1, 0)),
    ("GRAY8", Layout::Gray),
    ("RGBA, RGBx", packed(4, 0, 1, 2)),
    ("UYVY", yuv([(0, 1, 2), (0, 0, 4), (0, 2, 4)], 1)),
    ("xBGR", packed(4, 3, 2, 1)),
];

/// Planes of bytes and strides, the last row without its padding. Every byte is noise, padding too.
pub fn noise(layout: Layout, (width, height): (usize, usize), padding: usize) -> Vec<(Vec<u8>, usize)> {
    (0..layout.planes())
        .map(|index| {
            let (row_bytes, rows) = layout.plane_size(index, width, height);
            let stride = row_bytes + padding;
            let len = stride * (rows - 1) + row_bytes;
            let mut bytes = hash_image(len.div_ceil(3), 1 + index);
            bytes.truncate(len);
            (bytes, stride)
        })
        .collect()
}

/// A plane on the device, which begins at an odd address.
pub struct DevicePlane {
    pub buffer: Buffer<u8>,
    pub stride: usize,
}

/// Bytes before each plane.
pub const BEFORE: usize = 3;

/// Copies planes to the device.
pub fn upload(gpu: &Arc<Gpu>, stream: &Stream, planes: &[(Vec<u8>, usize)]) -> Vec<DevicePlane> {
    let copy = |(bytes, stride): &(Vec<u8>, usize)| {
        let mut buffer = Buffer::new(gpu, BEFORE + bytes.len()).unwrap();
        stream.upload(bytes, buffer.slice_mut(BEFORE..)).unwrap();
        DevicePlane { buffer, stride: *stride }
    };
    planes.iter().map(copy).collect()
}

/// The planes as the launchers take them.
pub fn planes(device: &[DevicePlane]) -> Vec<Plane<'_>> {
    device.iter().map(|plane| Plane { bytes: plane.buffer.slice(BEFORE..), stride: plane.stride }).collect()
}
