//! Which model and how it runs: the arguments that every command with a model takes.

use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use sapiens_model::{
    BackendRequest, DeviceRequest, InputSize, Mode, ModelCard, Options, Precision, Result, Variant, Weights,
};

/// The arguments.
#[derive(Args, Debug, Clone)]
#[command(next_help_heading = "Model")]
pub struct ModelArguments {
    /// The model; `sapiens models` tells more about each.
    #[arg(long, value_name = "NAME", default_value = "0.3b", conflicts_with = "card", value_parser = variant())]
    pub variant: Variant,

    /// A card of your own (TOML), for a model with other sizes or classes.
    #[arg(long, value_name = "FILE")]
    pub card: Option<PathBuf>,

    /// The weights: a TorchScript archive, a state dict, safetensors, or a folder with them. Without this they are
    /// looked for in $SAPIENS_CHECKPOINT_ROOT, the project's cache and the hub's cache.
    #[arg(long, value_name = "PATH")]
    pub weights: Option<PathBuf>,

    /// Accept the weights' licence, as SAPIENS_NONCOMMERCIAL=1 (first family) or SAPIENS2_LICENSE_ACCEPTED=1 do.
    #[arg(long)]
    pub accept_license: bool,

    /// The size images are brought to: card (the model's own), native, or width=W,height=H in multiples of 16.
    #[arg(long, value_name = "SIZE", default_value = "card")]
    pub input_size: String,

    /// Whose code runs: auto, portable or kernels.
    #[arg(long, value_name = "NAME", default_value = "auto")]
    pub backend: String,

    /// Where: auto, cpu, cuda or cuda:N.
    #[arg(long, value_name = "NAME", default_value = "auto")]
    pub device: String,

    /// In which type: auto, f32, bf16 or f16.
    #[arg(long, value_name = "NAME", default_value = "auto")]
    pub precision: String,

    /// Processor threads; 0 for all.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub threads: usize,
}

/// Reads a variant's name; completions and messages know the list.
pub fn variant() -> impl TypedValueParser<Value = Variant> {
    PossibleValuesParser::new(Variant::all().map(Variant::nick)).try_map(|name| name.parse::<Variant>())
}

/// The card at `path`, or else the variant's.
///
/// # Errors
/// As [`ModelCard::load`].
pub fn card(path: Option<&Path>, variant: Variant) -> Result<ModelCard> {
    path.map_or_else(|| Ok(ModelCard::of(variant)), ModelCard::load)
}

impl ModelArguments {
    /// The model's card.
    ///
    /// # Errors
    /// If the file is no card.
    pub fn card(&self) -> Result<ModelCard> {
        card(self.card.as_deref(), self.variant)
    }

    /// How the model is to run. What costs nothing to check comes before gigabytes are read.
    ///
    /// # Errors
    /// If a name is unknown, or what it names can't be had here.
    pub fn options(&self) -> Result<Options> {
        let backend = BackendRequest {
            mode: Mode::from_name_or_auto(&self.backend)?,
            device: self.device.parse::<DeviceRequest>()?,
            precision: Precision::from_name_or_auto(&self.precision)?,
        };
        backend.resolve()?;
        let input_size = self.input_size.parse::<InputSize>()?;
        let options = Options { backend, input_size, threads: self.threads, ..Options::default() };
        options.thread_count()?;
        Ok(options)
    }

    /// The weights: the user's, or those found.
    ///
    /// # Errors
    /// As [`Weights::locate_and_open`].
    pub fn weights(&self, card: &ModelCard) -> Result<Weights> {
        Weights::locate_and_open(card, self.weights.as_deref(), self.accept_license)
    }
}
