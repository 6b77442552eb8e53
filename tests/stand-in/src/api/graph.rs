//! Captures and graphs.
#![allow(non_snake_case, reason = "the names of the functions are CUDA's")]

use crate::call::{normal, release};
use crate::capture::{Exec, Mode};
use crate::driver::Driver;
use crate::error::{CUresult, Result};
use crate::ffi::{Handle, Out};
use crate::stream::Point;
use crate::work::Work;

#[unsafe(no_mangle)]
extern "C" fn cuStreamBeginCapture_v2(stream: Handle, mode: u32) -> CUresult {
    normal("cuStreamBeginCapture_v2", |driver| {
        let mode = match mode {
            0 => Mode::Global,
            1 => Mode::ThreadLocal,
            2 => Mode::Relaxed,
            _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        };
        let mut state = driver.state();
        let stream = state.stream(stream)?;
        state.begin_capture(stream, mode)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamEndCapture(stream: Handle, graph: Out<Handle>) -> CUresult {
    // A capture that fails is over too.
    release("cuStreamEndCapture", |driver, failure| {
        graph.set(Handle::NONE)?;
        let mut state = driver.state();
        let stream = state.stream(stream)?;
        let captured = state.end_capture(stream)?;
        if failure.is_some() {
            state.graphs.remove(&captured);
            return Ok(());
        }
        graph.set(captured)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamIsCapturing(stream: Handle, status: Out<u32>) -> CUresult {
    normal("cuStreamIsCapturing", |driver| {
        let state = driver.state();
        // None, active, invalidated.
        status.set(match state.capture_of(state.stream(stream)?) {
            None => 0,
            Some(true) => 1,
            Some(false) => 2,
        })
    })
}

fn instantiate(driver: &Driver, exec: &Out<Handle>, graph: Handle) -> Result {
    let mut state = driver.state();
    state.current()?;
    if exec.is_null() {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let graph = state.graphs.get(&graph).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    let made = Exec { context: graph.context, nodes: graph.nodes.clone(), last: Point::passed() };
    let handle = state.new_handle();
    state.execs.insert(handle, made);
    exec.set(handle)
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphInstantiateWithFlags(exec: Out<Handle>, graph: Handle, _flags: u64) -> CUresult {
    normal("cuGraphInstantiateWithFlags", |driver| instantiate(driver, &exec, graph))
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphUpload(exec: Handle, stream: Handle) -> CUresult {
    normal("cuGraphUpload", |driver| {
        let mut state = driver.state();
        let stream = state.stream(stream)?;
        let is_known = state.execs.contains_key(&exec);
        if !is_known {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        state.enqueue(stream, Work::Marker("upload")).map(|_| ())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphLaunch(exec: Handle, stream: Handle) -> CUresult {
    normal("cuGraphLaunch", |driver| {
        let mut state = driver.state();
        let stream = state.stream(stream)?;
        let graph = state.execs.get(&exec).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        let (nodes, last) = (graph.nodes.clone(), graph.last.clone());
        let done = state.enqueue_behind(stream, Work::Graph(nodes), Some(last))?;
        if let (Some(done), Some(graph)) = (done, state.execs.get_mut(&exec)) {
            graph.last = done;
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphExecDestroy(exec: Handle) -> CUresult {
    release("cuGraphExecDestroy", |driver, _| {
        let removed = driver.state().execs.remove(&exec);
        removed.map(|_| ()).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphDestroy(graph: Handle) -> CUresult {
    release("cuGraphDestroy", |driver, _| {
        let removed = driver.state().graphs.remove(&graph);
        removed.map(|_| ()).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
    })
}
