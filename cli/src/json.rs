//! Results for programs.

use serde::Serialize;

/// Prints a value as JSON on standard output.
pub(crate) fn print(value: &impl Serialize) {
    let text =
        serde_json::to_string_pretty(value).unwrap_or_else(|error| unreachable!("plain data: {error}"));
    anstream::println!("{text}");
}
