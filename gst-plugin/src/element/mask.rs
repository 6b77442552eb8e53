//! The request pad `mask`: the labels as a GRAY8 stream of its own, pushed by a task of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use glib::subclass::prelude::*;
use gst::prelude::*;
use gst::subclass::prelude::*;

use super::imp::{CAT, SapiensSeg};
use super::outbox::Outbox;
use super::running::{Running, lock};
use super::{OutputChoice, caps};
use crate::labels::Labels;
use crate::render::{self, Shape};

/// Masks that wait for the pad's task.
const CAPACITY: usize = 3;

/// The pad, while it's there.
pub(super) struct MaskPad {
    pub pad: gst::Pad,
    outbox: Outbox<Item>,
    /// Whether downstream takes rows without padding.
    packed: AtomicBool,
}

enum Item {
    Buffer(gst::Buffer),
    Event(gst::Event),
}

impl SapiensSeg {
    pub(super) fn mask_pad(&self) -> Option<Arc<MaskPad>> {
        lock(&self.mask).clone()
    }

    /// Makes the pad; none if there is one already.
    pub(super) fn make_mask_pad(&self, template: &gst::PadTemplate) -> Option<gst::Pad> {
        let pad = gst::Pad::builder_from_template(template)
            .name("mask")
            .activatemode_function(|pad, parent, mode, active| {
                let failed = || Err(gst::loggable_error!(CAT, "panic while the mask pad was activated"));
                SapiensSeg::catch_panic_pad_function(parent, failed, |imp| {
                    imp.activate_mask(pad, mode, active)
                })
            })
            .event_function(|pad, parent, event| {
                SapiensSeg::catch_panic_pad_function(parent, || false, |imp| imp.mask_event(pad, event))
            })
            .query_function(|pad, parent, query| {
                SapiensSeg::catch_panic_pad_function(parent, || false, |imp| imp.mask_query(pad, query))
            })
            .build();
        {
            let mut mask = lock(&self.mask);
            if mask.is_some() {
                return None;
            }
            *mask = Some(Arc::new(MaskPad {
                pad: pad.clone(),
                outbox: Outbox::new(CAPACITY),
                packed: AtomicBool::new(false),
            }));
        }
        self.flows().add_pad(&pad);
        let element = self.obj();
        if element.current_state() >= gst::State::Paused || element.pending_state() >= gst::State::Paused {
            // Without a parent yet, so the pad's functions can't be called: activated once it's added.
            let _ = pad.set_active(true);
        }
        if element.add_pad(&pad).is_err() {
            self.drop_mask_pad();
            return None;
        }
        Some(pad)
    }

    pub(super) fn release_mask_pad(&self, pad: &gst::Pad) {
        let _ = pad.set_active(false);
        self.drop_mask_pad();
        let _ = self.obj().remove_pad(pad);
    }

    fn drop_mask_pad(&self) {
        let Some(mask) = lock(&self.mask).take() else { return };
        mask.outbox.close();
        self.flows().remove_pad(&mask.pad);
    }

    fn activate_mask(
        &self,
        pad: &gst::Pad,
        mode: gst::PadMode,
        active: bool,
    ) -> Result<(), gst::LoggableError> {
        if mode != gst::PadMode::Push {
            return Err(gst::loggable_error!(CAT, "the mask pad pushes: mode {mode:?} asked for"));
        }
        if active {
            self.start_mask_task().map_err(Into::into)
        } else {
            self.close_mask();
            pad.stop_task().map_err(Into::into)
        }
    }

    pub(super) fn start_mask_task(&self) -> Result<(), glib::BoolError> {
        let Some(mask) = self.mask_pad() else { return Ok(()) };
        mask.outbox.open();
        let weak = self.obj().downgrade();
        mask.pad.start_task(move || {
            if let Some(element) = weak.upgrade() {
                element.imp().catch_panic(|| element.imp().close_mask(), |imp| imp.mask_loop());
            }
        })
    }

    /// Wakes whoever waits at the pad's outbox; what is in it is dropped.
    pub(super) fn close_mask(&self) {
        if let Some(mask) = self.mask_pad() {
            mask.outbox.close();
        }
    }

    fn mask_loop(&self) {
        let Some(mask) = self.mask_pad() else { return };
        match mask.outbox.pop() {
            None => {
                let _ = mask.pad.pause_task();
            }
            Some(Item::Event(event)) => {
                let caps = match event.view() {
                    gst::EventView::Caps(caps) => Some(caps.caps_owned()),
                    _ => None,
                };
                mask.pad.push_event(event);
                if let Some(caps) = caps {
                    mask.packed.store(takes_any_stride(&mask.pad, &caps), Ordering::Relaxed);
                }
            }
            Some(Item::Buffer(buffer)) => {
                let flow = mask.pad.push(buffer);
                if let Some(running) = self.running() {
                    self.combine(&running, &mask.pad, flow);
                }
            }
        }
    }

    /// Hands the labels to the pad's task.
    pub(super) fn push_mask(
        &self,
        running: &Running,
        frame: &gst::BufferRef,
        shape: &Shape,
        labels: Option<&Arc<Labels>>,
    ) -> Result<(), String> {
        let Some(mask) = self.mask_pad() else { return Ok(()) };
        self.catch_up(running, &mask);
        let packed = mask.packed.load(Ordering::Relaxed);
        let buffer = render::mask(frame, shape, labels, packed).map_err(|error| error.to_string())?;
        mask.outbox.push(Item::Buffer(buffer));
        Ok(())
    }

    pub(super) fn push_mask_event(&self, running: &Running, event: &gst::Event) {
        let Some(mask) = self.mask_pad() else { return };
        self.catch_up(running, &mask);
        if let Some(event) = self.for_mask(&mask.pad, event) {
            mask.outbox.push(Item::Event(event));
        }
    }

    /// A pad that came while the stream ran is told what the stream is.
    fn catch_up(&self, _running: &Running, mask: &MaskPad) {
        let mut told = lock(&self.mask_told);
        if told.as_ref() == Some(&mask.pad) {
            return;
        }
        *told = Some(mask.pad.clone());
        drop(told);
        self.srcpad.sticky_events_foreach(|event| {
            if event.type_() != gst::EventType::Eos {
                if let Some(event) = self.for_mask(&mask.pad, event) {
                    mask.outbox.push(Item::Event(event));
                }
            }
            std::ops::ControlFlow::Continue(gst::EventForeachAction::Keep)
        });
    }

    /// The event as the mask's stream has it.
    fn for_mask(&self, pad: &gst::Pad, event: &gst::Event) -> Option<gst::Event> {
        match event.view() {
            gst::EventView::StreamStart(start) => {
                let id = pad.create_stream_id(&*self.obj(), Some("mask"));
                let builder =
                    gst::event::StreamStart::builder(&id).seqnum(event.seqnum()).flags(start.stream_flags());
                Some(builder.group_id_if_some(start.group_id()).build())
            }
            gst::EventView::Caps(given) => {
                let caps = caps::forward(OutputChoice::Mask, given.caps());
                caps.is_fixed().then(|| gst::event::Caps::builder(&caps).seqnum(event.seqnum()).build())
            }
            _ => Some(event.clone()),
        }
    }

    fn mask_event(&self, pad: &gst::Pad, event: gst::Event) -> bool {
        match event.view() {
            // The frames' branch says what is late.
            gst::EventView::Qos(_) => true,
            gst::EventView::Reconfigure(_) => {
                if let Some(running) = self.running() {
                    self.accept_again(&running);
                }
                true
            }
            _ => gst::Pad::event_default(pad, Some(&*self.obj()), event),
        }
    }

    fn mask_query(&self, pad: &gst::Pad, query: &mut gst::QueryRef) -> bool {
        match query.view_mut() {
            gst::QueryViewMut::Latency(query) => self.answer_latency(query),
            gst::QueryViewMut::Caps(query) => {
                let allowed = self.allowed_on_source(pad, OutputChoice::Mask);
                query.set_result(&super::sink::filtered(allowed, query.filter()));
                true
            }
            _ => gst::Pad::query_default(pad, Some(&*self.obj()), query),
        }
    }
}

/// Whether what is downstream of `pad` takes frames of `caps` with any stride.
pub(super) fn takes_any_stride(pad: &gst::Pad, caps: &gst::Caps) -> bool {
    let mut query = gst::query::Allocation::new(Some(caps), false);
    pad.peer_query(&mut query) && query.find_allocation_meta::<gst_video::VideoMeta>().is_some()
}
