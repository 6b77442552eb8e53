//! What runs a network: whose code, on which device, in which precision.
//!
//! A [`BackendRequest`] may leave parts open (`auto`); a [`Backend`] is what really runs. What was asked for and
//! can't be had is an error with the reason, never a silent fallback.

use std::fmt;
use std::str::FromStr;

use crate::error::{ErrorKind, Result, SegmentError};

/// Whose code runs the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// burn: everywhere, not the fastest.
    Portable,
    /// The project's own kernels.
    Kernels,
}

/// Where the network runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Device {
    /// The processor.
    Cpu,
    /// The NVIDIA GPU of this number.
    Cuda(u32),
}

/// The type of activations and weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Precision {
    /// 32-bit floating point.
    F32,
    /// bfloat16, accumulated in 32 bits.
    Bf16,
    /// 16-bit floating point.
    F16,
}

/// What runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Backend {
    /// Whose code.
    pub mode: Mode,
    /// Where.
    pub device: Device,
    /// In which type.
    pub precision: Precision,
}

/// A device that may be left open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum DeviceRequest {
    /// The fastest there is.
    #[default]
    Auto,
    /// The processor.
    Cpu,
    /// A GPU: the one of this number, or any.
    Cuda(Option<u32>),
}

/// What is asked for; `None` and `Auto` leave the choice open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct BackendRequest {
    /// Whose code.
    pub mode: Option<Mode>,
    /// Where.
    pub device: DeviceRequest,
    /// In which type.
    pub precision: Option<Precision>,
}

impl BackendRequest {
    /// The backend that serves this request here.
    ///
    /// # Errors
    /// `BackendUnavailable`, with the part that can't be had and why.
    pub fn resolve(self) -> Result<Backend> {
        let unavailable = |what: &str| Err(SegmentError::new(ErrorKind::BackendUnavailable, what));
        if let DeviceRequest::Cuda(index) = self.device {
            let device = index.map_or("cuda".to_owned(), |index| format!("cuda:{index}"));
            return unavailable(&format!(
                "device {device} is not available: this build has no CUDA engine; expected device auto or cpu"
            ));
        }
        if self.mode == Some(Mode::Kernels) {
            return unavailable(
                "backend kernels is not available: this build has only the portable one; expected backend auto or portable",
            );
        }
        if cfg!(not(feature = "portable")) {
            return unavailable(
                "no backend is available: this build was made without the feature `portable`",
            );
        }
        match self.precision {
            None | Some(Precision::F32) => {
                Ok(Backend { mode: Mode::Portable, device: Device::Cpu, precision: Precision::F32 })
            }
            Some(other) => unavailable(&format!(
                "precision {other} is not available: the portable backend on the processor runs in f32; expected precision auto or f32"
            )),
        }
    }
}

/// `Display` and `FromStr` by one list of names, `auto` being none of them.
macro_rules! names {
    ($type:ty, $what:literal, $($name:literal => $value:expr),+) => {
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                $(if *self == $value { return f.write_str($name); })+
                unreachable!("every value has a name")
            }
        }

        impl $type {
            /// Reads a name; `auto` is `None`.
            ///
            /// # Errors
            /// `UnknownName`, listing the names there are.
            pub fn from_name_or_auto(name: &str) -> Result<Option<Self>> {
                match name {
                    "auto" => Ok(None),
                    $($name => Ok(Some($value)),)+
                    _ => Err(SegmentError::new(
                        ErrorKind::UnknownName,
                        format!(
                            concat!("unknown ", $what, " {:?}: expected one of {}"),
                            name,
                            ["auto", $($name),+].join(", ")
                        ),
                    )),
                }
            }
        }
    };
}

names!(Mode, "backend", "portable" => Mode::Portable, "kernels" => Mode::Kernels);
names!(Precision, "precision", "f32" => Precision::F32, "bf16" => Precision::Bf16, "f16" => Precision::F16);

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Device::Cpu => f.write_str("cpu"),
            Device::Cuda(index) => write!(f, "cuda:{index}"),
        }
    }
}

impl FromStr for DeviceRequest {
    type Err = SegmentError;

    fn from_str(name: &str) -> Result<Self> {
        match name {
            "auto" => Ok(DeviceRequest::Auto),
            "cpu" => Ok(DeviceRequest::Cpu),
            "cuda" => Ok(DeviceRequest::Cuda(None)),
            _ => name
                .strip_prefix("cuda:")
                .and_then(|index| index.parse().ok())
                .map(|index| DeviceRequest::Cuda(Some(index)))
                .ok_or_else(|| {
                    SegmentError::new(
                        ErrorKind::UnknownName,
                        format!("unknown device {name:?}: expected auto, cpu, cuda or cuda:N"),
                    )
                }),
        }
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.mode, self.device, self.precision)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_and_print() {
        assert_eq!(Mode::from_name_or_auto("auto").unwrap(), None);
        assert_eq!(Mode::from_name_or_auto("kernels").unwrap().unwrap().to_string(), "kernels");
        assert_eq!(Precision::from_name_or_auto("bf16").unwrap(), Some(Precision::Bf16));
        assert_eq!("cuda:3".parse::<DeviceRequest>().unwrap(), DeviceRequest::Cuda(Some(3)));
        let error = "gpu".parse::<DeviceRequest>().unwrap_err();
        assert!(error.to_string().contains("\"gpu\"") && error.to_string().contains("cuda:N"), "{error}");
        let error = Precision::from_name_or_auto("fp16").unwrap_err();
        assert!(error.to_string().contains("auto, f32, bf16, f16"), "{error}");
    }

    #[cfg(feature = "portable")]
    #[test]
    fn auto_is_resolved_and_printed() {
        let backend = BackendRequest::default().resolve().unwrap();
        assert_eq!(backend.to_string(), "portable cpu f32");
    }

    #[test]
    fn what_can_not_be_had_is_an_error_that_names_it() {
        for (request, expected) in [
            (BackendRequest { device: DeviceRequest::Cuda(Some(1)), ..Default::default() }, "cuda:1"),
            (BackendRequest { mode: Some(Mode::Kernels), ..Default::default() }, "kernels"),
            #[cfg(feature = "portable")]
            (BackendRequest { precision: Some(Precision::F16), ..Default::default() }, "precision f16"),
        ] {
            let error = request.resolve().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::BackendUnavailable);
            assert!(error.to_string().contains(expected), "{error}");
        }
    }
}
