//! The result: a class for every pixel of the frame. Knows no engine and no card.

/// A class per pixel, at the frame's own size.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LabelMap {
    width: usize,
    height: usize,
    labels: Vec<u8>,
}

/// The smallest upright rectangle around some pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BoundingBox {
    /// Leftmost column.
    pub x: usize,
    /// Topmost row.
    pub y: usize,
    /// Columns.
    pub width: usize,
    /// Rows.
    pub height: usize,
}

/// What one class covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClassRegion {
    /// The label.
    pub class: u8,
    /// Pixels with it.
    pub pixels: usize,
    /// Around all of them.
    pub bounds: BoundingBox,
}

impl LabelMap {
    /// A map of background.
    pub fn new(width: usize, height: usize) -> Self {
        Self { width, height, labels: vec![0; width * height] }
    }

    /// A map of these labels, row by row; none if there are not `width * height` of them.
    pub fn from_labels(width: usize, height: usize, labels: Vec<u8>) -> Option<Self> {
        (width.checked_mul(height) == Some(labels.len())).then_some(Self { width, height, labels })
    }

    /// Changes the size, keeping the memory where it is large enough. What the labels are then is not defined.
    pub fn resize(&mut self, width: usize, height: usize) {
        self.width = width;
        self.height = height;
        self.labels.resize(width * height, 0);
    }

    /// Pixels in a row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Rows.
    pub fn height(&self) -> usize {
        self.height
    }

    /// The labels, row by row without padding.
    pub fn labels(&self) -> &[u8] {
        &self.labels
    }

    /// The labels, to write.
    pub fn labels_mut(&mut self) -> &mut [u8] {
        &mut self.labels
    }

    /// The labels' memory, to keep.
    pub fn into_labels(self) -> Vec<u8> {
        self.labels
    }

    /// Row `y`.
    ///
    /// # Panics
    /// If there is no such row.
    pub fn row(&self, y: usize) -> &[u8] {
        &self.labels[y * self.width..][..self.width]
    }

    /// The classes there are, lowest first, each with its pixels and their bounding box.
    pub fn regions(&self) -> Vec<ClassRegion> {
        let mut extents = [const { Extent::EMPTY }; 256];
        for y in 0..self.height {
            let mut x = 0;
            for run in self.row(y).chunk_by(|a, b| a == b) {
                extents[usize::from(run[0])].add(x, x + run.len(), y);
                x += run.len();
            }
        }
        let present = extents.iter().enumerate().filter(|(_, extent)| extent.pixels > 0);
        present.map(|(class, extent)| extent.region(class as u8)).collect()
    }
}

/// A region while it is being gathered.
struct Extent {
    pixels: usize,
    left: usize,
    right: usize,
    top: usize,
    bottom: usize,
}

impl Extent {
    const EMPTY: Self = Self { pixels: 0, left: usize::MAX, right: 0, top: usize::MAX, bottom: 0 };

    /// Adds the pixels `left..right` of row `y`.
    fn add(&mut self, left: usize, right: usize, y: usize) {
        self.pixels += right - left;
        self.left = self.left.min(left);
        self.right = self.right.max(right);
        self.top = self.top.min(y);
        self.bottom = self.bottom.max(y + 1);
    }

    fn region(&self, class: u8) -> ClassRegion {
        let Extent { pixels, left, right, top, bottom } = *self;
        let bounds = BoundingBox { x: left, y: top, width: right - left, height: bottom - top };
        ClassRegion { class, pixels, bounds }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_count_and_enclose_each_class() {
        #[rustfmt::skip]
        let labels = vec![
            0, 0, 7, 0, 0,
            0, 7, 7, 0, 255,
            0, 0, 0, 0, 7,
        ];
        let map = LabelMap::from_labels(5, 3, labels).unwrap();
        let region = |class, pixels, x, y, width, height| ClassRegion {
            class,
            pixels,
            bounds: BoundingBox { x, y, width, height },
        };
        assert_eq!(
            map.regions(),
            [region(0, 10, 0, 0, 5, 3), region(7, 4, 1, 0, 4, 3), region(255, 1, 4, 1, 1, 1)]
        );
    }

    #[test]
    fn regions_agree_with_counting_pixel_by_pixel() {
        let (width, height) = (61, 45);
        let labels: Vec<u8> =
            (0..width * height).map(|i: usize| ((i * i / 37 + i / 61) % 29) as u8).collect();
        let map = LabelMap::from_labels(width, height, labels.clone()).unwrap();
        for region in map.regions() {
            let mine: Vec<_> = (0..labels.len()).filter(|&i| labels[i] == region.class).collect();
            let xs = || mine.iter().map(|i| i % width);
            let ys = || mine.iter().map(|i| i / width);
            assert_eq!(region.pixels, mine.len());
            let BoundingBox { x, y, width, height } = region.bounds;
            assert_eq!((x, x + width - 1), (xs().min().unwrap(), xs().max().unwrap()));
            assert_eq!((y, y + height - 1), (ys().min().unwrap(), ys().max().unwrap()));
        }
        assert_eq!(map.regions().iter().map(|r| r.pixels).sum::<usize>(), width * height);
    }

    #[test]
    fn an_empty_map_has_no_regions_and_a_wrong_length_no_map() {
        assert!(LabelMap::default().regions().is_empty());
        assert!(LabelMap::from_labels(2, 2, vec![0; 5]).is_none());
        assert!(LabelMap::from_labels(usize::MAX, 2, vec![0; 5]).is_none());
    }

    #[test]
    fn resizing_keeps_the_memory() {
        let mut map = LabelMap::new(100, 100);
        let before = map.labels().as_ptr();
        map.resize(50, 20);
        assert_eq!((map.labels().as_ptr(), map.labels().len()), (before, 1000));
    }
}
