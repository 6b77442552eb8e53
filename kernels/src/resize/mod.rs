//! Resizes of 8-bit images with three channels, as OpenCV computes them: what a frame goes through before the network.
//!
//! The arithmetic is fixed to the bit, since networks were trained and are compared on its output. Each filter is a
//! horizontal pass over the source rows that a destination row needs, kept while the next one needs them too, and a
//! vertical pass over those. Within the rows the integer sums are held in float32, where they are exact (below 2^24),
//! because that vectorises on every CPU.

mod area;
mod cubic;
mod linear;
mod rows;
#[cfg(feature = "cuda")]
mod tables;

use crate::image::{ImageMut, ImageRef};
#[cfg(feature = "cuda")]
pub(crate) use tables::{Arithmetic, Axis, Tables};

/// How a destination pixel is made from source pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Filter {
    /// OpenCV's `INTER_LINEAR`: bilinear between half-pixel centres, no antialiasing, in fixed point.
    Linear,
    /// OpenCV's `INTER_AREA`: the mean over the pixel's area where neither side grows, else bilinear with weights of its own.
    Area,
    /// OpenCV's `INTER_CUBIC`: 4 x 4 taps, a = -0.75, half-pixel centres, edge pixels repeated.
    Cubic,
}

/// Resizes images, keeping the coefficient tables and row buffers of the last sizes: a stream of equal frames
/// allocates nothing after the first.
#[derive(Debug, Default)]
pub struct Resizer {
    plan: Option<(Sizes, Plan)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sizes {
    filter: Filter,
    /// Source width and height.
    src: (usize, usize),
    /// Destination width and height.
    dst: (usize, usize),
}

#[derive(Debug)]
enum Plan {
    Copy,
    Linear(linear::Plan),
    Box(area::BoxPlan),
    Area(area::Plan),
    Cubic(cubic::Plan),
}

impl Resizer {
    /// A resizer that has made no tables yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Fills `dst` with `src` resized by `filter`; the aspect ratio is whatever the two sizes make it.
    pub fn resize(&mut self, filter: Filter, src: ImageRef<'_>, dst: ImageMut<'_>) {
        let sizes = Sizes { filter, src: (src.width(), src.height()), dst: (dst.width(), dst.height()) };
        let (_, plan) = match self.plan.take() {
            Some(kept) if kept.0 == sizes => self.plan.insert(kept),
            _ => self.plan.insert((sizes, Plan::new(sizes))),
        };
        match plan {
            Plan::Copy => copy(src, dst),
            Plan::Linear(plan) => plan.run(src, dst),
            Plan::Box(plan) => plan.run(src, dst),
            Plan::Area(plan) => plan.run(src, dst),
            Plan::Cubic(plan) => plan.run(src, dst),
        }
    }
}

/// [`Filter::Linear`], with tables made for this call alone.
pub fn linear(src: ImageRef<'_>, dst: ImageMut<'_>) {
    Resizer::new().resize(Filter::Linear, src, dst);
}

/// [`Filter::Area`], with tables made for this call alone.
pub fn area(src: ImageRef<'_>, dst: ImageMut<'_>) {
    Resizer::new().resize(Filter::Area, src, dst);
}

/// [`Filter::Cubic`], with tables made for this call alone.
pub fn cubic(src: ImageRef<'_>, dst: ImageMut<'_>) {
    Resizer::new().resize(Filter::Cubic, src, dst);
}

/// Which arithmetic a filter has at two sizes.
enum Method {
    Copy,
    Linear(linear::Positions),
    Box((usize, usize)),
    Area,
    Cubic,
}

impl Sizes {
    fn method(self) -> Method {
        let Sizes { filter, src, dst } = self;
        if src == dst {
            return Method::Copy;
        }
        match filter {
            Filter::Linear => Method::Linear(linear::centred),
            Filter::Cubic => Method::Cubic,
            Filter::Area if dst.0 > src.0 || dst.1 > src.1 => Method::Linear(linear::area_growing),
            Filter::Area => area::whole_steps(src, dst).map_or(Method::Area, Method::Box),
        }
    }
}

impl Plan {
    fn new(sizes: Sizes) -> Self {
        let Sizes { src, dst, .. } = sizes;
        match sizes.method() {
            Method::Copy => Plan::Copy,
            Method::Linear(positions) => Plan::Linear(linear::Plan::new(src, dst, positions)),
            Method::Box(step) => Plan::Box(area::BoxPlan::new(step, src.0)),
            Method::Area => Plan::Area(area::Plan::new(src, dst)),
            Method::Cubic => Plan::Cubic(cubic::Plan::new(src, dst)),
        }
    }
}

fn copy(src: ImageRef<'_>, mut dst: ImageMut<'_>) {
    for y in 0..src.height() {
        dst.row_mut(y).copy_from_slice(src.row(y));
    }
}
