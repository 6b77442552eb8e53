//! Modules and launches, with the driver's own kernels.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]
#![allow(clippy::unwrap_used)] // A test that can't go on has failed.
#![allow(unsafe_code, reason = "the driver's functions are C's")]

#[macro_use]
mod support;

use std::ffi::{CString, c_void};
use std::path::Path;
use std::ptr::null_mut;

use cudarc::driver::sys::{
    self, CUdeviceptr, CUfunction, CUfunction_attribute, CUmodule, CUresult, CUstream,
};
use support::{Alone, allocate, child, counts, download, faulted, is_child, said, stream, upload};

const INVALID: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;

/// PTX for a target with the driver's own kernels.
fn ptx(version: &str, target: &str, add_parameters: &str) -> CString {
    let text = format!(
        ".version {version}\n.target {target}\n.address_size 64\n
        .visible .entry sapiens_stand_in_add({add_parameters}) .maxntid 64, 1, 1 {{ .shared .b8 tile[1024]; ret; }}
        .visible .entry sapiens_stand_in_fail() {{ ret; }}
        .visible .entry unknown(.param .u64 unknown_param_0) {{ ret; }}\n"
    );
    CString::new(text).unwrap()
}

const ADD: &str = ".param .u64 a, .param .u32 b";

fn load(ptx: &CString) -> Result<CUmodule, CUresult> {
    let mut module = null_mut();
    match result!(cuModuleLoadData(&raw mut module, ptx.as_ptr().cast())) {
        CUresult::CUDA_SUCCESS => Ok(module),
        failure => Err(failure),
    }
}

fn function(module: CUmodule, name: &str) -> Result<CUfunction, CUresult> {
    let (mut function, name) = (null_mut(), CString::new(name).unwrap());
    match result!(cuModuleGetFunction(&raw mut function, module, name.as_ptr())) {
        CUresult::CUDA_SUCCESS => Ok(function),
        failure => Err(failure),
    }
}

/// Launches with blocks of 64 threads at most.
fn launch(
    function: CUfunction,
    (blocks, threads, shared): (u32, u32, u32),
    stream: CUstream,
    values: &mut [*mut c_void],
) -> CUresult {
    result!(cuLaunchKernel(
        function,
        blocks,
        1,
        1,
        threads,
        1,
        1,
        shared,
        stream,
        values.as_mut_ptr(),
        null_mut()
    ))
}

fn add(
    function: CUfunction,
    dimensions: (u32, u32, u32),
    stream: CUstream,
    mut memory: CUdeviceptr,
    mut more: u32,
) -> CUresult {
    launch(function, dimensions, stream, &mut [(&raw mut memory).cast(), (&raw mut more).cast()])
}

#[test]
fn kernels_run_with_the_values_of_their_launch() {
    let _alone = Alone::new();
    let module = load(&ptx("8.0", "sm_80", ADD)).unwrap();
    let function = function(module, "sapiens_stand_in_add").unwrap();
    let (queue, memory) = (stream(), allocate(4 * 128));
    upload(memory, &(0..128).collect::<Vec<_>>());
    let gate = support::Gate::new(queue);
    for more in [10, 100] {
        assert_eq!(add(function, (2, 64, 0), queue, memory, more), CUresult::CUDA_SUCCESS);
    }
    gate.open();
    call!(cuStreamSynchronize(queue));
    assert_eq!(download(memory, 128), (110..238).collect::<Vec<_>>());
    assert_eq!(counts().modules, 1);
    call!(cuStreamDestroy_v2(queue));
    call!(cuMemFree_v2(memory));
    call!(cuModuleUnload(module));
    let stale = add(function, (2, 64, 0), null_mut(), memory, 1);
    assert_eq!(stale, CUresult::CUDA_ERROR_INVALID_HANDLE);
}

#[test]
fn modules_that_do_not_fit_are_refused() {
    let _alone = Alone::new();
    let no_binary = CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU;
    assert_eq!(load(&ptx("8.0", "sm_86", ADD)), Err(no_binary));
    assert_eq!(load(&ptx("8.0", "sm_90a", ADD)), Err(no_binary));
    assert_eq!(load(&ptx("8.5", "sm_80", ADD)), Err(CUresult::CUDA_ERROR_UNSUPPORTED_PTX_VERSION));
    for parameters in
        ["", ".param .u64 a", ".param .u64 a, .param .u64 b", ".param .u64 a, .param .u32 b, .param .u32 c"]
    {
        assert_eq!(
            load(&ptx("8.0", "sm_80", parameters)),
            Err(CUresult::CUDA_ERROR_INVALID_PTX),
            "{parameters}"
        );
    }
    assert_eq!(load(&c"no PTX".to_owned()), Err(CUresult::CUDA_ERROR_INVALID_PTX));

    let mut log = [0u8; 200];
    let mut module = null_mut();
    let mut options =
        [sys::CUjit_option::CU_JIT_ERROR_LOG_BUFFER, sys::CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
    let mut values = [log.as_mut_ptr().cast(), log.len() as *mut c_void];
    let image = ptx("8.0", "sm_86", ADD);
    let (options, values) = (options.as_mut_ptr(), values.as_mut_ptr());
    let result = result!(cuModuleLoadDataEx(&raw mut module, image.as_ptr().cast(), 2, options, values));
    assert_eq!(result, no_binary);
    assert!(String::from_utf8_lossy(&log).contains("sm_86"), "the log says why");
}

#[test]
fn kernels_of_later_architectures_and_unknown_ones_are_not_found() {
    let _alone = Alone::new();
    let module = load(&ptx("8.0", "sm_75", ADD)).unwrap();
    assert!(function(module, "sapiens_stand_in_add").is_ok());
    assert_eq!(function(module, "unknown"), Err(CUresult::CUDA_ERROR_NOT_FOUND));
    assert_eq!(function(module, "nothing"), Err(CUresult::CUDA_ERROR_NOT_FOUND));
    call!(cuModuleUnload(module));
    assert_eq!(function(module, "sapiens_stand_in_add"), Err(CUresult::CUDA_ERROR_INVALID_HANDLE));
}

#[test]
fn launches_keep_to_limits() {
    let _alone = Alone::new();
    let module = load(&ptx("8.0", "sm_80", ADD)).unwrap();
    let function = function(module, "sapiens_stand_in_add").unwrap();
    let memory = allocate(4);
    let with = |dimensions| add(function, dimensions, null_mut(), memory, 1);
    assert_eq!(with((1, 0, 0)), INVALID);
    assert_eq!(with((0, 1, 0)), INVALID);
    assert_eq!(with((1, 65, 0)), INVALID, "more than .maxntid");
    assert_eq!(with((1, 1, (47 << 10) + 1)), INVALID, "1 KiB of the 48 is the kernel's own");
    let dynamic = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
    assert_eq!(result!(cuFuncSetAttribute(function, dynamic, 163 << 10)), INVALID);
    call!(cuFuncSetAttribute(function, dynamic, 162 << 10));
    assert_eq!(with((1, 1, 162 << 10)), CUresult::CUDA_SUCCESS);
    assert_eq!(with((1, 1, (162 << 10) + 1)), INVALID);
    assert_eq!(value!(i32: cuFuncGetAttribute(dynamic, function)), 162 << 10);
    let threads = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK;
    assert_eq!(value!(i32: cuFuncGetAttribute(threads, function)), 64);
    let blocks = |shared| value!(i32: cuOccupancyMaxActiveBlocksPerMultiprocessor(function, 64, shared));
    assert_eq!((blocks(0), blocks(40 << 10), blocks(162 << 10), blocks(163 << 10)), (32, 3, 1, 0));
    let missing = launch(function, (1, 1, 0), null_mut(), &mut [null_mut(), null_mut()]);
    assert_eq!(missing, INVALID);
    call!(cuMemFree_v2(memory));
    call!(cuModuleUnload(module));
}

#[test]
fn all_kernels_of_this_repository_are_emulated() {
    let _alone = Alone::new();
    for folder in ["compute_75", "compute_80"] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernels/cuda/ptx").join(folder);
        let files: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path()).collect();
        assert!(!files.is_empty(), "{}", folder.display());
        for file in files {
            let text = std::fs::read_to_string(&file).unwrap();
            // Loading compares the parameters with the emulator's.
            let module = load(&CString::new(text.clone()).unwrap()).unwrap();
            let names: Vec<&str> =
                text.split(".visible .entry ").skip(1).map(|rest| rest.split('(').next().unwrap()).collect();
            assert!(!names.is_empty(), "{}", file.display());
            for name in names {
                assert!(function(module, name).is_ok(), "{} has {name}, the emulator hasn't", file.display());
            }
            call!(cuModuleUnload(module));
        }
    }
}

/// `Norm` of `kernels/cuda/norm.cu`.
#[repr(C)]
struct Norm {
    x: CUdeviceptr,
    weight: CUdeviceptr,
    bias: CUdeviceptr,
    out: CUdeviceptr,
    columns: u32,
    epsilon: f32,
}

#[test]
fn a_kernel_of_this_repository_runs() {
    let _alone = Alone::new();
    for folder in ["compute_75", "compute_80"] {
        let file = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../kernels/cuda/ptx")
            .join(folder)
            .join("norm.ptx");
        let module = load(&CString::new(std::fs::read_to_string(file).unwrap()).unwrap()).unwrap();
        let norm = function(module, "norm_f16").unwrap();
        let (x, weight, out) = (allocate(2 * 16), allocate(16), allocate(2 * 8));
        let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
        upload(x, &bits(&[1.0, -1.0, 1.0, 1.0, 2.0, 2.0, -2.0, 2.0]));
        upload(weight, &bits(&[1.0, 1.0, 1.0, 0.5]));
        let mut norm_of = Norm { x, weight, bias: 0, out, columns: 4, epsilon: 0.0 };
        let queue = stream();
        let launched = launch(norm, (2, 128, 32), queue, &mut [(&raw mut norm_of).cast()]);
        assert_eq!(launched, CUresult::CUDA_SUCCESS);
        call!(cuStreamSynchronize(queue));
        // 1 is 3C00 in float16, one half 3800; the sign is the highest bit.
        assert_eq!(download(out, 4), [0xbc00_3c00, 0x3800_3c00, 0x3c00_3c00, 0x3800_bc00]);
        call!(cuStreamDestroy_v2(queue));
        [x, weight, out].iter().for_each(|memory| call!(cuMemFree_v2(*memory)));
        call!(cuModuleUnload(module));
    }
}

#[test]
fn nothing_works_after_a_kernel_failed() {
    if !is_child("nothing_works_after_a_kernel_failed", &[]) {
        return;
    }
    let _alone = Alone::new();
    let module = load(&ptx("8.0", "sm_80", ADD)).unwrap();
    let function = function(module, "sapiens_stand_in_fail").unwrap();
    let (queue, memory) = (stream(), allocate(4));
    let failed = CUresult::CUDA_ERROR_LAUNCH_FAILED;
    assert_eq!(launch(function, (1, 1, 0), queue, &mut []), CUresult::CUDA_SUCCESS);
    assert_eq!(result!(cuStreamSynchronize(queue)), failed);
    assert_eq!(result!(cuMemAlloc_v2(&mut 0, 4)), failed);
    assert_eq!(result!(cuMemsetD8Async(memory, 0, 4, queue)), failed);
    // What gives back says it too, and does it.
    assert_eq!(result!(cuMemFree_v2(memory)), failed);
    assert_eq!(result!(cuStreamDestroy_v2(queue)), failed);
    assert_eq!(result!(cuModuleUnload(module)), failed);
    assert_eq!(counts().allocations, 0);
    // Another context isn't concerned.
    let context = value!(sys::CUcontext: cuCtxCreate_v2(0, 0));
    call!(cuMemFree_v2(allocate(4)));
    call!(cuCtxDestroy_v2(context));
}

#[test]
fn a_kernel_that_writes_where_it_may_not_ends_the_process() {
    let cases = [
        ("over the end", "byte 4096 of 4096 that were allocated"),
        ("before the begin", "byte -4 of 4096 that were allocated"),
        ("freed", "byte 0 of memory that was freed"),
    ];
    for (case, explanation) in cases {
        let name = "a_kernel_that_writes_where_it_may_not_ends_the_process";
        let Some(output) = child(name, &[("SAPIENS_TEST_CASE", case)]) else {
            let _alone = Alone::new();
            let module = load(&ptx("8.0", "sm_80", ADD)).unwrap();
            let function = function(module, "sapiens_stand_in_add").unwrap();
            let memory = allocate(4096);
            let (memory, blocks) = match std::env::var("SAPIENS_TEST_CASE").unwrap().as_str() {
                "over the end" => (memory + 4, 64),
                "before the begin" => (memory - 4, 1),
                _ => {
                    call!(cuMemFree_v2(memory));
                    (memory, 1)
                }
            };
            assert_eq!(add(function, (blocks, 16, 0), null_mut(), memory, 1), CUresult::CUDA_SUCCESS);
            call!(cuCtxSynchronize());
            return;
        };
        assert!(faulted(&output), "{case}: {}", said(&output));
        assert!(
            said(&output).contains("stand-in: sapiens_stand_in_add touched"),
            "{case}: {}",
            said(&output)
        );
        assert!(said(&output).contains(explanation), "{case}: {}", said(&output));
    }
}
