//! The checkpoint reader: from a path (or nothing at all) to the tensors that a card's network has.
//!
//! Between the card and the engines: it knows names, shapes, files and licences, and refuses to know what
//! the tensors are for. Past it nobody sees a file format; every tensor comes out as row-major f32, or as the bytes it is
//! stored in or the numbers it is generated from.

mod check;
mod environment;
mod files;
mod format;
mod generated;
mod layout;
mod license;
mod locate;
mod map;
mod pickle;
mod published;
mod safetensors;
mod shards;
mod state;
mod tensor;
mod torch_zip;
mod verify;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::card::ModelCard;
use crate::error::{ErrorKind, Result, SegmentError};
use crate::variant::Variant;

use environment::Environment;
use files::Checkpoint;
pub(crate) use generated::Generated;
#[cfg(any(test, feature = "cuda-check"))]
pub(crate) use generated::{fnv1a64, uniform};
pub(crate) use layout::{PATCH, PREFIX_TOKENS};
pub use layout::{TensorSpec, expected_tensors, pos_embed_grid};
pub use map::FileIdentity;
use map::Map;
pub use published::{cache_path, file_sha256, record_sha256};
#[cfg(feature = "cuda")]
pub(crate) use tensor::RawValues;
use tensor::StoredTensor;

/// What weights were made from. Two instances with equal identities (and cards) can share one network.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum WeightsIdentity {
    /// These files as they were when opened: one checkpoint, or the shards of one.
    Files(Vec<FileIdentity>),
    /// Those that come with this variant's card.
    BuiltIn(Variant),
    /// Made up from this seed.
    Generated {
        /// The seed.
        seed: u64,
    },
}

/// A checkpoint: opened, memory-mapped and checked against its card. Share it in an `Arc`.
pub struct Weights {
    source: Source,
    identity: WeightsIdentity,
    sha256: Option<String>,
    description: String,
}

enum Source {
    Stored(BTreeMap<String, StoredTensor>),
    Generated { seed: u64, shapes: BTreeMap<String, Vec<usize>> },
}

/// How an engine comes by a tensor's values.
#[cfg(feature = "cuda")]
#[derive(Debug)]
pub(crate) enum Origin<'a> {
    /// They are there.
    Stored(RawValues<'a>),
    /// It makes so many.
    Generated { values: Generated, count: usize },
}

impl Weights {
    /// Finds the card's weights, if they aren't built in, asks whether their licence was accepted, opens and checks them.
    ///
    /// `path` is a file or folder given by the user; without one the file that the card says is published
    /// is looked for in `$SAPIENS_CHECKPOINT_ROOT`, the project's cache and the hub's cache, in that order.
    /// `license_accepted` does what the licence's environment variable does when it is `1`.
    ///
    /// # Errors
    /// `WeightsNotFound` with every place looked and how to get the weights, `LicenseNotAccepted`, and those
    /// of [`Weights::open`].
    pub fn locate_and_open(card: &ModelCard, path: Option<&Path>, license_accepted: bool) -> Result<Self> {
        Self::locate_and_open_in(card, path, license_accepted, &Environment::of_process())
    }

    /// Where the card's published file is, if it is in one of the places it is looked for. Opens nothing.
    pub fn find(card: &ModelCard) -> Option<PathBuf> {
        locate::find(card, &Environment::of_process())
    }

    /// Opens the checkpoint at `path`, a file or folder, and checks it against the card.
    ///
    /// The format is told by the content: a TorchScript archive, a state dict, safetensors, or an index of
    /// shards. A file under its published name must have its published SHA-256.
    ///
    /// # Errors
    /// `WeightsNotFound` where nothing is there, `InvalidWeights` for what is no checkpoint or a damaged
    /// one, `WeightsMismatch` if its tensors are not the card's, `HashMismatch`, `Io`.
    pub fn open(path: &Path, card: &ModelCard) -> Result<Self> {
        Self::open_in(path, card, &Environment::of_process())
    }

    /// Weights that need no file: each tensor a function of its name, its shape and `seed`. They stand for
    /// a trained model in tests and benchmarks, and are made up tensor by tensor when asked for.
    pub fn generated(card: &ModelCard, seed: u64) -> Self {
        let shapes: BTreeMap<_, _> =
            expected_tensors(card).into_iter().map(|spec| (spec.name, spec.shape)).collect();
        Self {
            description: format!("generated weights, seed {seed}, {} tensors", shapes.len()),
            source: Source::Generated { seed, shapes },
            identity: WeightsIdentity::Generated { seed },
            sha256: None,
        }
    }

    fn locate_and_open_in(
        card: &ModelCard,
        path: Option<&Path>,
        license_accepted: bool,
        environment: &Environment,
    ) -> Result<Self> {
        if let (None, Some(variant)) = (path, card.variant)
            && let Some(bytes) = variant.built_in_weights()
        {
            let checkpoint = files::read_map(Map::built_in(bytes, "built-in weights"))?;
            let weights = Self::check(checkpoint, card, environment, |_| WeightsIdentity::BuiltIn(variant))?;
            return Ok(Self { sha256: Some(verify::sha256(bytes)), ..weights });
        }
        let found = locate::locate(card, path, license_accepted, environment)?;
        // Before a gigabyte is hashed, after it is known that there is one.
        license::gate(card, license_accepted, environment)?;
        Self::open_in(&found, card, environment)
    }

    fn open_in(path: &Path, card: &ModelCard, environment: &Environment) -> Result<Self> {
        Self::check(files::read(path, card)?, card, environment, |files| {
            WeightsIdentity::Files(files.iter().map(|map| map.identity().clone()).collect())
        })
    }

    fn check(
        mut checkpoint: Checkpoint,
        card: &ModelCard,
        environment: &Environment,
        identity: impl FnOnce(&[Arc<Map>]) -> WeightsIdentity,
    ) -> Result<Self> {
        check::against_card(&mut checkpoint, card)?;
        torch_zip::inflate(&mut checkpoint, card)?;
        let sha256 = verify::published_hash(&checkpoint, card, environment)?;
        let mut description = format!(
            "{} ({}, {} tensors",
            checkpoint.path.display(),
            checkpoint.format,
            checkpoint.tensors.len()
        );
        for element in checkpoint.elements() {
            description.push_str(&format!(", {element}"));
        }
        if let Some(digest) = &sha256 {
            description.push_str(&format!(", SHA-256 {digest}"));
        }
        description.push(')');
        log::info!("weights of {}: {description}", card.name());
        Ok(Self {
            identity: identity(&checkpoint.files),
            source: Source::Stored(checkpoint.tensors),
            sha256,
            description,
        })
    }

    /// The values of the tensor called `name`, row-major.
    ///
    /// # Errors
    /// `UnknownName` if the card's network has no such tensor, `InvalidWeights` if the file shrank since it
    /// was opened.
    pub fn tensor_f32(&self, name: &str) -> Result<Vec<f32>> {
        let mut values = vec![0.0; self.known_shape(name)?.iter().product()];
        self.read_f32(name, &mut values)?;
        Ok(values)
    }

    /// Writes the values of the tensor called `name`, row-major, to `out`.
    ///
    /// # Errors
    /// Those of [`Weights::tensor_f32`], and `InvalidWeights` if `out` is not as long as the tensor.
    pub fn read_f32(&self, name: &str, out: &mut [f32]) -> Result<()> {
        let shape = self.known_shape(name)?;
        let count: usize = shape.iter().product();
        if out.len() != count {
            return Err(SegmentError::new(
                ErrorKind::InvalidWeights,
                format!("tensor {name} has {count} values {shape:?}: asked to put them in {}", out.len()),
            ));
        }
        self.read_f32_from(name, 0, out)
    }

    /// Writes values of the tensor called `name`, row-major, from its `first` on, to all of `out`: how several threads
    /// read one tensor.
    ///
    /// # Errors
    /// Those of [`Weights::tensor_f32`], and `InvalidWeights` if the tensor ends before `out` does.
    pub fn read_f32_from(&self, name: &str, first: usize, out: &mut [f32]) -> Result<()> {
        let shape = self.known_shape(name)?;
        let count: usize = shape.iter().product();
        if first.checked_add(out.len()).is_none_or(|end| end > count) {
            return Err(SegmentError::new(
                ErrorKind::InvalidWeights,
                format!(
                    "tensor {name} has {count} values {shape:?}: asked for {} from {first} on",
                    out.len()
                ),
            ));
        }
        match &self.source {
            Source::Generated { seed, .. } => generated::fill(Generated::of(name, shape, *seed), first, out),
            Source::Stored(tensors) => {
                if let Some(tensor) = tensors.get(name) {
                    tensor.read_into(first, out).map_err(|what| {
                        SegmentError::new(ErrorKind::InvalidWeights, format!("tensor {name}: {what}"))
                    })?;
                }
            }
        }
        Ok(())
    }

    /// The values of the tensor called `name` as they are stored, in float32 where they lie scattered, or what they are generated from:
    /// for an engine that wants them elsewhere.
    ///
    /// # Errors
    /// Those of [`Weights::tensor_f32`].
    #[cfg(feature = "cuda")]
    pub(crate) fn origin(&self, name: &str) -> Result<Origin<'_>> {
        let origin = match &self.source {
            Source::Stored(tensors) => tensors.get(name).map(|tensor| tensor.raw().map(Origin::Stored)),
            Source::Generated { seed, shapes } => shapes.get(name).map(|shape| {
                let count = shape.iter().product();
                Ok(Origin::Generated { values: Generated::of(name, shape, *seed), count })
            }),
        };
        let origin = origin.ok_or_else(|| self.no_tensor(name))?;
        origin.map_err(|what| SegmentError::new(ErrorKind::InvalidWeights, format!("tensor {name}: {what}")))
    }

    /// Whether these are weights of `card`'s network: they are held against a card when they are opened, which may be another.
    ///
    /// # Errors
    /// `WeightsMismatch` with the first tensor that is missing or of another shape.
    pub(crate) fn check_card(&self, card: &ModelCard) -> Result<()> {
        for TensorSpec { name, shape: expected } in expected_tensors(card) {
            let found = self.shape(&name);
            // Position embeddings are stretched, whatever their grid.
            let fits = |found: &[usize]| {
                *found == *expected
                    || name == layout::POS_EMBED
                        && found.len() == 3
                        && (found[0], found[2]) == (expected[0], expected[2])
            };
            if !found.is_some_and(fits) {
                let found = found.map_or("none".to_owned(), |found| format!("{found:?}"));
                return Err(SegmentError::new(
                    ErrorKind::WeightsMismatch,
                    format!(
                        "{} are no weights of {}: expected {name} of shape {expected:?}, found {found}",
                        self.describe(),
                        card.name()
                    ),
                ));
            }
        }
        Ok(())
    }

    /// Shape of the tensor called `name`. `backbone.pos_embed` is `[1, 12k², D]` whether or not the file
    /// has an extra leading row; [`pos_embed_grid`] tells its rows and columns.
    pub fn shape(&self, name: &str) -> Option<&[usize]> {
        match &self.source {
            Source::Stored(tensors) => tensors.get(name).map(|tensor| tensor.shape()),
            Source::Generated { shapes, .. } => shapes.get(name).map(Vec::as_slice),
        }
    }

    /// What the weights were made from.
    pub fn identity(&self) -> &WeightsIdentity {
        &self.identity
    }

    /// The file's SHA-256 in lower-case hex, where it was checked against a published one, and that of built-in weights.
    pub fn sha256(&self) -> Option<&str> {
        self.sha256.as_deref()
    }

    /// File, format, tensors and hash in one line, for logs.
    pub fn describe(&self) -> &str {
        &self.description
    }

    fn known_shape(&self, name: &str) -> Result<&[usize]> {
        self.shape(name).ok_or_else(|| self.no_tensor(name))
    }

    fn no_tensor(&self, name: &str) -> SegmentError {
        SegmentError::new(ErrorKind::UnknownName, format!("{}: no tensor {name}", self.description))
    }
}

impl fmt::Debug for Weights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Weights").field(&self.description).finish()
    }
}

/// Whether the licence of the card's weights, if it must be accepted, was: by `accepted` or by its
/// environment variable.
///
/// # Errors
/// `LicenseNotAccepted`, saying which licence it is, what it implies and what to set.
pub fn license_gate(card: &ModelCard, accepted: bool) -> Result<()> {
    license::gate(card, accepted, &Environment::of_process())
}

/// An error about a file that is no good checkpoint.
fn invalid(path: &Path, what: impl fmt::Display) -> SegmentError {
    SegmentError::new(ErrorKind::InvalidWeights, format!("{}: {what}", path.display()))
}

#[cfg(test)]
const _: fn() = || {
    fn shared<T: Send + Sync>() {}
    shared::<Weights>();
};
