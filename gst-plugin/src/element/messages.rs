//! What is said on the bus: a frame's classes, and frames that were dropped.

use std::sync::Arc;
use std::time::Duration;

use glib::subclass::prelude::*;
use gst::prelude::*;
use sapiens_model::Palette;

use super::imp::SapiensSeg;
use super::running::{Framed, Running};
use crate::labels::Labels;
use crate::meta::clock_time;

/// A frame that leaves, as messages see it.
pub(super) struct Leaving<'a> {
    pub buffer: &'a gst::Buffer,
    pub running_time: Option<gst::ClockTime>,
    pub stream_time: Option<gst::ClockTime>,
    pub labels: &'a Arc<Labels>,
    pub reused: bool,
    pub labels_pts: Option<Duration>,
}

impl SapiensSeg {
    /// An element message `sapiensseg`: times as other elements' messages have them, and a structure per class that
    /// is shown and present.
    pub(super) fn post_labels(&self, running: &Running, leaving: &Leaving<'_>, palette: &Palette) {
        let Leaving { buffer, running_time, stream_time, labels, reused, labels_pts } = leaving;
        let map = labels.map();
        let segmenter = running.segmenter();
        let classes = &segmenter.card().classes;
        let regions =
            map.regions().into_iter().filter(|region| palette.is_shown(region.class)).map(|region| {
                let name = classes.get(usize::from(region.class)).map_or("", |class| class.name.as_str());
                gst::Structure::builder("region")
                    .field("class", name)
                    .field("id", u32::from(region.class))
                    .field("pixels", region.pixels as u64)
                    .field("x", region.bounds.x as u32)
                    .field("y", region.bounds.y as u32)
                    .field("width", region.bounds.width as u32)
                    .field("height", region.bounds.height as u32)
                    .build()
            });
        let structure = gst::Structure::builder("sapiensseg")
            .field("timestamp", clock_time(buffer.pts().map(Duration::from)))
            .field("running-time", clock_time(running_time.map(Duration::from)))
            .field("stream-time", clock_time(stream_time.map(Duration::from)))
            .field("width", map.width() as u32)
            .field("height", map.height() as u32)
            .field("reused", *reused)
            .field("labels-pts", clock_time(*labels_pts))
            .field("regions", gst::Array::new(regions))
            .build();
        let element = self.obj();
        let _ = element.post_message(gst::message::Element::builder(structure).src(&*element).build());
    }

    /// Says that a frame was dropped.
    pub(super) fn post_qos(&self, framed: &Framed) {
        let Some(running) = self.running() else { return };
        let stats = running.queue.stats();
        let element = self.obj();
        let live = running.latency.is_live();
        let message = gst::message::Qos::builder(live)
            .running_time(framed.running_time)
            .stream_time(framed.stream_time)
            .timestamp(framed.buffer.pts())
            .duration(framed.buffer.duration())
            .stats(
                gst::format::Buffers::from_u64(stats.fresh + stats.reused),
                gst::format::Buffers::from_u64(stats.dropped),
            )
            .src(&*element)
            .build();
        let _ = element.post_message(message);
    }
}
