//! The arguments of the commands that also run on weights made up from a seed.

use clap::Args;
use sapiens_cli::ModelArguments;
use sapiens_model::{ModelCard, Options, Result, Segmenter, Weights};

#[derive(Args)]
pub(crate) struct AnyModelArguments {
    #[command(flatten)]
    pub model: ModelArguments,

    /// Weights made up from a seed instead of a file: to try speed and memory. Their labels mean nothing.
    #[arg(long, value_name = "SEED", conflicts_with = "weights", help_heading = "Model")]
    generated_weights: Option<u64>,
}

impl AnyModelArguments {
    /// The weights: the user's, those found, or generated ones.
    pub(crate) fn weights(&self, card: &ModelCard) -> Result<Weights> {
        match self.generated_weights {
            Some(seed) => Ok(Weights::generated(card, seed)),
            None => self.model.weights(card),
        }
    }

    /// Whether the user said where weights are to come from.
    pub(crate) fn names_weights(&self) -> bool {
        self.model.weights.is_some() || self.generated_weights.is_some()
    }

    /// The model, ready to run.
    pub(crate) fn segmenter(&self, card: ModelCard, keep_logits: bool) -> Result<Segmenter> {
        let options = Options { keep_logits, ..self.model.options()? };
        let weights = self.weights(&card)?;
        Segmenter::new(card, &weights, options)
    }
}
