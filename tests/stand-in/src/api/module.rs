//! Modules and their kernels.
#![allow(non_snake_case, reason = "the names of the functions are CUDA's")]

use std::ffi::c_char;

use crate::call::{normal, release};
use crate::device::Device;
use crate::driver::Driver;
use crate::error::{CUresult, Result};
use crate::ffi::{Handle, In, Out, Text};
use crate::module::{self, Function, Module};

/// Loads PTX; the text of a failure goes to stderr and to `complain`.
fn load(driver: &Driver, module: &Out<Handle>, image: &Text, complain: impl FnOnce(&str)) -> Result {
    if module.is_null() {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let text = image.get()?;
    let (context, device) = {
        let mut state = driver.state();
        state.forbid_in_capture()?;
        let context = state.current()?;
        (context, state.contexts[&context].device)
    };
    let loaded = module::load(&text, &Device::new(&driver.settings, device), driver.settings.driver);
    let kernels = loaded.map_err(|(result, why)| {
        eprintln!("stand-in: a module can't be loaded: {why}");
        complain(&why);
        result
    })?;
    let mut state = driver.state();
    let handle = state.new_handle();
    state.modules.insert(handle, Module { context, kernels });
    module.set(handle)
}

#[unsafe(no_mangle)]
extern "C" fn cuModuleLoadData(module: Out<Handle>, image: Text) -> CUresult {
    normal("cuModuleLoadData", |driver| load(driver, &module, &image, |_| ()))
}

/// `CU_JIT_ERROR_LOG_BUFFER`
const ERROR_LOG: u32 = 5;
/// `CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES`
const ERROR_LOG_SIZE: u32 = 6;

#[unsafe(no_mangle)]
extern "C" fn cuModuleLoadDataEx(
    module: Out<Handle>,
    image: Text,
    count: u32,
    options: In<u32>,
    values: In<usize>,
) -> CUresult {
    normal("cuModuleLoadDataEx", |driver| {
        let option = |wanted: u32| {
            let index = (0..count as usize).find(|index| options.at(*index) == Ok(wanted))?;
            values.at(index).ok()
        };
        load(driver, &module, &image, |why| {
            if let (Some(buffer), Some(size)) = (option(ERROR_LOG), option(ERROR_LOG_SIZE)) {
                // A log that has no room for the text goes without.
                let _ = Out::<c_char>::at(buffer).set_text(why, size);
            }
        })
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuModuleUnload(module: Handle) -> CUresult {
    release("cuModuleUnload", |driver, _| {
        let mut state = driver.state();
        state.modules.remove(&module).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
        state.functions.retain(|_, function| function.module != module);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuModuleGetFunction(function: Out<Handle>, module: Handle, name: Text) -> CUresult {
    normal("cuModuleGetFunction", |driver| {
        let name = name.get()?;
        let mut state = driver.state();
        let of = state.modules.get(&module).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
        let kernel = of.kernels.iter().find(|kernel| kernel.name == name);
        let (kernel, context) = (kernel.ok_or(CUresult::CUDA_ERROR_NOT_FOUND)?.clone(), of.context);
        let is_it = |known: &Function| known.module == module && known.kernel.name == name;
        let known = state.functions.iter().find(|(_, known)| is_it(known)).map(|(handle, _)| *handle);
        let handle = known.unwrap_or_else(|| {
            let handle = state.new_handle();
            state.functions.insert(handle, Function::new(module, context, kernel));
            handle
        });
        function.set(handle)
    })
}
