//! Frames whose every byte is known, laid out in memory in every way that buffers allow.
//!
//! Where a component of a pixel lies is read from GStreamer's own table of formats, never from the library's.

use gst_video::{VideoFormat, VideoInfo, VideoMeta};

/// The formats that the element takes.
pub const FORMATS: [VideoFormat; 17] = [
    VideoFormat::Nv12,
    VideoFormat::Nv21,
    VideoFormat::I420,
    VideoFormat::Yv12,
    VideoFormat::Yuy2,
    VideoFormat::Uyvy,
    VideoFormat::Rgb,
    VideoFormat::Bgr,
    VideoFormat::Rgba,
    VideoFormat::Bgra,
    VideoFormat::Rgbx,
    VideoFormat::Bgrx,
    VideoFormat::Xrgb,
    VideoFormat::Xbgr,
    VideoFormat::Argb,
    VideoFormat::Abgr,
    VideoFormat::Gray8,
];

/// Those with room for alpha, each with what it becomes.
pub const ALPHA: [(VideoFormat, VideoFormat); 8] = [
    (VideoFormat::Rgba, VideoFormat::Rgba),
    (VideoFormat::Bgra, VideoFormat::Bgra),
    (VideoFormat::Argb, VideoFormat::Argb),
    (VideoFormat::Abgr, VideoFormat::Abgr),
    (VideoFormat::Rgbx, VideoFormat::Rgba),
    (VideoFormat::Bgrx, VideoFormat::Bgra),
    (VideoFormat::Xrgb, VideoFormat::Argb),
    (VideoFormat::Xbgr, VideoFormat::Abgr),
];

/// How a frame lies in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lay {
    /// As caps alone say, no meta.
    Default,
    /// As caps alone say, but in two memories that meet in the middle of a plane.
    Halves,
    /// Rows further apart, the last one as short as it can be.
    Padded,
    /// Planes last to first with gaps between.
    Reversed,
    /// A memory for each plane, with gaps before it.
    Memories,
    /// Planes with a meta, cut into memories in the middle of each.
    Scattered,
    /// Memory that must not be written to.
    ReadOnly,
}

pub const LAYS: [Lay; 7] =
    [Lay::Default, Lay::Halves, Lay::Padded, Lay::Reversed, Lay::Memories, Lay::Scattered, Lay::ReadOnly];

/// What lies between pixels.
pub const PADDING: u8 = 0xA5;

/// A frame: its meaning, its bytes, and where its planes are in them.
#[derive(Clone)]
pub struct Picture {
    pub info: VideoInfo,
    pub lay: Lay,
    pub bytes: Vec<u8>,
    pub offsets: Vec<usize>,
    pub strides: Vec<usize>,
}

/// Caps of a frame.
pub fn info(format: VideoFormat, (width, height): (u32, u32)) -> VideoInfo {
    crate::common::init();
    VideoInfo::builder(format, width, height).fps(gst::Fraction::new(30, 1)).build().unwrap()
}

/// Components of a format without alpha.
pub fn colors(info: &VideoInfo) -> u32 {
    info.format_info().n_components().min(3)
}

/// Rows of a plane: those of any component in it.
fn plane_rows(info: &VideoInfo, plane: usize) -> usize {
    let finfo = info.format_info();
    let component = finfo.plane().iter().position(|of| *of as usize == plane).unwrap();
    finfo.scale_height(component as u8, info.height()) as usize
}

impl Picture {
    /// A frame of padding.
    pub fn new(info: &VideoInfo, lay: Lay) -> Self {
        let finfo = info.format_info();
        let planes = info.offset().len();
        let rows: Vec<usize> = (0..planes).map(|plane| plane_rows(info, plane)).collect();
        let mut strides: Vec<usize> = info.stride().iter().map(|stride| *stride as usize).collect();
        let mut offsets = info.offset().to_vec();
        let mut size = info.size();
        match lay {
            Lay::Default | Lay::Halves | Lay::ReadOnly => {}
            Lay::Padded | Lay::Reversed | Lay::Memories | Lay::Scattered => {
                // Odd strides too: nothing says that rows are aligned.
                for (plane, stride) in strides.iter_mut().enumerate() {
                    *stride += 7 + 4 * plane;
                }
                let mut at = if lay == Lay::Padded { 0 } else { 13 };
                let mut order: Vec<usize> = (0..planes).collect();
                if lay == Lay::Reversed {
                    order.reverse();
                }
                for plane in order {
                    offsets[plane] = at;
                    at += strides[plane] * rows[plane] + if lay == Lay::Padded { 0 } else { 21 };
                }
                size = at;
                if lay == Lay::Padded {
                    let last = planes - 1;
                    let used = (0..finfo.n_components() as usize)
                        .filter(|&c| finfo.plane()[c] as usize == last)
                        .map(|c| {
                            let samples = finfo.scale_width(c as u8, info.width()) as usize;
                            samples * finfo.pixel_stride()[c] as usize
                        })
                        .max()
                        .unwrap();
                    size -= strides[last] - used;
                }
            }
        }
        Self { info: info.clone(), lay, bytes: vec![PADDING; size], offsets, strides }
    }

    /// Index of a component of a pixel in `bytes`.
    pub fn at(&self, component: u32, x: usize, y: usize) -> usize {
        let finfo = self.info.format_info();
        let c = component as usize;
        let plane = finfo.plane()[c] as usize;
        let (x, y) = (x >> finfo.w_sub()[c], y >> finfo.h_sub()[c]);
        self.offsets[plane]
            + y * self.strides[plane]
            + x * finfo.pixel_stride()[c] as usize
            + finfo.poffset()[c] as usize
    }

    pub fn size(&self) -> (usize, usize) {
        (self.info.width() as usize, self.info.height() as usize)
    }

    /// A picture whose green tells `label`, brightness alone in YUV and gray; bytes of no meaning from the position.
    pub fn of_labels(info: &VideoInfo, lay: Lay, label: impl Fn(usize, usize) -> u8) -> Self {
        let mut picture = Self::new(info, lay);
        let (width, height) = picture.size();
        let finfo = info.format_info();
        let full = finfo.is_rgb() || info.colorimetry().range() == gst_video::VideoColorRange::Range0_255;
        for y in 0..height {
            for x in 0..width {
                let green = label(x, y) * 16 + 8;
                let any = (x * 31 + y * 17) as u8;
                for component in 0..finfo.n_components() {
                    let at = picture.at(component, x, y);
                    picture.bytes[at] = match component {
                        1 if finfo.is_rgb() => green,
                        _ if finfo.is_rgb() => any.wrapping_mul(component as u8 + 1),
                        0 if full => green,
                        0 => (16.0 + f64::from(green) * 219.0 / 255.0).round() as u8,
                        _ => 128,
                    };
                }
            }
        }
        picture
    }

    /// The buffer, with a time.
    pub fn buffer(&self, milliseconds: u64) -> gst::Buffer {
        let mut buffer = gst::Buffer::new();
        let writable = buffer.get_mut().unwrap();
        let cut: Vec<usize> = match self.lay {
            Lay::Halves => vec![self.bytes.len() / 2],
            Lay::Memories => self.offsets[1..].iter().map(|offset| offset - 5).collect(),
            Lay::Scattered => {
                let half = |plane: usize| self.strides[plane] * plane_rows(&self.info, plane) / 2;
                (0..self.offsets.len()).map(|plane| self.offsets[plane] + half(plane)).collect()
            }
            _ => Vec::new(),
        };
        let mut start = 0;
        for end in cut.into_iter().chain([self.bytes.len()]) {
            let bytes = self.bytes[start..end].to_vec();
            let read_only = self.lay == Lay::ReadOnly;
            writable.append_memory(match read_only {
                true => gst::Memory::from_slice(bytes),
                false => gst::Memory::from_mut_slice(bytes),
            });
            start = end;
        }
        if !matches!(self.lay, Lay::Default | Lay::Halves) {
            // The bindings take no buffer smaller than default strides need; ours may be.
            let memories = writable.n_memory();
            writable.append_memory(gst::Memory::from_slice(vec![0; self.info.size()]));
            VideoMeta::add_full(
                writable,
                gst_video::VideoFrameFlags::empty(),
                self.info.format(),
                self.info.width(),
                self.info.height(),
                &self.offsets,
                &self.strides.iter().map(|stride| *stride as i32).collect::<Vec<_>>(),
            )
            .unwrap();
            writable.remove_memory(memories);
        }
        writable.set_pts(gst::ClockTime::from_mseconds(milliseconds));
        writable.set_duration(gst::ClockTime::from_mseconds(33));
        buffer
    }
}

/// Every byte of a buffer.
pub fn bytes(buffer: &gst::BufferRef) -> Vec<u8> {
    buffer.map_readable().unwrap().to_vec()
}

/// Where a buffer's first byte is, of one memory.
pub fn address(buffer: &gst::BufferRef) -> *const u8 {
    buffer.peek_memory(0).map_readable().unwrap().as_ptr()
}
