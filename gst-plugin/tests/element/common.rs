//! Ways to make elements on the fake engine, frames with known pixels, and to look at what comes out.

use std::sync::Once;
use std::time::Duration;

use gst::prelude::*;
use gstsapiensseg::SapiensSeg;
use sapiens_model::engine::fake::{self, Outcome, Turn};
use sapiens_model::{ModelCard, Segmenter, Variant};

/// GStreamer and the plugin, once.
pub fn init() {
    static INIT: Once = Once::new();
    INIT.call_once(|| {
        gst::init().unwrap();
        gstsapiensseg::plugin_register_static().unwrap();
    });
}

/// A turn that takes `milliseconds` and comes to `outcome`.
pub fn turn(milliseconds: u64, outcome: Outcome) -> Turn {
    Turn { delay: Duration::from_millis(milliseconds), outcome }
}

/// An element whose segmenter of `slots` slots follows `script`, called with each frame's number. Each time the
/// element starts, the script starts over with a clone.
pub fn element_of(
    slots: usize,
    script: impl FnMut(usize) -> Turn + Clone + Send + Sync + 'static,
) -> SapiensSeg {
    init();
    let element = gst::ElementFactory::make("sapiensseg").build().unwrap().downcast::<SapiensSeg>().unwrap();
    element.set_segmenter(move || {
        let engine = fake::engine(slots, Box::new(script.clone()))?;
        Ok(Segmenter::with_engine(ModelCard::of(Variant::Sapiens1b), engine))
    });
    element
}

/// An element of two slots that labels each pixel with its green value over 16, at once.
pub fn green_element() -> SapiensSeg {
    element_of(2, |_| turn(0, Outcome::GreenOver16))
}
