//! Bilinear resize of logits fused with the argmax over classes: labels at the frame's size, made straight from the
//! network's output. Full-size logits never exist (a 12 megapixel frame with 29 classes would need 1.4 GB).
//!
//! The arithmetic is PyTorch's `upsample_bilinear2d` with `align_corners = false` in float32: first along x in each of
//! the two source rows, then along y.

use std::ops::Range;

/// Pixels handled together: a cache line of float32.
const BLOCK: usize = 16;

/// Logits of one image: `[classes, height, width]`, dense.
#[derive(Clone, Copy, Debug)]
pub struct Logits<'a> {
    data: &'a [f32],
    classes: usize,
    height: usize,
    width: usize,
}

impl<'a> Logits<'a> {
    /// A view of `data`.
    ///
    /// # Panics
    /// If there are no or more than 256 classes, a side is 0, or `data` has another length.
    pub fn new(data: &'a [f32], classes: usize, height: usize, width: usize) -> Self {
        assert!((1..=256).contains(&classes), "{classes} classes: labels of 8 bits need 1 to 256");
        assert!(height > 0 && width > 0, "logits of {width} x {height} pixels");
        assert_eq!(data.len(), classes * height * width, "length of logits [{classes}, {height}, {width}]");
        Self { data, classes, height, width }
    }

    fn row(&self, class: usize, y: usize) -> &'a [f32] {
        &self.data[(class * self.height + y) * self.width..][..self.width]
    }
}

/// Which labels are wanted: the logits are stretched to `full_height x full_width`, and the top left
/// `height x width` of that is the label image. The two differ where a frame was padded at its right and bottom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LabelWindow {
    /// Rows that the logits are stretched to.
    pub full_height: usize,
    /// Columns that the logits are stretched to.
    pub full_width: usize,
    /// Rows of the label image, at most `full_height`.
    pub height: usize,
    /// Columns of the label image, at most `full_width`.
    pub width: usize,
}

impl LabelWindow {
    /// All of `height x width`, without padding.
    pub fn whole(height: usize, width: usize) -> Self {
        Self { full_height: height, full_width: width, height, width }
    }
}

/// Makes label images, keeping its tables and row buffers: a stream of equal frames allocates nothing after the
/// first. One per thread.
#[derive(Debug, Default)]
pub struct ResizeArgmax {
    /// Sizes that `columns` was made for: logits width, full width, label width.
    columns_for: (usize, usize, usize),
    /// The source columns of each label column, padded to whole blocks.
    columns: Vec<Taps>,
    /// Two source rows stretched along x: `[blocks, classes, BLOCK]`.
    rows: [Vec<f32>; 2],
}

/// The two source positions of an output position and their weights.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taps {
    pub index: [u32; 2],
    pub weight: [f32; 2],
}

impl Taps {
    /// PyTorch's `compute_source_index_and_lambda`: `max((i + 0.5) * n / full - 0.5, 0)` in float32.
    pub(crate) fn new(i: usize, n: usize, full: usize) -> Self {
        if n == full {
            return Self { index: [i as u32; 2], weight: [1.0, 0.0] };
        }
        let position = (n as f32 / full as f32 * (i as f32 + 0.5) - 0.5).max(0.0);
        let first = (position as usize).min(n - 1);
        let second = (first + 1).min(n - 1);
        let fraction = (position - first as f32).clamp(0.0, 1.0);
        Self { index: [first as u32, second as u32], weight: [1.0 - fraction, fraction] }
    }
}

impl ResizeArgmax {
    /// One that has made no tables yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Writes rows `rows` of the label image to `out`, `window.width` bytes each, nothing between them.
    ///
    /// The label is the class with the largest value, the lowest of them where several tie. NaN never wins (an
    /// infinite logit can become NaN in the blend): where all classes are NaN the label is 0.
    ///
    /// # Panics
    /// If the window is empty or larger than what the logits are stretched to, `rows` is not within it, or `out` has
    /// another length than those rows.
    pub fn run(&mut self, logits: Logits<'_>, window: LabelWindow, rows: Range<usize>, out: &mut [u8]) {
        let LabelWindow { full_height, full_width, height, width } = window;
        assert!(
            (1..=full_height).contains(&height) && (1..=full_width).contains(&width),
            "{window:?} is empty or larger than the whole"
        );
        assert!(rows.start <= rows.end && rows.end <= height, "rows {rows:?} of {height}");
        assert_eq!(out.len(), rows.len() * width, "bytes of {} rows of {width} labels", rows.len());

        self.prepare(logits.width, full_width, width, logits.classes);
        let [upper, lower] = &mut self.rows;
        // Which source rows the buffers hold; none yet.
        let mut held = [u32::MAX; 2];
        for (y, out) in rows.zip(out.chunks_exact_mut(width)) {
            let taps = Taps::new(y, logits.height, full_height);
            if held[0] != taps.index[0] {
                std::mem::swap(upper, lower);
                held.swap(0, 1);
            }
            for (buffer, (held, wanted)) in
                [&mut *upper, &mut *lower].into_iter().zip(held.iter_mut().zip(taps.index))
            {
                if *held != wanted {
                    stretch(logits, wanted as usize, &self.columns, buffer);
                    *held = wanted;
                }
            }
            blend_argmax(upper, lower, taps.weight, logits.classes, out);
        }
    }

    fn prepare(&mut self, n: usize, full: usize, width: usize, classes: usize) {
        if self.columns_for != (n, full, width) {
            self.columns_for = (n, full, width);
            let padded = width.next_multiple_of(BLOCK);
            self.columns.clear();
            self.columns.extend((0..padded).map(|x| Taps::new(x.min(width - 1), n, full)));
        }
        for row in &mut self.rows {
            row.resize(self.columns.len() * classes, 0.0);
        }
    }
}

/// Source row `y` of every class stretched along x into `[blocks, classes, BLOCK]`, in which the argmax reads straight on.
fn stretch(logits: Logits<'_>, y: usize, columns: &[Taps], out: &mut [f32]) {
    for class in 0..logits.classes {
        let row = logits.row(class, y);
        let blocks = out[class * BLOCK..].chunks_mut(logits.classes * BLOCK);
        for (out, columns) in blocks.zip(columns.chunks_exact(BLOCK)) {
            for (out, taps) in out[..BLOCK].iter_mut().zip(columns) {
                let [a, b] = taps.index.map(|i| row[i as usize]);
                *out = taps.weight[0] * a + taps.weight[1] * b;
            }
        }
    }
}

/// Blends two stretched rows and takes the argmax over classes, block by block.
fn blend_argmax(upper: &[f32], lower: &[f32], weight: [f32; 2], classes: usize, out: &mut [u8]) {
    let step = classes * BLOCK;
    let blocks = upper.chunks_exact(step).zip(lower.chunks_exact(step)).zip(out.chunks_mut(BLOCK));
    for ((upper, lower), out) in blocks {
        let mut best = [f32::NEG_INFINITY; BLOCK];
        let mut label = [0i32; BLOCK];
        let pairs = upper.as_chunks::<BLOCK>().0.iter().zip(lower.as_chunks::<BLOCK>().0);
        for (class, (upper, lower)) in pairs.enumerate() {
            for i in 0..BLOCK {
                let value = weight[0] * upper[i] + weight[1] * lower[i];
                let wins = value > best[i];
                best[i] = if wins { value } else { best[i] };
                label[i] = if wins { class as i32 } else { label[i] };
            }
        }
        for (out, label) in out.iter_mut().zip(label) {
            *out = label as u8;
        }
    }
}
