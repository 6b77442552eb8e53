//! What somebody wears: the kinds of garment and how an outfit is put together from them. `tailor.rs` gives it shape.

use crate::dice::Dice;
use crate::kinds::Draw;
use crate::paint::{Colour, PATTERNS, Paint, Pattern, against, cloth, rgb, times};

/// The shape of what covers the trunk and arms. Heights are `v` of the spine, sleeves `v` of the arm (0 the shoulder,
/// 1 the elbow, 2 the wrist); 0 for no sleeve.
pub(crate) struct TopKind {
    pub name: &'static str,
    pub held_out: bool,
    pub weight: f32,
    pub hem: (f32, f32),
    pub sleeve: (f32, f32),
    /// How far from the skin, in body heights.
    pub loose: (f32, f32),
    pub neck: Neck,
    /// How far below the waist a skirt goes that is sewn to it, in shares of the leg; 0 for none.
    pub skirt: (f32, f32),
    pub marks: &'static [Mark],
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Neck {
    Round,
    Scoop,
    Pointed,
    Collar,
    Roll,
    Hood,
    Straps,
    Bare,
}

/// What tells the front of a garment from its back.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Mark {
    Nothing,
    Buttons,
    Pocket,
    Star,
    Disc,
    Panel,
    Zip,
    Pouch,
}

const fn top(name: &'static str, weight: f32, hem: (f32, f32), sleeve: (f32, f32), neck: Neck) -> TopKind {
    TopKind {
        name,
        held_out: false,
        weight,
        hem,
        sleeve,
        loose: (0.009, 0.02),
        neck,
        skirt: (0.0, 0.0),
        marks: &[Mark::Nothing],
    }
}

const PRINTS: &[Mark] = &[Mark::Nothing, Mark::Star, Mark::Disc, Mark::Panel, Mark::Pocket];

pub(crate) const TOPS: &[TopKind] = &[
    TopKind { marks: PRINTS, ..top("t-shirt", 3.0, (0.06, 0.2), (0.45, 0.85), Neck::Round) },
    TopKind { marks: &[Mark::Buttons], ..top("shirt", 1.8, (0.06, 0.22), (1.5, 1.95), Neck::Collar) },
    TopKind {
        marks: &[Mark::Buttons, Mark::Pocket],
        ..top("polo", 1.0, (0.08, 0.2), (0.45, 0.7), Neck::Collar)
    },
    TopKind { marks: PRINTS, ..top("sweater", 1.8, (0.06, 0.16), (1.75, 1.96), Neck::Round) },
    top("roll-neck", 0.7, (0.06, 0.16), (1.8, 1.96), Neck::Roll),
    TopKind {
        loose: (0.014, 0.026),
        marks: &[Mark::Pouch, Mark::Zip],
        ..top("hoodie", 1.4, (0.04, 0.14), (1.75, 1.96), Neck::Hood)
    },
    TopKind { marks: PRINTS, ..top("tank top", 1.6, (0.08, 0.22), (0.0, 0.0), Neck::Straps) },
    TopKind { marks: PRINTS, ..top("crop top", 1.2, (0.48, 0.56), (0.0, 0.6), Neck::Scoop) },
    top("bikini", 0.7, (0.62, 0.66), (0.0, 0.0), Neck::Straps),
    TopKind {
        marks: &[Mark::Nothing, Mark::Buttons],
        skirt: (0.3, 0.75),
        ..top("dress", 1.8, (0.3, 0.34), (0.0, 0.7), Neck::Scoop)
    },
    TopKind { skirt: (0.25, 0.55), ..top("sundress", 0.9, (0.3, 0.34), (0.0, 0.0), Neck::Straps) },
    top("v-neck", 1.0, (0.06, 0.2), (0.5, 1.95), Neck::Pointed),
    top("bare chest", 1.0, (0.0, 0.0), (0.0, 0.0), Neck::Bare),
    TopKind {
        held_out: true,
        marks: &[Mark::Zip],
        loose: (0.02, 0.03),
        ..top("waistcoat", 1.0, (0.06, 0.12), (0.0, 0.0), Neck::Pointed)
    },
    TopKind {
        held_out: true,
        skirt: (0.85, 1.0),
        ..top("gown", 1.0, (0.3, 0.34), (1.5, 1.9), Neck::Pointed)
    },
    TopKind {
        held_out: true,
        loose: (0.022, 0.034),
        marks: &[Mark::Panel],
        ..top("jersey", 1.0, (0.02, 0.06), (0.9, 1.2), Neck::Roll)
    },
];

/// The shape of what covers the legs. `long` is where it ends on the leg (1 the knee, 2 the ankle).
pub(crate) struct BottomKind {
    pub name: &'static str,
    pub held_out: bool,
    pub weight: f32,
    pub long: (f32, f32),
    pub flare: (f32, f32),
    pub skirt: bool,
}

const fn bottom(name: &'static str, weight: f32, long: (f32, f32), flare: (f32, f32)) -> BottomKind {
    BottomKind { name, held_out: false, weight, long, flare, skirt: false }
}

pub(crate) const BOTTOMS: &[BottomKind] = &[
    bottom("trousers", 3.5, (1.86, 1.97), (0.004, 0.016)),
    bottom("leggings", 0.8, (1.7, 1.9), (0.001, 0.002)),
    bottom("shorts", 2.2, (0.5, 0.9), (0.006, 0.022)),
    bottom("hot pants", 0.7, (0.18, 0.3), (0.002, 0.006)),
    bottom("three-quarter trousers", 0.9, (1.2, 1.5), (0.006, 0.016)),
    BottomKind { skirt: true, ..bottom("skirt", 1.6, (0.55, 1.0), (0.02, 0.06)) },
    BottomKind { skirt: true, ..bottom("long skirt", 0.6, (1.3, 1.8), (0.02, 0.05)) },
    bottom("briefs", 0.7, (0.1, 0.12), (0.001, 0.003)),
    BottomKind { held_out: true, ..bottom("flared trousers", 1.0, (1.9, 1.97), (0.03, 0.045)) },
    BottomKind { held_out: true, skirt: true, ..bottom("pencil skirt", 1.0, (0.95, 1.15), (0.001, 0.006)) },
];

/// What is on a pair of feet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Footwear {
    Bare,
    /// Socks without shoes.
    Socks,
    Shoes,
    /// Shoes with a shaft.
    Boots,
}

/// A jacket worn open over the top.
#[derive(Clone, Debug)]
pub(crate) struct Jacket {
    pub paint: Paint,
    pub sleeve: f32,
    pub hem: f32,
    /// Half of how far it is open in front, in turns.
    pub gap: f32,
    /// How far a coat reaches down the legs, in shares; 0 for a jacket.
    pub tail: f32,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Hat {
    Cap,
    Beanie,
    Brim,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Bag {
    Backpack,
    Shoulder,
}

/// Everything somebody wears.
#[derive(Clone)]
pub(crate) struct Outfit {
    pub top: &'static TopKind,
    pub top_paint: Paint,
    pub top_hem: f32,
    pub sleeve: f32,
    pub loose: f32,
    pub skirt: f32,
    pub mark: Mark,
    pub mark_colour: Colour,
    pub jacket: Option<Jacket>,
    pub bottom: &'static BottomKind,
    pub bottom_paint: Paint,
    pub bottom_long: f32,
    pub flare: f32,
    pub footwear: Footwear,
    pub shoe: Colour,
    pub sole: Colour,
    pub shaft: f32,
    pub sock: Paint,
    /// Where the sock ends on the leg; 2 for none to be seen.
    pub sock_top: f32,
    pub hat: Option<(Hat, Paint)>,
    pub bag: Option<(Bag, Paint)>,
    pub scarf: Option<Paint>,
    pub belt: Option<Paint>,
    pub watch: Option<(usize, Colour)>,
    pub necklace: Option<Colour>,
}

fn sample_cloth(dice: &mut Dice, draw: &Draw) -> Paint {
    let &(pattern, ..) = draw.pick(dice, PATTERNS, |pattern| pattern.2, |pattern| pattern.1);
    let mut base = cloth(dice);
    if pattern == Pattern::Denim {
        base = times(
            *dice.pick(&[rgb(0x3F5F8A), rgb(0x27406B), rgb(0x7DA0C4), rgb(0x2B2E3A)]),
            dice.range(0.9, 1.15),
        );
    }
    let second = against(base, dice);
    let size = dice.range(0.55, 1.5);
    Paint {
        pattern,
        base,
        second,
        third: against(second, dice),
        scale: (size, size),
        gloss: if dice.chance(0.1) { 0.3 } else { 0.03 },
        folds: dice.range(0.1, 0.5),
        seed: dice.seed(),
    }
}

fn between(dice: &mut Dice, (low, high): (f32, f32)) -> f32 {
    dice.range(low, high)
}

impl Outfit {
    pub fn sample(dice: &mut Dice, draw: &Draw) -> Outfit {
        let top = draw.pick(dice, TOPS, |kind| kind.held_out, |kind| kind.weight);
        let swims = matches!(top.name, "bikini" | "bare chest");
        let bottom = loop {
            let kind = draw.pick(dice, BOTTOMS, |kind| kind.held_out, |kind| kind.weight);
            // Briefs are for swimming; elsewhere trousers are worn.
            if kind.name != "briefs" || swims {
                break kind;
            }
        };
        let top_paint = sample_cloth(dice, draw);
        let mut bottom_paint = sample_cloth(dice, draw);
        if dice.chance(0.5) && !draw.only_held_out() {
            bottom_paint.pattern = if dice.chance(0.5) { Pattern::Denim } else { Pattern::Plain };
        }
        let dressed = top.skirt.1 > 0.0;
        let jacket = if !swims && !dressed && dice.chance(0.2) {
            Some(Jacket {
                paint: Paint { folds: 0.3, ..sample_cloth(dice, draw) },
                sleeve: dice.range(1.8, 1.97),
                hem: dice.range(0.04, 0.2),
                gap: dice.range(0.03, 0.11),
                tail: if dice.chance(0.3) { dice.range(0.35, 0.6) } else { 0.0 },
            })
        } else {
            None
        };
        let mut footwear = *dice.pick(&[
            Footwear::Shoes,
            Footwear::Shoes,
            Footwear::Shoes,
            Footwear::Shoes,
            Footwear::Boots,
            Footwear::Socks,
            Footwear::Bare,
            Footwear::Bare,
        ]);
        if swims && dice.chance(0.6) {
            footwear = Footwear::Bare;
        }
        let sock_top = match footwear {
            Footwear::Bare => 2.0,
            Footwear::Socks => dice.range(1.15, 1.85),
            _ if dice.chance(0.55) => dice.range(1.15, 1.85),
            _ => 2.0,
        };
        let plain = |dice: &mut Dice| Paint::glossy(cloth(dice), 0.15);
        let hat = if dice.chance(0.25) {
            Some((*dice.pick(&[Hat::Cap, Hat::Cap, Hat::Beanie, Hat::Brim]), plain(dice)))
        } else {
            None
        };
        let bag = if dice.chance(0.22) {
            Some((*dice.pick(&[Bag::Backpack, Bag::Shoulder]), plain(dice)))
        } else {
            None
        };
        Outfit {
            top,
            top_hem: between(dice, top.hem),
            sleeve: between(dice, top.sleeve),
            loose: between(dice, top.loose),
            skirt: between(dice, top.skirt),
            mark: *dice.pick(top.marks),
            mark_colour: against(top_paint.base, dice),
            top_paint,
            jacket,
            bottom,
            bottom_long: between(dice, bottom.long),
            flare: between(dice, bottom.flare),
            bottom_paint,
            footwear,
            shoe: cloth(dice),
            sole: if dice.chance(0.6) { [0.94, 0.93, 0.9] } else { [0.15, 0.13, 0.13] },
            shaft: dice.range(1.2, 1.75),
            sock: Paint {
                pattern: *dice.pick(&[Pattern::Plain, Pattern::Plain, Pattern::Stripes]),
                ..sample_cloth(dice, draw)
            },
            sock_top,
            hat,
            bag,
            scarf: if !swims && dice.chance(0.1) { Some(sample_cloth(dice, draw)) } else { None },
            belt: if dice.chance(0.3) { Some(Paint::glossy(times(cloth(dice), 0.7), 0.3)) } else { None },
            watch: if dice.chance(0.25) { Some((dice.below(2), cloth(dice))) } else { None },
            necklace: if dice.chance(0.15) { Some([0.95, 0.8, 0.35]) } else { None },
        }
    }
}
