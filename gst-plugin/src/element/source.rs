//! The src pad: its task takes the head of the queue, puts the labels on it, and pushes it.

use glib::subclass::prelude::*;
use gst::prelude::*;
use gst::subclass::prelude::*;

use super::imp::{CAT, SapiensSeg};
use super::messages::Leaving;
use super::running::{Framed, Payload, Running, Traffic};
use super::sink::filtered;
use super::{OutputChoice, caps};
use crate::queue::{LabelledFrame, Next};
use crate::{meta, render};

impl SapiensSeg {
    pub(super) fn start_source_task(&self) -> Result<(), glib::BoolError> {
        let weak = self.obj().downgrade();
        self.srcpad.start_task(move || {
            if let Some(element) = weak.upgrade() {
                element.imp().catch_panic(|| element.imp().give_up(), |imp| imp.source_loop());
            }
        })
    }

    /// After a panic in the task: nobody takes from the queue any more.
    fn give_up(&self) {
        if let Some(running) = self.running() {
            drop(running.queue.refuse(gst::FlowError::Error));
        }
        let _ = self.srcpad.pause_task();
    }

    fn source_loop(&self) {
        let Some(running) = self.running() else {
            let _ = self.srcpad.pause_task();
            return;
        };
        match running.queue.next() {
            Next::Frame(frame) => self.push_frame(&running, frame),
            Next::Pass(Payload::Event(event)) => {
                self.forward_event(&running, event);
            }
            Next::Pass(Payload::Barrier(passed)) => {
                // Whoever waited may have gone.
                let _ = passed.send(());
            }
            Next::Pass(Payload::Frame(framed)) | Next::Dropped(Payload::Frame(framed)) => {
                self.post_qos(&framed)
            }
            Next::Dropped(_) => {}
            Next::Failed { failure, .. } => {
                gst::element_imp_error!(self, gst::LibraryError::Failed, ["{failure}"]);
                self.refuse(&running, gst::FlowError::Error);
            }
            Next::Closed(closed) => {
                gst::debug!(CAT, imp = self, "task pauses: {closed:?}");
                let _ = self.srcpad.pause_task();
            }
        }
    }

    fn push_frame(&self, running: &Running, frame: LabelledFrame<Traffic>) {
        let LabelledFrame { payload: Payload::Frame(framed), labels, reused, .. } = frame else { return };
        let labels_pts = labels.as_ref().and_then(|stamped| stamped.pts);
        let size = (framed.shape.frame_info.width, framed.shape.frame_info.height);
        let labels = labels.map(|stamped| stamped.labels.fit(size.0, size.1));
        let appearance = running.appearance();
        let Framed { mut buffer, shape, running_time, stream_time } = framed;

        let rendered = self.push_mask(running, &buffer, &shape, labels.as_ref()).and_then(|()| {
            if running.output == OutputChoice::Mask {
                let packed = self.source_takes_any_stride();
                buffer = render::mask(&buffer, &shape, labels.as_ref(), packed)
                    .map_err(|error| error.to_string())?;
            }
            let writable = buffer.make_mut();
            render::render(running.output, writable, &shape, labels.as_ref(), &appearance)
                .map_err(|error| error.to_string())?;
            if let Some(labels) = &labels {
                meta::attach(writable, &running.model, labels, reused.is_some(), labels_pts)
                    .map_err(|error| error.to_string())?;
            }
            Ok(())
        });
        if let Err(message) = rendered {
            gst::element_imp_error!(self, gst::StreamError::Failed, ["{message}"]);
            self.refuse(running, gst::FlowError::Error);
            return;
        }
        if let Some(labels) = &labels {
            if running.posts_messages() {
                let leaving = Leaving {
                    buffer: &buffer,
                    running_time,
                    stream_time,
                    labels,
                    reused: reused.is_some(),
                    labels_pts,
                };
                self.post_labels(running, &leaving, &appearance.palette);
            }
            self.update_measured_latency(running);
        }
        let flow = self.srcpad.push(buffer);
        self.combine(running, &self.srcpad, flow);
    }

    /// Takes over what a push came to, together with what the other pad's came to.
    pub(super) fn combine(
        &self,
        running: &Running,
        pad: &gst::Pad,
        flow: Result<gst::FlowSuccess, gst::FlowError>,
    ) {
        let combined = self.flows().update_pad_flow(pad, flow);
        if let Err(flow) = combined {
            gst::debug!(CAT, imp = self, "downstream answers {flow:?}");
            self.refuse(running, flow);
        }
    }

    fn refuse(&self, running: &Running, flow: gst::FlowError) {
        drop(running.queue.refuse(flow));
        let fatal = !matches!(flow, gst::FlowError::Flushing | gst::FlowError::Eos);
        if fatal && running.input().eos {
            // Upstream is done and will not learn of it by pushing; without this the pipeline would wait forever.
            gst::element_imp_error!(self, gst::StreamError::Failed, ["downstream takes no more: {flow}"]);
            self.push_everywhere(&gst::event::Eos::new());
        }
    }

    /// Pushes a serialized event on both source pads.
    pub(super) fn forward_event(&self, running: &Running, event: gst::Event) -> bool {
        self.push_mask_event(running, &event);
        let is_caps = event.type_() == gst::EventType::Caps;
        let pushed = self.srcpad.push_event(event);
        if is_caps && running.output == OutputChoice::Mask {
            self.ask_source_allocation();
        }
        pushed
    }

    pub(super) fn source_event(&self, pad: &gst::Pad, event: gst::Event) -> bool {
        gst::log!(CAT, obj = pad, "{event:?}");
        if let Some(running) = self.running() {
            match event.view() {
                gst::EventView::Qos(qos) => {
                    let (_, _, diff, timestamp) = qos.get();
                    running.queue.set_earliest(earliest(timestamp, diff));
                }
                // Something new is linked: it may take what was refused before.
                gst::EventView::Reconfigure(_) => self.accept_again(&running),
                _ => {}
            }
        }
        gst::Pad::event_default(pad, Some(&*self.obj()), event)
    }

    pub(super) fn accept_again(&self, running: &Running) {
        self.reset_flows();
        running.queue.accept();
        // Not while the pads are inactive; then the task is started when they become active.
        if self.srcpad.is_active() {
            let _ = self.start_source_task();
        }
    }

    pub(super) fn source_query(&self, pad: &gst::Pad, query: &mut gst::QueryRef) -> bool {
        match query.view_mut() {
            gst::QueryViewMut::Latency(query) => self.answer_latency(query),
            gst::QueryViewMut::Caps(query) => {
                let output = self.running().map_or_else(|| self.settings().output, |running| running.output);
                let allowed = self.allowed_on_source(pad, output);
                query.set_result(&filtered(allowed, query.filter()));
                true
            }
            _ => gst::Pad::query_default(pad, Some(&*self.obj()), query),
        }
    }

    /// Caps that can come out given what comes in.
    pub(super) fn allowed_on_source(&self, pad: &gst::Pad, output: OutputChoice) -> gst::Caps {
        let upstream = self.sinkpad.peer_query_caps(Some(&self.sinkpad.pad_template_caps()));
        caps::forward(output, &upstream)
            .intersect_with_mode(&pad.pad_template_caps(), gst::CapsIntersectMode::First)
    }

    /// Upstream's latency and ours. An unbounded maximum stays unbounded.
    pub(super) fn answer_latency(&self, query: &mut gst::query::Latency) -> bool {
        let mut upstream = gst::query::Latency::new();
        if !self.sinkpad.peer_query(&mut upstream) {
            return false;
        }
        let (live, min, max) = upstream.result();
        let own = self.running().map_or(gst::ClockTime::ZERO, |running| {
            running.latency.set_upstream(live, min);
            running.latency.own()
        });
        query.set(live, min + own, max.map(|max| max + own));
        true
    }

    fn update_measured_latency(&self, running: &Running) {
        let rate_is_known =
            running.input().shape.as_ref().is_some_and(|shape| shape.video_info.fps().numer() != 0);
        if !rate_is_known {
            let mean = running.timings().mean();
            if running.latency.measured(mean) {
                self.post_latency();
            }
        }
    }

    pub(super) fn post_latency(&self) {
        let element = self.obj();
        let _ = element.post_message(gst::message::Latency::builder().src(&*element).build());
    }
}

/// The running time before which frames aren't worth inference, from a quality-of-service event. A frame that was
/// late by `diff` means that as much time again is lost before the next one.
fn earliest(timestamp: Option<gst::ClockTime>, diff: i64) -> Option<std::time::Duration> {
    let timestamp = timestamp?;
    let late = gst::ClockTime::from_nseconds(u64::try_from(diff).ok()?);
    timestamp.checked_add(late * 2).map(std::time::Duration::from)
}
