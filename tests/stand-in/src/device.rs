//! What a device of some compute capability says of itself. The numbers are those of NVIDIA's programming guide and of
//! a common board of each.

use cudarc::driver::sys::CUdevice_attribute as Attribute;

use crate::settings::Settings;

/// A device.
pub struct Device {
    pub capability: (u32, u32),
    pub multiprocessors: u32,
    /// Threads that a multiprocessor holds.
    pub threads: u32,
    /// Blocks that a multiprocessor holds.
    pub blocks: u32,
    /// Bytes of shared memory of a multiprocessor.
    pub shared: usize,
    /// Bytes of the second-level cache.
    pub l2: usize,
}

/// Bytes of shared memory that a block may have without asking for more.
pub const SHARED_OF_BLOCK: usize = 48 << 10;
/// Threads of a block.
pub const MAX_THREADS: u32 = 1024;
/// Dimensions of a block.
pub const MAX_BLOCK: [u32; 3] = [1024, 1024, 64];
/// Dimensions of a grid.
pub const MAX_GRID: [u32; 3] = [0x7fff_ffff, 0xffff, 0xffff];
/// What rows of two-dimensional memory are aligned to.
pub const PITCH: usize = 512;

impl Device {
    /// The device of a number, as the settings ask for it.
    pub fn new(settings: &Settings, device: i32) -> Self {
        let (kib, mib) = (1 << 10, 1 << 20);
        let capability = settings.capability(device);
        let (multiprocessors, threads, blocks, shared, l2) = match capability {
            (0..=6, _) => (20, 2048, 32, 64 * kib, 2 * mib),
            (7, 0..=4) => (80, 2048, 32, 96 * kib, 6 * mib),
            (7, _) => (40, 1024, 16, 64 * kib, 4 * mib),
            (8, 0) => (108, 2048, 32, 164 * kib, 40 * mib),
            (8, 7) => (16, 1536, 16, 164 * kib, 4 * mib),
            (8, 9) => (128, 1536, 24, 100 * kib, 72 * mib),
            (8, _) => (82, 1536, 16, 100 * kib, 6 * mib),
            (9..=11, _) => (132, 2048, 32, 228 * kib, 50 * mib),
            _ => (170, 1536, 24, 100 * kib, 96 * mib),
        };
        let multiprocessors = settings.multiprocessors.unwrap_or(multiprocessors);
        Self { capability, multiprocessors, threads, blocks, shared, l2 }
    }

    /// Bytes of shared memory that a block may ask for.
    pub fn shared_opt_in(&self) -> usize {
        // From 8.0 on the system takes 1 KiB for each block.
        if self.capability >= (8, 0) { self.shared - 1024 } else { self.shared }
    }

    /// `sm_XX`
    pub fn target(&self) -> u32 {
        self.capability.0 * 10 + self.capability.1
    }

    /// An attribute by its number. None for numbers that there are not; 0 for what this device hasn't.
    pub fn attribute(&self, number: u32) -> Option<i32> {
        let values = [
            (Attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, MAX_THREADS as usize),
            (Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, MAX_BLOCK[0] as usize),
            (Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, MAX_BLOCK[1] as usize),
            (Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, MAX_BLOCK[2] as usize),
            (Attribute::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, MAX_GRID[0] as usize),
            (Attribute::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, MAX_GRID[1] as usize),
            (Attribute::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, MAX_GRID[2] as usize),
            (Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, SHARED_OF_BLOCK),
            (Attribute::CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY, 64 << 10),
            (Attribute::CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32),
            (Attribute::CU_DEVICE_ATTRIBUTE_MAX_PITCH, 0x7fff_ffff),
            (Attribute::CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, 65536),
            (Attribute::CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 1_000_000),
            (Attribute::CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, 512),
            (Attribute::CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT, 32),
            (Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, self.multiprocessors as usize),
            (Attribute::CU_DEVICE_ATTRIBUTE_GPU_OVERLAP, 1),
            (Attribute::CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 1),
            (Attribute::CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, 1),
            (Attribute::CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, 1),
            (Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, 1_000_000),
            (Attribute::CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, 256),
            (Attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, self.l2),
            (Attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, self.threads as usize),
            (Attribute::CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, 2),
            (Attribute::CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1),
            (Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, self.capability.0 as usize),
            (Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, self.capability.1 as usize),
            (Attribute::CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED, 1),
            (Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, self.shared),
            (Attribute::CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, 65536),
            (Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, self.shared_opt_in()),
            (Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, self.blocks as usize),
            (
                Attribute::CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK,
                self.shared - self.shared_opt_in(),
            ),
        ];
        let value =
            values.iter().find(|(attribute, _)| *attribute as u32 == number).map(|(_, value)| *value as i32);
        let is_one = (1..Attribute::CU_DEVICE_ATTRIBUTE_MAX as u32).contains(&number);
        value.or(is_one.then_some(0))
    }
}
