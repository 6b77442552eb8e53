//! Holds a checkpoint's tensors against the card's network: every name, shape and type, in one error.

use std::collections::BTreeSet;

use half::bf16;

use crate::Variant;
use crate::card::{Family, ModelCard};
use crate::error::{ErrorKind, Result, SegmentError};

use super::files::{Checkpoint, Tensors};
use super::layout::{CONV_SEG_WEIGHT, PATCH_WEIGHT, PERIODS, POS_EMBED};
use super::{expected_tensors, pos_embed_grid};

/// Tensors named in a message, of each sort.
const LISTED: usize = 20;
/// What the names of the two halves of the network begin with.
const PARTS: [&str; 2] = ["backbone.", "decode_head."];

/// Checks, and leaves in the checkpoint exactly the card's tensors under the card's names.
pub(super) fn against_card(checkpoint: &mut Checkpoint, card: &ModelCard) -> Result<()> {
    strip_wrapper(checkpoint);
    let mismatch = |what: String| {
        SegmentError::new(
            ErrorKind::WeightsMismatch,
            format!("{} ({}): {what}", checkpoint.path.display(), checkpoint.format),
        )
    };
    let tensors = &mut checkpoint.tensors;
    if let Some(name) = tensors.keys().find(|name| name.starts_with("backbone.tokenizer.")) {
        return Err(mismatch(format!(
            "a checkpoint of the 4K models, whose tokenizer ({name}, ...) this network doesn't have: expected the weights of {}",
            card.name()
        )));
    }
    let report = Report::new(tensors, card);
    if !report.is_clean() {
        return Err(mismatch(report.describe(tensors, card)));
    }
    if card.family == Family::Sapiens2 {
        check_periods(tensors, card).map_err(mismatch)?;
    }
    if let Some(pos_embed) = tensors.get_mut(POS_EMBED) {
        let rows = pos_embed.shape()[1];
        // The leading row was the class token's, which this network doesn't have.
        if pos_embed_grid(rows).is_none() {
            pos_embed.drop_first(1);
        }
    }
    let names: BTreeSet<_> = expected_tensors(card).into_iter().map(|spec| spec.name).collect();
    tensors.retain(|name, _| names.contains(name));
    Ok(())
}

/// Takes off what wrapping modules put in front of every name (`module.`, `model.`), and puts `backbone.`
/// in front of a bare backbone's, so that what is missing can be told.
fn strip_wrapper(checkpoint: &mut Checkpoint) {
    let Some((from, to)) = wrapper(&checkpoint.tensors) else { return };
    log::info!("{}: names begin with {from:?}: read as {to:?}", checkpoint.path.display());
    checkpoint.tensors = std::mem::take(&mut checkpoint.tensors)
        .into_iter()
        .map(|(name, tensor)| match name.strip_prefix(&from) {
            Some(rest) => (format!("{to}{rest}"), tensor),
            None => (name, tensor),
        })
        .collect();
}

/// What the names begin with and what they should begin with, if that is one and the same for all.
fn wrapper(tensors: &Tensors) -> Option<(String, &'static str)> {
    let before = |name: &'_ str, part: &str| {
        name.match_indices(part).map(|(at, _)| at).find(|&at| at == 0 || name[..at].ends_with('.'))
    };
    let prefixes: BTreeSet<&str> = tensors
        .keys()
        .filter_map(|name| PARTS.iter().filter_map(|part| before(name, part)).min().map(|at| &name[..at]))
        .collect();
    match prefixes.into_iter().collect::<Vec<_>>().as_slice() {
        [] => tensors.contains_key("patch_embed.projection.weight").then(|| (String::new(), "backbone.")),
        [""] => None,
        [prefix] => Some(((*prefix).to_owned(), "")),
        _ => None,
    }
}

/// What is wrong, tensor by tensor.
struct Report {
    missing: Vec<String>,
    unexpected: Vec<String>,
    /// Of another shape or type than expected, with both.
    different: Vec<String>,
}

impl Report {
    fn new(tensors: &Tensors, card: &ModelCard) -> Self {
        let mut report = Self { missing: Vec::new(), unexpected: Vec::new(), different: Vec::new() };
        let mut known = BTreeSet::new();
        for spec in expected_tensors(card) {
            let Some(tensor) = tensors.get(&spec.name) else {
                report.missing.push(spec.name);
                continue;
            };
            let (name, found) = (&spec.name, tensor.shape());
            if spec.name == POS_EMBED {
                let trained = match found {
                    &[1, rows, dim] if dim == card.network.embed_dim => {
                        pos_embed_grid(rows).or_else(|| pos_embed_grid(rows.checked_sub(1)?))
                    }
                    _ => None,
                };
                if trained.is_none() {
                    report.different.push(format!(
                        "{name}: expected [1, 12k² (or one more), {}], found {found:?}",
                        card.network.embed_dim
                    ));
                }
            } else if found != spec.shape {
                report.different.push(format!("{name}: expected {:?}, found {found:?}", spec.shape));
            }
            if !tensor.element().is_float() {
                report.different.push(format!(
                    "{name}: expected float32, float16 or bfloat16, found {}",
                    tensor.element()
                ));
            }
            known.insert(spec.name);
        }
        for (name, tensor) in tensors {
            // Counters and the like, which training leaves behind, are no weights.
            let harmless =
                !tensor.element().is_float() || (name == PERIODS && card.family == Family::Sapiens2);
            if !known.contains(name) && !harmless {
                report.unexpected.push(format!("{name} {:?}", tensor.shape()));
            }
        }
        report
    }

    fn is_clean(&self) -> bool {
        self.missing.is_empty() && self.unexpected.is_empty() && self.different.is_empty()
    }

    fn describe(&self, tensors: &Tensors, card: &ModelCard) -> String {
        let mut lines = vec![format!("its tensors are not those of {}", card.name())];
        lines.extend(hints(tensors, card));
        for (what, list) in [
            ("missing", &self.missing),
            ("unexpected", &self.unexpected),
            ("of another shape or type", &self.different),
        ] {
            if !list.is_empty() {
                lines.push(format!("{} {what}: {}", list.len(), listed(list)));
            }
        }
        lines.join("\n")
    }
}

fn listed(list: &[String]) -> String {
    let mut text = list[..list.len().min(LISTED)].join(", ");
    if list.len() > LISTED {
        text.push_str(&format!(" and {} more", list.len() - LISTED));
    }
    text
}

/// What the file seems to be instead, one line each.
fn hints(tensors: &Tensors, card: &ModelCard) -> Vec<String> {
    let mut lines = Vec::new();
    let has = |part: &str| tensors.keys().any(|name| name.starts_with(part));
    if has(PARTS[0]) && !has(PARTS[1]) {
        lines.push(
            "it is a backbone without its segmentation head (decode_head.*): expected a segmentation checkpoint"
                .into(),
        );
    }
    let other = network_of(tensors).and_then(|found| {
        Variant::all().map(ModelCard::of).find(|other| {
            (other.family, other.network.embed_dim, other.network.layers) == found
                && (card.family, card.network.embed_dim, card.network.layers) != found
        })
    });
    if let Some(other) = other {
        lines.push(format!(
            "its {} channels and {} layers are those of {}: set variant={}",
            other.network.embed_dim,
            other.network.layers,
            other.id,
            other.name()
        ));
    }
    let classes = tensors.get(CONV_SEG_WEIGHT).and_then(|tensor| tensor.shape().first().copied());
    if let Some(found) = classes.filter(|&found| found != card.classes.len()) {
        let whose: Vec<_> = Variant::all()
            .map(ModelCard::of)
            .filter(|other| other.classes.len() == found)
            .map(|other| other.name().to_owned())
            .collect();
        let whose = if whose.is_empty() {
            "no published model has as many: a fine-tuned model needs a card of its own that lists its classes"
                .to_owned()
        } else {
            format!("{found} are those of {}", whose.join(", "))
        };
        lines.push(format!(
            "its head tells {found} classes apart, {} has {} ({whose})",
            card.name(),
            card.classes.len()
        ));
    }
    lines
}

/// Family, embedding and layers, as far as the tensors tell.
fn network_of(tensors: &Tensors) -> Option<(Family, usize, usize)> {
    let dim = *tensors.get(PATCH_WEIGHT)?.shape().first()?;
    let layers = |prefix: &str| {
        tensors
            .keys()
            .filter_map(|name| name.strip_prefix(prefix)?.split('.').next()?.parse::<usize>().ok())
            .max()
            .and_then(|last| last.checked_add(1))
    };
    match (layers("backbone.layers."), layers("backbone.blocks.")) {
        (Some(layers), None) => Some((Family::Sapiens, dim, layers)),
        (None, Some(layers)) => Some((Family::Sapiens2, dim, layers)),
        _ => None,
    }
}

/// The rotary periods that the network computes, if the file has them too.
fn check_periods(tensors: &Tensors, card: &ModelCard) -> std::result::Result<(), String> {
    let Some(tensor) = tensors.get(PERIODS) else { return Ok(()) };
    let expected = periods(card.network.head_dim());
    if tensor.shape() != [expected.len()] {
        return Err(format!(
            "{PERIODS}: expected [{}] for a head dim of {}, found {:?}",
            expected.len(),
            card.network.head_dim(),
            tensor.shape()
        ));
    }
    let mut found = vec![0.0; expected.len()];
    tensor.read_into(0, &mut found).map_err(|what| format!("{PERIODS}: {what}"))?;
    let step = |a: bf16, b: bf16| a.to_bits().abs_diff(b.to_bits());
    let apart = expected.iter().zip(&found).map(|(&e, &f)| step(e, bf16::from_f32(f))).max().unwrap_or(0);
    // Another machine's power function may land on the neighbouring bfloat16; another definition is further off.
    if apart > 1 {
        let expected: Vec<_> = expected.iter().map(|value| value.to_f32()).collect();
        return Err(format!("{PERIODS}: expected {expected:?}, found {found:?}"));
    }
    if apart == 1 {
        log::warn!("{PERIODS} differ from their definition by the last bit of a bfloat16");
    }
    Ok(())
}

/// The rotary embedding's periods for a head dim, every step rounded to bfloat16.
fn periods(head_dim: usize) -> Vec<bf16> {
    (0..head_dim / 4)
        .map(|j| {
            let exponent = bf16::from_f32((2 * j) as f32 / (head_dim / 2) as f32);
            bf16::from_f32(100f32.powf(exponent.to_f32()))
        })
        .collect()
}
