//! Frames into one video file: GStreamer's encoder, and a file that has the same bytes each time.

use gst::prelude::*;
use gst_app::{AppSink, AppSrc};
use gst_video::VideoFormat;

use crate::folder::{Pending, Work};
use crate::mkv::{self, Track};
use crate::pipeline::Running;
use crate::trouble::{Result, Trouble};

/// What is encoded, and so how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Codec {
    /// Labels: lossless, gray.
    Ffv1,
    /// Overlays.
    Vp8,
}

impl Codec {
    /// The encoder.
    pub(crate) fn factory(self) -> &'static str {
        match self {
            Codec::Ffv1 => "avenc_ffv1",
            Codec::Vp8 => "vp8enc",
        }
    }

    pub(crate) fn format(self) -> VideoFormat {
        match self {
            Codec::Ffv1 => VideoFormat::Gray8,
            Codec::Vp8 => VideoFormat::I420,
        }
    }

    /// With settings under which the same frames give the same bytes, however busy the machine is.
    fn encoder(self, width: u32, height: u32) -> std::result::Result<gst::Element, String> {
        let encoder = sapiens_examples::element(self.factory())?;
        match self {
            Codec::Ffv1 => {
                // Each frame stands alone, so that a label is found without decoding those before it.
                encoder.set_property("gop-size", 1);
            }
            Codec::Vp8 => {
                // Below "good quality" VP8 measures its own time to choose how hard it tries: a deadline longer than
                // any frame is "good quality".
                encoder.set_property("deadline", i64::from(i32::MAX));
                encoder.set_property("cpu-used", 4);
                encoder.set_property("threads", 1);
                encoder.set_property_from_str("end-usage", "cq");
                encoder.set_property("cq-level", 12);
                // What constant quality may take at most: enough for each size.
                let bits = u64::from(width) * u64::from(height) * 8;
                encoder.set_property("target-bitrate", bits.clamp(256_000, 100_000_000) as i32);
                encoder.set_property("keyframe-max-dist", 60);
            }
        }
        Ok(encoder)
    }
}

/// A video being written.
#[derive(Debug)]
pub(crate) struct Video {
    codec: Codec,
    size: (u32, u32),
    shown: Option<(u32, u32)>,
    running: Running,
    source: AppSrc,
    sink: AppSink,
    file: Pending,
    writer: Option<mkv::Writer>,
}

/// How long a frame is shown that says nothing of it.
const DEFAULT_MS: u64 = 40;
/// Frames that wait for the encoder.
const WAITING: u64 = 4;

impl Video {
    /// Begins the file `name` with frames of `info`'s size and colours.
    pub(crate) fn begin(work: &Work, name: &str, codec: Codec, info: &gst_video::VideoInfo) -> Result<Self> {
        let (width, height) = (info.width(), info.height());
        // Times are the frames' own: a rate would round them.
        let caps = gst_video::VideoInfo::builder(codec.format(), width, height)
            .par(info.par())
            .colorimetry(&info.colorimetry())
            .fps(gst::Fraction::new(0, 1))
            .build()
            .and_then(|info| info.to_caps())
            .map_err(|error| Trouble::Input(format!("{name}: {error}")))?;
        let encoder = codec.encoder(width, height)?;
        let source = AppSrc::builder().caps(&caps).format(gst::Format::Time).max_bytes(0).build();
        let sink = AppSink::builder().sync(false).build();
        let pipeline = gst::Pipeline::new();
        let elements = [source.upcast_ref(), &encoder, sink.upcast_ref()];
        pipeline
            .add_many(elements)
            .and_then(|()| gst::Element::link_many(elements))
            .map_err(|error| Trouble::Input(format!("{name}: {error}")))?;
        let file = work.begin(name)?;
        let running = Running::start(pipeline);
        let wider = (u64::from(width) * info.par().numer().max(1) as u64) / info.par().denom().max(1) as u64;
        let shown = (wider != u64::from(width)).then_some((wider as u32, height));
        Ok(Self { codec, size: (width, height), shown, running, source, sink, file, writer: None })
    }

    /// Size of its frames.
    pub(crate) fn size(&self) -> (u32, u32) {
        self.size
    }

    /// Adds a frame, whose time is `buffer`'s.
    pub(crate) fn push(&mut self, buffer: gst::Buffer) -> Result<()> {
        self.source.push_buffer(buffer).map_err(|flow| self.failed(&flow.to_string()))?;
        // The frame is in a queue that has no end: here is who waits for the encoder.
        while self.take()? || self.source.current_level_buffers() > WAITING {}
        Ok(())
    }

    /// Writes what the encoder still has, and puts the file in its place.
    pub(crate) fn finish(mut self) -> Result<()> {
        self.source.end_of_stream().map_err(|flow| self.failed(&flow.to_string()))?;
        while self.take()? || !self.sink.is_eos() {}
        let Some(writer) = self.writer.take() else { return Err(self.failed("it gave nothing")) };
        self.file.with(|file| writer.finish(file))?;
        self.file.commit()
    }

    /// Writes a frame that the encoder has done, if there is one soon; whether there was.
    fn take(&mut self) -> Result<bool> {
        let patience = gst::ClockTime::from_mseconds(1);
        let Some(sample) = self.sink.try_pull_sample(patience) else {
            return match self.running.error() {
                Some(error) => Err(self.failed(&error)),
                None => Ok(false),
            };
        };
        self.write(&sample)?;
        Ok(true)
    }

    fn write(&mut self, sample: &gst::Sample) -> Result<()> {
        let Some(buffer) = sample.buffer() else { return Ok(()) };
        let data = buffer.map_readable().map_err(|error| self.failed(&error.to_string()))?;
        let mut writer = match self.writer.take() {
            Some(writer) => writer,
            None => {
                let track = self.track(sample);
                self.file.with(|file| mkv::Writer::new(file, &track))?
            }
        };
        // Encoders that may reorder frames add a thousand hours to times, and take them away by the segment.
        let segment = sample.segment().and_then(|segment| segment.downcast_ref::<gst::ClockTime>());
        let time = segment.and_then(|segment| segment.to_stream_time(buffer.pts()));
        let time = time.map_or(0, gst::ClockTime::mseconds);
        let duration = buffer.duration().map_or(DEFAULT_MS, gst::ClockTime::mseconds);
        let is_key = !buffer.flags().contains(gst::BufferFlags::DELTA_UNIT);
        self.file.with(|file| writer.frame(file, time, duration, is_key, &data))?;
        self.writer = Some(writer);
        Ok(())
    }

    fn track(&self, sample: &gst::Sample) -> Track {
        let (doc_type, codec) = match self.codec {
            Codec::Ffv1 => ("matroska", "V_FFV1"),
            Codec::Vp8 => ("webm", "V_VP8"),
        };
        // VP8's header is in its frames; what GStreamer has beside it is for another container.
        let header = sample.caps().filter(|_| self.codec == Codec::Ffv1).and_then(|caps| {
            let header = caps.structure(0)?.get::<gst::Buffer>("codec_data").ok()?;
            Some(header.map_readable().ok()?.to_vec())
        });
        let (width, height) = self.size;
        Track { doc_type, codec, private: header.unwrap_or_default(), width, height, shown: self.shown }
    }

    fn failed(&self, what: &str) -> Trouble {
        Trouble::Input(format!("{} can't encode: {what}", self.codec.factory()))
    }
}
