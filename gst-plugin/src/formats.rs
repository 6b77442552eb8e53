//! GStreamer's video formats and colorimetry as the library's, and mapped buffers as its frames.

use gst_video::prelude::*;
use gst_video::{VideoColorMatrix, VideoColorRange, VideoFormat, VideoInfo};
use sapiens_model::frame::MAX_FRAME_SIDE;
use sapiens_model::{
    Colorimetry, Frame, FrameInfo, FrameView, FrameViewMut, Matrix, PixelFormat, Pixels, Plane, PlaneMut,
    Range, SegmentError,
};

/// The formats that frames come in, in the order they are offered.
pub(crate) const FORMATS: [(VideoFormat, PixelFormat); 17] = [
    (VideoFormat::Nv12, PixelFormat::Nv12),
    (VideoFormat::Nv21, PixelFormat::Nv21),
    (VideoFormat::I420, PixelFormat::I420),
    (VideoFormat::Yv12, PixelFormat::Yv12),
    (VideoFormat::Yuy2, PixelFormat::Yuy2),
    (VideoFormat::Uyvy, PixelFormat::Uyvy),
    (VideoFormat::Rgb, PixelFormat::Rgb),
    (VideoFormat::Bgr, PixelFormat::Bgr),
    (VideoFormat::Rgba, PixelFormat::Rgba),
    (VideoFormat::Bgra, PixelFormat::Bgra),
    (VideoFormat::Rgbx, PixelFormat::Rgbx),
    (VideoFormat::Bgrx, PixelFormat::Bgrx),
    (VideoFormat::Xrgb, PixelFormat::Xrgb),
    (VideoFormat::Xbgr, PixelFormat::Xbgr),
    (VideoFormat::Argb, PixelFormat::Argb),
    (VideoFormat::Abgr, PixelFormat::Abgr),
    (VideoFormat::Gray8, PixelFormat::Gray8),
];

/// The formats that frames in an NVIDIA GPU's memory come in: those of them that GStreamer's own elements for CUDA have.
pub(crate) const CUDA_FORMATS: [VideoFormat; 8] = [
    VideoFormat::Nv12,
    VideoFormat::I420,
    VideoFormat::Rgb,
    VideoFormat::Bgr,
    VideoFormat::Rgba,
    VideoFormat::Bgra,
    VideoFormat::Rgbx,
    VideoFormat::Bgrx,
];

/// The feature of caps of frames in an NVIDIA GPU's memory.
pub(crate) const CUDA_MEMORY: &str = "memory:CUDAMemory";

/// Whether these are the features of frames in an NVIDIA GPU's memory.
pub(crate) fn is_cuda(features: &gst::CapsFeaturesRef) -> bool {
    !features.is_any() && features.contains(CUDA_MEMORY)
}

/// What `output=alpha` makes of a format: itself where it has alpha, its twin with alpha where a byte is unused.
pub(crate) fn with_alpha(format: VideoFormat) -> Option<VideoFormat> {
    match format {
        VideoFormat::Rgba | VideoFormat::Rgbx => Some(VideoFormat::Rgba),
        VideoFormat::Bgra | VideoFormat::Bgrx => Some(VideoFormat::Bgra),
        VideoFormat::Argb | VideoFormat::Xrgb => Some(VideoFormat::Argb),
        VideoFormat::Abgr | VideoFormat::Xbgr => Some(VideoFormat::Abgr),
        _ => None,
    }
}

/// Caps of progressive raw video in system memory in any of `formats`.
pub(crate) fn video_caps(formats: impl IntoIterator<Item = VideoFormat>) -> gst::Caps {
    raw_video(gst::Caps::builder("video/x-raw"), formats)
}

/// Caps of progressive raw video in an NVIDIA GPU's memory.
pub(crate) fn cuda_caps() -> gst::Caps {
    raw_video(gst::Caps::builder("video/x-raw").features([CUDA_MEMORY]), CUDA_FORMATS)
}

fn raw_video<F>(caps: gst::caps::Builder<F>, formats: impl IntoIterator<Item = VideoFormat>) -> gst::Caps {
    let side = gst::IntRange::new(1, MAX_FRAME_SIDE as i32);
    caps.field("format", gst::List::new(formats.into_iter().map(|format| format.to_str())))
        .field("width", side)
        .field("height", side)
        .field(
            "framerate",
            gst::FractionRange::new(gst::Fraction::new(0, 1), gst::Fraction::new(i32::MAX, 1)),
        )
        .field("interlace-mode", "progressive")
        .build()
}

/// What the frames of these caps are to the library; none for a format that the element doesn't take.
pub fn frame_info(info: &VideoInfo) -> Option<FrameInfo> {
    let (_, format) = FORMATS.iter().find(|(format, _)| *format == info.format())?;
    let colorimetry = info.colorimetry();
    let matrix = match colorimetry.matrix() {
        // SMPTE 240M, of the first high-definition video, has nearly BT.709's weights.
        VideoColorMatrix::Bt709 | VideoColorMatrix::Smpte240m => Matrix::Bt709,
        VideoColorMatrix::Bt2020 => Matrix::Bt2020,
        // Gray and RGB don't say, and FCC has nearly these weights.
        _ => Matrix::Bt601,
    };
    let range = match colorimetry.range() {
        VideoColorRange::Range16_235 => Range::Limited,
        VideoColorRange::Range0_255 => Range::Full,
        _ if *format == PixelFormat::Gray8 => Range::Full,
        _ => Range::Limited,
    };
    Some(FrameInfo {
        format: *format,
        width: info.width() as usize,
        height: info.height() as usize,
        colorimetry: Colorimetry { matrix, range },
    })
}

/// How planes lie in a buffer's memories.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Planes {
    /// Each in one memory, which is what mapping a plane takes for granted.
    Whole,
    /// One begins in a memory and ends in another.
    Scattered,
}

/// Where planes begin in a buffer, in bytes, and how far apart their rows are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Lay {
    pub offsets: Vec<usize>,
    pub strides: Vec<i32>,
}

/// A plane that is in its buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CheckedPlane {
    /// Of the first byte of the first row.
    pub offset: usize,
    /// From there to the last byte of the last row.
    pub len: usize,
    #[cfg_attr(
        not(feature = "cuda"),
        allow(dead_code, reason = "mapping in the machine's memory has its own")
    )]
    pub stride: usize,
}

/// What a buffer's video meta says of its planes; none if there is no meta.
///
/// # Errors
/// `InvalidFrame` if the meta is of another format or size than the caps.
pub(crate) fn lay_of_meta(
    buffer: &gst::BufferRef,
    video_format: VideoFormat,
    info: FrameInfo,
) -> Result<Option<Lay>, SegmentError> {
    let Some(meta) = buffer.meta::<gst_video::VideoMeta>() else { return Ok(None) };
    let size = (meta.width() as usize, meta.height() as usize);
    if meta.format() != video_format || size != (info.width, info.height) {
        return invalid(info, format!("is of {} of {} x {}", meta.format(), size.0, size.1));
    }
    Ok(Some(Lay { offsets: meta.offset().to_vec(), strides: meta.stride().to_vec() }))
}

fn invalid<T>(info: FrameInfo, what: String) -> Result<T, SegmentError> {
    let FrameInfo { format, width, height, .. } = info;
    Err(SegmentError::new(
        sapiens_model::ErrorKind::InvalidFrame,
        format!("the video meta of a buffer with caps of {format} of {width} x {height} {what}"),
    ))
}

/// Checks planes against the size of what they are in: mapping believes them, however far past its end they point.
///
/// # Errors
/// `InvalidFrame` if a stride is shorter than a row, or a plane isn't in there.
pub(crate) fn checked_planes(
    lay: &Lay,
    size: usize,
    info: FrameInfo,
) -> Result<Vec<CheckedPlane>, SegmentError> {
    let expected = info.format.planes();
    if lay.offsets.len() != expected || lay.strides.len() != expected {
        return invalid(info, format!("has {} planes: expected {expected}", lay.offsets.len()));
    }
    let planes = lay.offsets.iter().zip(&lay.strides).enumerate().map(|(index, (&offset, &given))| {
        let (row_bytes, rows) = info.plane_size(index);
        let stride = usize::try_from(given).ok().filter(|&stride| stride >= row_bytes);
        let len = stride.and_then(|stride| stride.checked_mul(rows - 1)?.checked_add(row_bytes));
        let end = len.and_then(|len| len.checked_add(offset));
        let (Some(stride), Some(len), Some(end)) = (stride, len, end) else {
            return invalid(
                info,
                format!("has stride {given} in plane {index}: expected at least {row_bytes}"),
            );
        };
        if end > size {
            return invalid(
                info,
                format!("has plane {index} end at byte {end}: expected {size} at most, the buffer's size"),
            );
        }
        Ok(CheckedPlane { offset, len, stride })
    });
    planes.collect()
}

/// Checks what a buffer's video meta says of its planes.
///
/// # Errors
/// `InvalidFrame` if the meta is of another format or size than the caps, or its planes aren't in the buffer.
fn planes_of(
    buffer: &gst::BufferRef,
    video_info: &VideoInfo,
    info: FrameInfo,
) -> Result<Planes, SegmentError> {
    // Without a meta planes lie as caps alone say, all memories are mapped as one, and their size is checked.
    let Some(lay) = lay_of_meta(buffer, video_info.format(), info)? else { return Ok(Planes::Whole) };
    let planes = checked_planes(&lay, buffer.size(), info)?;
    let scattered = planes.iter().any(|&CheckedPlane { offset, len, .. }| {
        let memory = buffer.find_memory(offset..offset.saturating_add(1));
        memory.is_none_or(|(memory, skip)| buffer.peek_memory(memory.start).size() - skip < len)
    });
    Ok(if scattered { Planes::Scattered } else { Planes::Whole })
}

/// Puts a buffer's memories together in one; those that others share are copied.
fn gather(buffer: &mut gst::BufferRef) {
    if let Some(memory) = buffer.all_memory() {
        buffer.replace_all_memory(memory);
    }
}

/// A buffer mapped for reading, which an engine holds while it reads.
pub(crate) struct MappedFrame {
    frame: gst_video::VideoFrame<gst_video::video_frame::Readable>,
    info: FrameInfo,
}

impl MappedFrame {
    /// Maps `buffer`, whose caps are `video_info`.
    pub(crate) fn new(
        mut buffer: gst::Buffer,
        video_info: &VideoInfo,
        info: FrameInfo,
    ) -> Result<Self, SegmentError> {
        if planes_of(&buffer, video_info, info)? == Planes::Scattered {
            gather(buffer.make_mut());
        }
        let frame = gst_video::VideoFrame::from_buffer_readable(buffer, video_info).map_err(|buffer| {
            SegmentError::new(
                sapiens_model::ErrorKind::InvalidFrame,
                format!(
                    "a buffer of {} bytes can't be mapped as {} of {} x {}: expected {} bytes",
                    buffer.size(),
                    info.format,
                    info.width,
                    info.height,
                    video_info.size()
                ),
            )
        })?;
        let mapped = Self { frame, info };
        // Checked here, so that `pixels` can't fail.
        mapped.try_view()?;
        Ok(mapped)
    }

    fn try_view(&self) -> Result<FrameView<'_>, SegmentError> {
        let strides = self.frame.plane_stride();
        let planes = self.frame.planes_data();
        let planes: [Plane<'_>; 3] = std::array::from_fn(|index| Plane {
            data: planes[index],
            stride: strides.get(index).map_or(0, |&stride| usize::try_from(stride).unwrap_or(0)),
        });
        FrameView::new(self.info, &planes[..self.info.format.planes()])
    }
}

impl Frame for MappedFrame {
    fn pixels(&self) -> Pixels<'_> {
        let view = self.try_view();
        Pixels::Host(view.unwrap_or_else(|error| unreachable!("checked when it was mapped: {error}")))
    }
}

/// Says in the buffer's GstVideoMeta, where it has one, that its format is now `format`, of the same lay.
pub(crate) fn rename_format(
    buffer: &mut gst::Buffer,
    format: VideoFormat,
) -> std::result::Result<(), glib::BoolError> {
    let Some(meta) = buffer.meta::<gst_video::VideoMeta>().filter(|meta| meta.format() != format) else {
        return Ok(());
    };
    let (flags, width, height) = (meta.video_frame_flags(), meta.width(), meta.height());
    let (offset, stride) = (meta.offset().to_vec(), meta.stride().to_vec());
    // A pool's own meta can't be changed: the pool would give it out with its next frame. A new buffer around the same
    // memory has metas of its own.
    let mut renamed = gst::Buffer::new();
    let writable = renamed.make_mut();
    let all = gst::BufferCopyFlags::FLAGS
        | gst::BufferCopyFlags::TIMESTAMPS
        | gst::BufferCopyFlags::META
        | gst::BufferCopyFlags::MEMORY;
    buffer.copy_into(writable, all, ..)?;
    if let Some(meta) = writable.meta_mut::<gst_video::VideoMeta>() {
        meta.remove()?;
    }
    gst_video::VideoMeta::add_full(writable, flags, format, width, height, &offset, &stride)?;
    *buffer = renamed;
    Ok(())
}

/// Has `paint` write on the frame in `buffer`. What others share of the buffer is copied first.
pub(crate) fn paint(
    buffer: &mut gst::BufferRef,
    video_info: &VideoInfo,
    info: FrameInfo,
    paint: impl FnOnce(&mut FrameViewMut<'_>) -> Result<(), SegmentError>,
) -> Result<(), SegmentError> {
    if planes_of(buffer, video_info, info)? == Planes::Scattered {
        gather(buffer);
    }
    let mut frame = gst_video::VideoFrameRef::from_buffer_ref_writable(buffer, video_info).map_err(|_| {
        SegmentError::new(
            sapiens_model::ErrorKind::InvalidFrame,
            format!(
                "a buffer of {} of {} x {} can't be mapped for writing",
                info.format, info.width, info.height
            ),
        )
    })?;
    let mut strides = [0; 3];
    for (stride, &given) in strides.iter_mut().zip(frame.plane_stride()) {
        *stride = usize::try_from(given).unwrap_or(0);
    }
    let [first, second, third, _] = frame.planes_data_mut();
    let plane = |data, index: usize| PlaneMut { data, stride: strides[index] };
    let mut view = match info.format.planes() {
        1 => FrameViewMut::new(info, [plane(first, 0)])?,
        2 => FrameViewMut::new(info, [plane(first, 0), plane(second, 1)])?,
        _ => FrameViewMut::new(info, [plane(first, 0), plane(second, 1), plane(third, 2)])?,
    };
    paint(&mut view)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planes_must_be_in_their_memory() {
        let info = FrameInfo {
            format: PixelFormat::Nv12,
            width: 6,
            height: 4,
            colorimetry: Colorimetry { matrix: Matrix::Bt601, range: Range::Limited },
        };
        let checked = |offsets: &[usize], strides: &[i32], size| {
            let lay = Lay { offsets: offsets.to_vec(), strides: strides.to_vec() };
            checked_planes(&lay, size, info).map_err(|error| error.to_string())
        };
        // Rows on a GPU are far apart, and the last one ends with its last pixel.
        let size = 512 * 5 + 6;
        let luma = CheckedPlane { offset: 0, len: 512 * 3 + 6, stride: 512 };
        let chroma = CheckedPlane { offset: 2048, len: 512 + 6, stride: 512 };
        assert_eq!(checked(&[0, 2048], &[512, 512], size), Ok(vec![luma, chroma]));
        for (offsets, strides, expected) in [
            (&[0, 2049][..], &[512, 512][..], "plane 1 end at byte 2567"),
            (&[usize::MAX, 0], &[512, 512], "stride 512 in plane 0"),
            (&[0, 2048], &[512, 5], "stride 5 in plane 1: expected at least 6"),
            (&[0, 2048], &[-512, 512], "stride -512 in plane 0"),
            (&[0, 0], &[i32::MAX, 512], "plane 0 end at byte 6442450947"),
            (&[0], &[512], "has 1 planes: expected 2"),
        ] {
            let error = checked(offsets, strides, size).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
