//! Which poses, garments, patterns and backgrounds may be drawn: those for training, those held out of it, or all.

use crate::dice::Dice;

/// Which kinds of pose, garment and background are drawn from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kinds {
    /// Those that a network may be trained on.
    #[default]
    Training,
    /// Those that it never sees in training.
    HeldOut,
    /// All of them.
    All,
}

/// Picks from tables whose rows may be held out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Draw(pub Kinds);

impl Draw {
    pub fn only_held_out(self) -> bool {
        self.0 == Kinds::HeldOut
    }

    /// A row that is allowed, the heavier the likelier.
    pub fn pick<'a, T>(
        self,
        dice: &mut Dice,
        rows: &'a [T],
        held_out: impl Fn(&T) -> bool,
        weight: impl Fn(&T) -> f32,
    ) -> &'a T {
        let allowed = |row: &T| match self.0 {
            Kinds::Training => !held_out(row),
            Kinds::HeldOut => held_out(row),
            Kinds::All => true,
        };
        let total: f32 = rows.iter().filter(|row| allowed(row)).map(&weight).sum();
        let mut left = dice.range(0.0, total);
        let mut last = &rows[0];
        for row in rows.iter().filter(|row| allowed(row)) {
            last = row;
            left -= weight(row);
            if left < 0.0 {
                break;
            }
        }
        last
    }
}
