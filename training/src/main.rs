//! Trains the demo model on drawn figures.

fn main() {}
