//! Training of the demo model: a small network of the second family that learns the parts of drawn figures.

pub mod gradient;
pub mod loss;
pub mod parameters;
pub mod sample;
