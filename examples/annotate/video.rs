//! One video: its frames through the element, their labels to files, and what is made of all of them in the end.
//!
//! First each wanted frame gets its label PNG. A frame that has one already, from before a kill, is decoded and not
//! inferred. Then, from the PNGs alone, come the label video and the overlay: they are the same however often the first
//! part was interrupted, and are begun anew if they were.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gst_video::prelude::*;
use gst_video::{VideoFormat, VideoInfo};
use gstsapiensseg::{SapiensSegMeta, frame_info};
use sapiens_cli::picture;
use sapiens_examples::labeller;
use sapiens_model::{FrameViewMut, LabelMap, PlaneMut, paint_overlay};
use serde_json::{Value, json};

use crate::arguments::LabelFiles;
use crate::encode::{Codec, Video};
use crate::folder::{FRAMES, LABELS, Pending, Work};
use crate::inputs::Input;
use crate::job::{Context, Tally};
use crate::labels::{self, Record};
use crate::pipeline::{Frames, Next, Selection, Verdict, Wanted};
use crate::trouble::{Result, Trouble};

/// What part of the work labelling is taken to be, where an overlay has still to be made.
const LABELLING: f64 = 0.9;

/// A frame on its way: wanted, and with its record once it has labels.
struct Slot {
    wanted: Wanted,
    record: Option<Record>,
}

type Slots = Arc<Mutex<VecDeque<Slot>>>;

fn lock(slots: &Slots) -> MutexGuard<'_, VecDeque<Slot>> {
    slots.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A frame that was labelled.
struct Labelled {
    frame: u64,
    pts: Option<u64>,
}

/// Does the whole video; gives the `result` of `run.json`.
pub(crate) fn annotate(
    context: &Context,
    number: usize,
    input: &Input,
    work: &Work,
) -> Result<(Value, Tally)> {
    let folder = match context.arguments.labels {
        LabelFiles::Png => LABELS,
        LabelFiles::Video => FRAMES,
    };
    work.folder(folder)?;
    let job = Job { context, number, input, work, folder };
    let (frames, first, tally) = job.label()?;
    if context.arguments.labels == LabelFiles::Video {
        job.label_video(&frames, &first)?;
    }
    if context.arguments.overlay {
        job.overlay(&frames)?;
    }
    let result = json!({
        "frames": frames.len(),
        "width": first.width(),
        "height": first.height(),
        "first_pts_ns": frames.first().and_then(|frame| frame.pts),
        "last_pts_ns": frames.last().and_then(|frame| frame.pts),
    });
    Ok((result, tally))
}

struct Job<'a> {
    context: &'a Context,
    number: usize,
    input: &'a Input,
    work: &'a Work,
    /// Of the label PNGs.
    folder: &'static str,
}

impl Job<'_> {
    fn selection(&self) -> Selection {
        let arguments = &self.context.arguments;
        Selection { every: arguments.every, start: arguments.start, end: arguments.end }
    }

    fn png(&self, frame: u64) -> std::path::PathBuf {
        Path::new(self.folder).join(labels::file_name(frame))
    }

    /// Sees to it that every wanted frame has its PNG and its line.
    fn label(&self) -> Result<(Vec<Labelled>, VideoInfo, Tally)> {
        let look = self.context.look.clone();
        let slots = Slots::default();
        let (expected, pngs) = (slots.clone(), self.work.path(self.folder));
        let judge = move |wanted: Wanted| {
            let (width, height) = (wanted.info.width() as usize, wanted.info.height() as usize);
            let done = labels::read_png(&pngs.join(labels::file_name(wanted.frame)))
                .filter(|labels| (labels.width(), labels.height()) == (width, height));
            let record = done.map(|labels| look.record(wanted.frame, wanted.pts, &labels));
            let verdict = if record.is_some() { Verdict::Drop } else { Verdict::Pass };
            lock(&expected).push_back(Slot { wanted, record });
            verdict
        };
        let element = labeller(&self.context.arguments.model)?;
        let frames = Frames::open(&self.input.path, &[element], self.selection(), judge)?;
        let mut lines = Lines { file: self.work.begin("labels.jsonl")?, frames: Vec::new(), first: None };
        let mut tally = Tally::default();
        loop {
            self.context.check_stop()?;
            let next = frames.next()?;
            let ended = match &next {
                Next::Sample(sample) => {
                    self.take(sample, &slots)?;
                    tally.labelled += 1;
                    self.context.progress.labelled();
                    false
                }
                Next::Nothing => frames.past_end(),
                Next::End => true,
            };
            self.report(&frames, &lines);
            while let Some(slot) = pop_done(&slots) {
                lines.add(slot)?;
            }
            if ended && lock(&slots).is_empty() {
                break;
            }
            if let Next::End = next {
                let missing = lock(&slots).front().map(|slot| slot.wanted.frame);
                return Err(
                    format!("frame {} came out of the element without labels", missing.unwrap_or(0)).into()
                );
            }
        }
        let Lines { file, frames: done, first } = lines;
        let Some(first) = first else {
            return Err("there are no frames in it between --start and --end".to_owned().into());
        };
        file.commit()?;
        tally.frames = done.len() as u64;
        Ok((done, first, tally))
    }

    /// Writes the labels of a frame that came out of the element.
    fn take(&self, sample: &gst::Sample, slots: &Slots) -> Result<()> {
        let look = &self.context.look;
        let Some(buffer) = sample.buffer() else { return Ok(()) };
        let frame = buffer.offset();
        let labels = read_labels(buffer).map_err(|what| Trouble::Input(format!("frame {frame} {what}")))?;
        let mut map = labels;
        look.apply(&mut map);
        self.work.write(self.png(frame), |file| picture::write_labels(file, &map, &look.palette))?;
        let mut slots = lock(slots);
        let slot = slots.iter_mut().find(|slot| slot.wanted.frame == frame);
        let slot =
            slot.ok_or_else(|| Trouble::Input(format!("frame {frame} came out of the element unasked")))?;
        slot.record = Some(look.record(frame, slot.wanted.pts, &map));
        Ok(())
    }

    fn report(&self, frames: &Frames, lines: &Lines) {
        let (start, every) = (self.selection().start.unwrap_or(0), self.selection().end);
        let duration = frames.duration().into_iter().chain(every).min();
        let last = lines.frames.last().and_then(|frame| frame.pts);
        if let (Some(last), Some(end)) = (last, duration.filter(|end| *end > start)) {
            let share = if self.context.arguments.overlay { LABELLING } else { 1.0 };
            let part = last.saturating_sub(start) as f64 / (end - start) as f64;
            self.context.progress.set(self.number, part.min(1.0) * share);
        }
    }

    fn labels(&self, frame: u64) -> Result<LabelMap> {
        let path = self.work.path(self.png(frame));
        labels::read_png(&path).ok_or_else(|| Trouble::Input(format!("can't read {} back", path.display())))
    }

    /// Makes the label video of the PNGs.
    fn label_video(&self, frames: &[Labelled], first: &VideoInfo) -> Result<()> {
        let mut video = Video::begin(self.work, "labels.mkv", Codec::Ffv1, &gray(first)?)?;
        for (at, frame) in frames.iter().enumerate() {
            self.context.check_stop()?;
            let labels = self.labels(frame.frame)?;
            fits(&video, frame.frame, labels.width(), labels.height(), "--labels png")?;
            // GStreamer's rows are multiples of four bytes.
            let mut bytes = Vec::with_capacity(labels.width().next_multiple_of(4) * labels.height());
            for y in 0..labels.height() {
                bytes.extend(labels.row(y));
                bytes.resize(bytes.len().next_multiple_of(4), 0);
            }
            let mut buffer = gst::Buffer::from_mut_slice(bytes);
            set_time(buffer.make_mut(), frames, at);
            video.push(buffer)?;
        }
        video.finish()
    }

    /// Makes the overlay of the video and the PNGs.
    fn overlay(&self, frames: &[Labelled]) -> Result<()> {
        let caps = gst_video::VideoCapsBuilder::new().format(Codec::Vp8.format()).build();
        let filter = sapiens_examples::element("capsfilter")?;
        filter.set_property("caps", caps);
        let decoded = Frames::open(&self.input.path, &[filter], self.selection(), |_| Verdict::Pass)?;
        let mut video: Option<Video> = None;
        for (at, frame) in frames.iter().enumerate() {
            let sample = loop {
                self.context.check_stop()?;
                match decoded.next()? {
                    Next::Sample(sample) => break sample,
                    Next::Nothing => {}
                    Next::End => {
                        return Err(format!("frame {} is gone when it is read again", frame.frame).into());
                    }
                }
            };
            let explain = |what: &str| Trouble::Input(format!("frame {}: {what}", frame.frame));
            let info = sample.caps().and_then(|caps| VideoInfo::from_caps(caps).ok());
            let info = info.ok_or_else(|| explain("it has no format"))?;
            let mut buffer = sample.buffer_owned().ok_or_else(|| explain("it is empty"))?;
            drop(sample);
            if buffer.offset() != frame.frame {
                return Err(explain(&format!("it is number {} when it is read again", buffer.offset())));
            }
            let labels = self.labels(frame.frame)?;
            self.paint(buffer.make_mut(), &info, &labels)?;
            set_time(buffer.make_mut(), frames, at);
            let mut into = match video.take() {
                Some(video) => video,
                None => Video::begin(self.work, "overlay.webm", Codec::Vp8, &info)?,
            };
            fits(&into, frame.frame, labels.width(), labels.height(), "leaving out --overlay")?;
            into.push(buffer)?;
            video = Some(into);
            let part = (at + 1) as f64 / frames.len() as f64;
            self.context.progress.set(self.number, LABELLING + (1.0 - LABELLING) * part);
        }
        video.map_or(Ok(()), Video::finish)
    }

    fn paint(&self, buffer: &mut gst::BufferRef, info: &VideoInfo, labels: &LabelMap) -> Result<()> {
        let look = &self.context.look;
        let unmapped = |_| Trouble::Input("a decoded frame can't be written to".to_owned());
        let mut frame = gst_video::VideoFrameRef::from_buffer_ref_writable(buffer, info).map_err(unmapped)?;
        let strides: Vec<usize> =
            frame.plane_stride().iter().map(|stride| usize::try_from(*stride).unwrap_or(0)).collect();
        let [y, u, v, _] = frame.planes_data_mut();
        let plane = |data, index: usize| PlaneMut { data, stride: strides.get(index).copied().unwrap_or(0) };
        let frame = frame_info(info)
            .ok_or_else(|| Trouble::Input(format!("a frame is {}: expected I420", info.format())))?;
        let mut view = FrameViewMut::new(frame, [plane(y, 0), plane(u, 1), plane(v, 2)])?;
        Ok(paint_overlay(&mut view, labels, &look.palette, look.opacity)?)
    }
}

/// `labels.jsonl` being written, in the order of frames.
struct Lines {
    file: Pending,
    frames: Vec<Labelled>,
    first: Option<VideoInfo>,
}

impl Lines {
    fn add(&mut self, slot: Slot) -> Result<()> {
        let Slot { wanted, record: Some(record) } = slot else { return Ok(()) };
        self.file.with(|file| record.write(file))?;
        self.frames.push(Labelled { frame: record.frame, pts: record.pts });
        self.first.get_or_insert(wanted.info);
        Ok(())
    }
}

/// The oldest frame, if it has labels.
fn pop_done(slots: &Slots) -> Option<Slot> {
    let mut slots = lock(slots);
    slots.front()?.record.as_ref()?;
    slots.pop_front()
}

/// The labels that the element put on a frame.
pub(crate) fn read_labels(buffer: &gst::BufferRef) -> std::result::Result<LabelMap, String> {
    let meta = SapiensSegMeta::from_buffer(buffer).ok_or("came out of the element without labels")?;
    let mask = meta.mask.map_readable().map_err(|_| "has labels that can't be read")?;
    LabelMap::from_labels(meta.width as usize, meta.height as usize, mask.to_vec())
        .ok_or_else(|| "has labels of another size than they say".to_owned())
}

/// Gives a frame its time, and shows it until the next.
fn set_time(buffer: &mut gst::BufferRef, frames: &[Labelled], at: usize) {
    /// Of frames that don't say; 25 a second.
    const STEP: u64 = 40_000_000;
    let time = |at: usize| frames.get(at).map(|frame| frame.pts.unwrap_or(frame.frame * STEP));
    let now = time(at).unwrap_or(0);
    let next =
        time(at + 1).or_else(|| at.checked_sub(1).and_then(time).map(|before| 2 * now - before.min(now)));
    buffer.set_pts(gst::ClockTime::from_nseconds(now));
    buffer.set_dts(gst::ClockTime::NONE);
    buffer.set_duration(gst::ClockTime::from_nseconds(next.map_or(STEP, |next| next.saturating_sub(now))));
}

/// All frames of a video file have one size.
fn fits(video: &Video, frame: u64, width: usize, height: usize, instead: &str) -> Result<()> {
    let (expected_width, expected_height) = video.size();
    if (width, height) == (expected_width as usize, expected_height as usize) {
        return Ok(());
    }
    Err(Trouble::Input(format!(
        "frame {frame} is {width} x {height} and the first was {expected_width} x {expected_height}: a video file has one size; try {instead}"
    )))
}

/// Labels of frames like this.
fn gray(info: &VideoInfo) -> Result<VideoInfo> {
    VideoInfo::builder(VideoFormat::Gray8, info.width(), info.height())
        .par(info.par())
        .build()
        .map_err(|error| Trouble::Input(format!("labels of {} x {}: {error}", info.width(), info.height())))
}
