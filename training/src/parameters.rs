//! The network's parameters outside any backend: flat values by the checkpoint's names, and where they start.

use std::collections::HashMap;
use std::convert::Infallible;
use std::ops::Range;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use sapiens_portable::{Dims, Model, PortableBackend};

/// What an optimiser needs to know of a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A large matrix: a linear layer's `[out, in]`, or a convolution's with its taps as columns.
    Matrix,
    /// Another weight that multiplies activations: of the head's 1x1 convolutions.
    Weight,
    /// Prefix tokens, scales and biases, which don't decay.
    Offset,
}

/// One tensor's name and place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The checkpoint's name.
    pub name: String,
    /// Row-major shape.
    pub shape: Vec<usize>,
    /// Where its values are among all.
    pub range: Range<usize>,
    /// What it is.
    pub kind: Kind,
    /// Where it is.
    pub part: Part,
}

/// Where in the network a tensor is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Before the head.
    Backbone,
    /// The head's ConvTransposes.
    Deconv,
    /// The head's 1x1 convolutions.
    Classifier,
}

impl Part {
    /// Learning rate in units of the backbone's. An InstanceNorm behind a weight takes its size out, so it may change
    /// fast; the last layers have few inputs and therefore large weights. Found by what learns a few figures fastest.
    pub fn rate(self) -> f32 {
        match self {
            Part::Backbone => 1.0,
            Part::Deconv => 2.0,
            Part::Classifier => 4.0,
        }
    }
}

/// All tensors of a network, in the order in which it asks for them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    entries: Vec<Entry>,
    by_name: HashMap<String, usize>,
}

impl Layout {
    /// The tensors of the network of `dims`.
    pub fn new(dims: &Dims) -> Self {
        let mut entries: Vec<Entry> = Vec::new();
        let mut end = 0;
        let Ok(_) = Model::<burn_flex::Flex>::load(dims, &Default::default(), |name, shape| {
            let count: usize = shape.iter().product();
            let range = end..end + count;
            end = range.end;
            let (name, shape) = (name.to_owned(), shape.to_vec());
            entries.push(Entry { kind: kind(&name, &shape), part: part(&name), name, shape, range });
            Ok::<_, Infallible>(vec![0.0; count])
        });
        let by_name = entries.iter().enumerate().map(|(i, entry)| (entry.name.clone(), i)).collect();
        Self { entries, by_name }
    }

    /// The tensors.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Values of all tensors together.
    pub fn count(&self) -> usize {
        self.entries.last().map_or(0, |entry| entry.range.end)
    }

    /// The tensor called `name`.
    ///
    /// # Panics
    /// If there is none.
    pub fn entry(&self, name: &str) -> &Entry {
        &self.entries[self.by_name[name]]
    }

    /// A network with the values `values`, [`count`](Self::count) of them.
    pub fn model<B: PortableBackend>(&self, dims: &Dims, values: &[f32]) -> Model<B> {
        let Ok(model) = Model::load(dims, &Default::default(), |name, _| {
            Ok::<_, Infallible>(values[self.entry(name).range.clone()].to_vec())
        });
        model
    }

    /// Values to start training from.
    ///
    /// Weights are normal with a deviation of `1 / sqrt(fan in)`, cut at twice that; the matrices that end a residual
    /// branch are smaller by `sqrt(2 layers)`, so that all branches together add about as much as the tokens have.
    pub fn initial(&self, dims: &Dims, seed: u64) -> Vec<f32> {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let mut values = vec![0.0; self.count()];
        for entry in &self.entries {
            let values = &mut values[entry.range.clone()];
            let Entry { name, shape, .. } = entry;
            if name.ends_with(".bias") {
                continue;
            }
            if shape.len() == 1 {
                // Norms and the attention branches' scale.
                values.fill(1.0);
                continue;
            }
            let deviation = if name.ends_with("_token") || name.ends_with("_tokens") {
                0.02
            } else if name.ends_with("conv_seg.weight") {
                // Nearly equal logits: no class has to be unlearnt first.
                0.01
            } else {
                let fan_in: usize = if name.contains("deconv_layers") {
                    // Each output pixel is under 2 x 2 of the 4 x 4 taps.
                    shape[0] * 4
                } else {
                    shape[1..].iter().product()
                };
                let ends_branch = name.ends_with("attn.proj.weight") || name.ends_with("ffn.w3.weight");
                let branches = if ends_branch { 2.0 * dims.layers as f32 } else { 1.0 };
                (fan_in as f32 * branches).sqrt().recip()
            };
            values.fill_with(|| deviation * normal(&mut random));
        }
        values
    }
}

fn kind(name: &str, shape: &[usize]) -> Kind {
    if shape.len() == 1 || name.ends_with("_token") || name.ends_with("_tokens") {
        Kind::Offset
    } else if part(name) == Part::Classifier {
        Kind::Weight
    } else {
        Kind::Matrix
    }
}

fn part(name: &str) -> Part {
    if name.starts_with("decode_head.deconv_layers") {
        Part::Deconv
    } else if name.starts_with("decode_head") {
        Part::Classifier
    } else {
        Part::Backbone
    }
}

/// A standard normal value, drawn again while beyond 2.
fn normal(random: &mut Pcg64Mcg) -> f32 {
    loop {
        // Box and Muller: the radius from one uniform value, the angle from another.
        let (u, v): (f32, f32) = (random.random(), random.random());
        let x = (-2.0 * (1.0 - u).ln()).sqrt() * (std::f32::consts::TAU * v).cos();
        if x.abs() <= 2.0 {
            return x;
        }
    }
}
