//! The clip that is labelled where the user brings none: drawn people that move.

use std::path::Path;

use gst::prelude::*;
use sapiens_figures::{Clip, SceneOptions};

const WIDTH: usize = 960;
const HEIGHT: usize = 540;
const FRAMES_PER_SECOND: u64 = 24;

/// Draws a clip and writes it as WebM.
pub(crate) fn write(path: &Path, seed: u64, seconds: f64) -> Result<(), String> {
    let options = SceneOptions {
        people: 2..=2,
        aspect: WIDTH as f64 / HEIGHT as f64,
        degrade: false,
        ..Default::default()
    };
    let clip = Clip::sample(seed, &options);
    let description = "appsrc name=source format=time ! videoconvert ! \
                       vp8enc deadline=1 cpu-used=4 target-bitrate=6000000 ! webmmux ! filesink name=sink";
    let pipeline = gst::parse::launch(description).map_err(|error| format!("the pipeline: {error}"))?;
    let pipeline =
        pipeline.downcast::<gst::Pipeline>().map_err(|_| "the pipeline: expected several elements")?;
    let by_name = |name: &str| pipeline.by_name(name).ok_or("the pipeline lost an element");
    by_name("sink")?.set_property("location", path);
    let source =
        by_name("source")?.downcast::<gst_app::AppSrc>().map_err(|_| "appsrc: expected gstreamer-app's")?;
    let info = gst_video::VideoInfo::builder(gst_video::VideoFormat::Rgb, WIDTH as u32, HEIGHT as u32)
        .fps(gst::Fraction::new(FRAMES_PER_SECOND as i32, 1))
        .build()
        .and_then(|info| info.to_caps())
        .map_err(|error| format!("the clip's format: {error}"))?;
    source.set_caps(Some(&info));
    let started = pipeline.set_state(gst::State::Playing);
    let frames = (seconds * FRAMES_PER_SECOND as f64).round().max(1.0) as u64;
    for frame in 0..frames {
        let time = frame as f64 / FRAMES_PER_SECOND as f64;
        let picture = clip.scene_at(time).render(WIDTH, HEIGHT);
        // Rows of this width need no padding.
        let mut buffer = gst::Buffer::from_mut_slice(picture.rgb);
        if let Some(buffer) = buffer.get_mut() {
            buffer.set_pts(gst::ClockTime::from_nseconds(frame * 1_000_000_000 / FRAMES_PER_SECOND));
            buffer.set_duration(gst::ClockTime::from_nseconds(1_000_000_000 / FRAMES_PER_SECOND));
        }
        if source.push_buffer(buffer).is_err() {
            // Whatever stopped it is on the bus.
            break;
        }
    }
    let _ = source.end_of_stream();
    let ended = pipeline.bus().and_then(|bus| {
        bus.timed_pop_filtered(gst::ClockTime::NONE, &[gst::MessageType::Eos, gst::MessageType::Error])
    });
    let stopped = pipeline.set_state(gst::State::Null);
    if let Some(gst::MessageView::Error(error)) = ended.as_ref().map(|message| message.view()) {
        return Err(format!("{}: {}", path.display(), sapiens_examples::bus_error(error)));
    }
    started.and(stopped).map(drop).map_err(|error| format!("{}: {error}", path.display()))
}
