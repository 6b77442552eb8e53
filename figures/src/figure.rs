//! A body under construction: its mesh and the surfaces the mesh refers to, with the shapes that skin and clothes share.

use crate::maths::{M3, V3, sin_cos, table};
use crate::mesh::{Arc, Mesh, Ring};
use crate::skeleton::{Build, Joint, Limb, Skeleton};
use crate::surface::Surface;

/// How finely a body is modelled: it needs no more faces than its size in the picture shows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Detail {
    pub limb: usize,
    pub trunk: usize,
    /// An even number: half of it is the face's side.
    pub head: usize,
    /// Whether fingers and toes are told apart.
    pub fingers: bool,
}

impl Detail {
    /// For a body that is `height` pixels high.
    pub fn of(height: f32) -> Detail {
        if height < 130.0 {
            Detail { limb: 8, trunk: 12, head: 14, fingers: false }
        } else if height < 500.0 {
            Detail { limb: 10, trunk: 18, head: 18, fingers: true }
        } else if height < 1000.0 {
            Detail { limb: 14, trunk: 26, head: 26, fingers: true }
        } else {
            Detail { limb: 20, trunk: 36, head: 40, fingers: true }
        }
    }
}

pub(crate) fn arm_radius(build: &Build, v: f32) -> f32 {
    const PROFILE: [(f32, f32); 7] =
        [(-0.1, 0.03), (0.1, 0.034), (0.4, 0.03), (1.0, 0.0235), (1.25, 0.0245), (1.9, 0.0165), (2.0, 0.016)];
    table(&PROFILE, v) * build.limbs
}

pub(crate) fn leg_radius(build: &Build, v: f32) -> f32 {
    const PROFILE: [(f32, f32); 7] =
        [(0.0, 0.051), (0.25, 0.052), (0.6, 0.044), (1.0, 0.034), (1.3, 0.035), (1.8, 0.0215), (2.0, 0.022)];
    table(&PROFILE, v) * build.limbs
}

/// A mesh that is being built around a skeleton.
pub(crate) struct Figure<'a> {
    pub build: &'a Build,
    pub bones: &'a Skeleton,
    pub detail: Detail,
    pub mesh: &'a mut Mesh,
    pub surfaces: &'a mut Vec<Surface>,
}

impl Figure<'_> {
    pub fn surface(&mut self, surface: Surface) -> u16 {
        self.surfaces.push(surface);
        (self.surfaces.len() - 1) as u16
    }

    /// The trunk's cross-section at `v` of the spine, `fat` body heights thicker than skin.
    pub fn trunk(&self, v: f32, fat: f32) -> Ring {
        let Joint { at, frame } = self.bones.spine(v);
        let build = self.build;
        let wide = table(
            &[
                (0.0, 0.05),
                (0.08, 0.086),
                (0.2, 0.096),
                (0.45, 0.074),
                (0.65, 0.087),
                (0.8, 0.1),
                (0.9, 0.09),
                (0.96, 0.062),
                (1.0, 0.034),
            ],
            v,
        );
        let broad = table(
            &[
                (0.0, build.hips),
                (0.22, build.hips),
                (0.45, build.waist),
                (0.65, build.chest),
                (0.85, build.shoulders),
            ],
            v,
        );
        let front = table(
            &[
                (0.0, 0.04),
                (0.1, 0.058),
                (0.25, 0.06),
                (0.45, 0.054),
                (0.68, 0.069),
                (0.85, 0.058),
                (1.0, 0.034),
            ],
            v,
        );
        let back = table(
            &[
                (0.0, 0.045),
                (0.12, 0.078),
                (0.25, 0.064),
                (0.45, 0.05),
                (0.7, 0.062),
                (0.88, 0.056),
                (1.0, 0.034),
            ],
            v,
        );
        let deep = table(&[(0.2, build.hips), (0.45, build.waist), (0.75, build.chest)], v);
        let (front, back) = (front * deep, back * deep);
        let centre = at + frame.z * ((front - back) * 0.5);
        Ring::across(centre, frame, wide * broad + fat, (front + back) * 0.5 + fat, v)
    }

    /// A shell around the trunk from `from` to `to` of the spine; `fat` is a function of v.
    pub fn wrap_trunk(&mut self, surface: u16, from: f32, to: f32, arc: Arc, fat: impl Fn(f32) -> f32) {
        let steps = ((to - from) * 16.0).ceil().max(3.0) as usize;
        let rings: Vec<Ring> = (0..=steps)
            .map(|step| {
                let v = from + (to - from) * step as f32 / steps as f32;
                self.trunk(v, fat(v))
            })
            .collect();
        self.mesh.tube(surface, &rings, arc);
    }

    /// A tube along a limb from `from` to `to` (0 the root, 2 the end), round at the root where `capped`.
    pub fn sleeve(
        &mut self,
        surface: u16,
        limb: &Limb,
        (from, to): (f32, f32),
        capped: bool,
        faces: usize,
        radius: impl Fn(f32) -> f32,
    ) {
        // Closer together where it bends.
        const STOPS: [f32; 17] = [
            0.0, 0.15, 0.35, 0.55, 0.72, 0.82, 0.91, 1.0, 1.09, 1.18, 1.28, 1.42, 1.56, 1.7, 1.82, 1.92, 2.0,
        ];
        let ring = |v: f32, radius: f32, back: f32| {
            let Joint { at, frame } = limb.along(v);
            Ring::across(at + frame.y * back, frame, radius, radius, v)
        };
        let mut rings = Vec::with_capacity(STOPS.len() + 4);
        let first = radius(from);
        if capped {
            for (back, share) in [(0.95, 0.0), (0.8, 0.6), (0.45, 0.9)] {
                rings.push(ring(from, first * share, first * back));
            }
        }
        rings.push(ring(from, first, 0.0));
        rings.extend(
            STOPS.iter().filter(|&&v| v > from + 0.02 && v < to - 0.02).map(|&v| ring(v, radius(v), 0.0)),
        );
        rings.push(ring(to, radius(to), 0.0));
        self.mesh.tube(surface, &rings, Arc::whole(faces));
    }

    /// A cross-section of the head at `t` (0 the chin, 1 the crown), `fat` head heights thicker than skin.
    pub fn skull(&self, t: f32, fat: f32) -> Ring {
        let size = self.build.head;
        let wide = table(
            &[
                (0.0, 0.0),
                (0.03, 0.13),
                (0.12, 0.225),
                (0.3, 0.33),
                (0.5, 0.38),
                (0.68, 0.385),
                (0.84, 0.32),
                (0.94, 0.2),
                (1.0, 0.0),
            ],
            t,
        );
        let front = table(
            &[
                (0.0, 0.26),
                (0.03, 0.33),
                (0.12, 0.36),
                (0.3, 0.37),
                (0.5, 0.375),
                (0.68, 0.385),
                (0.84, 0.32),
                (0.94, 0.2),
                (1.0, 0.0),
            ],
            t,
        );
        let back = table(
            &[
                (0.0, -0.26),
                (0.03, -0.14),
                (0.12, 0.03),
                (0.3, 0.23),
                (0.5, 0.37),
                (0.68, 0.41),
                (0.84, 0.35),
                (0.94, 0.21),
                (1.0, 0.0),
            ],
            t,
        );
        let Joint { at, frame } = self.bones.head;
        let end = t <= 0.0 || t >= 1.0;
        let fat = if end { 0.0 } else { fat };
        let at = at + frame.y * ((t - 0.5) * size) + frame.z * ((front - back) * 0.5 * size);
        Ring::across(at, frame, (wide + fat) * size, ((front + back) * 0.5 + fat) * size, t)
    }

    /// The head's cross-sections from `from` to `to`, closer together towards its ends; `fat` is a function of t.
    pub fn skull_rings(&self, from: f32, to: f32, fat: impl Fn(f32) -> f32) -> Vec<Ring> {
        let steps = self.detail.head * 2 / 3;
        (0..=steps)
            .map(|step| {
                // Evenly around a circle.
                let t = 0.5 - 0.5 * sin_cos(180.0 * step as f32 / steps as f32).1;
                let t = if step == 0 {
                    0.0
                } else if step == steps {
                    1.0
                } else {
                    t
                };
                let t = from + (to - from) * t;
                self.skull(t, fat(t))
            })
            .collect()
    }

    /// A point given in head heights from the head's middle.
    pub fn on_head(&self, x: f32, y: f32, z: f32) -> V3 {
        let Joint { at, frame } = self.bones.head;
        at + frame * (crate::maths::v3(x, y, z) * self.build.head)
    }

    pub fn head_frame(&self) -> M3 {
        self.bones.head.frame
    }
}
