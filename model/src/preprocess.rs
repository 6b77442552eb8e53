//! From a frame to the network's input, as the authors do it: RGB, resized on 8-bit values, normalised.

use sapiens_kernels::{Filter, ImageMut, ImageRef, Resizer};

use crate::card::{Input, ResizeRule};
use crate::frame::FrameView;
use crate::input_size::Placement;

/// Turns frames into network inputs, keeping its buffers from frame to frame.
#[derive(Debug)]
pub(crate) struct Preprocessor {
    /// Per channel and 8-bit value: `(value - mean) / std`.
    normalized: [[f32; 256]; 3],
    rule: ResizeRule,
    resizer: Resizer,
    rgb: Vec<u8>,
    resized: Vec<u8>,
}

impl Preprocessor {
    pub(crate) fn new(input: &Input) -> Self {
        let normalized = std::array::from_fn(|channel| {
            std::array::from_fn(|value| (value as f32 - input.mean[channel]) / input.std[channel])
        });
        Self { normalized, rule: input.resize, resizer: Resizer::new(), rgb: Vec::new(), resized: Vec::new() }
    }

    /// The network's input to `input`: planar `[3, height, width]` of the placement's canvas. What the frame doesn't
    /// cover is the mean colour.
    #[cfg(any(test, feature = "portable"))]
    pub(crate) fn run(&mut self, frame: &FrameView<'_>, placement: Placement, input: &mut Vec<f32>) {
        self.resize(frame, placement);
        self.normalize(placement, input);
    }

    /// What the network's input has for each 8-bit value of R, G and B.
    pub(crate) fn normalized(&self) -> &[[f32; 256]; 3] {
        &self.normalized
    }

    /// The frame in RGB, resized to the placement's image.
    pub(crate) fn resize(&mut self, frame: &FrameView<'_>, placement: Placement) -> ImageRef<'_> {
        let (width, height) = placement.image;
        self.rgb.resize(frame.width() * frame.height() * 3, 0);
        frame.write_rgb(&mut self.rgb);
        self.resized.resize(width * height * 3, 0);
        let filter = filter(self.rule, frame.width(), width);
        self.resizer.resize(
            filter,
            ImageRef::new(&self.rgb, frame.width(), frame.height(), frame.width() * 3),
            ImageMut::new(&mut self.resized, width, height, width * 3),
        );
        ImageRef::new(&self.resized, width, height, width * 3)
    }

    #[cfg(any(test, feature = "portable"))]
    fn normalize(&self, Placement { image, canvas }: Placement, input: &mut Vec<f32>) {
        input.resize(3 * canvas.0 * canvas.1, 0.0);
        if image != canvas {
            input.fill(0.0);
        }
        for (channel, plane) in input.chunks_exact_mut(canvas.0 * canvas.1).enumerate() {
            let levels = &self.normalized[channel];
            let rows = plane.chunks_exact_mut(canvas.0).zip(self.resized.chunks_exact(image.0 * 3));
            for (out, row) in rows {
                for (out, pixel) in out.iter_mut().zip(row.as_chunks::<3>().0) {
                    *out = levels[usize::from(pixel[channel])];
                }
            }
        }
    }

    /// The frame as resized for the network, packed RGB; for tests.
    #[cfg(test)]
    pub(crate) fn resized_rgb(&self) -> &[u8] {
        &self.resized
    }
}

/// How frames of one width are brought to another.
pub(crate) fn filter(rule: ResizeRule, from: usize, to: usize) -> Filter {
    match rule {
        ResizeRule::Linear => Filter::Linear,
        ResizeRule::AreaOrCubic if to < from => Filter::Area,
        ResizeRule::AreaOrCubic => Filter::Cubic,
    }
}

#[cfg(test)]
#[path = "preprocess_tests.rs"]
mod tests;
