//! What a body is made of: triangles on smooth tubes and blobs. Knows no body and no pixels.

use crate::maths::{M3, V3, sin_cos, v3};

/// A point of a surface. `u` and `v` are where it is on the surface, for patterns and cuts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Vertex {
    pub at: V3,
    pub normal: V3,
    pub u: f32,
    pub v: f32,
}

/// Triangles that belong to numbered surfaces.
#[derive(Clone, Debug, Default)]
pub(crate) struct Mesh {
    pub vertices: Vec<Vertex>,
    pub triangles: Vec<([u32; 3], u16)>,
}

/// A cross-section of a tube: an ellipse with half-axes `ax` and `ay`; `v` as the surface counts it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ring {
    pub at: V3,
    pub ax: V3,
    pub ay: V3,
    pub v: f32,
}

impl Ring {
    /// Across `frame`'s y axis, `w` wide along x and `d` deep along z.
    pub fn across(at: V3, frame: M3, w: f32, d: f32, v: f32) -> Ring {
        Ring { at, ax: frame.x * w, ay: frame.z * d, v }
    }
}

/// What part of the way round a tube has walls, in turns, and with how many faces.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arc {
    pub from: f32,
    pub to: f32,
    pub faces: usize,
}

impl Arc {
    pub const fn whole(faces: usize) -> Arc {
        Arc { from: 0.0, to: 1.0, faces }
    }
}

impl Mesh {
    /// A tube through `rings`; `u` counts turns from `ax` towards `ay`.
    pub fn tube(&mut self, surface: u16, rings: &[Ring], arc: Arc) {
        self.tube_with(surface, rings, arc, |u, v, _| (u, v));
    }

    /// A tube whose surface coordinates are `place(u, v, at)`.
    pub fn tube_with(
        &mut self,
        surface: u16,
        rings: &[Ring],
        arc: Arc,
        place: impl Fn(f32, f32, V3) -> (f32, f32),
    ) {
        let first = self.vertices.len() as u32;
        let columns = arc.faces + 1;
        let mut turns = [(0.0, 0.0, 0.0); 65];
        for (column, turn) in turns.iter_mut().enumerate().take(columns) {
            let u = arc.from + (arc.to - arc.from) * column as f32 / arc.faces as f32;
            let (s, c) = sin_cos(u * 360.0);
            *turn = (u, s, c);
        }
        for (index, ring) in rings.iter().enumerate() {
            let before = &rings[index.saturating_sub(1)];
            let after = &rings[(index + 1).min(rings.len() - 1)];
            let middle = (before.at + after.at) * 0.5;
            let step = after.at - before.at;
            let (step_x, step_y) = (after.ax - before.ax, after.ay - before.ay);
            // An end that closes to a point has no edge to take a normal from: it looks along the tube.
            let closed = ring.ax.dot(ring.ax) < 1e-10;
            for &(u, s, c) in &turns[..columns] {
                let out = ring.ax * c + ring.ay * s;
                let along = step + step_x * c + step_y * s;
                let around = ring.ay * c - ring.ax * s;
                let mut normal = if closed { ring.at - middle } else { along.cross(around) };
                let outwards = if closed { normal } else { out };
                if normal.dot(outwards) < 0.0 {
                    normal = -normal;
                }
                let at = ring.at + out;
                let (u, v) = place(u, ring.v, at);
                self.vertices.push(Vertex { at, normal: normal.unit(), u, v });
            }
        }
        for row in 0..rings.len().saturating_sub(1) as u32 {
            for column in 0..arc.faces as u32 {
                let a = first + row * columns as u32 + column;
                let b = a + columns as u32;
                self.triangles.push(([a, a + 1, b], surface));
                self.triangles.push(([a + 1, b + 1, b], surface));
            }
        }
    }

    /// An ellipsoid with half-axes along `frame`'s; `v` goes from 0 at -y to 1 at +y.
    pub fn blob(&mut self, surface: u16, at: V3, frame: M3, half: V3, faces: usize) {
        let steps = (faces / 2).max(4);
        let rings: Vec<Ring> = (0..=steps)
            .map(|step| {
                let (s, c) = sin_cos(180.0 * step as f32 / steps as f32);
                let s = if step == 0 || step == steps { 0.0 } else { s };
                let v = 0.5 - 0.5 * c;
                Ring::across(at - frame.y * (half.y * c), frame, half.x * s, half.z * s, v)
            })
            .collect();
        self.tube(surface, &rings, Arc::whole(faces));
    }

    /// A tapering rod with round ends: `points` are `(centre, radius)`; `side` is where `u` is 0.
    pub fn rod(&mut self, surface: u16, points: &[(V3, f32)], side: V3, faces: usize) {
        let (Some(&(start, start_radius)), Some(&(end, end_radius))) = (points.first(), points.last()) else {
            return;
        };
        let along = (end - start).unit();
        let ax = (side - along * side.dot(along)).unit();
        let ay = ax.cross(along);
        let ring = |at: V3, radius: f32, v: f32| Ring { at, ax: ax * radius, ay: ay * radius, v };
        let count = points.len().max(2) as f32 - 1.0;
        let mut rings = vec![
            ring(start - along * start_radius, 0.0, 0.0),
            ring(start - along * (start_radius * 0.7), start_radius * 0.7, 0.0),
        ];
        rings.extend(points.iter().enumerate().map(|(i, &(at, radius))| ring(at, radius, i as f32 / count)));
        rings.push(ring(end + along * (end_radius * 0.7), end_radius * 0.7, 1.0));
        rings.push(ring(end + along * end_radius, 0.0, 1.0));
        self.tube(surface, &rings, Arc::whole(faces));
    }
}

/// Where up is for a thing that hangs: a frame with y against gravity, x near `frame`'s.
pub(crate) fn hanging(frame: M3, stiffness: f32) -> M3 {
    let y = v3(0.0, 1.0, 0.0).to(frame.y, stiffness).unit();
    let x = (frame.x - y * frame.x.dot(y)).unit();
    M3 { x, y, z: x.cross(y) }
}
