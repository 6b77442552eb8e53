//! How good labels are: intersection over union per class, and left taken for right.

use serde::Serialize;

/// A class counts in an image from this many pixels on, at the frame's own size.
pub const MIN_PIXELS: u64 = 64;

/// Counts over images.
#[derive(Debug, Clone)]
pub struct Counts {
    mirror: Vec<u8>,
    intersection: Vec<u64>,
    union: Vec<u64>,
    /// Pixels of classes with sides, and those of them labelled as the other side.
    sided: u64,
    confused: u64,
}

/// What [`Counts`] come to.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Score {
    /// Over the classes that were seen.
    pub mean_iou: f64,
    /// Per class; none where no image showed enough of it.
    pub iou: Vec<Option<f64>>,
    /// Share of the pixels of sided classes that got the other side's label.
    pub confused: f64,
}

impl Counts {
    /// Nothing yet; `mirror` has for every class the one on the body's other side, or itself.
    pub fn new(mirror: &[u8]) -> Self {
        let zeros = vec![0; mirror.len()];
        Self { mirror: mirror.to_vec(), intersection: zeros.clone(), union: zeros, sided: 0, confused: 0 }
    }

    /// Adds one image.
    pub fn add(&mut self, truth: &[u8], labels: &[u8]) {
        let classes = self.mirror.len();
        let mut table = vec![0u64; classes * classes];
        for (&t, &l) in truth.iter().zip(labels) {
            table[usize::from(t) * classes + usize::from(l)] += 1;
        }
        for c in 0..classes {
            let row = &table[c * classes..][..classes];
            let size: u64 = row.iter().sum();
            let mirror = usize::from(self.mirror[c]);
            if mirror != c {
                self.sided += size;
                self.confused += row[mirror];
            }
            if size >= MIN_PIXELS {
                let labelled: u64 = (0..classes).map(|t| table[t * classes + c]).sum();
                self.intersection[c] += row[c];
                self.union[c] += size + labelled - row[c];
            }
        }
    }

    /// What the images so far come to.
    pub fn score(&self) -> Score {
        let iou: Vec<_> = self
            .intersection
            .iter()
            .zip(&self.union)
            .map(|(&i, &u)| (u > 0).then(|| i as f64 / u as f64))
            .collect();
        let seen: Vec<f64> = iou.iter().copied().flatten().collect();
        Score {
            mean_iou: seen.iter().sum::<f64>() / seen.len().max(1) as f64,
            iou,
            confused: self.confused as f64 / self.sided.max(1) as f64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_hand() {
        // Classes 1 and 2 mirror each other. 100 pixels each of 0 and 1, 10 of 2, which are too few to count.
        let mut counts = Counts::new(&[0, 2, 1]);
        let truth: Vec<u8> = [vec![0; 100], vec![1; 100], vec![2; 10]].concat();
        let labels: Vec<u8> = [vec![0; 90], vec![1; 10], vec![1; 80], vec![2; 20], vec![2; 10]].concat();
        counts.add(&truth, &labels);
        let score = counts.score();
        assert_eq!(score.iou, [Some(0.9), Some(80.0 / 110.0), None]);
        assert_eq!(score.mean_iou, (0.9 + 80.0 / 110.0) / 2.0);
        assert_eq!(score.confused, 20.0 / 110.0);
    }
}
