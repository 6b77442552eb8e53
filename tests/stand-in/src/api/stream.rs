//! Streams, and the functions of the host in them.
#![allow(non_snake_case, reason = "the names of the functions are CUDA's")]

use std::ffi::c_void;

use crate::call::{normal, release};
use crate::driver::{Driver, wait_for};
use crate::error::{CUresult, Result};
use crate::ffi::{Handle, Out};
use crate::stream::{NON_BLOCKING, Stream};
use crate::work::{HostFunction, Work};

#[unsafe(no_mangle)]
extern "C" fn cuStreamCreate(stream: Out<Handle>, flags: u32) -> CUresult {
    normal("cuStreamCreate", |driver| create(driver, &stream, flags, 0))
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamCreateWithPriority(stream: Out<Handle>, flags: u32, priority: i32) -> CUresult {
    normal("cuStreamCreateWithPriority", |driver| create(driver, &stream, flags, priority))
}

fn create(driver: &Driver, stream: &Out<Handle>, flags: u32, priority: i32) -> Result {
    let mut state = driver.state();
    let context = state.current()?;
    if stream.is_null() || flags & !NON_BLOCKING != 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    stream.set(state.new_stream(context, flags, priority)?)
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamDestroy_v2(stream: Handle) -> CUresult {
    release("cuStreamDestroy_v2", |driver, _| {
        let mut state = driver.state();
        if state.is_legacy(stream) {
            return Err(CUresult::CUDA_ERROR_INVALID_HANDLE);
        }
        let removed = state.streams.remove(&stream).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
        if let Some(capture) = removed.capture {
            state.drop_capture(capture);
        }
        let (tail, is_blocking) = (removed.tail.clone(), removed.is_blocking());
        if let Some(context) = state.contexts.get_mut(&removed.context) {
            context.orphans.retain(|(point, _)| point.time().is_none());
            context.orphans.push((tail, is_blocking));
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamDestroy(stream: Handle) -> CUresult {
    cuStreamDestroy_v2(stream)
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamSynchronize(stream: Handle) -> CUresult {
    normal("cuStreamSynchronize", |driver| {
        let mut state = driver.state();
        let stream = state.stream(stream)?;
        state.forbid_waiting(|other| other == stream)?;
        let context = state.streams[&stream].context;
        let point = if state.is_legacy(stream) {
            // Behind everything that the default stream waits for.
            state.enqueue(stream, Work::Marker("synchronize"))?
        } else {
            Some(state.streams[&stream].tail.clone())
        };
        drop(state);
        wait_for(point.as_slice());
        driver.state().check(context)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamQuery(stream: Handle) -> CUresult {
    normal("cuStreamQuery", |driver| {
        let mut state = driver.state();
        let stream = state.stream(stream)?;
        state.forbid_waiting(|other| other == stream)?;
        let context = state.streams[&stream].context;
        let is_legacy = state.is_legacy(stream);
        let counts = |(handle, other): (&Handle, &Stream)| {
            *handle == stream || is_legacy && other.context == context && other.is_blocking()
        };
        let mut tails = state.streams.iter().filter(|(handle, other)| counts((handle, other)));
        let is_done = tails.all(|(_, other)| other.tail.time().is_some());
        state.check(context)?;
        if is_done { Ok(()) } else { Err(CUresult::CUDA_ERROR_NOT_READY) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamWaitEvent(stream: Handle, event: Handle, _flags: u32) -> CUresult {
    normal("cuStreamWaitEvent", |driver| {
        let mut state = driver.state();
        let stream = state.stream(stream)?;
        state.wait_event(stream, event)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamGetFlags(stream: Handle, flags: Out<u32>) -> CUresult {
    normal("cuStreamGetFlags", |driver| {
        let state = driver.state();
        flags.set(state.streams[&state.stream(stream)?].flags)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamGetPriority(stream: Handle, priority: Out<i32>) -> CUresult {
    normal("cuStreamGetPriority", |driver| {
        let state = driver.state();
        priority.set(state.streams[&state.stream(stream)?].priority)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamGetCtx(stream: Handle, context: Out<Handle>) -> CUresult {
    normal("cuStreamGetCtx", |driver| {
        let state = driver.state();
        context.set(state.streams[&state.stream(stream)?].context)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuLaunchHostFunc(
    stream: Handle,
    function: Option<unsafe extern "C" fn(*mut c_void)>,
    data: usize,
) -> CUresult {
    normal("cuLaunchHostFunc", |driver| {
        let mut state = driver.state();
        let stream = state.stream(stream)?;
        let function = function.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        state.enqueue(stream, Work::Host(HostFunction { function, data })).map(|_| ())
    })
}
