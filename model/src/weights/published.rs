//! For programs that fetch published files: where a card's file goes, and a digest worked out on the way.
//! Downloads nothing itself.

use std::path::{Path, PathBuf};

use crate::card::ModelCard;
use crate::error::Result;

use super::environment::Environment;
use super::map::{FileIdentity, Map};
use super::verify;

/// Where the card's published file is looked for in the project's cache; nothing if no file is published or
/// neither `$XDG_CACHE_HOME` nor `$HOME` is set.
pub fn cache_path(card: &ModelCard) -> Option<PathBuf> {
    let file = card.weights.as_ref()?.file.as_deref()?;
    Some(Environment::of_process().project_cache()?.join(file))
}

/// The SHA-256 of the file at `path` in lower-case hex: the one on record if the file is still as it was
/// then, else worked out and put on record.
///
/// # Errors
/// `Io`, and `InvalidWeights` for what is no regular file or has nothing in it.
pub fn file_sha256(path: &Path) -> Result<String> {
    verify::digest(&Map::open(path)?, &Environment::of_process())
}

/// Puts on record that the file at `path` has this SHA-256, so that [`Weights::open`](super::Weights::open)
/// doesn't read gigabytes again. The caller has read every byte of it. What can't be recorded is logged.
///
/// # Errors
/// `Io` if the file can't be looked at.
pub fn record_sha256(path: &Path, sha256: &str) -> Result<()> {
    verify::record(path, &FileIdentity::of(path)?, sha256, &Environment::of_process());
    Ok(())
}
