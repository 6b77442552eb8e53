//! What the environment says of the device, each in a process of its own.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]
#![allow(clippy::unwrap_used)] // A test that can't go on has failed.
#![allow(unsafe_code, reason = "the driver's functions are C's")]

#[macro_use]
mod support;

use cudarc::driver::sys::{CUdevice_attribute, CUgraphExec, CUresult, CUstreamCaptureMode};
use support::{Alone, allocate, child, is_child, said, stream};

#[test]
fn the_capability_is_as_asked_for() {
    let environment = [("SAPIENS_STAND_IN_CAPABILITY", "7.5"), ("SAPIENS_STAND_IN_MULTIPROCESSORS", "3")];
    if !is_child("the_capability_is_as_asked_for", &environment) {
        return;
    }
    let _alone = Alone::new();
    let attribute = |attribute| value!(i32: cuDeviceGetAttribute(attribute, 0));
    assert_eq!(attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR), 7);
    assert_eq!(attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR), 5);
    assert_eq!(attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT), 3);
    assert_eq!(
        attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN),
        64 << 10
    );
    let ptx = c".version 8.0\n.target sm_80\n";
    let mut module = std::ptr::null_mut();
    let result = result!(cuModuleLoadData(&raw mut module, ptx.as_ptr().cast()));
    assert_eq!(result, CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU);
}

#[test]
fn memory_ends_where_it_is_said_to() {
    if !is_child("memory_ends_where_it_is_said_to", &[("SAPIENS_STAND_IN_MEMORY", "1000")]) {
        return;
    }
    let _alone = Alone::new();
    let memory = allocate(600);
    let (mut free, mut total) = (0, 0);
    call!(cuMemGetInfo_v2(&raw mut free, &raw mut total));
    assert_eq!((free, total), (400, 1000));
    assert_eq!(value!(usize: cuDeviceTotalMem_v2(0)), 1000);
    assert_eq!(result!(cuMemAlloc_v2(&mut 0, 401)), CUresult::CUDA_ERROR_OUT_OF_MEMORY);
    let rest = allocate(400);
    call!(cuMemFree_v2(memory));
    call!(cuMemFree_v2(rest));
    assert_eq!(support::counts().peak_bytes, 1000);
}

#[test]
fn there_may_be_no_device() {
    if !is_child("there_may_be_no_device", &[("SAPIENS_STAND_IN_DEVICES", "0")]) {
        return;
    }
    assert_eq!(result!(cuInit(0)), CUresult::CUDA_ERROR_NO_DEVICE);
    assert_eq!(result!(cuDeviceGetCount(&mut 0)), CUresult::CUDA_ERROR_NOT_INITIALIZED);
}

#[test]
fn there_may_be_two_devices() {
    if !is_child("there_may_be_two_devices", &[("SAPIENS_STAND_IN_DEVICES", "2")]) {
        return;
    }
    let _alone = Alone::new();
    assert_eq!(value!(i32: cuDeviceGetCount()), 2);
    assert_eq!(value!(i32: cuDeviceGet(1)), 1);
    assert_eq!(result!(cuDeviceGet(&mut 0, 2)), CUresult::CUDA_ERROR_INVALID_DEVICE);
}

#[test]
fn the_driver_is_as_old_as_asked_for() {
    if !is_child("the_driver_is_as_old_as_asked_for", &[("SAPIENS_STAND_IN_DRIVER", "11080")]) {
        return;
    }
    assert_eq!(value!(i32: cuDriverGetVersion()), 11080);
    let _alone = Alone::new();
    let ptx = c".version 8.0\n.target sm_80\n";
    let mut module = std::ptr::null_mut();
    let result = result!(cuModuleLoadData(&raw mut module, ptx.as_ptr().cast()));
    assert_eq!(result, CUresult::CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
}

#[test]
fn the_third_call_of_a_function_fails() {
    let environment = [("SAPIENS_STAND_IN_FAIL", "cuMemAlloc_v2:3")];
    if !is_child("the_third_call_of_a_function_fails", &environment) {
        return;
    }
    call!(cuInit(0));
    let context = value!(cudarc::driver::sys::CUcontext: cuCtxCreate_v2(0, 0));
    let results: Vec<_> = (0..4).map(|_| result!(cuMemAlloc_v2(&mut 0, 4))).collect();
    let (fine, failed) = (CUresult::CUDA_SUCCESS, CUresult::CUDA_ERROR_OUT_OF_MEMORY);
    assert_eq!(results, [fine, fine, failed, fine]);
    call!(cuCtxDestroy_v2(context));
}

#[test]
fn the_third_call_of_all_fails_as_asked_for() {
    let environment = [("SAPIENS_STAND_IN_FAIL", "*:3:CUDA_ERROR_LAUNCH_FAILED")];
    if !is_child("the_third_call_of_all_fails_as_asked_for", &environment) {
        return;
    }
    call!(cuInit(0));
    assert_eq!(value!(i32: cuDeviceGetCount()), 1);
    assert_eq!(result!(cuDeviceGetCount(&mut 0)), CUresult::CUDA_ERROR_LAUNCH_FAILED);
    assert_eq!(value!(i32: cuDeviceGetCount()), 1);
}

#[test]
fn what_can_not_be_understood_is_no_device() {
    if !is_child("what_can_not_be_understood_is_no_device", &[("SAPIENS_STAND_IN_MEMORY", "much")]) {
        return;
    }
    assert_eq!(result!(cuInit(0)), CUresult::CUDA_ERROR_INVALID_VALUE);
}

#[test]
fn the_log_has_calls_and_what_streams_did() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    if is_child("the_log_has_calls_and_what_streams_did", &[("SAPIENS_STAND_IN_LOG", log.to_str().unwrap())])
    {
        let _alone = Alone::new();
        let (queue, memory) = (stream(), allocate(4));
        call!(cuMemsetD32Async(memory, 0, 1, queue));
        call!(cuStreamSynchronize(queue));
        // A graph's operations are logged as well as the graph.
        let mut graph = std::ptr::null_mut();
        call!(cuStreamBeginCapture_v2(queue, CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED));
        call!(cuMemsetD8Async(memory, 0, 3, queue));
        call!(cuStreamEndCapture(queue, &raw mut graph));
        let exec = value!(CUgraphExec: cuGraphInstantiateWithFlags(graph, 0));
        call!(cuGraphLaunch(exec, queue));
        call!(cuStreamSynchronize(queue));
        call!(cuGraphExecDestroy(exec));
        call!(cuGraphDestroy(graph));
        call!(cuMemFree_v2(memory));
        call!(cuStreamDestroy_v2(queue));
        return;
    }
    let text = std::fs::read_to_string(log).unwrap();
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split(' ').collect()).collect();
    let call = lines.iter().find(|line| line[0] == "call" && line[5] == "cuMemsetD32Async").unwrap();
    assert_eq!(call[6], "CUDA_SUCCESS");
    let runs: Vec<_> = lines.iter().filter(|line| line[0] == "run" && line[1] == "1").collect();
    let what: Vec<_> = runs.iter().map(|run| run[4..].join(" ")).collect();
    assert_eq!(what, ["fill 4", "fill 3", "graph 1"]);
    assert!(runs.iter().all(|run| run[2].parse::<u64>().unwrap() <= run[3].parse::<u64>().unwrap()));
}

#[test]
fn a_library_of_kernels_must_be_one() {
    // A path that leads nowhere, and a library that has no kernels.
    for library in ["/nowhere/libkernels.so", "libm.so.6"] {
        let environment = [("SAPIENS_STAND_IN_KERNELS", library)];
        match child("a_library_of_kernels_must_be_one", &environment) {
            Some(output) => {
                assert!(output.status.success(), "{}", said(&output));
                assert!(said(&output).contains("stand-in: no kernels can be had"), "{}", said(&output));
            }
            None => {
                assert_eq!(result!(cuInit(0)), CUresult::CUDA_ERROR_INVALID_VALUE);
                return;
            }
        }
    }
}
