//! A colour and a choice of classes for pictures of label maps. Knows cards, no engine and no pixels.

use crate::card::ModelCard;
use crate::error::Result;

/// A colour per class and which classes are shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Palette {
    colors: [[u8; 3]; 256],
    shown: [bool; 256],
    classes: usize,
}

impl Palette {
    /// The card's colours, everything but the background shown.
    pub fn of(card: &ModelCard) -> Self {
        let mut colors = [[0; 3]; 256];
        for (color, class) in colors.iter_mut().zip(&card.classes) {
            *color = class.color;
        }
        let classes = card.classes.len();
        Self { colors, shown: std::array::from_fn(|label| (1..classes).contains(&label)), classes }
    }

    /// The same colours with only `names` (names or numbers of the card's classes) shown.
    ///
    /// # Errors
    /// `UnknownName` if the card has no such class.
    pub fn showing<'a>(mut self, card: &ModelCard, names: impl IntoIterator<Item = &'a str>) -> Result<Self> {
        self.shown = [false; 256];
        for name in names {
            self.shown[usize::from(card.class_index(name)?)] = true;
        }
        Ok(self)
    }

    /// The colour of `label`: R, G, B.
    pub fn color(&self, label: u8) -> [u8; 3] {
        self.colors[usize::from(label)]
    }

    /// Whether `label` is shown.
    pub fn is_shown(&self, label: u8) -> bool {
        self.shown[usize::from(label)]
    }

    /// R, G, B of each of the card's classes in turn, as image files want it.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.colors[..self.classes].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::variant::Variant;

    #[test]
    fn shows_all_but_the_background_or_what_is_asked() {
        let card = ModelCard::of(Variant::Sapiens2_1b);
        let palette = Palette::of(&card);
        assert!(!palette.is_shown(0) && (1..29).all(|c| palette.is_shown(c)) && !palette.is_shown(29));
        assert_eq!((palette.color(2), palette.to_bytes().len()), ([14, 204, 182], 29 * 3));
        let palette = palette.showing(&card, ["Hair", "0"]).unwrap();
        let shown: Vec<_> = (0..=255).filter(|&c| palette.is_shown(c)).collect();
        assert_eq!(shown, [0, 4]);
        assert!(palette.showing(&card, ["Tail"]).is_err());
    }
}
