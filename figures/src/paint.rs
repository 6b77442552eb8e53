//! Colours and the patterns of cloth, each a colour per point of a surface.

use crate::dice::Dice;
use crate::maths::{floor, hash, mix, noise, smooth, swing};

/// Red, green and blue in 0..1, as displayed.
pub(crate) type Colour = [f32; 3];

pub(crate) fn blend(a: Colour, b: Colour, t: f32) -> Colour {
    [mix(a[0], b[0], t), mix(a[1], b[1], t), mix(a[2], b[2], t)]
}

pub(crate) fn times(a: Colour, by: f32) -> Colour {
    [a[0] * by, a[1] * by, a[2] * by]
}

/// `0xRRGGBB`.
pub(crate) const fn rgb(hex: u32) -> Colour {
    [(hex >> 16 & 255) as f32 / 255.0, (hex >> 8 & 255) as f32 / 255.0, (hex & 255) as f32 / 255.0]
}

/// Of a hue in turns (0 red, 1/3 green, 2/3 blue), how vivid and how bright.
pub(crate) fn hsv(hue: f32, vivid: f32, bright: f32) -> Colour {
    let channel = |shift: f32| {
        let h = hue + shift;
        let h = (h - floor(h)) * 6.0;
        let full = ((h - 3.0).abs() - 1.0).clamp(0.0, 1.0);
        bright * mix(1.0, full, vivid)
    };
    [channel(0.0), channel(2.0 / 3.0), channel(1.0 / 3.0)]
}

/// Pleasant colours of cloth.
const CLOTH: &[u32] = &[
    0xE4572E, 0xF2A541, 0xF3D34A, 0x8AB17D, 0x2A9D8F, 0x1D6FA3, 0x264653, 0x6D597A, 0xB56576, 0xE88C7D,
    0xF4F1DE, 0xFFFFFF, 0x22223B, 0x2B2B2B, 0x9A8C98, 0x457B9D, 0xA8DADC, 0xE63946, 0x7A3B2E, 0xC9ADA7,
    0x606C38, 0x283618, 0xDDA15E, 0xBC6C25, 0x3A86FF, 0x8338EC, 0xFF6B9A, 0x5F0F40, 0xD9D9D9, 0x7D8597,
    0xCBC0D3, 0x0B6E4F, 0xF7B2AD, 0x4A4E69, 0xEFE9E7, 0x111D4A,
];

pub(crate) fn cloth(dice: &mut Dice) -> Colour {
    if dice.chance(0.2) {
        let (hue, vivid, bright) = (dice.unit(), dice.range(0.1, 0.85), dice.range(0.25, 1.0));
        return hsv(hue, vivid, bright);
    }
    let colour = rgb(*dice.pick(CLOTH));
    let shade = dice.range(0.88, 1.08);
    colour.map(|channel| (channel * shade + 0.02 * (shade - 1.0)).clamp(0.02, 1.0))
}

/// A colour that stands out against `from`.
pub(crate) fn against(from: Colour, dice: &mut Dice) -> Colour {
    let mut best = (0.0, from);
    for _ in 0..4 {
        let colour = cloth(dice);
        let far: f32 = colour.iter().zip(from).map(|(a, b)| (a - b) * (a - b)).sum();
        if far > best.0 {
            best = (far, colour);
        }
    }
    best.1
}

/// How a surface is coloured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Pattern {
    Plain,
    /// Rings around the tube.
    Stripes,
    Pinstripes,
    Checks,
    Tartan,
    Dots,
    Fade,
    Denim,
    Blotches,
    Flowers,
    /// The chest of another colour than the rest.
    Block,
    Zigzag,
    Diamonds,
    Leopard,
    Waves,
    /// Lines along the tube, as combed hair has.
    Strands,
}

/// Patterns with their likelihood and whether they are held out of training.
pub(crate) const PATTERNS: &[(Pattern, f32, bool)] = &[
    (Pattern::Plain, 5.0, false),
    (Pattern::Stripes, 1.6, false),
    (Pattern::Pinstripes, 0.8, false),
    (Pattern::Checks, 0.9, false),
    (Pattern::Tartan, 0.9, false),
    (Pattern::Dots, 1.0, false),
    (Pattern::Fade, 0.8, false),
    (Pattern::Denim, 1.0, false),
    (Pattern::Blotches, 0.7, false),
    (Pattern::Flowers, 0.9, false),
    (Pattern::Block, 0.8, false),
    (Pattern::Zigzag, 1.0, true),
    (Pattern::Diamonds, 1.0, true),
    (Pattern::Leopard, 1.0, true),
    (Pattern::Waves, 1.0, true),
];

/// The colours of a surface. `scale` is how many cells of the pattern go round and along it in one unit of u and v.
#[derive(Clone, Debug)]
pub(crate) struct Paint {
    pub pattern: Pattern,
    pub base: Colour,
    pub second: Colour,
    pub third: Colour,
    pub scale: (f32, f32),
    /// How strongly it shines, in 0..1.
    pub gloss: f32,
    /// How deep its folds are, in 0..1.
    pub folds: f32,
    pub seed: u32,
}

impl Paint {
    pub fn plain(base: Colour) -> Paint {
        Paint {
            pattern: Pattern::Plain,
            base,
            second: base,
            third: base,
            scale: (1.0, 1.0),
            gloss: 0.05,
            folds: 0.0,
            seed: 0,
        }
    }

    pub fn glossy(base: Colour, gloss: f32) -> Paint {
        Paint { gloss, ..Paint::plain(base) }
    }

    /// The same cloth on a tube `round` units around and `along` units per unit of v, in body heights.
    pub fn fitted(&self, round: f32, along: f32) -> Paint {
        let cells = 1.0 / 0.05;
        // A whole number of cells around: the pattern has no seam.
        let around = (round * cells * self.scale.0).round().max(2.0);
        Paint { scale: (around, along * cells * self.scale.1), ..self.clone() }
    }

    /// Whether the colour changes within a few pixels, so that one sample doesn't do for all of a pixel.
    pub fn is_fine(&self) -> bool {
        !matches!(self.pattern, Pattern::Plain | Pattern::Fade | Pattern::Denim)
    }

    pub fn at(&self, u: f32, v: f32) -> Colour {
        let (x, y) = (u * self.scale.0, v * self.scale.1);
        let wave = |t: f32| t - floor(t);
        match self.pattern {
            Pattern::Plain => self.base,
            Pattern::Stripes => self.choose(wave(y * 0.5) < 0.45),
            Pattern::Pinstripes => self.choose(wave(x) < 0.18),
            Pattern::Checks => self.choose((wave(x * 0.5) < 0.5) != (wave(y * 0.5) < 0.5)),
            Pattern::Tartan => {
                let bar = |t: f32| if wave(t) < 0.4 { 0.5 } else { 0.0 };
                let colour = blend(self.base, self.second, bar(x * 0.5) + bar(y * 0.5));
                let thin = wave(x * 0.5 + 0.3) < 0.07 || wave(y * 0.5 + 0.3) < 0.07;
                if thin { blend(colour, self.third, 0.8) } else { colour }
            }
            Pattern::Dots => {
                let row = floor(y);
                let (dx, dy) = (wave(x + 0.5 * (row - 2.0 * floor(row * 0.5))) - 0.5, y - row - 0.5);
                self.choose(dx * dx + dy * dy < 0.07)
            }
            Pattern::Fade => blend(self.base, self.second, smooth(0.15, 0.85, v.clamp(0.0, 2.0) * 0.7)),
            Pattern::Denim => {
                let fade = 0.82 + 0.36 * noise(x * 0.9, y * 0.6, self.seed);
                times(self.base, fade + 0.1 * (noise(x * 9.0, y * 9.0, self.seed ^ 7) - 0.5))
            }
            Pattern::Blotches => {
                let n = noise(x * 0.7, y * 0.7, self.seed) + 0.5 * noise(x * 1.6, y * 1.6, self.seed ^ 3);
                if n < 0.55 {
                    self.base
                } else if n < 0.85 {
                    self.second
                } else {
                    self.third
                }
            }
            Pattern::Flowers => {
                let (cx, cy) = (floor(x), floor(y));
                let jump = hash(cx as i32, cy as i32, self.seed);
                let (dx, dy) = (x - cx - 0.35 - 0.3 * jump, y - cy - 0.65 + 0.3 * jump);
                let r = dx * dx + dy * dy;
                let petals = 0.05 + 0.05 * (dx * dx - dy * dy).abs() / r.max(1e-4);
                if r < 0.015 { self.third } else { self.choose(r < petals) }
            }
            Pattern::Block => self.choose(v > 0.72),
            Pattern::Zigzag => self.choose(wave(y * 0.5 + (wave(x * 0.5) - 0.5).abs()) < 0.42),
            Pattern::Diamonds => {
                let (a, b) = ((wave(x * 0.4) - 0.5).abs(), (wave(y * 0.4) - 0.5).abs());
                let line =
                    (wave((x + y) * 0.4) - 0.5).abs() < 0.04 || (wave((x - y) * 0.4) - 0.5).abs() < 0.04;
                if line { self.third } else { self.choose(a + b < 0.5) }
            }
            Pattern::Leopard => {
                let n = noise(x * 1.6, y * 1.6, self.seed);
                if n > 0.72 { self.third } else { self.choose(n > 0.58) }
            }
            Pattern::Waves => self.choose(wave(y * 0.5 + 0.22 * swing(x * 0.5)) < 0.4),
            Pattern::Strands => {
                let n = 0.5 * noise(x, y * 0.4, self.seed) + 0.5 * noise(x * 2.3, y * 0.7, self.seed ^ 5);
                blend(self.base, self.second, smooth(0.3, 0.75, n))
            }
        }
    }

    fn choose(&self, second: bool) -> Colour {
        if second { self.second } else { self.base }
    }
}
