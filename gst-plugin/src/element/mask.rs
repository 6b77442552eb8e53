//! The request pad `mask`: the labels as a GRAY8 stream of its own, pushed by a task of its own.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use glib::subclass::prelude::*;
use gst::prelude::*;
use gst::subclass::prelude::*;

use super::imp::{CAT, SapiensSeg};
use super::outbox::Outbox;
use super::running::lock;
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
    /// Whether it has been told what the stream is since its outbox was opened.
    told: AtomicBool,
    /// Whether its owner has given it up: then what a push comes to is nobody's concern.
    released: AtomicBool,
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
                // A pad of an element that runs is activated before it's added, so it may have no parent yet.
                if parent.is_none() {
                    return Ok(());
                }
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
                told: AtomicBool::new(false),
                released: AtomicBool::new(false),
            }));
        }
        self.flows().add_pad(&pad);
        let element = self.obj();
        let runs =
            element.current_state() >= gst::State::Paused || element.pending_state() >= gst::State::Paused;
        let added = (!runs || pad.set_active(true).is_ok()) && element.add_pad(&pad).is_ok();
        if !added || (runs && self.start_mask_task().is_err()) {
            self.release_mask_pad(&pad);
            return None;
        }
        Some(pad)
    }

    pub(super) fn release_mask_pad(&self, pad: &gst::Pad) {
        // Before the pad flushes: that its branch ends isn't to end the stream.
        self.drop_mask_pad();
        let _ = pad.set_active(false);
        let _ = pad.stop_task();
        if pad.parent().is_some() {
            let _ = self.obj().remove_pad(pad);
        }
    }

    fn drop_mask_pad(&self) {
        let Some(mask) = lock(&self.mask).take() else { return };
        mask.released.store(true, Ordering::SeqCst);
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
        // What was in the outbox when it was closed is lost, sticky events too.
        mask.told.store(false, Ordering::SeqCst);
        mask.outbox.open();
        let element = self.obj().downgrade();
        let weak = Arc::downgrade(&mask);
        mask.pad.start_task(move || {
            if let (Some(element), Some(mask)) = (element.upgrade(), weak.upgrade()) {
                element.imp().catch_panic(|| mask.outbox.close(), |imp| imp.mask_loop(&mask));
            }
        })
    }

    /// Wakes whoever waits at the pad's outbox; what is in it is dropped.
    pub(super) fn close_mask(&self) {
        if let Some(mask) = self.mask_pad() {
            mask.outbox.close();
        }
    }

    fn mask_loop(&self, mask: &MaskPad) {
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
                if mask.pad.check_reconfigure()
                    && let Some(caps) = mask.pad.current_caps()
                {
                    mask.packed.store(takes_any_stride(&mask.pad, &caps), Ordering::Relaxed);
                }
                let flow = mask.pad.push(buffer);
                // A sink that isn't ready yet, or goes away alone, is no reason for frames to stop. Where the whole
                // stream is flushed, upstream says so.
                let matters = flow != Err(gst::FlowError::Flushing) && !mask.released.load(Ordering::SeqCst);
                if let Some(running) = self.running().filter(|_| matters) {
                    self.combine(&running, &mask.pad, flow);
                }
            }
        }
    }

    /// Hands the labels to the pad's task.
    pub(super) fn push_mask(
        &self,
        frame: &gst::BufferRef,
        shape: &Shape,
        labels: Option<&Arc<Labels>>,
    ) -> Result<(), String> {
        let Some(mask) = self.mask_pad() else { return Ok(()) };
        self.catch_up(&mask);
        let packed = mask.packed.load(Ordering::Relaxed);
        let buffer = render::mask(frame, shape, labels, packed).map_err(|error| error.to_string())?;
        mask.outbox.push(Item::Buffer(buffer));
        Ok(())
    }

    pub(super) fn push_mask_event(&self, event: &gst::Event) {
        let Some(mask) = self.mask_pad() else { return };
        self.catch_up(&mask);
        if let Some(event) = self.for_mask(&mask.pad, event) {
            mask.outbox.push(Item::Event(event));
        }
    }

    /// A pad that came while the stream ran, or lost what was on its way in a flush, is told what the stream is.
    fn catch_up(&self, mask: &MaskPad) {
        if mask.told.swap(true, Ordering::SeqCst) {
            return;
        }
        let mut events = Vec::new();
        self.srcpad.sticky_events_foreach(|event| {
            if event.type_() != gst::EventType::Eos {
                events.extend(self.for_mask(&mask.pad, event));
            }
            ControlFlow::Continue(gst::EventForeachAction::Keep)
        });
        for event in events.into_iter().filter(|event| !knows(&mask.pad, event)) {
            mask.outbox.push(Item::Event(event));
        }
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
                // Whatever is linked now may not know of strides; the pad's task asks it.
                if let Some(mask) = self.mask_pad() {
                    mask.packed.store(false, Ordering::Relaxed);
                }
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

/// Whether `pad` has pushed this event.
fn knows(pad: &gst::Pad, event: &gst::Event) -> bool {
    let mut known = false;
    pad.sticky_events_foreach(|old| {
        known |= old.type_() == event.type_()
            && old.seqnum() == event.seqnum()
            && old.structure() == event.structure();
        ControlFlow::Continue(gst::EventForeachAction::Keep)
    });
    known
}

/// Whether what is downstream of `pad` takes frames of `caps` with any stride.
pub(super) fn takes_any_stride(pad: &gst::Pad, caps: &gst::Caps) -> bool {
    let mut query = gst::query::Allocation::new(Some(caps), false);
    pad.peer_query(&mut query) && query.find_allocation_meta::<gst_video::VideoMeta>().is_some()
}
