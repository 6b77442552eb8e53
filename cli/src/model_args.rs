//! Which model and how it runs: the arguments that every command with a model takes.

use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use sapiens_model::{
    BackendRequest, DeviceRequest, InputSize, Mode, ModelCard, Options, Precision, Result, Segmenter,
    Variant, Weights,
};

#[derive(Args)]
#[command(next_help_heading = "Model")]
pub(crate) struct ModelArguments {
    /// The published model; `sapiens models` tells more about each.
    #[arg(long, value_name = "NAME", default_value = "0.3b", conflicts_with = "card", value_parser = variant())]
    variant: Variant,

    /// A card of your own (TOML), for a model with other sizes or classes.
    #[arg(long, value_name = "FILE")]
    card: Option<PathBuf>,

    /// The weights: a TorchScript archive, a state dict, safetensors, or a folder with them. Without this they are
    /// looked for in $SAPIENS_CHECKPOINT_ROOT, the project's cache and the hub's cache.
    #[arg(long, value_name = "PATH")]
    weights: Option<PathBuf>,

    /// Weights made up from a seed instead of a file: to try speed and memory. Their labels mean nothing.
    #[arg(long, value_name = "SEED", conflicts_with = "weights")]
    generated_weights: Option<u64>,

    /// Accept the weights' licence, as SAPIENS_NONCOMMERCIAL=1 (first family) or SAPIENS2_LICENSE_ACCEPTED=1 do.
    #[arg(long)]
    accept_license: bool,

    /// The size images are brought to: card (the model's own), native, or width=W,height=H in multiples of 16.
    #[arg(long, value_name = "SIZE", default_value = "card")]
    input_size: String,

    /// Whose code runs: auto, portable or kernels.
    #[arg(long, value_name = "NAME", default_value = "auto")]
    backend: String,

    /// Where: auto, cpu, cuda or cuda:N.
    #[arg(long, value_name = "NAME", default_value = "auto")]
    device: String,

    /// In which type: auto, f32, bf16 or f16.
    #[arg(long, value_name = "NAME", default_value = "auto")]
    precision: String,

    /// Processor threads; 0 for all.
    #[arg(long, value_name = "N", default_value_t = 0)]
    threads: usize,
}

/// Reads a variant's name; completions and messages know the list.
pub(crate) fn variant() -> impl TypedValueParser<Value = Variant> {
    PossibleValuesParser::new(Variant::all().map(Variant::nick)).try_map(|name| name.parse::<Variant>())
}

/// The card at `path`, or else the published model's.
pub(crate) fn card(path: Option<&Path>, variant: Variant) -> Result<ModelCard> {
    path.map_or_else(|| Ok(ModelCard::of(variant)), ModelCard::load)
}

impl ModelArguments {
    /// The model's card.
    pub(crate) fn card(&self) -> Result<ModelCard> {
        card(self.card.as_deref(), self.variant)
    }

    /// The model, ready to run.
    pub(crate) fn segmenter(&self, card: ModelCard, keep_logits: bool) -> Result<Segmenter> {
        let options = Options { keep_logits, ..self.options()? };
        let weights = self.weights(&card)?;
        Segmenter::new(card, &weights, options)
    }

    /// How the model is to run. What costs nothing to check comes before gigabytes are read.
    pub(crate) fn options(&self) -> Result<Options> {
        let backend = BackendRequest {
            mode: Mode::from_name_or_auto(&self.backend)?,
            device: self.device.parse::<DeviceRequest>()?,
            precision: Precision::from_name_or_auto(&self.precision)?,
        };
        backend.resolve()?;
        let input_size = self.input_size.parse::<InputSize>()?;
        Ok(Options { backend, input_size, threads: self.threads, ..Options::default() })
    }

    /// The weights: the user's, those found, or generated ones.
    pub(crate) fn weights(&self, card: &ModelCard) -> Result<Weights> {
        match self.generated_weights {
            Some(seed) => Ok(Weights::generated(card, seed)),
            None => Weights::locate_and_open(card, self.weights.as_deref(), self.accept_license),
        }
    }

    /// Whether the user said where weights are to come from.
    pub(crate) fn names_weights(&self) -> bool {
        self.weights.is_some() || self.generated_weights.is_some()
    }
}
