//! The driver and its devices, without a context.
#![allow(non_snake_case, reason = "the names of the functions are CUDA's")]

use std::ffi::c_char;

use crate::call::{normal, query};
use crate::device::Device;
use crate::driver::{Driver, State};
use crate::error::{self, CUresult, Result};
use crate::ffi::{Handle, Out};

#[unsafe(no_mangle)]
extern "C" fn cuInit(flags: u32) -> CUresult {
    query("cuInit", |driver| {
        if flags != 0 {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        driver.initialise()
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDriverGetVersion(version: Out<i32>) -> CUresult {
    query("cuDriverGetVersion", |driver| version.set(driver.settings.driver))
}

#[unsafe(no_mangle)]
extern "C" fn cuGetErrorName(result: u32, name: Out<*const c_char>) -> CUresult {
    answer(name, error::texts(result).map(|(name, _)| name.as_ptr()))
}

#[unsafe(no_mangle)]
extern "C" fn cuGetErrorString(result: u32, text: Out<*const c_char>) -> CUresult {
    answer(text, error::texts(result).map(|(_, text)| text.as_ptr()))
}

/// A text that is always there, or NULL.
fn answer(place: Out<*const c_char>, text: Option<*const c_char>) -> CUresult {
    let is_known = text.is_some();
    match place.set(text.unwrap_or(std::ptr::null())) {
        Ok(()) if is_known => CUresult::CUDA_SUCCESS,
        _ => CUresult::CUDA_ERROR_INVALID_VALUE,
    }
}

/// Whether there is such a device.
pub fn check(driver: &Driver, device: i32) -> Result {
    driver.initialised()?;
    let exists = (0..driver.settings.device_count()).contains(&device);
    if exists { Ok(()) } else { Err(CUresult::CUDA_ERROR_INVALID_DEVICE) }
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGet(device: Out<i32>, ordinal: i32) -> CUresult {
    query("cuDeviceGet", |driver| {
        check(driver, ordinal)?;
        device.set(ordinal)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetCount(count: Out<i32>) -> CUresult {
    query("cuDeviceGetCount", |driver| {
        driver.initialised()?;
        count.set(driver.settings.device_count())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetName(name: Out<c_char>, len: i32, device: i32) -> CUresult {
    query("cuDeviceGetName", |driver| {
        check(driver, device)?;
        let (major, minor) = driver.settings.capability(device);
        name.set_text(&format!("Stand-in {major}.{minor}"), usize::try_from(len).unwrap_or(0))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetAttribute(value: Out<i32>, attribute: u32, device: i32) -> CUresult {
    query("cuDeviceGetAttribute", |driver| {
        check(driver, device)?;
        let found = Device::new(&driver.settings, device).attribute(attribute);
        value.set(found.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceComputeCapability(major: Out<i32>, minor: Out<i32>, device: i32) -> CUresult {
    query("cuDeviceComputeCapability", |driver| {
        check(driver, device)?;
        let capability = driver.settings.capability(device);
        major.set(capability.0 as i32)?;
        minor.set(capability.1 as i32)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceTotalMem_v2(bytes: Out<usize>, device: i32) -> CUresult {
    query("cuDeviceTotalMem_v2", |driver| {
        check(driver, device)?;
        bytes.set(driver.settings.memory)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetUuid(uuid: Out<[u8; 16]>, device: i32) -> CUresult {
    query("cuDeviceGetUuid", |driver| {
        check(driver, device)?;
        let mut bytes = *b"sapiens stand-in";
        bytes[15] = device as u8;
        uuid.set(bytes)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetUuid_v2(uuid: Out<[u8; 16]>, device: i32) -> CUresult {
    cuDeviceGetUuid(uuid, device)
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceCanAccessPeer(can: Out<i32>, device: i32, peer: i32) -> CUresult {
    query("cuDeviceCanAccessPeer", |driver| {
        check(driver, device)?;
        check(driver, peer)?;
        can.set(0)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemGetInfo_v2(free: Out<usize>, total: Out<usize>) -> CUresult {
    normal("cuMemGetInfo_v2", |driver| {
        let state = driver.state();
        let device = state.contexts[&state.current()?].device;
        free.set(driver.settings.memory.saturating_sub(used(&state, device)))?;
        total.set(driver.settings.memory)
    })
}

/// Bytes that are in use on a device.
pub fn used(state: &State, device: i32) -> usize {
    state.memory.used(|context: Handle| state.contexts.get(&context).is_some_and(|of| of.device == device))
}
