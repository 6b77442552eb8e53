//! The element `sapiensseg`: pads, properties and states around a segmenter and a queue.
//!
//! A plain element with its own chain function, queue and source task, since a base class that transforms would let
//! a frame leave only when the next one comes. It talks to [`Segmenter`](sapiens_model::Segmenter) alone and refuses
//! to know what runs behind it.

mod caps;
#[cfg(feature = "cuda")]
mod cuda;
#[cfg(not(feature = "cuda"))]
#[path = "no_cuda.rs"]
mod cuda;
mod imp;
mod mask;
mod messages;
mod outbox;
mod running;
mod settings;
mod sink;
mod source;
mod stats;

use glib::prelude::*;

pub(crate) use imp::CAT;
pub use settings::{BackendChoice, LateChoice, OutputChoice, PrecisionChoice, VariantChoice};

glib::wrapper! {
    /// Labels every pixel of people in video with body parts.
    pub struct SapiensSeg(ObjectSubclass<imp::SapiensSeg>) @extends gst::Element, gst::Object;
}

#[cfg(feature = "fake-engine")]
impl SapiensSeg {
    /// Has the element run what `make` makes instead of the model that its properties name; for tests.
    pub fn set_segmenter(
        &self,
        make: impl Fn() -> sapiens_model::Result<sapiens_model::Segmenter> + Send + Sync + 'static,
    ) {
        use glib::subclass::prelude::*;
        self.imp().set_segmenter(Box::new(make));
    }
}

pub(crate) fn register(plugin: &gst::Plugin) -> Result<(), glib::BoolError> {
    gst::Element::register(Some(plugin), "sapiensseg", gst::Rank::NONE, SapiensSeg::static_type())
}
