//! Memory of devices and pinned memory of the host.
#![allow(non_snake_case, reason = "the names of the functions are CUDA's")]

use cudarc::driver::sys::CUpointer_attribute as Attribute;

use super::device::used;
use crate::call::{normal, query, release};
use crate::device::PITCH;
use crate::driver::{Driver, wait_for};
use crate::error::{CUresult, Result};
use crate::ffi::{Handle, Out};

/// Memory of the device of the current context.
fn allocate(driver: &Driver, bytes: usize) -> Result<u64> {
    let mut state = driver.state();
    let context = state.current()?;
    state.forbid_in_capture()?;
    if bytes == 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let free = driver.settings.memory.saturating_sub(used(&state, state.contexts[&context].device));
    if bytes > free {
        return Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY);
    }
    state.memory.allocate(bytes, context).map(|start| start as u64)
}

#[unsafe(no_mangle)]
extern "C" fn cuMemAlloc_v2(pointer: Out<u64>, bytes: usize) -> CUresult {
    normal("cuMemAlloc_v2", |driver| {
        if pointer.is_null() {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        pointer.set(allocate(driver, bytes)?)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemAllocPitch_v2(
    pointer: Out<u64>,
    pitch: Out<usize>,
    width: usize,
    height: usize,
    element: u32,
) -> CUresult {
    normal("cuMemAllocPitch_v2", |driver| {
        if pointer.is_null() || pitch.is_null() || !matches!(element, 4 | 8 | 16) {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let row = width.checked_next_multiple_of(PITCH).ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
        let bytes = row.checked_mul(height).ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
        pointer.set(allocate(driver, bytes)?)?;
        pitch.set(row)
    })
}

/// Waits for all that works in the context that a piece of memory belongs to, as the driver does before memory goes.
fn settle(driver: &Driver, start: usize) -> Result {
    let mut state = driver.state();
    state.current()?;
    state.forbid_in_capture()?;
    let tails = state.memory.owner(start).map(|context| state.tails(context)).unwrap_or_default();
    drop(state);
    wait_for(&tails);
    Ok(())
}

#[unsafe(no_mangle)]
extern "C" fn cuMemFree_v2(pointer: u64) -> CUresult {
    release("cuMemFree_v2", |driver, _| {
        if pointer == 0 {
            return Ok(());
        }
        let start = pointer as usize;
        settle(driver, start)?;
        driver.state().memory.free(start)
    })
}

fn allocate_pinned(pointer: &Out<usize>, bytes: usize, driver: &Driver) -> Result {
    let mut state = driver.state();
    let context = state.current()?;
    state.forbid_in_capture()?;
    if bytes == 0 || pointer.is_null() {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    pointer.set(state.memory.allocate_pinned(bytes, context)?)
}

#[unsafe(no_mangle)]
extern "C" fn cuMemAllocHost_v2(pointer: Out<usize>, bytes: usize) -> CUresult {
    normal("cuMemAllocHost_v2", |driver| allocate_pinned(&pointer, bytes, driver))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemHostAlloc(pointer: Out<usize>, bytes: usize, _flags: u32) -> CUresult {
    normal("cuMemHostAlloc", |driver| allocate_pinned(&pointer, bytes, driver))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemFreeHost(pointer: usize) -> CUresult {
    release("cuMemFreeHost", |driver, _| {
        if pointer == 0 {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        settle(driver, pointer)?;
        driver.state().memory.free_pinned(pointer)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemHostRegister_v2(pointer: usize, bytes: usize, _flags: u32) -> CUresult {
    normal("cuMemHostRegister_v2", |driver| {
        let mut state = driver.state();
        let context = state.current()?;
        state.forbid_in_capture()?;
        state.memory.register(pointer, bytes, context)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemHostUnregister(pointer: usize) -> CUresult {
    release("cuMemHostUnregister", |driver, _| {
        settle(driver, pointer)?;
        driver.state().memory.unregister(pointer)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemGetAddressRange_v2(base: Out<u64>, bytes: Out<usize>, pointer: u64) -> CUresult {
    normal("cuMemGetAddressRange_v2", |driver| {
        let found = driver.state().memory.around(pointer as usize);
        let (start, len, _) = found.ok_or(CUresult::CUDA_ERROR_NOT_FOUND)?;
        base.set_if_wanted(start as u64);
        bytes.set_if_wanted(len);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuPointerGetAttribute(data: Out<u8>, attribute: u32, pointer: u64) -> CUresult {
    query("cuPointerGetAttribute", |driver| {
        driver.initialised()?;
        let state = driver.state();
        let address = pointer as usize;
        let on_device = state.memory.around(address);
        let found = on_device.or_else(|| state.memory.around_pinned(address));
        let (start, len, context) = found.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        let device = state.contexts.get(&context).map_or(0, |context| context.device);
        let is = |of: Attribute| attribute == of as u32;
        // How wide the value is depends on the attribute.
        if is(Attribute::CU_POINTER_ATTRIBUTE_CONTEXT) {
            data.cast::<Handle>().set(context)
        } else if is(Attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE) {
            data.cast::<u32>().set(if on_device.is_some() { 2 } else { 1 })
        } else if is(Attribute::CU_POINTER_ATTRIBUTE_DEVICE_POINTER)
            || is(Attribute::CU_POINTER_ATTRIBUTE_HOST_POINTER) && on_device.is_none()
        {
            data.cast::<u64>().set(pointer)
        } else if is(Attribute::CU_POINTER_ATTRIBUTE_IS_MANAGED) {
            data.cast::<u8>().set(0)
        } else if is(Attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL) {
            data.cast::<i32>().set(device)
        } else if is(Attribute::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR) {
            data.cast::<u64>().set(start as u64)
        } else if is(Attribute::CU_POINTER_ATTRIBUTE_RANGE_SIZE) {
            data.cast::<usize>().set(len)
        } else {
            Err(CUresult::CUDA_ERROR_INVALID_VALUE)
        }
    })
}
