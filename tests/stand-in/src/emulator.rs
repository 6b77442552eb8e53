//! The emulator of kernels, in C++ (`emulator/`), compiled in or in a library of its own, and a launch of one of its
//! kernels.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use crate::error::{self, CUresult};
use crate::fault;
use crate::probe::{OWN, Own};
use crate::ptx::Entry;

unsafe extern "C" {
    fn sapiens_emulator_find(name: *const c_char, arch: c_int) -> *const c_void;
    fn sapiens_emulator_parameters(kernel: *const c_void) -> u32;
    fn sapiens_emulator_parameter_size(kernel: *const c_void, index: u32) -> u32;
    fn sapiens_emulator_launch(
        kernel: *const c_void,
        grid: *const u32,
        block: *const u32,
        shared_bytes: usize,
        arguments: *const *mut c_void,
        seed: u64,
        message: *mut c_char,
        message_size: usize,
    ) -> c_int;
}

/// The functions of an emulator: of the one that is compiled in, or of one in a library with other kernels.
struct Functions {
    /// A kernel that was compiled for an architecture, or NULL.
    find: unsafe extern "C" fn(*const c_char, c_int) -> *const c_void,
    /// How many parameters it has.
    parameters: unsafe extern "C" fn(*const c_void) -> u32,
    /// How many bytes one of them has.
    parameter_size: unsafe extern "C" fn(*const c_void, u32) -> u32,
    /// Runs all blocks on this thread; 0, or 1 and a text. Takes the kernel, the grid, the block, bytes of shared memory,
    /// arguments, a seed, and a place for the text with its size.
    launch: unsafe extern "C" fn(
        *const c_void,
        *const u32,
        *const u32,
        usize,
        *const *mut c_void,
        u64,
        *mut c_char,
        usize,
    ) -> c_int,
}

static COMPILED_IN: Functions = Functions {
    find: sapiens_emulator_find,
    parameters: sapiens_emulator_parameters,
    parameter_size: sapiens_emulator_parameter_size,
    launch: sapiens_emulator_launch,
};

/// Those of the library that is asked first.
static ELSEWHERE: OnceLock<Functions> = OnceLock::new();

/// From now on kernels come from a library first: the emulator's sources compiled with other kernels.
///
/// # Errors
/// If it can't be opened or is no emulator; the text says why.
pub fn ask_first(library: &Path) -> Result<(), String> {
    let why = || {
        // SAFETY: what this thread failed at, or NULL.
        let text = unsafe { libc::dlerror() };
        if text.is_null() {
            return String::new();
        }
        // SAFETY: a text that ends with a NUL.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    };
    let path = CString::new(library.as_os_str().as_bytes()).map_err(|_| "no path".to_owned())?;
    // SAFETY: a path. What runs when it is opened are the registrations of its kernels.
    let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if handle.is_null() {
        return Err(why());
    }
    let symbol = |name: &CStr| {
        // SAFETY: a library that was opened and is never closed.
        let symbol = unsafe { libc::dlsym(handle, name.as_ptr()) };
        if symbol.is_null() { Err(why()) } else { Ok(symbol) }
    };
    let (find, parameters) = (symbol(c"sapiens_emulator_find")?, symbol(c"sapiens_emulator_parameters")?);
    let (size, launch) = (symbol(c"sapiens_emulator_parameter_size")?, symbol(c"sapiens_emulator_launch")?);
    // SAFETY: the library is compiled from the sources of the functions that these types are of.
    let functions = unsafe {
        Functions {
            find: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(_, _) -> _>(find),
            parameters: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(_) -> _>(parameters),
            parameter_size: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(_, _) -> _>(size),
            launch: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(_, _, _, _, _, _, _, _) -> _>(
                launch,
            ),
        }
    };
    ELSEWHERE.set(functions).map_err(|_| "a library is asked already".to_owned())
}

/// A kernel that can be run.
#[derive(Clone, Copy)]
pub enum Emulated {
    /// One of the emulator's.
    Compiled(Compiled),
    /// One of the driver's own.
    Own(&'static Own),
}

/// A kernel of an emulator, as its functions know it.
#[derive(Clone, Copy)]
pub struct Compiled {
    kernel: *const c_void,
    functions: &'static Functions,
}

// SAFETY: an emulator's kernels are constants, which all threads may read and launch.
unsafe impl Send for Compiled {}
// SAFETY: as above.
unsafe impl Sync for Compiled {}

impl Emulated {
    /// The kernel of this name, compiled for the architecture that runs code for `target`, as in `sm_86`.
    pub fn find(name: &str, target: u32) -> Option<Self> {
        if let Some(own) = OWN.iter().find(|own| own.name == name) {
            return Some(Self::Own(own));
        }
        let arch = match target {
            75..=79 => 75,
            80.. => 80,
            _ => return None,
        };
        let name = CString::new(name).ok()?;
        ELSEWHERE.get().into_iter().chain([&COMPILED_IN]).find_map(|functions| {
            // SAFETY: a text that ends with a NUL.
            let kernel = unsafe { (functions.find)(name.as_ptr(), arch) };
            (!kernel.is_null()).then_some(Self::Compiled(Compiled { kernel, functions }))
        })
    }

    /// The size of each parameter.
    pub fn parameters(self) -> Vec<usize> {
        let Compiled { kernel, functions } = match self {
            Self::Own(own) => return own.parameters.to_vec(),
            Self::Compiled(compiled) => compiled,
        };
        // SAFETY: a kernel that this emulator found.
        let count = unsafe { (functions.parameters)(kernel) };
        // SAFETY: as above, and it has so many parameters.
        (0..count).map(|index| unsafe { (functions.parameter_size)(kernel, index) } as usize).collect()
    }
}

/// A kernel of a module.
pub struct Kernel {
    pub name: String,
    pub entry: Entry,
    pub emulated: Emulated,
}

/// The values of a kernel's parameters, as they were when it was launched.
pub struct Arguments {
    bytes: Box<[u128]>,
    /// Where each begins, in units of 16 bytes, which is as much as any parameter is aligned to.
    starts: Vec<usize>,
}

impl Arguments {
    /// Copies the values of parameters of these sizes.
    ///
    /// # Safety
    /// Each address is that of so many bytes.
    pub unsafe fn copy(sizes: &[usize], addresses: &[usize]) -> Self {
        let mut starts = Vec::with_capacity(sizes.len());
        let mut end = 0;
        for size in sizes {
            starts.push(end);
            end += size.div_ceil(16);
        }
        let mut bytes = vec![0u128; end].into_boxed_slice();
        for ((size, start), address) in sizes.iter().zip(&starts).zip(addresses) {
            let place = &mut bytes[*start..start + size.div_ceil(16)];
            // SAFETY: the place has room for the size, and the caller says that so much can be read.
            unsafe { place.as_mut_ptr().cast::<u8>().copy_from_nonoverlapping(*address as *const u8, *size) };
        }
        Self { bytes, starts }
    }
}

/// A kernel with all it needs to run.
pub struct Launch {
    pub kernel: Arc<Kernel>,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub shared: usize,
    pub arguments: Arguments,
}

impl Launch {
    /// Runs it on this thread.
    pub fn run(&self, seed: u64) -> error::Result {
        let mut bytes = self.arguments.bytes.clone();
        let base = bytes.as_mut_ptr();
        // SAFETY: every start is within the values. A parameter of no bytes may begin at the end.
        let pointers: Vec<_> =
            self.arguments.starts.iter().map(|start| unsafe { base.add(*start) }.cast::<c_void>()).collect();
        let run = || match self.kernel.emulated {
            // SAFETY: a kernel with values of the sizes that it says. What the values point to is as the launch's
            // caller has it: that is what is tested.
            Emulated::Own(own) => unsafe { (own.run)(self.grid, self.block, &pointers) },
            // SAFETY: as above.
            Emulated::Compiled(kernel) => unsafe { self.run_compiled(kernel, &pointers, seed) },
        };
        fault::named(&self.kernel.name, run).map_err(|message| {
            let (name, grid, block) = (&self.kernel.name, self.grid, self.block);
            eprintln!("stand-in: kernel {name} with grid {grid:?} and block {block:?} failed: {message}");
            CUresult::CUDA_ERROR_LAUNCH_FAILED
        })
    }

    /// Runs a kernel of the emulator.
    ///
    /// # Safety
    /// There is a pointer to a value for each of the kernel's parameters.
    unsafe fn run_compiled(
        &self,
        compiled: Compiled,
        values: &[*mut c_void],
        seed: u64,
    ) -> Result<(), String> {
        let mut message = [0 as c_char; 1024];
        let (grid, block) = (self.grid.as_ptr(), self.block.as_ptr());
        let (text, len) = (message.as_mut_ptr(), message.len());
        let Compiled { kernel, functions } = compiled;
        // SAFETY: a kernel that was found, with values as it needs them, and a place for a text.
        let failed =
            unsafe { (functions.launch)(kernel, grid, block, self.shared, values.as_ptr(), seed, text, len) };
        if failed == 0 {
            return Ok(());
        }
        message[len - 1] = 0;
        // SAFETY: ends with a NUL at the latest at its end.
        Err(unsafe { CStr::from_ptr(message.as_ptr()) }.to_string_lossy().into_owned())
    }
}
