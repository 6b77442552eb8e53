//! From a path, file or folder, to one checkpoint's tensors. Picks the file and the reader; knows no names.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::card::ModelCard;
use crate::error::{ErrorKind, Result, SegmentError};

use super::format::{Format, sniff};
use super::map::Map;
use super::tensor::{Element, StoredTensor};
use super::{invalid, safetensors, shards, torch_zip};

/// Tensors by name.
pub(super) type Tensors = BTreeMap<String, StoredTensor>;

/// What was read, before and after it is held against a card.
#[derive(Debug)]
pub(super) struct Checkpoint {
    /// The file, or the index of shards.
    pub path: PathBuf,
    /// In words.
    pub format: &'static str,
    pub tensors: Tensors,
    /// The files that hold the tensors.
    pub files: Vec<Arc<Map>>,
}

impl Checkpoint {
    /// The types of the tensors' values.
    pub fn elements(&self) -> BTreeSet<&Element> {
        self.tensors.values().map(StoredTensor::element).collect()
    }
}

/// What transformers writes, then what the authors and torch's users call their files.
const NAMES: [&str; 2] = ["model.safetensors", "model.safetensors.index.json"];
const ENDINGS: [&str; 6] = [".index.json", ".safetensors", ".pt2", ".pth", ".pt", ".bin"];

/// Reads the checkpoint at `path`; in a folder, the one that is there.
pub(super) fn read(path: &Path, card: &ModelCard) -> Result<Checkpoint> {
    let metadata = std::fs::metadata(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => SegmentError::new(
            ErrorKind::WeightsNotFound,
            format!("{}: no such file or folder", path.display()),
        ),
        _ => SegmentError::io("open", path, error),
    })?;
    if metadata.is_dir() { read_file(&file_in(path, card)?) } else { read_file(path) }
}

/// Reads one file, and the shards beside it if it is an index.
pub(super) fn read_file(path: &Path) -> Result<Checkpoint> {
    read_map(Map::open(path)?)
}

/// Reads a file, or what is built in as one.
pub(super) fn read_map(map: Map) -> Result<Checkpoint> {
    let map = Arc::new(map);
    let path = map.path();
    let (format, tensors) = match sniff(&map).map_err(|what| invalid(path, what))? {
        Format::Json => return shards::read(&map),
        Format::Safetensors => ("safetensors", safetensors::read(&map)?),
        Format::Zip => torch_zip::read(&map)?,
    };
    Ok(Checkpoint { path: path.to_owned(), format, tensors, files: vec![map.clone()] })
}

fn file_in(folder: &Path, card: &ModelCard) -> Result<PathBuf> {
    let published = card.weights.as_ref().and_then(|weights| weights.file.as_deref());
    let names: Vec<&str> = published.into_iter().chain(NAMES).collect();
    if let Some(found) = names.iter().map(|name| folder.join(name)).find(|path| path.is_file()) {
        return Ok(found);
    }
    let entries = std::fs::read_dir(folder).map_err(|error| SegmentError::io("list", folder, error))?;
    let present: BTreeSet<String> =
        entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    for ending in ENDINGS {
        // Shards end like whole checkpoints, so an index is looked for before either.
        let matching: Vec<_> = present.iter().filter(|name| name.ends_with(ending)).collect();
        match matching.as_slice() {
            [] => {}
            [one] => return Ok(folder.join(one)),
            [_, _, ..] => {
                let list: Vec<_> = matching.iter().take(8).map(|name| name.as_str()).collect();
                return Err(SegmentError::new(
                    ErrorKind::WeightsNotFound,
                    format!(
                        "{}: a folder with {} files that end in {ending}: name the one to use ({})",
                        folder.display(),
                        matching.len(),
                        list.join(", ")
                    ),
                ));
            }
        }
    }
    Err(SegmentError::new(
        ErrorKind::WeightsNotFound,
        format!(
            "{}: a folder without weights: looked for {} and for any file that ends in {}",
            folder.display(),
            names.join(", "),
            ENDINGS.join(", ")
        ),
    ))
}
