//! Finding functions by their names.
#![allow(non_snake_case, reason = "the names of the functions are CUDA's")]

use std::ffi::{CStr, CString, c_void};

use crate::error::{CUresult, Result};
use crate::ffi::{Out, Text};

/// The function that a name without a version means: the latest that there is.
fn find(name: &str) -> Option<usize> {
    let library = this_library()?;
    ["_v2", ""].iter().find_map(|version| {
        let name = CString::new(format!("{name}{version}")).ok()?;
        // SAFETY: a library that is open and a text that ends with a NUL.
        let found = unsafe { libc::dlsym(library as *mut c_void, name.as_ptr()) };
        (!found.is_null()).then_some(found as usize)
    })
}

/// This library for `dlsym`. It stays open with the process.
fn this_library() -> Option<usize> {
    static LIBRARY: std::sync::OnceLock<Option<usize>> = std::sync::OnceLock::new();
    *LIBRARY.get_or_init(|| {
        // SAFETY: all bytes zero are such a value.
        let mut found: libc::Dl_info = unsafe { std::mem::zeroed() };
        let here = cuGetProcAddress_v2 as *const c_void;
        // SAFETY: the address of a function, and a place for what is found.
        if unsafe { libc::dladdr(here, &raw mut found) } == 0 {
            return None;
        }
        // SAFETY: dladdr gives a text that stays.
        let path = unsafe { CStr::from_ptr(found.dli_fname) };
        // SAFETY: the path of a library that is open already: nothing is loaded.
        let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
        (!library.is_null()).then_some(library as usize)
    })
}

fn look_up(symbol: &Text, function: &Out<usize>) -> Result<bool> {
    let found = find(&symbol.get()?);
    function.set(found.unwrap_or(0))?;
    Ok(found.is_some())
}

#[unsafe(no_mangle)]
extern "C" fn cuGetProcAddress(symbol: Text, function: Out<usize>, _version: i32, _flags: u64) -> CUresult {
    match look_up(&symbol, &function) {
        Ok(true) => CUresult::CUDA_SUCCESS,
        Ok(false) => CUresult::CUDA_ERROR_NOT_FOUND,
        Err(failure) => failure,
    }
}

#[unsafe(no_mangle)]
extern "C" fn cuGetProcAddress_v2(
    symbol: Text,
    function: Out<usize>,
    _version: i32,
    _flags: u64,
    status: Out<u32>,
) -> CUresult {
    match look_up(&symbol, &function) {
        Ok(is_found) => {
            // Found, or no such symbol.
            status.set_if_wanted(if is_found { 0 } else { 1 });
            if is_found { CUresult::CUDA_SUCCESS } else { CUresult::CUDA_ERROR_NOT_FOUND }
        }
        Err(failure) => failure,
    }
}
