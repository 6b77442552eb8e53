//! How programs speak: errors and warnings on stderr, coloured on a terminal, and the log.

use std::fmt::Display;

use clap::builder::styling::AnsiColor;

/// Says what went wrong.
pub fn complain(error: &dyn Display) {
    anstream::eprintln!("{0}error:{0:#} {error}", AnsiColor::Red.on_default().bold());
}

/// Says what isn't as one might think.
pub fn warn(what: &dyn Display) {
    anstream::eprintln!("{0}warning:{0:#} {what}", AnsiColor::Yellow.on_default().bold());
}

/// Logs on stderr; `verbose` is how often `-v` was given. `RUST_LOG` overrides it.
pub fn start_log(verbose: u8) {
    let level = ["warn", "info", "debug"][usize::from(verbose.min(2))];
    env_logger::Builder::from_env(env_logger::Env::default().default_filter_or(level))
        .format_timestamp(None)
        .format_target(false)
        .init();
}
