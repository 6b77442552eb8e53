//! People who move: a scene for every moment, smoothly, in loops.

use crate::degrade::reseed;
use crate::dice::Dice;
use crate::kinds::Draw;
use crate::maths::{mix, smooth, swing};
use crate::person::{Person, Placement};
use crate::scene::{Framing, Scene, SceneOptions, extent, frame};

/// How a person gets about. Whole loops take `period` seconds.
#[derive(Clone, Copy, Debug)]
enum Path {
    /// On the spot, turning to and fro by so many degrees.
    Sway(f32),
    /// On the spot, turning all the way round.
    Turntable,
    /// Round a circle of a radius in body heights, facing where they go.
    Circle(f32),
}

#[derive(Clone, Debug)]
struct Motion {
    path: Path,
    period: f32,
    /// How often a pose's loop goes round in a second.
    pace: f32,
    talks: f32,
    blink: f32,
    start: Placement,
    phase: f32,
}

fn walks(person: &Person) -> bool {
    matches!(person.habit.family.name, "walking" | "running")
}

/// Moving people in front of one background.
#[derive(Clone)]
pub struct Clip {
    first: Scene,
    motions: Vec<Motion>,
}

impl Clip {
    /// The clip of a seed. People stay in the frame; poses, clothes and background are drawn as for a scene.
    pub fn sample(seed: u64, options: &SceneOptions) -> Clip {
        let mut first = Scene::sample(seed, options);
        // Another stream than the scene's own.
        let mut dice = Dice::new(seed ^ 0x5EED_C11F);
        let count = first.people.len();
        let aspect = options.aspect as f32;
        let draw = Draw(options.kinds);
        let framing = if dice.chance(0.7) { Framing::Whole } else { Framing::Upper };
        let motions = (0..count)
            .map(|index| {
                let person = &mut first.people[index];
                // Lying down is a poor thing to watch.
                let name = |person: &Person| person.habit.family.name;
                while name(person) == "lying" || (framing == Framing::Upper && name(person) == "jumping") {
                    person.habit = std::sync::Arc::new(crate::person::Habit::sample(&mut dice, &draw));
                }
                let framing = if walks(person) { Framing::Whole } else { framing };
                let path = if walks(person) {
                    Path::Circle(dice.range(0.25, 0.4))
                } else if dice.chance(0.35) {
                    Path::Turntable
                } else {
                    Path::Sway(dice.range(10.0, 40.0))
                };
                person.placement.x = aspect * (index as f32 + 0.5 + dice.about(0.15)) / count as f32;
                frame(person, framing, &mut dice, aspect, count.max(2));
                if let Path::Circle(_) = path {
                    // Room to walk in.
                    let (left, _, right, _) = extent(person);
                    let half = 0.4 + 0.5 * (right - left);
                    person.placement.scale = person.placement.scale.min(0.68).min(0.5 * aspect / half);
                    let reach = half * person.placement.scale;
                    person.placement.x = person.placement.x.max(reach).min(aspect - reach);
                    person.placement.y = dice.range(0.86, 0.92);
                }
                Motion {
                    path,
                    period: match path {
                        Path::Sway(_) => dice.range(4.0, 8.0),
                        Path::Turntable => dice.range(7.0, 12.0),
                        Path::Circle(radius) => radius * dice.range(16.0, 22.0),
                    },
                    pace: person.habit.family.pace * dice.range(0.85, 1.1),
                    talks: if dice.chance(0.6) { dice.range(1.0, 1.9) } else { 0.0 },
                    blink: dice.range(2.2, 4.0),
                    start: person.placement,
                    phase: person.phase,
                }
            })
            .collect();
        Clip { first, motions }
    }

    /// The scene `seconds` after the clip's start.
    pub fn scene_at(&self, seconds: f64) -> Scene {
        let mut scene = self.first.clone();
        for (person, motion) in scene.people.iter_mut().zip(&self.motions) {
            // Turns are counted in 64 bits: hours into a clip, movement is as smooth as at its start.
            let turns = |per_second: f32| (seconds * f64::from(per_second)).rem_euclid(1.0) as f32;
            person.phase = motion.phase + turns(motion.pace);
            let round = turns(1.0 / motion.period);
            let start = motion.start;
            person.placement = match motion.path {
                Path::Sway(degrees) => Placement { yaw: start.yaw + degrees * swing(round), ..start },
                Path::Turntable => Placement { yaw: start.yaw + 360.0 * round, ..start },
                Path::Circle(radius) => {
                    // Seen from a little above: nearer is lower and larger.
                    let (across, near) = (swing(round) * radius, swing(round + 0.25) * radius);
                    let grow = 1.0 + 0.12 * near;
                    Placement {
                        yaw: 360.0 * round + 90.0,
                        x: start.x + across * start.scale,
                        y: start.y + 0.1 * near * start.scale,
                        scale: start.scale * grow,
                        ..start
                    }
                }
            };
            let face = &person.looks.face;
            let word =
                (0.5 + 0.5 * swing(turns(motion.talks))) * (0.5 + 0.5 * swing(turns(motion.talks * 0.37)));
            person.mouth.open = if motion.talks > 0.0 { 0.13 * word } else { face.mouth.open };
            let blink = (turns(1.0 / motion.blink) - 0.5).abs() * motion.blink;
            person.shut = mix(face.shut, 1.0, smooth(0.12, 0.03, blink));
        }
        scene.degrade.seed = reseed(self.first.degrade.seed, seconds);
        scene
    }
}
