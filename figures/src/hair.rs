//! Hair: a cap over the skull cut along a hairline, and what hangs or sits on it.

use crate::class;
use crate::dice::Dice;
use crate::figure::Figure;
use crate::maths::{V3, mix, v3};
use crate::mesh::{Arc, Ring, hanging};
use crate::paint::{Colour, Paint, Pattern, hsv, rgb, times};
use crate::surface::{Cut, Surface};

const NATURAL: &[u32] = &[
    0x17120F, 0x2A1B14, 0x3D2516, 0x5A3A22, 0x7A5230, 0xA67B45, 0xD2A85F, 0xE8CC8F, 0x9C4A21, 0xB9B4AE,
    0xE4E1DC,
];

#[derive(Clone, Copy, Debug, PartialEq)]
enum Style {
    Bald,
    Ring,
    Short,
    Bob,
    Long,
    Ponytail,
    Bun,
    Afro,
    Pigtails,
    Spiky,
    Mohawk,
}

const STYLES: &[(Style, f32)] = &[
    (Style::Bald, 0.4),
    (Style::Ring, 0.3),
    (Style::Short, 2.6),
    (Style::Bob, 1.3),
    (Style::Long, 1.8),
    (Style::Ponytail, 1.2),
    (Style::Bun, 1.0),
    (Style::Afro, 0.8),
    (Style::Pigtails, 0.6),
    (Style::Spiky, 0.6),
    (Style::Mohawk, 0.2),
];

/// Somebody's hair.
#[derive(Clone, Debug)]
pub(crate) struct Hair {
    style: Style,
    pub colour: Colour,
    thick: f32,
    forehead: f32,
    side: f32,
    ragged: f32,
    part: f32,
    long: f32,
    seed: u32,
}

pub(crate) fn colour(dice: &mut Dice) -> Colour {
    if dice.chance(0.1) {
        let (hue, vivid) = (dice.unit(), dice.range(0.4, 0.7));
        return hsv(hue, vivid, 0.8);
    }
    times(rgb(*dice.pick(NATURAL)), dice.range(0.85, 1.15))
}

impl Hair {
    pub fn sample(colour: Colour, dice: &mut Dice) -> Hair {
        let total: f32 = STYLES.iter().map(|style| style.1).sum();
        let mut left = dice.range(0.0, total);
        let mut style = Style::Short;
        for &(candidate, weight) in STYLES {
            style = candidate;
            left -= weight;
            if left < 0.0 {
                break;
            }
        }
        let fringe = dice.chance(0.4);
        Hair {
            style,
            colour,
            thick: dice.range(0.045, 0.085),
            forehead: if fringe { dice.range(0.14, 0.2) } else { dice.range(0.22, 0.3) },
            side: match style {
                Style::Bob => dice.range(-0.4, -0.25),
                Style::Long | Style::Pigtails => dice.range(-0.45, -0.2),
                _ => dice.range(-0.12, 0.02),
            },
            ragged: if dice.chance(0.5) { dice.range(0.02, 0.09) } else { 0.01 },
            part: if dice.chance(0.5) { dice.about(0.5) } else { 0.0 },
            long: dice.range(0.0, 1.0),
            seed: dice.seed(),
        }
    }

    pub fn covers_ears(&self) -> bool {
        matches!(self.style, Style::Bob | Style::Long)
    }

    fn paint(&self, cells: (f32, f32)) -> Paint {
        Paint {
            pattern: Pattern::Strands,
            base: self.colour,
            second: self.colour.map(|channel| channel * 0.72 + 0.03),
            scale: cells,
            gloss: 0.35,
            seed: self.seed,
            ..Paint::plain(self.colour)
        }
    }

    /// Draws the hair; under a hat only what comes out below it.
    pub fn draw(&self, figure: &mut Figure<'_>, hat: bool) {
        let thick = if hat { 0.03 } else { self.thick };
        match self.style {
            Style::Bald => return,
            Style::Ring | Style::Mohawk => self.cap(figure, thick * 0.5, -0.08),
            Style::Afro if !hat => self.afro(figure),
            Style::Afro => self.cap(figure, 0.09, -0.2),
            Style::Bob | Style::Long => self.cap(figure, thick, -0.34),
            _ => self.cap(figure, thick, -0.24),
        }
        match self.style {
            Style::Bob => self.curtain(figure, mix(0.0, 0.25, self.long)),
            Style::Long => self.curtain(figure, mix(0.4, 1.4, self.long)),
            Style::Ponytail => {
                let from = figure.on_head(0.0, mix(0.0, 0.28, self.long), -0.42);
                self.tail(figure, from, -1.0, 0.0, mix(0.8, 1.5, self.long));
            }
            Style::Pigtails => {
                for side in [-1.0, 1.0] {
                    let from = figure.on_head(side * 0.4, 0.02, -0.12);
                    self.tail(figure, from, -0.2, side * 0.7, mix(0.6, 1.2, self.long));
                }
            }
            Style::Bun if !hat => {
                let at = figure.on_head(0.0, mix(0.12, 0.52, self.long), mix(-0.48, -0.16, self.long));
                let size = figure.build.head * 0.2;
                let surface = figure.surface(Surface::closed(class::HAIR, self.paint((8.0, 5.0))));
                let frame = figure.head_frame();
                figure.mesh.blob(surface, at, frame, v3(size, size * 0.9, size), 14);
            }
            Style::Spiky if !hat => self.spikes(figure),
            Style::Mohawk if !hat => self.crest(figure),
            _ => {}
        }
    }

    /// Close to the skull, down to `nape` (in head heights from the head's middle) behind.
    fn cap(&self, figure: &mut Figure<'_>, thick: f32, nape: f32) {
        let bald_top = self.style == Style::Ring;
        let forehead = if bald_top { 0.5 } else { self.forehead };
        let cut = Cut::Hairline {
            forehead,
            side: self.side,
            ragged: self.ragged,
            part: if bald_top { 0.0 } else { self.part },
            seed: self.seed,
        };
        let paint = self.paint((16.0, 3.0));
        let front = figure.surface(Surface::closed(class::HAIR, paint).cut(cut));
        let back = figure.surface(Surface::closed(class::HAIR, self.paint((14.0, 2.0))).cut(Cut::Hem {
            at: 0.5 + nape,
            ragged: 0.04,
            seed: self.seed,
        }));
        let crown = if bald_top { 0.72 } else { 1.0 };
        let size = figure.build.head;
        // Thinner towards its edges; the crown is raised by as much as the sides are widened.
        let mut rings = figure.skull_rings(0.08, crown, |t| thick * (0.55 + 0.45 * t));
        for ring in &mut rings {
            ring.at = ring.at + figure.head_frame().y * (thick * size * ring.v * ring.v * 0.9);
        }
        let head = figure.bones.head;
        let place = |_: f32, _: f32, at: V3| {
            let local = at - head.at;
            (local.dot(head.frame.x) / size, local.dot(head.frame.y) / size)
        };
        let half = figure.detail.head / 2;
        if !bald_top {
            figure.mesh.tube_with(front, &rings, Arc { from: 0.0, to: 0.5, faces: half }, place);
        }
        figure.mesh.tube(back, &rings, Arc { from: 0.5, to: 1.0, faces: half });
    }

    fn afro(&self, figure: &mut Figure<'_>) {
        let cut = Cut::Hairline { forehead: 0.24, side: -0.12, ragged: 0.06, part: 0.0, seed: self.seed };
        let front = figure.surface(Surface::closed(class::HAIR, self.paint((30.0, 30.0))).cut(cut));
        let back = figure.surface(Surface::closed(class::HAIR, self.paint((30.0, 30.0))));
        let (head, size) = (figure.bones.head, figure.build.head);
        let grow = mix(0.14, 0.3, self.long);
        let rings: Vec<Ring> = (0..=12)
            .map(|step| {
                let t = step as f32 / 12.0;
                let (s, c) = crate::maths::sin_cos(180.0 * t);
                let s = if step == 0 || step == 12 { 0.0 } else { s };
                let half = (0.4 + grow) * size;
                let at = figure.on_head(0.0, 0.12 - (0.42 + grow) * c, -0.06);
                Ring::across(at, head.frame, half * s, half * s * 0.96, t)
            })
            .collect();
        let place = |_: f32, _: f32, at: V3| {
            let local = at - head.at;
            // The opening for the face is the skull's, however far out the hair is.
            (local.dot(head.frame.x) / size / (1.0 + grow), local.dot(head.frame.y) / size)
        };
        figure.mesh.tube_with(front, &rings, Arc { from: 0.0, to: 0.5, faces: 12 }, place);
        figure.mesh.tube(back, &rings, Arc { from: 0.5, to: 1.0, faces: 12 });
    }

    /// Hair that hangs from the head's sides and back, `long` head heights below the chin.
    fn curtain(&self, figure: &mut Figure<'_>, long: f32) {
        let surface = figure.surface(Surface::open(class::HAIR, self.paint((22.0, 2.0))));
        let (head, size) = (figure.bones.head, figure.build.head);
        let loose = hanging(head.frame, 0.25);
        let chest = figure.bones.chest.frame;
        let start = figure.on_head(0.0, 0.12, -0.04);
        let steps = 8;
        let rings: Vec<Ring> = (0..=steps)
            .map(|step| {
                let t = step as f32 / steps as f32;
                let down = t * (0.6 + long);
                let frame = head.frame.to(loose, t);
                // Below the chin it lies on the back instead of going through it.
                let below = ((down - 0.45) / 0.5).clamp(0.0, 1.0);
                let at = start - frame.y * (down * size) - chest.z * (below * (0.035 + 0.12 * size));
                let wide = mix(0.43, 0.5, below) * size;
                let deep = mix(0.46, 0.2, below) * size;
                Ring::across(at, frame, wide, deep, t)
            })
            .collect();
        // Open in front, from one temple round the back to the other.
        figure.mesh.tube(surface, &rings, Arc { from: 0.47, to: 1.03, faces: 16 });
    }

    fn tail(&self, figure: &mut Figure<'_>, from: V3, back: f32, out: f32, long: f32) {
        let surface = figure.surface(Surface::closed(class::HAIR, self.paint((6.0, 3.0))));
        let (frame, size) = (figure.head_frame(), figure.build.head);
        let loose = hanging(frame, 0.2);
        let away = (frame.z * back + frame.x * out).unit();
        let points = [
            (from, 0.085 * size),
            (from + away * (0.16 * size) - loose.y * (0.05 * size), 0.125 * size),
            (from + away * (0.26 * size) - loose.y * (0.35 * long * size), 0.13 * size),
            (from + away * (0.22 * size) - loose.y * (0.7 * long * size), 0.1 * size),
            (from + away * (0.2 * size) - loose.y * (long * size), 0.03 * size),
        ];
        figure.mesh.rod(surface, &points, frame.x, figure.detail.limb);
    }

    fn spikes(&self, figure: &mut Figure<'_>) {
        let surface = figure.surface(Surface::closed(class::HAIR, self.paint((3.0, 2.0))));
        let (frame, size) = (figure.head_frame(), figure.build.head);
        for row in 0..4 {
            for column in 0..5 {
                let x = (column as f32 - 2.0) * 0.15;
                let z = 0.28 - row as f32 * 0.2;
                let y = 0.43 - 0.9 * x * x - 0.35 * (z + 0.05) * (z + 0.05);
                let root = figure.on_head(x, y, z);
                let lean = crate::maths::hash(row, column, self.seed) - 0.5;
                let tip = figure.on_head(x * 1.35 + 0.12 * lean, y + 0.2, z + 0.08 + 0.1 * lean);
                figure.mesh.rod(surface, &[(root, 0.1 * size), (tip, 0.012 * size)], frame.x, 6);
            }
        }
    }

    fn crest(&self, figure: &mut Figure<'_>) {
        let surface = figure.surface(Surface::closed(class::HAIR, self.paint((3.0, 2.0))));
        let (frame, size) = (figure.head_frame(), figure.build.head);
        for step in 0..9 {
            let (s, c) = crate::maths::sin_cos(35.0 + 18.0 * step as f32);
            let root = figure.on_head(0.0, 0.4 * s, 0.36 * c);
            let tip = figure.on_head(0.0, 0.66 * s, 0.56 * c);
            figure.mesh.rod(surface, &[(root, 0.08 * size), (tip, 0.03 * size)], frame.x, 7);
        }
    }
}
