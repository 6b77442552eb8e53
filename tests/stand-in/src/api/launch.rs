//! Kernels: their attributes and launches.
#![allow(non_snake_case, reason = "the names of the functions are CUDA's")]

use std::sync::Arc;

use cudarc::driver::sys::CUfunction_attribute as Attribute;

use crate::call::normal;
use crate::device::Device;
use crate::driver::{Driver, State};
use crate::emulator::{Arguments, Launch};
use crate::error::{CUresult, Result};
use crate::ffi::{Handle, In, Out};
use crate::work::Work;

#[unsafe(no_mangle)]
extern "C" fn cuFuncGetAttribute(value: Out<i32>, attribute: u32, function: Handle) -> CUresult {
    normal("cuFuncGetAttribute", |driver| {
        let state = driver.state();
        let function = state.functions.get(&function).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
        let is = |of: Attribute| attribute == of as u32;
        value.set(if is(Attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK) {
            function.max_threads() as i32
        } else if is(Attribute::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES) {
            function.kernel.entry.static_shared as i32
        } else if is(Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) {
            function.dynamic_shared as i32
        } else if is(Attribute::CU_FUNC_ATTRIBUTE_NUM_REGS) {
            // As many as there are for each thread of the largest block.
            (65536 / function.max_threads().max(1)).min(255) as i32
        } else if attribute < Attribute::CU_FUNC_ATTRIBUTE_MAX as u32 {
            0
        } else {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        })
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuFuncSetAttribute(function: Handle, attribute: u32, value: i32) -> CUresult {
    normal("cuFuncSetAttribute", |driver| {
        let mut state = driver.state();
        let device = device_of(&state, driver, function)?;
        let function = state.functions.get_mut(&function).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
        if attribute == Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES as u32 {
            let most = device.shared_opt_in().saturating_sub(function.kernel.entry.static_shared);
            let wanted = usize::try_from(value).ok().filter(|wanted| *wanted <= most);
            function.dynamic_shared = wanted.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
            return Ok(());
        }
        // Only a hint.
        let is_carveout = attribute == Attribute::CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT as u32;
        if is_carveout && (-1..=100).contains(&value) {
            Ok(())
        } else {
            Err(CUresult::CUDA_ERROR_INVALID_VALUE)
        }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
    blocks: Out<i32>,
    function: Handle,
    threads: i32,
    shared: usize,
) -> CUresult {
    normal("cuOccupancyMaxActiveBlocksPerMultiprocessor", |driver| {
        occupancy(driver, &blocks, function, threads, shared)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    blocks: Out<i32>,
    function: Handle,
    threads: i32,
    shared: usize,
    _flags: u32,
) -> CUresult {
    normal("cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags", |driver| {
        occupancy(driver, &blocks, function, threads, shared)
    })
}

/// The device that a function's module was loaded for.
fn device_of(state: &State, driver: &Driver, function: Handle) -> Result<Device> {
    let function = state.functions.get(&function).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
    let context = state.contexts.get(&function.context).ok_or(CUresult::CUDA_ERROR_INVALID_CONTEXT)?;
    Ok(Device::new(&driver.settings, context.device))
}

fn occupancy(driver: &Driver, blocks: &Out<i32>, function: Handle, threads: i32, shared: usize) -> Result {
    let state = driver.state();
    let device = device_of(&state, driver, function)?;
    let function = state.functions.get(&function).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
    let threads = u32::try_from(threads).ok().filter(|threads| *threads > 0);
    let threads = threads.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    blocks.set(function.blocks(&device, threads, shared) as i32)
}

#[unsafe(no_mangle)]
extern "C" fn cuLaunchKernel(
    function: Handle,
    grid_x: u32,
    grid_y: u32,
    grid_z: u32,
    block_x: u32,
    block_y: u32,
    block_z: u32,
    shared: u32,
    stream: Handle,
    parameters: In<usize>,
    extra: In<usize>,
) -> CUresult {
    let (grid, block, shared) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z], shared as usize);
    normal("cuLaunchKernel", |driver| {
        let mut state = driver.state();
        let stream = state.stream(stream)?;
        let context = state.current()?;
        let function = state.functions.get(&function).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
        if function.context != context || state.streams[&stream].context != context {
            return Err(CUresult::CUDA_ERROR_INVALID_HANDLE);
        }
        let kernel = function.kernel.clone();
        if let Some(why) = function.refusal(grid, block, shared) {
            let name = &kernel.name;
            eprintln!(
                "stand-in: {name} with grid {grid:?}, block {block:?} and {shared} bytes is refused: {why}"
            );
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        if !extra.is_null() {
            return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
        }
        let sizes = &kernel.entry.parameters;
        let addresses = (0..sizes.len()).map(|index| parameters.at(index)).collect::<Result<Vec<_>>>()?;
        if addresses.contains(&0) {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: the caller gives the address of a value for each parameter of the kernel.
        let arguments = unsafe { Arguments::copy(sizes, &addresses) };
        let launch = Launch { kernel, grid, block, shared, arguments };
        state.enqueue(stream, Work::Kernel(Arc::new(launch))).map(|_| ())
    })
}
