//! The size of the network's input: the card's, one of the caller's, or the frame's own.

use std::fmt;
use std::str::FromStr;

use crate::card::{MAX_INPUT_SIDE, ModelCard};
use crate::error::{ErrorKind, Result, SegmentError};
use crate::weights::PATCH;

/// With `native`, frames are padded to a multiple of this.
const NATIVE_STEP: usize = 32;

/// Which size frames are brought to before the network sees them. Smaller is faster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum InputSize {
    /// The card's: what the model was trained for.
    #[default]
    Card,
    /// This size, whatever the frame's.
    Fixed {
        /// Columns, a multiple of 16.
        width: usize,
        /// Rows, a multiple of 16.
        height: usize,
    },
    /// The frame's own size, padded right and bottom with the mean colour to a multiple of 32.
    Native,
}

/// What a frame becomes: its pixels are resized to `image` and lie at the top left of `canvas`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Placement {
    /// Width and height of the resized frame.
    pub image: (usize, usize),
    /// Width and height of the network's input.
    pub canvas: (usize, usize),
}

impl InputSize {
    /// Checks a fixed size; the others need no check.
    ///
    /// # Errors
    /// `InvalidInputSize` if a side is no multiple of 16 or out of bounds.
    pub fn check(self) -> Result<Self> {
        if let InputSize::Fixed { width, height } = self {
            for (name, side) in [("width", width), ("height", height)] {
                if !side.is_multiple_of(PATCH) || !(PATCH..=MAX_INPUT_SIDE).contains(&side) {
                    return Err(SegmentError::new(
                        ErrorKind::InvalidInputSize,
                        format!(
                            "input size {self}: {name} is {side}, expected a multiple of {PATCH} from {PATCH} to {MAX_INPUT_SIDE}"
                        ),
                    ));
                }
            }
        }
        Ok(self)
    }

    /// Width and height of the network's input for a `width` x `height` frame.
    ///
    /// # Errors
    /// `InvalidInputSize` if the frame is too large for its native size.
    pub fn network_input(self, card: &ModelCard, width: usize, height: usize) -> Result<(usize, usize)> {
        Ok(self.place(card, width, height)?.canvas)
    }

    /// Where a `width` x `height` frame goes.
    pub(crate) fn place(self, card: &ModelCard, width: usize, height: usize) -> Result<Placement> {
        let whole = |width, height| Placement { image: (width, height), canvas: (width, height) };
        match self {
            InputSize::Card => Ok(whole(card.input.width, card.input.height)),
            InputSize::Fixed { width, height } => Ok(whole(width, height)),
            InputSize::Native => {
                let canvas = (width.next_multiple_of(NATIVE_STEP), height.next_multiple_of(NATIVE_STEP));
                if canvas.0.max(canvas.1) > MAX_INPUT_SIDE {
                    return Err(SegmentError::new(
                        ErrorKind::InvalidInputSize,
                        format!(
                            "input size native with a frame of {width} x {height}: expected at most {MAX_INPUT_SIDE} each way"
                        ),
                    ));
                }
                Ok(Placement { image: (width, height), canvas })
            }
        }
    }
}

impl fmt::Display for InputSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InputSize::Card => f.write_str("card"),
            InputSize::Fixed { width, height } => write!(f, "width={width},height={height}"),
            InputSize::Native => f.write_str("native"),
        }
    }
}

impl FromStr for InputSize {
    type Err = SegmentError;

    /// Reads `card`, `native`, or `width=W,height=H` (in any order).
    fn from_str(text: &str) -> Result<Self> {
        match text {
            "card" => return Ok(InputSize::Card),
            "native" => return Ok(InputSize::Native),
            _ => {}
        }
        let invalid = || {
            SegmentError::new(
                ErrorKind::InvalidInputSize,
                format!("input size {text:?}: expected card, native or width=W,height=H"),
            )
        };
        let (mut width, mut height) = (None, None);
        for part in text.split(',') {
            let (key, value) = part.split_once('=').ok_or_else(invalid)?;
            let side = match key.trim() {
                "width" => &mut width,
                "height" => &mut height,
                _ => return Err(invalid()),
            };
            let value = value.trim().parse().map_err(|_| invalid())?;
            if side.replace(value).is_some() {
                return Err(invalid());
            }
        }
        let (width, height) = width.zip(height).ok_or_else(invalid)?;
        InputSize::Fixed { width, height }.check()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::variant::Variant;

    #[test]
    fn sizes_read_and_print() {
        for text in ["card", "native", "width=768,height=1024"] {
            assert_eq!(text.parse::<InputSize>().unwrap().to_string(), text);
        }
        let swapped = "height=512, width=384".parse::<InputSize>().unwrap();
        assert_eq!(swapped, InputSize::Fixed { width: 384, height: 512 });
    }

    #[test]
    fn bad_sizes_are_refused() {
        for (text, expected) in [
            ("768x1024", "width=W,height=H"),
            ("width=768", "width=W,height=H"),
            ("width=768,width=768", "width=W,height=H"),
            ("width=768,height=-16", "width=W,height=H"),
            ("width=770,height=1024", "width is 770, expected a multiple of 16"),
            ("width=768,height=0", "height is 0"),
            ("width=768,height=1000000000000", "height is 1000000000000"),
        ] {
            let error = text.parse::<InputSize>().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInputSize);
            assert!(error.to_string().contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn native_pads_to_a_multiple_of_32() {
        let card = ModelCard::of(Variant::Sapiens1b);
        let place = |width, height| InputSize::Native.place(&card, width, height);
        assert_eq!(place(61, 45).unwrap(), Placement { image: (61, 45), canvas: (64, 64) });
        assert_eq!(place(1, 32).unwrap(), Placement { image: (1, 32), canvas: (32, 32) });
        assert!(place(10_000, 32).is_err());
        let placed = InputSize::Card.place(&card, 1920, 1080).unwrap();
        assert_eq!(placed, Placement { image: (768, 1024), canvas: (768, 1024) });
    }
}
