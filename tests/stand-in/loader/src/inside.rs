//! What a test in the same process asks of the stand-in, and tells it.

use std::ffi::{CString, c_char, c_void};

/// A function of the library that was opened as the driver.
///
/// # Panics
/// If there is none of this name.
pub fn function(name: &str) -> *mut c_void {
    let text = CString::new(name).unwrap_or_default();
    // SAFETY: a library that is open already, and texts with their zero.
    let found = unsafe { libc::dlsym(libc::dlopen(c"libcuda.so".as_ptr(), libc::RTLD_NOW), text.as_ptr()) };
    assert!(!found.is_null(), "{name}");
    found
}

/// How many things of each kind there are that somebody has to give back.
pub fn left_over() -> [u64; 11] {
    let mut found = [0; 11];
    // SAFETY: the function writes so many numbers.
    unsafe {
        let counts: extern "C" fn(*mut [u64; 11]) = std::mem::transmute(function("sapiens_stand_in_counts"));
        counts(&mut found);
    }
    // The most bytes there were at once; and what its context took along because it couldn't be entered to release it.
    (found[2], found[10]) = (0, 0);
    found
}

/// How many calls of the driver there were.
pub fn calls() -> u64 {
    // SAFETY: the function has this type.
    let calls: extern "C" fn() -> u64 = unsafe { std::mem::transmute(function("sapiens_stand_in_calls")) };
    calls()
}

/// Makes the call of this number fail.
pub fn fail_call(at: u64) {
    // SAFETY: the function has this type.
    let fail: extern "C" fn(u64) = unsafe { std::mem::transmute(function("sapiens_stand_in_fail")) };
    fail(at);
}

/// Makes no call fail.
pub fn fail_nothing() {
    // SAFETY: the function has this type.
    let reset: extern "C" fn() = unsafe { std::mem::transmute(function("sapiens_stand_in_reset_failures")) };
    reset();
}

/// Of every so many calls of a function from now on the one of this number, from 0, does nothing and says that all is well.
pub fn leave_out(name: &str, every: u64, number: u64) {
    let text = CString::new(name).unwrap_or_default();
    // SAFETY: the function has this type, and copies the text.
    unsafe {
        let leave_out: extern "C" fn(*const c_char, u64, u64) =
            std::mem::transmute(function("sapiens_stand_in_leave_out"));
        leave_out(text.as_ptr(), every, number);
    }
}

/// All calls do what they should again.
pub fn leave_out_nothing() {
    leave_out("", 1, 1);
}

/// How many products this thread has queued by the stand-in for cuBLASLt.
///
/// # Panics
/// If it isn't open.
pub fn multiplied() -> u64 {
    // SAFETY: libraries that are open already, and a text with its zero.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"sapiens_stand_in_cublaslt_multiplied".as_ptr()) };
    assert!(!found.is_null(), "the stand-in for cuBLASLt isn't open");
    // SAFETY: the function has this type.
    let multiplied: extern "C" fn() -> u64 = unsafe { std::mem::transmute(found) };
    multiplied()
}
