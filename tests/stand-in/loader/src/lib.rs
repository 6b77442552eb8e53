//! Lets a test process find the stand-in where it looks for NVIDIA's driver.
#![allow(unsafe_code, reason = "a library is opened by its path")]

#[cfg(target_os = "linux")]
pub mod inside;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

/// What the stand-in's devices are if nobody says otherwise: Turing; A100, with much shared memory; GeForce's Ampere, with little.
const CAPABILITIES: &str = "7.5,8.0,8.6";

/// The library that was built with this test.
///
/// # Panics
/// If it isn't there.
pub fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap_or_default();
    let library = test.with_file_name("libsapiens_stand_in.so");
    assert!(library.exists(), "{} is not there: cargo build -p sapiens-stand-in", library.display());
    library
}

static CARD: AtomicBool = AtomicBool::new(false);

/// Lets [`open`] do nothing from now on: checks run on a card.
pub fn want_card() {
    CARD.store(true, Ordering::Relaxed);
}

/// Whether checks are to run on a card: somebody said so, or `SAPIENS_TEST_CUDA` is set.
pub fn wants_card() -> bool {
    CARD.load(Ordering::Relaxed) || std::env::var_os("SAPIENS_TEST_CUDA").is_some()
}

/// Opens the stand-in, so that whoever looks for the driver from now on finds it, with three devices of different
/// capability; does nothing where tests are to run on a card.
///
/// # Panics
/// If it isn't there or can't be opened.
#[cfg(target_os = "linux")]
pub fn open() {
    use std::ffi::CString;
    use std::os::unix::ffi::OsStrExt;
    use std::sync::Once;

    static OPENED: Once = Once::new();
    OPENED.call_once(|| {
        if wants_card() {
            return;
        }
        let library = library();
        let path = CString::new(library.as_os_str().as_bytes()).unwrap_or_default();
        // SAFETY: all tests come here first, and nobody reads the environment meanwhile. The library is ours.
        let handle = unsafe {
            if std::env::var_os("SAPIENS_STAND_IN_CAPABILITY").is_none() {
                std::env::set_var("SAPIENS_STAND_IN_CAPABILITY", CAPABILITIES);
            }
            libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL)
        };
        assert!(!handle.is_null(), "{} can't be opened", library.display());
    });
}
