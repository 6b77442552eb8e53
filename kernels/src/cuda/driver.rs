//! The driver library: whether it is there, and calls of it as results.

use std::ffi::{CStr, c_char};
use std::sync::OnceLock;

use cudarc::driver::sys::{self, CUresult};

use super::CudaError;

/// The oldest driver that takes the kernels' PTX: they are compiled by CUDA 12.0's compiler for that.
const NEEDED: i32 = 12000;

/// Every function of the driver that is called, so that a missing one is an error before anything is done; cudarc would
/// panic at the call.
const FUNCTIONS: [&str; 45] = [
    "cuCtxGetDevice",
    "cuCtxPopCurrent_v2",
    "cuCtxPushCurrent_v2",
    "cuDeviceGet",
    "cuDeviceGetAttribute",
    "cuDeviceGetCount",
    "cuDeviceGetName",
    "cuDevicePrimaryCtxRelease_v2",
    "cuDevicePrimaryCtxRetain",
    "cuDeviceTotalMem_v2",
    "cuDriverGetVersion",
    "cuEventCreate",
    "cuEventDestroy_v2",
    "cuEventElapsedTime",
    "cuEventQuery",
    "cuEventRecord",
    "cuEventSynchronize",
    "cuFuncSetAttribute",
    "cuGetErrorName",
    "cuGetErrorString",
    "cuGraphDestroy",
    "cuGraphExecDestroy",
    "cuGraphInstantiateWithFlags",
    "cuGraphLaunch",
    "cuInit",
    "cuLaunchKernel",
    "cuMemAllocHost_v2",
    "cuMemAlloc_v2",
    "cuMemFreeHost",
    "cuMemFree_v2",
    "cuMemGetInfo_v2",
    "cuMemcpy2DAsync_v2",
    "cuMemcpyDtoDAsync_v2",
    "cuMemcpyDtoHAsync_v2",
    "cuMemcpyHtoDAsync_v2",
    "cuMemsetD8Async",
    "cuModuleGetFunction",
    "cuModuleLoadData",
    "cuModuleUnload",
    "cuStreamBeginCapture_v2",
    "cuStreamCreate",
    "cuStreamDestroy_v2",
    "cuStreamEndCapture",
    "cuStreamSynchronize",
    "cuStreamWaitEvent",
];

/// Calls a function of the driver: `call!(function(arguments))` is a `Result`. Only after [`load`], and in an `unsafe` block.
macro_rules! call {
    ($function:ident($($argument:expr),* $(,)?)) => {
        $crate::cuda::driver::check(stringify!($function), cudarc::driver::sys::$function($($argument),*))
    };
}
pub(super) use call;

/// The error that a driver's function returned.
pub(super) fn check(function: &'static str, result: CUresult) -> Result<(), CudaError> {
    if result == CUresult::CUDA_SUCCESS {
        return Ok(());
    }
    Err(CudaError::Failed { function, error: describe(result) })
}

/// The driver's name of an error and what it says about it.
pub(super) fn describe(result: CUresult) -> String {
    let text = |get: unsafe fn(CUresult, *mut *const c_char) -> CUresult| {
        let mut text = std::ptr::null();
        // SAFETY: `text` may be written to; what the driver writes is null or a text that is never freed.
        unsafe {
            if get(result, &mut text) != CUresult::CUDA_SUCCESS || text.is_null() {
                return None;
            }
            Some(CStr::from_ptr(text).to_string_lossy().into_owned())
        }
    };
    let name = text(sys::cuGetErrorName).unwrap_or_else(|| format!("error {}", result as u32));
    match text(sys::cuGetErrorString) {
        Some(meaning) => format!("{name} ({meaning})"),
        None => name,
    }
}

/// Looks for the driver, once for the process.
///
/// # Errors
/// [`CudaError::NoDriver`], [`CudaError::MissingFunction`], [`CudaError::DriverTooOld`], or what initialising it gives.
pub(super) fn load() -> Result<(), CudaError> {
    static LOADED: OnceLock<Result<(), CudaError>> = OnceLock::new();
    LOADED.get_or_init(first_load).clone()
}

/// The CUDA that the driver is for, as 1000 * major + 10 * minor. Only after [`load`].
///
/// # Errors
/// If it can't say.
pub(super) fn version() -> Result<i32, CudaError> {
    let mut version = 0;
    // SAFETY: it may be written to.
    unsafe { call!(cuDriverGetVersion(&mut version))? };
    Ok(version)
}

fn first_load() -> Result<(), CudaError> {
    // SAFETY: loads the driver library, whose initialisers are as trusted as the driver.
    if !unsafe { sys::is_culib_present() } {
        return Err(CudaError::NoDriver);
    }
    // SAFETY: the library is there.
    let library = unsafe { sys::culib() };
    for name in FUNCTIONS {
        // SAFETY: only whether the symbol is there is asked.
        if unsafe { library.get::<unsafe extern "C" fn()>(name.as_bytes()) }.is_err() {
            return Err(CudaError::MissingFunction(name));
        }
    }
    // SAFETY: both functions are there.
    unsafe {
        let found = version()?;
        if found < NEEDED {
            return Err(CudaError::DriverTooOld { found, needed: NEEDED });
        }
        match sys::cuInit(0) {
            CUresult::CUDA_ERROR_NO_DEVICE => Err(CudaError::NoDevice { index: 0, count: 0 }),
            result => check("cuInit", result),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::FUNCTIONS;

    /// Names of functions that the sources of this module call.
    fn called() -> Vec<String> {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/cuda");
        let mut names = Vec::new();
        for file in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let text = std::fs::read_to_string(file.path()).unwrap_or_default();
            for opening in ["call!(", "sys::"] {
                for rest in text.split(opening).skip(1).filter(|rest| rest.starts_with("cu")) {
                    let name: String =
                        rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
                    names.push(name);
                }
            }
        }
        names.retain(|name| name != "culib");
        names.sort();
        names.dedup();
        names
    }

    #[test]
    fn the_list_of_functions_is_complete() {
        assert_eq!(FUNCTIONS.as_slice(), called());
    }
}
