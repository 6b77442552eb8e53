//! How well labels match the exact ones: IoU per class, and sides taken for each other.

use crate::CLASSES;
use crate::class::{BACKGROUND, mirror};

/// In an image a class counts where at least this many of its pixels are: less is a speck that no resize keeps.
pub const LEAST_PIXELS: u64 = 64;

/// Sums over images.
#[derive(Debug, Clone, PartialEq)]
pub struct Score {
    images: u64,
    intersection: [u64; CLASSES],
    union: [u64; CLASSES],
    sided: u64,
    confused: u64,
}

impl Default for Score {
    fn default() -> Self {
        Self { images: 0, intersection: [0; CLASSES], union: [0; CLASSES], sided: 0, confused: 0 }
    }
}

impl Score {
    /// Adds an image: its exact labels, and those found.
    ///
    /// # Panics
    /// If the two differ in length or a label is no class.
    pub fn add(&mut self, exact: &[u8], found: &[u8]) {
        assert_eq!(exact.len(), found.len());
        let mut confusion = [[0_u64; CLASSES]; CLASSES];
        for (&exact, &found) in exact.iter().zip(found) {
            confusion[usize::from(exact)][usize::from(found)] += 1;
        }
        self.images += 1;
        for class in 0..CLASSES {
            let is: u64 = confusion[class].iter().sum();
            let said: u64 = confusion.iter().map(|row| row[class]).sum();
            if is >= LEAST_PIXELS {
                self.intersection[class] += confusion[class][class];
                self.union[class] += is + said - confusion[class][class];
            }
            if let Some(mirror) = mirror(class as u8) {
                self.sided += is;
                self.confused += confusion[class][usize::from(mirror)];
            }
        }
    }

    /// Adds another score's images.
    pub fn merge(&mut self, other: &Self) {
        self.images += other.images;
        self.sided += other.sided;
        self.confused += other.confused;
        for class in 0..CLASSES {
            self.intersection[class] += other.intersection[class];
            self.union[class] += other.union[class];
        }
    }

    /// Images added.
    pub fn images(&self) -> u64 {
        self.images
    }

    /// IoU of a class over the images that have enough of it; nothing where none has.
    pub fn iou(&self, class: u8) -> Option<f64> {
        let class = usize::from(class);
        let union = *self.union.get(class)?;
        (union > 0).then(|| self.intersection[class] as f64 / union as f64)
    }

    /// IoU of the background.
    pub fn background_iou(&self) -> f64 {
        self.iou(BACKGROUND).unwrap_or(0.0)
    }

    /// Mean of the classes' IoU, the background's among them.
    pub fn mean_iou(&self) -> f64 {
        let all: Vec<_> = (0..CLASSES as u8).filter_map(|class| self.iou(class)).collect();
        all.iter().sum::<f64>() / all.len().max(1) as f64
    }

    /// Share of the pixels of classes with sides that were given the same class of the other side.
    pub fn side_confusion(&self) -> f64 {
        self.confused as f64 / self.sided.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::class;

    #[test]
    fn a_hand_made_image() {
        let exact =
            [vec![class::BACKGROUND; 300], vec![class::HAIR; 100], vec![class::LEFT_HAND; 100]].concat();
        let mut found = exact.clone();
        // 50 of the hair to background, 25 of the left hand to the right one.
        found[300..350].fill(class::BACKGROUND);
        found[400..425].fill(class::RIGHT_HAND);
        let mut score = Score::default();
        score.add(&exact, &found);
        assert_eq!(score.background_iou(), 300.0 / 350.0);
        assert_eq!(score.iou(class::HAIR), Some(0.5));
        assert_eq!(score.iou(class::LEFT_HAND), Some(0.75));
        // The right hand isn't in the image: it has no IoU, however much of it was found.
        assert_eq!(score.iou(class::RIGHT_HAND), None);
        assert!((score.mean_iou() - (300.0 / 350.0 + 0.5 + 0.75) / 3.0).abs() < 1e-12);
        assert_eq!(score.side_confusion(), 0.25);
        let mut twice = score.clone();
        twice.merge(&score);
        assert_eq!((twice.images(), twice.mean_iou()), (2, score.mean_iou()));
    }

    #[test]
    fn specks_do_not_count() {
        let mut exact = vec![class::BACKGROUND; 1000];
        exact[..63].fill(class::TONGUE);
        let mut score = Score::default();
        score.add(&exact, &vec![class::BACKGROUND; 1000]);
        assert_eq!(score.iou(class::TONGUE), None);
        exact[..64].fill(class::TONGUE);
        score.add(&exact, &vec![class::BACKGROUND; 1000]);
        assert_eq!(score.iou(class::TONGUE), Some(0.0));
    }
}
