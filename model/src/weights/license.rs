//! Whether the terms that weights come under were accepted. Knows cards, no files.

use crate::card::{License, ModelCard};
use crate::error::{ErrorKind, Result, SegmentError};

use super::environment::Environment;

/// An error unless the card's licence needs no acceptance or has it.
pub(super) fn gate(card: &ModelCard, accepted: bool, environment: &Environment) -> Result<()> {
    match demand(card, accepted, environment) {
        None => Ok(()),
        Some(demand) => Err(SegmentError::new(ErrorKind::LicenseNotAccepted, demand)),
    }
}

/// What is still to be accepted, in words.
pub(super) fn demand(card: &ModelCard, accepted: bool, environment: &Environment) -> Option<String> {
    let weights = card.weights.as_ref()?;
    let variable = weights.license.acceptance_variable()?;
    let set = environment.get(variable).is_some_and(|value| value == "1");
    if accepted || set {
        return None;
    }
    let implies = match weights.license {
        License::CcByNc40 => "which allows no commercial use",
        License::Sapiens2 => "which has terms of its own, a list of excluded uses among them",
        License::Other(_) => "which must be accepted",
    };
    let place = weights
        .repository
        .as_ref()
        .map_or_else(String::new, |name| format!(" (https://huggingface.co/{name})"));
    Some(format!(
        "the weights of {} come under the {}, {implies}{place}: if you accept it, set {variable}=1 in the environment, license-accepted=true on the element, or --accept-license on the command line",
        card.name(),
        weights.license,
    ))
}
