//! Contexts, and which one a thread has.
#![allow(non_snake_case, reason = "the names of the functions are CUDA's")]

use super::device::check;
use crate::call::{normal, query, release};
use crate::driver::{self, Driver, wait_for, with_stack};
use crate::error::{CUresult, Result};
use crate::ffi::{Handle, Out};

#[unsafe(no_mangle)]
extern "C" fn cuCtxCreate_v2(context: Out<Handle>, flags: u32, device: i32) -> CUresult {
    query("cuCtxCreate_v2", |driver| {
        check(driver, device)?;
        let made = driver.state().new_context(device, flags)?;
        with_stack(|stack| stack.push(made));
        context.set(made)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxDestroy_v2(context: Handle) -> CUresult {
    release("cuCtxDestroy_v2", |driver, _| {
        let state = driver.state();
        if !state.contexts.contains_key(&context)
            || state.primary.values().any(|(primary, _)| *primary == context)
        {
            return Err(CUresult::CUDA_ERROR_INVALID_CONTEXT);
        }
        drop(state);
        destroy(driver, context);
        with_stack(|stack| {
            if stack.last() == Some(&context) {
                stack.pop();
            }
        });
        Ok(())
    })
}

/// Waits for all that works in a context, and removes it.
fn destroy(driver: &Driver, context: Handle) {
    let tails = driver.state().tails(context);
    wait_for(&tails);
    driver.state().remove_context(context);
}

#[unsafe(no_mangle)]
extern "C" fn cuDevicePrimaryCtxRetain(context: Out<Handle>, device: i32) -> CUresult {
    query("cuDevicePrimaryCtxRetain", |driver| {
        check(driver, device)?;
        let mut state = driver.state();
        if !state.primary.contains_key(&device) {
            let made = state.new_context(device, 0)?;
            state.primary.insert(device, (made, 0));
        }
        let Some((primary, count)) = state.primary.get_mut(&device) else {
            return Err(CUresult::CUDA_ERROR_UNKNOWN);
        };
        *count += 1;
        context.set(*primary)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDevicePrimaryCtxRelease_v2(device: i32) -> CUresult {
    release("cuDevicePrimaryCtxRelease_v2", |driver, _| {
        check(driver, device)?;
        let mut state = driver.state();
        let (context, count) = state.primary.get_mut(&device).ok_or(CUresult::CUDA_ERROR_INVALID_CONTEXT)?;
        *count -= 1;
        if *count > 0 {
            return Ok(());
        }
        let context = *context;
        state.primary.remove(&device);
        drop(state);
        destroy(driver, context);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDevicePrimaryCtxGetState(device: i32, flags: Out<u32>, is_active: Out<i32>) -> CUresult {
    query("cuDevicePrimaryCtxGetState", |driver| {
        check(driver, device)?;
        flags.set(0)?;
        is_active.set(i32::from(driver.state().primary.contains_key(&device)))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDevicePrimaryCtxSetFlags_v2(device: i32, _flags: u32) -> CUresult {
    query("cuDevicePrimaryCtxSetFlags_v2", |driver| check(driver, device))
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxPushCurrent_v2(context: Handle) -> CUresult {
    query("cuCtxPushCurrent_v2", |driver| {
        driver.initialised()?;
        check_context(driver, context)?;
        with_stack(|stack| stack.push(context));
        Ok(())
    })
}

fn check_context(driver: &Driver, context: Handle) -> Result {
    let exists = driver.state().contexts.contains_key(&context);
    if exists { Ok(()) } else { Err(CUresult::CUDA_ERROR_INVALID_CONTEXT) }
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxPopCurrent_v2(context: Out<Handle>) -> CUresult {
    // Who pushed must be able to pop, whatever happened in between.
    release("cuCtxPopCurrent_v2", |_, _| {
        let popped = with_stack(Vec::pop).ok_or(CUresult::CUDA_ERROR_INVALID_CONTEXT)?;
        context.set_if_wanted(popped);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxSetCurrent(context: Handle) -> CUresult {
    query("cuCtxSetCurrent", |driver| {
        driver.initialised()?;
        if context != Handle::NONE {
            check_context(driver, context)?;
        }
        with_stack(|stack| {
            stack.pop();
            if context != Handle::NONE {
                stack.push(context);
            }
        });
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxGetCurrent(context: Out<Handle>) -> CUresult {
    query("cuCtxGetCurrent", |driver| {
        driver.initialised()?;
        context.set(driver::current().unwrap_or(Handle::NONE))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxGetDevice(device: Out<i32>) -> CUresult {
    query("cuCtxGetDevice", |driver| {
        driver.initialised()?;
        let state = driver.state();
        device.set(state.contexts[&state.current()?].device)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxGetFlags(flags: Out<u32>) -> CUresult {
    query("cuCtxGetFlags", |driver| {
        driver.initialised()?;
        let state = driver.state();
        flags.set(state.contexts[&state.current()?].flags)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxSynchronize() -> CUresult {
    normal("cuCtxSynchronize", |driver| {
        let mut state = driver.state();
        let context = state.current()?;
        let of_context: Vec<Handle> = state
            .streams
            .iter()
            .filter(|(_, stream)| stream.context == context)
            .map(|(handle, _)| *handle)
            .collect();
        state.forbid_waiting(|stream| of_context.contains(&stream))?;
        let tails = state.tails(context);
        drop(state);
        wait_for(&tails);
        driver.state().check(context)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxGetStreamPriorityRange(least: Out<i32>, greatest: Out<i32>) -> CUresult {
    normal("cuCtxGetStreamPriorityRange", |driver| {
        driver.state().current()?;
        least.set_if_wanted(0);
        greatest.set_if_wanted(-5);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxEnablePeerAccess(_context: Handle, _flags: u32) -> CUresult {
    normal("cuCtxEnablePeerAccess", |_| Err(CUresult::CUDA_ERROR_PEER_ACCESS_UNSUPPORTED))
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxDisablePeerAccess(_context: Handle) -> CUresult {
    normal("cuCtxDisablePeerAccess", |_| Err(CUresult::CUDA_ERROR_PEER_ACCESS_UNSUPPORTED))
}
