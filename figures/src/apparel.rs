//! What is worn besides clothes: hats, bags, scarves, belts, jewellery and the arms of glasses.

use crate::class;
use crate::face::Face;
use crate::figure::{Figure, arm_radius};
use crate::garments::{Bag, Hat, Outfit};
use crate::maths::{sin_cos, v3};
use crate::mesh::{Arc, Ring};
use crate::paint::{Paint, times};
use crate::surface::Surface;

pub(crate) fn wear(figure: &mut Figure<'_>, outfit: &Outfit, face: &Face) {
    if let Some((hat, paint)) = &outfit.hat {
        self::hat(figure, *hat, paint);
    }
    if let Some((bag, paint)) = &outfit.bag {
        self::bag(figure, *bag, paint, outfit.loose);
    }
    if let Some(paint) = &outfit.scarf {
        scarf(figure, paint, outfit.loose);
    }
    if let Some(paint) = &outfit.belt {
        let surface = figure.surface(Surface::open(class::APPAREL, paint.clone()));
        let off = 0.014 + if outfit.top_hem < 0.35 { outfit.loose.max(0.012) } else { 0.0 };
        figure.wrap_trunk(surface, 0.29, 0.345, Arc::whole(figure.detail.trunk), |_| off);
    }
    if let Some((side, colour)) = outfit.watch {
        let surface = figure.surface(Surface::closed(class::APPAREL, Paint::glossy(colour, 0.5)));
        let arm = figure.bones.arms[side];
        let off = if outfit.sleeve > 1.5 { outfit.loose } else { 0.004 };
        let build = figure.build;
        figure.sleeve(surface, &arm, (1.8, 1.93), false, figure.detail.limb, |v| arm_radius(build, v) + off);
    }
    if let Some(colour) = outfit.necklace {
        necklace(figure, &Paint::glossy(colour, 0.6), outfit.loose);
    }
    if let Some(glasses) = &face.glasses {
        let surface = figure.surface(Surface::closed(class::EYEGLASS, Paint::plain(glasses.frame)));
        let (frame, size) = (figure.head_frame(), figure.build.head);
        for side in [-1.0, 1.0] {
            let points = [
                (figure.on_head(side * 0.35, 0.03, 0.2), 0.014 * size),
                (figure.on_head(side * 0.425, 0.02, -0.08), 0.014 * size),
            ];
            figure.mesh.rod(surface, &points, frame.y, 5);
        }
    }
}

fn hat(figure: &mut Figure<'_>, hat: Hat, paint: &Paint) {
    let cloth = Paint { scale: (12.0, 4.0), ..paint.clone() };
    let surface = figure.surface(Surface::open(class::APPAREL, cloth));
    let (head, size) = (figure.bones.head, figure.build.head);
    let frame = head.frame;
    let (low, fat) = if hat == Hat::Beanie { (0.66, 0.06) } else { (0.7, 0.055) };
    let mut rings: Vec<Ring> = [low, 0.76, 0.83, 0.89, 0.94, 0.98, 1.0]
        .iter()
        .map(|&t| {
            let mut ring = figure.skull(t, fat);
            ring.at = ring.at + frame.y * (0.07 * size * (t - low) / (1.0 - low));
            ring
        })
        .collect();
    if hat == Hat::Brim {
        // A flat crown, as felt hats have.
        for (step, ring) in rings.iter_mut().enumerate().skip(1) {
            let t = step as f32 / 6.0;
            let base = figure.skull(0.74, fat);
            *ring = if step == 6 {
                Ring { at: base.at + frame.y * (0.36 * size), ax: base.ax * 0.0, ay: base.ay * 0.0, v: 1.0 }
            } else {
                Ring {
                    at: base.at + frame.y * (0.36 * size * (t * 1.2)),
                    ax: base.ax * (1.0 - 0.12 * t),
                    ay: base.ay * (1.0 - 0.12 * t),
                    v: 0.7 + 0.3 * t,
                }
            };
        }
    }
    figure.mesh.tube(surface, &rings, Arc::whole(figure.detail.head));
    let dark = figure.surface(Surface::open(class::APPAREL, Paint::plain(times(paint.base, 0.72))));
    let base = figure.skull(low, fat);
    match hat {
        Hat::Beanie => {
            let band = [(-0.05, 0.02), (0.0, 0.035), (0.06, 0.03)];
            let rings = band.map(|(up, more)| {
                let ring = figure.skull(low, fat + more);
                Ring { at: ring.at + frame.y * (up * size), ..ring }
            });
            figure.mesh.tube(dark, &rings, Arc::whole(figure.detail.head));
            figure.mesh.blob(
                dark,
                figure.bones.head.at + frame.y * (0.6 * size),
                frame,
                v3(0.11, 0.1, 0.11) * size,
                10,
            );
        }
        Hat::Cap => {
            let rings = [(0.0, 0.0), (0.1, -0.012), (0.24, -0.06), (0.34, -0.12)].map(|(out, up)| Ring {
                at: base.at + frame.y * (up * size) + frame.z * (out * size),
                ax: base.ax * (1.0 - 0.5 * out),
                ay: base.ay,
                v: out,
            });
            figure.mesh.tube(dark, &rings, Arc { from: 0.02, to: 0.48, faces: 12 });
            figure.mesh.blob(
                dark,
                figure.bones.head.at + frame.y * (0.57 * size) - frame.z * (0.03 * size),
                frame,
                v3(0.04, 0.025, 0.04) * size,
                8,
            );
        }
        Hat::Brim => {
            let rings = [(0.0, 0.0), (0.15, 0.0), (0.32, -0.04)].map(|(out, up)| {
                let ring = figure.skull(0.74, fat + out);
                Ring { at: ring.at + frame.y * ((up - 0.02) * size), v: out, ..ring }
            });
            figure.mesh.tube(dark, &rings, Arc::whole(figure.detail.head));
        }
    }
}

fn bag(figure: &mut Figure<'_>, bag: Bag, paint: &Paint, loose: f32) {
    let surface = figure.surface(Surface::closed(class::APPAREL, paint.clone()));
    let dark = figure.surface(Surface::closed(class::APPAREL, Paint::plain(times(paint.base, 0.7))));
    let off = loose + 0.012;
    match bag {
        Bag::Backpack => {
            let joint = figure.bones.spine(0.66);
            let back = figure.trunk(0.66, off).ay.length() + 0.035;
            let at = joint.at - joint.frame.z * (back + 0.006);
            figure.mesh.blob(surface, at, joint.frame, v3(0.085, 0.115, 0.055), 16);
            figure.mesh.blob(
                dark,
                at - joint.frame.y * 0.04 - joint.frame.z * 0.03,
                joint.frame,
                v3(0.058, 0.05, 0.035),
                12,
            );
            // A strap over each shoulder, from the back of it down to the side of the waist.
            for side in [-1.0, 1.0] {
                let mut points = Vec::new();
                for step in 0..9 {
                    let v = 0.97 - 0.05 * step as f32;
                    let ring = figure.trunk(v, off);
                    let (s, c) = sin_cos(90.0 - side * (46.0 - 1.2 * step as f32));
                    points.push((ring.at + ring.ax * c + ring.ay * s, 0.009));
                }
                for pair in points.windows(2) {
                    figure.mesh.rod(dark, pair, joint.frame.x, 6);
                }
            }
        }
        Bag::Shoulder => {
            let hip = figure.trunk(0.16, off + 0.02);
            let frame = figure.bones.pelvis.frame;
            let at = hip.at + hip.ax + frame.y * -0.01;
            figure.mesh.blob(surface, at, frame, v3(0.032, 0.062, 0.078), 14);
            // Across the chest in front and the back behind.
            for turn in [1.0, -1.0] {
                let points: Vec<_> = (0..=10)
                    .map(|step| {
                        let t = step as f32 / 10.0;
                        let ring = figure.trunk(0.2 + 0.76 * t, off + 0.004);
                        let (s, c) = sin_cos(turn * (8.0 + 136.0 * t));
                        (ring.at + ring.ax * c + ring.ay * s, 0.0065)
                    })
                    .collect();
                for pair in points.windows(2) {
                    figure.mesh.rod(dark, pair, frame.x, 6);
                }
            }
        }
    }
}

fn scarf(figure: &mut Figure<'_>, paint: &Paint, loose: f32) {
    let surface =
        figure.surface(Surface::closed(class::APPAREL, Paint { scale: (4.0, 6.0), ..paint.clone() }));
    let neck = figure.bones.neck;
    let wide = 0.045 * figure.build.neck + 0.11 * figure.build.head;
    let base = neck.at + neck.frame.y * 0.012;
    let rings = [(-0.022, 0.6), (-0.016, 0.9), (0.0, 1.0), (0.016, 0.9), (0.024, 0.6)]
        .map(|(up, by)| Ring::across(base + neck.frame.y * up, neck.frame, wide * by, wide * by, 20.0 * up));
    figure.mesh.tube(surface, &rings, Arc::whole(16));
    let points: Vec<_> = (0..5)
        .map(|step| {
            let ring = figure.trunk(0.95 - 0.08 * step as f32, loose + 0.014);
            let (s, c) = sin_cos(72.0);
            (ring.at + ring.ax * c + ring.ay * s, 0.021)
        })
        .collect();
    figure.mesh.rod(surface, &points, neck.frame.x, 8);
}

fn necklace(figure: &mut Figure<'_>, paint: &Paint, loose: f32) {
    let surface = figure.surface(Surface::closed(class::APPAREL, paint.clone()));
    let frame = figure.bones.chest.frame;
    for step in 0..13 {
        let t = step as f32 / 6.0 - 1.0;
        let ring = figure.trunk(0.86 + 0.11 * t * t, loose + 0.002);
        let (s, c) = sin_cos(90.0 - 48.0 * t);
        let size = if step == 6 { 0.009 } else { 0.006 };
        figure.mesh.blob(surface, ring.at + ring.ax * c + ring.ay * s, frame, v3(size, size, size), 6);
    }
}
