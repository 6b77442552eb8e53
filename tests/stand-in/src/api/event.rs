//! Events.
#![allow(non_snake_case, reason = "the names of the functions are CUDA's")]

use std::sync::Arc;

use crate::call::{normal, release};
use crate::driver::{Driver, Event, Recorded, wait_for};
use crate::error::{CUresult, Result};
use crate::ffi::{Handle, Out};
use crate::stream::Point;

/// `CU_EVENT_DISABLE_TIMING`
const DISABLE_TIMING: u32 = 2;

#[unsafe(no_mangle)]
extern "C" fn cuEventCreate(event: Out<Handle>, flags: u32) -> CUresult {
    normal("cuEventCreate", |driver| {
        let mut state = driver.state();
        let context = state.current()?;
        if event.is_null() {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let handle = state.new_handle();
        let has_time = flags & DISABLE_TIMING == 0;
        state.events.insert(handle, Event { context, has_time, recorded: Recorded::Never });
        event.set(handle)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuEventDestroy_v2(event: Handle) -> CUresult {
    release("cuEventDestroy_v2", |driver, _| {
        let removed = driver.state().events.remove(&event);
        removed.map(|_| ()).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuEventDestroy(event: Handle) -> CUresult {
    cuEventDestroy_v2(event)
}

#[unsafe(no_mangle)]
extern "C" fn cuEventRecord(event: Handle, stream: Handle) -> CUresult {
    normal("cuEventRecord", |driver| {
        let mut state = driver.state();
        let stream = state.stream(stream)?;
        state.record(event, stream)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuEventRecordWithFlags(event: Handle, stream: Handle, _flags: u32) -> CUresult {
    cuEventRecord(event, stream)
}

/// Where an event was recorded last; none where it never was.
fn point(driver: &Driver, event: Handle) -> Result<Option<Arc<Point>>> {
    let state = driver.state();
    state.current()?;
    match &state.events.get(&event).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?.recorded {
        Recorded::Never => Ok(None),
        Recorded::At(point) => Ok(Some(point.clone())),
        Recorded::Captured(..) => Err(CUresult::CUDA_ERROR_CAPTURED_EVENT),
    }
}

#[unsafe(no_mangle)]
extern "C" fn cuEventQuery(event: Handle) -> CUresult {
    normal("cuEventQuery", |driver| {
        let is_done = point(driver, event)?.is_none_or(|point| point.time().is_some());
        driver.failure_of_thread().map_or(Ok(()), Err)?;
        if is_done { Ok(()) } else { Err(CUresult::CUDA_ERROR_NOT_READY) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuEventSynchronize(event: Handle) -> CUresult {
    normal("cuEventSynchronize", |driver| {
        wait_for(point(driver, event)?.as_slice());
        driver.failure_of_thread().map_or(Ok(()), Err)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuEventElapsedTime(milliseconds: Out<f32>, start: Handle, end: Handle) -> CUresult {
    normal("cuEventElapsedTime", |driver| elapsed(driver, &milliseconds, start, end))
}

#[unsafe(no_mangle)]
extern "C" fn cuEventElapsedTime_v2(milliseconds: Out<f32>, start: Handle, end: Handle) -> CUresult {
    normal("cuEventElapsedTime_v2", |driver| elapsed(driver, &milliseconds, start, end))
}

fn elapsed(driver: &Driver, milliseconds: &Out<f32>, start: Handle, end: Handle) -> Result {
    let time = |event: Handle| {
        let has_time = driver.state().events.get(&event).is_some_and(|event| event.has_time);
        let point = point(driver, event)?.filter(|_| has_time).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
        point.time().ok_or(CUresult::CUDA_ERROR_NOT_READY)
    };
    let (start, end) = (time(start)?, time(end)?);
    let seconds = match end.checked_duration_since(start) {
        Some(after) => after.as_secs_f32(),
        None => -start.duration_since(end).as_secs_f32(),
    };
    milliseconds.set(seconds * 1000.0)
}
