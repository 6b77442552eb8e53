//! A model as the programs' arguments name it: loaded once, and as the properties of elements that share it.

use gst::prelude::*;
use sapiens_cli::ModelArguments;
use sapiens_model::{InputSize, Options, Result, Segmenter, Weights};

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

impl Model {
    /// Opens the weights and loads the network.
    ///
    /// # Errors
    /// If an argument can't be had, or the weights are missing or no good.
    pub fn load(arguments: &ModelArguments) -> Result<Self> {
        // What costs nothing to check comes before gigabytes are read.
        let card = arguments.card()?;
        let options = Options { slots: 1, ..arguments.options()? };
        let input_size = options.input_size.check()?;
        let weights = arguments.weights(&card)?;
        let segmenter = Segmenter::new(card, &weights, options)?;
        Ok(Self { segmenter, weights, input_size })
    }
}

/// An element that runs the model.
///
/// # Errors
/// If there is no such element, or a path can't be a property.
pub fn labeller(arguments: &ModelArguments) -> std::result::Result<gst::Element, String> {
    let element = crate::element("sapiensseg")?;
    match &arguments.card {
        Some(card) => element.set_property("card", text(card)?),
        None => element.set_property_from_str("variant", arguments.variant.nick()),
    }
    if let Some(weights) = &arguments.weights {
        element.set_property("weights", text(weights)?);
    }
    element.set_property("license-accepted", arguments.accept_license);
    element.set_property("input-size", &arguments.input_size);
    element.set_property_from_str("backend", &arguments.backend);
    element.set_property("device", &arguments.device);
    element.set_property_from_str("precision", &arguments.precision);
    element.set_property("threads", u32::try_from(arguments.threads).unwrap_or(u32::MAX));
    Ok(element)
}

/// Properties are text.
fn text(path: &std::path::Path) -> std::result::Result<&str, String> {
    path.to_str().ok_or_else(|| format!("{}: expected a path in UTF-8", path.display()))
}
