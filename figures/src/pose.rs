//! A pose: the angle of every joint. Knows no lengths; `skeleton.rs` puts bones to it.
//!
//! All angles are in degrees, zero when standing straight with the arms hanging. A positive angle goes forwards
//! (outwards for `out`, `twist`), on the left side as on the right.

use crate::dice::Dice;

/// One arm. `twist` turns the upper arm outwards about itself, `pronate` the hand inwards about the lower arm; `curl`
/// is 0 for a flat hand and 1 for a fist.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct ArmPose {
    pub out: f32,
    pub forward: f32,
    pub twist: f32,
    pub elbow: f32,
    pub pronate: f32,
    pub wrist: f32,
    pub curl: f32,
}

/// One leg; `ankle` points the toes up.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct LegPose {
    pub out: f32,
    pub forward: f32,
    pub twist: f32,
    pub knee: f32,
    pub ankle: f32,
}

/// A whole body; arms and legs are `[left, right]`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Pose {
    /// The whole body forwards and to its right.
    pub lean: f32,
    pub tilt: f32,
    /// The spine forwards, to its right and turned to its left.
    pub bend: f32,
    pub side: f32,
    pub twist: f32,
    /// The head forwards, to its right and turned to its left.
    pub nod: f32,
    pub cock: f32,
    pub turn: f32,
    pub arms: [ArmPose; 2],
    pub legs: [LegPose; 2],
    /// How far the lowest point is above the ground, in body heights.
    pub lift: f32,
}

impl Pose {
    /// What makes two people in the same pose differ: a little at every joint.
    pub fn jitter(dice: &mut Dice) -> Pose {
        let mut arm = || ArmPose {
            out: dice.about(7.0),
            forward: dice.about(9.0),
            twist: dice.about(12.0),
            elbow: dice.range(0.0, 12.0),
            pronate: dice.about(30.0),
            wrist: dice.about(20.0),
            curl: dice.about(0.3),
        };
        let arms = [arm(), arm()];
        let mut leg = || LegPose {
            out: dice.range(-1.0, 5.0),
            forward: dice.about(6.0),
            twist: dice.about(10.0),
            knee: dice.range(0.0, 6.0),
            ankle: dice.about(4.0),
        };
        let legs = [leg(), leg()];
        Pose {
            lean: dice.about(3.0),
            tilt: dice.about(2.0),
            bend: dice.about(6.0),
            side: dice.about(6.0),
            twist: dice.about(10.0),
            nod: dice.about(12.0),
            cock: dice.about(10.0),
            turn: dice.about(35.0),
            arms,
            legs,
            lift: 0.0,
        }
    }

    pub fn plus(&self, other: &Pose) -> Pose {
        let arm = |i: usize| {
            let (a, b) = (self.arms[i], other.arms[i]);
            ArmPose {
                out: a.out + b.out,
                forward: a.forward + b.forward,
                twist: a.twist + b.twist,
                elbow: (a.elbow + b.elbow).clamp(0.0, 145.0),
                pronate: a.pronate + b.pronate,
                wrist: a.wrist + b.wrist,
                curl: (a.curl + b.curl).clamp(0.0, 1.0),
            }
        };
        let leg = |i: usize| {
            let (a, b) = (self.legs[i], other.legs[i]);
            LegPose {
                out: a.out + b.out,
                forward: a.forward + b.forward,
                twist: a.twist + b.twist,
                knee: (a.knee + b.knee).clamp(0.0, 145.0),
                ankle: a.ankle + b.ankle,
            }
        };
        Pose {
            lean: self.lean + other.lean,
            tilt: self.tilt + other.tilt,
            bend: self.bend + other.bend,
            side: self.side + other.side,
            twist: self.twist + other.twist,
            nod: self.nod + other.nod,
            cock: self.cock + other.cock,
            turn: (self.turn + other.turn).clamp(-70.0, 70.0),
            arms: [arm(0), arm(1)],
            legs: [leg(0), leg(1)],
            lift: self.lift + other.lift,
        }
    }

    /// The pose seen in a mirror: what the left did, the right does.
    pub fn mirrored(&self) -> Pose {
        Pose {
            tilt: -self.tilt,
            side: -self.side,
            twist: -self.twist,
            cock: -self.cock,
            turn: -self.turn,
            arms: [self.arms[1], self.arms[0]],
            legs: [self.legs[1], self.legs[0]],
            ..*self
        }
    }
}
