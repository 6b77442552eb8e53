//! Checks and times the CUDA kernels on a card. Needs the driver and nothing else.
#![allow(clippy::duplicate_mod, reason = "each of the kernels' tests has what they share in it")]

mod checks;
mod report;
mod time;

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use sapiens_device_check::steps;
use sapiens_kernels::cuda::{Gpu, Stream};
use time::Patience;

/// Checks and times the CUDA kernels on a card.
///
/// First every kernel against the naive one, as the tests do; then each takes at the shapes of 0.3b and sapiens2-0.4b at 1024 x 768, what that is of the matrix units' rate, and what a frame takes in
/// all of them.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    /// Number of the card
    #[arg(long, default_value_t = 0)]
    device: usize,
    /// Check whether results are right, and time nothing
    #[arg(long)]
    checks_only: bool,
    /// Time the kernels without checking them before
    #[arg(long, conflicts_with = "checks_only")]
    times_only: bool,
    /// Also time each product with every tile, to choose among them
    #[arg(long)]
    tiles: bool,
    /// Write all figures to this file as JSON
    #[arg(long)]
    json: Option<PathBuf>,
    /// Small shapes, to try the program itself
    #[arg(long, hide = true)]
    small: bool,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            anstream::eprintln!("device-check: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    sapiens_stand_in_loader::want_card();
    let gpu = Gpu::open(arguments.device)?;
    let properties = gpu.properties();
    anstream::println!(
        "{}: compute capability {}, {} multiprocessors, {} MiB",
        properties.name,
        properties.capability,
        properties.multiprocessors,
        properties.memory >> 20,
    );
    let stream = Stream::new(&gpu)?;
    let wrong = if arguments.times_only { 0 } else { checks::run() };
    if wrong > 0 {
        return Err(format!(
            "{wrong} checks failed: times of kernels that compute something else are of no use"
        )
        .into());
    }
    if arguments.checks_only {
        return Ok(());
    }
    let mut networks = vec![steps::sapiens_0_3b(), steps::sapiens2_0_4b()];
    if arguments.small {
        networks = networks.into_iter().map(steps::Network::shrunk).collect();
    }
    let patience = if arguments.small {
        Patience { launches: 1, rounds: 1, probe: 2 }
    } else {
        Patience { launches: 10, rounds: 7, probe: 20_000 }
    };
    let report = report::Report::measure(&stream, &networks, arguments.tiles, patience)?;
    report.print();
    if let Some(path) = &arguments.json {
        let text = serde_json::to_string_pretty(&report)?;
        std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(())
}
