//! The order within streams, between them, and in graphs; and that it shows when an order is missing.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]
#![allow(clippy::unwrap_used)] // A test that can't go on has failed.
#![allow(unsafe_code, reason = "the driver's functions are C's")]

#[macro_use]
mod support;

use std::ffi::c_void;
use std::ptr::null_mut;

use cudarc::driver::sys::{self, CUdeviceptr, CUgraph, CUgraphExec, CUresult, CUstream, CUstreamCaptureMode};
use support::{Alone, Gate, allocate, child, download, event, is_child, said, stream};

const NOT_READY: CUresult = CUresult::CUDA_ERROR_NOT_READY;
const RELAXED: CUstreamCaptureMode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;

fn destroy(streams: &[CUstream], memory: &[CUdeviceptr]) {
    streams.iter().for_each(|stream| call!(cuStreamDestroy_v2(*stream)));
    memory.iter().for_each(|memory| call!(cuMemFree_v2(*memory)));
}

#[test]
fn a_stream_keeps_its_order() {
    let _alone = Alone::new();
    let (queue, memory, copy) = (stream(), allocate(4), allocate(4 * 100));
    for value in 0..100 {
        call!(cuMemsetD32Async(memory, value, 1, queue));
        call!(cuMemcpyDtoDAsync_v2(copy + u64::from(value) * 4, memory, 4, queue));
    }
    call!(cuStreamSynchronize(queue));
    assert_eq!(download(copy, 100), (0..100).collect::<Vec<_>>());
    destroy(&[queue], &[memory, copy]);
}

#[test]
fn a_stream_says_whether_it_is_done() {
    let _alone = Alone::new();
    let (queue, done) = (stream(), event());
    call!(cuStreamQuery(queue));
    call!(cuEventQuery(done));
    let gate = Gate::new(queue);
    call!(cuEventRecord(done, queue));
    assert_eq!(result!(cuStreamQuery(queue)), NOT_READY);
    assert_eq!(result!(cuEventQuery(done)), NOT_READY);
    gate.open();
    call!(cuEventSynchronize(done));
    call!(cuStreamQuery(queue));
    call!(cuEventDestroy_v2(done));
    destroy(&[queue], &[]);
}

#[test]
fn a_stream_waits_for_an_event_as_it_was_when_it_was_told_to() {
    let _alone = Alone::new();
    let (first, second, third) = (stream(), stream(), stream());
    let (memory, copy, recorded) = (allocate(4), allocate(8), event());
    // An event that was never recorded holds up nobody.
    call!(cuStreamWaitEvent(second, recorded, 0));
    call!(cuStreamSynchronize(second));

    let gate = Gate::new(first);
    call!(cuMemsetD32Async(memory, 1, 1, first));
    call!(cuEventRecord(recorded, first));
    call!(cuStreamWaitEvent(second, recorded, 0));
    // Recording it anew, elsewhere, changes nothing for who waits already.
    let later = Gate::new(third);
    call!(cuEventRecord(recorded, third));
    call!(cuMemcpyDtoDAsync_v2(copy, memory, 4, second));
    assert_eq!(result!(cuStreamQuery(second)), NOT_READY);
    gate.open();
    call!(cuStreamSynchronize(second));
    assert_eq!(download(copy, 1), [1]);
    assert_eq!(result!(cuEventQuery(recorded)), NOT_READY);
    later.open();
    call!(cuEventDestroy_v2(recorded));
    destroy(&[first, second, third], &[memory, copy]);
}

#[test]
fn events_have_times() {
    let _alone = Alone::new();
    let (queue, start, end, untimed) = (stream(), event(), event(), value!(sys::CUevent: cuEventCreate(2)));
    extern "C" fn sleep(_: *mut c_void) {
        std::thread::sleep(std::time::Duration::from_millis(3));
    }
    call!(cuEventRecord(start, queue));
    call!(cuLaunchHostFunc(queue, Some(sleep), null_mut()));
    call!(cuEventRecord(end, queue));
    call!(cuEventRecord(untimed, queue));
    call!(cuStreamSynchronize(queue));
    let milliseconds = value!(f32: cuEventElapsedTime(start, end));
    assert!((3.0..1000.0).contains(&milliseconds), "{milliseconds}");
    assert_eq!(result!(cuEventElapsedTime(&mut 0.0, start, untimed)), CUresult::CUDA_ERROR_INVALID_HANDLE);
    for event in [start, end, untimed] {
        call!(cuEventDestroy_v2(event));
    }
    destroy(&[queue], &[]);
}

#[test]
fn the_default_stream_and_blocking_ones_wait_for_each_other() {
    let _alone = Alone::new();
    let (blocking, other) = (value!(CUstream: cuStreamCreate(0)), stream());
    let memory = allocate(12);
    let gate = Gate::new(blocking);
    call!(cuMemsetD32Async(memory, 1, 1, blocking));
    call!(cuMemcpyDtoDAsync_v2(memory + 4, memory, 4, null_mut()));
    assert_eq!(result!(cuStreamQuery(null_mut())), NOT_READY);
    call!(cuMemsetD32Async(memory + 8, 2, 1, other));
    call!(cuStreamSynchronize(other));
    gate.open();
    call!(cuStreamSynchronize(null_mut()));
    assert_eq!(download(memory, 3), [1, 1, 2]);

    let gate = Gate::new(null_mut());
    call!(cuMemsetD32Async(memory, 3, 1, null_mut()));
    call!(cuMemcpyDtoDAsync_v2(memory + 4, memory, 4, blocking));
    assert_eq!(result!(cuStreamQuery(blocking)), NOT_READY);
    gate.open();
    call!(cuStreamSynchronize(blocking));
    assert_eq!(download(memory, 2), [3, 3]);
    destroy(&[blocking, other], &[memory]);
}

#[test]
fn a_stream_that_is_destroyed_finishes_its_work() {
    let _alone = Alone::new();
    let (queue, memory) = (stream(), allocate(4));
    let gate = Gate::new(queue);
    call!(cuMemsetD32Async(memory, 1, 1, queue));
    call!(cuStreamDestroy_v2(queue));
    assert_eq!(result!(cuStreamQuery(queue)), CUresult::CUDA_ERROR_INVALID_HANDLE);
    gate.open();
    call!(cuCtxSynchronize());
    assert_eq!(download(memory, 1), [1]);
    destroy(&[], &[memory]);
}

#[test]
fn memory_is_freed_when_nothing_works_any_more() {
    let _alone = Alone::new();
    let (queue, memory) = (stream(), allocate(4));
    let gate = Gate::new(queue);
    call!(cuMemsetD32Async(memory, 1, 1, queue));
    let opener = std::thread::spawn(|| {
        std::thread::sleep(std::time::Duration::from_millis(20));
        gate.open();
    });
    call!(cuMemFree_v2(memory));
    call!(cuStreamQuery(queue));
    opener.join().unwrap();
    destroy(&[queue], &[]);
}

#[test]
fn a_function_of_the_host_can_not_call_the_driver() {
    let _alone = Alone::new();
    let queue = stream();
    extern "C" fn call(result: *mut c_void) {
        // SAFETY: the variable of below, which outlives the stream's work.
        unsafe { *result.cast::<CUresult>() = sys::cuStreamQuery(null_mut()) };
    }
    let mut result = CUresult::CUDA_SUCCESS;
    call!(cuLaunchHostFunc(queue, Some(call), (&raw mut result).cast()));
    call!(cuStreamSynchronize(queue));
    assert_eq!(result, CUresult::CUDA_ERROR_NOT_PERMITTED);
    destroy(&[queue], &[]);
}

/// How often, of many times, a copy in one stream came too early for what was written in another.
fn too_early(is_waiting: bool) -> usize {
    let (writer, reader, written) = (stream(), stream(), event());
    let (memory, copy) = (allocate(4), allocate(4));
    let mut wrong = 0;
    for value in 0..50 {
        call!(cuMemsetD32Async(memory, value, 1, writer));
        call!(cuEventRecord(written, writer));
        if is_waiting {
            call!(cuStreamWaitEvent(reader, written, 0));
        }
        call!(cuMemcpyDtoDAsync_v2(copy, memory, 4, reader));
        call!(cuCtxSynchronize());
        wrong += usize::from(download(copy, 1) != [value]);
    }
    call!(cuEventDestroy_v2(written));
    destroy(&[writer, reader], &[memory, copy]);
    wrong
}

#[test]
fn a_missing_wait_shows() {
    let mut shown = 0;
    for seed in ["1", "2", "3"] {
        let environment = [("SAPIENS_STAND_IN_SEED", seed), ("SAPIENS_STAND_IN_DELAY", "200")];
        match child("a_missing_wait_shows", &environment) {
            Some(output) => {
                assert!(output.status.success(), "{}", said(&output));
                shown += usize::from(!said(&output).contains("never too early"));
            }
            None => {
                let _alone = Alone::new();
                assert_eq!(too_early(true), 0);
                if too_early(false) == 0 {
                    println!("never too early");
                }
                return;
            }
        }
    }
    assert!(shown > 0, "no seed shows it");
}

/// Captures what is enqueued, and makes a graph that can be launched of it.
fn capture(queue: CUstream, enqueue: impl FnOnce()) -> CUgraphExec {
    call!(cuStreamBeginCapture_v2(queue, RELAXED));
    enqueue();
    let mut graph: CUgraph = null_mut();
    call!(cuStreamEndCapture(queue, &raw mut graph));
    let exec = value!(CUgraphExec: cuGraphInstantiateWithFlags(graph, 0));
    call!(cuGraphDestroy(graph));
    exec
}

#[test]
fn a_graph_does_again_what_was_captured() {
    let _alone = Alone::new();
    let (queue, memory, copy) = (stream(), allocate(4), allocate(4));
    let host = Box::into_raw(Box::new(5u32));
    let exec = capture(queue, || {
        call!(cuMemcpyHtoDAsync_v2(memory, host.cast(), 4, queue));
        call!(cuMemcpyDtoDAsync_v2(copy, memory, 4, queue));
        let mut status = sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
        call!(cuStreamIsCapturing(queue, &raw mut status));
        assert_eq!(status, sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE);
    });
    assert_eq!(download(copy, 1), [u32::MAX], "nothing ran");
    call!(cuGraphUpload(exec, queue));
    for value in [6, 7] {
        // SAFETY: no graph runs.
        unsafe { *host = value };
        call!(cuGraphLaunch(exec, queue));
        call!(cuStreamSynchronize(queue));
        assert_eq!(download(copy, 1), [value]);
    }
    call!(cuGraphExecDestroy(exec));
    destroy(&[queue], &[memory, copy]);
    // SAFETY: the box of above.
    drop(unsafe { Box::from_raw(host) });
}

#[test]
fn a_graph_spans_streams_that_events_join() {
    let _alone = Alone::new();
    let (queue, branch) = (stream(), stream());
    let (forked, joined) = (event(), event());
    let memory = allocate(16);
    let exec = capture(queue, || {
        call!(cuMemsetD32Async(memory, 1, 1, queue));
        call!(cuEventRecord(forked, queue));
        call!(cuStreamWaitEvent(branch, forked, 0));
        call!(cuMemcpyDtoDAsync_v2(memory + 4, memory, 4, branch));
        call!(cuEventRecord(joined, branch));
        call!(cuMemsetD32Async(memory + 8, 2, 1, queue));
        call!(cuStreamWaitEvent(queue, joined, 0));
        call!(cuMemcpyDtoDAsync_v2(memory + 12, memory + 4, 4, queue));
        assert_eq!(result!(cuEventQuery(joined)), CUresult::CUDA_ERROR_CAPTURED_EVENT);
    });
    for _ in 0..50 {
        call!(cuMemsetD32Async(memory, 0, 4, queue));
        call!(cuGraphLaunch(exec, queue));
        call!(cuStreamSynchronize(queue));
        assert_eq!(download(memory, 4), [1, 1, 2, 1]);
    }
    // The branch is no part of a capture any more.
    call!(cuMemsetD32Async(memory, 9, 1, branch));
    call!(cuStreamSynchronize(branch));
    call!(cuGraphExecDestroy(exec));
    call!(cuEventDestroy_v2(forked));
    call!(cuEventDestroy_v2(joined));
    destroy(&[queue, branch], &[memory]);
}

#[test]
fn a_graph_that_forgets_to_wait_shows() {
    let _alone = Alone::new();
    let (queue, branch) = (stream(), stream());
    let (forked, joined) = (event(), event());
    let memory = allocate(8);
    let exec = capture(queue, || {
        call!(cuEventRecord(forked, queue));
        call!(cuStreamWaitEvent(branch, forked, 0));
        call!(cuMemsetD32Async(memory, 1, 1, queue));
        // It should have waited for the line above.
        call!(cuMemcpyDtoDAsync_v2(memory + 4, memory, 4, branch));
        call!(cuEventRecord(joined, branch));
        call!(cuStreamWaitEvent(queue, joined, 0));
    });
    let mut seen = [false; 2];
    for _ in 0..50 {
        call!(cuMemsetD32Async(memory, 0, 2, queue));
        call!(cuGraphLaunch(exec, queue));
        call!(cuStreamSynchronize(queue));
        seen[download(memory, 2)[1] as usize] = true;
    }
    assert_eq!(seen, [true; 2]);
    call!(cuGraphExecDestroy(exec));
    call!(cuEventDestroy_v2(forked));
    call!(cuEventDestroy_v2(joined));
    destroy(&[queue, branch], &[memory]);
}

#[test]
fn what_can_not_be_captured_is_refused() {
    let _alone = Alone::new();
    let (queue, other, blocking) = (stream(), stream(), value!(CUstream: cuStreamCreate(0)));
    let (outside, inside, memory) = (event(), event(), allocate(4));
    let mut graph: CUgraph = null_mut();
    let unsupported = CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    let invalidated = CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    let global = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL;

    assert_eq!(result!(cuStreamBeginCapture_v2(null_mut(), RELAXED)), unsupported);
    assert_eq!(result!(cuStreamEndCapture(queue, &raw mut graph)), CUresult::CUDA_ERROR_ILLEGAL_STATE);

    // Waiting spoils a capture.
    call!(cuStreamBeginCapture_v2(queue, RELAXED));
    assert_eq!(result!(cuStreamSynchronize(queue)), unsupported);
    assert_eq!(result!(cuMemsetD8Async(memory, 0, 4, queue)), invalidated);
    assert_eq!(result!(cuStreamEndCapture(queue, &raw mut graph)), invalidated);

    // So does allocating, unless that is allowed.
    call!(cuStreamBeginCapture_v2(queue, global));
    assert_eq!(result!(cuMemAlloc_v2(&mut 0, 4)), unsupported);
    assert_eq!(result!(cuStreamEndCapture(queue, &raw mut graph)), invalidated);
    call!(cuStreamBeginCapture_v2(queue, RELAXED));
    call!(cuMemFree_v2(allocate(4)));
    call!(cuStreamEndCapture(queue, &raw mut graph));
    call!(cuGraphDestroy(graph));

    // A graph can't wait for what is outside of it, nor the other way round.
    call!(cuEventRecord(outside, other));
    call!(cuStreamBeginCapture_v2(queue, RELAXED));
    let isolation = CUresult::CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    assert_eq!(result!(cuStreamWaitEvent(queue, outside, 0)), isolation);
    assert_eq!(result!(cuStreamEndCapture(queue, &raw mut graph)), invalidated);

    // A stream that joined must be waited for.
    call!(cuStreamBeginCapture_v2(queue, RELAXED));
    call!(cuEventRecord(inside, queue));
    call!(cuStreamWaitEvent(other, inside, 0));
    call!(cuMemsetD8Async(memory, 0, 4, other));
    let unmatched = CUresult::CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    assert_eq!(result!(cuStreamEndCapture(other, &raw mut graph)), unmatched);
    assert_eq!(
        result!(cuStreamEndCapture(queue, &raw mut graph)),
        CUresult::CUDA_ERROR_STREAM_CAPTURE_UNJOINED
    );

    // The default stream would have to wait for a blocking one.
    call!(cuStreamBeginCapture_v2(blocking, RELAXED));
    let implicit = CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    assert_eq!(result!(cuMemsetD8Async(memory, 0, 4, null_mut())), implicit);
    assert_eq!(result!(cuStreamEndCapture(blocking, &raw mut graph)), invalidated);

    // A stream that is destroyed takes its capture with it.
    call!(cuStreamBeginCapture_v2(blocking, RELAXED));
    call!(cuEventDestroy_v2(outside));
    call!(cuEventDestroy_v2(inside));
    destroy(&[queue, other, blocking], &[memory]);
}

#[test]
fn many_threads_share_the_driver() {
    if !is_child("many_threads_share_the_driver", &[("SAPIENS_STAND_IN_DELAY", "5")]) {
        return;
    }
    let alone = Alone::new();
    let context = alone.context as usize;
    std::thread::scope(|scope| {
        for thread in 0..8u32 {
            scope.spawn(move || {
                call!(cuCtxSetCurrent(context as sys::CUcontext));
                for round in 0..20 {
                    let (queue, memory, done) = (stream(), allocate(64), event());
                    call!(cuMemsetD32Async(memory, thread << 16 | round, 16, queue));
                    call!(cuEventRecord(done, queue));
                    call!(cuEventSynchronize(done));
                    assert_eq!(download(memory, 16), [thread << 16 | round; 16]);
                    call!(cuEventDestroy_v2(done));
                    destroy(&[queue], &[memory]);
                }
            });
        }
    });
}
