//! A device that can run the kernels, with its context and the kernels loaded.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use cudarc::driver::sys::{CUcontext, CUdevice, CUdevice_attribute};

use super::driver::{self, call};
use super::foreign::{Context, ContextId};
use super::modules::Modules;
use super::{CudaError, Precision};

/// A compute capability.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Capability {
    /// Before the dot.
    pub major: u32,
    /// Behind it.
    pub minor: u32,
}

impl Capability {
    /// Turing: the oldest that runs the kernels.
    const OLDEST: Self = Self { major: 7, minor: 5 };
    /// Ampere: bfloat16 and asynchronous copies.
    pub const AMPERE: Self = Self { major: 8, minor: 0 };
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// What a device says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Properties {
    /// Its name.
    pub name: String,
    /// What it can do.
    pub capability: Capability,
    /// Multiprocessors.
    pub multiprocessors: u32,
    /// Shared memory of a multiprocessor.
    pub shared_memory: usize,
    /// Shared memory that one block can have.
    pub shared_memory_of_block: usize,
    /// Memory in all.
    pub memory: usize,
}

impl Properties {
    /// Whether products with float32 sums go at half the rate of those with float16 sums, as on GeForce cards. The driver doesn't say; their
    /// names do.
    pub fn halves_f32_sums(&self) -> bool {
        self.name.contains("GeForce")
    }

    /// The fastest precision for weights in float16 whose errors stay near those of float32 sums.
    pub fn fastest_f16(&self) -> Precision {
        if self.halves_f32_sums() { Precision::F16Promoted } else { Precision::F16 }
    }
}

/// A device with the kernels in a context: its primary one, or one that somebody else made.
pub struct Gpu {
    device: CUdevice,
    context: CUcontext,
    /// Keeps a context that isn't the primary one.
    adopted: Option<Context>,
    properties: Properties,
    modules: Modules,
    memory: MemoryUse,
}

/// Bytes of the device's memory.
#[derive(Debug, Default)]
pub(super) struct MemoryUse {
    now: AtomicUsize,
    peak: AtomicUsize,
}

impl MemoryUse {
    pub(super) fn add(&self, bytes: usize) {
        let now = self.now.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.peak.fetch_max(now, Ordering::Relaxed);
    }

    pub(super) fn subtract(&self, bytes: usize) {
        self.now.fetch_sub(bytes, Ordering::Relaxed);
    }
}

// SAFETY: a context may be used from any thread, and a thread that uses it makes it its own first.
unsafe impl Send for Gpu {}
// SAFETY: as above; the driver's functions lock for themselves.
unsafe impl Sync for Gpu {}

impl fmt::Debug for Gpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gpu").field("properties", &self.properties).finish_non_exhaustive()
    }
}

impl Gpu {
    /// Opens the device of a number, counted from 0, and loads the kernels. The driver compiles them for the card the first time
    /// and keeps the outcome, so that takes seconds once.
    ///
    /// # Errors
    /// Whatever is missing: see [`CudaError`].
    pub fn open(index: usize) -> Result<Arc<Self>, CudaError> {
        let properties = Self::properties_of(index)?;
        let device = device(index)?;
        let mut context = std::ptr::null_mut();
        // SAFETY: the device is one of the driver's.
        unsafe { call!(cuDevicePrimaryCtxRetain(&mut context, device))? };
        Self::with_kernels(device, context, None, properties)
    }

    /// Loads the kernels into a context that somebody else made, to work on memory that is its.
    ///
    /// # Errors
    /// Whatever is missing: see [`CudaError`].
    pub fn adopt(context: Context) -> Result<Arc<Self>, CudaError> {
        driver::load()?;
        let raw = context.raw();
        let device = {
            // SAFETY: whoever made it a `Context` promised that it lives.
            unsafe { call!(cuCtxPushCurrent_v2(raw))? };
            let _entered = Entered;
            let mut device = 0;
            // SAFETY: a context is current.
            unsafe { call!(cuCtxGetDevice(&mut device))? };
            device
        };
        Self::with_kernels(device, raw, Some(context), runnable(device)?)
    }

    fn with_kernels(
        device: CUdevice,
        context: CUcontext,
        adopted: Option<Context>,
        properties: Properties,
    ) -> Result<Arc<Self>, CudaError> {
        // From here on dropping releases the context.
        let mut gpu = Self {
            device,
            context,
            adopted,
            properties,
            modules: Modules::default(),
            memory: MemoryUse::default(),
        };
        let entered = gpu.enter()?;
        let modules = Modules::load(gpu.properties.capability)?;
        drop(entered);
        gpu.modules = modules;
        Ok(Arc::new(gpu))
    }

    /// What the device of a number says of itself, if it can run the kernels. Takes nothing of it.
    ///
    /// # Errors
    /// As [`Gpu::open`].
    pub fn properties_of(index: usize) -> Result<Properties, CudaError> {
        driver::load()?;
        runnable(device(index)?)
    }

    /// What the device says of itself.
    pub fn properties(&self) -> &Properties {
        &self.properties
    }

    /// Memory of the device that nobody uses.
    ///
    /// # Errors
    /// If the driver can't say.
    pub fn free_memory(&self) -> Result<usize, CudaError> {
        let _entered = self.enter()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: a context is current.
        unsafe { call!(cuMemGetInfo_v2(&mut free, &mut total))? };
        Ok(free)
    }

    /// Bytes of the device's memory that its [`Buffer`](super::Buffer)s take, and the most that they ever took at once.
    pub fn memory_use(&self) -> (usize, usize) {
        (self.memory.now.load(Ordering::Relaxed), self.memory.peak.load(Ordering::Relaxed))
    }

    pub(super) fn count_memory(&self) -> &MemoryUse {
        &self.memory
    }

    /// Tells its context from others.
    pub fn context_id(&self) -> ContextId {
        ContextId(self.context())
    }

    /// The number of the device, counted from 0.
    pub fn index(&self) -> usize {
        self.device as usize
    }

    /// Which context it is: that of a device is one, however often it is opened.
    pub(super) fn context(&self) -> usize {
        self.context.addr()
    }

    pub(super) fn modules(&self) -> &Modules {
        &self.modules
    }

    /// Makes the context this thread's own until the guard is dropped.
    pub(super) fn enter(&self) -> Result<Entered, CudaError> {
        // SAFETY: the context lives as long as `self`.
        unsafe { call!(cuCtxPushCurrent_v2(self.context))? };
        Ok(Entered)
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        {
            // Even where that fails: the driver knows whose modules they are.
            let _entered = self.enter();
            self.modules.unload();
        }
        if self.adopted.is_some() {
            return;
        }
        // SAFETY: it was retained once. Nothing can be done about a failure.
        let _ = unsafe { call!(cuDevicePrimaryCtxRelease_v2(self.device)) };
    }
}

/// While it lives, the context is the thread's own.
pub(super) struct Entered;

impl Drop for Entered {
    fn drop(&mut self) {
        let mut context = std::ptr::null_mut();
        // SAFETY: one was pushed when this was made. Nothing can be done about a failure.
        let _ = unsafe { call!(cuCtxPopCurrent_v2(&mut context)) };
    }
}

fn device(index: usize) -> Result<CUdevice, CudaError> {
    let (mut count, mut device) = (0, 0);
    // SAFETY: both may be written to.
    unsafe {
        call!(cuDeviceGetCount(&mut count))?;
        if index >= count as usize {
            return Err(CudaError::NoDevice { index, count: count as usize });
        }
        call!(cuDeviceGet(&mut device, index as i32))?;
    }
    Ok(device)
}

/// What a device says of itself, if it can run the kernels.
fn runnable(device: CUdevice) -> Result<Properties, CudaError> {
    let properties = properties(device)?;
    if properties.capability < Capability::OLDEST {
        return Err(CudaError::TooOld { device: properties.name, found: properties.capability });
    }
    Ok(properties)
}

fn properties(device: CUdevice) -> Result<Properties, CudaError> {
    let attribute = |attribute| {
        let mut value = 0;
        // SAFETY: the device is one of the driver's.
        unsafe { call!(cuDeviceGetAttribute(&mut value, attribute, device))? };
        Ok(value as u32)
    };
    use CUdevice_attribute::*;
    let mut name = [0u8; 256];
    let mut memory = 0;
    // SAFETY: the driver writes at most so many bytes, the last of them zero.
    unsafe {
        call!(cuDeviceGetName(name.as_mut_ptr().cast(), name.len() as i32, device))?;
        call!(cuDeviceTotalMem_v2(&mut memory, device))?;
    }
    let length = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
    Ok(Properties {
        name: String::from_utf8_lossy(&name[..length]).into_owned(),
        capability: Capability {
            major: attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            minor: attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        },
        multiprocessors: attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
        shared_memory: attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR)? as usize,
        shared_memory_of_block: attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)? as usize,
        memory,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cards_for_games_get_sums_in_float16() {
        let of = |name: &str| {
            let capability = Capability { major: 8, minor: 9 };
            let name = name.to_owned();
            Properties {
                name,
                capability,
                multiprocessors: 1,
                shared_memory: 0,
                shared_memory_of_block: 0,
                memory: 0,
            }
            .fastest_f16()
        };
        assert_eq!(of("NVIDIA GeForce RTX 4090"), Precision::F16Promoted);
        assert_eq!(of("NVIDIA TITAN RTX"), Precision::F16);
        assert_eq!(of("NVIDIA L40S"), Precision::F16);
        assert_eq!(of("NVIDIA H200"), Precision::F16);
    }
}
