//! What leaves the element for a frame and its labels: the frame, painted or cut out, or the labels themselves.

use std::sync::Arc;

use gst_video::VideoInfo;
use sapiens_model::{FrameInfo, Palette, Result, apply_alpha, paint_overlay};

use crate::element::OutputChoice;
use crate::formats;
use crate::labels::Labels;

/// How labels are shown; may change while frames flow.
#[derive(Debug, Clone)]
pub(crate) struct Appearance {
    pub palette: Palette,
    pub opacity: f64,
}

/// What the frames of a stream are.
#[derive(Debug, Clone)]
pub(crate) struct Shape {
    pub video_info: VideoInfo,
    pub frame_info: FrameInfo,
    /// Whether they are in an NVIDIA GPU's memory.
    pub on_cuda: bool,
}

/// Shows `labels` on `buffer` as `output` says; none are there at the start of a live stream.
pub(crate) fn render(
    output: OutputChoice,
    buffer: &mut gst::BufferRef,
    shape: &Shape,
    labels: Option<&Arc<Labels>>,
    appearance: &Appearance,
) -> Result<()> {
    match (output, labels) {
        (OutputChoice::Overlay, Some(labels)) if appearance.opacity > 0.0 => {
            formats::paint(buffer, &shape.video_info, shape.frame_info, |frame| {
                paint_overlay(frame, labels.map(), &appearance.palette, appearance.opacity)
            })
        }
        (OutputChoice::Alpha, labels) => {
            formats::paint(buffer, &shape.video_info, shape.frame_info, |frame| {
                apply_alpha(frame, labels.map(|labels| labels.map()), &appearance.palette)
            })
        }
        (OutputChoice::Meta | OutputChoice::Overlay | OutputChoice::Mask, _) => Ok(()),
    }
}

/// The labels as a GRAY8 buffer with the frame's timestamps. Without labels it is all background.
///
/// `packed`: downstream takes rows without padding, so that the labels' own memory can be passed on; else rows are a
/// multiple of four bytes, which is what caps alone mean.
pub(crate) fn mask(
    frame: &gst::BufferRef,
    shape: &Shape,
    labels: Option<&Arc<Labels>>,
    packed: bool,
) -> std::result::Result<gst::Buffer, glib::BoolError> {
    let FrameInfo { width, height, .. } = shape.frame_info;
    let stride = width.next_multiple_of(4);
    let mut mask = match labels {
        Some(labels) if packed || stride == width => labels.to_buffer(),
        _ => {
            let mut bytes = vec![0; stride * height];
            if let Some(labels) = labels {
                for (row, labels) in
                    bytes.chunks_exact_mut(stride).zip(labels.map().labels().chunks_exact(width))
                {
                    row[..width].copy_from_slice(labels);
                }
            }
            gst::Buffer::from_mut_slice(bytes)
        }
    };
    let flags = gst::BufferCopyFlags::FLAGS | gst::BufferCopyFlags::TIMESTAMPS;
    frame.copy_into(mask.make_mut(), flags, ..)?;
    Ok(mask)
}
