//! Training of the demo model: a small network of the second family that learns the parts of drawn figures.
//!
//! [`data`] draws samples, [`gradient`] takes a batch through the network and its [`loss`], [`optimizer`] makes the
//! next parameters, [`trainer`] repeats that, [`validation`] says how good they are, and [`export`]
//! writes them as the product reads them. The network itself is `sapiens-portable`'s, which the product has as `backend=portable`.

pub mod checkpoint;
pub mod data;
pub mod export;
pub mod gradient;
pub mod loss;
pub mod optimizer;
pub mod parameters;
pub mod recipe;
pub mod sample;
pub mod schedule;
pub mod trainer;
pub mod validation;
