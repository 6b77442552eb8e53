//! The driver's kernel that multiplies, loaded and launched as a library does it.

use std::ffi::{CString, c_char, c_void};

/// As the driver's kernel takes them (`tests/stand-in/src/matmul.rs`).
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Arguments {
    pub a: u64,
    pub b: u64,
    pub d: u64,
    pub bias: u64,
    pub workspace: u64,
    pub workspace_bytes: u64,
    pub rows: u64,
    pub columns: u64,
    pub depth: u64,
    pub a_stride: u64,
    pub b_stride: u64,
    pub d_stride: u64,
    pub alpha: f32,
    pub beta: f32,
    pub bfloat16: u32,
    pub wide: u32,
}

const PTX: &str = ".version 7.0\n.target sm_75\n.address_size 64\n\
    .entry sapiens_stand_in_matmul(.param .align 8 .b8 arguments[112]) { ret; }\0";

/// `cublasLtHandle_t`: the kernel in the context that was current.
pub struct Kernel {
    module: *mut c_void,
    function: *mut c_void,
}

/// A function of the library that was opened as the driver.
fn function(name: &str) -> Option<*mut c_void> {
    let text = CString::new(name).ok()?;
    // SAFETY: a library that is open already, and texts with their zero.
    let found = unsafe { libc::dlsym(libc::dlopen(c"libcuda.so".as_ptr(), libc::RTLD_NOW), text.as_ptr()) };
    (!found.is_null()).then_some(found)
}

impl Kernel {
    /// Loads it into the current context.
    pub fn load() -> Option<Self> {
        let mut kernel = Self { module: std::ptr::null_mut(), function: std::ptr::null_mut() };
        // SAFETY: the driver's functions have these types; texts end with their zero.
        unsafe {
            let load: extern "C" fn(*mut *mut c_void, *const c_char) -> u32 =
                std::mem::transmute(function("cuModuleLoadData")?);
            let find: extern "C" fn(*mut *mut c_void, *mut c_void, *const c_char) -> u32 =
                std::mem::transmute(function("cuModuleGetFunction")?);
            if load(&raw mut kernel.module, PTX.as_ptr().cast()) != 0 {
                // There is none to be unloaded.
                std::mem::forget(kernel);
                return None;
            }
            let found = find(&raw mut kernel.function, kernel.module, c"sapiens_stand_in_matmul".as_ptr());
            (found == 0).then_some(kernel)
        }
    }

    /// Queues it.
    pub fn launch(&self, arguments: &Arguments, stream: *mut c_void) -> bool {
        let mut pointers: [*mut c_void; 1] = [(&raw const *arguments).cast_mut().cast()];
        let Some(launch) = function("cuLaunchKernel") else { return false };
        type Launch = extern "C" fn(
            *mut c_void,
            u32,
            u32,
            u32,
            u32,
            u32,
            u32,
            u32,
            *mut c_void,
            *mut *mut c_void,
            *mut *mut c_void,
        ) -> u32;
        // SAFETY: the driver's function has this type, and copies the arguments.
        let launch = unsafe { std::mem::transmute::<*mut c_void, Launch>(launch) };
        let none = std::ptr::null_mut();
        launch(self.function, 1, 1, 1, 1, 1, 1, 0, stream, pointers.as_mut_ptr(), none) == 0
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        if let Some(unload) = function("cuModuleUnload") {
            // SAFETY: the driver's function has this type; the module was loaded once.
            let unload: extern "C" fn(*mut c_void) -> u32 = unsafe { std::mem::transmute(unload) };
            unload(self.module);
        }
    }
}
