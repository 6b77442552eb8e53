//! Results of driver calls, with their names and texts.

use std::ffi::CStr;

pub use cudarc::driver::sys::CUresult;

/// What a driver call comes to.
pub type Result<T = ()> = std::result::Result<T, CUresult>;

/// Results by their numbers: a number from outside is never taken for a [`CUresult`].
macro_rules! texts {
    ($($name:ident $text:literal)*) => {
        const TEXTS: &[(CUresult, &CStr, &CStr)] = &[$((
            CUresult::$name,
            // Both are literals with the NUL appended.
            match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) { Ok(name) => name, Err(_) => c"" },
            match CStr::from_bytes_with_nul(concat!($text, "\0").as_bytes()) { Ok(text) => text, Err(_) => c"" },
        )),*];
    };
}

texts! {
    CUDA_SUCCESS "no error"
    CUDA_ERROR_INVALID_VALUE "invalid argument"
    CUDA_ERROR_OUT_OF_MEMORY "out of memory"
    CUDA_ERROR_NOT_INITIALIZED "initialization error"
    CUDA_ERROR_DEINITIALIZED "driver shutting down"
    CUDA_ERROR_NO_DEVICE "no CUDA-capable device is detected"
    CUDA_ERROR_INVALID_DEVICE "invalid device ordinal"
    CUDA_ERROR_INVALID_IMAGE "device kernel image is invalid"
    CUDA_ERROR_INVALID_CONTEXT "invalid device context"
    CUDA_ERROR_NO_BINARY_FOR_GPU "no kernel image is available for execution on the device"
    CUDA_ERROR_UNSUPPORTED_LIMIT "limit is not supported on this architecture"
    CUDA_ERROR_PEER_ACCESS_UNSUPPORTED "peer access is not supported between these two devices"
    CUDA_ERROR_INVALID_PTX "a PTX JIT compilation failed"
    CUDA_ERROR_UNSUPPORTED_PTX_VERSION "the provided PTX was compiled with an unsupported toolchain."
    CUDA_ERROR_INVALID_HANDLE "invalid resource handle"
    CUDA_ERROR_ILLEGAL_STATE "the operation cannot be performed in the present state"
    CUDA_ERROR_NOT_FOUND "named symbol not found"
    CUDA_ERROR_NOT_READY "device not ready"
    CUDA_ERROR_ILLEGAL_ADDRESS "an illegal memory access was encountered"
    CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES "too many resources requested for launch"
    CUDA_ERROR_LAUNCH_TIMEOUT "the launch timed out and was terminated"
    CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE "primary context is already in use"
    CUDA_ERROR_CONTEXT_IS_DESTROYED "context is destroyed"
    CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED "part or all of the requested memory range is already mapped"
    CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED "pointer does not correspond to a registered memory region"
    CUDA_ERROR_MISALIGNED_ADDRESS "misaligned address"
    CUDA_ERROR_LAUNCH_FAILED "unspecified launch failure"
    CUDA_ERROR_NOT_PERMITTED "operation not permitted"
    CUDA_ERROR_NOT_SUPPORTED "operation not supported"
    CUDA_ERROR_SYSTEM_NOT_READY "system not yet initialized"
    CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED "operation not permitted when stream is capturing"
    CUDA_ERROR_STREAM_CAPTURE_INVALIDATED "operation failed due to a previous error during capture"
    CUDA_ERROR_STREAM_CAPTURE_MERGE "operation would result in a merge of separate capture sequences"
    CUDA_ERROR_STREAM_CAPTURE_UNMATCHED "capture was not ended in the same stream as it began"
    CUDA_ERROR_STREAM_CAPTURE_UNJOINED "capturing stream has unjoined work"
    CUDA_ERROR_STREAM_CAPTURE_ISOLATION "dependency created on uncaptured work in another stream"
    CUDA_ERROR_STREAM_CAPTURE_IMPLICIT "operation would make the legacy stream depend on a capturing blocking stream"
    CUDA_ERROR_CAPTURED_EVENT "operation not permitted on an event last recorded in a capturing stream"
    CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD "attempt to terminate a thread-local capture sequence from another thread"
    CUDA_ERROR_UNKNOWN "unknown error"
}

/// The name and the text of a result.
pub fn texts(number: u32) -> Option<(&'static CStr, &'static CStr)> {
    TEXTS.iter().find(|(result, ..)| *result as u32 == number).map(|(_, name, text)| (*name, *text))
}

/// The result of a name or a number.
pub fn parse(name: &str) -> Option<CUresult> {
    let is_it = |result: CUresult, of: &CStr| of.to_str() == Ok(name) || name.parse() == Ok(result as u32);
    TEXTS.iter().find(|(result, of, _)| is_it(*result, of)).map(|(result, ..)| *result)
}
