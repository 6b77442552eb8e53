//! A face: what is where on the front of a head, class by class. x and y are in head heights from its middle, x
//! towards the person's left.

use crate::class;
use crate::dice::Dice;
use crate::maths::{floor, mix, noise, smooth};
use crate::paint::{Colour, blend, cloth, hsv, rgb, times};

/// Glasses in front of the eyes.
#[derive(Clone, Debug)]
pub(crate) struct Glasses {
    pub frame: Colour,
    lens: Colour,
    /// How little is seen through the lens, in 0..1.
    tint: f32,
    half: (f32, f32),
    round: bool,
    thick: f32,
}

/// A mouth. It opens and smiles over time, so these two stand apart.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mouth {
    /// How far it is open, in head heights.
    pub open: f32,
    /// How high its corners are.
    pub smile: f32,
}

/// A face.
#[derive(Clone, Debug)]
pub(crate) struct Face {
    pub skin: Colour,
    blush: Colour,
    brow: Colour,
    iris: Colour,
    lips: Colour,
    pub beard: Option<(Colour, f32)>,
    pub glasses: Option<Glasses>,
    eye: (f32, f32),
    eye_half: (f32, f32),
    brow_at: f32,
    brow_tilt: f32,
    brow_thick: f32,
    lashes: bool,
    mouth_at: f32,
    mouth_half: f32,
    lip: f32,
    upper_teeth: f32,
    lower_teeth: f32,
    tongue: f32,
    pub mouth: Mouth,
    /// How far the eyes are shut, in 0..1.
    pub shut: f32,
    gaze: (f32, f32),
    pub nose: f32,
}

impl Face {
    pub fn sample(skin: Colour, hair: Colour, dice: &mut Dice) -> Face {
        let blush = blend(skin, [skin[0], skin[1] * 0.62, skin[2] * 0.6], dice.range(0.25, 0.8));
        let natural = blend(times(skin, 0.86), rgb(0xC0504D), dice.range(0.4, 0.65));
        let lips = if dice.chance(0.3) {
            let hue = dice.range(0.92, 1.02);
            hsv(hue, dice.range(0.55, 0.85), dice.range(0.55, 0.9))
        } else {
            natural
        };
        let glasses = if dice.chance(0.3) { Some(Glasses::sample(dice)) } else { None };
        let bearded = dice.chance(0.16);
        let open = if dice.chance(0.62) { dice.range(0.05, 0.21) } else { 0.0 };
        Face {
            skin,
            blush,
            brow: times(hair, 0.7),
            iris: *dice.pick(&[rgb(0x4A2C17), rgb(0x2E1A0F), rgb(0x3D6B8C), rgb(0x4F7942), rgb(0x7A5C2E)]),
            lips,
            beard: if bearded { Some((times(hair, 0.85), dice.range(0.45, 0.95))) } else { None },
            glasses,
            eye: (dice.range(0.135, 0.165), dice.range(-0.03, 0.01)),
            eye_half: (dice.range(0.064, 0.088), dice.range(0.054, 0.082)),
            brow_at: dice.range(0.1, 0.14),
            brow_tilt: dice.about(0.35),
            brow_thick: dice.range(0.014, 0.028),
            lashes: dice.chance(0.5),
            mouth_at: dice.range(-0.29, -0.26),
            mouth_half: dice.range(0.12, 0.185),
            lip: dice.range(0.028, 0.05),
            upper_teeth: if dice.chance(0.88) { dice.range(0.28, 0.42) } else { 0.0 },
            lower_teeth: if dice.chance(0.72) { dice.range(0.2, 0.32) } else { 0.0 },
            tongue: if dice.chance(0.85) { dice.range(0.6, 1.0) } else { 0.0 },
            mouth: Mouth { open, smile: dice.range(-0.015, 0.06) },
            shut: if dice.chance(0.08) { 1.0 } else { dice.range(0.0, 0.2) },
            gaze: (dice.about(0.35), dice.about(0.2)),
            nose: dice.range(0.8, 1.25),
        }
    }

    /// The class and colour at a point.
    pub fn at(&self, x: f32, y: f32) -> (u8, Colour) {
        let (side, ax) = (x.signum(), x.abs());
        let ex = (ax - self.eye.0) * side;
        let ey = y - self.eye.1;
        if let Some(glasses) = &self.glasses
            && let Some(part) = glasses.at(ax - self.eye.0, ax, ey)
        {
            let through = if part.tint < 1.0 { self.bare(x, y, ex, ey, ax) } else { part.colour };
            return (class::EYEGLASS, blend(through, part.colour, part.tint));
        }
        if let Some(found) = self.mouth_part(x, y) {
            return found;
        }
        (class::FACE_NECK, self.bare(x, y, ex, ey, ax))
    }

    /// Skin, eyes and brows.
    fn bare(&self, x: f32, y: f32, ex: f32, ey: f32, ax: f32) -> Colour {
        let (w, h) = self.eye_half;
        let open = h * (1.0 - self.shut);
        let q = ex / w;
        if q.abs() < 1.25 {
            let lid = (1.0 - q * q).max(0.0);
            let (top, bottom) = (open * lid, -open * 0.8 * lid);
            if q.abs() < 1.0 && ey < top && ey > bottom && self.shut < 0.9 {
                let (ix, iy) = (ex - self.gaze.0 * w * 0.5, ey - self.gaze.1 * h * 0.4);
                let r2 = ix * ix + iy * iy;
                let iris = h * 0.78;
                let (gx, gy) = (ix + iris * 0.3, iy - iris * 0.35);
                if gx * gx + gy * gy < iris * iris * 0.07 {
                    return [1.0, 1.0, 1.0];
                }
                if r2 < iris * iris * 0.25 {
                    return [0.05, 0.04, 0.05];
                }
                if r2 < iris * iris {
                    return self.iris;
                }
                let shade = if ey > top - 0.02 { 0.82 } else { 0.97 };
                return [shade, shade, shade];
            }
            let line = if self.shut >= 0.9 { -0.3 * h * lid } else { top };
            let thick = if self.lashes { 0.022 } else { 0.013 };
            let reach = if self.lashes { 1.22 } else { 1.08 };
            if q.abs() < reach && ey > line - 0.006 && ey < line + thick {
                return times(self.skin, 0.22);
            }
        }
        let brow = ey - self.brow_at + self.brow_tilt * (ax - self.eye.0) + 1.8 * ex * ex;
        if (ax - self.eye.0).abs() < 0.085 && brow.abs() < self.brow_thick {
            return self.brow;
        }
        let mut colour = self.skin;
        if let Some((beard, thick)) = self.beard {
            // Sideburns, the jaw around the mouth, and a moustache that meets it.
            let edge = self.mouth_at + 0.1 - 1.6 * (0.24 - ax).max(0.0) + 0.5 * (ax - 0.24).max(0.0);
            let (mx, my) = (ax / 0.2, (y - self.mouth_at - 0.015) / 0.085);
            let moustache = my > -1.0 && mx * mx + my * my < 1.0;
            let chin = y < self.mouth_at - 0.1;
            if y < edge || moustache || chin {
                let grain = noise(x * 60.0, y * 40.0, 9);
                return blend(self.skin, beard, thick * mix(0.75, 1.0, grain));
            }
        }
        // Cheeks, and the shade under the brow and the lip.
        let (cx, cy) = (ax - 0.22, y + 0.14);
        colour = blend(colour, self.blush, 0.7 * smooth(0.012, 0.0, cx * cx + cy * cy));
        let under = self.mouth_at - 0.09 - y;
        if under.abs() < 0.02 && ax < 0.08 {
            colour = times(colour, 0.95);
        }
        colour
    }

    fn mouth_part(&self, x: f32, y: f32) -> Option<(u8, Colour)> {
        let open = self.mouth.open;
        let half = self.mouth_half * (1.0 - 0.6 * open);
        let q = x / half;
        if q.abs() >= 1.0 {
            return None;
        }
        let dy = y - self.mouth_at - self.mouth.smile * (q * q - 0.3);
        let arch = 1.0 - q * q;
        let top = 0.4 * open * arch;
        let bottom = -0.75 * open * arch;
        let full = arch.sqrt();
        // The upper lip dips in the middle.
        let bow = 1.0 - 0.3 * smooth(0.25, 0.0, q.abs());
        if dy >= top && dy < top + self.lip * 0.9 * full * bow {
            return Some((class::UPPER_LIP, times(self.lips, 0.92)));
        }
        if dy < bottom && dy > bottom - self.lip * 1.15 * full {
            let shine = smooth(0.5, 0.0, (dy - bottom + self.lip * 0.5).abs() / self.lip);
            return Some((class::LOWER_LIP, blend(self.lips, [1.0, 0.9, 0.9], 0.22 * shine)));
        }
        if dy >= top || dy < bottom {
            // The line between closed lips belongs to neither; it is thinner than anything else.
            return None;
        }
        let height = open * 1.15;
        let gap = |x: f32| (x * 26.0 - floor(x * 26.0) - 0.5).abs();
        if top - dy < self.upper_teeth * height * (0.6 + 0.4 * arch) {
            let white = 0.98 - 0.1 * smooth(0.4, 0.5, gap(x));
            return Some((class::UPPER_TEETH, [white, white, white * 0.95]));
        }
        if dy - bottom < self.lower_teeth * height * (0.5 + 0.5 * arch) {
            let white = 0.9 - 0.1 * smooth(0.4, 0.5, gap(x + 0.02));
            return Some((class::LOWER_TEETH, [white, white * 0.98, white * 0.93]));
        }
        let tongue_half = half * 0.75;
        let (tx, ty) = (x / tongue_half, (dy - bottom) / (height * 0.85 * self.tongue.max(0.01)));
        if self.tongue > 0.0 && tx * tx + ty * ty < 1.0 {
            let groove = 1.0 - 0.12 * smooth(0.12, 0.0, tx.abs());
            return Some((class::TONGUE, times([0.86, 0.4, 0.42], groove)));
        }
        Some((class::FACE_NECK, [0.28, 0.08, 0.09]))
    }
}

struct GlassesPart {
    colour: Colour,
    tint: f32,
}

impl Glasses {
    fn sample(dice: &mut Dice) -> Glasses {
        let sun = dice.chance(0.4);
        Glasses {
            frame: if dice.chance(0.5) { times(cloth(dice), 0.6) } else { [0.08, 0.08, 0.09] },
            lens: if sun {
                *dice.pick(&[rgb(0x1B1B22), rgb(0x3A2A1C), rgb(0x16324F)])
            } else {
                rgb(0xD8ECF5)
            },
            tint: if sun { dice.range(0.8, 0.97) } else { dice.range(0.12, 0.3) },
            half: (dice.range(0.1, 0.125), dice.range(0.08, 0.115)),
            round: dice.chance(0.5),
            thick: dice.range(0.014, 0.026),
        }
    }

    /// `out` is from the middle of the eye outwards, `ax` from the middle of the face.
    fn at(&self, out: f32, ax: f32, y: f32) -> Option<GlassesPart> {
        let far = |w: f32, h: f32| {
            let (a, b) = (out / w, y / h);
            let (a2, b2) = (a * a, b * b);
            if self.round { a2 + b2 } else { a2 * a2 + b2 * b2 }
        };
        let (w, h) = self.half;
        if far(w, h) < 1.0 {
            if far(w - self.thick, h - self.thick) >= 1.0 {
                return Some(GlassesPart { colour: self.frame, tint: 1.0 });
            }
            let glare = if (out * 0.7 + y - 0.035).abs() < 0.012 { 0.35 } else { 0.0 };
            let colour = blend(self.lens, [1.0, 1.0, 1.0], glare);
            return Some(GlassesPart { colour, tint: self.tint + glare * (1.0 - self.tint) });
        }
        let bridge = ax < 0.07 && (y - 0.02).abs() < self.thick * 0.8;
        let temple = out > 0.0 && (y - 0.03).abs() < self.thick * 0.7 && ax < 0.5;
        if bridge || temple { Some(GlassesPart { colour: self.frame, tint: 1.0 }) } else { None }
    }
}
