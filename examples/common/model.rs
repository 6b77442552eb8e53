//! Which model and how it runs: the arguments of `sapiens segment`, as properties of the element.

use std::path::PathBuf;

use clap::Args;
use gst::prelude::*;
use sapiens_model::{
    BackendRequest, DeviceRequest, InputSize, Mode, ModelCard, Options, Precision, Result, Segmenter,
    Variant, Weights,
};

/// The arguments.
#[derive(Args, Debug, Clone)]
#[command(next_help_heading = "Model")]
pub struct ModelArguments {
    /// The published model: 0.3b, 0.6b, 1b, 2b, sapiens2-0.4b, sapiens2-0.8b, sapiens2-1b or sapiens2-5b.
    #[arg(long, value_name = "NAME", default_value = "0.3b", conflicts_with = "card")]
    variant: String,

    /// A card of your own (TOML), for a model with other sizes or classes.
    #[arg(long, value_name = "FILE")]
    card: Option<PathBuf>,

    /// The weights: a TorchScript archive, a state dict, safetensors, or a folder with them. Without this they are
    /// looked for in $SAPIENS_CHECKPOINT_ROOT, the project's cache and the hub's cache.
    #[arg(long, value_name = "PATH")]
    weights: Option<PathBuf>,

    /// Accept the weights' licence, as SAPIENS_NONCOMMERCIAL=1 (first family) or SAPIENS2_LICENSE_ACCEPTED=1 do.
    #[arg(long)]
    accept_license: bool,

    /// The size frames are brought to: card (the model's own), native, or width=W,height=H in multiples of 16.
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
    threads: u32,
}

/// A model that has been loaded. The elements of this process share its network for as long as it lives.
#[derive(Debug)]
pub struct Model {
    /// Holds the network between one element and the next.
    pub segmenter: Segmenter,
    /// What it was made from.
    pub weights: Weights,
    /// The size frames are brought to.
    pub input_size: InputSize,
}

impl ModelArguments {
    /// The card's file, if it isn't a published model.
    pub fn card_file(&self) -> Option<&PathBuf> {
        self.card.as_ref()
    }

    /// The model's card.
    ///
    /// # Errors
    /// If there is no such model, or the file is no card.
    pub fn card(&self) -> Result<ModelCard> {
        match &self.card {
            Some(path) => ModelCard::load(path),
            None => Ok(ModelCard::of(self.variant.parse::<Variant>()?)),
        }
    }

    /// Opens the weights and loads the network.
    ///
    /// # Errors
    /// If an argument can't be had, or the weights are missing or no good.
    pub fn load(&self) -> Result<Model> {
        // What costs nothing to check comes before gigabytes are read.
        let card = self.card()?;
        let backend = BackendRequest {
            mode: Mode::from_name_or_auto(&self.backend)?,
            device: self.device.parse::<DeviceRequest>()?,
            precision: Precision::from_name_or_auto(&self.precision)?,
        };
        backend.resolve()?;
        let input_size = self.input_size.parse::<InputSize>()?.check()?;
        let weights = Weights::locate_and_open(&card, self.weights.as_deref(), self.accept_license)?;
        let options =
            Options { backend, input_size, slots: 1, threads: self.threads as usize, keep_logits: false };
        let segmenter = Segmenter::new(card, &weights, options)?;
        Ok(Model { segmenter, weights, input_size })
    }

    /// An element that runs this model.
    ///
    /// # Errors
    /// If the arguments aren't ones that [`ModelArguments::load`] takes.
    pub fn element(&self) -> std::result::Result<gst::Element, String> {
        let element = crate::element("sapiensseg")?;
        match &self.card {
            Some(card) => element.set_property("card", text(card)?),
            None => element.set_property_from_str("variant", &self.variant),
        }
        if let Some(weights) = &self.weights {
            element.set_property("weights", text(weights)?);
        }
        element.set_property("license-accepted", self.accept_license);
        element.set_property("input-size", &self.input_size);
        element.set_property_from_str("backend", &self.backend);
        element.set_property("device", &self.device);
        element.set_property_from_str("precision", &self.precision);
        element.set_property("threads", self.threads);
        Ok(element)
    }
}

/// Properties are text.
fn text(path: &std::path::Path) -> std::result::Result<&str, String> {
    path.to_str().ok_or_else(|| format!("{}: expected a path in UTF-8", path.display()))
}
