//! The bare body: trunk, neck, head, arms, legs, hands and feet.

use crate::class;
use crate::dice::Dice;
use crate::face::Face;
use crate::figure::{Figure, arm_radius, leg_radius};
use crate::maths::{V3, v3};
use crate::mesh::{Arc, Ring};
use crate::paint::{Colour, Paint, blend, rgb};
use crate::surface::{Part, Surface};

/// Skin over the whole human range, from deep to fair.
const SKIN: &[u32] = &[
    0x3B2219, 0x4F2F22, 0x65402D, 0x7C4F37, 0x8D5A3C, 0xA56B46, 0xB87D56, 0xC98F66, 0xD9A47C, 0xE6B892,
    0xF0C8A4, 0xF6D5B8, 0xFADFC9,
];

pub(crate) fn skin(dice: &mut Dice) -> Colour {
    let step = dice.below(SKIN.len() - 1);
    let colour = blend(rgb(SKIN[step]), rgb(SKIN[step + 1]), dice.unit());
    let red = dice.about(0.03);
    [colour[0] * (1.0 + red), colour[1], colour[2] * (1.0 - red)]
}

/// The skin that clothes leave to be seen; what they hide anyway needs none.
pub(crate) struct Bare {
    /// Where the skin of the arms begins and that of the legs begins and ends, as `Limb::along` counts.
    pub arms_from: f32,
    pub legs: (f32, f32),
    pub feet: bool,
    pub ears: bool,
}

pub(crate) fn draw(figure: &mut Figure<'_>, skin: Colour, face: &Face, bare: &Bare, curls: [f32; 2]) {
    let paint = Paint { gloss: 0.12, ..Paint::plain(skin) };
    let build = figure.build;
    trunk(figure, &paint);
    head(figure, &paint, face, bare.ears);
    for (side, curl) in curls.into_iter().enumerate() {
        let (arm, leg) = (figure.bones.arms[side], figure.bones.legs[side]);
        if bare.arms_from < 1.97 {
            let (upper, lower) = (class::UPPER_ARM[side], class::LOWER_ARM[side]);
            let surface = figure.surface(Surface::split(1.0, upper, lower, paint.clone()));
            let capped = bare.arms_from <= 0.0;
            figure.sleeve(surface, &arm, (bare.arms_from, 2.0), capped, figure.detail.limb, |v| {
                arm_radius(build, v)
            });
        }
        hand(figure, side, &paint, curl);
        if bare.legs.0 < bare.legs.1 {
            let (upper, lower) = (class::UPPER_LEG[side], class::LOWER_LEG[side]);
            let surface = figure.surface(Surface::split(1.0, upper, lower, paint.clone()));
            let capped = bare.legs.0 <= 0.0;
            figure.sleeve(surface, &leg, bare.legs, capped, figure.detail.limb, |v| leg_radius(build, v));
        }
        if bare.feet {
            bare_foot(figure, side, &paint);
        }
    }
}

fn trunk(figure: &mut Figure<'_>, paint: &Paint) {
    let surface = figure.surface(Surface::closed(class::TORSO, paint.clone()));
    figure.wrap_trunk(surface, 0.0, 1.0, Arc::whole(figure.detail.trunk), |_| 0.0);
}

fn head(figure: &mut Figure<'_>, paint: &Paint, face: &Face, ears: bool) {
    let skin = figure.surface(Surface::closed(class::FACE_NECK, paint.clone()));
    let front = figure.surface(Surface {
        part: Part::Face(Box::new(face.clone())),
        ..Surface::closed(class::FACE_NECK, paint.clone())
    });
    // The neck, from inside the trunk into the skull.
    let (neck, size) = (figure.bones.neck, figure.build.head);
    let wide = 0.033 * figure.build.neck * (0.6 + size * 2.6);
    let top = figure.on_head(0.0, -0.22, -0.02);
    let bottom = neck.at - neck.frame.y * 0.012;
    let flare = [(0.0, 1.28), (0.25, 1.05), (0.6, 1.0), (1.0, 1.0)];
    let rings = flare.map(|(t, by)| Ring::across(bottom.to(top, t), neck.frame, wide * by, wide * by, t));
    figure.mesh.tube(skin, &rings, Arc::whole(figure.detail.limb));

    let rings = figure.skull_rings(0.0, 1.0, |_| 0.0);
    let (head, half) = (figure.bones.head, figure.detail.head / 2);
    let place = |_: f32, _: f32, at: V3| {
        let local = at - head.at;
        (local.dot(head.frame.x) / size, local.dot(head.frame.y) / size)
    };
    figure.mesh.tube_with(front, &rings, Arc { from: 0.0, to: 0.5, faces: half }, place);
    figure.mesh.tube(skin, &rings, Arc { from: 0.5, to: 1.0, faces: half });
    // Nose and ears.
    let frame = figure.head_frame();
    let nose = face.nose;
    let bridge = figure.on_head(0.0, -0.02, 0.345);
    let tip = figure.on_head(0.0, -0.135, 0.385 + 0.02 * nose);
    let points = [(bridge, 0.028 * size), (tip, 0.052 * nose * size)];
    figure.mesh.rod(skin, &points, frame.x, 8);
    for side in if ears { [-1.0, 1.0].as_slice() } else { &[] } {
        let at = figure.on_head(side * 0.39, -0.03, -0.02);
        figure.mesh.blob(skin, at, frame, v3(0.05, 0.1, 0.065) * size, 8);
    }
}

/// Palm, four fingers and a thumb. A hanging hand's palm faces the body and its thumb points forwards.
fn hand(figure: &mut Figure<'_>, side: usize, paint: &Paint, curl: f32) {
    let surface = figure.surface(Surface::closed(class::HAND[side], paint.clone()));
    let arm = figure.bones.arms[side];
    let frame = arm.tip;
    let inwards = if side == 0 { -1.0 } else { 1.0 };
    let size = figure.build.hands * 0.9;
    let place = |x: f32, y: f32, z: f32| arm.end + frame * (v3(x * inwards, y, z) * size);
    figure.mesh.blob(surface, place(0.0, -0.024, 0.0), frame, v3(0.0125, 0.032, 0.025) * size, 10);
    if !figure.detail.fingers {
        figure.mesh.blob(
            surface,
            place(0.004 * curl, -0.06 + 0.015 * curl, 0.0),
            frame,
            v3(0.01, 0.035, 0.02) * size,
            6,
        );
        let thumb = [(place(0.0, -0.02, 0.016), 0.009 * size), (place(0.01, -0.05, 0.033), 0.007 * size)];
        figure.mesh.rod(surface, &thumb, frame.z, 5);
        return;
    }
    let bend = crate::maths::M3::about_z(inwards * (15.0 + 75.0 * curl));
    for finger in 0..4 {
        let across = 0.0185 - 0.0122 * finger as f32;
        let long = [0.034, 0.039, 0.036, 0.028][finger] * size;
        let spread = v3(0.0, -1.0, across * 4.0).unit();
        let knuckle = place(0.001, -0.047, across);
        let first = frame * (bend * spread);
        let second = frame * (bend * (bend * spread));
        let middle = knuckle + first * (long * 0.5);
        let tip = middle + second * (long * 0.42);
        let thick = 0.0068 * size;
        figure.mesh.rod(surface, &[(knuckle, thick), (middle, thick * 0.97), (tip, thick * 0.8)], frame.z, 6);
    }
    let thumb = [
        (place(0.002, -0.014, 0.016), 0.0095 * size),
        (place(0.008 + 0.004 * curl, -0.032, 0.033 - 0.008 * curl), 0.0082 * size),
        (place(0.012 + 0.01 * curl, -0.05 + 0.004 * curl, 0.038 - 0.018 * curl), 0.0065 * size),
    ];
    figure.mesh.rod(surface, &thumb, frame.z, 6);
}

/// The shape all feet have: rings from the heel to the toes, `fat` thicker than skin and `long` times as long.
pub(crate) fn foot_rings(figure: &Figure<'_>, side: usize, fat: f32, long: f32) -> Vec<Ring> {
    let leg = figure.bones.legs[side];
    let (frame, limbs) = (leg.tip, 0.5 + 0.5 * figure.build.limbs);
    // Along the foot: half width, how high its back is over the sole.
    let shape = [
        (-0.034, 0.0, 0.018),
        (-0.031, 0.012, 0.032),
        (-0.018, 0.02, 0.046),
        (0.004, 0.022, 0.05),
        (0.028, 0.0225, 0.04),
        (0.052, 0.026, 0.03),
        (0.074, 0.028, 0.0235),
        (0.092, 0.0235, 0.019),
        (0.101, 0.014, 0.015),
        (0.104, 0.0, 0.01),
    ];
    let last = shape.len() - 1;
    (0..=last)
        .map(|i| {
            let (z, wide, high) = shape[i];
            let end = i == 0 || i == last;
            let (wide, high) = if end { (0.0, 0.0) } else { ((wide * limbs) + fat, high * 0.5 + fat * 0.5) };
            let z = if z > 0.0 { z * long } else { z } + fat * if z < 0.0 { -1.0 } else { 1.0 };
            let middle = shape[i].2 * 0.5 - 0.038;
            let at = leg.end + frame.y * (middle + fat * 0.2) + frame.z * z;
            Ring { at, ax: frame.x * wide, ay: frame.y * high, v: i as f32 / last as f32 }
        })
        .collect()
}

fn bare_foot(figure: &mut Figure<'_>, side: usize, paint: &Paint) {
    let surface = figure.surface(Surface::closed(class::FOOT[side], paint.clone()));
    let rings = foot_rings(figure, side, 0.0, 0.9);
    figure.mesh.tube(surface, &rings, Arc::whole(figure.detail.limb));
    let leg = figure.bones.legs[side];
    let inwards = if side == 0 { -1.0 } else { 1.0 };
    for toe in 0..if figure.detail.fingers { 5 } else { 0 } {
        let x = inwards * (0.018 - 0.0092 * toe as f32);
        let size = if toe == 0 { 0.0088 } else { 0.0066 - 0.0004 * toe as f32 };
        let at = leg.end + leg.tip * v3(x, -0.031, 0.09 - 0.004 * toe as f32);
        figure.mesh.blob(surface, at, leg.tip, v3(size, size, size * 1.5), 6);
    }
    // The ankle closes the gap to the shin.
    figure.mesh.blob(surface, leg.end - leg.tip.y * 0.006, leg.tip, v3(0.0225, 0.022, 0.026), 10);
}
