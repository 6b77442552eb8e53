//! The training's whole state in one file, written so that a crash leaves the old or the new one.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, TensorView};
use serde::{Deserialize, Serialize};

use crate::optimizer::State;
use crate::recipe::Recipe;
use crate::schedule::Budget;

/// What continues a training beside its numbers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Position {
    /// Steps taken.
    pub step: u64,
    /// Time they took.
    pub trained: Duration,
    /// When it ends.
    pub budget: Budget,
    /// How it is done.
    pub recipe: Recipe,
}

/// The one entry of the file's text.
const KEY: &str = "position";

/// Writes `bytes` to `path`, whole or not at all.
///
/// # Errors
/// Whatever the file system reports.
pub fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file = tempfile::Builder::new()
        .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o644))
        .tempfile_in(folder)?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    File::open(folder)?.sync_all()
}

/// Writes a checkpoint.
///
/// # Errors
/// Whatever the file system reports.
pub fn save(path: &Path, state: &State, position: &Position) -> io::Result<()> {
    let State { step: _, values, first, second, mean } = state;
    let tensors = [("values", values), ("first", first), ("second", second), ("mean", mean)];
    let bytes: Vec<Vec<u8>> =
        tensors.iter().map(|(_, x)| x.iter().flat_map(|x| x.to_le_bytes()).collect()).collect();
    let views = tensors
        .iter()
        .zip(&bytes)
        .map(|((name, x), bytes)| Ok((*name, TensorView::new(Dtype::F32, vec![x.len()], bytes)?)))
        .collect::<Result<Vec<_>, safetensors::SafeTensorError>>()
        .map_err(io::Error::other)?;
    let text = HashMap::from([(KEY.to_owned(), serde_json::to_string(position)?)]);
    write_whole(path, &safetensors::serialize(views, Some(text)).map_err(io::Error::other)?)
}

/// Reads a checkpoint of a network with `count` values.
///
/// # Errors
/// If it can't be read, is no checkpoint, or is another network's.
pub fn load(path: &Path, count: usize) -> io::Result<(State, Position)> {
    let invalid =
        |what: String| io::Error::new(io::ErrorKind::InvalidData, format!("{}: {what}", path.display()));
    let bytes = std::fs::read(path)
        .map_err(|error| io::Error::new(error.kind(), format!("read {}: {error}", path.display())))?;
    let (_, text) = SafeTensors::read_metadata(&bytes).map_err(|error| invalid(error.to_string()))?;
    let position = text.metadata().as_ref().and_then(|text| text.get(KEY));
    let position: Position =
        serde_json::from_str(position.ok_or_else(|| invalid(format!("no checkpoint: has no {KEY}")))?)?;
    let tensors = SafeTensors::deserialize(&bytes).map_err(|error| invalid(error.to_string()))?;
    let tensor = |name: &str| {
        let tensor = tensors.tensor(name).map_err(|error| invalid(error.to_string()))?;
        if tensor.dtype() != Dtype::F32 || tensor.shape() != [count] {
            let found = format!("{:?} {:?}", tensor.dtype(), tensor.shape());
            return Err(invalid(format!("{name}: expected F32 [{count}], found {found}")));
        }
        let value = |b: &[u8]| f32::from_le_bytes([b[0], b[1], b[2], b[3]]);
        Ok(tensor.data().chunks_exact(4).map(value).collect::<Vec<_>>())
    };
    let state = State {
        step: position.step,
        values: tensor("values")?,
        first: tensor("first")?,
        second: tensor("second")?,
        mean: tensor("mean")?,
    };
    Ok((state, position))
}
