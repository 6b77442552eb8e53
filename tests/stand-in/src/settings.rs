//! What the environment says of the device, read at the first call; the crate's first comment lists the variables.

use std::path::PathBuf;

use crate::error::{self, CUresult};

/// The device and how it behaves.
pub struct Settings {
    /// Compute capabilities, `(8, 6)`, of the devices; further ones have the last.
    pub capabilities: Vec<(u32, u32)>,
    /// How many multiprocessors a device says it has, if not as many as is usual.
    pub multiprocessors: Option<u32>,
    /// Bytes of memory of a device.
    pub memory: usize,
    /// Where delays and orders come from.
    pub seed: u64,
    /// The longest delay before an operation, in microseconds.
    pub delay: u64,
    /// What `cuDriverGetVersion` says.
    pub driver: i32,
    /// How many devices there are, if not one for each capability.
    pub devices: Option<i32>,
    /// A call that fails.
    pub fail: Option<Fail>,
    /// Where calls and operations are written to.
    pub log: Option<PathBuf>,
    /// A library whose kernels go before those that are compiled in.
    pub kernels: Option<PathBuf>,
}

/// A call that fails.
#[derive(Clone, Debug, PartialEq)]
pub struct Fail {
    /// The function; none for any.
    pub name: Option<String>,
    /// Which call of it, from 1.
    pub at: u64,
    /// The result, if not the function's usual one.
    pub result: Option<CUresult>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            capabilities: vec![(8, 0)],
            multiprocessors: None,
            memory: 8 << 30,
            seed: 0,
            delay: 50,
            driver: 12040,
            devices: None,
            fail: None,
            log: None,
            kernels: None,
        }
    }
}

impl Settings {
    /// Reads the environment.
    ///
    /// # Errors
    /// If a variable can't be understood; the text says which.
    pub fn read() -> Result<Self, String> {
        let mut settings = Self::default();
        set("CAPABILITY", &mut settings.capabilities, capabilities)?;
        set("MULTIPROCESSORS", &mut settings.multiprocessors, |text| text.parse().ok().map(Some))?;
        set("MEMORY", &mut settings.memory, |text| text.parse().ok())?;
        set("SEED", &mut settings.seed, |text| text.parse().ok())?;
        set("DELAY", &mut settings.delay, |text| text.parse().ok())?;
        set("DRIVER", &mut settings.driver, |text| text.parse().ok())?;
        set("DEVICES", &mut settings.devices, |text| text.parse().ok().map(Some))?;
        set("FAIL", &mut settings.fail, |text| fail(text).map(Some))?;
        set("LOG", &mut settings.log, |text| Some(Some(text.into())))?;
        set("KERNELS", &mut settings.kernels, |text| Some(Some(text.into())))?;
        Ok(settings)
    }
}

impl Settings {
    /// How many devices there are.
    pub fn device_count(&self) -> i32 {
        self.devices.unwrap_or(self.capabilities.len() as i32)
    }

    /// The compute capability of a device.
    pub fn capability(&self, device: i32) -> (u32, u32) {
        let last = self.capabilities.len().saturating_sub(1);
        self.capabilities.get(last.min(device as usize)).copied().unwrap_or((8, 0))
    }
}

/// Sets one value if its variable is set.
fn set<T>(name: &str, value: &mut T, parse: impl FnOnce(&str) -> Option<T>) -> Result<(), String> {
    let name = format!("SAPIENS_STAND_IN_{name}");
    let Ok(text) = std::env::var(&name) else { return Ok(()) };
    *value = parse(&text).ok_or_else(|| format!("{name}={text} can't be understood"))?;
    Ok(())
}

/// `8.6` or `7.5,8.6`
fn capabilities(text: &str) -> Option<Vec<(u32, u32)>> {
    text.split(',').map(capability).collect()
}

/// `8.6`
fn capability(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// `cuMemAlloc_v2:3`, `*:57`, `cuLaunchKernel:1:CUDA_ERROR_LAUNCH_FAILED`
fn fail(text: &str) -> Option<Fail> {
    let mut parts = text.split(':');
    let name = parts.next().filter(|name| !name.is_empty())?;
    let at = parts.next()?.parse().ok().filter(|at| *at > 0)?;
    let result = match parts.next() {
        Some(result) => Some(error::parse(result)?),
        None => None,
    };
    let name = (name != "*").then(|| name.to_owned());
    parts.next().is_none().then_some(Fail { name, at, result })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_understood() {
        let of = |name: Option<&str>, at, result| Some(Fail { name: name.map(str::to_owned), at, result });
        assert_eq!(fail("cuMemAlloc_v2:3"), of(Some("cuMemAlloc_v2"), 3, None));
        assert_eq!(fail("*:57:719"), of(None, 57, Some(CUresult::CUDA_ERROR_LAUNCH_FAILED)));
        let named = of(Some("cuInit"), 1, Some(CUresult::CUDA_ERROR_NO_DEVICE));
        assert_eq!(fail("cuInit:1:CUDA_ERROR_NO_DEVICE"), named);
        for wrong in ["", "cuInit", ":1", "cuInit:0", "cuInit:x", "cuInit:1:nothing", "cuInit:1:719:2"] {
            assert_eq!(fail(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn capabilities_are_understood() {
        assert_eq!(capability("8.6"), Some((8, 6)));
        assert_eq!(capability("12.0"), Some((12, 0)));
        assert_eq!(capability("86"), None);
        assert_eq!(capabilities("7.5,8.6"), Some(vec![(7, 5), (8, 6)]));
        assert_eq!(capabilities("7.5,"), None);
    }
}
