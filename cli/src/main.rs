//! The `sapiens` command. What it does is in the library; here are arguments, files and messages.

mod model_args;
mod picture;
mod segment;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Labels every pixel of people in images with body parts, with Meta's Sapiens and Sapiens2 models.
#[derive(Parser)]
#[command(name = "sapiens", version, propagate_version = true, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,

    /// Say what is found, chosen and run; twice for more. `RUST_LOG` overrides it.
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    verbose: u8,
}

#[derive(Subcommand)]
enum Command {
    /// Label images: a label PNG and an overlay PNG for each.
    Segment(segment::Arguments),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let level = ["warn", "info", "debug"][usize::from(arguments.verbose.min(2))];
    env_logger::Builder::from_env(env_logger::Env::default().default_filter_or(level))
        .format_timestamp(None)
        .format_target(false)
        .init();
    let result = match arguments.command {
        Command::Segment(arguments) => segment::run(&arguments),
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
