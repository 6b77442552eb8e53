//! One image: decoded here, labelled by the element, which goes on from image to image.

use gst::prelude::*;
use gst_app::{AppSink, AppSrc};
use gst_video::{VideoFormat, VideoInfo};
use image::RgbImage;
use sapiens_cli::picture;
use sapiens_examples::labeller;
use sapiens_model::{FrameViewMut, LabelMap, paint_overlay};
use serde_json::{Value, json};

use crate::folder::Work;
use crate::inputs::Input;
use crate::job::{Context, Tally};
use crate::pipeline::Running;
use crate::trouble::{Result, Trouble};
use crate::video::read_labels;

/// Does the whole image; gives the `result` of `run.json`.
pub(crate) fn annotate(
    context: &Context,
    input: &Input,
    work: &Work,
    lane: &mut Option<Lane>,
) -> Result<(Value, Tally)> {
    let decoded = picture::open(&input.path).map_err(image::ImageError::IoError).and_then(picture::decode);
    let mut image = decoded.map_err(|error| Trouble::Input(format!("it can't be decoded: {error}")))?;
    // After an error the pipeline is no more good: the next image gets a new one.
    let running = match lane.take() {
        Some(lane) => lane,
        None => Lane::new(context)?,
    };
    let mut map = running.label(context, &image)?;
    *lane = Some(running);
    context.progress.labelled();
    let look = &context.look;
    look.apply(&mut map);
    work.write("labels.png", |file| picture::write_labels(file, &map, &look.palette))?;
    work.write("labels.jsonl", |file| look.record(0, None, &map).write(file))?;
    if context.arguments.overlay {
        let (width, height) = (image.width() as usize, image.height() as usize);
        let mut frame = FrameViewMut::rgb(width, height, &mut image)?;
        paint_overlay(&mut frame, &map, &look.palette, look.opacity)?;
        work.write("overlay.png", |file| picture::write_rgb(file, &image))?;
    }
    let result = json!({ "frames": 1, "width": map.width(), "height": map.height() });
    Ok((result, Tally { frames: 1, labelled: 1 }))
}

/// The element between images that are pushed and labels that are taken.
#[derive(Debug)]
pub(crate) struct Lane {
    running: Running,
    source: AppSrc,
    sink: AppSink,
}

impl Lane {
    fn new(context: &Context) -> Result<Self> {
        let source = AppSrc::builder().format(gst::Format::Time).build();
        let sink = AppSink::builder().sync(false).build();
        let element = labeller(&context.arguments.model)?;
        let pipeline = gst::Pipeline::new();
        let elements = [source.upcast_ref(), &element, sink.upcast_ref()];
        pipeline
            .add_many(elements)
            .and_then(|()| gst::Element::link_many(elements))
            .map_err(|error| Trouble::Input(format!("the elements can't be linked: {error}")))?;
        Ok(Self { running: Running::start(pipeline), source, sink })
    }

    fn label(&self, context: &Context, image: &RgbImage) -> Result<LabelMap> {
        let explain = |what: &dyn std::fmt::Display| Trouble::Input(format!("it can't be labelled: {what}"));
        let caps = VideoInfo::builder(VideoFormat::Rgb, image.width(), image.height())
            .fps(gst::Fraction::new(0, 1))
            .build()
            .and_then(|info| info.to_caps())
            .map_err(|error| explain(&error))?;
        self.source.set_caps(Some(&caps));
        // GStreamer's rows are multiples of four bytes.
        let row = image.width() as usize * 3;
        let mut bytes = Vec::with_capacity(row.next_multiple_of(4) * image.height() as usize);
        for pixels in image.as_raw().chunks_exact(row.max(1)) {
            bytes.extend_from_slice(pixels);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
        }
        let mut buffer = gst::Buffer::from_mut_slice(bytes);
        buffer.make_mut().set_pts(gst::ClockTime::ZERO);
        self.source.push_buffer(buffer).map_err(|flow| explain(&flow))?;
        loop {
            context.check_stop()?;
            if let Some(sample) = self.sink.try_pull_sample(gst::ClockTime::from_mseconds(50)) {
                let buffer = sample.buffer().ok_or_else(|| explain(&"nothing came out of the element"))?;
                return read_labels(buffer).map_err(|what| explain(&format!("it {what}")));
            }
            if let Some(error) = self.running.error() {
                return Err(Trouble::Input(error));
            }
            if self.sink.is_eos() {
                return Err(explain(&"nothing came out of the element"));
            }
        }
    }
}
