//! Where weights are looked for. Finds a path and refuses to know what is in it.

use std::path::{Path, PathBuf};

use crate::card::{ModelCard, PublishedWeights};
use crate::error::{ErrorKind, Result, SegmentError};

use super::environment::{CHECKPOINT_ROOT, Environment, HUB_CACHE, HUB_HOME};
use super::license;

/// The user's path if there is one, else the first place that has the card's published file.
pub(super) fn locate(
    card: &ModelCard,
    given: Option<&Path>,
    license_accepted: bool,
    environment: &Environment,
) -> Result<PathBuf> {
    let demand = || license::demand(card, license_accepted, environment);
    if let Some(path) = given {
        return if path.exists() {
            Ok(path.to_owned())
        } else {
            let mut message = format!("weights {}: no such file or folder", path.display());
            if let Some(demand) = demand() {
                message.push_str(&format!("\nbesides, {demand}"));
            }
            Err(not_found(message))
        };
    }
    let published = card.weights.as_ref();
    let Some((weights, file)) = published.and_then(|weights| Some((weights, weights.file.as_deref()?)))
    else {
        return Err(not_found(format!(
            "no weights are known to be published for {}: say where they are with weights=<file or folder>; variant=demo needs none",
            card.name()
        )));
    };
    let mut looked = Vec::new();
    for candidate in candidates(weights, file, environment) {
        match candidate.look(file) {
            Ok(path) => return Ok(path),
            Err(place) => looked.push(place),
        }
    }
    let mut message =
        format!("no weights for {}: looked for {file} in\n  {}\n", card.name(), looked.join("\n  "));
    if let Some(repository) = &weights.repository {
        message.push_str("get them ");
        // A card of the user's own has no name that the command knows.
        if let Some(variant) = card.variant {
            message.push_str(&format!("with `sapiens fetch {}` or ", variant.nick()));
        }
        message.push_str(&format!("from https://huggingface.co/{repository}/resolve/main/{file}, "));
    }
    message.push_str("or say where they are with weights=<file or folder>; variant=demo needs none\n");
    match demand() {
        Some(demand) => message.push_str(&format!("besides, {demand}")),
        None => message.push_str(&format!("their licence: {}", weights.license)),
    }
    Err(not_found(message))
}

/// The first place that has the card's published file.
pub(super) fn find(card: &ModelCard, environment: &Environment) -> Option<PathBuf> {
    let weights = card.weights.as_ref()?;
    let file = weights.file.as_deref()?;
    candidates(weights, file, environment).into_iter().find_map(|candidate| candidate.look(file).ok())
}

enum Candidate {
    File(PathBuf),
    /// A repository's folder in a cache of the hub.
    Hub(PathBuf),
    /// Somewhere that isn't known, for this variable is not set.
    Unset(&'static str),
}

impl Candidate {
    /// The file, or the place that doesn't have it, in words.
    fn look(self, file: &str) -> std::result::Result<PathBuf, String> {
        match self {
            Candidate::File(path) if path.is_file() => Ok(path),
            Candidate::File(path) => Err(path.display().to_string()),
            Candidate::Hub(folder) => in_hub_cache(&folder, file)
                .ok_or_else(|| folder.join("snapshots/*").join(file).display().to_string()),
            Candidate::Unset(variable) => Err(format!("${variable} (not set)")),
        }
    }
}

fn candidates(weights: &PublishedWeights, file: &str, environment: &Environment) -> Vec<Candidate> {
    let mut list = Vec::new();
    match environment.path(CHECKPOINT_ROOT) {
        Some(root) => {
            let folders = weights.checkpoint_folders.iter();
            list.extend(folders.map(|folder| Candidate::File(root.join(folder).join(file))));
        }
        None => list.push(Candidate::Unset(CHECKPOINT_ROOT)),
    }
    list.extend(environment.project_cache().map(|cache| Candidate::File(cache.join(file))));
    if let Some(repository) = &weights.repository {
        let folder = format!("models--{}", repository.replace('/', "--"));
        let hubs = [
            environment.path(HUB_CACHE),
            environment.path(HUB_HOME).map(|home| home.join("hub")),
            environment.user_cache().map(|cache| cache.join("huggingface/hub")),
        ];
        let mut seen: Vec<PathBuf> = Vec::new();
        for hub in hubs.into_iter().flatten() {
            if !seen.contains(&hub) {
                list.push(Candidate::Hub(hub.join(&folder)));
                seen.push(hub);
            }
        }
    }
    list
}

/// The file in the revision that `main` is, else in the one fetched last.
fn in_hub_cache(folder: &Path, file: &str) -> Option<PathBuf> {
    let snapshots = folder.join("snapshots");
    if let Ok(revision) = std::fs::read_to_string(folder.join("refs/main")) {
        let revision = revision.trim();
        let path = snapshots.join(revision).join(file);
        // A revision is a hash: anything with a slash in it was not written by the hub.
        if revision.bytes().all(|byte| byte.is_ascii_alphanumeric()) && path.is_file() {
            return Some(path);
        }
    }
    let revisions = std::fs::read_dir(snapshots).ok()?;
    let found = revisions.filter_map(|revision| {
        let revision = revision.ok()?;
        let path = revision.path().join(file);
        path.is_file().then(|| (revision.metadata().and_then(|m| m.modified()).ok(), path))
    });
    found.max().map(|(_, path)| path)
}

fn not_found(message: String) -> SegmentError {
    SegmentError::new(ErrorKind::WeightsNotFound, message)
}

#[cfg(test)]
#[path = "locate_tests.rs"]
mod tests;
