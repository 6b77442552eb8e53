//! Trains the demo model on drawn figures.

use std::collections::HashMap;
use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{ArgGroup, Parser};
use sapiens_figures::Kinds;
use sapiens_model::{ModelCard, Weights};
use sapiens_training::data::Figures;
use sapiens_training::export::export;
use sapiens_training::recipe::{self, CARD, Recipe};
use sapiens_training::schedule::Budget;
use sapiens_training::trainer::{Line, Trainer};
use sapiens_training::validation::Frames;

/// Trains the demo model on drawn figures.
///
/// The learning rate falls to nothing at the end of the budget, which is a time or a number of steps.
#[derive(Debug, Parser)]
#[command(version, group(ArgGroup::new("budget").args(["minutes", "steps"])))]
struct Arguments {
    /// Train for so many minutes
    #[arg(long)]
    minutes: Option<f64>,
    /// Train for so many steps
    #[arg(long)]
    steps: Option<u64>,
    /// Folder for the checkpoint and the log
    #[arg(long)]
    out: PathBuf,
    /// Continue from the checkpoint in the folder; without a budget, until the old one is spent
    #[arg(long)]
    resume: bool,
    /// Start from these weights, of an earlier training, instead of random ones; another --seed shows them other figures
    #[arg(long, conflicts_with = "resume")]
    from: Option<PathBuf>,
    /// Of initial values and figures
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Write the trained weights to this file
    #[arg(long)]
    export: Option<PathBuf>,
    /// Threads that train; by default as many as there are cores
    #[arg(long)]
    threads: Option<usize>,
    /// Figures of each kind in a validation
    #[arg(long, default_value_t = 100)]
    validation: usize,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            anstream::eprintln!("train-demo: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let card = ModelCard::from_toml(CARD, "demo")?;
    let dims = recipe::dims(&card)?;
    let (normalisation, mirror) = (recipe::normalisation(&card), recipe::mirror(&card)?);
    let budget = arguments.minutes.map(|m| Budget::Seconds(60.0 * m)).or(arguments.steps.map(Budget::Steps));
    let threads = match arguments.threads {
        Some(threads) => threads,
        None => std::thread::available_parallelism()?.get(),
    };
    let mut trainer = if arguments.resume {
        let path = arguments.out.join("checkpoint.safetensors");
        Trainer::resume(&dims, normalisation, &path, budget, threads)?
    } else {
        let budget = budget.ok_or("give a budget: --minutes or --steps")?;
        let seed = arguments.seed;
        match &arguments.from {
            None => {
                let recipe = Recipe { seed, ..Recipe::default() };
                Trainer::new(&dims, normalisation, recipe, budget, threads)?
            }
            Some(path) => {
                let recipe = Recipe { seed, ..Recipe::further() };
                let weights = Weights::open(path, &card)?;
                Trainer::new(&dims, normalisation, recipe, budget, threads)?.starting_from(&weights)?
            }
        }
    };
    let (height, width) = (card.input.height, card.input.width);
    let seed = trainer.position().recipe.seed;
    let figures = Figures { seed, own: [height, width], mirror };
    let frames = [("training", Kinds::Training), ("held_out", Kinds::HeldOut)]
        .map(|(name, kinds)| (name, Frames::new(kinds, arguments.validation, height, width)));
    trainer.run(
        &figures,
        &arguments.out,
        &mut |layout, values| {
            frames
                .iter()
                .map(|(name, frames)| (*name, frames.score(&dims, layout, values, &normalisation)))
                .collect()
        },
        &mut |line, progress| show(line, progress, &card),
    )?;
    if let Some(path) = &arguments.export {
        let position = trainer.position();
        let about = HashMap::from([
            ("model".to_owned(), card.id.clone()),
            ("license".to_owned(), "MIT OR Apache-2.0".to_owned()),
            ("training".to_owned(), serde_json::to_string(&position)?),
        ]);
        export(path, trainer.layout(), &trainer.state().mean, about)?;
        Weights::open(path, &card)?;
        let size = std::fs::metadata(path)?.len();
        anstream::println!("{}: {:.2} MB", path.display(), size as f64 / 1e6);
    }
    Ok(())
}

/// One line for people.
fn show(line: &Line, progress: f64, card: &ModelCard) {
    let percent = 100.0 * progress;
    match line {
        Line::Start { step, parameters, .. } => {
            anstream::println!("{percent:5.1} %  {parameters} parameters, from step {step}");
        }
        Line::Step { step, images, loss, norm, rate, speed, .. } => anstream::println!(
            "{percent:5.1} %  step {step}, {images} images: cross entropy {:.3}, dice {:.3}, norm {norm:.2}, rate {rate:.1e}, {speed:.1} images/s",
            loss.cross_entropy,
            loss.dice,
        ),
        Line::Validation { step, figures, mean_iou, background, confused, iou } => {
            anstream::println!(
                "{percent:5.1} %  step {step}, {figures}: mIoU {:.3}, background {:.3}, other side {:.2} %",
                mean_iou,
                background,
                100.0 * confused,
            );
            let classes = card.classes.iter().zip(iou);
            let text: Vec<_> =
                classes.filter_map(|(class, iou)| Some(format!("{} {:.2}", class.name, (*iou)?))).collect();
            anstream::println!("         {}", text.join(", "));
        }
    }
}
