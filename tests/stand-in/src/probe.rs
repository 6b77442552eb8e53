//! The driver's own kernels: for tests of the driver that shall know nothing of a model's, and under the stand-in for cuBLASLt.

use std::ffi::c_void;

use crate::matmul;

/// Runs a kernel with the dimensions of the grid and of the block. There is a pointer to a value for each parameter.
type Run = unsafe fn([u32; 3], [u32; 3], &[*mut c_void]) -> Result<(), String>;

/// A kernel.
pub struct Own {
    pub name: &'static str,
    /// The size of each parameter.
    pub parameters: &'static [usize],
    pub run: Run,
}

/// All of them.
pub const OWN: &[Own] = &[
    Own { name: "sapiens_stand_in_add", parameters: &[8, 4], run: add },
    Own { name: "sapiens_stand_in_fail", parameters: &[], run: fail },
    Own { name: "sapiens_stand_in_matmul", parameters: &[matmul::PARAMETER], run: matmul::run },
];

/// Adds its second parameter to a `u32` for each thread, which its first parameter points to.
unsafe fn add(grid: [u32; 3], block: [u32; 3], values: &[*mut c_void]) -> Result<(), String> {
    // SAFETY: the caller gives pointers to 8 and to 4 bytes.
    let (first, more) = unsafe { (*values[0].cast::<*mut u32>(), *values[1].cast::<u32>()) };
    let threads: u64 = grid.iter().chain(&block).map(|size| u64::from(*size)).product();
    for thread in 0..threads as usize {
        let value = first.wrapping_add(thread);
        // SAFETY: memory of the device, if the launch is right; that a wrong one ends the process is what tests see.
        unsafe { value.write_volatile(value.read_volatile().wrapping_add(more)) };
    }
    Ok(())
}

/// Fails.
unsafe fn fail(_: [u32; 3], _: [u32; 3], _: &[*mut c_void]) -> Result<(), String> {
    Err("it always does".to_owned())
}
