//! Functions that no driver has, for tests in the same process.

use std::ffi::{CStr, c_char};

use crate::driver::Driver;
use crate::ffi::Out;

/// How much there is of everything.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Counts {
    pub allocations: u64,
    pub bytes: u64,
    pub peak_bytes: u64,
    /// Without default streams.
    pub streams: u64,
    pub events: u64,
    pub graphs: u64,
    pub graph_execs: u64,
    pub modules: u64,
    pub contexts: u64,
    /// Pieces of pinned memory, whether allocated or registered.
    pub pinned: u64,
    /// Things that were still there when their context was destroyed.
    pub leaked: u64,
}

#[unsafe(no_mangle)]
extern "C" fn sapiens_stand_in_counts(counts: Out<Counts>) {
    let state = Driver::get().state();
    let (allocations, pinned) = state.memory.count();
    counts.set_if_wanted(Counts {
        allocations: allocations as u64,
        bytes: state.memory.used(|_| true) as u64,
        peak_bytes: state.memory.peak as u64,
        streams: (state.streams.len() - state.contexts.len()) as u64,
        events: state.events.len() as u64,
        graphs: state.graphs.len() as u64,
        graph_execs: state.execs.len() as u64,
        modules: state.modules.len() as u64,
        contexts: state.contexts.len() as u64,
        pinned: pinned as u64,
        leaked: state.leaked as u64,
    });
}

/// How many calls there were.
#[unsafe(no_mangle)]
extern "C" fn sapiens_stand_in_calls() -> u64 {
    Driver::get().calls.made()
}

/// Makes the call of this number fail; the next one's is one more than there were.
#[unsafe(no_mangle)]
extern "C" fn sapiens_stand_in_fail(at: u64) {
    Driver::get().calls.fail_at(at);
}

/// Of every so many calls of a function from now on, the one of this number, from 0, does nothing and succeeds.
#[unsafe(no_mangle)]
extern "C" fn sapiens_stand_in_leave_out(name: *const c_char, every: u64, number: u64) {
    // SAFETY: a text with a zero at its end.
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned();
    Driver::get().calls.leave_out(name, every, number);
}

/// Makes no call fail, whatever the environment says.
#[unsafe(no_mangle)]
extern "C" fn sapiens_stand_in_reset_failures() {
    Driver::get().calls.reset_failures();
}
