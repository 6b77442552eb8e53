//! What the tests of the driver share: the library, opened before cudarc looks for a driver, and children that run a
//! test in an environment of their own.
#![allow(unsafe_code, reason = "the driver's functions are C's")]
#![allow(
    clippy::macro_metavars_in_unsafe,
    reason = "every argument of these macros is a pointer or a number of a test"
)]
#![allow(dead_code, reason = "not every file of tests needs all of it")]

use std::ffi::{CString, c_void};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use cudarc::driver::sys::{self, CUcontext, CUdeviceptr, CUevent, CUstream};

/// The library that was built with these tests.
pub fn library(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let library = test.with_file_name(name);
    assert!(library.exists(), "{} is not there: build it with `cargo build --workspace`", library.display());
    library
}

/// The stand-in, opened so that whoever asks for `libcuda.so` gets it.
fn stand_in() -> *mut c_void {
    static STAND_IN: OnceLock<usize> = OnceLock::new();
    let handle = STAND_IN.get_or_init(|| {
        let path = CString::new(library("libsapiens_stand_in.so").as_os_str().as_bytes()).unwrap();
        // SAFETY: a library of ours, which does nothing when it is opened.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
        assert!(!handle.is_null(), "{path:?} can't be opened");
        handle as usize
    });
    *handle as *mut c_void
}

/// A function of the library.
pub fn function(name: &str) -> *mut c_void {
    let c_name = CString::new(name).unwrap();
    // SAFETY: a library that is open, and a text with its NUL.
    let found = unsafe { libc::dlsym(stand_in(), c_name.as_ptr()) };
    assert!(!found.is_null(), "{name}");
    found
}

/// How much there is of everything.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counts {
    pub allocations: u64,
    pub bytes: u64,
    pub peak_bytes: u64,
    pub streams: u64,
    pub events: u64,
    pub graphs: u64,
    pub graph_execs: u64,
    pub modules: u64,
    pub contexts: u64,
    pub pinned: u64,
    pub leaked: u64,
}

pub fn counts() -> Counts {
    // SAFETY: the function's type in `api/testing.rs`.
    let counts: extern "C" fn(*mut Counts) =
        unsafe { std::mem::transmute(function("sapiens_stand_in_counts")) };
    let mut found = Counts::default();
    counts(&raw mut found);
    found
}

pub fn calls() -> u64 {
    // SAFETY: as above.
    let calls: extern "C" fn() -> u64 = unsafe { std::mem::transmute(function("sapiens_stand_in_calls")) };
    calls()
}

pub fn fail(at: u64) {
    // SAFETY: as above.
    let fail: extern "C" fn(u64) = unsafe { std::mem::transmute(function("sapiens_stand_in_fail")) };
    fail(at);
}

pub fn reset_failures() {
    // SAFETY: as above.
    let reset: extern "C" fn() = unsafe { std::mem::transmute(function("sapiens_stand_in_reset_failures")) };
    reset();
}

/// Calls a function of the driver: its result.
macro_rules! result {
    ($name:ident($($argument:expr),* $(,)?)) => {
        // SAFETY: what the arguments point to outlives the call, and what runs later.
        unsafe { cudarc::driver::sys::$name($($argument),*) }
    };
}

/// Calls a function of the driver that must succeed.
macro_rules! call {
    ($name:ident($($argument:expr),* $(,)?)) => {
        assert_eq!(result!($name($($argument),*)), cudarc::driver::sys::CUresult::CUDA_SUCCESS, stringify!($name))
    };
}

/// Calls a function of the driver whose first argument is where its value goes.
macro_rules! value {
    ($type:ty: $name:ident($($argument:expr),* $(,)?)) => {{
        let mut value = std::mem::MaybeUninit::<$type>::uninit();
        call!($name(value.as_mut_ptr() $(, $argument)*));
        // SAFETY: the function succeeded, so it wrote it.
        unsafe { value.assume_init() }
    }};
}

/// The only user of the driver in this process: its primary context, current to this thread. In the end nothing must
/// be left of what the test made.
pub struct Alone {
    _lock: MutexGuard<'static, ()>,
    pub context: CUcontext,
    /// How many leaks there were before, and are meant to be.
    pub leaked: u64,
}

impl Alone {
    pub fn new() -> Self {
        static LOCK: Mutex<()> = Mutex::new(());
        let lock = LOCK.lock().unwrap_or_else(PoisonError::into_inner);
        stand_in();
        reset_failures();
        let leaked = counts().leaked;
        call!(cuInit(0));
        let context = value!(CUcontext: cuDevicePrimaryCtxRetain(0));
        call!(cuCtxSetCurrent(context));
        Self { _lock: lock, context, leaked }
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        let _ = result!(cuDevicePrimaryCtxRelease_v2(0));
        if !std::thread::panicking() {
            let left = counts();
            let nothing = Counts { peak_bytes: left.peak_bytes, leaked: self.leaked, ..Counts::default() };
            assert_eq!(left, nothing);
        }
    }
}

/// Holds up a stream until it is opened.
pub struct Gate(std::sync::mpsc::Sender<()>);

impl Gate {
    pub fn new(stream: CUstream) -> Self {
        extern "C" fn wait(data: *mut c_void) {
            // SAFETY: the box of below, which comes here once.
            let gate = unsafe { Box::from_raw(data.cast::<std::sync::mpsc::Receiver<()>>()) };
            let _ = gate.recv();
        }
        let (sender, receiver) = std::sync::mpsc::channel();
        call!(cuLaunchHostFunc(stream, Some(wait), Box::into_raw(Box::new(receiver)).cast()));
        Self(sender)
    }

    pub fn open(self) {
        self.0.send(()).unwrap();
    }
}

/// A stream that waits for nobody.
pub fn stream() -> CUstream {
    value!(CUstream: cuStreamCreate(sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32))
}

pub fn event() -> CUevent {
    value!(CUevent: cuEventCreate(0))
}

pub fn allocate(bytes: usize) -> CUdeviceptr {
    value!(CUdeviceptr: cuMemAlloc_v2(bytes))
}

pub fn upload(target: CUdeviceptr, values: &[u32]) {
    call!(cuMemcpyHtoD_v2(target, values.as_ptr().cast(), size_of_val(values)));
    call!(cuCtxSynchronize());
}

pub fn download(source: CUdeviceptr, count: usize) -> Vec<u32> {
    let mut values = vec![0u32; count];
    call!(cuMemcpyDtoH_v2(values.as_mut_ptr().cast(), source, size_of_val(&values[..])));
    values
}

/// Runs a test of this name once more in a process of its own. None in that process.
pub fn child(name: &str, environment: &[(&str, &str)]) -> Option<Output> {
    const CHILD: &str = "SAPIENS_STAND_IN_TEST_CHILD";
    if std::env::var_os(CHILD).is_some() {
        stand_in();
        return None;
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", name, "--nocapture", "--test-threads=1"]).env(CHILD, "1");
    let output = command.envs(environment.iter().copied()).output().unwrap();
    assert!(said(&output).contains("running 1 test"), "{name} is no test: {}", said(&output));
    Some(output)
}

/// Runs a test in a process of its own, where it must pass. True in that process.
pub fn is_child(name: &str, environment: &[(&str, &str)]) -> bool {
    let Some(output) = child(name, environment) else { return true };
    assert!(output.status.success(), "{environment:?}: {}", said(&output));
    false
}

/// All a process said.
pub fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Whether a process touched what it may not.
pub fn faulted(output: &Output) -> bool {
    output.status.signal() == Some(libc::SIGSEGV)
}
