//! The bones of a body in a pose: where each joint is and how it is turned.
//!
//! Lengths are in body heights: who stands straight is 1 high. The person stands around (0, 0, 0) on the ground and
//! faces +z, so that their left is at +x.

use crate::dice::Dice;
use crate::maths::{M3, V3, mix, v3};
use crate::pose::{ArmPose, LegPose, Pose};

/// What a body is like, whatever its pose. Widths are factors around 1.
#[derive(Clone, Debug)]
pub(crate) struct Build {
    /// From the chin to the crown, in body heights.
    pub head: f32,
    pub shoulders: f32,
    pub waist: f32,
    pub hips: f32,
    pub chest: f32,
    pub limbs: f32,
    /// How long the legs are beside the trunk.
    pub legs: f32,
    pub hands: f32,
    pub neck: f32,
}

impl Build {
    pub fn sample(dice: &mut Dice) -> Build {
        let child = dice.chance(0.15);
        let stout = dice.about(0.2) + if dice.chance(0.15) { 0.22 } else { 0.0 };
        // From wide shoulders and narrow hips to the other way round.
        let shape = dice.about(1.0);
        Build {
            head: if child { dice.range(0.19, 0.23) } else { dice.range(0.143, 0.182) },
            shoulders: 1.0 + 0.5 * stout + 0.14 * shape,
            waist: 1.0 + 1.1 * stout + 0.1 * shape + if child { 0.15 } else { 0.0 },
            hips: 1.0 + 0.7 * stout - 0.1 * shape,
            chest: 1.0 + 0.6 * stout + dice.about(0.12),
            limbs: 1.0 + 0.6 * stout + dice.about(0.12) + if child { 0.15 } else { 0.0 },
            legs: dice.range(0.95, 1.05) - if child { 0.08 } else { 0.0 },
            hands: dice.range(1.0, 1.25),
            neck: dice.range(0.9, 1.12),
        }
    }
}

/// A joint: its place and the frame of the bone that hangs on it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Joint {
    pub at: V3,
    pub frame: M3,
}

/// An arm or a leg: two bones and what ends it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limb {
    pub root: V3,
    pub middle: V3,
    pub end: V3,
    pub upper: M3,
    pub lower: M3,
    pub tip: M3,
}

impl Limb {
    /// The middle line and its frame: 0 is the root, 1 the middle joint, 2 the end. The joint is rounded.
    pub fn along(&self, v: f32) -> Joint {
        const ROUND: f32 = 0.22;
        let straight = |v: f32| {
            if v < 1.0 { self.root.to(self.middle, v) } else { self.middle.to(self.end, v - 1.0) }
        };
        let t = ((v - 1.0 + ROUND) / (2.0 * ROUND)).clamp(0.0, 1.0);
        let at = if t > 0.0 && t < 1.0 {
            let (a, b) = (straight(1.0 - ROUND), straight(1.0 + ROUND));
            a.to(self.middle, t).to(self.middle.to(b, t), t)
        } else {
            straight(v)
        };
        Joint { at, frame: self.upper.to(self.lower, t) }
    }
}

/// A body's joints. Limbs are `[left, right]`.
#[derive(Clone, Debug)]
pub(crate) struct Skeleton {
    pub pelvis: Joint,
    pub waist: Joint,
    pub chest: Joint,
    /// Where the neck begins.
    pub neck: Joint,
    /// The middle of the head.
    pub head: Joint,
    pub arms: [Limb; 2],
    pub legs: [Limb; 2],
}

impl Skeleton {
    pub fn of(build: &Build, pose: &Pose) -> Skeleton {
        let root = M3::about_z(pose.tilt) * M3::about_x(pose.lean);
        let bend = |share: f32| {
            M3::about_y(pose.twist * share) * M3::about_z(pose.side * share) * M3::about_x(pose.bend * share)
        };
        // A big head takes its room from the trunk and the legs.
        let below = (1.0 - build.head - 0.035) / 0.835;
        let leg = 0.475 * build.legs * below;
        let trunk = 0.835 * below - leg - 0.04 * below;
        let pelvis = Joint { at: v3(0.0, 0.0, 0.0), frame: root };
        let waist_frame = root * bend(0.45);
        let waist = Joint { at: pelvis.at + root.y * (trunk * 0.28), frame: waist_frame };
        let chest_frame = waist_frame * bend(0.55);
        let chest = Joint { at: waist.at + waist_frame.y * (trunk * 0.34), frame: chest_frame };
        let neck_at = chest.at + chest_frame.y * (trunk * 0.38);
        let neck_frame = chest_frame
            * M3::about_y(pose.turn * 0.4)
            * M3::about_z(pose.cock * 0.5)
            * M3::about_x(pose.nod * 0.5 + 6.0);
        let neck = Joint { at: neck_at, frame: neck_frame };
        let head_frame = neck_frame
            * M3::about_y(pose.turn * 0.6)
            * M3::about_z(pose.cock * 0.5)
            * M3::about_x(pose.nod * 0.5 - 6.0);
        let skull = neck_at + neck_frame.y * (0.035 + 0.1 * build.head);
        let head = Joint {
            at: skull + head_frame.y * (build.head * 0.4) + head_frame.z * (build.head * 0.06),
            frame: head_frame,
        };

        let arm = |index: usize| {
            let mirror = if index == 0 { 1.0 } else { -1.0 };
            let ArmPose { out, forward, twist, elbow, pronate, wrist, .. } = pose.arms[index];
            // A raised arm lifts its shoulder.
            let raised = (out.max(forward) / 180.0).clamp(0.0, 1.0);
            let shoulder = neck_at - chest_frame.y * (0.058 * below - 0.035 * raised)
                + chest_frame.x * (mirror * (0.094 - 0.012 * raised) * mix(1.0, build.shoulders, 0.9));
            let upper =
                chest_frame * M3::about_z(mirror * out) * M3::about_x(-forward) * M3::about_y(mirror * twist);
            let middle = shoulder - upper.y * (0.165 * below);
            let lower = upper * M3::about_x(-elbow) * M3::about_y(mirror * -pronate);
            let end = middle - lower.y * (0.15 * below);
            let tip = lower * M3::about_z(mirror * wrist);
            Limb { root: shoulder, middle, end, upper, lower, tip }
        };
        let leg_of = |index: usize| {
            let mirror = if index == 0 { 1.0 } else { -1.0 };
            let LegPose { out, forward, twist, knee, ankle } = pose.legs[index];
            let hip = pelvis.at - root.y * (0.02 * below) + root.x * (mirror * 0.05 * build.hips);
            let upper =
                root * M3::about_z(mirror * out) * M3::about_x(-forward) * M3::about_y(mirror * twist);
            let middle = hip - upper.y * (leg * 0.5);
            let lower = upper * M3::about_x(knee);
            let end = middle - lower.y * (leg * 0.5);
            Limb { root: hip, middle, end, upper, lower, tip: lower * M3::about_x(-ankle) }
        };
        let mut skeleton = Skeleton {
            pelvis,
            waist,
            chest,
            neck,
            head,
            arms: [arm(0), arm(1)],
            legs: [leg_of(0), leg_of(1)],
        };
        skeleton.stand(build, pose.lift);
        skeleton
    }

    /// Moves the body so that its lowest point is `lift` above the ground.
    fn stand(&mut self, build: &Build, lift: f32) {
        let mut lowest = f32::MAX;
        let mut reach = |at: V3, radius: f32| lowest = lowest.min(at.y - radius);
        reach(self.pelvis.at, 0.075 * build.hips);
        reach(self.chest.at, 0.07 * build.chest);
        reach(self.head.at, build.head * 0.4);
        for leg in &self.legs {
            reach(leg.middle, 0.035);
            let sole = leg.end - leg.tip.y * 0.038;
            reach(sole + leg.tip.z * 0.095, 0.0);
            reach(sole - leg.tip.z * 0.03, 0.0);
        }
        for arm in &self.arms {
            reach(arm.middle, 0.025);
            reach(arm.end - arm.tip.y * 0.05, 0.015);
        }
        let by = v3(0.0, lift - lowest, 0.0);
        for joint in [&mut self.pelvis, &mut self.waist, &mut self.chest, &mut self.neck, &mut self.head] {
            joint.at = joint.at + by;
        }
        for limb in self.arms.iter_mut().chain(&mut self.legs) {
            limb.root = limb.root + by;
            limb.middle = limb.middle + by;
            limb.end = limb.end + by;
        }
    }

    /// The spine: 0 is the crotch, 0.2 the pelvis, 0.45 the waist, 0.75 the chest, 1 where the neck begins.
    pub fn spine(&self, v: f32) -> Joint {
        let bottom = Joint { at: self.pelvis.at - self.pelvis.frame.y * 0.055, frame: self.pelvis.frame };
        let stops = [
            (0.0, bottom),
            (0.2, self.pelvis),
            (0.45, self.waist),
            (0.75, self.chest),
            (1.0, Joint { frame: self.chest.frame, ..self.neck }),
        ];
        for pair in stops.windows(2) {
            let ((from, a), (to, b)) = (pair[0], pair[1]);
            if v <= to {
                let t = (v - from) / (to - from);
                return Joint { at: a.at.to(b.at, t), frame: a.frame.to(b.frame, t) };
            }
        }
        stops[4].1
    }

    /// Points that hull the body closely enough to frame it: `(centre, radius)`.
    pub fn extent(&self, build: &Build) -> Vec<(V3, f32)> {
        let mut points = vec![
            (self.head.at + self.head.frame.y * (build.head * 0.12), build.head * 0.42),
            (self.pelvis.at, 0.08),
            (self.chest.at, 0.09),
        ];
        for arm in &self.arms {
            points.extend([(arm.middle, 0.025), (arm.end, 0.02), (arm.end - arm.tip.y * 0.085, 0.012)]);
        }
        for leg in &self.legs {
            let sole = leg.end - leg.tip.y * 0.03;
            points.extend([
                (leg.middle, 0.03),
                (sole - leg.tip.z * 0.02, 0.012),
                (sole + leg.tip.z * 0.09, 0.012),
            ]);
        }
        points
    }
}
