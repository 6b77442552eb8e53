//! The element in harnesses and pipelines, on the fake engine: scripted labels, delays and failures.
//!
//! Run with `G_DEBUG=fatal-criticals`, so that a critical warning of GLib or GStreamer ends the test.

// Not only tests unwrap but what they have in common, and they say what they measured.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

mod bare;
mod common;
mod errors;
mod flush;
mod formats;
mod frames;
mod latency;
mod lifecycle;
mod live;
mod live_rig;
mod mask;
mod messages;
mod meta;
mod negotiation;
mod pictures;
mod stream;
