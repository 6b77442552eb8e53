//! The kinds of pose. Each is a loop: a phase that goes up by one comes back to the same pose, so that a still
//! picture is a moment of what a clip plays.

use crate::maths::{mix, swing};
use crate::pose::{ArmPose, LegPose, Pose};

/// What stands under a person.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Seat {
    Nothing,
    Stool,
}

/// A kind of pose. `pace` is how often its loop goes round in a second; `moods` are numbers in 0..1 that stay the
/// same for a person.
pub(crate) struct Family {
    pub name: &'static str,
    pub held_out: bool,
    pub pace: f32,
    pub seat: Seat,
    /// How likely it is beside the others.
    pub weight: f32,
    pub at: fn(phase: f32, moods: [f32; 3]) -> Pose,
}

const fn kind(name: &'static str, pace: f32, weight: f32, at: fn(f32, [f32; 3]) -> Pose) -> Family {
    Family { name, held_out: false, pace, seat: Seat::Nothing, weight, at }
}

const fn held_out(family: Family) -> Family {
    Family { held_out: true, ..family }
}

const fn seated(family: Family) -> Family {
    Family { seat: Seat::Stool, ..family }
}

pub(crate) const FAMILIES: &[Family] = &[
    kind("standing", 0.25, 2.0, standing),
    kind("weight on one leg", 0.2, 1.5, one_leg),
    kind("walking", 0.9, 2.5, walking),
    kind("running", 1.3, 1.5, running),
    kind("waving", 0.8, 1.5, waving),
    kind("arms up", 0.5, 1.0, arms_up),
    kind("arms out", 0.3, 1.0, arms_out),
    kind("hands on hips", 0.25, 1.2, hands_on_hips),
    kind("arms crossed", 0.25, 0.8, arms_crossed),
    kind("pointing", 0.3, 1.0, pointing),
    kind("thinking", 0.25, 0.7, thinking),
    kind("talking", 0.6, 1.3, talking),
    kind("crouching", 0.3, 0.7, crouching),
    kind("jumping", 0.8, 0.8, jumping),
    kind("dancing", 0.8, 1.5, dancing),
    kind("stretching", 0.25, 0.7, stretching),
    kind("bowing", 0.25, 0.6, bowing),
    kind("kicking", 0.6, 0.7, kicking),
    kind("clapping", 1.2, 0.7, clapping),
    kind("lying", 0.2, 0.5, lying),
    kind("carrying", 0.3, 0.7, carrying),
    seated(kind("sitting", 0.25, 1.4, sitting)),
    seated(kind("sitting, legs crossed", 0.25, 0.8, sitting_crossed)),
    held_out(kind("lunging", 0.3, 1.0, lunging)),
    held_out(kind("star jump", 0.8, 1.0, star)),
    held_out(kind("kneeling", 0.25, 1.0, kneeling)),
    held_out(kind("balancing", 0.3, 1.0, balancing)),
    held_out(kind("looking out", 0.25, 1.0, looking_out)),
];

/// Arms hanging a little away from the body, breathing.
fn standing(phase: f32, m: [f32; 3]) -> Pose {
    let breath = swing(phase);
    let arm = ArmPose {
        out: 8.0 + 8.0 * m[0] + breath,
        elbow: 8.0 + 14.0 * m[1] + 2.0 * breath,
        twist: -10.0,
        curl: 0.35,
        ..ArmPose::default()
    };
    let leg = LegPose { out: 1.0 + 6.0 * m[2], twist: 8.0, ..LegPose::default() };
    Pose {
        bend: 1.5 * breath,
        turn: 6.0 * swing(phase + 0.2),
        arms: [arm; 2],
        legs: [leg; 2],
        ..Pose::default()
    }
}

fn one_leg(phase: f32, m: [f32; 3]) -> Pose {
    let mut pose = standing(phase, m);
    pose.tilt = -3.0;
    pose.side = 7.0 + 2.0 * swing(phase);
    pose.legs[0] = LegPose { out: -1.0, twist: 4.0, ..LegPose::default() };
    pose.legs[1] =
        LegPose { out: 11.0 + 4.0 * m[0], forward: 8.0, twist: 22.0, knee: 14.0 + 12.0 * m[1], ankle: 4.0 };
    pose
}

fn walking(phase: f32, m: [f32; 3]) -> Pose {
    let stride = 22.0 + 10.0 * m[0];
    let leg = |phase: f32| LegPose {
        out: 1.0,
        forward: 4.0 + stride * swing(phase),
        twist: 5.0,
        knee: 10.0 + 32.0 * swing(phase + 0.17).max(-0.2),
        ankle: 8.0 * swing(phase + 0.1),
    };
    let arm = |phase: f32| ArmPose {
        out: 7.0,
        forward: (16.0 + 14.0 * m[1]) * swing(phase),
        twist: -12.0,
        elbow: 18.0 + 30.0 * m[2] + 10.0 * swing(phase),
        curl: 0.45,
        ..ArmPose::default()
    };
    Pose {
        lean: 2.0,
        twist: -7.0 * swing(phase),
        arms: [arm(phase + 0.5), arm(phase)],
        legs: [leg(phase), leg(phase + 0.5)],
        ..Pose::default()
    }
}

fn running(phase: f32, m: [f32; 3]) -> Pose {
    let stride = 38.0 + 14.0 * m[0];
    let leg = |phase: f32| LegPose {
        forward: 14.0 + stride * swing(phase),
        knee: 48.0 + 46.0 * swing(phase + 0.24),
        ankle: -6.0 + 14.0 * swing(phase),
        ..LegPose::default()
    };
    let arm = |phase: f32| ArmPose {
        out: 12.0,
        forward: 42.0 * swing(phase),
        twist: -18.0,
        elbow: 85.0 + 20.0 * m[1],
        curl: 0.9,
        ..ArmPose::default()
    };
    Pose {
        lean: 8.0 + 8.0 * m[2],
        twist: -12.0 * swing(phase),
        nod: -6.0,
        arms: [arm(phase + 0.5), arm(phase)],
        legs: [leg(phase), leg(phase + 0.5)],
        lift: 0.03 * (1.0 + swing(phase * 2.0)),
        ..Pose::default()
    }
}

fn waving(phase: f32, m: [f32; 3]) -> Pose {
    let mut pose = standing(phase, m);
    pose.arms[1] = ArmPose {
        out: 72.0 + 40.0 * m[0],
        twist: 85.0,
        elbow: 75.0 - 30.0 * m[0] + 24.0 * swing(phase),
        pronate: 70.0,
        ..ArmPose::default()
    };
    pose.side = -4.0;
    pose.cock = -6.0 + 4.0 * swing(phase + 0.25);
    pose
}

fn arms_up(phase: f32, m: [f32; 3]) -> Pose {
    let mut pose = standing(phase, m);
    let arm = |phase: f32| ArmPose {
        out: 150.0 + 20.0 * m[0] + 8.0 * swing(phase),
        twist: 70.0,
        elbow: 10.0 + 40.0 * m[1],
        pronate: 60.0,
        curl: m[2],
        ..ArmPose::default()
    };
    pose.arms = [arm(phase), arm(phase + 0.3)];
    pose.nod = -8.0;
    pose
}

fn arms_out(phase: f32, m: [f32; 3]) -> Pose {
    let mut pose = standing(phase, m);
    let sway = 7.0 * swing(phase);
    let arm = |sway: f32| ArmPose {
        out: 82.0 + 12.0 * m[0] + sway,
        forward: 10.0 * m[1],
        elbow: 6.0,
        pronate: 80.0,
        ..ArmPose::default()
    };
    pose.arms = [arm(sway), arm(-sway)];
    pose.side = 0.4 * sway;
    pose
}

fn hands_on_hips(phase: f32, m: [f32; 3]) -> Pose {
    let mut pose = one_leg(phase, m);
    let arm = ArmPose {
        out: 48.0 + 2.0 * swing(phase),
        forward: -12.0,
        twist: -72.0,
        elbow: 96.0,
        wrist: 20.0,
        curl: 0.6,
        ..ArmPose::default()
    };
    pose.arms[0] = arm;
    if m[2] > 0.35 {
        pose.arms[1] = arm;
    }
    pose
}

fn arms_crossed(phase: f32, m: [f32; 3]) -> Pose {
    let mut pose = one_leg(phase, m);
    let arm = |lower: f32| ArmPose {
        out: 12.0,
        forward: 30.0 + lower,
        twist: -66.0,
        elbow: 104.0 + swing(phase),
        curl: 0.4,
        ..ArmPose::default()
    };
    pose.arms = [arm(0.0), arm(9.0)];
    pose
}

fn pointing(phase: f32, m: [f32; 3]) -> Pose {
    let mut pose = one_leg(phase, m);
    pose.arms[0] = ArmPose {
        out: 20.0 + 70.0 * m[0],
        forward: 84.0 * (1.0 - m[0]) + 8.0 * m[1] + 4.0 * swing(phase),
        elbow: 6.0 + 5.0 * swing(phase),
        pronate: 60.0,
        curl: 0.7,
        ..ArmPose::default()
    };
    pose.turn = 25.0 * m[0];
    pose
}

fn thinking(phase: f32, m: [f32; 3]) -> Pose {
    let mut pose = one_leg(phase, m);
    pose.arms[1] =
        ArmPose { out: 10.0, forward: 42.0, twist: -22.0, elbow: 128.0, curl: 0.8, ..ArmPose::default() };
    pose.arms[0] =
        ArmPose { out: 8.0, forward: 18.0, twist: -70.0, elbow: 96.0, curl: 0.4, ..ArmPose::default() };
    pose.nod = 8.0 + 4.0 * swing(phase);
    pose.cock = 10.0 * m[2];
    pose
}

fn talking(phase: f32, m: [f32; 3]) -> Pose {
    let mut pose = standing(phase * 2.0, m);
    let arm = |phase: f32, share: f32| ArmPose {
        out: 16.0 + 12.0 * swing(phase),
        forward: 18.0 + 22.0 * share,
        twist: 22.0 * swing(phase + 0.2),
        elbow: 76.0 + 24.0 * swing(phase + 0.1),
        pronate: -40.0,
        wrist: 10.0 * swing(phase),
        curl: 0.2,
    };
    pose.arms = [arm(phase, m[0]), arm(phase + 0.35, m[1])];
    pose.nod = 4.0 * swing(phase * 2.0);
    pose
}

fn crouching(phase: f32, m: [f32; 3]) -> Pose {
    let depth = mix(0.55, 1.0, m[0]) + 0.06 * swing(phase);
    let leg =
        LegPose { out: 16.0, forward: 105.0 * depth, twist: 18.0, knee: 128.0 * depth, ankle: 24.0 * depth };
    let arm = ArmPose {
        out: 14.0,
        forward: 40.0 + 25.0 * m[1],
        twist: -20.0,
        elbow: 45.0 + 30.0 * m[2],
        curl: 0.5,
        ..ArmPose::default()
    };
    Pose { lean: 14.0, bend: 20.0, nod: -20.0, arms: [arm; 2], legs: [leg; 2], ..Pose::default() }
}

fn jumping(phase: f32, m: [f32; 3]) -> Pose {
    let height = 0.5 + 0.5 * swing(phase);
    let leg = |more: f32| LegPose {
        out: 6.0,
        forward: 10.0 + 30.0 * more * height,
        knee: 20.0 + 55.0 * more * height,
        ankle: -25.0 * height,
        ..LegPose::default()
    };
    let arm = ArmPose {
        out: 20.0 + (70.0 + 50.0 * m[2]) * height,
        twist: 50.0 * height,
        elbow: 25.0,
        curl: 0.5,
        ..ArmPose::default()
    };
    Pose {
        bend: 6.0 * (1.0 - height),
        arms: [arm; 2],
        legs: [leg(m[0]), leg(m[1])],
        lift: 0.16 * height,
        ..Pose::default()
    }
}

fn dancing(phase: f32, m: [f32; 3]) -> Pose {
    let beat = swing(phase);
    let arm = |beat: f32, high: f32| ArmPose {
        out: 40.0 + 50.0 * high + 35.0 * beat,
        forward: 20.0 - 15.0 * beat,
        twist: 60.0 * high,
        elbow: 70.0 - 25.0 * beat,
        pronate: 40.0,
        wrist: 15.0 * beat,
        curl: 0.3,
    };
    let leg = |beat: f32| LegPose {
        out: 9.0 + 5.0 * beat,
        forward: 14.0 + 16.0 * beat,
        twist: 15.0,
        knee: 24.0 + 24.0 * beat,
        ankle: 8.0,
    };
    Pose {
        tilt: 5.0 * beat,
        side: -10.0 * beat,
        twist: 14.0 * swing(phase + 0.25),
        cock: 8.0 * beat,
        arms: [arm(beat, m[0]), arm(-beat, m[1])],
        legs: [leg(beat), leg(-beat)],
        ..Pose::default()
    }
}

fn stretching(phase: f32, m: [f32; 3]) -> Pose {
    let sway = (14.0 + 10.0 * m[0]) * (0.6 + 0.4 * swing(phase));
    let mut pose = standing(phase, m);
    pose.side = sway;
    pose.tilt = 3.0;
    pose.arms[0] = ArmPose { out: 165.0, twist: 40.0, elbow: 25.0 + 20.0 * m[1], ..ArmPose::default() };
    pose.arms[1] =
        ArmPose { out: 40.0, forward: -8.0, twist: -70.0, elbow: 90.0, curl: 0.5, ..ArmPose::default() };
    pose.legs = [LegPose { out: 14.0, twist: 12.0, ..LegPose::default() }; 2];
    pose
}

fn bowing(phase: f32, m: [f32; 3]) -> Pose {
    let depth = 20.0 + 25.0 * m[0] + 6.0 * swing(phase);
    let mut pose = standing(phase, m);
    pose.lean = 0.6 * depth;
    pose.bend = 0.7 * depth;
    pose.nod = 0.2 * depth;
    for arm in &mut pose.arms {
        arm.forward = 0.9 * depth;
    }
    for leg in &mut pose.legs {
        leg.forward = 0.6 * depth;
    }
    pose
}

fn kicking(phase: f32, m: [f32; 3]) -> Pose {
    let reach = 0.5 + 0.5 * swing(phase);
    let arm = |forward: f32| ArmPose {
        out: 35.0,
        forward,
        twist: 10.0,
        elbow: 40.0,
        curl: 0.6,
        ..ArmPose::default()
    };
    Pose {
        lean: -8.0 * reach,
        arms: [arm(-25.0), arm(35.0)],
        legs: [
            LegPose {
                forward: 15.0 + (40.0 + 30.0 * m[0]) * reach,
                knee: 50.0 - 40.0 * reach,
                ..LegPose::default()
            },
            LegPose { forward: 8.0 * reach, knee: 8.0, twist: 10.0, ..LegPose::default() },
        ],
        ..Pose::default()
    }
}

fn clapping(phase: f32, m: [f32; 3]) -> Pose {
    let mut pose = standing(phase * 2.0, m);
    let arm = ArmPose {
        out: 16.0 + 6.0 * swing(phase),
        forward: 38.0 + 20.0 * m[0],
        twist: -38.0 + 10.0 * swing(phase),
        elbow: 80.0,
        ..ArmPose::default()
    };
    pose.arms = [arm; 2];
    pose
}

/// On the side, one leg drawn up.
fn lying(phase: f32, m: [f32; 3]) -> Pose {
    let breath = swing(phase);
    Pose {
        tilt: 84.0,
        side: -10.0,
        cock: -16.0,
        arms: [
            ArmPose {
                out: 14.0,
                forward: 28.0,
                twist: -30.0,
                elbow: 50.0 + 2.0 * breath,
                ..ArmPose::default()
            },
            ArmPose { out: 100.0 + 40.0 * m[0], forward: 15.0, elbow: 40.0, ..ArmPose::default() },
        ],
        legs: [
            LegPose { out: 3.0, forward: 40.0 * m[1] + 10.0, knee: 60.0 * m[1] + 10.0, ..LegPose::default() },
            LegPose { out: 1.0, forward: 5.0 + 15.0 * m[2], knee: 15.0 + 20.0 * m[2], ..LegPose::default() },
        ],
        ..Pose::default()
    }
}

fn carrying(phase: f32, m: [f32; 3]) -> Pose {
    let mut pose = standing(phase, m);
    let arm = ArmPose {
        out: 6.0 + 8.0 * m[0],
        forward: 14.0 + 20.0 * m[1],
        twist: -16.0,
        elbow: 82.0 + 2.0 * swing(phase),
        pronate: -60.0,
        curl: 0.4,
        ..ArmPose::default()
    };
    pose.arms = [arm; 2];
    pose.bend = -4.0;
    pose
}

fn sitting(phase: f32, m: [f32; 3]) -> Pose {
    let breath = swing(phase);
    let leg = |m: f32| LegPose {
        out: 4.0 + 14.0 * m,
        forward: 84.0,
        twist: 4.0,
        knee: 78.0 + 16.0 * m,
        ankle: 0.0,
    };
    let arm = |m: f32| ArmPose {
        out: 10.0,
        forward: 22.0 + 16.0 * m,
        twist: -14.0,
        elbow: 52.0 - 10.0 * m + 2.0 * breath,
        pronate: 60.0,
        curl: 0.3,
        ..ArmPose::default()
    };
    Pose {
        bend: 4.0 + 8.0 * m[2] + breath,
        arms: [arm(m[0]), arm(m[1])],
        legs: [leg(m[0]), leg(m[1])],
        ..Pose::default()
    }
}

fn sitting_crossed(phase: f32, m: [f32; 3]) -> Pose {
    let mut pose = sitting(phase, m);
    pose.legs[0] = LegPose { out: -12.0, forward: 98.0, twist: 8.0, knee: 74.0 - 14.0 * m[0], ankle: -12.0 };
    pose.legs[1] = LegPose { out: 2.0, forward: 84.0, knee: 86.0, ..LegPose::default() };
    pose.lean = -6.0;
    pose
}

fn lunging(phase: f32, m: [f32; 3]) -> Pose {
    let sway = swing(phase);
    let arm = |forward: f32| ArmPose {
        out: 25.0,
        forward,
        elbow: 20.0 + 40.0 * m[1],
        curl: 0.6,
        ..ArmPose::default()
    };
    Pose {
        bend: 4.0,
        arms: [arm(-30.0), arm(50.0 + 30.0 * m[2])],
        legs: [
            LegPose {
                forward: 62.0 + 12.0 * m[0] + 2.0 * sway,
                knee: 72.0 + 10.0 * m[0],
                ..LegPose::default()
            },
            LegPose { forward: -28.0 - 8.0 * m[0], knee: 18.0, ankle: 20.0, ..LegPose::default() },
        ],
        ..Pose::default()
    }
}

fn star(phase: f32, m: [f32; 3]) -> Pose {
    let open = 0.75 + 0.25 * swing(phase);
    let arm = ArmPose { out: 60.0 + 75.0 * open, twist: 60.0, elbow: 12.0 * m[0], ..ArmPose::default() };
    let leg =
        LegPose { out: 34.0 * open, twist: 20.0, knee: 10.0 * m[1], ankle: -20.0, ..LegPose::default() };
    Pose { arms: [arm; 2], legs: [leg; 2], lift: 0.12 * open, ..Pose::default() }
}

fn kneeling(phase: f32, m: [f32; 3]) -> Pose {
    let mut pose = standing(phase, m);
    pose.legs[0] = LegPose { out: 4.0, forward: 88.0, knee: 92.0, ..LegPose::default() };
    pose.legs[1] = LegPose { out: 2.0, forward: -6.0, knee: 92.0, ankle: -40.0, ..LegPose::default() };
    pose.arms[0] = ArmPose { out: 12.0, forward: 42.0, elbow: 40.0, pronate: 60.0, ..ArmPose::default() };
    pose
}

fn balancing(phase: f32, m: [f32; 3]) -> Pose {
    let sway = 5.0 * swing(phase);
    let arm = |sway: f32| ArmPose {
        out: 78.0 + 20.0 * m[0] + sway,
        elbow: 14.0,
        pronate: 60.0,
        ..ArmPose::default()
    };
    Pose {
        tilt: sway * 0.4,
        arms: [arm(sway), arm(-sway)],
        legs: [
            LegPose { out: 24.0 + 20.0 * m[1], forward: 50.0 * m[2], knee: 70.0, twist: 30.0, ankle: -20.0 },
            LegPose { out: -2.0, ..LegPose::default() },
        ],
        ..Pose::default()
    }
}

/// A hand held over the eyes.
fn looking_out(phase: f32, m: [f32; 3]) -> Pose {
    let mut pose = one_leg(phase, m);
    pose.arms[1] = ArmPose {
        out: 62.0,
        forward: 45.0,
        twist: 30.0,
        elbow: 128.0 + 2.0 * swing(phase),
        pronate: 70.0,
        ..ArmPose::default()
    };
    pose.turn = 14.0 * swing(phase);
    pose
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_loop_closes() {
        for family in FAMILIES {
            let (a, b) = ((family.at)(0.0, [0.3, 0.5, 0.8]), (family.at)(1.0, [0.3, 0.5, 0.8]));
            let far = |x: f32, y: f32| (x - y).abs() > 1e-2;
            for i in 0..2 {
                assert!(!far(a.arms[i].out, b.arms[i].out), "{}", family.name);
                assert!(!far(a.arms[i].elbow, b.arms[i].elbow), "{}", family.name);
                assert!(!far(a.legs[i].forward, b.legs[i].forward), "{}", family.name);
                assert!(!far(a.legs[i].knee, b.legs[i].knee), "{}", family.name);
            }
            assert!(!far(a.tilt + a.side + a.lean, b.tilt + b.side + b.lean), "{}", family.name);
        }
    }

    #[test]
    fn some_are_held_out() {
        assert!(FAMILIES.iter().filter(|family| family.held_out).count() >= 4);
        assert!(FAMILIES.iter().filter(|family| !family.held_out).count() >= 20);
    }
}
