//! The element's properties: their declarations, their values, and which may change while frames flow.

use std::path::PathBuf;
use std::str::FromStr;
use std::sync::LazyLock;

use glib::prelude::*;
use sapiens_model::{
    BackendRequest, DeviceRequest, InputSize, Mode, ModelCard, Options, Palette, Precision, Result, Variant,
};

use crate::queue;

/// The built-in models.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, glib::Enum)]
#[enum_type(name = "GstSapiensSegVariant")]
pub enum VariantChoice {
    /// Sapiens 0.3b.
    #[default]
    #[enum_value(name = "Sapiens 0.3b, 28 classes", nick = "0.3b")]
    Sapiens03b,
    /// Sapiens 0.6b.
    #[enum_value(name = "Sapiens 0.6b, 28 classes", nick = "0.6b")]
    Sapiens06b,
    /// Sapiens 1b.
    #[enum_value(name = "Sapiens 1b, 28 classes", nick = "1b")]
    Sapiens1b,
    /// Sapiens 2b.
    #[enum_value(name = "Sapiens 2b, 28 classes", nick = "2b")]
    Sapiens2b,
    /// Sapiens2 0.4b.
    #[enum_value(name = "Sapiens2 0.4b, 29 classes", nick = "sapiens2-0.4b")]
    Sapiens2_04b,
    /// Sapiens2 0.8b.
    #[enum_value(name = "Sapiens2 0.8b, 29 classes", nick = "sapiens2-0.8b")]
    Sapiens2_08b,
    /// Sapiens2 1b.
    #[enum_value(name = "Sapiens2 1b, 29 classes", nick = "sapiens2-1b")]
    Sapiens2_1b,
    /// Sapiens2 5b.
    #[enum_value(name = "Sapiens2 5b, 29 classes", nick = "sapiens2-5b")]
    Sapiens2_5b,
    /// The demo model.
    #[enum_value(name = "A small model that is built in: drawn figures only, 29 classes", nick = "demo")]
    Demo,
}

impl VariantChoice {
    fn variant(self) -> Result<Variant> {
        let value = self.to_value();
        let nick = glib::EnumValue::from_value(&value).map_or("", |(_, value)| value.nick());
        nick.parse()
    }
}

/// Whose code runs the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, glib::Enum)]
#[enum_type(name = "GstSapiensSegBackend")]
pub enum BackendChoice {
    /// The fastest there is.
    #[default]
    #[enum_value(name = "The fastest there is", nick = "auto")]
    Auto,
    /// burn.
    #[enum_value(name = "burn: everywhere, not the fastest", nick = "portable")]
    Portable,
    /// The project's own.
    #[enum_value(name = "The project's own kernels", nick = "kernels")]
    Kernels,
}

/// The type of activations and weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, glib::Enum)]
#[enum_type(name = "GstSapiensSegPrecision")]
pub enum PrecisionChoice {
    /// The fastest that is accurate enough.
    #[default]
    #[enum_value(name = "The fastest that is accurate enough", nick = "auto")]
    Auto,
    /// 32-bit floating point.
    #[enum_value(name = "32-bit floating point", nick = "f32")]
    F32,
    /// bfloat16.
    #[enum_value(name = "bfloat16", nick = "bf16")]
    Bf16,
    /// 16-bit floating point.
    #[enum_value(name = "16-bit floating point", nick = "f16")]
    F16,
}

/// What leaves the `src` pad.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, glib::Enum)]
#[enum_type(name = "GstSapiensSegOutput")]
pub enum OutputChoice {
    /// The frame untouched.
    #[default]
    #[enum_value(name = "The frame untouched, with the labels as SapiensSegMeta", nick = "meta")]
    Meta,
    /// The frame painted.
    #[enum_value(name = "The frame with the classes' colours blended in", nick = "overlay")]
    Overlay,
    /// The labels.
    #[enum_value(name = "The labels themselves, GRAY8: a class number per pixel", nick = "mask")]
    Mask,
    /// The frame cut out.
    #[enum_value(name = "The frame with alpha: opaque where the chosen classes are", nick = "alpha")]
    Alpha,
}

/// What happens to live frames that come too late.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, glib::Enum)]
#[enum_type(name = "GstSapiensSegLate")]
pub enum LateChoice {
    /// They leave on time with the last labels.
    #[default]
    #[enum_value(name = "They leave on time with the last labels", nick = "reuse")]
    Reuse,
    /// They are dropped.
    #[enum_value(name = "They are dropped", nick = "drop")]
    Drop,
    /// They leave late.
    #[enum_value(name = "They leave when their own labels are there, however late", nick = "wait")]
    Wait,
}

/// The properties' values.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub variant: VariantChoice,
    pub card: Option<String>,
    pub weights: Option<String>,
    pub backend: BackendChoice,
    pub device: String,
    pub precision: PrecisionChoice,
    pub input_size: String,
    pub output: OutputChoice,
    pub classes: Option<String>,
    pub opacity: f64,
    pub interval: u32,
    pub late: LateChoice,
    pub slots: u32,
    pub threads: u32,
    pub post_messages: bool,
    pub license_accepted: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            variant: VariantChoice::default(),
            card: None,
            weights: None,
            backend: BackendChoice::default(),
            device: "auto".to_owned(),
            precision: PrecisionChoice::default(),
            input_size: "card".to_owned(),
            output: OutputChoice::default(),
            classes: None,
            opacity: 0.5,
            interval: 1,
            late: LateChoice::default(),
            slots: 2,
            threads: 0,
            post_messages: false,
            license_accepted: false,
        }
    }
}

/// Frames in flight at most: each holds a frame's worth of memory, and more don't make anything faster.
const MAX_SLOTS: u32 = 16;

impl Settings {
    /// The model's card.
    pub(crate) fn card(&self) -> Result<ModelCard> {
        match &self.card {
            Some(path) => ModelCard::load(&PathBuf::from(path)),
            None => Ok(ModelCard::of(self.variant.variant()?)),
        }
    }

    /// How the network is to be run.
    pub(crate) fn options(&self) -> Result<Options> {
        let mode = match self.backend {
            BackendChoice::Auto => None,
            BackendChoice::Portable => Some(Mode::Portable),
            BackendChoice::Kernels => Some(Mode::Kernels),
        };
        let precision = match self.precision {
            PrecisionChoice::Auto => None,
            PrecisionChoice::F32 => Some(Precision::F32),
            PrecisionChoice::Bf16 => Some(Precision::Bf16),
            PrecisionChoice::F16 => Some(Precision::F16),
        };
        Ok(Options {
            backend: BackendRequest { mode, device: DeviceRequest::from_str(&self.device)?, precision },
            input_size: InputSize::from_str(&self.input_size)?,
            slots: self.slots as usize,
            threads: self.threads as usize,
            keep_logits: false,
        })
    }

    /// The colours, and which classes are shown.
    pub(crate) fn palette(&self, card: &ModelCard) -> Result<Palette> {
        match &self.classes {
            None => Ok(Palette::of(card)),
            Some(list) => {
                let names = list.split(',').map(str::trim).filter(|name| !name.is_empty());
                Palette::of(card).showing(card, names)
            }
        }
    }

    /// What the queue is to know.
    pub(crate) fn queue(&self) -> queue::Settings {
        let late = match self.late {
            LateChoice::Reuse => queue::Late::Reuse,
            LateChoice::Drop => queue::Late::Drop,
            LateChoice::Wait => queue::Late::Wait,
        };
        queue::Settings { interval: self.interval, late }
    }

    /// Takes over the value of a property; whether there is a property of that name.
    pub(crate) fn set(&mut self, name: &str, value: &glib::Value) -> std::result::Result<(), Unsettable> {
        match name {
            "variant" => self.variant = get(value)?,
            "card" => self.card = get(value)?,
            "weights" => self.weights = get(value)?,
            "backend" => self.backend = get(value)?,
            "device" => self.device = get::<Option<String>>(value)?.unwrap_or_else(|| "auto".to_owned()),
            "precision" => self.precision = get(value)?,
            "input-size" => {
                self.input_size = get::<Option<String>>(value)?.unwrap_or_else(|| "card".to_owned())
            }
            "output" => self.output = get(value)?,
            "classes" => self.classes = get(value)?,
            "opacity" => self.opacity = get(value)?,
            "interval" => self.interval = get(value)?,
            "late" => self.late = get(value)?,
            "slots" => self.slots = get(value)?,
            "threads" => self.threads = get(value)?,
            "post-messages" => self.post_messages = get(value)?,
            "license-accepted" => self.license_accepted = get(value)?,
            _ => return Err(Unsettable),
        }
        Ok(())
    }

    /// The value of a property; none of `stats`, which isn't a setting.
    pub(crate) fn get(&self, name: &str) -> Option<glib::Value> {
        Some(match name {
            "variant" => self.variant.to_value(),
            "card" => self.card.to_value(),
            "weights" => self.weights.to_value(),
            "backend" => self.backend.to_value(),
            "device" => self.device.to_value(),
            "precision" => self.precision.to_value(),
            "input-size" => self.input_size.to_value(),
            "output" => self.output.to_value(),
            "classes" => self.classes.to_value(),
            "opacity" => self.opacity.to_value(),
            "interval" => self.interval.to_value(),
            "late" => self.late.to_value(),
            "slots" => self.slots.to_value(),
            "threads" => self.threads.to_value(),
            "post-messages" => self.post_messages.to_value(),
            "license-accepted" => self.license_accepted.to_value(),
            _ => return None,
        })
    }
}

/// No such property, or a value of another type; GObject rules both out before we are asked.
#[derive(Debug)]
pub(crate) struct Unsettable;

fn get<'a, T: glib::value::FromValue<'a>>(value: &'a glib::Value) -> std::result::Result<T, Unsettable> {
    value.get().map_err(|_| Unsettable)
}

/// The properties' declarations.
pub(crate) fn properties() -> &'static [glib::ParamSpec] {
    static PROPERTIES: LazyLock<Vec<glib::ParamSpec>> = LazyLock::new(|| {
        let defaults = Settings::default();
        let ready = gst::PARAM_FLAG_MUTABLE_READY;
        let playing = gst::PARAM_FLAG_MUTABLE_PLAYING;
        let text = |name, blurb, default: Option<&str>| {
            glib::ParamSpecString::builder(name)
                .blurb(blurb)
                .default_value(default)
                .flags(flags(ready))
                .build()
        };
        vec![
            glib::ParamSpecEnum::builder_with_default("variant", defaults.variant)
                .blurb("The published model")
                .flags(flags(ready))
                .build(),
            text("card", "A model card of your own (TOML file), instead of variant", None),
            text(
                "weights",
                "The weights: a file or folder. Without it they are looked for in $SAPIENS_CHECKPOINT_ROOT, the project's cache and the hub's cache",
                None,
            ),
            glib::ParamSpecEnum::builder_with_default("backend", defaults.backend)
                .blurb("Whose code runs the network")
                .flags(flags(ready))
                .build(),
            text("device", "Where it runs: auto, cpu, cuda or cuda:N", Some("auto")),
            glib::ParamSpecEnum::builder_with_default("precision", defaults.precision)
                .blurb("The type of activations and weights")
                .flags(flags(ready))
                .build(),
            text(
                "input-size",
                "Size of the network's input: card (the model's own), native (the frame's), or width=W,height=H in multiples of 16; smaller is faster",
                Some("card"),
            ),
            glib::ParamSpecEnum::builder_with_default("output", defaults.output)
                .blurb("What leaves the src pad; the labels are on it as SapiensSegMeta in any case")
                .flags(flags(ready))
                .build(),
            glib::ParamSpecString::builder("classes")
                .blurb("Names or numbers, separated by commas, of the classes that overlay, alpha and messages show; all but the background by default")
                .flags(flags(playing))
                .build(),
            glib::ParamSpecDouble::builder("opacity")
                .blurb("Opacity of the overlay")
                .minimum(0.0)
                .maximum(1.0)
                .default_value(defaults.opacity)
                .flags(flags(playing))
                .build(),
            glib::ParamSpecUInt::builder("interval")
                .blurb("Infer every Nth frame; those between have the labels of the last one")
                .minimum(1)
                .default_value(defaults.interval)
                .flags(flags(playing))
                .build(),
            glib::ParamSpecEnum::builder_with_default("late", defaults.late)
                .blurb("What happens to live frames whose labels come too late")
                .flags(flags(playing))
                .build(),
            glib::ParamSpecUInt::builder("slots")
                .blurb("Frames in flight")
                .minimum(1)
                .maximum(MAX_SLOTS)
                .default_value(defaults.slots)
                .flags(flags(ready))
                .build(),
            glib::ParamSpecUInt::builder("threads")
                .blurb("Processor threads; 0 for all")
                .default_value(defaults.threads)
                .flags(flags(ready))
                .build(),
            glib::ParamSpecBoolean::builder("post-messages")
                .blurb("Post an element message for each frame: its classes, their pixels and boxes")
                .default_value(defaults.post_messages)
                .flags(flags(playing))
                .build(),
            glib::ParamSpecBoolean::builder("license-accepted")
                .blurb("Accept the weights' licence, as SAPIENS_NONCOMMERCIAL=1 (first family, no commercial use) or SAPIENS2_LICENSE_ACCEPTED=1 do")
                .default_value(defaults.license_accepted)
                .flags(flags(ready))
                .build(),
            glib::ParamSpecBoxed::builder::<gst::Structure>("stats")
                .blurb("Frames in, inferred, reused and dropped; times per step; what backend runs")
                .read_only()
                .build(),
        ]
    });
    &PROPERTIES
}

fn flags(mutable: glib::ParamFlags) -> glib::ParamFlags {
    glib::ParamFlags::READWRITE | mutable
}
