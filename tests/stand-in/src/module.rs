//! Modules and their kernels: what is loaded, what is refused, and what a launch must keep to.

use std::sync::Arc;

use crate::device::{Device, MAX_BLOCK, MAX_GRID, MAX_THREADS, SHARED_OF_BLOCK};
use crate::emulator::{Emulated, Kernel};
use crate::error::CUresult;
use crate::ffi::Handle;
use crate::ptx::{Entry, Ptx};

/// A module.
pub struct Module {
    pub context: Handle,
    pub kernels: Vec<Arc<Kernel>>,
}

/// A kernel of a module that was asked for.
pub struct Function {
    pub module: Handle,
    pub context: Handle,
    pub kernel: Arc<Kernel>,
    /// Bytes of shared memory that a launch may ask for.
    pub dynamic_shared: usize,
}

/// The latest version of PTX that a driver of this version knows.
fn ptx_version(driver: i32) -> (u32, u32) {
    let (major, minor) = ((driver / 1000) as u32, (driver % 1000 / 10) as u32);
    match (major, minor) {
        (..=11, minor) => (7, minor),
        // 12.6 brought no new one.
        (12, 6..) => (8, minor - 1),
        (12, _) => (8, minor),
        (major, minor) => (major - 4, minor),
    }
}

/// Reads a module for a device. A failure comes with a text.
pub fn load(text: &str, device: &Device, driver: i32) -> Result<Vec<Arc<Kernel>>, (CUresult, String)> {
    let ptx = Ptx::parse(text).map_err(|why| (CUresult::CUDA_ERROR_INVALID_PTX, format!("no PTX: {why}")))?;
    if ptx.version > ptx_version(driver) {
        let why = format!("PTX {:?} is later than the driver's {:?}", ptx.version, ptx_version(driver));
        return Err((CUresult::CUDA_ERROR_UNSUPPORTED_PTX_VERSION, why));
    }
    let target = device.target();
    if ptx.target > target || ptx.is_exact && ptx.target != target {
        let why = format!("code for sm_{} doesn't run on sm_{target}", ptx.target);
        return Err((CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU, why));
    }
    let kernels = ptx.entries.into_iter().filter_map(|entry| kernel(entry, ptx.target).transpose());
    kernels.collect::<Result<_, String>>().map_err(|why| (CUresult::CUDA_ERROR_INVALID_PTX, why))
}

/// A kernel, if the emulator has it.
fn kernel(entry: Entry, target: u32) -> Result<Option<Arc<Kernel>>, String> {
    let Some(emulated) = Emulated::find(&entry.name, target) else { return Ok(None) };
    let sizes = emulated.parameters();
    if sizes != entry.parameters {
        let (name, sizes_of_ptx) = (&entry.name, &entry.parameters);
        return Err(format!(
            "{name} has parameters of {sizes_of_ptx:?} bytes in PTX and {sizes:?} in the emulator"
        ));
    }
    Ok(Some(Arc::new(Kernel { name: entry.name.clone(), entry, emulated })))
}

impl Function {
    /// A kernel of a module as it is first.
    pub fn new(module: Handle, context: Handle, kernel: Arc<Kernel>) -> Self {
        let dynamic_shared = SHARED_OF_BLOCK.saturating_sub(kernel.entry.static_shared);
        Self { module, context, kernel, dynamic_shared }
    }

    /// The most threads that a block may have.
    pub fn max_threads(&self) -> u32 {
        let required = self.kernel.entry.required_block.map(|block| block.iter().product());
        required.or(self.kernel.entry.max_threads).unwrap_or(MAX_THREADS).min(MAX_THREADS)
    }

    /// Why it can't be launched like this.
    pub fn refusal(&self, grid: [u32; 3], block: [u32; 3], shared: usize) -> Option<&'static str> {
        let within = |sizes: [u32; 3], limits: [u32; 3]| {
            sizes.iter().zip(limits).all(|(size, limit)| (1..=limit).contains(size))
        };
        let threads = block.iter().map(|size| u64::from(*size)).product::<u64>();
        if !within(grid, MAX_GRID) {
            Some("the grid's dimensions")
        } else if !within(block, MAX_BLOCK) || threads > u64::from(MAX_THREADS) {
            Some("the block's dimensions")
        } else if threads > u64::from(self.max_threads()) {
            Some("more threads than the kernel was compiled for")
        } else if self.kernel.entry.required_block.is_some_and(|required| required != block) {
            Some("another block than the kernel requires")
        } else if shared > self.dynamic_shared {
            Some("more shared memory than was allowed by cuFuncSetAttribute")
        } else {
            None
        }
    }

    /// Blocks that a multiprocessor holds at once, as far as threads and shared memory decide.
    pub fn blocks(&self, device: &Device, threads: u32, shared: usize) -> u32 {
        let threads = threads.max(1).next_multiple_of(32);
        if threads > self.max_threads().next_multiple_of(32) || shared > self.dynamic_shared {
            return 0;
        }
        let reserved = device.shared - device.shared_opt_in();
        let of_block = (self.kernel.entry.static_shared + shared + reserved).max(1);
        device.blocks.min(device.threads / threads).min((device.shared / of_block) as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_knows_the_ptx_of_its_toolkit() {
        assert_eq!(ptx_version(11080), (7, 8));
        assert_eq!(ptx_version(12000), (8, 0));
        assert_eq!(ptx_version(12040), (8, 4));
        assert_eq!(ptx_version(12060), (8, 5));
        assert_eq!(ptx_version(12090), (8, 8));
        assert_eq!(ptx_version(13000), (9, 0));
    }
}
