//! The emulator of kernels, in C++ (`emulator/`), and a launch of one of its kernels.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::Arc;

use crate::error::{self, CUresult};
use crate::fault;
use crate::probe::{OWN, Own};
use crate::ptx::Entry;

unsafe extern "C" {
    /// A kernel that was compiled in for an architecture, or NULL.
    fn sapiens_emulator_find(name: *const c_char, arch: c_int) -> *const c_void;
    /// How many parameters it has.
    fn sapiens_emulator_parameters(kernel: *const c_void) -> u32;
    /// How many bytes one of them has.
    fn sapiens_emulator_parameter_size(kernel: *const c_void, index: u32) -> u32;
    /// Runs all blocks on this thread; 0, or 1 and a text.
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

/// A kernel that can be run.
#[derive(Clone, Copy)]
pub enum Emulated {
    /// One of the emulator's.
    Compiled(Compiled),
    /// One of the driver's own.
    Own(&'static Own),
}

/// A kernel of the emulator, as its functions know it.
#[derive(Clone, Copy)]
pub struct Compiled(*const c_void);

// SAFETY: the emulator's kernels are constants, which all threads may read and launch.
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
        // SAFETY: a text that ends with a NUL.
        let kernel = unsafe { sapiens_emulator_find(name.as_ptr(), arch) };
        (!kernel.is_null()).then_some(Self::Compiled(Compiled(kernel)))
    }

    /// The size of each parameter.
    pub fn parameters(self) -> Vec<usize> {
        let kernel = match self {
            Self::Own(own) => return own.parameters.to_vec(),
            Self::Compiled(Compiled(kernel)) => kernel,
        };
        // SAFETY: a kernel that the emulator found.
        let count = unsafe { sapiens_emulator_parameters(kernel) };
        // SAFETY: as above, and it has so many parameters.
        (0..count).map(|index| unsafe { sapiens_emulator_parameter_size(kernel, index) } as usize).collect()
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
    unsafe fn run_compiled(&self, kernel: Compiled, values: &[*mut c_void], seed: u64) -> Result<(), String> {
        let mut message = [0 as c_char; 1024];
        let (grid, block) = (self.grid.as_ptr(), self.block.as_ptr());
        let (text, len) = (message.as_mut_ptr(), message.len());
        // SAFETY: a kernel that was found, with values as it needs them, and a place for a text.
        let failed = unsafe {
            sapiens_emulator_launch(kernel.0, grid, block, self.shared, values.as_ptr(), seed, text, len)
        };
        if failed == 0 {
            return Ok(());
        }
        message[len - 1] = 0;
        // SAFETY: ends with a NUL at the latest at its end.
        Err(unsafe { CStr::from_ptr(message.as_ptr()) }.to_string_lossy().into_owned())
    }
}
