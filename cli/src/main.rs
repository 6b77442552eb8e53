//! The `sapiens` command. What it does is in the library; here are arguments, files and messages.

mod any_model;
mod bench;
mod completions;
mod fetch;
mod json;
mod models;
mod segment;
mod verify;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use sapiens_cli::{complain, start_log};

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
    start_log(arguments.verbose);
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
