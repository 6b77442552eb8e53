//! The `sapiens` command. What it does is in the library; here are arguments, files and messages.

mod bench;
mod completions;
mod fetch;
mod json;
mod model_args;
mod models;
mod picture;
mod segment;
mod verify;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Labels every pixel of people in images with body parts, with Meta's Sapiens and Sapiens2 models.
///
/// Start with `sapiens models`, fetch weights with `sapiens fetch`, and label pictures with `sapiens segment`. Video is
/// the GStreamer element's: `gst-inspect-1.0 sapiensseg`.
#[derive(Parser)]
#[command(
    name = "sapiens",
    version,
    propagate_version = true,
    arg_required_else_help = true,
    after_help = "Exit codes: 0 all done, 1 something failed and was reported, 2 a mistake in the arguments."
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,

    /// Say what is found, chosen and run; twice for more. `RUST_LOG` overrides it.
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    verbose: u8,
}

#[derive(Subcommand)]
enum Command {
    /// List the published models, their licences, and where their weights are.
    Models(models::Arguments),
    /// Fetch published weights from the hub; what was interrupted continues.
    Fetch(fetch::Arguments),
    /// Check a model's weights: every tensor, every value, the published hash.
    Verify(verify::Arguments),
    /// Label images: a label PNG and an overlay PNG for each.
    Segment(Box<segment::Arguments>),
    /// Measure time per frame, memory and load time of a model on this machine.
    Bench(Box<bench::Arguments>),
    /// Print a script that completes arguments in your shell.
    Completions(completions::Arguments),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let level = ["warn", "info", "debug"][usize::from(arguments.verbose.min(2))];
    env_logger::Builder::from_env(env_logger::Env::default().default_filter_or(level))
        .format_timestamp(None)
        .format_target(false)
        .init();
    let result = match arguments.command {
        Command::Models(arguments) => models::run(&arguments),
        Command::Fetch(arguments) => fetch::run(&arguments),
        Command::Verify(arguments) => verify::run(&arguments),
        Command::Segment(arguments) => segment::run(&arguments),
        Command::Bench(arguments) => bench::run(&arguments),
        Command::Completions(arguments) => completions::run(&arguments),
    };
    result.unwrap_or_else(|error| {
        complain(&error);
        ExitCode::FAILURE
    })
}

/// An error the way the command shows it.
fn complain(error: &dyn std::fmt::Display) {
    anstream::eprintln!("{0}error:{0:#} {error}", clap::builder::styling::AnsiColor::Red.on_default().bold());
}
