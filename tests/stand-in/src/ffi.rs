//! Pointers and handles as C passes them. Callers in C make them, and what they promise about each is said here once,
//! so that everything behind is safe code.

use std::ffi::{CStr, c_char};

use crate::error::{CUresult, Result};

/// A place for a result: NULL, or a `T` that may be written to.
#[repr(transparent)]
pub struct Out<T>(*mut T);

impl<T> Out<T> {
    /// Writes a result.
    pub fn set(&self, value: T) -> Result {
        if self.is_null() {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: not NULL, so it may be written to.
        unsafe { self.0.write_unaligned(value) };
        Ok(())
    }

    /// Writes a result if the caller wants it.
    pub fn set_if_wanted(&self, value: T) {
        if !self.is_null() {
            // SAFETY: not NULL, so it may be written to.
            unsafe { self.0.write_unaligned(value) };
        }
    }

    /// Whether there is no place.
    pub fn is_null(&self) -> bool {
        self.0.is_null()
    }

    /// The same place for a result of another type, which the call's other arguments say.
    pub fn cast<U>(&self) -> Out<U> {
        Out(self.0.cast())
    }
}

impl Out<c_char> {
    /// The place at an address that C passed as a number.
    pub fn at(address: usize) -> Self {
        Self(address as *mut c_char)
    }

    /// Writes a text with its NUL, cut to `len` bytes.
    pub fn set_text(&self, text: &str, len: usize) -> Result {
        if self.is_null() || len == 0 {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let bytes = text.len().min(len - 1);
        // SAFETY: not NULL, and the caller says that there are `len` bytes.
        unsafe {
            self.0.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), bytes);
            self.0.add(bytes).write(0);
        }
        Ok(())
    }
}

/// An argument: NULL, or a `T` that may be read. `T` is any bytes.
#[repr(transparent)]
pub struct In<T>(*const T);

impl<T: Copy> In<T> {
    /// The value.
    pub fn get(&self) -> Result<T> {
        self.at(0)
    }

    /// The value of this index; the caller's array is longer.
    pub fn at(&self, index: usize) -> Result<T> {
        if self.0.is_null() {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: not NULL, so it may be read, as far as the call's other arguments say.
        Ok(unsafe { self.0.add(index).read_unaligned() })
    }

    /// Whether there is none.
    pub fn is_null(&self) -> bool {
        self.0.is_null()
    }
}

/// A text: NULL, or bytes that end with a NUL.
#[repr(transparent)]
pub struct Text(*const c_char);

impl Text {
    /// The text.
    pub fn get(&self) -> Result<String> {
        if self.0.is_null() {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: not NULL, so it ends with a NUL.
        Ok(unsafe { CStr::from_ptr(self.0) }.to_string_lossy().into_owned())
    }
}

/// A stream, an event, a module and so on. It looks like a pointer to C, is never one, and is never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(transparent)]
pub struct Handle(pub usize);

impl Handle {
    /// NULL.
    pub const NONE: Self = Self(0);
}
