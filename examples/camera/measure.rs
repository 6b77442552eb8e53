//! What is shown of the last second: frames, labels, latency, age.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use gst::prelude::*;
use gstsapiensseg::SapiensSegMeta;

/// Counts frames that leave the element.
#[derive(Debug, Clone, Default)]
pub(crate) struct Meter(Arc<Mutex<Counts>>);

#[derive(Debug, Default)]
struct Counts {
    frames: u32,
    /// Frames whose labels no frame before had.
    fresh: u32,
    last_labels: Option<gst::ClockTime>,
    latency: Span,
    age: Span,
}

/// Times of which the mean and the longest are wanted.
#[derive(Debug, Default, Clone, Copy)]
struct Span {
    count: u32,
    sum: Duration,
    longest: Duration,
}

impl Span {
    fn add(&mut self, time: Duration) {
        self.count += 1;
        self.sum += time;
        self.longest = self.longest.max(time);
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.sum.checked_div(self.count) {
            None => f.write_str("none yet"),
            Some(mean) => write!(f, "{} ms (at most {})", mean.as_millis(), self.longest.as_millis()),
        }
    }
}

/// One period's counts.
#[derive(Debug)]
pub(crate) struct Report {
    counts: Counts,
    period: Duration,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rate = |count: u32| f64::from(count) / self.period.as_secs_f64().max(1e-3);
        let Counts { frames, fresh, latency, age, .. } = &self.counts;
        write!(
            f,
            "{:.1} frames/s, {:.1} labelled/s, latency {latency}, age of labels {age}",
            rate(*frames),
            rate(*fresh)
        )
    }
}

impl Meter {
    /// Looks at the frames that leave `element`.
    pub(crate) fn watch(&self, element: &gst::Element) {
        let Some(pad) = element.static_pad("src") else { return };
        let (counts, element) = (self.clone(), element.downgrade());
        pad.add_probe(gst::PadProbeType::BUFFER, move |pad, probe| {
            if let (Some(element), Some(gst::PadProbeData::Buffer(buffer))) = (element.upgrade(), &probe.data)
            {
                counts.lock().add(&element, pad, buffer);
            }
            gst::PadProbeReturn::Ok
        });
    }

    /// What was counted since `since`, which becomes now.
    pub(crate) fn report(&self, since: &mut Instant) -> Report {
        let now = Instant::now();
        let period = now - std::mem::replace(since, now);
        let mut counts = self.lock();
        let last_labels = counts.last_labels;
        Report {
            counts: std::mem::replace(&mut *counts, Counts { last_labels, ..Counts::default() }),
            period,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Counts {
    fn add(&mut self, element: &gst::Element, pad: &gst::Pad, buffer: &gst::BufferRef) {
        self.frames += 1;
        let segment = pad.sticky_event::<gst::event::Segment>(0);
        let taken = segment.and_then(|segment| {
            segment.segment().downcast_ref::<gst::ClockTime>()?.to_running_time(buffer.pts())
        });
        if let (Some(now), Some(taken)) = (element.current_running_time(), taken) {
            self.latency.add(now.saturating_sub(taken).into());
        }
        let Some(meta) = SapiensSegMeta::from_buffer(buffer) else { return };
        if let (Some(shown), Some(labelled)) = (buffer.pts(), meta.labels_pts) {
            self.age.add(shown.saturating_sub(labelled).into());
            self.fresh += u32::from(self.last_labels != Some(labelled));
            self.last_labels = Some(labelled);
        }
    }
}
