//! A surface: which class each point of it has, its colour, and where it is cut away.

use crate::face::Face;
use crate::garments::Mark;
use crate::maths::{floor, mix, noise, smooth};
use crate::paint::{Colour, Paint};

/// The class of a surface's points.
#[derive(Clone, Debug)]
pub(crate) enum Part {
    Whole(u8),
    /// `below` up to v = `at`, `above` from there.
    Split {
        at: f32,
        below: u8,
        above: u8,
    },
    /// The front of a head, where u and v are x and y in head heights.
    Face(Box<Face>),
}

/// Which points of a surface aren't there.
#[derive(Clone, Debug)]
pub(crate) enum Cut {
    Nothing,
    /// A trunk's opening for the neck, by u and v of the spine: how far it reaches down in front and behind, how wide
    /// it is in turns, and whether it is pointed.
    Neckline {
        top: f32,
        front: f32,
        back: f32,
        width: f32,
        pointed: bool,
    },
    /// Two straps above `edge`, `strap` turns wide, `apart` turns from the middle.
    Straps {
        edge: f32,
        apart: f32,
        strap: f32,
        top: f32,
    },
    /// Hair in front, where u and v are x and y in head heights: see `hair.rs`.
    Hairline {
        forehead: f32,
        side: f32,
        ragged: f32,
        part: f32,
        seed: u32,
    },
    /// A ragged lower edge at `v`.
    Hem {
        at: f32,
        ragged: f32,
        seed: u32,
    },
}

impl Cut {
    pub fn is_nothing(&self) -> bool {
        matches!(self, Cut::Nothing)
    }

    /// Whether the surface is there.
    pub fn keeps(&self, u: f32, v: f32) -> bool {
        match *self {
            Cut::Nothing => true,
            Cut::Neckline { top, front, back, width, pointed } => {
                let turn = u - floor(u);
                let (off, depth) = if turn < 0.5 { (turn - 0.25, front) } else { (turn - 0.75, back) };
                let across = (off.abs() / width).min(1.0);
                let edge = if pointed { 1.0 - across } else { 1.0 - across * across };
                v < top - depth * edge
            }
            Cut::Straps { edge, apart, strap, top } => {
                let turn = u - floor(u);
                let (off, lower) = if turn < 0.5 { (turn - 0.25, edge) } else { (turn - 0.75, edge - 0.04) };
                v < lower || (v < top && (off.abs() - apart).abs() < strap)
            }
            Cut::Hairline { forehead, side, ragged, part, seed } => {
                let line = mix(forehead, side, smooth(0.2, 0.37, u.abs()))
                    + part * u * (1.0 - smooth(0.15, 0.35, u.abs()));
                above(v - line, ragged, u * 14.0, seed)
            }
            Cut::Hem { at, ragged, seed } => above(v - at, ragged, u * 30.0, seed),
        }
    }
}

/// Whether a point `high` above a line is above its ragged edge.
fn above(high: f32, ragged: f32, along: f32, seed: u32) -> bool {
    // Most points are far from the edge and need no noise.
    if high.abs() > 0.5 * ragged { high > 0.0 } else { high > ragged * (noise(along, 0.0, seed) - 0.5) }
}

/// A mark on the front of a trunk, where u is near 0.25 and v is the spine's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Marked {
    pub mark: Mark,
    pub colour: Colour,
}

impl Marked {
    const NOTHING: Marked = Marked { mark: Mark::Nothing, colour: [0.0; 3] };

    /// Whether the mark is at a point.
    fn covers(&self, u: f32, v: f32) -> bool {
        // In body heights from the middle of the chest.
        let (x, y) = ((u - 0.25) * 0.55, (v - 0.68) * 0.36);
        match self.mark {
            Mark::Nothing => false,
            Mark::Buttons => {
                let step = v * 9.0 - floor(v * 9.0) - 0.5;
                x.abs() < 0.0022 || (x * x + step * step * 0.0016 < 0.00004)
            }
            Mark::Zip => x.abs() < 0.004,
            Mark::Pocket => {
                let (px, py) = (x - 0.045, y - 0.02);
                px.abs() < 0.022 && py < 0.022 && py > -0.022 - 0.01 * (1.0 - px.abs() / 0.022)
            }
            Mark::Disc => x * x + y * y < 0.0016,
            Mark::Panel => x.abs() < 0.06 && y.abs() < 0.025,
            Mark::Pouch => y < -0.05 && y > -0.11 && x.abs() < 0.045 + 0.3 * (-0.05 - y),
            Mark::Star => {
                let (ax, ay) = (x.abs(), y);
                ay > -0.035
                    && ay < 0.05
                    && ax < 0.055
                    && (ax + (ay + 0.005).abs() * 1.5 < 0.04
                        || (ax * 2.2 + ay < 0.05 && ay > 0.0)
                        || ax * 0.6 - ay < 0.03 && ay < 0.0 && ax * 2.0 - ay < 0.09 && ax > 0.008 - ay * 0.3)
            }
        }
    }
}

/// A surface of a mesh.
#[derive(Clone, Debug)]
pub(crate) struct Surface {
    pub part: Part,
    pub paint: Paint,
    pub cut: Cut,
    pub marked: Marked,
    /// Whether its inside can be seen.
    pub open: bool,
}

impl Surface {
    pub fn closed(class: u8, paint: Paint) -> Surface {
        Surface { part: Part::Whole(class), paint, cut: Cut::Nothing, marked: Marked::NOTHING, open: false }
    }

    pub fn open(class: u8, paint: Paint) -> Surface {
        Surface { open: true, ..Surface::closed(class, paint) }
    }

    pub fn split(at: f32, below: u8, above: u8, paint: Paint) -> Surface {
        Surface { part: Part::Split { at, below, above }, ..Surface::closed(below, paint) }
    }

    pub fn cut(self, cut: Cut) -> Surface {
        Surface { cut, open: true, ..self }
    }

    /// Whether it must be looked at more than once in a pixel.
    pub fn is_fine(&self) -> bool {
        !matches!(self.part, Part::Whole(_)) || self.marked.mark != Mark::Nothing || self.paint.is_fine()
    }

    /// Its class and unlit colour at a point.
    pub fn at(&self, u: f32, v: f32) -> (u8, Colour) {
        match &self.part {
            Part::Whole(class) if self.marked.covers(u, v) => (*class, self.marked.colour),
            Part::Whole(class) => (*class, self.paint.at(u, v)),
            Part::Split { at, below, above } => (if v < *at { *below } else { *above }, self.paint.at(u, v)),
            Part::Face(face) => face.at(u, v),
        }
    }
}
