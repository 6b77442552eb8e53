//! A stand-in for NVIDIA's cuBLASLt, `libcublasLt.so.12`: as much of it as multiplies 16-bit matrices for the networks, on the
//! stand-in for the driver, whose kernel `sapiens_stand_in_matmul` does the work in the caller's stream.
//!
//! It is less forgiving than NVIDIA's: whatever it doesn't know is refused (`CUBLAS_STATUS_INVALID_VALUE`), an algorithm multiplies
//! nothing but the problem that it was found for, addresses must be multiples of what the preference promised, and there is no
//! algorithm for depths that are no multiple of 16, which the caller has to do without.
//!
//! A test opens it by its path before anything else asks for cuBLASLt.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]
#![allow(unsafe_code, non_snake_case, reason = "a library that is called from C, with NVIDIA's names")]

mod driver;
mod problem;

use std::cell::Cell;
use std::ffi::{c_char, c_int, c_void};

use driver::Kernel;
use problem::{Epilogue, Layout, Operation, Preference, Problem};

const SUCCESS: u32 = 0;
const INVALID_VALUE: u32 = 7;
const EXECUTION_FAILED: u32 = 13;
const NOT_SUPPORTED: u32 = 15;

/// What `cublasLtMatmulAlgo_t` is: 64 bytes that only the library understands. Ours are a hash of the problem, and the workspace.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Algorithm([u64; 8]);

/// `cublasLtMatmulHeuristicResult_t`.
#[repr(C)]
pub struct Found {
    algorithm: Algorithm,
    workspace: usize,
    state: u32,
    waves: f32,
    reserved: [c_int; 4],
}

/// What an address is a multiple of, up to 256.
fn alignment_of(address: u64) -> u64 {
    1 << address.trailing_zeros().min(8)
}

/// Bytes of workspace that an algorithm wants where it may have so many.
const WORKSPACE: usize = 4096;

thread_local! {
    static MULTIPLIED: Cell<u64> = const { Cell::new(0) };
}

/// How many products this thread has queued.
#[unsafe(no_mangle)]
extern "C" fn sapiens_stand_in_cublaslt_multiplied() -> u64 {
    MULTIPLIED.get()
}

#[unsafe(no_mangle)]
extern "C" fn cublasLtGetVersion() -> usize {
    120_400
}

#[unsafe(no_mangle)]
extern "C" fn cublasLtGetStatusName(status: u32) -> *const c_char {
    let name = match status {
        SUCCESS => c"CUBLAS_STATUS_SUCCESS",
        INVALID_VALUE => c"CUBLAS_STATUS_INVALID_VALUE",
        EXECUTION_FAILED => c"CUBLAS_STATUS_EXECUTION_FAILED",
        NOT_SUPPORTED => c"CUBLAS_STATUS_NOT_SUPPORTED",
        _ => c"CUBLAS_STATUS_INTERNAL_ERROR",
    };
    name.as_ptr()
}

fn give<T>(to: *mut *mut T, value: T) -> u32 {
    if to.is_null() {
        return INVALID_VALUE;
    }
    // SAFETY: the caller's place for a pointer.
    unsafe { to.write(Box::into_raw(Box::new(value))) };
    SUCCESS
}

fn take_back<T>(value: *mut T) -> u32 {
    if value.is_null() {
        return INVALID_VALUE;
    }
    // SAFETY: `give` made it, and it is given back once.
    drop(unsafe { Box::from_raw(value) });
    SUCCESS
}

fn status(result: Result<(), u32>) -> u32 {
    result.err().unwrap_or(SUCCESS)
}

#[unsafe(no_mangle)]
extern "C" fn cublasLtCreate(handle: *mut *mut Kernel) -> u32 {
    match Kernel::load() {
        Some(kernel) => give(handle, kernel),
        // CUBLAS_STATUS_NOT_INITIALIZED
        None => 1,
    }
}

#[unsafe(no_mangle)]
extern "C" fn cublasLtDestroy(handle: *mut Kernel) -> u32 {
    take_back(handle)
}

#[unsafe(no_mangle)]
extern "C" fn cublasLtMatmulDescCreate(operation: *mut *mut Operation, compute: u32, scale: u32) -> u32 {
    match Operation::new(compute, scale) {
        Some(made) => give(operation, made),
        None => INVALID_VALUE,
    }
}

#[unsafe(no_mangle)]
extern "C" fn cublasLtMatmulDescDestroy(operation: *mut Operation) -> u32 {
    take_back(operation)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtMatmulDescSetAttribute(
    operation: *mut Operation,
    attribute: u32,
    value: *const c_void,
    bytes: usize,
) -> u32 {
    // SAFETY: the caller's, with so many bytes.
    let (operation, bytes) =
        unsafe { (&mut *operation, std::slice::from_raw_parts(value.cast::<u8>(), bytes)) };
    status(operation.set(attribute, bytes).ok_or(INVALID_VALUE))
}

#[unsafe(no_mangle)]
extern "C" fn cublasLtMatrixLayoutCreate(
    layout: *mut *mut Layout,
    kind: u32,
    rows: u64,
    columns: u64,
    stride: i64,
) -> u32 {
    match Layout::new(kind, rows, columns, stride) {
        Some(made) => give(layout, made),
        None => INVALID_VALUE,
    }
}

#[unsafe(no_mangle)]
extern "C" fn cublasLtMatrixLayoutDestroy(layout: *mut Layout) -> u32 {
    take_back(layout)
}

#[unsafe(no_mangle)]
extern "C" fn cublasLtMatmulPreferenceCreate(preference: *mut *mut Preference) -> u32 {
    give(preference, Preference::default())
}

#[unsafe(no_mangle)]
extern "C" fn cublasLtMatmulPreferenceDestroy(preference: *mut Preference) -> u32 {
    take_back(preference)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtMatmulPreferenceSetAttribute(
    preference: *mut Preference,
    attribute: u32,
    value: *const c_void,
    bytes: usize,
) -> u32 {
    // SAFETY: the caller's, with so many bytes.
    let (preference, bytes) =
        unsafe { (&mut *preference, std::slice::from_raw_parts(value.cast::<u8>(), bytes)) };
    status(preference.set(attribute, bytes).ok_or(INVALID_VALUE))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtMatmulAlgoGetHeuristic(
    _handle: *mut Kernel,
    operation: *const Operation,
    a: *const Layout,
    b: *const Layout,
    c: *const Layout,
    d: *const Layout,
    preference: *const Preference,
    asked: c_int,
    found: *mut Found,
    count: *mut c_int,
) -> u32 {
    // SAFETY: all are the caller's and live.
    let (operation, layouts, preference) = unsafe { (*operation, [*a, *b, *c, *d], *preference) };
    let Some(problem) = Problem::new(operation, layouts) else { return INVALID_VALUE };
    // Parts are summed in float32 (2) only; how a bias is aligned decides as the rest does.
    let bias_is_known = operation.epilogue != Epilogue::Bias || operation.bias != 0;
    if asked < 1 || preference.reductions & !2 != 0 || !bias_is_known {
        return INVALID_VALUE;
    }
    if !problem.depth.is_multiple_of(16) {
        return NOT_SUPPORTED;
    }
    let workspace = preference.workspace.min(WORKSPACE as u64) as usize;
    let mut algorithm = Algorithm([0; 8]);
    algorithm.0[0] = problem.hash();
    algorithm.0[1] = workspace as u64;
    for (to, alignment) in algorithm.0[2..6].iter_mut().zip(preference.alignments) {
        *to = u64::from(alignment);
    }
    algorithm.0[6] = alignment_of(operation.bias);
    // SAFETY: the caller's, at least one.
    unsafe {
        found.write(Found { algorithm, workspace, state: SUCCESS, waves: 1.0, reserved: [0; 4] });
        count.write(1);
    }
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtMatmul(
    handle: *const Kernel,
    operation: *const Operation,
    alpha: *const f32,
    a: *const c_void,
    a_layout: *const Layout,
    b: *const c_void,
    b_layout: *const Layout,
    beta: *const f32,
    c: *const c_void,
    c_layout: *const Layout,
    d: *mut c_void,
    d_layout: *const Layout,
    algorithm: *const Algorithm,
    workspace: *mut c_void,
    workspace_bytes: usize,
    stream: *mut c_void,
) -> u32 {
    // SAFETY: all are the caller's and live; scales are the host's, as an operation's are if nobody says otherwise.
    let (handle, operation, layouts, algorithm, alpha, beta) = unsafe {
        (&*handle, *operation, [*a_layout, *b_layout, *c_layout, *d_layout], *algorithm, *alpha, *beta)
    };
    let Some(problem) = Problem::new(operation, layouts) else { return INVALID_VALUE };
    let addresses = [a.addr(), b.addr(), c.addr(), d.addr()];
    let aligned =
        addresses.iter().zip(&algorithm.0[2..6]).all(|(address, to)| (*address as u64).is_multiple_of(*to));
    let needed = algorithm.0[1] as usize;
    let room = workspace_bytes >= needed
        && (needed == 0 || !workspace.is_null() && workspace.addr().is_multiple_of(16));
    let biased = operation.epilogue != Epilogue::Bias
        || operation.bias != 0 && alignment_of(operation.bias) >= algorithm.0[6];
    if problem.hash() != algorithm.0[0] || !aligned || !room || !biased || addresses.contains(&0) {
        return INVALID_VALUE;
    }
    // Where the result goes in place of what is added, both are one.
    if beta != 0.0 && (addresses[2] != addresses[3] || problem.stored != problem.added) {
        return INVALID_VALUE;
    }
    let arguments = problem.arguments(addresses, [alpha, beta], operation, (workspace.addr(), needed));
    if !handle.launch(&arguments, stream) {
        return EXECUTION_FAILED;
    }
    MULTIPLIED.set(MULTIPLIED.get() + 1);
    SUCCESS
}
