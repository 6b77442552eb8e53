//! What is constant about one model: sizes, classes, input rule, where its weights are, their licence.
//!
//! A card is TOML. The published models' cards are built in ([`Variant`]); a fine-tuned model comes with a
//! card of the user's own, read by the same code and checked the same way. Constants live here, not in code.

use std::fmt;
use std::path::Path;

use serde::Deserialize;

use crate::error::{ErrorKind, Result, SegmentError};
use crate::variant::Variant;

/// The two network architectures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Family {
    /// The first family: ViT with position embedding, LayerNorm, GELU.
    Sapiens,
    /// The second: RMSNorm, rotary embedding, QK norm, SwiGLU, grouped keys and values.
    Sapiens2,
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Family::Sapiens => "sapiens",
            Family::Sapiens2 => "sapiens2",
        })
    }
}

/// Sizes of the network.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Network {
    /// Width of a token, D.
    pub embed_dim: usize,
    /// Transformer layers.
    pub layers: usize,
    /// Query heads; the head dim is `embed_dim / heads`.
    pub heads: usize,
    /// Hidden width of the feed-forward network.
    pub ffn_dim: usize,
    /// Sapiens2: this many first and last layers have a key/value head per query head; each key/value head
    /// of the layers between serves two neighbouring query heads.
    #[serde(default)]
    pub full_kv_layers: Option<usize>,
    /// Output channels of the head's ConvTranspose layers; each doubles height and width.
    pub deconv_channels: Vec<usize>,
    /// Output channels of the head's 1x1 convolutions.
    pub conv_channels: Vec<usize>,
}

impl Network {
    /// Length of one head's query, D / heads.
    pub fn head_dim(&self) -> usize {
        self.embed_dim / self.heads
    }

    /// Key/value heads of layer `layer`.
    pub fn kv_heads(&self, layer: usize) -> usize {
        match self.full_kv_layers {
            Some(full) if layer >= full && layer + full < self.layers => self.heads / 2,
            _ => self.heads,
        }
    }
}

/// How a frame is resized to the network's input. The aspect ratio is not kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ResizeRule {
    /// OpenCV's `INTER_LINEAR` on 8-bit values.
    Linear,
    /// OpenCV's `INTER_AREA` where the width shrinks, else `INTER_CUBIC`, on 8-bit values.
    AreaOrCubic,
}

/// The network's input.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Input {
    /// Rows, a multiple of 16. The first family's position embedding was trained for this size.
    pub height: usize,
    /// Columns, a multiple of 16.
    pub width: usize,
    /// Per R, G, B on the 0..255 scale: `(value - mean) / std`.
    pub mean: [f32; 3],
    /// See `mean`.
    pub std: [f32; 3],
    /// How frames are resized to it.
    pub resize: ResizeRule,
}

/// One class: its index in [`ModelCard::classes`] is the label.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Class {
    /// The authors' name: `Left_Upper_Arm`.
    pub name: String,
    /// Colour in overlays and palettes: R, G, B.
    pub color: [u8; 3],
    /// The class on the other side of the body, if it has sides.
    #[serde(default)]
    pub mirror: Option<String>,
}

/// The terms that weights come under.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum License {
    /// Creative Commons Attribution-NonCommercial 4.0: the first family's published weights.
    CcByNc40,
    /// The Sapiens2 License, with its list of excluded uses: the second family's published weights.
    Sapiens2,
    /// Anything else, by name; no acceptance is asked for.
    Other(String),
}

impl License {
    /// The environment variable that accepts these terms when set to `1`, if they must be accepted.
    pub fn acceptance_variable(&self) -> Option<&'static str> {
        match self {
            License::CcByNc40 => Some("SAPIENS_NONCOMMERCIAL"),
            License::Sapiens2 => Some("SAPIENS2_LICENSE_ACCEPTED"),
            License::Other(_) => None,
        }
    }
}

impl fmt::Display for License {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            License::CcByNc40 => "CC-BY-NC-4.0",
            License::Sapiens2 => "Sapiens2 License",
            License::Other(name) => name,
        })
    }
}

impl<'de> Deserialize<'de> for License {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        Ok(match name.as_str() {
            "CC-BY-NC-4.0" => License::CcByNc40,
            "Sapiens2" | "Sapiens2 License" => License::Sapiens2,
            _ => License::Other(name),
        })
    }
}

/// Where a model's weights are published and under which terms.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedWeights {
    /// The terms.
    pub license: License,
    /// `owner/name` on the hub, where published.
    #[serde(default)]
    pub repository: Option<String>,
    /// The file in that repository.
    #[serde(default)]
    pub file: Option<String>,
    /// The file's SHA-256 in lower-case hex, or as many leading digits as are known.
    #[serde(default)]
    pub sha256: Option<String>,
    /// The mean IoU its authors give for it, in percent.
    #[serde(default)]
    pub miou: Option<f64>,
    /// Folders under `$SAPIENS_CHECKPOINT_ROOT` that the authors' layouts keep the file in.
    #[serde(default)]
    pub checkpoint_folders: Vec<String>,
}

/// Everything constant about one model.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelCard {
    /// The card's own name: `sapiens-seg-0.3b-goliath`.
    pub id: String,
    /// The published variant this is the card of; none for a user's own.
    pub variant: Option<Variant>,
    /// Architecture.
    pub family: Family,
    /// Sizes.
    pub network: Network,
    /// Input size and normalisation.
    pub input: Input,
    /// The classes in the order of the logits; 0 is the background.
    pub classes: Vec<Class>,
    /// Where weights are published; a user's own card may say nothing.
    pub weights: Option<PublishedWeights>,
}

/// The TOML as written; `classes` names a built-in list or is given as `[[class]]` tables.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CardFile {
    id: String,
    family: Family,
    network: Network,
    input: Input,
    #[serde(default)]
    classes: Option<String>,
    #[serde(default)]
    class: Vec<Class>,
    #[serde(default)]
    weights: Option<PublishedWeights>,
}

#[derive(Deserialize)]
struct ClassFile {
    class: Vec<Class>,
}

const CLASS_LISTS: [(&str, &str); 2] = [
    ("sapiens-28", include_str!("../cards/classes/sapiens-28.toml")),
    ("sapiens2-29", include_str!("../cards/classes/sapiens2-29.toml")),
];

/// Bounds that no Sapiens-like network comes near; they keep a hostile card from overflowing or filling memory.
const MAX_CHANNELS: usize = 1 << 16;
const MAX_LAYERS: usize = 1 << 10;
/// Largest side of the network's input.
pub(crate) const MAX_INPUT_SIDE: usize = 1 << 13;

impl ModelCard {
    /// The card of a published model.
    pub fn of(variant: Variant) -> Self {
        let mut card = Self::from_toml(variant.card_toml(), &format!("built-in card {variant}"))
            .unwrap_or_else(|error| unreachable!("{error}: a test reads every built-in card"));
        card.variant = Some(variant);
        card
    }

    /// Reads a user's own card.
    ///
    /// # Errors
    /// `Io` if the file can't be read, `InvalidCard` if it is no card or contradicts itself.
    pub fn load(path: &Path) -> Result<Self> {
        let text =
            std::fs::read_to_string(path).map_err(|error| SegmentError::io("read card", path, error))?;
        Self::from_toml(&text, &path.display().to_string())
    }

    /// Reads a card from text; `origin` names it in messages.
    ///
    /// # Errors
    /// `InvalidCard`, as for [`ModelCard::load`].
    pub fn from_toml(text: &str, origin: &str) -> Result<Self> {
        let file: CardFile = toml::from_str(text).map_err(|error| {
            SegmentError::new(
                ErrorKind::InvalidCard,
                format!("card {origin}: {}", error.to_string().trim_end()),
            )
        })?;
        let classes = match (&file.classes, file.class.is_empty()) {
            (Some(_), false) => {
                return Err(invalid(origin, "has both `classes` and [[class]] tables: expected one of them"));
            }
            (Some(list), true) => built_in_classes(list, origin)?,
            (None, _) => file.class,
        };
        let card = ModelCard {
            id: file.id,
            variant: None,
            family: file.family,
            network: file.network,
            input: file.input,
            classes,
            weights: file.weights,
        };
        card.check(origin)?;
        Ok(card)
    }

    /// What people call this model: the variant's nick, or the card's id.
    pub fn name(&self) -> &str {
        self.variant.map_or(self.id.as_str(), |variant| variant.nick())
    }

    /// Index of the class called `name`, or numbered so (`"12"`).
    ///
    /// # Errors
    /// `UnknownName`, listing the classes there are.
    pub fn class_index(&self, name: &str) -> Result<u8> {
        let by_name = self.classes.iter().position(|class| class.name.eq_ignore_ascii_case(name));
        let by_number = || name.parse::<usize>().ok().filter(|&index| index < self.classes.len());
        by_name.or_else(by_number).map(|index| index as u8).ok_or_else(|| {
            let known: Vec<_> = self.classes.iter().map(|class| class.name.as_str()).collect();
            SegmentError::new(
                ErrorKind::UnknownName,
                format!(
                    "unknown class {name:?}: model {} has 0 to {}: {}",
                    self.name(),
                    self.classes.len() - 1,
                    known.join(", ")
                ),
            )
        })
    }

    fn check(&self, origin: &str) -> Result<()> {
        let Network { embed_dim, layers, heads, ffn_dim, full_kv_layers, deconv_channels, conv_channels } =
            &self.network;
        let expect = |holds: bool, what: String| if holds { Ok(()) } else { Err(invalid(origin, &what)) };
        let channels =
            [("network.embed_dim", embed_dim), ("network.heads", heads), ("network.ffn_dim", ffn_dim)]
                .into_iter()
                .chain(deconv_channels.iter().map(|c| ("network.deconv_channels", c)))
                .chain(conv_channels.iter().map(|c| ("network.conv_channels", c)));
        for (key, &value) in channels {
            expect(
                (1..=MAX_CHANNELS).contains(&value),
                format!("{key} is {value}: expected 1 to {MAX_CHANNELS}"),
            )?;
        }
        expect(
            (1..=MAX_LAYERS).contains(layers),
            format!("network.layers is {layers}: expected 1 to {MAX_LAYERS}"),
        )?;
        expect(
            embed_dim.is_multiple_of(*heads),
            format!("network.embed_dim {embed_dim} is no multiple of network.heads {heads}"),
        )?;
        let deconvs = deconv_channels.len();
        expect(
            (1..=4).contains(&deconvs),
            format!(
                "network.deconv_channels has {deconvs} entries: expected 1 to 4 (each doubles the 1/16 scale)"
            ),
        )?;
        expect(
            conv_channels.len() <= 8,
            format!("network.conv_channels has {} entries: expected at most 8", conv_channels.len()),
        )?;
        match (self.family, full_kv_layers) {
            (Family::Sapiens, Some(_)) => {
                return Err(invalid(origin, "network.full_kv_layers is set: the sapiens family has none"));
            }
            (Family::Sapiens2, None) => {
                return Err(invalid(
                    origin,
                    "network.full_kv_layers is missing: the sapiens2 family needs it",
                ));
            }
            (Family::Sapiens2, Some(full)) => {
                let head_dim = self.network.head_dim();
                expect(
                    head_dim.is_multiple_of(4),
                    format!(
                        "the head dim, network.embed_dim / network.heads, is {head_dim}: the rotary embedding needs a multiple of 4"
                    ),
                )?;
                let grouped = full.checked_mul(2).is_some_and(|both| both < *layers);
                expect(
                    !grouped || heads.is_multiple_of(2),
                    format!("network.heads is {heads}: layers with grouped keys need an even number"),
                )?;
            }
            (Family::Sapiens, None) => {}
        }
        for (key, value) in [("input.height", self.input.height), ("input.width", self.input.width)] {
            expect(
                value.is_multiple_of(16) && (16..=MAX_INPUT_SIDE).contains(&value),
                format!("{key} is {value}: expected a multiple of 16 from 16 to {MAX_INPUT_SIDE}"),
            )?;
        }
        for (key, values) in [("input.mean", self.input.mean), ("input.std", self.input.std)] {
            let positive = key == "input.mean" || values.iter().all(|&v| v > 0.0);
            expect(
                positive && values.iter().all(|v| v.is_finite()),
                format!("{key} is {values:?}: expected finite numbers, std above 0"),
            )?;
        }
        let count = self.classes.len();
        expect((2..=256).contains(&count), format!("has {count} classes: expected 2 to 256"))?;
        for (index, class) in self.classes.iter().enumerate() {
            expect(!class.name.is_empty(), format!("class {index} has an empty name"))?;
            let twice = self.classes[..index].iter().any(|c| c.name.eq_ignore_ascii_case(&class.name));
            expect(!twice, format!("class name {:?} is used twice", class.name))?;
        }
        for class in &self.classes {
            if let Some(mirror) = &class.mirror {
                let back = self.classes.iter().find(|c| c.name == *mirror).and_then(|c| c.mirror.as_ref());
                expect(
                    back == Some(&class.name),
                    format!(
                        "class {:?} mirrors {mirror:?}: expected a class of that name that mirrors it back",
                        class.name
                    ),
                )?;
            }
        }
        if let Some(digits) = self.weights.as_ref().and_then(|w| w.sha256.as_ref()) {
            let hex = digits.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
            expect(
                hex && (8..=64).contains(&digits.len()),
                format!("weights.sha256 is {digits:?}: expected 8 to 64 lower-case hex digits"),
            )?;
        }
        Ok(())
    }
}

fn built_in_classes(list: &str, origin: &str) -> Result<Vec<Class>> {
    let Some((_, text)) = CLASS_LISTS.iter().find(|(name, _)| *name == list) else {
        let known: Vec<_> = CLASS_LISTS.iter().map(|(name, _)| *name).collect();
        return Err(invalid(
            origin,
            &format!("classes is {list:?}: expected {} or [[class]] tables", known.join(", ")),
        ));
    };
    toml::from_str::<ClassFile>(text)
        .map(|file| file.class)
        .map_err(|error| invalid(origin, &format!("class list {list}: {error}")))
}

fn invalid(origin: &str, what: &str) -> SegmentError {
    SegmentError::new(ErrorKind::InvalidCard, format!("card {origin}: {what}"))
}

#[cfg(test)]
#[path = "card_tests.rs"]
mod tests;
