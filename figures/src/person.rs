//! A person: a build, a face, hair, an outfit, a pose, and where they stand in the frame.

use std::sync::Arc;

use crate::apparel;
use crate::body::{self, Bare};
use crate::class;
use crate::dice::Dice;
use crate::face::{Face, Mouth};
use crate::families::{FAMILIES, Family, Seat};
use crate::figure::{Detail, Figure};
use crate::garments::{Footwear, Neck, Outfit};
use crate::hair::{self, Hair};
use crate::kinds::Draw;
use crate::maths::{M3, V3, v3};
use crate::mesh::Mesh;
use crate::paint::{Colour, Paint, rgb};
use crate::pose::Pose;
use crate::raster::{Point, Stage};
use crate::skeleton::{Build, Skeleton};
use crate::surface::Surface;
use crate::tailor;

/// What somebody looks like, whatever they do.
#[derive(Clone)]
pub(crate) struct Looks {
    pub build: Build,
    pub skin: Colour,
    pub face: Face,
    pub hair: Hair,
    pub outfit: Outfit,
}

/// What somebody does: a family of poses and how they do it.
#[derive(Clone)]
pub(crate) struct Habit {
    pub family: &'static Family,
    pub moods: [f32; 3],
    pub jitter: Pose,
    pub mirrored: bool,
}

impl Habit {
    pub fn sample(dice: &mut Dice, draw: &Draw) -> Habit {
        Habit {
            family: draw.pick(dice, FAMILIES, |family| family.held_out, |family| family.weight),
            moods: [dice.unit(), dice.unit(), dice.unit()],
            jitter: Pose::jitter(dice),
            mirrored: dice.chance(0.5),
        }
    }

    pub fn pose(&self, phase: f32) -> Pose {
        let pose = (self.family.at)(phase, self.moods).plus(&self.jitter);
        if self.mirrored { pose.mirrored() } else { pose }
    }
}

/// How a person is seen: from which side, where in the frame and how large.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placement {
    /// How far the body is turned, in degrees: 0 faces the viewer, 90 the frame's right.
    pub yaw: f32,
    /// How far the camera looks down, in degrees.
    pub pitch: f32,
    /// Where the ground under the person is, in frame heights from the frame's left top.
    pub x: f32,
    pub y: f32,
    /// How many frame heights a body height is.
    pub scale: f32,
    /// How far the camera is, in body heights.
    pub distance: f32,
    /// In front of whom they are: a whole number.
    pub layer: f32,
}

impl Placement {
    pub fn turn(&self) -> M3 {
        M3::about_x(self.pitch) * M3::about_y(self.yaw)
    }

    /// Where a point in body heights is seen: x and y in frame heights from the ground's point, and how near.
    pub fn project(&self, turned: V3) -> (f32, f32, f32) {
        // The camera looks at the body's middle.
        let near = self.distance / (self.distance - turned.z).max(0.2);
        let lift = 0.5;
        let y = lift + (turned.y - lift) * near;
        (self.x + turned.x * near * self.scale, self.y - y * self.scale, turned.z)
    }
}

/// A person in a moment.
#[derive(Clone)]
pub(crate) struct Person {
    pub looks: Arc<Looks>,
    pub habit: Arc<Habit>,
    pub phase: f32,
    pub mouth: Mouth,
    pub shut: f32,
    pub placement: Placement,
}

impl Looks {
    pub fn sample(dice: &mut Dice, draw: &Draw) -> Looks {
        let skin = body::skin(dice);
        let colour = hair::colour(dice);
        Looks {
            build: Build::sample(dice),
            skin,
            face: Face::sample(skin, colour, dice),
            hair: Hair::sample(colour, dice),
            outfit: Outfit::sample(dice, draw),
        }
    }

    /// What clothes leave of the skin.
    fn bare(&self) -> Bare {
        let outfit = &self.outfit;
        let jacket = outfit.jacket.as_ref();
        let sleeve = jacket.map_or(outfit.sleeve, |jacket| jacket.sleeve.max(outfit.sleeve));
        let trousers = if outfit.skirt == 0.0 && !outfit.bottom.skirt { outfit.bottom_long } else { 0.0 };
        let arms_from = if sleeve > 0.3 { sleeve - 0.25 } else { 0.0 };
        let legs_from = if trousers > 0.3 { trousers - 0.25 } else { 0.0 };
        let legs_to = match outfit.footwear {
            Footwear::Boots => (outfit.shaft + 0.15).min(2.0),
            Footwear::Bare => 2.0,
            _ => (outfit.sock_top + 0.15).min(2.0),
        };
        Bare {
            arms_from: if outfit.top.neck == Neck::Bare && jacket.is_none() { 0.0 } else { arms_from },
            legs: (legs_from, legs_to),
            feet: outfit.footwear == Footwear::Bare,
            ears: !self.hair.covers_ears(),
        }
    }
}

impl Person {
    pub fn pose(&self) -> Pose {
        self.habit.pose(self.phase)
    }

    /// The body as triangles, in body heights, and their surfaces, for a frame that is `height` pixels high.
    pub fn model(&self, height: f32, mesh: &mut Mesh, surfaces: &mut Vec<Surface>) {
        let pose = self.pose();
        let looks = &*self.looks;
        let bones = Skeleton::of(&looks.build, &pose);
        let mut face = looks.face.clone();
        (face.mouth, face.shut) = (self.mouth, self.shut);
        let detail = Detail::of(self.placement.scale * height);
        let mut figure = Figure { build: &looks.build, bones: &bones, detail, mesh, surfaces };
        body::draw(&mut figure, looks.skin, &face, &looks.bare(), pose.arms.map(|arm| arm.curl));
        tailor::dress(&mut figure, &looks.outfit);
        looks.hair.draw(&mut figure, looks.outfit.hat.is_some());
        apparel::wear(&mut figure, &looks.outfit, &face);
        if self.habit.family.seat == Seat::Stool {
            stool(&mut figure);
        }
    }

    /// Puts the model on the stage of a picture whose samples are `across` and `down` per frame height.
    pub fn enter<'a>(
        &self,
        mesh: &Mesh,
        surfaces: &'a [Surface],
        (across, down): (f32, f32),
        stage: &mut Stage<'a>,
    ) {
        let turn = self.placement.turn();
        let first = stage.points.len() as u32;
        let first_surface = stage.surfaces.len() as u32;
        // No body is deeper than this many body heights.
        let behind = self.placement.layer * 4.0;
        stage.points.extend(mesh.vertices.iter().map(|vertex| {
            let (x, y, z) = self.placement.project(turn * vertex.at);
            Point {
                x: x * across,
                y: y * down,
                z: z + behind,
                normal: turn * vertex.normal,
                u: vertex.u,
                v: vertex.v,
            }
        }));
        stage.triangles.extend(mesh.triangles.iter().map(|(corners, surface)| {
            (corners.map(|corner| corner + first), u32::from(*surface) + first_surface)
        }));
        stage.surfaces.extend(surfaces);
    }
}

/// A stool under a sitting person: background.
fn stool(figure: &mut Figure<'_>) {
    let wood = figure.surface(Surface::closed(class::BACKGROUND, Paint::plain(rgb(0x9C6B3F))));
    let cushion = figure.surface(Surface::closed(class::BACKGROUND, Paint::plain(rgb(0x7A2E3A))));
    let hips = figure.bones.pelvis.at;
    let seat = hips.y - 0.085 * figure.build.hips;
    let at = |x: f32, y: f32, z: f32| v3(hips.x + x, y, hips.z + 0.03 + z);
    figure.mesh.blob(cushion, at(0.0, seat, 0.0), M3::IDENTITY, v3(0.15, 0.022, 0.14), 18);
    for (x, z) in [(-0.1, -0.09), (0.1, -0.09), (-0.1, 0.09), (0.1, 0.09)] {
        let points = [(at(x, seat, z), 0.012), (at(x * 1.15, 0.01, z * 1.15), 0.01)];
        figure.mesh.rod(wood, &points, v3(1.0, 0.0, 0.0), 6);
    }
}
