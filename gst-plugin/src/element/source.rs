//! The src pad: its task takes the head of the queue, puts the labels on it, and pushes it.

use std::sync::atomic::Ordering;

use glib::subclass::prelude::*;
use gst::prelude::*;
use gst::subclass::prelude::*;

use super::imp::{CAT, SapiensSeg};
use super::messages::Leaving;
use super::running::{Framed, Payload, Running, Traffic, lock};
use super::sink::filtered;
use super::{OutputChoice, caps};
use crate::queue::{Closed, LabelledFrame, Next};
use crate::{formats, meta, render};

impl SapiensSeg {
    /// Starts the src pad's task, if the pad is active.
    pub(super) fn start_source_task(&self) -> Result<(), glib::BoolError> {
        let active = lock(&self.active);
        if !active.source {
            return Ok(());
        }
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

    /// Pauses the task until there is something to push. Whoever opened the queue since the task last looked found
    /// the task still running, so it looks again once it's paused.
    fn pause_source_task(&self, running: &Running) {
        let _ = self.srcpad.pause_task();
        let more = match running.queue.closed() {
            None => true,
            Some(Closed::Flow(_)) => !lock(&self.stranded).is_empty(),
            Some(Closed::Flushing | Closed::Stopped) => false,
        };
        if more {
            let _ = self.start_source_task();
        }
    }

    fn source_loop(&self) {
        let Some(running) = self.running() else {
            let _ = self.srcpad.pause_task();
            return;
        };
        let stranded = std::mem::take(&mut *lock(&self.stranded));
        for event in stranded {
            self.forward_event(&running, event);
        }
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
                self.fail(&running, gst::LibraryError::Failed, &failure.to_string());
            }
            Next::Closed(closed) => {
                gst::debug!(CAT, imp = self, "task pauses: {closed:?}");
                self.pause_source_task(&running);
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

        let rendered = self.push_mask(&buffer, &shape, labels.as_ref()).and_then(|()| {
            if running.output == OutputChoice::Mask {
                if self.srcpad.check_reconfigure() {
                    // Something else may be linked, which knows of no strides.
                    self.ask_source_allocation();
                }
                let packed = self.source_takes_any_stride();
                buffer = render::mask(&buffer, &shape, labels.as_ref(), packed)
                    .map_err(|error| error.to_string())?;
            }
            if shape.on_cuda {
                let painted = self.paint_on_cuda(running, &buffer, &shape, labels.as_ref(), &appearance);
                if let Some(painted) = painted.map_err(|error| error.to_string())? {
                    buffer = painted;
                }
            } else {
                let writable = buffer.make_mut();
                render::render(running.output, writable, &shape, labels.as_ref(), &appearance)
                    .map_err(|error| error.to_string())?;
                if running.output == OutputChoice::Alpha
                    && let Some(format) = formats::with_alpha(shape.video_info.format())
                {
                    formats::rename_format(&mut buffer, format).map_err(|error| error.to_string())?;
                }
            }
            if let Some(labels) = &labels {
                let writable = buffer.make_mut();
                meta::attach(writable, &running.model, labels, reused.is_some(), labels_pts)
                    .map_err(|error| error.to_string())?;
            }
            Ok(())
        });
        if let Err(message) = rendered {
            self.fail(running, gst::StreamError::Failed, &message);
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
        let links = self.links.load(Ordering::SeqCst);
        let flow = self.srcpad.push(buffer);
        // Was it linked meanwhile, then that is no longer so, and nobody would say again that it's linked.
        if flow != Err(gst::FlowError::NotLinked) || links == self.links.load(Ordering::SeqCst) {
            self.combine(running, &self.srcpad, flow);
            self.forgive(running, links);
        }
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

    /// Ends the stream with an error of our own.
    fn fail<T: gst::MessageErrorDomain>(&self, running: &Running, code: T, message: &str) {
        gst::element_imp_error!(self, code, ("{message}"));
        running.input().told = true;
        self.refuse(running, gst::FlowError::Error);
    }

    /// Takes a refusal back that was decided on while something new was linked.
    fn forgive(&self, running: &Running, links: u64) {
        let stale = running.queue.closed() == Some(Closed::Flow(gst::FlowError::NotLinked))
            && links != self.links.load(Ordering::SeqCst);
        if stale {
            self.accept_again(running);
        }
    }

    /// Empties the queue, and answers `flow` to frames from now on. What is sticky in it, an end of stream too, is
    /// left to the source task.
    fn refuse(&self, running: &Running, flow: gst::FlowError) {
        let payloads: Vec<_> = {
            let mut stranded = lock(&self.stranded);
            let payloads: Vec<_> = running.queue.refuse(flow).into_payloads().collect();
            stranded.extend(sticky_events(&payloads));
            payloads
        };
        drop(payloads);
        self.report_if_nobody_knows(running, flow);
    }

    /// After the end of its stream upstream won't learn by pushing that downstream took no more; without an error on
    /// the bus the pipeline would wait forever.
    pub(super) fn report_if_nobody_knows(&self, running: &Running, flow: gst::FlowError) {
        if matches!(flow, gst::FlowError::Flushing | gst::FlowError::Eos) {
            return;
        }
        let nobody_knows = {
            let mut input = running.input();
            let nobody_knows = input.eos && !input.told;
            input.told |= nobody_knows;
            nobody_knows
        };
        if nobody_knows {
            gst::element_imp_error!(self, gst::StreamError::Failed, ("downstream takes no more: {flow}"));
        }
    }

    /// Pushes a serialized event on both source pads.
    pub(super) fn forward_event(&self, running: &Running, event: gst::Event) -> bool {
        self.push_mask_event(&event);
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

    /// Takes frames again that were refused before.
    pub(super) fn accept_again(&self, running: &Running) {
        self.reset_flows();
        running.input().told = false;
        self.links.fetch_add(1, Ordering::SeqCst);
        running.queue.accept();
        let _ = self.start_source_task();
    }

    pub(super) fn source_query(&self, pad: &gst::Pad, query: &mut gst::QueryRef) -> bool {
        match query.view_mut() {
            gst::QueryViewMut::Latency(query) => self.answer_latency(query),
            gst::QueryViewMut::Context(context) => {
                self.answer_context(context) || gst::Pad::query_default(pad, Some(&*self.obj()), query)
            }
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
        let cuda = self.takes_cuda();
        let upstream = self.sinkpad.peer_query_caps(Some(&caps::sink(cuda)));
        let mode = gst::CapsIntersectMode::First;
        let possible = caps::forward(output, &upstream).intersect_with_mode(&caps::source(cuda), mode);
        possible.intersect_with_mode(&pad.pad_template_caps(), mode)
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

/// The sticky events among `payloads`. Downstream needs them whatever becomes of the frames between them.
pub(super) fn sticky_events(payloads: &[Payload]) -> impl Iterator<Item = gst::Event> {
    payloads.iter().filter_map(|payload| match payload {
        Payload::Event(event) if event.is_sticky() => Some(event.clone()),
        _ => None,
    })
}

/// The running time before which frames aren't worth inference, from a quality-of-service event. A frame that was
/// late by `diff` means that as much time again is lost before the next one.
fn earliest(timestamp: Option<gst::ClockTime>, diff: i64) -> Option<std::time::Duration> {
    let timestamp = timestamp?;
    let late = gst::ClockTime::from_nseconds(u64::try_from(diff).ok()?);
    timestamp.checked_add(late * 2).map(std::time::Duration::from)
}
