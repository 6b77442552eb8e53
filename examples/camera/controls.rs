//! Keys and what they do: which classes are shown, and how strongly. Knows no GStreamer.

use sapiens_model::ModelCard;

/// Opacity by which `+` and `-` change it.
const STEP: f64 = 0.1;

/// A choice of classes under a name.
#[derive(Debug)]
struct Group {
    name: &'static str,
    /// Class numbers, as the element takes them.
    classes: String,
}

/// What is shown now.
#[derive(Debug)]
pub(crate) struct Controls {
    groups: Vec<Group>,
    group: usize,
    overlay: bool,
    opacity: f64,
}

/// What a key asks for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Something is shown otherwise.
    Changed,
    Quit,
    /// It's no key of ours.
    Nothing,
}

/// Whether a class belongs to a group, by its name.
type Belongs = fn(&str) -> bool;

const GROUPS: [(&str, Belongs); 9] = [
    ("all", |_| true),
    ("skin", |name| {
        ["Face_Neck", "Torso"].contains(&name)
            || ["_Hand", "_Foot", "_Arm", "_Leg"].iter().any(|part| name.ends_with(part))
    }),
    ("clothes", |name| ["Clothing", "Apparel", "Shoe", "Sock"].iter().any(|part| name.contains(part))),
    ("hair", |name| name == "Hair"),
    ("face", |name| {
        ["Face_Neck", "Eyeglass", "Tongue"].contains(&name)
            || ["_Lip", "_Teeth"].iter().any(|part| name.ends_with(part))
    }),
    ("hands", |name| name.ends_with("_Hand")),
    ("left", |name| name.starts_with("Left_")),
    ("right", |name| name.starts_with("Right_")),
    ("arms and legs", |name| ["_Arm", "_Leg"].iter().any(|part| name.ends_with(part))),
];

impl Controls {
    /// Of a model; groups that it has no classes of are left out.
    pub(crate) fn new(card: &ModelCard, opacity: f64) -> Self {
        let group = |(name, belongs): (&'static str, Belongs)| {
            let classes = card.classes.iter().enumerate().skip(1);
            let numbers =
                classes.filter(|(_, class)| belongs(&class.name)).map(|(number, _)| number.to_string());
            let classes = numbers.collect::<Vec<_>>().join(",");
            (!classes.is_empty()).then_some(Group { name, classes })
        };
        Self { groups: GROUPS.into_iter().filter_map(group).collect(), group: 0, overlay: true, opacity }
    }

    /// Does what a key says.
    pub(crate) fn press(&mut self, key: char) -> Action {
        match key.to_ascii_lowercase() {
            'q' => return Action::Quit,
            'o' => self.overlay = !self.overlay,
            // Without shift, too.
            '+' | '=' => self.opacity = (self.opacity + STEP).min(1.0),
            '-' | '_' => self.opacity = (self.opacity - STEP).max(0.0),
            'c' => self.group = (self.group + 1) % self.groups.len().max(1),
            digit @ '1'..='9' => {
                let group = digit as usize - '1' as usize;
                if group >= self.groups.len() {
                    return Action::Nothing;
                }
                self.group = group;
            }
            _ => return Action::Nothing,
        }
        Action::Changed
    }

    /// The element's `classes`.
    pub(crate) fn classes(&self) -> &str {
        self.groups.get(self.group).map_or("", |group| &group.classes)
    }

    /// The element's `opacity`.
    pub(crate) fn opacity(&self) -> f64 {
        if self.overlay { self.opacity } else { 0.0 }
    }

    /// In words.
    pub(crate) fn describe(&self) -> String {
        let name = self.groups.get(self.group).map_or("no", |group| group.name);
        if self.overlay {
            format!("{name} classes at {:.0} %", self.opacity * 100.0)
        } else {
            "overlay off".to_owned()
        }
    }

    /// What keys there are.
    pub(crate) fn help(&self) -> String {
        let groups = self.groups.iter().enumerate().map(|(at, group)| format!("{} {}", at + 1, group.name));
        format!("o overlay, + - opacity, c next classes, q quit; {}", groups.collect::<Vec<_>>().join(", "))
    }
}

#[cfg(test)]
mod tests {
    use sapiens_model::Variant;

    use super::*;

    #[test]
    fn keys_choose_classes_and_opacity() {
        let card = ModelCard::of(Variant::Sapiens2_04b);
        let mut controls = Controls::new(&card, 0.5);
        assert_eq!(controls.classes().split(',').count(), 28);
        assert_eq!(controls.press('4'), Action::Changed);
        assert_eq!(controls.classes(), card.class_index("Hair").unwrap().to_string());
        controls.press('1');
        assert!((0..controls.groups.len()).all(|_| controls.press('c') == Action::Changed));
        assert_eq!(controls.describe(), "all classes at 50 %");
        controls.press('+');
        assert_eq!(controls.describe(), "all classes at 60 %");
        controls.press('o');
        assert_eq!((controls.opacity(), controls.describe().as_str()), (0.0, "overlay off"));
        assert_eq!((controls.press('q'), controls.press('x')), (Action::Quit, Action::Nothing));
        assert!((0..20).all(|_| controls.press('-') == Action::Changed));
        controls.press('O');
        assert_eq!(controls.opacity(), 0.0);
        // Every group of the published models has classes.
        assert_eq!(controls.groups.len(), GROUPS.len());
        assert!(Controls::new(&ModelCard::of(Variant::Sapiens03b), 0.5).groups.len() == GROUPS.len());
    }
}
