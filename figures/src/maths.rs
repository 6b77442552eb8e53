//! Vectors, rotations and smooth functions in 32 bits. Sine and cosine are computed here: a platform's own differ in
//! the last bit, and a picture must be the same bytes everywhere.

use std::ops::{Add, Mul, Neg, Sub};

/// A point or direction: x to the viewer's right, y up, z towards the viewer.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct V3 {
    pub x: f32,
    pub y: f32,
    pub z: f32,
}

pub(crate) const fn v3(x: f32, y: f32, z: f32) -> V3 {
    V3 { x, y, z }
}

impl V3 {
    pub fn dot(self, other: V3) -> f32 {
        self.x * other.x + self.y * other.y + self.z * other.z
    }

    pub fn cross(self, other: V3) -> V3 {
        v3(
            self.y * other.z - self.z * other.y,
            self.z * other.x - self.x * other.z,
            self.x * other.y - self.y * other.x,
        )
    }

    pub fn length(self) -> f32 {
        self.dot(self).sqrt()
    }

    /// Of length 1; a vector too short to have a direction points up.
    pub fn unit(self) -> V3 {
        let length = self.length();
        if length > 1e-9 { self * (1.0 / length) } else { v3(0.0, 1.0, 0.0) }
    }

    pub fn to(self, other: V3, t: f32) -> V3 {
        self + (other - self) * t
    }
}

impl Add for V3 {
    type Output = V3;

    fn add(self, other: V3) -> V3 {
        v3(self.x + other.x, self.y + other.y, self.z + other.z)
    }
}

impl Sub for V3 {
    type Output = V3;

    fn sub(self, other: V3) -> V3 {
        v3(self.x - other.x, self.y - other.y, self.z - other.z)
    }
}

impl Neg for V3 {
    type Output = V3;

    fn neg(self) -> V3 {
        v3(-self.x, -self.y, -self.z)
    }
}

impl Mul<f32> for V3 {
    type Output = V3;

    fn mul(self, by: f32) -> V3 {
        v3(self.x * by, self.y * by, self.z * by)
    }
}

/// Three axes of a turned frame: the columns of a rotation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct M3 {
    pub x: V3,
    pub y: V3,
    pub z: V3,
}

impl M3 {
    pub const IDENTITY: M3 = M3 { x: v3(1.0, 0.0, 0.0), y: v3(0.0, 1.0, 0.0), z: v3(0.0, 0.0, 1.0) };

    /// A turn about x by `degrees`: y goes towards z.
    pub fn about_x(degrees: f32) -> M3 {
        let (s, c) = sin_cos(degrees);
        M3 { y: v3(0.0, c, s), z: v3(0.0, -s, c), ..M3::IDENTITY }
    }

    /// A turn about y by `degrees`: z goes towards x.
    pub fn about_y(degrees: f32) -> M3 {
        let (s, c) = sin_cos(degrees);
        M3 { x: v3(c, 0.0, -s), z: v3(s, 0.0, c), ..M3::IDENTITY }
    }

    /// A turn about z by `degrees`: x goes towards y.
    pub fn about_z(degrees: f32) -> M3 {
        let (s, c) = sin_cos(degrees);
        M3 { x: v3(c, s, 0.0), y: v3(-s, c, 0.0), ..M3::IDENTITY }
    }

    /// Between two frames; the axes are made orthogonal again, x first.
    pub fn to(self, other: M3, t: f32) -> M3 {
        let x = self.x.to(other.x, t).unit();
        let z = self.z.to(other.z, t);
        let z = (z - x * z.dot(x)).unit();
        M3 { x, y: z.cross(x), z }
    }
}

impl Mul<V3> for M3 {
    type Output = V3;

    fn mul(self, v: V3) -> V3 {
        self.x * v.x + self.y * v.y + self.z * v.z
    }
}

impl Mul for M3 {
    type Output = M3;

    fn mul(self, other: M3) -> M3 {
        M3 { x: self * other.x, y: self * other.y, z: self * other.z }
    }
}

/// Sine and cosine of an angle in degrees, within 1e-6.
pub(crate) fn sin_cos(degrees: f32) -> (f32, f32) {
    (sine(degrees), sine(degrees + 90.0))
}

fn sine(degrees: f32) -> f32 {
    let turns = degrees / 360.0;
    let turns = turns - floor(turns + 0.5);
    // Folded to a quarter either side of zero, where the odd polynomial is good.
    let folded = if turns > 0.25 {
        0.5 - turns
    } else if turns < -0.25 {
        -0.5 - turns
    } else {
        turns
    };
    let a = folded * std::f32::consts::TAU;
    let a2 = a * a;
    a * (1.0 - a2 * (1.0 / 6.0 - a2 * (1.0 / 120.0 - a2 * (1.0 / 5040.0 - a2 * (1.0 / 362_880.0)))))
}

/// The sine of `turns` whole turns: what swings once while `turns` goes up by one.
pub(crate) fn swing(turns: f32) -> f32 {
    sine(turns * 360.0)
}

pub(crate) fn mix(a: f32, b: f32, t: f32) -> f32 {
    a + (b - a) * t
}

/// From 0 at `from` to 1 at `to`, flat outside; `to` may be the lesser.
pub(crate) fn smooth(from: f32, to: f32, x: f32) -> f32 {
    let t = (x - from) / (to - from);
    let t = if t > 0.0 { if t < 1.0 { t } else { 1.0 } } else { 0.0 };
    t * t * (3.0 - 2.0 * t)
}

/// A table of `(x, y)` with ascending x, read with smooth joins.
pub(crate) fn table(points: &[(f32, f32)], x: f32) -> f32 {
    let mut last = match points.first() {
        Some(&first) => first,
        None => return 0.0,
    };
    if x <= last.0 {
        return last.1;
    }
    for &(at, value) in &points[1..] {
        if x <= at {
            let t = (x - last.0) / (at - last.0);
            // Halfway between straight and smooth: no flat steps, no kinks to be seen.
            let t = mix(t, t * t * (3.0 - 2.0 * t), 0.5);
            return mix(last.1, value, t);
        }
        last = (at, value);
    }
    last.1
}

/// The greatest whole number not above `x`, for |x| below 2^31. The standard one is a call where the processor isn't
/// known to have the instruction.
pub(crate) fn floor(x: f32) -> f32 {
    let whole = x as i32 as f32;
    if whole > x { whole - 1.0 } else { whole }
}

/// Bits that look random, from two whole numbers and a seed.
pub(crate) fn bits(x: i32, y: i32, seed: u32) -> u32 {
    let mut h = (x as u32).wrapping_mul(0x9E37_79B1)
        ^ (y as u32).wrapping_mul(0x85EB_CA77)
        ^ seed.wrapping_mul(0xC2B2_AE3D);
    h ^= h >> 15;
    h = h.wrapping_mul(0x2C1B_3C6D);
    h ^= h >> 12;
    h = h.wrapping_mul(0x297A_2D39);
    h ^ (h >> 15)
}

/// A number in 0..1 that looks random, from two whole ones and a seed.
pub(crate) fn hash(x: i32, y: i32, seed: u32) -> f32 {
    (bits(x, y, seed) >> 8) as i32 as f32 * (1.0 / 16_777_216.0)
}

/// Smooth noise in 0..1 with hills about one unit wide.
#[inline]
pub(crate) fn noise(x: f32, y: f32, seed: u32) -> f32 {
    let (fx, fy) = (floor(x), floor(y));
    let (ix, iy) = (fx as i32, fy as i32);
    let (tx, ty) = (x - fx, y - fy);
    let (tx, ty) = (tx * tx * (3.0 - 2.0 * tx), ty * ty * (3.0 - 2.0 * ty));
    let (ix1, iy1) = (ix.wrapping_add(1), iy.wrapping_add(1));
    let top = mix(hash(ix, iy, seed), hash(ix1, iy, seed), tx);
    let bottom = mix(hash(ix, iy1, seed), hash(ix1, iy1, seed), tx);
    mix(top, bottom, ty)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sine_and_cosine_agree_with_the_platform() {
        for tenth in -7200..7200 {
            let degrees = tenth as f32 / 10.0;
            let (s, c) = sin_cos(degrees);
            let exact = f64::from(degrees).to_radians();
            assert!((f64::from(s) - exact.sin()).abs() < 1e-5, "{degrees}");
            assert!((f64::from(c) - exact.cos()).abs() < 1e-5, "{degrees}");
        }
    }

    #[test]
    fn turns_go_the_way_they_say() {
        let near = |a: V3, b: V3| (a - b).length() < 1e-4;
        assert!(near(M3::about_x(90.0) * v3(0.0, 1.0, 0.0), v3(0.0, 0.0, 1.0)));
        assert!(near(M3::about_y(90.0) * v3(0.0, 0.0, 1.0), v3(1.0, 0.0, 0.0)));
        assert!(near(M3::about_z(90.0) * v3(1.0, 0.0, 0.0), v3(0.0, 1.0, 0.0)));
    }
}
