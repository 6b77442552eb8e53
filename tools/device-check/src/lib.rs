//! What `device-check` times. The program beside this checks and times it.

pub mod steps;
