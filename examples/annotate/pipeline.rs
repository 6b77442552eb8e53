//! Frames of a video file, decoded, upright, progressive, through whatever elements the caller has. Knows GStreamer,
//! nothing of labels or files that are written.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use gst::prelude::*;
use gst_app::AppSink;
use gst_video::VideoInfo;

use crate::trouble::{Result, Trouble};

/// Which frames are wanted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Selection {
    pub every: u64,
    /// Nanoseconds.
    pub start: Option<u64>,
    pub end: Option<u64>,
}

/// A frame that is wanted.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    /// Counted from 0 over all frames.
    pub frame: u64,
    /// Nanoseconds from the beginning.
    pub pts: Option<u64>,
    pub info: VideoInfo,
}

/// What becomes of a wanted frame.
pub(crate) enum Verdict {
    /// It goes on.
    Pass,
    /// It doesn't.
    Drop,
}

/// What came next.
#[derive(Debug)]
pub(crate) enum Next {
    Sample(gst::Sample),
    /// Nothing yet.
    Nothing,
    End,
}

/// A pipeline that is stopped when it is dropped.
#[derive(Debug)]
pub(crate) struct Running(gst::Pipeline);

impl Running {
    /// Starts it. What fails is on the bus, where [`Running::error`] finds it.
    pub(crate) fn start(pipeline: gst::Pipeline) -> Self {
        let _ = pipeline.set_state(gst::State::Playing);
        Self(pipeline)
    }

    /// What went wrong, if anything did.
    pub(crate) fn error(&self) -> Option<String> {
        let message = self.0.bus()?.pop_filtered(&[gst::MessageType::Error])?;
        match message.view() {
            gst::MessageView::Error(error) => Some(sapiens_examples::bus_error(error)),
            _ => None,
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.set_state(gst::State::Null);
    }
}

/// A video being decoded.
#[derive(Debug)]
pub(crate) struct Frames {
    running: Running,
    sink: AppSink,
    past_end: Arc<AtomicBool>,
}

/// How long is waited for a frame before the caller may look at other things.
const PATIENCE: gst::ClockTime = gst::ClockTime::from_mseconds(50);

impl Frames {
    /// Starts to decode `path`. Each wanted frame is shown to `judge` before it comes to `tail`, the elements that it
    /// goes through; frames carry their number as their offset.
    pub(crate) fn open(
        path: &Path,
        tail: &[gst::Element],
        selection: Selection,
        judge: impl FnMut(Wanted) -> Verdict + Send + 'static,
    ) -> Result<Self> {
        let make = sapiens_examples::element;
        let source = make("filesrc")?;
        source.set_property("location", path);
        let decoder = make("decodebin")?;
        // Sound isn't decoded at all.
        decoder.set_property("caps", gst::Caps::builder("video/x-raw").any_features().build());
        decoder.set_property("expose-all-streams", false);
        let queue = make("queue")?;
        queue.set_property("max-size-buffers", 4u32);
        let deinterlace = make("deinterlace")?;
        deinterlace.set_property_from_str("mode", "auto");
        // A frame of each frame, not of each field.
        deinterlace.set_property_from_str("fields", "top");
        let flip = make("videoflip")?;
        flip.set_property_from_str("video-direction", "auto");
        let last = make("videoconvert")?;
        let sink = AppSink::builder().sync(false).max_buffers(4).build();
        let mut chain =
            vec![queue.clone(), make("videoconvert")?, deinterlace, make("videoconvert")?, flip, last];
        chain.extend_from_slice(tail);
        chain.push(sink.clone().upcast());

        let pipeline = gst::Pipeline::new();
        let linked = (|| {
            pipeline.add_many([&source, &decoder])?;
            pipeline.add_many(&chain)?;
            source.link(&decoder)?;
            gst::Element::link_many(&chain)
        })();
        linked.map_err(|error| Trouble::Input(format!("the elements can't be linked: {error}")))?;
        let into = |element: &gst::Element| {
            element
                .static_pad("sink")
                .ok_or_else(|| Trouble::Input(format!("{} has no sink", element.name())))
        };
        let first = into(&queue)?;
        link_first_video(&pipeline, &decoder, first);

        let past_end = Arc::new(AtomicBool::new(false));
        let judged = into(&chain[6])?;
        watch(&judged, selection, past_end.clone(), judge);
        Ok(Self { running: Running::start(pipeline), sink, past_end })
    }

    /// The next frame that has come out.
    pub(crate) fn next(&self) -> Result<Next> {
        if let Some(sample) = self.sink.try_pull_sample(PATIENCE) {
            return Ok(Next::Sample(sample));
        }
        if let Some(error) = self.running.error() {
            return Err(Trouble::Input(error));
        }
        Ok(if self.sink.is_eos() { Next::End } else { Next::Nothing })
    }

    /// Whether all that follows is past the end of what is wanted.
    pub(crate) fn past_end(&self) -> bool {
        self.past_end.load(Ordering::Acquire)
    }

    /// Nanoseconds of the whole video, where that's known.
    pub(crate) fn duration(&self) -> Option<u64> {
        self.running.0.query_duration::<gst::ClockTime>().map(gst::ClockTime::nseconds)
    }
}

/// Links the first video stream; others and files without one are said on the bus.
fn link_first_video(pipeline: &gst::Pipeline, decoder: &gst::Element, into: gst::Pad) {
    let first = into.clone();
    decoder.connect_pad_added(move |_, pad| {
        if !first.is_linked() {
            // Refused caps come back as an error of the stream.
            let _ = pad.link(&first);
        }
    });
    let pipeline = pipeline.downgrade();
    decoder.connect_no_more_pads(move |decoder| {
        if !into.is_linked()
            && let Some(pipeline) = pipeline.upgrade()
        {
            let message =
                gst::message::Error::builder(gst::StreamError::TypeNotFound, "there is no video in it");
            let _ = pipeline.post_message(message.src(decoder).build());
        }
    });
}

/// Looks at each frame that comes to `pad`. What isn't wanted is said to be handled: what is dropped, GStreamer 1.22
/// wants to free after the bindings have done so.
fn watch(
    pad: &gst::Pad,
    selection: Selection,
    past_end: Arc<AtomicBool>,
    judge: impl FnMut(Wanted) -> Verdict + Send + 'static,
) {
    let state = Mutex::new((judge, 0u64, 0u64));
    pad.add_probe(gst::PadProbeType::BUFFER, move |pad, probe| {
        let Some(gst::PadProbeData::Buffer(buffer)) = &mut probe.data else { return gst::PadProbeReturn::Ok };
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        let (judge, seen, in_range) = &mut *state;
        let frame = *seen;
        *seen += 1;
        let pts = stream_time(pad, buffer);
        if past_end.load(Ordering::Acquire)
            || pts.zip(selection.start).is_some_and(|(pts, start)| pts < start)
        {
            return gst::PadProbeReturn::Handled;
        }
        if pts.zip(selection.end).is_some_and(|(pts, end)| pts >= end) {
            past_end.store(true, Ordering::Release);
            return gst::PadProbeReturn::Handled;
        }
        let turn = *in_range % selection.every;
        *in_range += 1;
        let info = pad.current_caps().and_then(|caps| VideoInfo::from_caps(&caps).ok());
        let Some(info) = info.filter(|_| turn == 0) else { return gst::PadProbeReturn::Handled };
        match judge(Wanted { frame, pts, info }) {
            Verdict::Drop => gst::PadProbeReturn::Handled,
            Verdict::Pass => {
                buffer.make_mut().set_offset(frame);
                gst::PadProbeReturn::Ok
            }
        }
    });
}

/// A frame's time from the beginning of the video, whatever its file counts from.
fn stream_time(pad: &gst::Pad, buffer: &gst::BufferRef) -> Option<u64> {
    let pts = buffer.pts()?;
    let segment = pad.sticky_event::<gst::event::Segment>(0)?;
    let segment = segment.segment().downcast_ref::<gst::ClockTime>()?;
    Some(segment.to_stream_time(pts).unwrap_or(pts).nseconds())
}
