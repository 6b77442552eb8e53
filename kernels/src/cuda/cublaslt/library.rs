//! cuBLASLt's library: whether it is there, and its functions.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;

use libloading::Library;

use crate::cuda::CudaError;

/// Where it is looked for, for a driver of CUDA 12 and for one of CUDA 13 or later, which takes both.
const NAMES: [&str; 3] = if cfg!(windows) {
    ["cublasLt64_13.dll", "cublasLt64_12.dll", "cublasLt64.dll"]
} else {
    ["libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"]
};

/// The oldest version whose functions are these, as 10000 * major + 100 * minor.
const NEEDED: usize = 120_000;

/// What the library hands out, none of which is ours to look into.
pub type Opaque = *mut c_void;

/// Multiplies in one way; only the library knows which.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Algorithm([u64; 8]);

/// An algorithm for a problem.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Found {
    /// What multiplies.
    pub algorithm: Algorithm,
    /// Bytes of workspace that it wants.
    pub workspace: usize,
    /// Zero where it can be used.
    pub state: u32,
    waves: f32,
    reserved: [c_int; 4],
}

impl Found {
    /// Room for one.
    pub const NONE: Self =
        Self { algorithm: Algorithm([0; 8]), workspace: 0, state: 0, waves: 0.0, reserved: [0; 4] };
}

macro_rules! functions {
    ($($name:ident: fn($($argument:ty),* $(,)?) -> $result:ty;)*) => {
        /// What we call of it.
        #[allow(non_snake_case, reason = "the names are NVIDIA's")]
        #[derive(Debug)]
        pub struct Functions {
            $(pub $name: unsafe extern "C" fn($($argument),*) -> $result,)*
        }

        impl Functions {
            fn look_up(library: &'static Library) -> Result<Self, CudaError> {
                Ok(Self { $($name: {
                    let name = stringify!($name);
                    // SAFETY: the function has this type in the headers of every version from the one that is needed on; enums are
                    // taken as the integers that they are, since a later version may have more of them.
                    let found = unsafe { library.get(name.as_bytes()) };
                    *found.map_err(|_| CudaError::CublasLt { function: name, error: "it isn't in the library".to_owned() })?
                },)* })
            }
        }
    };
}

functions! {
    cublasLtGetVersion: fn() -> usize;
    cublasLtGetStatusName: fn(u32) -> *const c_char;
    cublasLtCreate: fn(*mut Opaque) -> u32;
    cublasLtDestroy: fn(Opaque) -> u32;
    cublasLtMatmulDescCreate: fn(*mut Opaque, u32, u32) -> u32;
    cublasLtMatmulDescDestroy: fn(Opaque) -> u32;
    cublasLtMatmulDescSetAttribute: fn(Opaque, u32, *const c_void, usize) -> u32;
    cublasLtMatrixLayoutCreate: fn(*mut Opaque, u32, u64, u64, i64) -> u32;
    cublasLtMatrixLayoutDestroy: fn(Opaque) -> u32;
    cublasLtMatmulPreferenceCreate: fn(*mut Opaque) -> u32;
    cublasLtMatmulPreferenceDestroy: fn(Opaque) -> u32;
    cublasLtMatmulPreferenceSetAttribute: fn(Opaque, u32, *const c_void, usize) -> u32;
    cublasLtMatmulAlgoGetHeuristic:
        fn(Opaque, Opaque, Opaque, Opaque, Opaque, Opaque, Opaque, c_int, *mut Found, *mut c_int) -> u32;
    cublasLtMatmul: fn(
        Opaque, Opaque, *const f32, u64, Opaque, u64, Opaque, *const f32, u64, Opaque, u64, Opaque,
        *const Algorithm, u64, usize, Opaque,
    ) -> u32;
}

impl Functions {
    /// The library for a driver of CUDA `major`, looked for once in the process.
    ///
    /// # Errors
    /// [`CudaError::NoCublasLt`], [`CudaError::CublasLtVersion`], or that a function is missing.
    pub fn find(major: i32) -> Result<&'static Self, CudaError> {
        static FOUND: OnceLock<Result<Functions, CudaError>> = OnceLock::new();
        let names = if major < 13 { &NAMES[1..] } else { &NAMES };
        FOUND.get_or_init(|| Self::open(names, major)).as_ref().map_err(Clone::clone)
    }

    fn open(names: &[&str], major: i32) -> Result<Self, CudaError> {
        // SAFETY: the initialisers of NVIDIA's library are as trusted as its driver.
        let library = names.iter().find_map(|name| unsafe { Library::new(*name) }.ok());
        let library = library.ok_or_else(|| CudaError::NoCublasLt { names: names.join(", ") })?;
        // Its functions are kept, and so is it.
        let functions = Self::look_up(Box::leak(Box::new(library)))?;
        // SAFETY: it can be called at any time.
        let found = unsafe { (functions.cublasLtGetVersion)() };
        // In old versions it is 1000 * major.
        if found < NEEDED || found / 10_000 > major as usize {
            return Err(CudaError::CublasLtVersion { found, driver: major });
        }
        Ok(functions)
    }

    /// The error that a function returned.
    ///
    /// # Errors
    /// If it did.
    pub fn check(&self, function: &'static str, status: u32) -> Result<(), CudaError> {
        if status == 0 {
            return Ok(());
        }
        // SAFETY: any number may be asked for; what comes is null or a text that is never freed.
        let name = unsafe {
            let name = (self.cublasLtGetStatusName)(status);
            (!name.is_null()).then(|| CStr::from_ptr(name).to_string_lossy().into_owned())
        };
        Err(CudaError::CublasLt { function, error: name.unwrap_or_else(|| format!("status {status}")) })
    }
}

/// Calls a function of the library: `call!(functions, function(arguments))` is a `Result`. In an `unsafe` block.
macro_rules! call {
    ($functions:expr, $function:ident($($argument:expr),* $(,)?)) => {
        $functions.check(stringify!($function), ($functions.$function)($($argument),*))
    };
}
pub(super) use call;

#[cfg(all(test, target_os = "linux", target_arch = "x86_64"))]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_or_of_another_version_is_named() {
        let error = Functions::open(&["libsapiens-none.so", "libsapiens-none.so.2"], 12).unwrap_err();
        let expected =
            "no cuBLASLt: none of libsapiens-none.so, libsapiens-none.so.2 is there or can be loaded";
        assert_eq!(error.to_string(), expected);
        // A library, but another one.
        let error = Functions::open(&["libc.so.6"], 12).unwrap_err();
        let expected = "cuBLASLt, on the GPU, failed at cublasLtGetVersion: it isn't in the library";
        assert_eq!(error.to_string(), expected);
        if sapiens_stand_in_loader::wants_card() {
            return;
        }
        sapiens_stand_in_loader::open_cublaslt();
        Functions::open(&["libcublasLt.so.12"], 12).unwrap();
        let error = Functions::open(&["libcublasLt.so.12"], 11).unwrap_err();
        assert_eq!(error, CudaError::CublasLtVersion { found: 120_400, driver: 11 });
        assert!(error.to_string().contains("cuBLASLt's version is 120400: one of CUDA 12 to 11"), "{error}");
    }
}
