//! Labels one image.
fn main() {}
