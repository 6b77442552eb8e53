//! What is trained and how: the network's sizes, read from its card, and every number of the training.

use sapiens_model::{ErrorKind, Family, ModelCard, SegmentError};
use sapiens_portable::Dims;
use serde::{Deserialize, Serialize};

use crate::loss::Weights;
use crate::sample::Normalisation;

/// The demo model's card.
pub const CARD: &str = include_str!("../../model/cards/demo.toml");

/// Every number of the training, as it is logged and kept in checkpoints.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Recipe {
    /// Of initial values and data.
    pub seed: u64,
    /// Images per step.
    pub batch: usize,
    /// Images that go through the network together.
    pub part: usize,
    /// Largest learning rate of the backbone.
    pub learning_rate: f32,
    /// Steps until that is reached.
    pub warm_up: u64,
    /// Share of a weight that goes per step, times the learning rate.
    pub weight_decay: f32,
    /// Largest norm of a step's gradient.
    pub clip: f32,
    /// Share of the running mean of weights that stays per step.
    pub ema: f32,
    /// Parts of the loss.
    pub loss: Weights,
    /// Sizes of the input, one after the other; the last is the network's own.
    ///
    /// Positions are relative to the frame, so what is learnt on small pictures holds on large ones, and a small
    /// picture takes a fraction of the time.
    pub stages: Vec<Stage>,
}

/// A part of the training.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Stage {
    /// Share of the budget that is spent when it ends.
    pub until: f64,
    /// Rows of the input.
    pub height: usize,
    /// Columns of the input.
    pub width: usize,
}

impl Recipe {
    /// Height and width of the input when `progress` of the budget is spent.
    ///
    /// # Panics
    /// If there are no stages.
    pub fn size(&self, progress: f64) -> [usize; 2] {
        let stage = self.stages.iter().find(|stage| progress < stage.until);
        let stage = stage.unwrap_or(&self.stages[self.stages.len() - 1]);
        [stage.height, stage.width]
    }

    /// For weights that an earlier training left: they know bodies already, and large steps would undo that.
    pub fn further() -> Self {
        let stages = vec![
            Stage { until: 0.35, height: 240, width: 176 },
            Stage { until: 1.0, height: 320, width: 240 },
        ];
        Self { learning_rate: 2e-3, stages, ..Self::default() }
    }
}

impl Default for Recipe {
    fn default() -> Self {
        Self {
            seed: 1,
            batch: 16,
            part: 4,
            learning_rate: 6e-3,
            warm_up: 50,
            weight_decay: 0.05,
            clip: 1.0,
            ema: 0.995,
            loss: Weights { dice: 1.0, smoothing: 0.02 },
            stages: vec![
                Stage { until: 0.5, height: 128, width: 96 },
                Stage { until: 0.83, height: 192, width: 144 },
                Stage { until: 1.0, height: 320, width: 240 },
            ],
        }
    }
}

/// The sizes of the network that `card` describes.
///
/// # Errors
/// If the card is one of the first family, which this crate doesn't train.
pub fn dims(card: &ModelCard) -> Result<Dims, SegmentError> {
    let (Family::Sapiens2, Some(full_kv_layers)) = (card.family, card.network.full_kv_layers) else {
        let message = format!("model {} is no Sapiens2: only those can be trained", card.name());
        return Err(SegmentError::new(ErrorKind::InvalidCard, message));
    };
    let n = &card.network;
    Ok(Dims {
        family: sapiens_portable::Family::Sapiens2 { full_kv_layers },
        embed_dim: n.embed_dim,
        layers: n.layers,
        heads: n.heads,
        ffn_dim: n.ffn_dim,
        deconv_channels: n.deconv_channels.clone(),
        conv_channels: n.conv_channels.clone(),
        classes: card.classes.len(),
    })
}

/// How the card's network wants its input.
pub fn normalisation(card: &ModelCard) -> Normalisation {
    Normalisation { mean: card.input.mean, std: card.input.std }
}

/// For every class the one on the other side of the body, or itself.
///
/// # Errors
/// If the card names a mirror class that it doesn't have.
pub fn mirror(card: &ModelCard) -> Result<Vec<u8>, SegmentError> {
    let other = |(i, class): (usize, &sapiens_model::Class)| match &class.mirror {
        Some(name) => card.class_index(name),
        None => Ok(i as u8),
    };
    card.classes.iter().enumerate().map(other).collect()
}
