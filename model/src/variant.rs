//! The built-in models by the short names people type. Knows the cards, nothing else.

use std::fmt;
use std::str::FromStr;

use crate::error::{ErrorKind, SegmentError};

/// A published model, or the one that comes with the project. Its facts are in its [`ModelCard`](crate::ModelCard).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Variant {
    /// Sapiens 0.3b, 28 classes.
    Sapiens03b,
    /// Sapiens 0.6b, 28 classes.
    Sapiens06b,
    /// Sapiens 1b, 28 classes.
    Sapiens1b,
    /// Sapiens 2b, 28 classes. Its segmentation weights are not known to be published.
    Sapiens2b,
    /// Sapiens2 0.4b, 29 classes.
    Sapiens2_04b,
    /// Sapiens2 0.8b, 29 classes.
    Sapiens2_08b,
    /// Sapiens2 1b, 29 classes.
    Sapiens2_1b,
    /// Sapiens2 5b, 29 classes.
    Sapiens2_5b,
    /// A small network of the second family's architecture whose weights are built in. It was trained on drawn figures
    /// and knows nothing else.
    Demo,
}

/// Variant, nick, and the text of its card: the one table of what is built in.
const BUILT_IN: [(Variant, &str, &str); 9] = [
    (Variant::Sapiens03b, "0.3b", include_str!("../cards/sapiens-0.3b.toml")),
    (Variant::Sapiens06b, "0.6b", include_str!("../cards/sapiens-0.6b.toml")),
    (Variant::Sapiens1b, "1b", include_str!("../cards/sapiens-1b.toml")),
    (Variant::Sapiens2b, "2b", include_str!("../cards/sapiens-2b.toml")),
    (Variant::Sapiens2_04b, "sapiens2-0.4b", include_str!("../cards/sapiens2-0.4b.toml")),
    (Variant::Sapiens2_08b, "sapiens2-0.8b", include_str!("../cards/sapiens2-0.8b.toml")),
    (Variant::Sapiens2_1b, "sapiens2-1b", include_str!("../cards/sapiens2-1b.toml")),
    (Variant::Sapiens2_5b, "sapiens2-5b", include_str!("../cards/sapiens2-5b.toml")),
    (Variant::Demo, "demo", include_str!("../cards/demo.toml")),
];

impl Variant {
    /// Every built-in model: the published ones, smallest first within their family, and the demo model.
    pub fn all() -> impl ExactSizeIterator<Item = Variant> {
        BUILT_IN.iter().map(|row| row.0)
    }

    /// The name people type: `0.3b`, `sapiens2-1b`.
    pub fn nick(self) -> &'static str {
        self.row().1
    }

    /// Whether the weights come with the program.
    pub fn has_built_in_weights(self) -> bool {
        self.built_in_weights().is_some()
    }

    /// The weights that come with the program, as safetensors.
    pub(crate) fn built_in_weights(self) -> Option<&'static [u8]> {
        match self {
            Variant::Demo => Some(include_bytes!("../weights/demo.safetensors")),
            _ => None,
        }
    }

    pub(crate) fn card_toml(self) -> &'static str {
        self.row().2
    }

    fn row(self) -> &'static (Variant, &'static str, &'static str) {
        // Declaration order is table order; a test holds the two together.
        &BUILT_IN[self as usize]
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.nick())
    }
}

impl FromStr for Variant {
    type Err = SegmentError;

    /// Reads a nick (`0.3b`) or a card id (`sapiens-seg-0.3b-goliath`).
    fn from_str(name: &str) -> Result<Self, SegmentError> {
        Variant::all().find(|v| v.nick() == name || v.card_id() == name).ok_or_else(|| {
            let known: Vec<_> = Variant::all().map(Variant::nick).collect();
            SegmentError::new(
                ErrorKind::UnknownName,
                format!("unknown variant {name:?}: expected one of {}", known.join(", ")),
            )
        })
    }
}

impl Variant {
    /// The `id` line of the card, read without parsing the rest.
    fn card_id(self) -> &'static str {
        self.card_toml().lines().find_map(|line| line.strip_prefix("id = ")).unwrap_or("").trim_matches('"')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_is_in_declaration_order_and_names_round_trip() {
        for (index, variant) in Variant::all().enumerate() {
            assert_eq!(variant as usize, index);
            assert_eq!(variant.nick().parse::<Variant>().unwrap(), variant);
            assert_eq!(variant.card_id().parse::<Variant>().unwrap(), variant);
        }
    }

    #[test]
    fn unknown_variant_lists_the_known_ones() {
        let error = "3b".parse::<Variant>().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnknownName);
        assert!(
            error.to_string().contains("\"3b\"") && error.to_string().contains("sapiens2-0.4b"),
            "{error}"
        );
    }
}
