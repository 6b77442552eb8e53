//! NVRTC as a library that is found at run time: load one, compile a program. The one place that is unsafe; knows
//! nothing of files, targets or what the kernels are.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::Path;
use std::ptr;

use libloading::Library;

type Handle = *mut c_void;

const SUCCESS: c_int = 0;
/// The source is wrong; the log says why.
const COMPILATION_FAILED: c_int = 6;

type Version = unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int;
type ErrorString = unsafe extern "C" fn(c_int) -> *const c_char;
type Create = unsafe extern "C" fn(
    *mut Handle,
    *const c_char,
    *const c_char,
    c_int,
    *const *const c_char,
    *const *const c_char,
) -> c_int;
type Compile = unsafe extern "C" fn(Handle, c_int, *const *const c_char) -> c_int;
type Size = unsafe extern "C" fn(Handle, *mut usize) -> c_int;
type Copy = unsafe extern "C" fn(Handle, *mut c_char) -> c_int;
type Destroy = unsafe extern "C" fn(*mut Handle) -> c_int;

/// A loaded NVRTC. Several versions can be loaded at once, and threads can compile with one at the same time.
#[derive(Debug)]
pub(crate) struct Nvrtc {
    error_string: ErrorString,
    create: Create,
    compile: Compile,
    log_size: Size,
    log: Copy,
    ptx_size: Size,
    ptx: Copy,
    destroy: Destroy,
    version: (i32, i32),
}

/// What a program is made of: names and texts, no paths.
pub(crate) struct Input<'a> {
    /// The source's name, as messages and names of internal symbols have it.
    pub(crate) name: &'a CStr,
    /// The source.
    pub(crate) text: &'a CStr,
    /// What it can include: names and texts.
    pub(crate) headers: &'a [(CString, CString)],
    /// The compiler's options.
    pub(crate) options: &'a [CString],
}

/// A compiled program.
#[derive(Debug)]
pub(crate) struct Output {
    /// Its PTX.
    pub(crate) ptx: String,
    /// What the compiler said: warnings, and what was asked of it.
    pub(crate) log: String,
}

impl Nvrtc {
    /// Loads the library at `path`. Its builtins must lie beside it.
    pub(crate) fn load(path: &Path) -> Result<Self, String> {
        // SAFETY: what NVRTC runs when it is loaded needs nothing of us.
        let library = unsafe { Library::new(path) }
            .map_err(|error| format!("can't load NVRTC from {}: {error}", path.display()))?;
        // Never unloaded: threads may keep until their end what it made for them.
        let library: &'static Library = Box::leak(Box::new(library));
        let missing = |error: libloading::Error| format!("{} is no NVRTC: {error}", path.display());

        /// The function of that name.
        ///
        /// # Safety
        /// It must have the signature `F`.
        unsafe fn function<F: std::marker::Copy>(
            library: &'static Library,
            name: &str,
        ) -> Result<F, libloading::Error> {
            // SAFETY: the caller's promise; the library is never unloaded.
            unsafe { library.get::<F>(name.as_bytes()).map(|symbol| *symbol) }
        }

        // SAFETY: the signatures are those of NVRTC's documentation, the same in 12 and 13.
        let (version, mut nvrtc) = unsafe {
            (
                function::<Version>(library, "nvrtcVersion").map_err(missing)?,
                Self {
                    error_string: function(library, "nvrtcGetErrorString").map_err(missing)?,
                    create: function(library, "nvrtcCreateProgram").map_err(missing)?,
                    compile: function(library, "nvrtcCompileProgram").map_err(missing)?,
                    log_size: function(library, "nvrtcGetProgramLogSize").map_err(missing)?,
                    log: function(library, "nvrtcGetProgramLog").map_err(missing)?,
                    ptx_size: function(library, "nvrtcGetPTXSize").map_err(missing)?,
                    ptx: function(library, "nvrtcGetPTX").map_err(missing)?,
                    destroy: function(library, "nvrtcDestroyProgram").map_err(missing)?,
                    version: (0, 0),
                },
            )
        };
        // SAFETY: both point to numbers.
        let status = unsafe { version(&raw mut nvrtc.version.0, &raw mut nvrtc.version.1) };
        nvrtc.succeeded(status, "nvrtcVersion")?;
        Ok(nvrtc)
    }

    /// Its major and minor version.
    pub(crate) fn version(&self) -> (i32, i32) {
        self.version
    }

    /// Compiles a program.
    ///
    /// # Errors
    /// With the compiler's log if the source is wrong, else with what NVRTC calls the error.
    pub(crate) fn compile(&self, input: &Input<'_>) -> Result<Output, String> {
        let mut program = Program { nvrtc: self, handle: ptr::null_mut() };
        let names = pointers(input.headers.iter().map(|(name, _)| name));
        let texts = pointers(input.headers.iter().map(|(_, text)| text));
        let options = pointers(input.options);
        // SAFETY: all strings end with a zero, both lists have the length given, and NVRTC copies what it keeps.
        let status = unsafe {
            (self.create)(
                &raw mut program.handle,
                input.text.as_ptr(),
                input.name.as_ptr(),
                length(&names)?,
                texts.as_ptr(),
                names.as_ptr(),
            )
        };
        self.succeeded(status, "nvrtcCreateProgram")?;
        // SAFETY: the program was made above; the options end with a zero each and are as many as is said.
        let status = unsafe { (self.compile)(program.handle, length(&options)?, options.as_ptr()) };
        let log = program.text(self.log_size, self.log, "nvrtcGetProgramLog")?;
        if status == COMPILATION_FAILED {
            return Err(log);
        }
        self.succeeded(status, "nvrtcCompileProgram").map_err(|error| format!("{error}\n{log}"))?;
        Ok(Output { ptx: program.text(self.ptx_size, self.ptx, "nvrtcGetPTX")?, log })
    }

    fn succeeded(&self, status: c_int, doing: &str) -> Result<(), String> {
        if status == SUCCESS {
            return Ok(());
        }
        // SAFETY: NVRTC has a constant string for every number, known or not.
        let name = unsafe { CStr::from_ptr((self.error_string)(status)) };
        Err(format!("{doing} failed: {}", name.to_string_lossy()))
    }
}

/// A program of NVRTC's, freed when dropped.
struct Program<'a> {
    nvrtc: &'a Nvrtc,
    handle: Handle,
}

impl Program<'_> {
    /// One of its texts, which are read in two steps: the size with the zero at the end, then the bytes.
    fn text(&self, size: Size, copy: Copy, doing: &str) -> Result<String, String> {
        let mut bytes = 0;
        // SAFETY: the program is there as long as `self`.
        let status = unsafe { size(self.handle, &raw mut bytes) };
        self.nvrtc.succeeded(status, doing)?;
        let mut text = vec![0_u8; bytes];
        // SAFETY: as above; the buffer has the size that NVRTC asked for.
        let status = unsafe { copy(self.handle, text.as_mut_ptr().cast()) };
        self.nvrtc.succeeded(status, doing)?;
        text.truncate(text.iter().position(|&byte| byte == 0).unwrap_or(bytes));
        String::from_utf8(text).map_err(|error| format!("{doing} gave what is no text: {error}"))
    }
}

impl Drop for Program<'_> {
    fn drop(&mut self) {
        if !self.handle.is_null() {
            // SAFETY: it was made by this NVRTC, and nothing uses it any more. Whatever it answers, we are done.
            unsafe { (self.nvrtc.destroy)(&raw mut self.handle) };
        }
    }
}

fn pointers<'a>(strings: impl IntoIterator<Item = &'a CString>) -> Vec<*const c_char> {
    strings.into_iter().map(|string| string.as_ptr()).collect()
}

fn length(list: &[*const c_char]) -> Result<c_int, String> {
    c_int::try_from(list.len()).map_err(|_| format!("{} strings are too many for NVRTC", list.len()))
}
