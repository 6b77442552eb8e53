//! safetensors files: the crate of that name reads the header, this says what is wrong with a bad one.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use ::safetensors::tensor::{Dtype, Metadata, TensorInfo};
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};

use crate::error::Result;

use super::files::Tensors;
use super::invalid;
use super::map::Map;
use super::tensor::{Element, Storage, StoredTensor, row_major};

/// Bytes of the header's length, in front of it.
const LENGTH: usize = 8;
/// The format's own limit.
pub(super) const MAX_HEADER: u64 = 100_000_000;

/// Reads the tensors' places out of the file's header.
pub(super) fn read(map: &Arc<Map>) -> Result<Tensors> {
    read_tensors(map).map_err(|what| invalid(map.path(), what))
}

fn read_tensors(map: &Arc<Map>) -> std::result::Result<Tensors, String> {
    let header = header(map)?;
    let damaged = |error: &dyn fmt::Display| format!("damaged safetensors header: {error}");
    let Header(mut infos) = serde_json::from_slice(header).map_err(|error| damaged(&error))?;
    infos.sort_by_key(|(_, info)| info.data_offsets);
    // Holds shapes, types and offsets against each other; what is left is the file's length.
    let metadata = Metadata::new(None, infos).map_err(|error| damaged(&error))?;
    let (data_start, found) = (LENGTH + header.len(), map.len());
    let expected = (data_start as u64).saturating_add(metadata.data_len() as u64);
    if (found as u64) < expected {
        return Err(format!(
            "truncated safetensors file: expected {expected} bytes, found {found}: most likely a download that stopped early"
        ));
    }
    if (found as u64) > expected {
        return Err(format!(
            "safetensors file with {} bytes after its last tensor: expected {expected} bytes, found {found}",
            found as u64 - expected
        ));
    }
    let mut tensors = Tensors::new();
    for (name, info) in metadata.tensors() {
        let (start, end) = info.data_offsets;
        let (element, size) = match info.dtype {
            Dtype::F32 => (Element::F32, 4),
            Dtype::F16 => (Element::F16, 2),
            Dtype::BF16 => (Element::Bf16, 2),
            other => (Element::Other(other.to_string()), 1),
        };
        let storage = Storage::Mapped { map: map.clone(), start: data_start + start, len: end - start };
        // The crate has held shape, type and length against each other; one that is not read needs no more.
        let count = if element.is_float() { (end - start) / size } else { usize::MAX };
        let strides = row_major(&info.shape);
        let tensor = StoredTensor::new(element, info.shape.clone(), strides, 0, count, storage)
            .map_err(|what| format!("tensor {name}: {what}"))?;
        tensors.insert(name, tensor);
    }
    Ok(tensors)
}

fn header(map: &Map) -> std::result::Result<&[u8], String> {
    let size = map.len();
    let truncated = |expected: u64| {
        format!("truncated safetensors file: expected {expected} bytes or more, found {size}")
    };
    let (length, rest) = map.split_first_chunk::<LENGTH>().ok_or_else(|| truncated(LENGTH as u64))?;
    let length = u64::from_le_bytes(*length);
    if length > MAX_HEADER {
        return Err(format!("safetensors header of {length} bytes: expected at most {MAX_HEADER}"));
    }
    rest.get(..length as usize).ok_or_else(|| truncated(LENGTH as u64 + length))
}

/// The tensors in the header's order. JSON parsers keep the last of two equal keys, so that two readers could
/// see two different files; this one refuses.
struct Header(Vec<(String, TensorInfo)>);

impl<'de> Deserialize<'de> for Header {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        deserializer.deserialize_map(UniqueKeys)
    }
}

struct UniqueKeys;

impl<'de> Visitor<'de> for UniqueKeys {
    type Value = Header;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a table of tensors")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<Header, A::Error> {
        let mut seen = BTreeSet::new();
        let mut infos = Vec::new();
        while let Some(key) = map.next_key::<String>()? {
            if !seen.insert(key.clone()) {
                return Err(serde::de::Error::custom(format!("{key} is there twice")));
            }
            if key == "__metadata__" {
                map.next_value::<IgnoredAny>()?;
            } else {
                infos.push((key, map.next_value()?));
            }
        }
        Ok(Header(infos))
    }
}
