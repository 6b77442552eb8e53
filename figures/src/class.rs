//! The 29 classes: their numbers and names, as the authors of the second family number them.
//!
//! Left and right are the person's own: in a view from the front the left hand is at the picture's right.

macro_rules! classes {
    ($($name:ident = $number:literal, $text:literal;)*) => {
        $(#[doc = concat!("`", $text, "`.")] pub const $name: u8 = $number;)*

        /// The authors' names, in order of number.
        pub const NAMES: [&str; super::CLASSES] = [$($text),*];
    };
}

classes! {
    BACKGROUND = 0, "Background";
    APPAREL = 1, "Apparel";
    EYEGLASS = 2, "Eyeglass";
    FACE_NECK = 3, "Face_Neck";
    HAIR = 4, "Hair";
    LEFT_FOOT = 5, "Left_Foot";
    LEFT_HAND = 6, "Left_Hand";
    LEFT_LOWER_ARM = 7, "Left_Lower_Arm";
    LEFT_LOWER_LEG = 8, "Left_Lower_Leg";
    LEFT_SHOE = 9, "Left_Shoe";
    LEFT_SOCK = 10, "Left_Sock";
    LEFT_UPPER_ARM = 11, "Left_Upper_Arm";
    LEFT_UPPER_LEG = 12, "Left_Upper_Leg";
    LOWER_CLOTHING = 13, "Lower_Clothing";
    RIGHT_FOOT = 14, "Right_Foot";
    RIGHT_HAND = 15, "Right_Hand";
    RIGHT_LOWER_ARM = 16, "Right_Lower_Arm";
    RIGHT_LOWER_LEG = 17, "Right_Lower_Leg";
    RIGHT_SHOE = 18, "Right_Shoe";
    RIGHT_SOCK = 19, "Right_Sock";
    RIGHT_UPPER_ARM = 20, "Right_Upper_Arm";
    RIGHT_UPPER_LEG = 21, "Right_Upper_Leg";
    TORSO = 22, "Torso";
    UPPER_CLOTHING = 23, "Upper_Clothing";
    LOWER_LIP = 24, "Lower_Lip";
    UPPER_LIP = 25, "Upper_Lip";
    LOWER_TEETH = 26, "Lower_Teeth";
    UPPER_TEETH = 27, "Upper_Teeth";
    TONGUE = 28, "Tongue";
}

/// `[left, right]` of the classes that come in pairs.
pub(crate) const FOOT: [u8; 2] = [LEFT_FOOT, RIGHT_FOOT];
pub(crate) const HAND: [u8; 2] = [LEFT_HAND, RIGHT_HAND];
pub(crate) const LOWER_ARM: [u8; 2] = [LEFT_LOWER_ARM, RIGHT_LOWER_ARM];
pub(crate) const LOWER_LEG: [u8; 2] = [LEFT_LOWER_LEG, RIGHT_LOWER_LEG];
pub(crate) const SHOE: [u8; 2] = [LEFT_SHOE, RIGHT_SHOE];
pub(crate) const SOCK: [u8; 2] = [LEFT_SOCK, RIGHT_SOCK];
pub(crate) const UPPER_ARM: [u8; 2] = [LEFT_UPPER_ARM, RIGHT_UPPER_ARM];
pub(crate) const UPPER_LEG: [u8; 2] = [LEFT_UPPER_LEG, RIGHT_UPPER_LEG];
