//! `sapiens models`: what there is, under which licence, and where its weights are.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use sapiens_model::{ModelCard, Result, Variant, Weights, parameters};
use serde::Serialize;

use crate::json;

#[derive(Args)]
pub(crate) struct Arguments {
    /// Print JSON instead of a table.
    #[arg(long)]
    json: bool,
}

/// What is told of one model.
#[derive(Serialize)]
struct Model {
    variant: &'static str,
    card: String,
    parameters: usize,
    classes: usize,
    input_width: usize,
    input_height: usize,
    licence: Option<String>,
    /// Percent, as its authors give it.
    published_miou: Option<f64>,
    repository: Option<String>,
    file: Option<String>,
    /// Whether the weights come with the program.
    built_in: bool,
    /// Where else the weights are on this machine.
    weights: Option<PathBuf>,
}

impl Model {
    fn of(variant: Variant) -> Self {
        let card = ModelCard::of(variant);
        let weights = Weights::find(&card);
        let parameters = parameters(&card);
        let published = card.weights;
        Self {
            variant: variant.nick(),
            card: card.id,
            parameters,
            classes: card.classes.len(),
            input_width: card.input.width,
            input_height: card.input.height,
            licence: published.as_ref().map(|published| published.license.to_string()),
            published_miou: published.as_ref().and_then(|published| published.miou),
            repository: published.as_ref().and_then(|published| published.repository.clone()),
            file: published.and_then(|published| published.file),
            built_in: variant.has_built_in_weights(),
            weights,
        }
    }

    fn row(&self) -> [String; 7] {
        let weights = match (&self.weights, &self.file) {
            (Some(path), _) => path.display().to_string(),
            _ if self.built_in => "built in".to_owned(),
            (None, Some(_)) => format!("sapiens fetch {}", self.variant),
            (None, None) => "not published".to_owned(),
        };
        [
            self.variant.to_owned(),
            parameters_in_words(self.parameters),
            self.classes.to_string(),
            format!("{} x {}", self.input_width, self.input_height),
            self.published_miou.map_or("-".to_owned(), |miou| format!("{miou:.1} %")),
            self.licence.clone().unwrap_or_else(|| "-".to_owned()),
            weights,
        ]
    }
}

fn parameters_in_words(parameters: usize) -> String {
    match parameters {
        0..10_000_000 => format!("{:.2} M", parameters as f64 / 1e6),
        _ => format!("{:.2} B", parameters as f64 / 1e9),
    }
}

const HEADINGS: [&str; 7] =
    ["variant", "parameters", "classes", "input", "mIoU", "licence", "weights, or how to get them"];

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let models: Vec<_> = Variant::all().map(Model::of).collect();
    if arguments.json {
        json::print(&models);
        return Ok(ExitCode::SUCCESS);
    }
    let rows: Vec<_> = models.iter().map(Model::row).collect();
    let widths: Vec<usize> = (0..HEADINGS.len())
        .map(|column| {
            let longest = rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
            longest.max(HEADINGS[column].chars().count())
        })
        .collect();
    let line = |cells: &[&str]| {
        let mut text = String::new();
        for (cell, width) in cells.iter().zip(&widths) {
            text.push_str(&format!("{cell:<width$}  "));
        }
        text.trim_end().to_owned()
    };
    let style = clap::builder::styling::Style::new().bold();
    anstream::println!("{style}{}{style:#}", line(&HEADINGS));
    for row in &rows {
        anstream::println!("{}", line(&row.each_ref().map(String::as_str)));
    }
    anstream::println!(
        "\nmIoU: as its authors give it, on their own test set; - where they give none for the size.\n\
         CC-BY-NC-4.0 allows no commercial use; the Sapiens2 License has terms of its own, with excluded uses.\n\
         demo knows drawn figures only: it is there to try everything without a download."
    );
    Ok(ExitCode::SUCCESS)
}
