//! Clothes put on a body: shells over its limbs and trunk.

use crate::class;
use crate::figure::{Figure, arm_radius, leg_radius};
use crate::garments::{Footwear, Jacket, Neck, Outfit};
use crate::maths::{V3, mix, smooth};
use crate::mesh::{Arc, Ring};
use crate::paint::Paint;
use crate::surface::{Cut, Marked, Surface};

/// How long the spine and a leg are per unit of `v`, and how far round a trunk and a limb are, in body heights.
const SPINE: f32 = 0.36;
const LEG: f32 = 0.23;
const TRUNK_ROUND: f32 = 0.5;
const LIMB_ROUND: f32 = 0.22;

pub(crate) fn dress(figure: &mut Figure<'_>, outfit: &Outfit) {
    feet(figure, outfit);
    if outfit.skirt == 0.0 {
        bottom(figure, outfit);
    } else {
        let briefs = figure.surface(Surface::open(class::LOWER_CLOTHING, outfit.bottom_paint.clone()));
        figure.wrap_trunk(briefs, 0.0, 0.25, Arc::whole(figure.detail.trunk), |_| 0.004);
    }
    if outfit.top.neck != Neck::Bare {
        top(figure, outfit);
    }
    if let Some(jacket) = &outfit.jacket {
        self::jacket(figure, outfit, jacket);
    }
}

fn top(figure: &mut Figure<'_>, outfit: &Outfit) {
    let kind = outfit.top;
    let loose = outfit.loose;
    let paint = outfit.top_paint.fitted(TRUNK_ROUND, SPINE);
    let cut = match kind.neck {
        Neck::Round | Neck::Collar | Neck::Hood => Cut::Neckline {
            top: 0.985,
            front: 0.06,
            back: 0.0,
            width: 0.12,
            pointed: kind.neck == Neck::Collar,
        },
        Neck::Roll => Cut::Nothing,
        Neck::Scoop => Cut::Neckline { top: 0.96, front: 0.14, back: 0.06, width: 0.15, pointed: false },
        Neck::Pointed => Cut::Neckline { top: 0.985, front: 0.22, back: 0.0, width: 0.12, pointed: true },
        Neck::Straps | Neck::Bare => Cut::Straps { edge: 0.8, apart: 0.1, strap: 0.022, top: 0.98 },
    };
    let marked = Marked { mark: outfit.mark, colour: outfit.mark_colour };
    let surface =
        figure.surface(Surface { marked, ..Surface::open(class::UPPER_CLOTHING, paint.clone()).cut(cut) });
    // It hangs from the chest: wider below, unless it is tucked in.
    let hem = outfit.top_hem;
    let tucked = hem > 0.17 || outfit.skirt > 0.0;
    // Outside of the trousers, whose legs are wider than the hips.
    let hang = if tucked { 0.0 } else { (0.022 - loose).max(0.005) };
    figure.wrap_trunk(surface, hem, 1.0, Arc::whole(figure.detail.trunk), |v| {
        loose * (1.0 - 0.35 * smooth(0.85, 1.0, v)) + hang * smooth(0.45, 0.24, v)
    });
    if outfit.sleeve > 0.1 {
        sleeves(figure, &outfit.top_paint, class::UPPER_CLOTHING, outfit.sleeve, loose * 0.75);
    }
    match kind.neck {
        Neck::Collar => collar(figure, &paint, 0.012, 0.55, 0.09),
        Neck::Roll => collar(figure, &paint, 0.008, 1.15, 0.0),
        Neck::Hood => hood(figure, &paint),
        _ => {}
    }
    if outfit.skirt > 0.0 {
        let paint = outfit.top_paint.fitted(TRUNK_ROUND * 1.4, LEG);
        skirt(
            figure,
            &paint,
            class::UPPER_CLOTHING,
            (0.4, outfit.skirt * 2.0),
            loose,
            0.03 + 0.03 * outfit.skirt,
            0.0,
        );
    }
}

fn sleeves(figure: &mut Figure<'_>, cloth: &Paint, class: u8, to: f32, loose: f32) {
    let build = figure.build;
    let surface = figure.surface(Surface::open(class, cloth.fitted(LIMB_ROUND * 0.75, 0.16)));
    for side in 0..2 {
        let arm = figure.bones.arms[side];
        figure.sleeve(surface, &arm, (-0.02, to), true, figure.detail.limb, |v| {
            // Close at the shoulder; a cuff at the wrist; a short sleeve stands off.
            let loose = loose * (0.45 + 0.55 * smooth(-0.02, 0.35, v));
            let cuff =
                if to > 1.6 { 1.0 - 0.5 * smooth(to - 0.12, to, v) } else { 1.0 + 0.7 * smooth(0.2, to, v) };
            arm_radius(build, v) + loose * cuff
        });
    }
}

/// A band around the neck, standing up by `high` of the neck and open in front by `gap` turns either side.
fn collar(figure: &mut Figure<'_>, paint: &Paint, off: f32, high: f32, gap: f32) {
    let surface =
        figure.surface(Surface::open(class::UPPER_CLOTHING, Paint { scale: (2.0, 1.0), ..paint.clone() }));
    let neck = figure.bones.neck;
    let top = figure.on_head(0.0, -0.42, -0.05);
    let wide = 0.033 * figure.build.neck * (0.6 + figure.build.head * 2.6) + off;
    let base = neck.at - neck.frame.y * 0.008;
    let rings = [(0.0, 1.25), (0.5, 1.02), (1.0, 1.0)]
        .map(|(t, by)| Ring::across(base.to(top, t * high), neck.frame, wide * by, wide * by, 0.5 * t));
    let faces = figure.detail.limb + 4;
    figure.mesh.tube(surface, &rings, Arc { from: 0.25 + gap, to: 1.25 - gap, faces });
}

/// A hood lying on the back.
fn hood(figure: &mut Figure<'_>, paint: &Paint) {
    let surface = figure.surface(Surface::closed(class::UPPER_CLOTHING, paint.clone()));
    let (neck, chest) = (figure.bones.neck, figure.bones.chest.frame);
    let size = 0.5 + 0.5 * figure.build.shoulders;
    for step in 0..9 {
        let (s, c) = crate::maths::sin_cos(-30.0 - 15.0 * step as f32);
        let at = |(s, c): (f32, f32)| {
            neck.at + chest.x * (0.052 * c * size) + chest.z * (0.055 * s - 0.012) + chest.y * (0.004 * s)
        };
        let next = crate::maths::sin_cos(-45.0 - 15.0 * step as f32);
        let radius = 0.018 + 0.014 * (-s);
        figure.mesh.rod(surface, &[(at((s, c)), radius), (at(next), radius)], chest.y, 8);
    }
}

fn jacket(figure: &mut Figure<'_>, outfit: &Outfit, jacket: &Jacket) {
    let loose = outfit.loose + 0.012;
    let paint = jacket.paint.fitted(TRUNK_ROUND, SPINE);
    let surface = figure.surface(Surface::open(class::UPPER_CLOTHING, paint));
    // u = 0.25 is the front: it starts on one side of it and goes round the back to the other.
    let arc = Arc { from: 0.25 + jacket.gap, to: 1.25 - jacket.gap, faces: figure.detail.trunk };
    figure.wrap_trunk(surface, jacket.hem, 0.985, arc, |v| {
        loose * (1.0 - 0.3 * smooth(0.85, 1.0, v)) + 0.012 * smooth(0.5, 0.1, v)
    });
    sleeves(figure, &jacket.paint, class::UPPER_CLOTHING, jacket.sleeve, loose * 0.8);
    if jacket.tail > 0.0 {
        let paint = jacket.paint.fitted(TRUNK_ROUND * 1.4, LEG);
        skirt(
            figure,
            &paint,
            class::UPPER_CLOTHING,
            (0.1, jacket.tail * 2.0),
            loose + 0.012,
            0.03,
            jacket.gap * 1.2,
        );
    }
}

fn bottom(figure: &mut Figure<'_>, outfit: &Outfit) {
    let kind = outfit.bottom;
    let build = figure.build;
    let waist =
        figure.surface(Surface::open(class::LOWER_CLOTHING, outfit.bottom_paint.fitted(TRUNK_ROUND, SPINE)));
    let rise = if kind.name == "briefs" { 0.2 } else { 0.36 };
    figure.wrap_trunk(waist, 0.0, rise, Arc::whole(figure.detail.trunk), |_| 0.006);
    if kind.skirt {
        let paint = outfit.bottom_paint.fitted(TRUNK_ROUND * 1.4, LEG);
        skirt(figure, &paint, class::LOWER_CLOTHING, (0.3, outfit.bottom_long), 0.008, outfit.flare, 0.0);
        return;
    }
    let surface =
        figure.surface(Surface::open(class::LOWER_CLOTHING, outfit.bottom_paint.fitted(LIMB_ROUND, LEG)));
    let (to, flare) = (outfit.bottom_long, outfit.flare);
    let base = if to < 0.15 { 0.003 } else { 0.0055 };
    for side in 0..2 {
        let leg = figure.bones.legs[side];
        figure.sleeve(surface, &leg, (0.0, to), true, figure.detail.limb, |v| {
            leg_radius(build, v) + base + flare * smooth(0.15, to.max(0.9), v) + 0.25 * flare
        });
    }
}

/// A cone from the waist around both legs: from `from` of the spine down to `to` of the legs (1 the knees). `gap` is
/// how far it is open in front, in turns either side.
fn skirt(
    figure: &mut Figure<'_>,
    paint: &Paint,
    class: u8,
    (from, to): (f32, f32),
    off: f32,
    flare: f32,
    gap: f32,
) {
    let surface = figure.surface(Surface::open(class, paint.clone()));
    let mut rings = Vec::with_capacity(14);
    // From the waist down, where it hugs the hips.
    for step in 0..4 {
        let v = mix(from, 0.12, step as f32 / 4.0);
        rings.push(Ring { v: -0.8 * v, ..figure.trunk(v, off + 0.002) });
    }
    let legs = figure.bones.legs;
    let pelvis = figure.bones.pelvis.frame;
    let steps = (to * 6.0).ceil() as usize + 1;
    for step in 0..=steps {
        let v = mix(0.22, to.max(0.3), step as f32 / steps as f32);
        let [left, right] = [legs[0].along(v), legs[1].along(v)];
        let at = (left.at + right.at) * 0.5;
        let down = (left.frame.y + right.frame.y).unit();
        let across = left.at - right.at;
        // Over the lap of who sits it lies close.
        let flare = flare * (down.y * 1.3).clamp(0.1, 1.0);
        let radius = leg_radius(figure.build, v) * 1.12 + off + flare * smooth(0.0, 1.0, v);
        let level = |d: V3| d - down * d.dot(down);
        let wide = (across.dot(pelvis.x).max(0.0)) * 0.5 + radius;
        let forth = level(across - pelvis.x * across.dot(pelvis.x)) * 0.5;
        let x = level(pelvis.x).unit();
        let z = x.cross(down).unit();
        let deep = radius * 1.12 + mix(0.15, 0.5, down.y.max(0.0)) * forth.length();
        rings.push(Ring { at, ax: x * wide + forth * 0.8, ay: z * deep, v });
    }
    let arc = if gap > 0.0 {
        Arc { from: 0.25 + gap, to: 1.25 - gap, faces: figure.detail.trunk }
    } else {
        Arc::whole(figure.detail.trunk)
    };
    figure.mesh.tube(surface, &rings, arc);
}

fn feet(figure: &mut Figure<'_>, outfit: &Outfit) {
    let build = figure.build;
    for side in 0..2 {
        let leg = figure.bones.legs[side];
        if outfit.sock_top < 1.99 && outfit.footwear != Footwear::Bare {
            let sock = figure.surface(Surface::open(class::SOCK[side], outfit.sock.fitted(0.16, LEG)));
            let top = outfit.sock_top;
            figure.sleeve(sock, &leg, (top, 2.0), false, figure.detail.limb, |v| {
                leg_radius(build, v) + 0.0035 + 0.002 * smooth(top + 0.08, top, v)
            });
        }
        match outfit.footwear {
            Footwear::Bare => {}
            Footwear::Socks => {
                let surface =
                    figure.surface(Surface::closed(class::SOCK[side], outfit.sock.fitted(0.1, 0.12)));
                let rings = crate::body::foot_rings(figure, side, 0.003, 0.95);
                figure.mesh.tube(surface, &rings, Arc::whole(figure.detail.limb));
                let half = crate::maths::v3(0.026, 0.025, 0.029);
                figure.mesh.blob(surface, leg.end - leg.tip.y * 0.006, leg.tip, half, 10);
            }
            Footwear::Shoes | Footwear::Boots => shoe(figure, outfit, side),
        }
    }
}

fn shoe(figure: &mut Figure<'_>, outfit: &Outfit, side: usize) {
    let leg = figure.bones.legs[side];
    let class = class::SHOE[side];
    let upper = figure.surface(Surface::closed(class, Paint::glossy(outfit.shoe, 0.25)));
    let sole = figure.surface(Surface::closed(class, Paint::plain(outfit.sole)));
    let rings = crate::body::foot_rings(figure, side, 0.006, 1.0);
    figure.mesh.tube(upper, &rings, Arc::whole(figure.detail.limb + 2));
    let flat: Vec<Ring> = rings
        .iter()
        .map(|ring| {
            let drop = (ring.at - leg.end).dot(leg.tip.y) + 0.0375;
            Ring {
                at: ring.at - leg.tip.y * drop,
                ax: ring.ax * 1.05,
                ay: leg.tip.y * (if ring.ax.length() > 0.0 { 0.0085 } else { 0.0 }),
                v: ring.v,
            }
        })
        .collect();
    figure.mesh.tube(sole, &flat, Arc::whole(figure.detail.limb));
    let laces = figure.surface(Surface::closed(class, Paint::plain(outfit.sole)));
    for step in 0..3 {
        let z = 0.03 + 0.015 * step as f32;
        let y = 0.008 - 0.0058 * step as f32;
        let at = |x: f32| leg.end + leg.tip * crate::maths::v3(x, y - x.abs() * 0.25, z);
        figure.mesh.rod(laces, &[(at(-0.014), 0.003), (at(0.014), 0.003)], leg.tip.y, 5);
    }
    let build = figure.build;
    let top = if outfit.footwear == Footwear::Boots { outfit.shaft } else { 1.93 };
    figure.sleeve(upper, &leg, (top, 2.0), false, figure.detail.limb, |v| leg_radius(build, v) + 0.006);
}
