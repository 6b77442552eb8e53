//! Checks and times the CUDA kernels and whole networks on a card. Needs the driver and nothing else.
#![allow(clippy::duplicate_mod, reason = "each of the kernels' tests has what they share in it")]

mod budget;
mod checks;
mod network_checks;
mod network_report;
mod network_times;
mod report;
mod time;

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use budget::Budget;
use clap::Parser;
use network_times::Plan;
use report::Report;
use sapiens_device_check::steps;
use sapiens_kernels::cuda::{CudaError, Gpu, Stream};
use time::Patience;

/// Checks and times the CUDA kernels and whole networks on a card.
///
/// First every kernel against the naive one, as the tests do, and networks with generated weights against the authors' logits; then what each kernel takes at the shapes of 0.3b and sapiens2-0.4b at 1024 x 768 and what that is of the matrix units' rate; then what a frame takes in whole networks, where the time goes, and how much of the copying is hidden.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    /// Number of the card
    #[arg(long, default_value_t = 0)]
    device: usize,
    /// Check whether results are right, and time nothing
    #[arg(long)]
    checks_only: bool,
    /// Time without checking before
    #[arg(long, conflicts_with = "checks_only")]
    times_only: bool,
    /// Leave out what is about kernels alone
    #[arg(long)]
    networks_only: bool,
    /// Begin no network that would take longer than these, from the start on
    #[arg(long, value_name = "N", default_value_t = 210)]
    seconds: u32,
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
    let mut budget = Budget::new(arguments.seconds);
    let gpu = Gpu::open(arguments.device)?;
    let properties = gpu.properties();
    anstream::println!(
        "{}: compute capability {}, {} multiprocessors, {} MiB",
        properties.name,
        properties.capability,
        properties.multiprocessors,
        properties.memory >> 20,
    );
    let mut report = Report::new(&gpu);
    let measured = measure(&mut report, &gpu, arguments, &mut budget);
    // Whatever went wrong, what was found until then tells why.
    if let Some(path) = &arguments.json {
        let text = serde_json::to_string_pretty(&report)?;
        std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    measured
}

fn measure(
    report: &mut Report,
    gpu: &Arc<Gpu>,
    arguments: &Arguments,
    budget: &mut Budget,
) -> Result<(), Box<dyn Error>> {
    if !arguments.times_only {
        let mut wrong = if arguments.networks_only { 0 } else { checks::run() };
        report.network_checks = network_checks::run(gpu, arguments.small, budget)?;
        wrong += report.network_checks.iter().filter(|check| !check.right).count();
        if wrong > 0 {
            return Err(format!(
                "{wrong} checks failed: times of kernels that compute something else are of no use"
            )
            .into());
        }
    }
    if !arguments.checks_only {
        if !arguments.networks_only {
            time_kernels(report, gpu, arguments)?;
        }
        let plan = if arguments.small { Plan::small() } else { Plan::full() };
        report.networks = network_times::run(gpu, &plan, budget)?;
        anstream::println!("\nFor docs/performance.md:\n\n{}", report.tables());
    }
    Ok(())
}

fn time_kernels(report: &mut Report, gpu: &Arc<Gpu>, arguments: &Arguments) -> Result<(), CudaError> {
    let mut networks = vec![steps::sapiens_0_3b(), steps::sapiens2_0_4b()];
    if arguments.small {
        networks = networks.into_iter().map(steps::Network::shrunk).collect();
    }
    let patience = if arguments.small {
        Patience { launches: 1, rounds: 1, probe: 2 }
    } else {
        Patience { launches: 10, rounds: 7, probe: 20_000 }
    };
    report.time_kernels(&Stream::new(gpu)?, &networks, arguments.tiles, patience)?;
    report.print_kernels();
    Ok(())
}
