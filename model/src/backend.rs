//! What runs a network: whose code, on which device, in which precision.
//!
//! A [`BackendRequest`] may leave parts open (`auto`); a [`Backend`] is what really runs. What was asked for and
//! can't be had is an error with the reason, never a silent fallback.

use std::fmt;
use std::str::FromStr;

use sapiens_kernels::cpu::Level;
use sapiens_kernels::cpu::attention::MAX_HEAD_DIM;

use crate::card::ModelCard;
#[cfg(feature = "cuda")]
use crate::engine;
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
    /// The processor's instructions that the kernels are made of, by the name that `SAPIENS_CPU` has for them; nothing
    /// where other code or another device runs.
    pub instructions: Option<&'static str>,
}

impl Backend {
    /// burn on the processor.
    pub const PORTABLE: Self =
        Self { mode: Mode::Portable, device: Device::Cpu, precision: Precision::F32, instructions: None };

    /// The level that the kernels are to be packed for.
    pub(crate) fn level(&self) -> Result<Level> {
        match self.instructions {
            Some(name) => Level::at_most(name).map_err(unavailable),
            None => Err(unavailable(format!("{self} runs no kernels of the processor's"))),
        }
    }
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
    /// The backend that serves this request here. What is left open becomes the fastest there is: the kernels, on a GPU where
    /// there is one that runs them, or else in bfloat16 where the processor multiplies it faster than float32.
    ///
    /// # Errors
    /// `BackendUnavailable`, with the part that can't be had and why.
    pub fn resolve(self) -> Result<Backend> {
        if let DeviceRequest::Cuda(index) = self.device {
            let device = index.map_or("cuda".to_owned(), |index| format!("cuda:{index}"));
            return self
                .cuda(index.unwrap_or(0))
                .map_err(|why| unavailable(format!("device {device} is not available: {why}")));
        }
        if let Ok(backend) = self.gpu() {
            return Ok(backend);
        }
        match self.mode {
            Some(Mode::Portable) => self.portable(),
            Some(Mode::Kernels) => self.kernels(),
            // Plain code is slower than burn, which has vectors for other processors too.
            None if cfg!(feature = "portable") && self.precision != Some(Precision::Bf16) => {
                let kernels = self.kernels()?;
                if kernels.level()?.has_vectors() { Ok(kernels) } else { self.portable() }
            }
            None => self.kernels(),
        }
    }

    /// The GPU that an open device becomes, or why it doesn't become one.
    fn gpu(self) -> std::result::Result<Backend, String> {
        match (self.device, self.mode) {
            (DeviceRequest::Auto, Some(Mode::Portable)) => {
                Err("the portable backend runs there unless asked".to_owned())
            }
            (DeviceRequest::Auto, _) => self.cuda(0),
            (device, _) => Err(format!("{device:?} was asked for")),
        }
    }

    /// Whether a GPU that this became may be the processor as well.
    pub(crate) fn may_be_cpu(self, found: Backend) -> bool {
        self.device == DeviceRequest::Auto && found.device != Device::Cpu
    }

    /// As [`resolve`](Self::resolve), for a network: where that is open, one that the kernels on a GPU don't have runs on the
    /// processor, and one whose heads the kernels don't have runs portably.
    pub(crate) fn resolve_for(self, card: &ModelCard) -> Result<Backend> {
        if self.device == DeviceRequest::Auto {
            let found =
                self.gpu().and_then(|gpu| self.with_sizes_of(card, gpu).map_err(|why| why.to_string()));
            return match found {
                Ok(gpu) => {
                    log::info!("device auto is {}", gpu.device);
                    Ok(gpu)
                }
                Err(why) => {
                    log::info!("device auto is the processor: {why}");
                    let cpu = Self { device: DeviceRequest::Cpu, ..self };
                    // Why it isn't a GPU may be why it isn't anything.
                    cpu.resolve_for(card).map_err(|error| match self.precision {
                        Some(Precision::F16) => unavailable(format!("{error}; no GPU has it: {why}")),
                        _ => error,
                    })
                }
            };
        }
        let backend = self.resolve()?;
        if backend.device != Device::Cpu && backend.mode == Mode::Kernels {
            return self.with_sizes_of(card, backend);
        }
        let head_dim = card.network.head_dim();
        if backend.mode == Mode::Portable || (head_dim.is_multiple_of(4) && head_dim <= MAX_HEAD_DIM) {
            return Ok(backend);
        }
        let portable = Self { mode: Some(Mode::Portable), ..self }.resolve();
        match (self.mode, portable) {
            (None, Ok(portable)) => Ok(portable),
            (_, portable) => Err(unavailable(format!(
                "the card has a head dim of {head_dim}: the kernels run multiples of 4 up to {MAX_HEAD_DIM}{}",
                if portable.is_ok() { "; backend=portable runs any" } else { "" }
            ))),
        }
    }

    /// A GPU, if its kernels have the card's sizes.
    #[cfg_attr(not(feature = "cuda"), expect(unused_variables, reason = "there are no kernels on a GPU"))]
    fn with_sizes_of(self, card: &ModelCard, gpu: Backend) -> Result<Backend> {
        #[cfg(feature = "cuda")]
        engine::cuda::check(card)?;
        Ok(gpu)
    }

    #[cfg(feature = "cuda")]
    fn cuda(self, index: u32) -> std::result::Result<Backend, String> {
        use sapiens_kernels::cuda::Capability;

        if self.mode == Some(Mode::Portable) && cfg!(not(feature = "portable-cuda")) {
            return Err("this build was made without the feature `portable-cuda`, and its portable backend runs on the processor; expected backend auto or kernels"
                .to_owned());
        }
        let found = engine::cuda::properties(index)
            .map_err(|error| format!("{error}; expected device auto or cpu"))?;
        #[cfg(feature = "portable-cuda")]
        if self.mode == Some(Mode::Portable) {
            return self.portable_cuda(index);
        }
        let precision = match self.precision {
            None | Some(Precision::F16) => Precision::F16,
            Some(Precision::Bf16) if found.capability >= Capability::AMPERE => Precision::Bf16,
            Some(Precision::Bf16) => {
                return Err(format!(
                    "{} has compute capability {}, and bf16 needs 8.0; expected precision auto or f16",
                    found.name, found.capability
                ));
            }
            Some(Precision::F32) => {
                return Err("the kernels on a GPU run in f16 or bf16; expected precision auto, f16 or bf16"
                    .to_owned());
            }
        };
        Ok(Backend { mode: Mode::Kernels, device: Device::Cuda(index), precision, instructions: None })
    }

    /// burn on a GPU that is there.
    #[cfg(feature = "portable-cuda")]
    fn portable_cuda(self, index: u32) -> std::result::Result<Backend, String> {
        if let Some(missing) = sapiens_portable::missing_for_cuda() {
            return Err(format!(
                "the portable backend can't run there: {missing}; expected backend auto or kernels"
            ));
        }
        match self.precision {
            None | Some(Precision::F32) => {
                let precision = Precision::F32;
                Ok(Backend {
                    mode: Mode::Portable,
                    device: Device::Cuda(index),
                    precision,
                    instructions: None,
                })
            }
            Some(other) => Err(format!(
                "precision {other} is not available: the portable backend runs in f32; expected precision auto or f32"
            )),
        }
    }

    #[cfg(not(feature = "cuda"))]
    fn cuda(self, _index: u32) -> std::result::Result<Backend, String> {
        Err("this build was made without the feature `cuda`; expected device auto or cpu".to_owned())
    }

    fn portable(self) -> Result<Backend> {
        if cfg!(not(feature = "portable")) {
            return Err(unavailable(
                "backend portable is not available: this build was made without the feature `portable`; expected backend auto or kernels",
            ));
        }
        match self.precision {
            None | Some(Precision::F32) => Ok(Backend::PORTABLE),
            Some(other) => Err(unavailable(format!(
                "precision {other} is not available: the portable backend on the processor runs in f32; expected precision auto or f32"
            ))),
        }
    }

    fn kernels(self) -> Result<Backend> {
        let level = Level::detect().map_err(unavailable)?;
        if Level::amx_was_refused() {
            log::info!(
                "the processor has AMX, but the system refuses this process its registers: {level} is used"
            );
        }
        let precision = match self.precision {
            Some(Precision::F16) => {
                return Err(unavailable(
                    "precision f16 is not available: the kernels on the processor run in f32 or bf16; expected precision auto, f32 or bf16",
                ));
            }
            Some(precision) => precision,
            None if level.multiplies_bf16() => Precision::Bf16,
            None => Precision::F32,
        };
        let instructions = Some(level.name());
        Ok(Backend { mode: Mode::Kernels, device: Device::Cpu, precision, instructions })
    }
}

fn unavailable(what: impl fmt::Display) -> SegmentError {
    SegmentError::new(ErrorKind::BackendUnavailable, what.to_string())
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
        write!(f, "{} {} {}", self.mode, self.device, self.precision)?;
        self.instructions.map_or(Ok(()), |instructions| write!(f, " {instructions}"))
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

    #[test]
    fn what_is_open_becomes_the_fastest() {
        let level = Level::detect().unwrap();
        let cpu = BackendRequest { device: DeviceRequest::Cpu, ..Default::default() };
        let backend = cpu.resolve().unwrap();
        let precision = if level.multiplies_bf16() { "bf16" } else { "f32" };
        if !level.has_vectors() && cfg!(feature = "portable") {
            return assert_eq!(backend, Backend::PORTABLE);
        }
        assert_eq!(backend.to_string(), format!("kernels cpu {precision} {level}"));
        let f32 = BackendRequest { precision: Some(Precision::F32), ..cpu };
        assert_eq!(f32.resolve().unwrap(), Backend { precision: Precision::F32, ..backend });
    }

    #[cfg(feature = "cuda")]
    #[test]
    fn a_gpu_is_the_fastest_where_it_can_be_had() {
        sapiens_stand_in_loader::open();
        let open = BackendRequest::default();
        assert_eq!(open.resolve().unwrap().to_string(), "kernels cuda:0 f16");
        let kernels = BackendRequest { mode: Some(Mode::Kernels), ..open };
        assert_eq!(kernels.resolve().unwrap().device, Device::Cuda(0));
        // Nothing on a GPU is float32, and burn runs on the processor.
        let f32 = BackendRequest { precision: Some(Precision::F32), ..open };
        assert_eq!(f32.resolve().unwrap().device, Device::Cpu);
        #[cfg(feature = "portable")]
        {
            let portable = BackendRequest { mode: Some(Mode::Portable), ..open };
            assert_eq!(portable.resolve().unwrap(), Backend::PORTABLE);
        }
        // A network that the kernels on a GPU don't have: open, or asked for there.
        let mut card = ModelCard::of(crate::Variant::Sapiens03b);
        assert_eq!(open.resolve_for(&card).unwrap().device, Device::Cuda(0));
        card.network.ffn_dim = 1001;
        assert_eq!(open.resolve_for(&card).unwrap().device, Device::Cpu);
        let asked = BackendRequest { device: DeviceRequest::Cuda(None), ..open };
        let error = asked.resolve_for(&card).unwrap_err();
        assert!(
            error.to_string().contains("ffn_dim 1001: the kernels on a GPU run multiples of 8"),
            "{error}"
        );
    }

    #[cfg(feature = "portable")]
    #[test]
    fn what_is_named_is_had() {
        let portable = BackendRequest { mode: Some(Mode::Portable), ..Default::default() };
        assert_eq!(portable.resolve().unwrap().to_string(), "portable cpu f32");
    }

    #[cfg(feature = "portable-cuda")]
    #[test]
    fn burn_on_a_gpu_says_what_it_lacks() {
        sapiens_stand_in_loader::open();
        let request = |precision| BackendRequest {
            mode: Some(Mode::Portable),
            device: DeviceRequest::Cuda(Some(0)),
            precision,
        };
        match sapiens_portable::missing_for_cuda() {
            None => assert_eq!(request(None).resolve().unwrap().to_string(), "portable cuda:0 f32"),
            Some(missing) => {
                let error = request(None).resolve().unwrap_err().to_string();
                assert!(
                    error.contains("device cuda:0 is not available: the portable backend can't run there")
                );
                assert!(
                    error.contains(missing) && error.contains("expected backend auto or kernels"),
                    "{error}"
                );
            }
        }
    }

    #[test]
    fn what_can_not_be_had_is_an_error_that_names_it() {
        // Before anything looks for a driver: other tests of this process need the stand-in.
        #[cfg(feature = "cuda")]
        sapiens_stand_in_loader::open();
        let portable = Some(Mode::Portable);
        for (request, expected) in [
            (BackendRequest { device: DeviceRequest::Cuda(Some(99)), ..Default::default() }, "cuda:99"),
            (
                BackendRequest {
                    precision: Some(Precision::F16),
                    device: DeviceRequest::Cpu,
                    ..Default::default()
                },
                "precision f16",
            ),
            #[cfg(feature = "portable")]
            (
                BackendRequest { mode: portable, precision: Some(Precision::Bf16), ..Default::default() },
                "precision bf16",
            ),
            #[cfg(not(feature = "portable"))]
            (BackendRequest { mode: portable, ..Default::default() }, "feature `portable`"),
        ] {
            let error = request.resolve().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::BackendUnavailable);
            assert!(error.to_string().contains(expected), "{error}");
        }
    }
}
