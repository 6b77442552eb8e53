//! Borrowed views of interleaved 8-bit images with three channels. They know no colour space.

/// Bytes of one pixel.
pub const CHANNELS: usize = 3;

/// An image to read: `height` rows of `width` pixels of 3 bytes, rows `stride` bytes apart.
#[derive(Clone, Copy, Debug)]
pub struct ImageRef<'a> {
    data: &'a [u8],
    width: usize,
    height: usize,
    stride: usize,
}

impl<'a> ImageRef<'a> {
    /// A view of `data`; the last row may end before its stride does.
    ///
    /// # Panics
    /// If a side is 0, a row is longer than `stride`, or `data` is too short.
    pub fn new(data: &'a [u8], width: usize, height: usize, stride: usize) -> Self {
        assert_fits(data.len(), width, height, stride);
        Self { data, width, height, stride }
    }

    /// Pixels in a row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Rows.
    pub fn height(&self) -> usize {
        self.height
    }

    /// The `3 * width` bytes of row `y`.
    pub fn row(&self, y: usize) -> &'a [u8] {
        &self.data[y * self.stride..][..self.width * CHANNELS]
    }
}

/// An image to write, laid out as [`ImageRef`]. Bytes between the rows are left alone.
#[derive(Debug)]
pub struct ImageMut<'a> {
    data: &'a mut [u8],
    width: usize,
    height: usize,
    stride: usize,
}

impl<'a> ImageMut<'a> {
    /// A view of `data`; the last row may end before its stride does.
    ///
    /// # Panics
    /// If a side is 0, a row is longer than `stride`, or `data` is too short.
    pub fn new(data: &'a mut [u8], width: usize, height: usize, stride: usize) -> Self {
        assert_fits(data.len(), width, height, stride);
        Self { data, width, height, stride }
    }

    /// Pixels in a row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Rows.
    pub fn height(&self) -> usize {
        self.height
    }

    /// The `3 * width` bytes of row `y`.
    pub fn row_mut(&mut self, y: usize) -> &mut [u8] {
        &mut self.data[y * self.stride..][..self.width * CHANNELS]
    }
}

/// The longest side: positions are float32 with room for their fraction, offsets are 32 bits.
pub(crate) const MAX_SIDE: usize = 1 << 20;

fn assert_fits(len: usize, width: usize, height: usize, stride: usize) {
    assert!(
        (1..=MAX_SIDE).contains(&width) && (1..=MAX_SIDE).contains(&height),
        "an image of {width} x {height} pixels: sides must be 1 to {MAX_SIDE}"
    );
    assert!(stride >= width * CHANNELS, "stride {stride} is shorter than a row of {width} pixels");
    let needed = stride.checked_mul(height - 1).and_then(|bytes| bytes.checked_add(width * CHANNELS));
    assert!(
        needed.is_some_and(|needed| len >= needed),
        "{len} bytes hold no image of {width} x {height} pixels with stride {stride}"
    );
}
