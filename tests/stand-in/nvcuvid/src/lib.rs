//! `libnvcuvid.so.1` for tests: GStreamer's plugin for NVIDIA registers its uploads and downloads only where a decoder
//! library is. This one has every function that the plugin looks up, and none of them can decode.
//!
//! The functions are declared without their parameters: the caller passes them in registers and on its own stack, and
//! nobody reads them.
#![allow(unsafe_code, reason = "a function that C finds by its name")]
#![cfg_attr(not(target_os = "linux"), allow(unused))]

/// What CUDA calls `CUDA_ERROR_NOT_SUPPORTED`.
const NOT_SUPPORTED: u32 = 801;

macro_rules! unsupported {
    ($($name:ident)*) => {$(
        #[cfg(target_os = "linux")]
        #[unsafe(no_mangle)]
        #[allow(non_snake_case)]
        extern "C" fn $name() -> u32 {
            NOT_SUPPORTED
        }
    )*};
}

unsupported! {
    cuvidCreateDecoder cuvidCreateVideoParser cuvidCtxLock cuvidCtxLockCreate cuvidCtxLockDestroy cuvidCtxUnlock
    cuvidDecodePicture cuvidDestroyDecoder cuvidDestroyVideoParser cuvidGetDecodeStatus cuvidGetDecoderCaps
    cuvidMapVideoFrame64 cuvidParseVideoData cuvidReconfigureDecoder cuvidUnmapVideoFrame64
}
