//! The checkpoint reader from outside: every format, every wrong file, and files made to do harm.
// Builders of test files fail loudly; clippy takes only functions marked #[test] for tests.
#![allow(clippy::unwrap_used)]

mod formats;
mod hostile;
mod mismatch;
mod support;
mod wrong_files;
