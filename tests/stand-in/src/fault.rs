//! Says what was touched when the process is about to end because something touched memory that it may not.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::io::Write;
use std::sync::{MutexGuard, OnceLock};

use crate::driver::{Driver, State};

thread_local! {
    /// Address and length of the name of the kernel that this thread runs.
    static KERNEL: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
}

/// What happened on a fault before.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

/// Runs a kernel of this name.
pub fn named<T>(name: &str, run: impl FnOnce() -> T) -> T {
    KERNEL.set((name.as_ptr() as usize, name.len()));
    let result = run();
    KERNEL.set((0, 0));
    result
}

/// From now on faults are explained. What happened before happens afterwards.
pub fn explain() {
    BEFORE.get_or_init(|| {
        // SAFETY: all bytes zero are such a value.
        let (mut before, mut action): (libc::sigaction, libc::sigaction) = unsafe { std::mem::zeroed() };
        action.sa_sigaction = on_fault as *const () as usize;
        // On the stack that the standard library made for this: the thread's own may be what ended.
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        // SAFETY: a handler that allocates nothing and waits for nothing, and a place for the one before.
        unsafe { libc::sigaction(libc::SIGSEGV, &raw const action, &raw mut before) };
        before
    });
}

/// The driver's state, unless it can't be had: whoever is at it may be this thread.
fn state() -> Option<MutexGuard<'static, State>> {
    (0..10_000).find_map(|_| {
        std::thread::yield_now();
        Driver::get().try_state()
    })
}

extern "C" fn on_fault(_signal: c_int, info: *mut libc::siginfo_t, _context: *mut c_void) {
    // SAFETY: the system says why it calls.
    let address = unsafe { (*info).si_addr() } as usize;
    let (name, len) = KERNEL.get();
    // SAFETY: the name of the kernel that runs on this thread, or nothing.
    let name = unsafe {
        std::slice::from_raw_parts(if len == 0 { std::ptr::dangling() } else { name as *const u8 }, len)
    };
    let name = std::str::from_utf8(name).unwrap_or_default();
    let mut text = [0u8; 300];
    let room = text.len();
    let mut rest = &mut text[..];
    let who = if len == 0 { "the host" } else { name };
    // A text that doesn't fit is cut.
    let _ = write!(rest, "stand-in: {who} touched {address:#x}");
    if let Some(found) = state().and_then(|state| state.memory.explain(address)) {
        let _ = write!(rest, ", {found}");
    }
    let _ = writeln!(rest);
    let written = room - rest.len();
    // SAFETY: bytes of this function. If they can't be written there is nothing left to do.
    unsafe { libc::write(2, text.as_ptr().cast(), written) };
    if let Some(before) = BEFORE.get() {
        // SAFETY: what the system gave for the handler before. It gets the same fault once this one returns.
        unsafe { libc::sigaction(libc::SIGSEGV, before, std::ptr::null_mut()) };
    }
}
