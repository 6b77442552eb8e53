//! The GStreamer element `sapiensseg`. Not built yet: the library under it comes first.

pub mod queue;
