//! The `sapiens` command.
fn main() {}
