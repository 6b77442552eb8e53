//! The driver as a program on a good day sees it, and what it refuses.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]
#![allow(clippy::unwrap_used)] // A test that can't go on has failed.
#![allow(unsafe_code, reason = "the driver's functions are C's")]

#[macro_use]
mod support;

use std::ffi::{CStr, c_void};

use cudarc::driver::sys::{self, CUDA_MEMCPY2D_st, CUdevice_attribute, CUdeviceptr, CUmemorytype, CUresult};
use support::{Alone, allocate, calls, counts, download, event, fail, reset_failures, stream, upload};

const INVALID: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;

#[test]
fn memory_comes_back_as_it_went() {
    let _alone = Alone::new();
    let (one, two) = (allocate(400), allocate(400));
    let values: Vec<u32> = (0..100).collect();
    upload(one, &values);
    call!(cuMemcpyDtoD_v2(two, one, 400));
    assert_eq!(download(two, 100), values);
    call!(cuMemcpyDtoD_v2(two + 200, one, 100));
    assert_eq!(download(two + 200, 25), values[..25]);
    call!(cuMemsetD32_v2(two, 7, 3));
    call!(cuMemsetD16_v2(two + 12, 0x0102, 2));
    call!(cuMemsetD8_v2(two + 16, 9, 4));
    assert_eq!(download(two, 6), [7, 7, 7, 0x0102_0102, 0x0909_0909, 5]);
    call!(cuMemFree_v2(one));
    call!(cuMemFree_v2(two));
}

#[test]
fn memory_is_poisoned() {
    let _alone = Alone::new();
    let memory = allocate(4000);
    assert!(download(memory, 1000).iter().all(|value| f32::from_bits(*value).is_nan()));
    call!(cuMemFree_v2(memory));
}

#[test]
fn rows_are_copied_without_what_is_between() {
    let _alone = Alone::new();
    let (mut pitched, mut pitch): (CUdeviceptr, usize) = (0, 0);
    call!(cuMemAllocPitch_v2(&raw mut pitched, &raw mut pitch, 30, 3, 4));
    assert_eq!((pitch, pitched % 512), (512, 0));
    let host: Vec<u8> = (0..120).collect();
    let mut back = vec![0u8; 120];
    let mut copy = CUDA_MEMCPY2D_st {
        srcXInBytes: 0,
        srcY: 0,
        srcMemoryType: CUmemorytype::CU_MEMORYTYPE_HOST,
        srcHost: host.as_ptr().cast(),
        srcDevice: 0,
        srcArray: std::ptr::null_mut(),
        srcPitch: 40,
        dstXInBytes: 0,
        dstY: 0,
        dstMemoryType: CUmemorytype::CU_MEMORYTYPE_DEVICE,
        dstHost: std::ptr::null_mut(),
        dstDevice: pitched,
        dstArray: std::ptr::null_mut(),
        dstPitch: pitch,
        WidthInBytes: 30,
        Height: 3,
    };
    call!(cuMemcpy2D_v2(&raw const copy));
    // It came from pageable memory, so it may still be on its way, and other streams don't wait for it.
    call!(cuCtxSynchronize());
    copy.srcMemoryType = CUmemorytype::CU_MEMORYTYPE_DEVICE;
    copy.srcDevice = pitched;
    copy.srcPitch = pitch;
    (copy.srcXInBytes, copy.srcY) = (10, 1);
    copy.dstMemoryType = CUmemorytype::CU_MEMORYTYPE_HOST;
    copy.dstHost = back.as_mut_ptr().cast();
    copy.dstPitch = 40;
    (copy.dstXInBytes, copy.dstY) = (5, 0);
    (copy.WidthInBytes, copy.Height) = (20, 2);
    let queue = stream();
    call!(cuMemcpy2DAsync_v2(&raw const copy, queue));
    assert_eq!(back[5..25], host[50..70]);
    assert_eq!(back[45..65], host[90..110]);
    assert!(back[..5].iter().chain(&back[25..45]).chain(&back[65..]).all(|byte| *byte == 0));
    copy.srcY = 2;
    assert_eq!(result!(cuMemcpy2DAsync_v2(&raw const copy, queue)), INVALID, "a row too many");
    (copy.srcY, copy.WidthInBytes) = (0, 503);
    assert_eq!(result!(cuMemcpy2DAsync_v2(&raw const copy, queue)), INVALID, "over the end of a row");
    call!(cuStreamDestroy_v2(queue));
    call!(cuMemFree_v2(pitched));
}

#[test]
fn what_is_no_memory_of_the_device_is_refused() {
    let _alone = Alone::new();
    let (memory, freed) = (allocate(64), allocate(64));
    call!(cuMemFree_v2(freed));
    let mut host = [0u8; 128];
    let on_host = host.as_mut_ptr() as CUdeviceptr;
    let pointer: *mut c_void = host.as_mut_ptr().cast();
    assert_eq!(result!(cuMemcpyHtoD_v2(memory, pointer, 65)), INVALID, "too much");
    assert_eq!(result!(cuMemcpyHtoD_v2(memory + 60, pointer, 8)), INVALID, "over the end");
    assert_eq!(result!(cuMemcpyHtoD_v2(memory - 1, pointer, 8)), INVALID, "before the begin");
    assert_eq!(result!(cuMemcpyHtoD_v2(on_host, pointer, 8)), INVALID, "memory of the host");
    assert_eq!(result!(cuMemcpyHtoD_v2(freed, pointer, 8)), INVALID, "freed");
    assert_eq!(
        result!(cuMemcpyDtoH_v2(memory as *mut c_void, memory, 8)),
        INVALID,
        "a device's for the host's"
    );
    assert_eq!(result!(cuMemcpyDtoH_v2(freed as *mut c_void, memory, 8)), INVALID, "freed for the host's");
    assert_eq!(result!(cuMemcpyDtoD_v2(memory, on_host, 8)), INVALID, "the host's for a device's");
    assert_eq!(result!(cuMemsetD32_v2(memory + 2, 0, 1)), INVALID, "not aligned");
    assert_eq!(result!(cuMemsetD8_v2(memory, 0, 65)), INVALID, "too much");
    assert_eq!(result!(cuMemFree_v2(freed)), INVALID, "freed twice");
    assert_eq!(result!(cuMemFree_v2(memory + 16)), INVALID, "the middle");
    assert_eq!(result!(cuMemAlloc_v2(&mut 0, 0)), INVALID, "nothing");
    call!(cuMemFree_v2(memory));
}

#[test]
fn pinned_memory_is_read_when_the_copy_runs_and_other_memory_when_it_is_called() {
    let _alone = Alone::new();
    let queue = stream();
    let memory = allocate(8);
    let pinned = value!(*mut c_void: cuMemHostAlloc(4, 0)).cast::<u32>();
    let mut registered = Box::new(1u32);
    let registered: *mut u32 = &raw mut *registered;
    call!(cuMemHostRegister_v2(registered.cast(), 4, 0));
    let mut pageable = 1u32;
    let gate = support::Gate::new(queue);
    // SAFETY: no copy reads it yet.
    unsafe { pinned.write(1) };
    call!(cuMemcpyHtoDAsync_v2(memory, pinned.cast(), 4, queue));
    call!(cuMemcpyHtoDAsync_v2(memory + 4, (&raw const pageable).cast(), 4, queue));
    pageable += 1;
    assert_eq!(pageable, 2);
    // SAFETY: the copy waits behind the gate.
    unsafe { pinned.write(2) };
    gate.open();
    call!(cuStreamSynchronize(queue));
    assert_eq!(download(memory, 2), [2, 1]);
    assert_eq!(result!(cuMemFreeHost(registered.cast())), INVALID);
    call!(cuMemHostUnregister(registered.cast()));
    let not_registered = CUresult::CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    assert_eq!(result!(cuMemHostUnregister(registered.cast())), not_registered);
    call!(cuMemFreeHost(pinned.cast()));
    call!(cuMemFree_v2(memory));
    call!(cuStreamDestroy_v2(queue));
}

#[test]
fn a_pointer_says_where_it_points() {
    let _alone = Alone::new();
    let memory = allocate(100);
    let pinned = value!(*mut c_void: cuMemAllocHost_v2(16));
    let attribute = |attribute: sys::CUpointer_attribute, pointer: CUdeviceptr| {
        let mut value = 0u64;
        let result = result!(cuPointerGetAttribute((&raw mut value).cast(), attribute, pointer));
        (result == CUresult::CUDA_SUCCESS).then_some(value)
    };
    use sys::CUpointer_attribute as Attribute;
    assert_eq!(attribute(Attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory + 9), Some(2));
    assert_eq!(attribute(Attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE, pinned as u64), Some(1));
    assert_eq!(attribute(Attribute::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, memory + 9), Some(memory));
    assert_eq!(attribute(Attribute::CU_POINTER_ATTRIBUTE_RANGE_SIZE, memory), Some(100));
    assert_eq!(attribute(Attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory + 100), None);
    call!(cuMemFreeHost(pinned));
    call!(cuMemFree_v2(memory));
}

#[test]
fn the_device_is_as_its_capability_says() {
    let _alone = Alone::new();
    let attribute = |attribute| value!(i32: cuDeviceGetAttribute(attribute, 0));
    assert_eq!(attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR), 8);
    assert_eq!(attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR), 0);
    assert_eq!(attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT), 108);
    assert_eq!(
        attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN),
        163 << 10
    );
    assert_eq!(attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED), 0);
    let mut name = [1; 9];
    call!(cuDeviceGetName(name.as_mut_ptr(), 9, 0));
    // SAFETY: the driver ends a name with a NUL.
    assert_eq!(unsafe { CStr::from_ptr(name.as_ptr()) }, c"Stand-in");
    assert_eq!(result!(cuDeviceGet(&mut 0, 1)), CUresult::CUDA_ERROR_INVALID_DEVICE);
}

#[test]
fn functions_are_found_by_their_names() {
    let _alone = Alone::new();
    let find = |name: &CStr| {
        let mut found = std::ptr::null_mut();
        let (mut status, place) =
            (sys::CUdriverProcAddressQueryResult::CU_GET_PROC_ADDRESS_SUCCESS, &raw mut found);
        let result = result!(cuGetProcAddress_v2(name.as_ptr(), place, 12000, 0, &raw mut status));
        (result, found.is_null())
    };
    assert_eq!(find(c"cuMemAlloc"), (CUresult::CUDA_SUCCESS, false));
    assert_eq!(find(c"cuLaunchKernel"), (CUresult::CUDA_SUCCESS, false));
    assert_eq!(find(c"cuNothing"), (CUresult::CUDA_ERROR_NOT_FOUND, true));
}

#[test]
fn a_thread_without_a_context_can_do_nothing() {
    let alone = Alone::new();
    let memory = allocate(4);
    let context = alone.context as usize;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let invalid = CUresult::CUDA_ERROR_INVALID_CONTEXT;
            assert_eq!(result!(cuMemAlloc_v2(&mut 0, 4)), invalid);
            assert_eq!(result!(cuMemFree_v2(memory)), invalid);
            assert_eq!(result!(cuStreamSynchronize(std::ptr::null_mut())), invalid);
            call!(cuCtxPushCurrent_v2(context as sys::CUcontext));
            call!(cuMemsetD8_v2(memory, 0, 4));
            call!(cuCtxPopCurrent_v2(std::ptr::null_mut()));
            assert_eq!(result!(cuMemFree_v2(memory)), invalid);
        });
    });
    call!(cuMemFree_v2(memory));
}

#[test]
fn what_is_left_in_a_context_goes_with_it_and_is_counted() {
    let mut alone = Alone::new();
    let before = counts();
    let context = value!(sys::CUcontext: cuCtxCreate_v2(0, 0));
    let memory = allocate(4);
    stream();
    event();
    assert_eq!((counts().allocations, counts().streams, counts().contexts), (1, 1, 2));
    call!(cuCtxDestroy_v2(context));
    assert_eq!(counts().leaked, before.leaked + 3);
    assert_eq!(
        counts(),
        support::Counts { leaked: before.leaked + 3, peak_bytes: counts().peak_bytes, ..before }
    );
    assert_eq!(result!(cuMemFree_v2(memory)), INVALID, "the context before is current again");
    assert_eq!(result!(cuCtxSetCurrent(context)), CUresult::CUDA_ERROR_INVALID_CONTEXT);
    alone.leaked += 3;
}

#[test]
fn a_call_can_be_made_to_fail() {
    let _alone = Alone::new();
    fail(calls() + 2);
    let memory = allocate(4);
    assert_eq!(result!(cuMemAlloc_v2(&mut 0, 4)), CUresult::CUDA_ERROR_OUT_OF_MEMORY);
    assert_eq!(counts().allocations, 1);
    fail(calls() + 1);
    assert_eq!(result!(cuCtxSynchronize()), CUresult::CUDA_ERROR_UNKNOWN);
    fail(calls() + 1);
    assert_eq!(result!(cuMemFree_v2(memory)), CUresult::CUDA_ERROR_UNKNOWN);
    assert_eq!(counts().allocations, 0, "who gives back must not be left with it");
    fail(calls() + 1);
    reset_failures();
    call!(cuCtxSynchronize());
}

/// What GStreamer 1.22 to 1.28 look up. A driver without one of them is no driver for it.
const GSTREAMER: &str = "cuInit cuGetErrorName cuGetErrorString cuCtxCreate_v2 cuCtxDestroy_v2 cuCtxPopCurrent_v2
    cuCtxPushCurrent_v2 cuCtxSynchronize cuCtxEnablePeerAccess cuCtxDisablePeerAccess cuGraphicsMapResources
    cuGraphicsUnmapResources cuGraphicsResourceSetMapFlags_v2 cuGraphicsSubResourceGetMappedArray
    cuGraphicsResourceGetMappedPointer_v2 cuGraphicsUnregisterResource cuMemAlloc_v2 cuMemAllocPitch_v2
    cuMemAllocHost_v2 cuMemcpy2D_v2 cuMemcpy2DAsync_v2 cuMemcpyDtoD_v2 cuMemcpyDtoDAsync_v2 cuMemcpyDtoH_v2
    cuMemcpyDtoHAsync_v2 cuMemcpyHtoD_v2 cuMemcpyHtoDAsync_v2 cuMemFree_v2 cuMemFreeHost cuStreamCreate
    cuStreamDestroy cuStreamDestroy_v2 cuStreamSynchronize cuDeviceGet cuDeviceGetCount cuDeviceGetName
    cuDeviceGetAttribute cuDeviceCanAccessPeer cuDriverGetVersion cuModuleLoadData cuModuleUnload
    cuModuleGetFunction cuTexObjectCreate cuTexObjectDestroy cuLaunchKernel cuEventCreate cuEventDestroy_v2
    cuEventRecord cuEventSynchronize cuIpcGetEventHandle cuIpcOpenEventHandle cuIpcGetMemHandle cuIpcOpenMemHandle
    cuIpcCloseMemHandle cuGraphicsGLRegisterImage cuGraphicsGLRegisterBuffer cuGLGetDevices_v2
    cuMemAddressReserve cuMemAddressFree cuMemCreate cuMemRelease cuMemExportToShareableHandle
    cuMemImportFromShareableHandle cuMemSetAccess cuMemGetAccess cuMemGetAllocationGranularity
    cuMemGetAllocationPropertiesFromHandle cuMemMap cuMemUnmap cuMemRetainAllocationHandle cuMemAllocAsync
    cuMemAllocFromPoolAsync cuMemFreeAsync cuMemPoolCreate cuMemPoolDestroy cuMemPoolSetAttribute
    cuMemPoolGetAttribute";

#[test]
fn gstreamer_finds_all_it_looks_up() {
    GSTREAMER.split_whitespace().for_each(|name| assert!(!support::function(name).is_null()));
}

#[test]
fn cudarc_finds_its_way() {
    let _alone = Alone::new();
    let context = cudarc::driver::CudaContext::new(0).unwrap();
    let stream = context.new_stream().unwrap();
    let memory = stream.clone_htod(&[1u32, 2, 3]).unwrap();
    let zeros = stream.alloc_zeros::<u32>(3).unwrap();
    assert_eq!(stream.clone_dtoh(&memory).unwrap(), [1, 2, 3]);
    assert_eq!(stream.clone_dtoh(&zeros).unwrap(), [0, 0, 0]);
    assert_eq!(context.compute_capability().unwrap(), (8, 0));
}

#[test]
fn results_have_names_and_texts() {
    let _alone = Alone::new();
    let name = value_second(|place| result!(cuGetErrorName(CUresult::CUDA_ERROR_LAUNCH_FAILED, place)));
    assert_eq!(name, c"CUDA_ERROR_LAUNCH_FAILED");
    let text = value_second(|place| result!(cuGetErrorString(CUresult::CUDA_ERROR_OUT_OF_MEMORY, place)));
    assert_eq!(text, c"out of memory");
}

/// A text that a function leaves at its second argument.
fn value_second(get: impl FnOnce(*mut *const std::ffi::c_char) -> CUresult) -> &'static CStr {
    let mut text = std::ptr::null();
    assert_eq!(get(&raw mut text), CUresult::CUDA_SUCCESS);
    // SAFETY: the driver's texts stay.
    unsafe { CStr::from_ptr(text) }
}
