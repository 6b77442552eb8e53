//! The light of a scene and how a surface looks in it.

use crate::dice::Dice;
use crate::maths::{V3, mix, noise, smooth, v3};
use crate::paint::{Colour, Paint, blend};

/// One lamp, the sky and the ground.
#[derive(Clone, Debug)]
pub(crate) struct Light {
    /// Where the lamp is.
    pub towards: V3,
    pub lamp: Colour,
    pub sky: Colour,
    pub ground: Colour,
    /// How dark the outlines are, in 0..1.
    pub ink: f32,
    /// How much of the shading comes in steps, as in a cartoon.
    pub toon: f32,
}

impl Light {
    pub fn sample(dice: &mut Dice) -> Light {
        let towards = v3(dice.about(1.3), dice.range(0.25, 1.2), dice.range(0.35, 1.0)).unit();
        let strength = dice.range(0.5, 0.8);
        // From evening (warm lamp, cool shade) to an overcast day.
        let warm = dice.about(0.12);
        let lamp = [strength * (1.0 + warm), strength, strength * (1.0 - warm)];
        let fill = dice.range(0.42, 0.62);
        let sky = [fill * (1.0 - 0.5 * warm), fill, fill * (1.0 + 0.7 * warm)];
        let bounce = fill * dice.range(0.6, 0.9);
        let ground = [bounce * 1.04, bounce, bounce * 0.94];
        let toon = if dice.chance(0.35) { dice.range(0.3, 0.9) } else { 0.0 };
        let ink = if dice.chance(0.6) { dice.range(0.3, 0.85) } else { 0.0 };
        Light { towards, lamp, sky, ground, ink, toon }
    }

    /// How a surface is lit whose normal is `normal`, towards or away from the viewer.
    pub fn on(&self, mut normal: V3, paint: &Paint, u: f32, v: f32) -> Lit {
        let inside = normal.z < 0.0;
        if inside {
            normal = -normal;
        }
        if paint.folds > 0.0 {
            let (x, y) = (u * paint.scale.0, v * paint.scale.1);
            let fold = paint.folds * (noise(x * 0.55, y * 0.8 + x * 0.25, paint.seed) - 0.5);
            normal.x += fold;
            normal.y -= 0.6 * fold;
        }
        let mut facing = normal.dot(self.towards) * 0.5 + 0.5;
        facing *= facing;
        if self.toon > 0.0 {
            facing = mix(facing, mix(0.22, 0.75, smooth(0.4, 0.48, facing)), self.toon);
        }
        let up = normal.y * 0.5 + 0.5;
        let mut shade = if inside { 0.6 } else { 1.0 };
        shade *= 1.0 - self.ink * smooth(0.42, 0.12, normal.z) * 0.75;
        let ambient = blend(self.ground, self.sky, up);
        let gain = [0, 1, 2].map(|i| (ambient[i] + self.lamp[i] * facing) * shade);
        let mut shine = [0.0; 3];
        if paint.gloss > 0.0 {
            // The lamp seen between the normal and the viewer, who looks along z.
            let half = (self.towards + v3(0.0, 0.0, 1.0)).unit();
            let near = normal.dot(half).max(0.0);
            let near = near * near * near * near;
            let near = near * near * near * paint.gloss;
            shine = self.lamp.map(|lamp| near * lamp * 0.6);
        }
        Lit { gain, shine }
    }
}

/// What light makes of a colour.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Lit {
    gain: Colour,
    shine: Colour,
}

impl Lit {
    pub fn colour(&self, colour: Colour) -> Colour {
        [0, 1, 2].map(|i| colour[i] * self.gain[i] + self.shine[i])
    }
}
