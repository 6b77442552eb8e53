//! The functions that C calls.

mod context;
mod copy;
mod device;
mod event;
mod graph;
mod launch;
mod lookup;
mod memory;
mod module;
mod stream;
mod testing;
mod unsupported;
