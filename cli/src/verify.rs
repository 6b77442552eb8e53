//! `sapiens verify`: whether weights are what they should be, down to the last value.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use sapiens_cli::model_args;
use sapiens_model::weights::expected_tensors;
use sapiens_model::{ErrorKind, ModelCard, Result, SegmentError, Variant, Weights, WeightsIdentity};
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::json;

#[derive(Args)]
pub(crate) struct Arguments {
    /// The published model whose weights are checked.
    #[arg(value_name = "VARIANT", value_parser = model_args::variant(), required_unless_present = "card", conflicts_with = "card")]
    variant: Option<Variant>,

    /// A card of your own (TOML) instead.
    #[arg(long, value_name = "FILE")]
    card: Option<PathBuf>,

    /// The file or folder; without this it is looked for in the usual places.
    #[arg(long, value_name = "PATH")]
    weights: Option<PathBuf>,

    /// Print JSON instead of text.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report {
    model: String,
    files: Vec<CheckedFile>,
    tensors: usize,
    values: usize,
    /// Whether the hash is the published one; nothing where none is known.
    published_hash: Option<bool>,
}

#[derive(Serialize)]
struct CheckedFile {
    path: PathBuf,
    bytes: u64,
    sha256: String,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let card = model_args::card(arguments.card.as_deref(), arguments.variant.unwrap_or(Variant::Sapiens03b))?;
    // Structure, names, shapes, the published hash. Whether the licence was accepted doesn't matter: nothing is
    // labelled.
    let weights = Weights::locate_and_open(&card, arguments.weights.as_deref(), true)?;
    let values = check_values(&card, &weights)?;
    let files = match weights.identity() {
        WeightsIdentity::Files(files) => {
            files.iter().map(|file| hash(&file.path)).collect::<Result<Vec<_>>>()?
        }
        WeightsIdentity::BuiltIn(_) | WeightsIdentity::Generated { .. } => Vec::new(),
    };
    let published_hash = match (weights.sha256(), files.as_slice()) {
        (Some(expected), [file]) if expected == file.sha256 => Some(true),
        (Some(expected), [file]) => {
            return Err(SegmentError::new(
                ErrorKind::HashMismatch,
                format!(
                    "{}: expected SHA-256 {expected}, as when it was last checked, found {}",
                    file.path.display(),
                    file.sha256
                ),
            ));
        }
        _ => None,
    };
    let report = Report {
        model: card.name().to_owned(),
        files,
        tensors: expected_tensors(&card).len(),
        values,
        published_hash,
    };
    if arguments.json {
        json::print(&report);
    } else {
        print(&report);
    }
    Ok(ExitCode::SUCCESS)
}

fn print(report: &Report) {
    if report.files.is_empty() {
        anstream::println!("the weights are built in");
    }
    for file in &report.files {
        anstream::println!("{}\n  {} bytes\n  SHA-256 {}", file.path.display(), file.bytes, file.sha256);
    }
    anstream::println!(
        "{}: all {} tensors are there with the right shapes, and all {} values are finite numbers",
        report.model,
        report.tensors,
        report.values
    );
    match (report.files.as_slice(), report.published_hash) {
        ([], _) => {}
        (_, Some(true)) => anstream::println!("the hash is the published one"),
        _ => anstream::println!("no published hash is known to hold it against"),
    }
}

/// Reads every value; returns how many there are.
fn check_values(card: &ModelCard, weights: &Weights) -> Result<usize> {
    let specs = expected_tensors(card);
    let bar = bar(specs.len() as u64, "reading tensors [{bar:30}] {pos}/{len}");
    let mut count = 0;
    for spec in specs {
        let values = weights.tensor_f32(&spec.name)?;
        if let Some(index) = values.iter().position(|value| !value.is_finite()) {
            return Err(SegmentError::new(
                ErrorKind::InvalidWeights,
                format!(
                    "{}: tensor {} has {} at index {index}: expected finite numbers",
                    weights.describe(),
                    spec.name,
                    values[index]
                ),
            ));
        }
        count += values.len();
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(count)
}

fn hash(path: &Path) -> Result<CheckedFile> {
    let read_error = |error| SegmentError::io("read", path, error);
    let mut file = File::open(path).map_err(read_error)?;
    let bytes = file.metadata().map_err(read_error)?.len();
    let bar = bar(bytes, "hashing [{bar:30}] {bytes}/{total_bytes}, {eta} left");
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        let count = file.read(&mut buffer).map_err(read_error)?;
        if count == 0 {
            break;
        }
        hasher.update(&buffer[..count]);
        bar.inc(count as u64);
    }
    bar.finish_and_clear();
    let sha256 = hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(CheckedFile { path: path.to_owned(), bytes, sha256 })
}

/// Shown only on a terminal.
fn bar(length: u64, template: &str) -> ProgressBar {
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(length).with_style(style)
}
