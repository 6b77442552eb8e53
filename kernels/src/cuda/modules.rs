//! The kernels' PTX, which is compiled in, and the functions in it.

use std::ffi::CString;
use std::sync::Arc;

use cudarc::driver::sys::{self, CUfunction, CUfunction_attribute, CUmodule, CUresult};

use super::driver::{call, check, describe};
use super::{Capability, CudaError, Gpu};

/// The PTX of each file in `kernels/cuda`, for Turing and for everything later, with the zero at its end that the driver wants.
macro_rules! embedded {
    ($($(#[$condition:meta])? $name:literal),*) => {
        [$($(#[$condition])? (
            $name,
            concat!(include_str!(concat!("../../cuda/ptx/compute_75/", $name, ".ptx")), "\0"),
            concat!(include_str!(concat!("../../cuda/ptx/compute_80/", $name, ".ptx")), "\0"),
        )),*]
    };
}

const EMBEDDED: &[(&str, &str, &str)] = &embedded![
    "attention",
    "cut_out",
    "finish",
    "frame",
    "generate",
    "instance_norm",
    "norm",
    #[cfg(feature = "cuda-check")]
    "probe",
    "overlay",
    "pack",
    "product",
    "resize_argmax",
    "rotary",
    #[cfg(feature = "cuda-check")]
    "words"
];

/// The modules loaded into a context.
#[derive(Debug, Default)]
pub(super) struct Modules {
    loaded: Vec<CUmodule>,
}

/// A kernel and how it is launched.
#[derive(Debug, Clone)]
pub(super) struct Function {
    /// Keeps the module loaded.
    pub(super) gpu: Arc<Gpu>,
    pub(super) raw: CUfunction,
    pub(super) threads: u32,
    pub(super) shared_memory: u32,
}

// SAFETY: functions may be launched from any thread.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

impl Modules {
    /// Loads all of them into the current context.
    pub(super) fn load(capability: Capability) -> Result<Self, CudaError> {
        let mut modules = Self::default();
        for &(name, turing, later) in EMBEDDED {
            let ptx = if capability < Capability::AMPERE { turing } else { later };
            let mut module = std::ptr::null_mut();
            // SAFETY: the text ends with a zero.
            match unsafe { sys::cuModuleLoadData(&mut module, ptx.as_ptr().cast()) } {
                CUresult::CUDA_SUCCESS => modules.loaded.push(module),
                result => {
                    modules.unload();
                    return Err(CudaError::Kernel { name: name.to_owned(), error: describe(result) });
                }
            }
        }
        Ok(modules)
    }

    /// Unloads all of them from the current context.
    pub(super) fn unload(&mut self) {
        for module in self.loaded.drain(..) {
            // SAFETY: it was loaded once. Nothing can be done about a failure.
            let _ = unsafe { call!(cuModuleUnload(module)) };
        }
    }
}

impl Function {
    /// A kernel by its name.
    pub(super) fn find(
        gpu: &Arc<Gpu>,
        name: &str,
        threads: u32,
        shared_memory: u32,
    ) -> Result<Function, CudaError> {
        let text = CString::new(name).unwrap_or_default();
        let _entered = gpu.enter()?;
        for &module in &gpu.modules().loaded {
            let mut raw = std::ptr::null_mut();
            // SAFETY: the module is loaded.
            match unsafe { sys::cuModuleGetFunction(&mut raw, module, text.as_ptr()) } {
                CUresult::CUDA_ERROR_NOT_FOUND => {}
                result => {
                    check("cuModuleGetFunction", result)?;
                    if shared_memory > 48 << 10 {
                        let most = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
                        // SAFETY: the function was just found.
                        unsafe { call!(cuFuncSetAttribute(raw, most, shared_memory as i32))? };
                    }
                    return Ok(Function { gpu: gpu.clone(), raw, threads, shared_memory });
                }
            }
        }
        Err(CudaError::Kernel { name: name.to_owned(), error: "it is in no module".to_owned() })
    }
}
