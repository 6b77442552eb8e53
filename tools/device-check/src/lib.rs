//! What `device-check` times, and how its figures are shown. The program beside this checks and times it.

pub mod steps;
pub mod timeline;
