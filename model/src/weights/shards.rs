//! A checkpoint in several files, by its `*.index.json`: `weight_map` says which file has which tensor.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Component, Path};

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};

use crate::error::{ErrorKind, Result, SegmentError};

use super::files::{Checkpoint, Tensors, read_file};
use super::invalid;
use super::map::Map;

/// The largest published index has about 100 KB.
const MAX_INDEX: usize = 16 << 20;

#[derive(Deserialize)]
struct Index {
    weight_map: WeightMap,
}

/// Tensor to shard, no tensor twice.
struct WeightMap(BTreeMap<String, String>);

/// Reads the index in `map` and the shards beside it.
pub(super) fn read(map: &Map) -> Result<Checkpoint> {
    let path = map.path();
    if map.len() > MAX_INDEX {
        return Err(invalid(path, format!("an index of {} bytes: expected at most {MAX_INDEX}", map.len())));
    }
    let Index { weight_map: WeightMap(wanted) } = serde_json::from_slice(map).map_err(|error| {
        invalid(
            path,
            format!("a JSON file that is no index of shards: expected a \"weight_map\" of tensors to files ({error})"),
        )
    })?;
    let names: BTreeSet<&String> = wanted.values().collect();
    for name in &names {
        let mut components = Path::new(name).components();
        let plain =
            components.clone().next().is_some() && components.all(|c| matches!(c, Component::Normal(_)));
        if !plain || name.contains('\\') {
            return Err(invalid(path, format!("shard {name:?} is outside its folder: expected a file name")));
        }
    }
    let folder = path.parent().unwrap_or(Path::new(""));
    let missing: Vec<_> =
        names.iter().filter(|name| !folder.join(name).exists()).map(|name| name.as_str()).collect();
    if !missing.is_empty() {
        return Err(SegmentError::new(
            ErrorKind::WeightsNotFound,
            format!(
                "{}: {} of its {} shards are missing beside it: {}",
                path.display(),
                missing.len(),
                names.len(),
                missing.join(", ")
            ),
        ));
    }

    let mut all = Tensors::new();
    let mut files = Vec::new();
    for &name in &names {
        let shard_path = folder.join(name);
        let shard = read_file(&shard_path)?;
        if shard.files.len() != 1 {
            return Err(invalid(path, format!("shard {name:?} is itself an index")));
        }
        let absent: Vec<_> = wanted
            .iter()
            .filter(|(tensor, shard_name)| *shard_name == name && !shard.tensors.contains_key(*tensor))
            .map(|(tensor, _)| tensor.as_str())
            .collect();
        if let Some(first) = absent.first() {
            return Err(invalid(
                path,
                format!(
                    "shard {name} lacks {} of the tensors that the index says it has: {first}, ...",
                    absent.len()
                ),
            ));
        }
        for (tensor, stored) in shard.tensors {
            if wanted.get(&tensor) != Some(name) {
                return Err(invalid(
                    path,
                    format!("shard {name} has tensor {tensor}, which the index doesn't list for it"),
                ));
            }
            all.insert(tensor, stored);
        }
        files.extend(shard.files);
    }
    Ok(Checkpoint { path: path.to_owned(), format: "shards", tensors: all, files })
}

impl<'de> Deserialize<'de> for WeightMap {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct Pairs;

        impl<'de> Visitor<'de> for Pairs {
            type Value = WeightMap;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a table of tensors to files")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<WeightMap, A::Error> {
                let mut pairs = BTreeMap::new();
                while let Some((tensor, shard)) = map.next_entry::<String, String>()? {
                    if let Some(_first) = pairs.insert(tensor.clone(), shard) {
                        return Err(serde::de::Error::custom(format!("{tensor} is there twice")));
                    }
                }
                Ok(WeightMap(pairs))
            }
        }

        deserializer.deserialize_map(Pairs)
    }
}
