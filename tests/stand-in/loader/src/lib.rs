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
    built("sapiens-stand-in")
}

/// The library of a package that was built with this test.
fn built(package: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap_or_default();
    let library = test.with_file_name(format!("lib{}.so", package.replace('-', "_")));
    assert!(library.exists(), "{} is not there: cargo build -p {package}", library.display());
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
    use std::sync::Once;

    static OPENED: Once = Once::new();
    OPENED.call_once(|| {
        if wants_card() {
            return;
        }
        if std::env::var_os("SAPIENS_STAND_IN_CAPABILITY").is_none() {
            // SAFETY: all tests come here first, and nobody reads the environment meanwhile.
            unsafe { std::env::set_var("SAPIENS_STAND_IN_CAPABILITY", CAPABILITIES) };
        }
        open_library(&library());
    });
}

/// Opens the stand-in for cuBLASLt, so that whoever looks for that from now on finds it; does nothing where tests are to run on a
/// card.
///
/// # Panics
/// If it isn't there or can't be opened.
#[cfg(target_os = "linux")]
pub fn open_cublaslt() {
    open();
    if !wants_card() {
        open_library(&built("sapiens-stand-in-cublaslt"));
    }
}

#[cfg(target_os = "linux")]
fn open_library(library: &std::path::Path) {
    use std::os::unix::ffi::OsStrExt;

    let path = std::ffi::CString::new(library.as_os_str().as_bytes()).unwrap_or_default();
    // SAFETY: the library is ours.
    let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
    assert!(!handle.is_null(), "{} can't be opened", library.display());
}
