//! A stand-in for NVIDIA's driver, `libcuda.so.1`, for tests on machines without a GPU: device memory is memory of the
//! process, streams are threads that dawdle at random, and kernels are the CUDA sources compiled for the processor
//! (`emulator/`). It is made to be less forgiving than a GPU: memory starts as NaN, ends at a page that nobody may
//! touch and is closed once it is freed; an operation that nobody waits for is late.
//!
//! The library's name for the loader is `libcuda.so`. A test opens it by its path before anything else asks for the
//! driver; a program of its own gets it by links named `libcuda.so` and `libcuda.so.1` in a folder on
//! `LD_LIBRARY_PATH`.
//!
//! The environment, read at the first call:
//!
//! | variable | default | |
//! |---|---|---|
//! | `SAPIENS_STAND_IN_CAPABILITY` | `8.0` | compute capability; `7.5,8.6`: of two devices |
//! | `SAPIENS_STAND_IN_MULTIPROCESSORS` | as usual for it | how many the device says it has |
//! | `SAPIENS_STAND_IN_MEMORY` | 8 GiB | bytes of a device; allocations beyond are out of memory |
//! | `SAPIENS_STAND_IN_SEED` | `0` | of delays, of the order within a graph, and of the emulator |
//! | `SAPIENS_STAND_IN_DELAY` | `50` | the longest delay before an operation in microseconds; `0`: threads only yield |
//! | `SAPIENS_STAND_IN_DRIVER` | `12040` | what `cuDriverGetVersion` says |
//! | `SAPIENS_STAND_IN_DEVICES` | one for each capability | `0`: `CUDA_ERROR_NO_DEVICE` |
//! | `SAPIENS_STAND_IN_FAIL` | | `cuMemAlloc_v2:3`: its third call fails; `*:57`: the 57th call of any function; a third part is the result |
//! | `SAPIENS_STAND_IN_LOG` | | a file that is appended to, one line per call and per operation of a stream |
//! | `SAPIENS_STAND_IN_KERNELS` | | a shared library of the emulator and kernels, which is asked for each kernel before those that are compiled in |
//!
//! Who touches memory that it may not ends the process, as a fault; stderr says which byte of which memory it was.
//!
//! A call that was made to fail does nothing, but functions that give something back still do: a program can't do
//! better than to call them. `cuGetErrorName`, `cuGetErrorString` and `cuGetProcAddress` are no calls in this sense.
//!
//! Functions for tests are in `api/testing.rs`. What a GPU's driver has and nobody here uses answers
//! `CUDA_ERROR_NOT_SUPPORTED` (`api/unsupported.rs`) or isn't there.
//!
//! From outside in: `api/` is what C calls, `call` what happens around each call, `driver` what there is (contexts and
//! the tables of everything), `memory`, `stream`, `capture` and `module` the parts of that, `work` what streams do.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]
#![allow(unsafe_code, reason = "a driver is called from C, and hands out memory")]

mod api;
mod call;
mod capture;
mod copy;
mod device;
mod driver;
mod emulator;
mod error;
mod fault;
mod ffi;
mod log;
mod mapping;
mod matmul;
mod memory;
mod module;
mod probe;
mod ptx;
mod random;
mod settings;
mod stream;
mod work;
