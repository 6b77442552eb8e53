//! Drawn people with exact labels: the 29 classes of the second family, from a seed.
//!
//! A [`Scene`] is sampled from a seed and rendered at any size to a [`Picture`]: colours and the class of each pixel.
//! A [`Clip`] is a scene for every moment. The same seed, options and size give the same bytes everywhere.
//!
//! Bodies are three-dimensional: a pose (`families`, `pose`) bends a skeleton (`skeleton`), tubes and blobs (`mesh`)
//! around it make skin (`body`, `face`), hair (`hair`), clothes (`garments`, `tailor`) and what else is worn
//! (`apparel`), and a depth buffer (`raster`) settles who hides whom.
//!
//! ```
//! use sapiens_figures::{Scene, SceneOptions};
//!
//! let picture = Scene::sample(7, &SceneOptions::default()).render(192, 256);
//! assert_eq!(picture.labels.len(), 192 * 256);
//! ```

pub mod class;

mod apparel;
mod background;
mod body;
mod clip;
mod degrade;
mod dice;
mod face;
mod families;
mod figure;
mod garments;
mod hair;
mod kinds;
mod light;
mod maths;
mod mesh;
mod paint;
mod person;
mod pose;
mod raster;
mod scene;
mod skeleton;
mod surface;
mod tailor;

pub use clip::Clip;
pub use kinds::Kinds;
pub use scene::{Picture, Scene, SceneOptions};

/// How many classes there are, background included.
pub const CLASSES: usize = 29;
