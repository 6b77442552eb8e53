//! A filter's arithmetic at two sizes as plain tables, for the GPU: made by what the plans here are made by.

use super::{Filter, Method, Sizes, area, cubic, linear};

/// How the values that an [`Axis`] names become one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Arithmetic {
    /// Two taps each way, in fixed point.
    Linear,
    /// The sum of whole pixels times this, or their mean with ties going up.
    Box {
        /// One divided by the pixels.
        scale: f32,
        /// Of 2 x 2 pixels.
        ties_up: bool,
    },
    /// Weighted sums, columns first.
    Area,
    /// Four taps each way.
    Cubic,
}

/// The source pixels of each destination pixel on one axis.
#[derive(Debug, Default)]
pub(crate) struct Axis {
    /// The first source pixel, which may lie off the image, and where the weights begin; and one more, so that each one's
    /// weights end where the next one's begin.
    pub spans: Vec<[i32; 2]>,
    pub weights: Vec<f32>,
}

/// What a destination pixel is made of.
#[derive(Debug)]
pub(crate) struct Tables {
    pub arithmetic: Arithmetic,
    pub columns: Axis,
    pub rows: Axis,
}

impl Tables {
    /// `src` and `dst` are widths and heights.
    pub(crate) fn new(filter: Filter, src: (usize, usize), dst: (usize, usize)) -> Self {
        let sizes = Sizes { filter, src, dst };
        match sizes.method() {
            Method::Copy => Self::boxes((1, 1), dst),
            Method::Box(step) => Self::boxes(step, dst),
            Method::Linear(positions) => Self {
                arithmetic: Arithmetic::Linear,
                columns: Axis::new((0..dst.0).map(|x| linear::column(x, src.0, dst.0, positions))),
                rows: Axis::new((0..dst.1).map(|y| linear::row(y, src.1, dst.1, positions))),
            },
            Method::Area => Self {
                arithmetic: Arithmetic::Area,
                columns: Axis::of_area(src.0, dst.0),
                rows: Axis::of_area(src.1, dst.1),
            },
            Method::Cubic => Self {
                arithmetic: Arithmetic::Cubic,
                columns: Axis::new((0..dst.0).map(|x| cubic::taps(x, src.0, dst.0))),
                rows: Axis::new((0..dst.1).map(|y| cubic::taps(y, src.1, dst.1))),
            },
        }
    }

    fn boxes(step: (usize, usize), dst: (usize, usize)) -> Self {
        let axis = |step: usize, o: usize| Axis::new((0..o).map(|i| ((i * step) as isize, vec![1.0; step])));
        Self {
            arithmetic: Arithmetic::Box { scale: area::box_scale(step), ties_up: step == (2, 2) },
            columns: axis(step.0, dst.0),
            rows: axis(step.1, dst.1),
        }
    }
}

impl Axis {
    fn new<W: AsRef<[f32]>>(spans: impl Iterator<Item = (isize, W)>) -> Self {
        let mut axis = Self::default();
        for (first, weights) in spans {
            axis.spans.push([first as i32, axis.weights.len() as i32]);
            axis.weights.extend_from_slice(weights.as_ref());
        }
        axis.spans.push([0, axis.weights.len() as i32]);
        axis
    }

    fn of_area(n: usize, o: usize) -> Self {
        Self::new(area::Axis::new(n, o).iter().map(|(first, weights)| (first as isize, weights)))
    }
}
