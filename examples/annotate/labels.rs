//! A frame's labels as files: indexed PNGs, and lines of `labels.jsonl`. Knows no GStreamer.

use std::fs::File;
use std::io::{self, BufReader, Write};
use std::path::Path;

use sapiens_model::{LabelMap, ModelCard, Palette};
use serde::{Deserialize, Serialize};

/// What is kept of labels and how they look.
#[derive(Debug)]
pub(crate) struct Look {
    names: Vec<String>,
    pub palette: Palette,
    pub opacity: f64,
    /// What each label becomes: itself, or background.
    becomes: [u8; 256],
}

impl Look {
    /// With `classes` kept, or all.
    ///
    /// # Errors
    /// If the model has no such class.
    pub(crate) fn new(
        card: &ModelCard,
        classes: Option<&[String]>,
        opacity: f64,
    ) -> sapiens_model::Result<Self> {
        let mut becomes = std::array::from_fn(|label| label as u8);
        if let Some(classes) = classes {
            becomes = [0; 256];
            for name in classes {
                let class = card.class_index(name.trim())?;
                becomes[usize::from(class)] = class;
            }
        }
        let names = card.classes.iter().map(|class| class.name.clone()).collect();
        // Of what is not kept nothing is left to be shown.
        Ok(Self { names, palette: Palette::of(card), opacity, becomes })
    }

    /// Numbers of the classes that are kept, besides the background.
    pub(crate) fn kept(&self) -> Vec<u8> {
        (1..self.names.len() as u8).filter(|class| self.becomes[usize::from(*class)] == *class).collect()
    }

    /// Turns what isn't kept into background.
    pub(crate) fn apply(&self, labels: &mut LabelMap) {
        labels.labels_mut().iter_mut().for_each(|label| *label = self.becomes[usize::from(*label)]);
    }

    /// What `labels.jsonl` says of a frame.
    pub(crate) fn record(&self, frame: u64, pts: Option<u64>, labels: &LabelMap) -> Record {
        let classes = labels.regions().into_iter().map(|region| ClassRecord {
            name: self.names.get(usize::from(region.class)).cloned().unwrap_or_default(),
            number: region.class,
            pixels: region.pixels as u64,
            r#box: Box {
                x: region.bounds.x as u32,
                y: region.bounds.y as u32,
                width: region.bounds.width as u32,
                height: region.bounds.height as u32,
            },
        });
        Record {
            frame,
            pts,
            width: labels.width() as u32,
            height: labels.height() as u32,
            classes: classes.collect(),
        }
    }
}

/// A line of `labels.jsonl`.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// Counted from 0 over all frames of the input, chosen or not.
    pub frame: u64,
    /// Nanoseconds from the input's beginning.
    pub pts: Option<u64>,
    pub width: u32,
    pub height: u32,
    pub classes: Vec<ClassRecord>,
}

/// What a frame has of a class.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ClassRecord {
    pub name: String,
    pub number: u8,
    pub pixels: u64,
    pub r#box: Box,
}

/// The smallest rectangle around all pixels of a class.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Box {
    pub x: u32,
    pub y: u32,
    pub width: u32,
    pub height: u32,
}

impl Record {
    /// Writes the line.
    pub(crate) fn write(&self, to: &mut impl Write) -> io::Result<()> {
        serde_json::to_writer(&mut *to, self)?;
        to.write_all(b"\n")
    }
}

/// A frame's file name.
pub(crate) fn file_name(frame: u64) -> String {
    format!("{frame:08}.png")
}

/// Reads what [`picture::write_labels`](sapiens_cli::picture::write_labels) wrote; none if there's no such file, or it isn't whole, as may be after a power cut.
pub(crate) fn read_png(path: &Path) -> Option<LabelMap> {
    let mut reader = png::Decoder::new(BufReader::new(File::open(path).ok()?)).read_info().ok()?;
    let mut labels = vec![0; reader.output_buffer_size()?];
    let info = reader.next_frame(&mut labels).ok()?;
    reader.finish().ok()?;
    let indexed = (info.color_type, info.bit_depth) == (png::ColorType::Indexed, png::BitDepth::Eight);
    LabelMap::from_labels(info.width as usize, info.height as usize, labels).filter(|_| indexed)
}

#[cfg(test)]
mod tests {
    use sapiens_cli::picture::write_labels;
    use sapiens_model::Variant;

    use super::*;

    #[test]
    fn only_what_is_kept_is_left() {
        let card = ModelCard::of(Variant::Sapiens2_04b);
        let look = Look::new(&card, Some(&["Hair".to_owned(), " 2".to_owned()]), 0.5).unwrap();
        assert_eq!(look.kept(), [2, 4]);
        let mut labels = LabelMap::from_labels(3, 2, vec![4, 4, 7, 0, 2, 9]).unwrap();
        look.apply(&mut labels);
        assert_eq!(labels.labels(), [4, 4, 0, 0, 2, 0]);
        let record = look.record(7, Some(5), &labels);
        let mut line = Vec::new();
        record.write(&mut line).unwrap();
        assert_eq!(serde_json::from_slice::<Record>(&line).unwrap(), record);
        assert_eq!(
            record.classes.iter().map(|class| (class.number, class.pixels)).collect::<Vec<_>>(),
            [(0, 3), (2, 1), (4, 2)]
        );
        assert!(Look::new(&card, Some(&["Tail".to_owned()]), 0.5).is_err());
    }

    #[test]
    fn a_png_that_was_cut_short_is_none() {
        let card = ModelCard::of(Variant::Sapiens2_04b);
        let labels = LabelMap::from_labels(31, 17, (0..31 * 17).map(|n| (n % 29) as u8).collect()).unwrap();
        let mut bytes = Vec::new();
        write_labels(&mut bytes, &labels, &Palette::of(&card)).unwrap();
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), &bytes).unwrap();
        assert_eq!(read_png(file.path()), Some(labels));
        for length in [0, 20, bytes.len() / 2, bytes.len() - 1] {
            std::fs::write(file.path(), &bytes[..length]).unwrap();
            assert_eq!(read_png(file.path()), None, "{length} bytes of {}", bytes.len());
        }
    }
}
