//! `run.json`: what a result was made from and how. Nothing that differs between two runs of the same is in it, no
//! time of day and no duration: those are on the terminal.

use std::fs;
use std::path::Path;
use std::time::UNIX_EPOCH;

use sapiens_examples::Model;
use sapiens_model::WeightsIdentity;
use sapiens_model::weights::file_sha256;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::arguments::Arguments;
use crate::inputs::{Input, Kind, hex};

/// Where in `run.json` it is said what came of it; all else is known before the work begins.
pub(crate) const RESULT: &str = "result";

/// What is the same for all inputs of a run.
#[derive(Debug)]
pub(crate) struct Plan {
    common: Map<String, Value>,
}

impl Plan {
    /// What `arguments` ask for. Weights whose hash isn't known are hashed, which takes seconds for gigabytes.
    ///
    /// # Errors
    /// If the weights or the card can't be read.
    pub(crate) fn new(arguments: &Arguments, model: &Model, kept: &[u8]) -> Result<Self, String> {
        let card = model.segmenter.card();
        let backend = model.segmenter.backend();
        let names: Vec<_> = card.classes.iter().map(|class| class.name.as_str()).collect();
        // None: all of them.
        let chosen = arguments.classes.is_some();
        let kept: Option<Vec<_>> =
            chosen.then(|| kept.iter().filter_map(|class| names.get(usize::from(*class))).collect());
        // A card of the user's own may change under its name.
        let card_hash = arguments.model.card.as_ref().map(|file| sha256(file)).transpose()?;
        let common = json!({
            "program": {
                "name": env!("CARGO_BIN_NAME"),
                "version": env!("CARGO_PKG_VERSION"),
                "gstreamer": gst::version_string().as_str(),
            },
            "model": { "name": card.name(), "card_sha256": card_hash, "classes": names },
            "weights": weights(model)?,
            "backend": {
                "code": backend.mode.to_string(),
                "device": backend.device.to_string(),
                "precision": backend.precision.to_string(),
                "instructions": backend.instructions,
                "input_size": model.input_size.to_string(),
            },
            "options": {
                "labels": arguments.labels,
                "overlay": arguments.overlay,
                "opacity": arguments.opacity,
                "classes": kept,
                "every": arguments.every,
                "start_ns": arguments.start,
                "end_ns": arguments.end,
            },
        });
        match common {
            Value::Object(common) => Ok(Self { common }),
            _ => unreachable!("an object is written above"),
        }
    }

    /// `run.json` of an input, as far as it is known before the work.
    ///
    /// # Errors
    /// If the input is gone.
    pub(crate) fn of(&self, input: &Input) -> Result<Value, String> {
        let failed = |error: std::io::Error| format!("can't read {}: {error}", input.path.display());
        let metadata = fs::metadata(&input.path).map_err(failed)?;
        let modified = metadata.modified().map_err(failed)?.duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut plan = self.common.clone();
        let kind = match input.kind {
            Kind::Image => "image",
            Kind::Video => "video",
        };
        plan.insert(
            "input".to_owned(),
            json!({
                "name": input.name.to_string_lossy(),
                "kind": kind,
                "bytes": metadata.len(),
                "modified_ns": modified.as_nanos() as u64,
            }),
        );
        Ok(Value::Object(plan))
    }
}

fn weights(model: &Model) -> Result<Value, String> {
    let known = model.weights.sha256();
    let files = match model.weights.identity() {
        WeightsIdentity::Files(files) => files,
        WeightsIdentity::BuiltIn(variant) => {
            return Ok(json!([{ "built_in": variant.nick(), "sha256": known }]));
        }
        WeightsIdentity::Generated { seed } => return Ok(json!({ "seed": seed })),
    };
    let files = files.iter().map(|file| {
        let hash = match known {
            Some(known) if files.len() == 1 => known.to_owned(),
            _ => file_sha256(&file.path).map_err(|error| error.to_string())?,
        };
        let name = file.path.file_name().unwrap_or_default().to_string_lossy();
        Ok(json!({ "file": name, "bytes": file.size, "sha256": hash }))
    });
    files.collect()
}

/// Of a small file.
fn sha256(path: &Path) -> Result<String, String> {
    let bytes = fs::read(path).map_err(|error| format!("can't read {}: {error}", path.display()))?;
    Ok(hex(&Sha256::digest(bytes)))
}

/// How two plans differ.
#[derive(Debug, PartialEq)]
pub(crate) struct Difference {
    /// Where: `options.every`.
    pub what: String,
    there: Value,
    now: Value,
}

impl Difference {
    /// Whether it is the input that isn't what it was, not the run.
    pub(crate) fn is_of_input(&self) -> bool {
        self.what.starts_with("input.")
    }
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} was {} and is {} now", self.what, self.there, self.now)
    }
}

/// The first difference between what is there and what is asked for. What a finished result was made by counts less
/// than what it was made from: an update of the program is no reason to do everything again.
pub(crate) fn difference(there: &Value, now: &Value, finished: bool) -> Option<Difference> {
    let ignored: &[&str] = if finished { &[RESULT, "program"] } else { &[RESULT] };
    walk("", there, now, ignored)
}

fn walk(path: &str, there: &Value, now: &Value, ignored: &[&str]) -> Option<Difference> {
    let (Value::Object(old), Value::Object(new)) = (there, now) else {
        let differs = || Difference { what: path.to_owned(), there: there.clone(), now: now.clone() };
        return (there != now).then(differs);
    };
    let keys = old.keys().chain(new.keys().filter(|key| !old.contains_key(*key)));
    keys.filter(|key| !ignored.contains(&key.as_str())).find_map(|key| {
        let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        walk(&path, old.get(key).unwrap_or(&Value::Null), new.get(key).unwrap_or(&Value::Null), &[])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_named() {
        let there =
            json!({ "program": { "version": "1" }, "options": { "every": 2, "end_ns": null }, "result": 5 });
        let mut now = there.clone();
        now["result"] = Value::Null;
        assert_eq!(difference(&there, &now, false), None);
        now["program"]["version"] = json!("2");
        assert_eq!(difference(&there, &now, true), None);
        assert_eq!(difference(&there, &now, false).unwrap().what, "program.version");
        now["program"]["version"] = json!("1");
        now["options"]["every"] = json!(3);
        let found = difference(&there, &now, true).unwrap();
        assert_eq!(
            (found.to_string().as_str(), found.is_of_input()),
            ("options.every was 2 and is 3 now", false)
        );
    }
}
