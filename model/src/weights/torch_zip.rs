//! torch's zip archives, from `torch.jit.save` and `torch.save` alike: finds the pickle and where each
//! storage lies. The zip crate reads the zip; stored entries are used where they are in the memory map.

use std::collections::HashMap;
use std::io::{Cursor, Read};
use std::path::Path;
use std::sync::Arc;

use zip::read::ZipReadOptions;
use zip::{CompressionMethod, ZipArchive};

use crate::card::ModelCard;
use crate::error::Result;

use super::files::{Checkpoint, Tensors};
use super::map::Map;
use super::pickle::Pickle;
use super::state::{self, Kind, Record};
use super::tensor::{Element, Storage, StoredTensor};
use super::{expected_tensors, invalid};

/// The largest Sapiens has about 400 KB. The objects take up to 20 times the pickle's length.
const MAX_PICKLE: u64 = 16 << 20;
/// Every entry has a few hundred bytes of bookkeeping; torch writes one per tensor and per source file.
const MAX_ENTRIES: usize = 1 << 17;

/// The record that ends a zip archive; only a comment of at most 65535 bytes can follow its 22.
const END_RECORD: &[u8] = b"PK\x05\x06";
const END_RECORD_REACH: usize = 22 + 65_535;

type Archive<'a> = ZipArchive<Cursor<&'a [u8]>>;

/// Reads the tensors' places out of the archive.
pub(super) fn read(map: &Arc<Map>) -> Result<(&'static str, Tensors)> {
    let path = map.path();
    let mut archive = open(map, path)?;
    let names: Vec<String> =
        archive.file_names_raw().map(|name| String::from_utf8_lossy(name).into_owned()).collect();
    let top = find_top(&names).map_err(|what| invalid(path, what))?;
    check_byte_order(&mut archive, &top).map_err(|what| invalid(path, what))?;
    let pickle_name = format!("{top}data.pkl");
    let data = read_small(&mut archive, &pickle_name).map_err(|what| invalid(path, what))?;
    let pickle = Pickle::read(&data).map_err(|what| invalid(path, format!("{pickle_name}, {what}")))?;
    let (kind, records) =
        state::tensors(&pickle).map_err(|what| invalid(path, format!("{pickle_name}: {what}")))?;

    let mut storages = Storages { archive, map, top: &top, found: HashMap::new() };
    let mut tensors = Tensors::new();
    for record in records {
        let name = record.name.clone();
        let tensor = storages
            .tensor(record, &pickle)
            .map_err(|what| invalid(path, format!("tensor {name}: {what}")))?;
        if tensors.insert(name.clone(), tensor).is_some() {
            return Err(invalid(path, format!("{pickle_name}: tensor {name} is there twice")));
        }
    }
    let format = match kind {
        Kind::TorchScript => "TorchScript archive",
        Kind::StateDict => "state dict",
    };
    Ok((format, tensors))
}

/// Inflates the storages that are deflated and that the checked tensors need, each once.
///
/// All together they may hold twice what the card's tensors take as float32: room for a storage that is
/// shared with something else, none for a zip bomb.
pub(super) fn inflate(checkpoint: &mut Checkpoint, card: &ModelCard) -> Result<()> {
    let values: usize = expected_tensors(card).iter().map(|spec| spec.shape.iter().product::<usize>()).sum();
    let limit = values.saturating_mul(4).saturating_mul(2);
    let mut left = limit;
    // A set of shards may be made of several archives; this is the rare case, so each gets a table of its own.
    let mut archives: HashMap<*const Map, Archive<'_>> = HashMap::new();
    let maps = checkpoint.files.clone();
    let mut inflated: HashMap<(*const Map, usize), Arc<[u8]>> = HashMap::new();
    for (name, tensor) in &mut checkpoint.tensors {
        let Storage::Deflated { map, entry, len } = &tensor.storage else { continue };
        let (key, entry, len) = (Arc::as_ptr(map), *entry, *len);
        if let Some(bytes) = inflated.get(&(key, entry)) {
            tensor.storage = Storage::Owned(bytes.clone());
            continue;
        }
        let Some(map) = maps.iter().find(|map| Arc::as_ptr(map) == key) else { continue };
        let path = map.path();
        left = left.checked_sub(len).ok_or_else(|| {
            invalid(
                path,
                format!("tensor {name}: its entry says it inflates to {len} bytes: expected at most {limit} in all"),
            )
        })?;
        let archive = match archives.entry(key) {
            std::collections::hash_map::Entry::Occupied(open) => open.into_mut(),
            std::collections::hash_map::Entry::Vacant(new) => new.insert(open(map, path)?),
        };
        let bytes: Arc<[u8]> = read_entry(archive, entry, len)
            .map_err(|what| invalid(path, format!("tensor {name}: {what}")))?
            .into();
        inflated.insert((key, entry), bytes.clone());
        tensor.storage = Storage::Owned(bytes);
    }
    Ok(())
}

fn open<'a>(map: &'a Map, path: &Path) -> Result<Archive<'a>> {
    let size = map.len();
    // Asked here because the zip crate searches the whole file for it, which may be gigabytes.
    let tail = &map[size.saturating_sub(END_RECORD_REACH)..];
    let ends =
        (0..tail.len()).rev().any(|at| tail[at] == END_RECORD[0] && tail[at..].starts_with(END_RECORD));
    if !ends {
        let what = format!(
            "truncated zip archive: found {size} bytes without the table of contents that such a file ends with: most likely a download that stopped early"
        );
        return Err(invalid(path, what));
    }
    let archive = ZipArchive::new(Cursor::new(&map[..])).map_err(|error| {
        invalid(path, format!("a zip archive of {size} bytes, damaged or truncated: {error}"))
    })?;
    if archive.has_duplicate_names() {
        return Err(invalid(path, "a zip archive with two entries of the same name"));
    }
    if archive.len() > MAX_ENTRIES {
        return Err(invalid(
            path,
            format!("a zip archive of {} entries: expected at most {MAX_ENTRIES}", archive.len()),
        ));
    }
    Ok(archive)
}

/// The folder, with its slash, that the archive's files are in: `data.pkl` says so.
fn find_top(names: &[String]) -> std::result::Result<String, String> {
    let mut tops = names
        .iter()
        .filter_map(|name| name.strip_suffix("data.pkl"))
        .filter(|top| top.is_empty() || (top.ends_with('/') && top.matches('/').count() == 1));
    match (tops.next(), tops.next()) {
        (Some(top), None) => return Ok(top.to_owned()),
        (Some(_), Some(_)) => return Err("a zip archive with more than one data.pkl".into()),
        (None, _) => {}
    }
    let within = |name: &str| names.iter().any(|entry| entry == name || entry.ends_with(&format!("/{name}")));
    let models = names.iter().any(|name| name.contains("models/") && name.ends_with(".json"));
    if within("archive_format") || within("serialized_exported_program.json") || models {
        return Err(
            "an exported program (made by torch.export): expected a TorchScript archive (made by torch.jit.save), a state dict or safetensors"
                .into(),
        );
    }
    let some: Vec<_> = names.iter().take(4).map(|name| super::pickle::cut(name)).collect();
    Err(format!(
        "a zip archive that torch didn't write: expected an entry <name>/data.pkl, found {} entries [{}]",
        names.len(),
        some.join(", ")
    ))
}

fn check_byte_order(archive: &mut Archive<'_>, top: &str) -> std::result::Result<(), String> {
    let name = format!("{top}byteorder");
    if archive.index_for_name(&name).is_none() {
        // Archives from before torch 2.1 don't say, and were all little-endian in practice.
        return Ok(());
    }
    let order = read_small(archive, &name)?;
    if order.trim_ascii() == b"little" {
        return Ok(());
    }
    Err(format!("{name}: byte order {}: expected little", order.escape_ascii()))
}

/// An entry of bounded size, CRC checked.
fn read_small(archive: &mut Archive<'_>, name: &str) -> std::result::Result<Vec<u8>, String> {
    let index = archive.index_for_name(name).ok_or_else(|| format!("no entry {name}"))?;
    let size = archive.by_index_data(index).map_err(|error| format!("{name}: {error}"))?.size();
    if size > MAX_PICKLE {
        return Err(format!("{name}: {size} bytes: expected at most {MAX_PICKLE}"));
    }
    read_entry(archive, index, size as usize)
}

/// Entry `index`, which must inflate to exactly `len` bytes. The caller has bounded `len`.
fn read_entry(archive: &mut Archive<'_>, index: usize, len: usize) -> std::result::Result<Vec<u8>, String> {
    // torch can be told to leave the checksums out, which then are 0.
    let unchecked = archive.by_index_data(index).map_err(|error| error.to_string())?.crc32() == 0;
    let options = ZipReadOptions::new().ignore_crc32(unchecked);
    let entry = archive.by_index_with_options(index, options).map_err(|error| error.to_string())?;
    let name = String::from_utf8_lossy(entry.name_raw()).into_owned();
    let mut bytes = Vec::new();
    // One byte more than it should have, so that one too long is noticed.
    entry
        .take(len as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| format!("entry {name} is damaged: {error}"))?;
    if bytes.len() != len {
        return Err(format!(
            "entry {name}: expected {len} bytes, found {}",
            if bytes.len() > len { "more".into() } else { bytes.len().to_string() }
        ));
    }
    Ok(bytes)
}

/// Where the archive's storages are, by their keys. The same one may serve many tensors.
struct Storages<'a> {
    archive: Archive<'a>,
    map: &'a Arc<Map>,
    top: &'a str,
    found: HashMap<&'a str, Storage>,
}

impl<'a> Storages<'a> {
    fn tensor(&mut self, record: Record, pickle: &Pickle<'a>) -> std::result::Result<StoredTensor, String> {
        let key = pickle.str(record.key);
        let storage = match self.found.get(key) {
            Some(storage) => storage.clone(),
            None => {
                let storage = self.locate(key)?;
                self.found.insert(key, storage.clone());
                storage
            }
        };
        let available = match &storage {
            Storage::Mapped { len, .. } | Storage::Deflated { len, .. } => *len,
            Storage::Owned(bytes) => bytes.len(),
        };
        let needed = record.storage_count.checked_mul(record.kind.size());
        if needed.is_none_or(|needed| needed > available) {
            return Err(format!(
                "its storage {}data/{key} has {available} bytes: expected {} values of {} bytes ({})",
                self.top,
                record.storage_count,
                record.kind.size(),
                record.kind.name()
            ));
        }
        let element = match record.kind.name() {
            "FloatStorage" => Element::F32,
            "HalfStorage" => Element::F16,
            "BFloat16Storage" => Element::Bf16,
            other => Element::Other(other.trim_end_matches("Storage").to_owned()),
        };
        StoredTensor::new(element, record.shape, record.strides, record.offset, record.storage_count, storage)
    }

    fn locate(&mut self, key: &str) -> std::result::Result<Storage, String> {
        let name = format!("{}data/{key}", self.top);
        let entry = self
            .archive
            .index_for_name(&name)
            .ok_or_else(|| format!("its storage {} is not in the archive", super::pickle::cut(&name)))?;
        // Reading the local header is what tells where the data begins.
        let file = self.archive.by_index_raw(entry).map_err(|error| format!("entry {name}: {error}"))?;
        if file.encrypted() {
            return Err(format!("entry {name} is encrypted"));
        }
        let (size, packed) = (file.size(), file.compressed_size());
        let start = file.data_start().ok_or_else(|| format!("entry {name} has no data"))?;
        let within = start.checked_add(packed).filter(|&end| end <= self.map.len() as u64);
        if within.is_none() {
            return Err(format!(
                "entry {name} is said to be {packed} bytes from byte {start}: the file has {}",
                self.map.len()
            ));
        }
        match file.compression() {
            CompressionMethod::Stored if size == packed => {
                Ok(Storage::Mapped { map: self.map.clone(), start: start as usize, len: size as usize })
            }
            CompressionMethod::Stored => {
                Err(format!("entry {name} is stored, yet {packed} bytes stand for {size}"))
            }
            CompressionMethod::Deflated => {
                let len = usize::try_from(size).map_err(|_| format!("entry {name}: {size} bytes"))?;
                Ok(Storage::Deflated { map: self.map.clone(), entry, len })
            }
            other => Err(format!("entry {name} is compressed by {other}: expected stored or deflated")),
        }
    }
}
