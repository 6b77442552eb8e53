//! Between the sink pad and the source pads: frames in flight, and the events and queries between them, in order.
//!
//! Three threads of the element meet here. The sink pad's streaming thread has each frame admitted, submits it for
//! inference and commits it; serialized events and queries it passes on as they are. A thread of the element's own
//! waits for results and hands each to the queue. The source pad's task takes the head of the queue when its labels
//! are there or, in a live pipeline, when its time has come, and pushes it.
//!
//! ```text
//! chain: admit -> submit -> commit --> [ frame | event | frame ] --> next -> attach -> push: task
//!                                         ^
//!                     ticket -> receive -> complete: labels thread
//! ```
//!
//! The queue knows neither GStreamer nor engines nor what labels are; time is a clock it is given.

mod monitor;
mod state;
mod sync;
mod types;

#[cfg(test)]
#[cfg(loom)]
mod loom_tests;
#[cfg(test)]
#[cfg(not(loom))]
mod tests;

pub use monitor::{Admission, Clock, Permit, Queue, Ticket};
pub use types::{
    Closed, Drained, FrameTimes, Kinds, LabelledFrame, Late, Next, Refused, Settings, Stamped, Stats, Why,
};
