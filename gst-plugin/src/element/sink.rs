//! The sink pad: frames are admitted and submitted, serialized events and queries take their place among them.

use std::sync::Arc;
use std::time::Duration;

use glib::subclass::prelude::*;
use gst::prelude::*;
use gst_video::VideoInfo;
use sapiens_model::Frame;

use super::imp::{CAT, SapiensSeg};
use super::running::{Framed, Payload, Running, lock};
use super::source::sticky_events;
use super::{OutputChoice, caps};
use crate::formats::{self, MappedFrame};
use crate::queue::{Admission, Closed, FrameTimes, Refused};
use crate::render::Shape;

impl SapiensSeg {
    pub(super) fn sink_chain(&self, buffer: gst::Buffer) -> Result<gst::FlowSuccess, gst::FlowError> {
        let running = self.running().ok_or(gst::FlowError::Flushing)?;
        let (framed, times) = self.framed(&running, buffer)?;
        if framed.shape.on_cuda {
            self.follow(&running, &framed)?;
        }
        match running.queue.admit(times) {
            Err(closed) => Err(answered(&running, closed)),
            Ok(Admission::Drop(why)) => {
                gst::debug!(CAT, imp = self, "frame dropped: {why:?}");
                self.post_qos(&framed);
                Ok(gst::FlowSuccess::Ok)
            }
            Ok(Admission::Reuse(permit, why)) => {
                gst::trace!(CAT, imp = self, "frame not inferred: {why:?}");
                permit
                    .commit(Payload::Frame(framed))
                    .map_err(|refused| answered(&running, refused.closed))?;
                Ok(gst::FlowSuccess::Ok)
            }
            Ok(Admission::Infer(permit)) => {
                let submitted =
                    self.mapped(&running, &framed).and_then(|frame| running.segmenter().submit_boxed(frame));
                submitted.map_err(|error| {
                    gst::element_imp_error!(self, gst::StreamError::Failed, ("{error}"));
                    gst::FlowError::Error
                })?;
                permit
                    .commit(Payload::Frame(framed))
                    .map_err(|refused| answered(&running, refused.closed))?;
                Ok(gst::FlowSuccess::Ok)
            }
        }
    }

    fn mapped(&self, running: &Running, framed: &Framed) -> sapiens_model::Result<Box<dyn Frame>> {
        let Shape { video_info, frame_info, on_cuda } = &*framed.shape;
        if *on_cuda {
            return self.map_cuda(running, framed);
        }
        Ok(Box::new(MappedFrame::new(framed.buffer.clone(), video_info, *frame_info)?))
    }

    fn framed(&self, running: &Running, buffer: gst::Buffer) -> Result<(Framed, FrameTimes), gst::FlowError> {
        let input = running.input();
        let Some(shape) = input.shape.clone() else {
            gst::element_imp_error!(self, gst::CoreError::Negotiation, ("a frame came before its caps"));
            return Err(gst::FlowError::NotNegotiated);
        };
        let running_time = input.segment.to_running_time(buffer.pts());
        // A live frame that doesn't say when it's for is for now.
        let due = running_time.or_else(|| self.obj().current_running_time());
        let times = FrameTimes {
            pts: buffer.pts().map(Duration::from),
            running_time: running_time.map(Duration::from),
            deadline: due.and_then(|time| running.latency.deadline(time)),
        };
        let stream_time = input.segment.to_stream_time(buffer.pts());
        Ok((Framed { buffer, shape, running_time, stream_time }, times))
    }

    /// Answers with a flow, since a `false` is an error to upstream even where the pad only flushes.
    pub(super) fn sink_event(
        &self,
        pad: &gst::Pad,
        event: gst::Event,
    ) -> Result<gst::FlowSuccess, gst::FlowError> {
        gst::log!(CAT, obj = pad, "{event:?}");
        let Some(running) = self.running() else { return self.default_event(pad, event) };
        match event.view() {
            gst::EventView::FlushStart(_) => {
                self.push_everywhere(&event);
                self.flush(&running);
                return Ok(gst::FlowSuccess::Ok);
            }
            gst::EventView::FlushStop(_) => return self.end_flush(&running, &event),
            gst::EventView::Caps(given) => {
                let caps = self.accept_caps(&running, given.caps()).ok_or(gst::FlowError::NotNegotiated)?;
                return self
                    .pass_event(&running, gst::event::Caps::builder(&caps).seqnum(event.seqnum()).build());
            }
            gst::EventView::Segment(segment) => {
                let Ok(segment) = segment.segment().clone().downcast::<gst::ClockTime>() else {
                    gst::element_imp_error!(
                        self,
                        gst::StreamError::Format,
                        ("a segment in another format than time")
                    );
                    return Err(gst::FlowError::Error);
                };
                running.input().segment = segment;
                self.reopen(&running);
            }
            gst::EventView::StreamStart(_) => {
                running.input().eos = false;
                self.reopen(&running);
            }
            gst::EventView::Eos(_) => running.input().eos = true,
            _ => {}
        }
        if event.is_serialized() { self.pass_event(&running, event) } else { self.default_event(pad, event) }
    }

    fn default_event(&self, pad: &gst::Pad, event: gst::Event) -> Result<gst::FlowSuccess, gst::FlowError> {
        let forwarded = gst::Pad::event_default(pad, Some(&*self.obj()), event);
        if forwarded { Ok(gst::FlowSuccess::Ok) } else { Err(gst::FlowError::Error) }
    }

    fn end_flush(&self, running: &Running, event: &gst::Event) -> Result<gst::FlowSuccess, gst::FlowError> {
        // Frames in flight give their buffers back first: upstream may be about to change its pool.
        running.queue.wait_idle();
        self.push_everywhere(event);
        {
            let mut input = running.input();
            (input.eos, input.told) = (false, false);
            input.segment = gst::FormattedSegment::new();
        }
        self.reset_flows();
        self.start_tasks(running).map_err(|_| gst::FlowError::Error)?;
        Ok(gst::FlowSuccess::Ok)
    }

    /// Drops what is queued. Sticky events stay with the pads, but for those that a flush ends: upstream has sent
    /// them and won't again.
    fn flush(&self, running: &Running) {
        let payloads: Vec<_> = running.queue.start_flush().into_payloads().collect();
        running.segmenter().cancel_pending();
        self.close_mask();
        self.pause_tasks();
        let mut sticky = std::mem::take(&mut *lock(&self.stranded));
        sticky.extend(sticky_events(&payloads));
        drop(payloads);
        for event in sticky {
            if !matches!(event.type_(), gst::EventType::Segment | gst::EventType::Eos) {
                let _ = self.srcpad.store_sticky_event(&event);
            }
        }
    }

    /// Where downstream had enough of what came before, it may want what comes now.
    fn reopen(&self, running: &Running) {
        if running.queue.closed() == Some(Closed::Flow(gst::FlowError::Eos)) {
            self.accept_again(running);
        }
    }

    /// Queues an event.
    fn pass_event(&self, running: &Running, event: gst::Event) -> Result<gst::FlowSuccess, gst::FlowError> {
        let mut stranded = lock(&self.stranded);
        let (event, closed) = match running.queue.pass(Payload::Event(event)) {
            Ok(()) => return Ok(gst::FlowSuccess::Ok),
            Err(Refused { payload: Payload::Event(event), closed }) if event.is_sticky() => (event, closed),
            Err(refused) => return Err(answered(running, refused.closed)),
        };
        let Closed::Flow(flow) = closed else { return Err(gst::FlowError::Flushing) };
        // Once downstream takes frames again it must know what they are.
        let ends = event.type_() == gst::EventType::Eos;
        stranded.push(event);
        drop(stranded);
        if ends {
            self.report_if_nobody_knows(running, flow);
        }
        self.start_source_task().map_err(|_| gst::FlowError::Error)?;
        Ok(gst::FlowSuccess::Ok)
    }

    /// Takes over the caps of the frames to come; gives the caps that they come out with.
    fn accept_caps(&self, running: &Running, given: &gst::CapsRef) -> Option<gst::Caps> {
        let info = VideoInfo::from_caps(given).ok().filter(|info| !info.is_interlaced());
        let shape = info.and_then(|video_info| {
            let frame_info = formats::frame_info(&video_info)?;
            Some(Shape { video_info, frame_info, on_cuda: caps::on_cuda(given) })
        });
        let caps = caps::forward(running.output, given);
        let Some(shape) = shape.filter(|_| caps.is_fixed()) else {
            gst::error!(CAT, imp = self, "caps {given} don't go with output {:?}", running.output);
            return None;
        };
        let news = running.latency.set_rate(shape.video_info.fps());
        running.input().shape = Some(Arc::new(shape));
        self.ask_upstream_latency(running);
        if news {
            self.post_latency();
        }
        Some(caps)
    }

    /// Finds out whether the pipeline is live before the first frame asks.
    fn ask_upstream_latency(&self, running: &Running) {
        let mut query = gst::query::Latency::new();
        if self.sinkpad.peer_query(&mut query) {
            let (live, min, _) = query.result();
            running.latency.set_upstream(live, min);
        }
    }

    pub(super) fn sink_query(&self, pad: &gst::Pad, query: &mut gst::QueryRef) -> bool {
        let output = self.running().map_or_else(|| self.settings().output, |running| running.output);
        let serialized = query.is_serialized();
        match query.view_mut() {
            gst::QueryViewMut::Caps(query) => {
                let allowed = self.allowed_on_sink(output);
                query.set_result(&filtered(allowed, query.filter()));
                true
            }
            gst::QueryViewMut::AcceptCaps(query) => {
                let allowed = self.allowed_on_sink(output);
                let accepted = query.caps().can_intersect(&allowed);
                if !accepted {
                    gst::info!(CAT, imp = self, "{output:?} takes {allowed}, not {}", query.caps());
                    if let Some(hint) = self.memory_hint(query.caps(), &allowed) {
                        gst::warning!(CAT, imp = self, "{hint}");
                    }
                }
                query.set_result(accepted);
                true
            }
            gst::QueryViewMut::Context(context) => {
                self.answer_context(context) || gst::Pad::query_default(pad, Some(&*self.obj()), query)
            }
            gst::QueryViewMut::Allocation(_) => self.wait_turn() && self.answer_allocation(output, query),
            _ if serialized => {
                // Everything before it first, and then straight on from this thread: nothing can come between.
                self.wait_turn() && self.srcpad.peer_query(query)
            }
            _ => gst::Pad::query_default(pad, Some(&*self.obj()), query),
        }
    }

    /// Waits until what came before has been pushed; false if it never will be.
    pub(super) fn wait_turn(&self) -> bool {
        let Some(running) = self.running() else { return false };
        let (passed, turn) = crossbeam::channel::bounded(1);
        // A flush drops the barrier, and with it the only sender.
        running.queue.pass(Payload::Barrier(passed)).is_ok() && turn.recv().is_ok()
    }

    fn allowed_on_sink(&self, output: OutputChoice) -> gst::Caps {
        let downstream = self.srcpad.peer_query_caps(None);
        let mode = gst::CapsIntersectMode::First;
        let taken = caps::sink(self.takes_cuda());
        let allowed = caps::backward(output, &downstream).intersect_with_mode(&taken, mode);
        // Masks have the frames' size, so that whoever takes them has a say in it.
        match self.mask_pad() {
            Some(mask) => {
                let masks = caps::backward(OutputChoice::Mask, &mask.pad.peer_query_caps(None));
                allowed.intersect_with_mode(&masks, mode)
            }
            None => allowed,
        }
    }

    /// What to do about frames in another memory than those that are allowed; none if that isn't it.
    fn memory_hint(&self, given: &gst::CapsRef, allowed: &gst::CapsRef) -> Option<String> {
        let on_cuda = caps::on_cuda(given);
        if on_cuda && !self.takes_cuda() {
            let runs = self.running().map(|running| format!(", and {} runs", running.segmenter().backend()));
            return Some(format!(
                "frames in CUDA memory are taken by the kernels with device=cuda{}: put cudadownload in front",
                runs.unwrap_or_default()
            ));
        }
        let elsewhere = !allowed.is_empty()
            && allowed.iter_with_features().all(|(_, features)| formats::is_cuda(features) != on_cuda);
        elsewhere.then(|| match on_cuda {
            true => "frames come in CUDA memory, and what is behind takes the machine's: put cudadownload there",
            false => "frames come in the machine's memory, and what is behind takes CUDA memory: put cudaupload there",
        }
        .to_owned())
    }

    /// Planes may lie anywhere, and frames in flight need buffers of their own.
    fn answer_allocation(&self, output: OutputChoice, query: &mut gst::QueryRef) -> bool {
        let gst::QueryViewMut::Allocation(allocation) = query.view_mut() else { return false };
        let on_cuda = allocation.caps().is_some_and(caps::on_cuda);
        let frames_are_downstreams = match output {
            OutputChoice::Meta => true,
            // On a GPU what is painted is another frame.
            OutputChoice::Overlay => !on_cuda,
            OutputChoice::Mask | OutputChoice::Alpha => false,
        };
        let answered = frames_are_downstreams && self.srcpad.peer_query(query);
        let slots = self.running().map_or(0, |running| running.segmenter().slots());
        let more = u32::try_from(slots).map_or(u32::MAX, |slots| slots.saturating_add(1));
        let gst::QueryViewMut::Allocation(allocation) = query.view_mut() else { return false };
        if answered {
            let pools: Vec<_> = allocation
                .allocation_pools()
                .map(|(pool, size, min, max)| (pool.map(|p| p.to_owned()), size, min, max))
                .collect();
            for (index, (pool, size, min, max)) in pools.into_iter().enumerate() {
                let min = min.saturating_add(more);
                // A pool of a fixed size that is too small is no use; upstream makes one of its own of that size.
                let (pool, max) = if max != 0 && max < min { (None, 0) } else { (pool, max) };
                allocation.set_nth_allocation_pool(index as u32, pool.as_ref(), size, min, max);
            }
        }
        let is_open = allocation.allocation_pools().next().is_none();
        let caps = allocation.caps().filter(|_| is_open).map(|caps| caps.to_owned());
        let info = caps.as_ref().and_then(|caps| VideoInfo::from_caps(caps).ok());
        if let (Some(caps), Some(info)) = (caps, info) {
            let (pool, size) = match self.offer_pool(&caps, more) {
                Some((pool, size)) => (Some(pool), size),
                None => (None, info.size() as u32),
            };
            allocation.add_allocation_pool(pool.as_ref(), size, more, 0);
        }
        if allocation.find_allocation_meta::<gst_video::VideoMeta>().is_none() {
            allocation.add_allocation_meta::<gst_video::VideoMeta>(None);
        }
        true
    }
}

/// What `allowed` leaves of a caps query's filter.
pub(super) fn filtered(allowed: gst::Caps, filter: Option<&gst::CapsRef>) -> gst::Caps {
    match filter {
        Some(filter) => filter.intersect_with_mode(&allowed, gst::CapsIntersectMode::First),
        None => allowed,
    }
}

/// The answer to upstream, which then knows.
pub(super) fn answered(running: &Running, closed: Closed<gst::FlowError>) -> gst::FlowError {
    match closed {
        Closed::Flushing | Closed::Stopped => gst::FlowError::Flushing,
        Closed::Flow(flow) => {
            running.input().told = true;
            flow
        }
    }
}
