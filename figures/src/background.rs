//! What is behind the people: rooms, walls, streets, woods and clutter. Everything here has the class Background.
//!
//! A background is evaluated once per pixel; edges are softened over a pixel's width.

use crate::dice::Dice;
use crate::kinds::Draw;
use crate::maths::{floor, hash, mix, noise, smooth, swing};
use crate::paint::{Colour, blend, cloth, hsv, times};

/// A kind of background.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Scenery {
    Fade,
    Blobs,
    Stripes,
    Bricks,
    Room,
    Leaves,
    Tiles,
    Text,
    City,
    Hills,
    Beach,
    Shapes,
    Planks,
    Grid,
    Spots,
}

/// Kinds of background with their likelihood and whether they are held out of training.
pub(crate) const SCENERIES: &[(Scenery, f32, bool)] = &[
    (Scenery::Fade, 1.0, false),
    (Scenery::Blobs, 1.0, false),
    (Scenery::Stripes, 0.6, false),
    (Scenery::Bricks, 0.8, false),
    (Scenery::Room, 2.2, false),
    (Scenery::Leaves, 1.0, false),
    (Scenery::Tiles, 0.8, false),
    (Scenery::Text, 0.7, false),
    (Scenery::City, 1.5, false),
    (Scenery::Hills, 1.5, false),
    (Scenery::Shapes, 1.2, false),
    (Scenery::Beach, 1.0, true),
    (Scenery::Planks, 1.0, true),
    (Scenery::Grid, 1.0, true),
    (Scenery::Spots, 1.0, true),
];

/// A thing in front of the scenery: an ellipse or a box, centre and half size in frame heights.
#[derive(Clone, Copy, Debug)]
struct Thing {
    round: bool,
    at: (f32, f32),
    half: (f32, f32),
    lean: f32,
    colour: Colour,
}

impl Thing {
    /// How much of it covers a point; `soft` is half a pixel.
    fn cover(&self, x: f32, y: f32, soft: f32) -> f32 {
        let (dx, dy) = (x - self.at.0, y - self.at.1);
        let dx = dx + dy * self.lean;
        let far = if self.round {
            let (a, b) = (dx / self.half.0, dy / self.half.1);
            ((a * a + b * b).sqrt() - 1.0) * self.half.0.min(self.half.1)
        } else {
            (dx.abs() - self.half.0).max(dy.abs() - self.half.1)
        };
        (0.5 - far / (2.0 * soft)).clamp(0.0, 1.0)
    }
}

/// What is behind the people.
#[derive(Clone, Debug)]
pub(crate) struct Background {
    pub scenery: Scenery,
    colours: [Colour; 5],
    /// How large its cells are, in frame heights.
    cell: f32,
    /// Where the ground begins, from the top.
    pub horizon: f32,
    things: Vec<Thing>,
    /// How far out of focus it is, in frame heights.
    pub blur: f32,
    seed: u32,
    bright: f32,
}

impl Background {
    pub fn sample(dice: &mut Dice, draw: &Draw, aspect: f32, skins: &[Colour]) -> Background {
        let &(scenery, ..) = draw.pick(dice, SCENERIES, |kind| kind.2, |kind| kind.1);
        let dull = dice.range(0.2, 0.85);
        let mut colour = || {
            let colour = cloth(dice);
            let grey = (colour[0] + colour[1] + colour[2]) / 3.0;
            blend(colour, [grey, grey, grey], dull)
        };
        let colours = [colour(), colour(), colour(), colour(), colour()];
        let horizon = dice.range(0.5, 0.85);
        let count = match scenery {
            Scenery::Shapes => 8 + dice.below(16),
            Scenery::Room => 4 + dice.below(6),
            Scenery::Hills | Scenery::Beach => 2 + dice.below(4),
            _ => dice.below(5),
        };
        let things = (0..count)
            .map(|_| {
                // Some have the colours of skin: colour alone must not make a person.
                let colour = if !skins.is_empty() && dice.chance(0.25) {
                    times(skins[dice.below(skins.len())], dice.range(0.8, 1.1))
                } else {
                    cloth(dice)
                };
                let large = dice.range(0.03, 0.2);
                Thing {
                    round: dice.chance(0.4),
                    at: (dice.range(0.0, aspect), dice.range(0.0, 1.0)),
                    half: (large * dice.range(0.3, 1.5), large * dice.range(0.3, 1.5)),
                    lean: if dice.chance(0.3) { dice.about(0.5) } else { 0.0 },
                    colour,
                }
            })
            .collect::<Vec<_>>();
        let mut background = Background {
            scenery,
            colours,
            cell: dice.range(0.04, 0.14),
            horizon,
            things,
            blur: if dice.chance(0.4) { dice.range(0.002, 0.02) } else { 0.0 },
            seed: dice.seed(),
            bright: dice.range(0.75, 1.08),
        };
        background.furnish(aspect, dice);
        background
    }

    /// Stands a room's things on its floor and gives it a window or picture.
    fn furnish(&mut self, aspect: f32, dice: &mut Dice) {
        if self.scenery != Scenery::Room {
            return;
        }
        let horizon = self.horizon;
        for (index, thing) in self.things.iter_mut().enumerate() {
            thing.lean = 0.0;
            if index % 2 == 0 {
                thing.round = false;
                thing.half.1 *= 1.6;
                thing.at.1 = horizon + dice.range(0.0, 0.06) - thing.half.1;
            } else {
                thing.at.1 = horizon * dice.range(0.15, 0.6);
            }
        }
        let at = (dice.range(0.1, 0.9) * aspect, horizon * 0.42);
        let (half, frame) = ((dice.range(0.1, 0.2), dice.range(0.1, 0.2)), [0.93, 0.92, 0.88]);
        let sky = hsv(0.56, 0.35, 0.95);
        self.things.push(Thing {
            round: false,
            at,
            half: (half.0 + 0.015, half.1 + 0.015),
            lean: 0.0,
            colour: frame,
        });
        self.things.push(Thing { round: false, at, half, lean: 0.0, colour: sky });
        self.things.push(Thing { round: false, at, half: (0.006, half.1), lean: 0.0, colour: frame });
    }

    /// The colours of `width` × `height` pixels; `across` and `down` are pixels per frame height.
    pub fn paint(&self, width: usize, height: usize, (across, down): (f32, f32)) -> Vec<Colour> {
        let soft = 0.5 / down;
        let mut colours = Vec::with_capacity(width * height);
        for y in 0..height {
            let fy = (y as f32 + 0.5) / down;
            colours.extend(
                (0..width).map(|x| times(self.scene((x as f32 + 0.5) / across, fy, soft), self.bright)),
            );
        }
        for thing in &self.things {
            let (wide, high) = (thing.half.0 + thing.half.1 * thing.lean.abs() + soft, thing.half.1 + soft);
            let span = |at: f32, half: f32, scale: f32, most: usize| {
                let from = ((at - half) * scale).max(0.0) as usize;
                from.min(most)..(((at + half) * scale + 1.0).max(0.0) as usize).min(most)
            };
            let columns = span(thing.at.0, wide, across, width);
            for y in span(thing.at.1, high, down, height) {
                let fy = (y as f32 + 0.5) / down;
                for x in columns.clone() {
                    let fx = (x as f32 + 0.5) / across;
                    let cover = thing.cover(fx, fy, soft);
                    if cover > 0.0 {
                        let shade = 1.0
                            + 0.12 * (thing.at.1 - fy) / thing.half.1.max(0.05)
                            + 0.08 * (thing.at.0 - fx) / thing.half.0.max(0.05);
                        let colour = &mut colours[y * width + x];
                        *colour = blend(*colour, times(thing.colour, shade * self.bright), cover);
                    }
                }
            }
        }
        colours
    }

    fn scene(&self, x: f32, y: f32, soft: f32) -> Colour {
        let [a, b, c, d, e] = self.colours;
        let (cx, cy) = (x / self.cell, y / self.cell);
        let edge = 2.0 * soft / self.cell;
        // 1 inside a repeated bar of `share` of a cell, softened.
        let bar = |t: f32, share: f32| {
            let t = t - floor(t);
            smooth(0.0, edge, t) * smooth(share + edge, share, t)
        };
        match self.scenery {
            Scenery::Fade => {
                blend(a, b, smooth(0.0, 1.0, y + 0.2 * (noise(x * 2.0, y * 2.0, self.seed) - 0.5)))
            }
            Scenery::Blobs => {
                let n = noise(x * 3.0, y * 3.0, self.seed);
                let m = noise(x * 5.0 + 9.0, y * 5.0, self.seed ^ 1);
                blend(blend(a, b, smooth(0.35, 0.6, n)), c, smooth(0.55, 0.75, m))
            }
            Scenery::Stripes => {
                let t = cx + cy * (hash(1, 2, self.seed) - 0.5) * 3.0;
                blend(a, b, bar(t * 0.6, 0.5))
            }
            Scenery::Bricks => {
                let row = floor(cy * 2.0);
                let shift = 0.5 * (row - 2.0 * floor(row * 0.5));
                let joint = bar(cy * 2.0, 0.9) * bar(cx + shift, 0.94);
                let tint = hash(floor(cx + shift) as i32, row as i32, self.seed);
                blend(d, times(a, 0.8 + 0.35 * tint), joint)
            }
            Scenery::Room => {
                if y > self.horizon + 0.012 {
                    let deep = (y - self.horizon + 0.08).max(0.02);
                    let board = bar((x - 0.7) / deep * 0.25 / self.cell * 0.12, 0.94);
                    times(blend(times(b, 0.75), b, board), 0.8 + 0.3 * deep)
                } else if y > self.horizon - 0.02 {
                    [0.92, 0.9, 0.87]
                } else {
                    let paper = if self.seed & 1 == 0 { bar(cx * 0.8, 0.5) * 0.1 } else { 0.0 };
                    times(blend(a, c, paper), 1.08 - 0.2 * y)
                }
            }
            Scenery::Leaves => {
                let n =
                    noise(x * 9.0, y * 9.0, self.seed) * 0.6 + noise(x * 24.0, y * 24.0, self.seed ^ 5) * 0.4;
                let green = blend(hsv(0.3, 0.6, 0.25), hsv(0.24, 0.55, 0.75), smooth(0.25, 0.75, n));
                blend(green, a, 0.15)
            }
            Scenery::Tiles => {
                if y < self.horizon {
                    return times(a, 1.1 - 0.3 * y);
                }
                let deep = (y - self.horizon + 0.06).max(0.02);
                let (u, v) = ((x - 0.7) / deep * 0.5, 0.35 / deep);
                let soft = (soft / deep * 3.0).min(0.4);
                let side = |t: f32| {
                    let t = t - 2.0 * floor(t * 0.5);
                    smooth(0.0, soft, t) * smooth(1.0 + soft, 1.0, t)
                };
                let (p, q) = (side(u * 2.0), side(v * 2.0));
                blend(b, c, p * (1.0 - q) + q * (1.0 - p))
            }
            Scenery::Text => {
                let (row, column) = (floor(cy * 2.2), floor(cx * 4.0));
                let ink = hash(column as i32, row as i32, self.seed) > 0.3;
                let line = bar(cy * 2.2, 0.6) * bar(cx * 4.0, 0.75);
                let stroke = hash(floor(cx * 16.0) as i32, floor(cy * 9.0) as i32, self.seed ^ 2) > 0.35;
                blend(a, times(b, 0.5), if ink && stroke { line } else { 0.0 })
            }
            Scenery::City => self.city(x, y, soft),
            Scenery::Hills => {
                // From the nearest on: whoever covers the point settles it.
                let (mut colour, mut left) = ([0.0; 3], 1.0);
                for layer in (0..3).rev() {
                    let l = layer as f32;
                    let middle = mix(self.horizon - 0.25, self.horizon, l / 2.0);
                    let most = 0.06 * (3.0 - l) + soft;
                    if y < middle - most {
                        continue;
                    }
                    let rise = 0.12 * (noise(x * (1.5 + l), l * 7.0, self.seed) - 0.5) * (3.0 - l);
                    let top = middle + rise;
                    let cover = left * smooth(top - soft, top + soft, y);
                    let green = blend(hsv(0.27 + 0.06 * l, 0.45, 0.75 - 0.12 * l), a, 0.2);
                    colour = [0, 1, 2].map(|i| colour[i] + cover * green[i]);
                    left -= cover;
                    if left <= 0.0 {
                        break;
                    }
                }
                if left > 0.0 {
                    let sky = blend(hsv(0.57, 0.45, 0.95), hsv(0.55, 0.15, 1.0), smooth(0.0, 0.6, y));
                    colour = [0, 1, 2].map(|i| colour[i] + left * sky[i]);
                }
                times(colour, 0.94 + 0.12 * noise(x * 30.0, y * 30.0, self.seed))
            }
            Scenery::Beach => {
                let line = self.horizon - 0.15;
                let shore = self.horizon + 0.03 * swing(x * 0.7) + 0.02 * swing(x * 1.9 + 0.3);
                if y < line {
                    blend(hsv(0.57, 0.5, 0.95), hsv(0.08, 0.2, 1.0), smooth(0.0, line, y))
                } else if y < shore {
                    let foam = smooth(0.02, 0.0, shore - y);
                    blend(blend(hsv(0.52, 0.6, 0.6), e, 0.15), [0.97, 0.98, 1.0], foam)
                } else {
                    times(hsv(0.11, 0.35, 0.9), 0.92 + 0.16 * noise(x * 40.0, y * 40.0, self.seed))
                }
            }
            Scenery::Shapes => blend(a, b, smooth(0.2, 0.8, noise(x * 2.0, y * 2.0, self.seed))),
            Scenery::Planks => {
                let plank = floor(cx * 1.2);
                let grain = noise(cx * 9.0, y * 2.5 + 9.0 * hash(plank as i32, 1, self.seed), self.seed);
                let wood = blend(hsv(0.08, 0.5, 0.55), a, 0.3);
                let tint = 0.75 + 0.3 * hash(plank as i32, 0, self.seed) + 0.15 * grain;
                times(wood, tint * mix(0.5, 1.0, bar(cx * 1.2, 0.96)))
            }
            Scenery::Grid => blend(blend(a, b, y), d, 1.0 - bar(cx, 0.94) * bar(cy, 0.94)),
            Scenery::Spots => {
                let (ix, iy) = (floor(cx), floor(cy));
                let (dx, dy) = (cx - ix - 0.5, cy - iy - 0.5);
                let spot = smooth(0.32 + edge, 0.32, (dx * dx + dy * dy).sqrt());
                blend(a, if hash(ix as i32, iy as i32, self.seed) > 0.5 { b } else { c }, spot)
            }
        }
    }

    fn city(&self, x: f32, y: f32, soft: f32) -> Colour {
        let [a, b, c, d, _] = self.colours;
        let ground = self.horizon + 0.05;
        if y > ground {
            let kerb = smooth(0.03, 0.028, y - ground);
            return blend(times(d, 0.55), [0.75, 0.74, 0.72], kerb);
        }
        let mut colour = blend(hsv(0.57, 0.35, 0.95), [0.95, 0.93, 0.9], y);
        for layer in 0..2u32 {
            let wide = if layer == 0 { 0.13 } else { 0.22 };
            let block = floor(x / wide + 0.37 * layer as f32);
            let within = x / wide + 0.37 * layer as f32 - block;
            let seed = self.seed ^ layer;
            let high = mix(0.25, 0.8, hash(block as i32, 3, seed)) * if layer == 0 { 1.0 } else { 0.7 };
            let top = ground - high * ground;
            if y < top - soft {
                continue;
            }
            let tint = 0.7 + 0.45 * hash(block as i32, 5, seed);
            let wall = times([a, b, c][(hash(block as i32, 7, seed) * 2.99) as usize], tint);
            let (wx, wy) = (within * 5.0, (y - top) / wide * 5.0);
            let pane = |t: f32, from: f32, to: f32| {
                let (t, soft) = (t - floor(t), 5.0 * soft / wide);
                smooth(from - soft, from + soft, t) * smooth(to + soft, to - soft, t)
            };
            let window = pane(wx, 0.25, 0.75) * pane(wy, 0.2, 0.8);
            let lit = hash(floor(wx) as i32 + block as i32 * 5, floor(wy) as i32, seed ^ 9) > 0.7;
            let glass =
                if lit { [0.97, 0.88, 0.6] } else { times(blend(wall, [0.35, 0.45, 0.55], 0.6), 0.8) };
            let shown = if y > ground - 0.03 { wall } else { blend(wall, glass, window) };
            let far = if layer == 0 { 0.4 } else { 0.0 };
            colour = blend(colour, blend(shown, [0.85, 0.88, 0.92], far), smooth(top - soft, top + soft, y));
        }
        colour
    }
}
