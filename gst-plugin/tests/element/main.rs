//! The element in harnesses and pipelines, on the fake engine: scripted labels, delays and failures.
//!
//! Run with `G_DEBUG=fatal-criticals`, so that a critical warning of GLib or GStreamer ends the test.

mod bare;
mod common;
mod formats;
mod frames;
mod latency;
mod lifecycle;
mod live;
mod live_rig;
mod mask;
mod negotiation;
mod pictures;
mod rig;
