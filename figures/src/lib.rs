//! Drawn people with exact labels: the 29 classes of the second family, from a seed.
