//! Whether a published file is what was published, by its SHA-256. Hashing takes seconds for gigabytes, so
//! the digest is remembered, with what tells whether the file has changed since.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::card::ModelCard;
use crate::error::{ErrorKind, Result, SegmentError};

use super::environment::Environment;
use super::files::Checkpoint;
use super::map::{FileIdentity, Map};

/// Hashed at a time: the file stays a memory map and is never whole in memory.
const CHUNK: usize = 16 << 20;
/// A record is about 200 bytes.
const MAX_RECORD: u64 = 1 << 16;

/// A digest and the state of the file that it is of.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    size: u64,
    modified_ns: i64,
    inode: u64,
    sha256: String,
}

/// The digest of a file under its published name, if one to hold it against is known.
///
/// # Errors
/// `HashMismatch` if the file is not the published one.
pub(super) fn published_hash(
    checkpoint: &Checkpoint,
    card: &ModelCard,
    environment: &Environment,
) -> Result<Option<String>> {
    let ([map], Some(weights)) = (checkpoint.files.as_slice(), card.weights.as_ref()) else {
        return Ok(None);
    };
    // A fine-tuned model under a name of its own has a hash of its own.
    let name = map.path().file_name().and_then(|name| name.to_str());
    if name.is_none() || name != weights.file.as_deref() {
        return Ok(None);
    }
    let Some(expected) = weights.sha256.clone().or_else(|| hub_digest(&map.identity().path)) else {
        return Ok(None);
    };
    let found = digest(map, environment)?;
    if found.starts_with(&expected) {
        return Ok(Some(found));
    }
    Err(SegmentError::new(
        ErrorKind::HashMismatch,
        format!(
            "{}: expected the SHA-256 of the published file, {expected}{}, found {found}: a damaged or altered download; if it is a model of your own, give it another name",
            map.path().display(),
            if expected.len() < 64 { "..." } else { "" }
        ),
    ))
}

/// The SHA-256 of bytes that are in memory, in lower-case hex.
pub(super) fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// The hub's cache names a large file by the SHA-256 that the hub answered.
fn hub_digest(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_str()?;
    let in_blobs = path.parent()?.file_name()? == "blobs";
    let hex = name.len() == 64 && name.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    (in_blobs && hex).then(|| name.to_owned())
}

/// The digest of a file: the one on record, else a new one, which is put on record.
pub(super) fn digest(map: &Map, environment: &Environment) -> Result<String> {
    let places = record_places(map.path(), map.identity(), environment);
    if let Some(known) = places.iter().find_map(|place| recall(place, map.identity())) {
        return Ok(known);
    }
    log::info!("checking the SHA-256 of {}", map.path().display());
    let mut hasher = Sha256::new();
    let mut start = 0;
    while start < map.len() {
        let end = map.len().min(start + CHUNK);
        hasher.update(
            map.bytes(start..end).map_err(|what| SegmentError::new(ErrorKind::InvalidWeights, what))?,
        );
        start = end;
    }
    let sha256 = hex(&hasher.finalize());
    record(map.path(), map.identity(), &sha256, environment);
    Ok(sha256)
}

/// Puts a digest on record; a failure is logged, for it costs time only.
pub(super) fn record(path: &Path, identity: &FileIdentity, sha256: &str, environment: &Environment) {
    let FileIdentity { size, modified_ns, inode, .. } = *identity;
    let record = Record { size, modified_ns, inode, sha256: sha256.to_owned() };
    let mut failures = Vec::new();
    for place in record_places(path, identity, environment) {
        match remember(&place, &record) {
            Ok(()) => return,
            Err(error) => failures.push(format!("{}: {error}", place.display())),
        }
    }
    log::warn!(
        "the SHA-256 of {} could not be recorded and will be computed again ({})",
        path.display(),
        failures.join("; ")
    );
}

/// Beside the file; failing that (and for the hub's cache, whose folders are not ours to write in) in the
/// project's cache.
fn record_places(path: &Path, identity: &FileIdentity, environment: &Environment) -> Vec<PathBuf> {
    let mut places = Vec::new();
    if !path.is_symlink() {
        let mut name = path.as_os_str().to_owned();
        name.push(".sha256.json");
        places.push(PathBuf::from(name));
    }
    if let Some(cache) = environment.project_cache() {
        let path = hex(&Sha256::digest(identity.path.as_os_str().as_encoded_bytes()));
        places.push(cache.join("verified").join(format!("{}.json", &path[..32])));
    }
    places
}

/// The digest on record, if the record can be read and is of the file as it is now.
fn recall(place: &Path, file: &FileIdentity) -> Option<String> {
    let metadata = std::fs::metadata(place).ok()?;
    if !metadata.is_file() || metadata.len() > MAX_RECORD {
        return None;
    }
    let record: Record = serde_json::from_slice(&std::fs::read(place).ok()?).ok()?;
    let same =
        record.size == file.size && record.modified_ns == file.modified_ns && record.inode == file.inode;
    (same && record.sha256.len() == 64).then_some(record.sha256)
}

/// Under another name first, so that nobody ever reads half a record.
fn remember(place: &Path, record: &Record) -> std::io::Result<()> {
    let folder = place.parent().unwrap_or(Path::new("."));
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    std::fs::create_dir_all(folder)?;
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    serde_json::to_writer(&mut file, record)?;
    file.write_all(b"\n")?;
    file.persist(place)?;
    Ok(())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        // Writing to a string can't fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
#[path = "verify_tests.rs"]
mod tests;
