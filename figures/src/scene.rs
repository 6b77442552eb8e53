//! A scene: its people, light, background and camera, all settled; and its rendering to a picture with labels.

use std::ops::RangeInclusive;
use std::sync::Arc;

use crate::background::Background;
use crate::class;
use crate::degrade::{self, Degrade};
use crate::dice::Dice;
use crate::kinds::{Draw, Kinds};
use crate::light::Light;
use crate::maths::smooth;
use crate::mesh::Mesh;
use crate::paint::{Colour, times};
use crate::person::{Habit, Looks, Person, Placement};
use crate::raster::{Canvas, Stage};
use crate::skeleton::Skeleton;
use crate::surface::Surface;

/// What scenes are sampled from.
#[derive(Clone, Debug)]
pub struct SceneOptions {
    /// Which poses, garments and backgrounds are drawn from.
    pub kinds: Kinds,
    /// How many people there are.
    pub people: RangeInclusive<usize>,
    /// Width over height of the frame as it is displayed. People have true proportions in it; a rendering of another
    /// shape is squeezed as a resize of the frame would be.
    pub aspect: f64,
    /// Whether the picture is blurred, noisy and compressed as a camera's is.
    pub degrade: bool,
}

impl Default for SceneOptions {
    fn default() -> Self {
        SceneOptions { kinds: Kinds::default(), people: 1..=3, aspect: 4.0 / 3.0, degrade: true }
    }
}

impl SceneOptions {
    pub(crate) fn count(&self, dice: &mut Dice) -> usize {
        let (low, high) = (*self.people.start(), *self.people.end());
        low + dice.below((high + 1).saturating_sub(low))
    }
}

/// A picture and the class of each of its pixels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Picture {
    /// In pixels.
    pub width: usize,
    /// In pixels.
    pub height: usize,
    /// Red, green and blue: `[height, width, 3]`.
    pub rgb: Vec<u8>,
    /// Classes (see [`crate::class`]): `[height, width]`.
    pub labels: Vec<u8>,
}

/// Drawn people in front of a background, determined to the last button.
#[derive(Clone)]
pub struct Scene {
    pub(crate) people: Vec<Person>,
    pub(crate) background: Arc<Background>,
    pub(crate) light: Light,
    pub(crate) degrade: Degrade,
    pub(crate) aspect: f32,
}

/// How a scene's people are framed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Framing {
    /// From head to toe.
    Whole,
    /// Cut off somewhere between the knees and the chest.
    Upper,
    /// Head and shoulders.
    Close,
    /// A face that fills most of the frame.
    Face,
    /// Partly past the frame's left or right edge.
    Edge,
}

impl Scene {
    /// The scene of a seed.
    pub fn sample(seed: u64, options: &SceneOptions) -> Scene {
        let mut dice = Dice::new(seed);
        let draw = Draw(options.kinds);
        let aspect = options.aspect as f32;
        let count = options.count(&mut dice);
        let people = sample_people(&mut dice, &draw, count, aspect);
        Scene::around(people, &mut dice, options)
    }

    /// The scene of people who are already settled.
    pub(crate) fn around(people: Vec<Person>, dice: &mut Dice, options: &SceneOptions) -> Scene {
        let draw = Draw(options.kinds);
        let skins: Vec<Colour> = people.iter().map(|person| person.looks.skin).collect();
        let aspect = options.aspect as f32;
        let background = Background::sample(dice, &draw, aspect, &skins);
        let light = Light::sample(dice);
        let damage = Degrade::sample(dice);
        let degrade = if options.degrade { damage } else { Degrade::none() };
        Scene { people, background: Arc::new(background), light, degrade, aspect }
    }

    /// The picture of `width` × `height` pixels; the whole frame, whatever its shape.
    pub fn render(&self, width: usize, height: usize) -> Picture {
        let (across, down) = (width as f32 / self.aspect, height as f32);
        let mut colours = self.backdrop(width, height, (across, down));
        let mut labels = vec![class::BACKGROUND; width * height];
        let models: Vec<(Mesh, Vec<Surface>)> = self
            .people
            .iter()
            .map(|person| {
                let (mut mesh, mut surfaces) = (Mesh::default(), Vec::new());
                person.model(down, &mut mesh, &mut surfaces);
                (mesh, surfaces)
            })
            .collect();
        let mut stage = Stage::default();
        // Those in front first: what they hide is then never drawn.
        for (person, (mesh, surfaces)) in self.people.iter().zip(&models).rev() {
            person.enter(mesh, surfaces, (across * 2.0, down * 2.0), &mut stage);
        }
        stage.draw(&self.light, &mut Canvas { width, height, colours: &mut colours, labels: &mut labels });
        let rgb = self.degrade.finish(colours, width, height, (across, down));
        Picture { width, height, rgb, labels }
    }

    /// The background, out of focus where it is, with the people's shadows on the ground.
    fn backdrop(&self, width: usize, height: usize, (across, down): (f32, f32)) -> Vec<Colour> {
        let background = &*self.background;
        let mut colours = background.paint(width, height, (across, down));
        degrade::blur(&mut colours, width, height, (background.blur * across, background.blur * down));
        for person in &self.people {
            let Placement { x, y, scale, .. } = person.placement;
            let lift = person.pose().lift;
            // Wider and fainter the higher they jump.
            let (wide, high) = (scale * (0.2 + 0.3 * lift), scale * (0.045 + 0.05 * lift));
            let dark = 0.5 / (1.0 + 10.0 * lift);
            let rows =
                (((y - high) * down).max(0.0) as usize)..(((y + high) * down).max(0.0) as usize).min(height);
            let columns = (((x - wide) * across).max(0.0) as usize)
                ..(((x + wide) * across).max(0.0) as usize).min(width);
            for row in rows {
                let dy = ((row as f32 + 0.5) / down - y) / high;
                for column in columns.clone() {
                    let dx = ((column as f32 + 0.5) / across - x) / wide;
                    let shade = 1.0 - dark * smooth(1.0, 0.1, dx * dx + dy * dy);
                    let colour = &mut colours[row * width + column];
                    *colour = times(*colour, shade);
                }
            }
        }
        colours
    }
}

/// People with their places in the frame, those in front last.
fn sample_people(dice: &mut Dice, draw: &Draw, count: usize, aspect: f32) -> Vec<Person> {
    let pitch = dice.range(-6.0, 16.0);
    let framing = match dice.below(20) {
        0..=8 => Framing::Whole,
        9..=12 => Framing::Upper,
        13..=15 => Framing::Close,
        16..=18 => Framing::Face,
        _ => Framing::Edge,
    };
    // They stand side by side, a little out of step, so that some overlap and all are seen.
    let first = dice.below(count.max(1));
    (0..count)
        .map(|index| {
            let looks = Arc::new(Looks::sample(dice, draw));
            let habit = Arc::new(Habit::sample(dice, draw));
            let phase = dice.unit();
            let slot = ((index + first) % count) as f32;
            let x = aspect * (slot + 0.5 + dice.about(0.42)) / count as f32;
            let mut yaw = yaw(dice);
            let distance = dice.range(2.6, 8.0);
            // Somebody behind a close-up is farther away; the last is in front.
            let framing = match framing {
                // Head to toe is all there is of who lies.
                _ if habit.family.name == "lying" => Framing::Whole,
                Framing::Close | Framing::Upper if index + 1 < count && dice.chance(0.6) => Framing::Upper,
                Framing::Face if index + 1 < count => Framing::Close,
                Framing::Edge if index > 0 && dice.chance(0.7) => Framing::Whole,
                framing => framing,
            };
            if framing == Framing::Face && dice.chance(0.85) {
                // A face fills the frame to be seen.
                yaw = dice.about(55.0) - 0.6 * habit.pose(phase).turn;
            }
            let mut person = Person {
                mouth: looks.face.mouth,
                shut: looks.face.shut,
                looks,
                habit,
                phase,
                placement: Placement { yaw, pitch, x, y: 0.0, scale: 1.0, distance, layer: index as f32 },
            };
            frame(&mut person, framing, dice, aspect, count);
            person
        })
        .collect()
}

/// Which way somebody faces: all around, the front somewhat likelier.
fn yaw(dice: &mut Dice) -> f32 {
    if dice.chance(0.45) { dice.about(60.0) } else { dice.range(-180.0, 180.0) }
}

/// Settles how large a person is and how high they stand.
pub(crate) fn frame(person: &mut Person, framing: Framing, dice: &mut Dice, aspect: f32, count: usize) {
    let (left, top, right, bottom) = extent(person);
    let (wide, high) = (right - left, bottom - top);
    let placement = &mut person.placement;
    match framing {
        Framing::Whole | Framing::Edge => {
            let share = if framing == Framing::Edge { dice.range(0.4, 1.3) } else { dice.range(0.3, 1.0) };
            placement.scale = (share / high).min(0.98 * aspect.max(0.6) / wide.max(0.1));
            let room = (1.0 - high * placement.scale).max(0.0);
            let floor = 1.0 - room * dice.range(0.0, 0.55) - bottom * placement.scale;
            placement.y = floor;
            if framing == Framing::Edge {
                placement.x =
                    if dice.chance(0.5) { dice.range(-0.05, 0.12) } else { aspect - dice.range(-0.05, 0.12) };
                return;
            }
            if count == 1 {
                placement.x = aspect * 0.5 + dice.about(0.5) * aspect;
            }
            // Inside the frame where there is room.
            let (l, r) = (left * placement.scale, right * placement.scale);
            if r - l < aspect {
                placement.x = placement.x.max(-l).min(aspect - r);
            }
        }
        Framing::Upper | Framing::Close | Framing::Face => {
            let size = person.looks.build.head;
            // The head stays in the frame, near its top; of a face the hair may be cut off.
            let room;
            (placement.scale, room) = match framing {
                Framing::Face => (dice.range(0.65, 1.25) / size, dice.range(-0.2, 0.12)),
                Framing::Close => (dice.range(0.35, 0.65) / size, dice.range(0.02, 0.3)),
                _ => (dice.range(1.1, 2.1), dice.range(0.0, 0.15)),
            };
            if count > 1 && framing == Framing::Close {
                placement.scale *= 0.8;
            }
            let (head_x, head_top) = head(person);
            let placement = &mut person.placement;
            placement.y = room - head_top * placement.scale;
            let x = if count == 1 || framing == Framing::Face {
                aspect * (0.5 + dice.about(0.28))
            } else {
                placement.x
            };
            placement.x = x - head_x * placement.scale;
        }
    }
}

/// Left, top, right and bottom of a person of scale 1, from where they stand.
pub(crate) fn extent(person: &Person) -> (f32, f32, f32, f32) {
    let build = &person.looks.build;
    let bones = Skeleton::of(build, &person.pose());
    let turn = person.placement.turn();
    let unit = Placement { x: 0.0, y: 0.0, scale: 1.0, ..person.placement };
    let mut extent = (f32::MAX, f32::MAX, f32::MIN, f32::MIN);
    for (at, radius) in bones.extent(build) {
        let (x, y, _) = unit.project(turn * at);
        extent.0 = extent.0.min(x - radius);
        extent.1 = extent.1.min(y - radius);
        extent.2 = extent.2.max(x + radius);
        extent.3 = extent.3.max(y + radius);
    }
    extent
}

/// The head's middle across and its top, likewise.
fn head(person: &Person) -> (f32, f32) {
    let build = &person.looks.build;
    let bones = Skeleton::of(build, &person.pose());
    let unit = Placement { x: 0.0, y: 0.0, scale: 1.0, ..person.placement };
    let (x, y, _) = unit.project(person.placement.turn() * bones.head.at);
    (x, y - build.head * 0.62)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::background::SCENERIES;
    use crate::paint::PATTERNS;

    fn scenes(kinds: Kinds) -> impl Iterator<Item = Scene> {
        (0..200).map(move |seed| Scene::sample(seed, &SceneOptions { kinds, ..SceneOptions::default() }))
    }

    /// Which of a scene's choices are held out of training.
    fn held_out(scene: &Scene) -> Vec<bool> {
        let pattern = |wanted| PATTERNS.iter().any(|&(pattern, _, held)| pattern == wanted && held);
        let mut found =
            vec![SCENERIES.iter().any(|&(scenery, _, held)| scenery == scene.background.scenery && held)];
        for person in &scene.people {
            let outfit = &person.looks.outfit;
            found.extend([person.habit.family.held_out, outfit.top.held_out, outfit.bottom.held_out]);
            found.push(pattern(outfit.top_paint.pattern));
        }
        found
    }

    #[test]
    fn training_sees_nothing_that_is_held_out() {
        assert!(scenes(Kinds::Training).all(|scene| !held_out(&scene).contains(&true)));
        for scene in scenes(Kinds::Training) {
            let outfits = scene.people.iter().map(|person| &person.looks.outfit);
            for outfit in outfits {
                let jacket = outfit.jacket.iter().map(|jacket| jacket.paint.pattern);
                let patterns = [outfit.bottom_paint.pattern, outfit.sock.pattern];
                for worn in patterns.into_iter().chain(jacket) {
                    assert!(PATTERNS.iter().all(|&(pattern, _, held)| pattern != worn || !held), "{worn:?}");
                }
            }
        }
    }

    #[test]
    fn what_is_held_out_is_all_there_is_for_a_test() {
        assert!(scenes(Kinds::HeldOut).all(|scene| !held_out(&scene).contains(&false)));
    }

    #[test]
    fn left_and_right_swap_between_front_and_back() {
        let middle = |picture: &Picture, label: u8| {
            let columns: Vec<usize> = (0..picture.labels.len())
                .filter(|&index| picture.labels[index] == label)
                .map(|index| index % picture.width)
                .collect();
            columns.iter().sum::<usize>() as f32 / columns.len() as f32
        };
        let options = SceneOptions { people: 1..=1, degrade: false, aspect: 1.0, ..SceneOptions::default() };
        let mut scene = Scene::sample(1, &options);
        let person = &mut scene.people[0];
        let mut habit = Habit::clone(&person.habit);
        habit.family = &crate::families::FAMILIES[6];
        habit.jitter = crate::pose::Pose::default();
        person.habit = Arc::new(habit);
        assert_eq!(person.habit.family.name, "arms out");
        person.placement =
            Placement { yaw: 0.0, pitch: 0.0, x: 0.5, y: 0.95, scale: 0.8, distance: 6.0, layer: 0.0 };
        let front = scene.render(200, 200);
        scene.people[0].placement.yaw = 180.0;
        let back = scene.render(200, 200);
        // Seen from the front, the person's left is at the picture's right.
        assert!(middle(&front, class::LEFT_HAND) > middle(&front, class::RIGHT_HAND) + 50.0);
        assert!(middle(&back, class::RIGHT_HAND) > middle(&back, class::LEFT_HAND) + 50.0);
    }

    #[test]
    fn people_are_of_all_heights() {
        let mut bins = [0; 4];
        for scene in scenes(Kinds::Training) {
            for person in &scene.people {
                let (_, top, _, bottom) = extent(person);
                let share = (bottom - top) * person.placement.scale;
                bins[if share < 0.5 {
                    0
                } else if share < 0.8 {
                    1
                } else if share < 1.05 {
                    2
                } else {
                    3
                }] += 1;
            }
        }
        let all: i32 = bins.iter().sum();
        assert!(
            bins.iter().all(|&bin| bin * 12 > all),
            "less than half, 0.8 and all of the frame, more: {bins:?}"
        );
    }
}
