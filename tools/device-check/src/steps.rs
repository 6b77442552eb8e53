//! The steps of a frame's way through two of the networks, at their real shapes, one kernel each.

use sapiens_kernels::cuda::Precision;
use serde::Serialize;

/// A network whose kernels are timed.
#[derive(Debug)]
pub struct Network {
    /// As the cards have it.
    pub name: &'static str,
    /// In the order of a frame.
    pub steps: Vec<Step>,
}

/// What is done how often in a frame.
#[derive(Debug, Clone)]
pub struct Step {
    /// In words.
    pub name: &'static str,
    /// How often in a frame.
    pub times: usize,
    /// What is done.
    pub operation: Operation,
}

/// One launch, or two for an InstanceNorm.
#[derive(Debug, Clone, Copy, Serialize)]
#[allow(missing_docs, reason = "sizes are as the kernels' launchers name them")]
pub enum Operation {
    /// Of `rows` and `depth`, `columns` outputs.
    Product {
        rows: usize,
        columns: usize,
        depth: usize,
        then: Then,
    },
    /// Of a map, `columns` outputs.
    Deconv {
        height: usize,
        width: usize,
        channels: usize,
        columns: usize,
    },
    Attention {
        tokens: usize,
        heads: usize,
        kv_heads: usize,
        head_dim: usize,
    },
    Rotary {
        tokens: usize,
        heads: usize,
        kv_heads: usize,
        head_dim: usize,
    },
    /// LayerNorm, or RMSNorm.
    Norm {
        rows: usize,
        columns: usize,
        layer: bool,
    },
    InstanceNorm {
        pixels: usize,
        columns: usize,
    },
}

/// What follows a product.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "as the kernels' launchers name them")]
pub enum Then {
    Store,
    StoreF32,
    Gelu,
    SwiGlu,
    Add,
    /// With a LayerScale.
    AddScaled,
    Moments,
}

impl Operation {
    /// Multiplications and additions, counted apart, of the tensor cores' part.
    pub fn flop(&self) -> f64 {
        let product = |m: usize, n: usize, k: usize| 2.0 * m as f64 * n as f64 * k as f64;
        match *self {
            Operation::Product { rows, columns, depth, .. } => product(rows, columns, depth),
            Operation::Deconv { height, width, channels, columns } => {
                4.0 * product(height * width, columns, 4 * channels)
            }
            Operation::Attention { tokens, heads, head_dim, .. } => {
                2.0 * heads as f64 * product(tokens, tokens, head_dim)
            }
            Operation::Rotary { .. } | Operation::Norm { .. } | Operation::InstanceNorm { .. } => 0.0,
        }
    }

    /// Bytes that must be read and written once at least.
    pub fn bytes(&self) -> f64 {
        let count = match *self {
            Operation::Product { rows, columns, depth, then } => {
                let out = match then {
                    Then::Store | Then::Gelu | Then::Moments => 2 * rows * columns,
                    Then::StoreF32 => 4 * rows * columns,
                    Then::SwiGlu => rows * columns,
                    Then::Add | Then::AddScaled => 8 * rows * columns,
                };
                2 * (rows + columns) * depth + out
            }
            Operation::Deconv { height, width, channels, columns } => {
                2 * (height * width * channels + 16 * channels * columns + 4 * height * width * columns)
            }
            Operation::Attention { tokens, heads, kv_heads, head_dim } => {
                2 * tokens * head_dim * 2 * (heads + kv_heads)
            }
            Operation::Rotary { tokens, heads, kv_heads, head_dim } => {
                4 * tokens * head_dim * (heads + kv_heads)
            }
            Operation::Norm { rows, columns, .. } => 6 * rows * columns,
            Operation::InstanceNorm { pixels, columns } => 4 * pixels * columns,
        };
        count as f64
    }
}

impl Network {
    /// A small one with the same steps, to try the program itself.
    pub fn shrunk(mut self) -> Self {
        let shrink = |size: &mut usize, by: usize, multiple: usize| {
            *size = (*size / by).max(multiple).next_multiple_of(multiple)
        };
        for step in &mut self.steps {
            step.times = 1;
            match &mut step.operation {
                Operation::Product { rows, columns, depth, .. } => {
                    [(rows, 1024), (columns, 64), (depth, 32)]
                        .into_iter()
                        .for_each(|(size, by)| shrink(size, by, 8));
                }
                Operation::Deconv { height, width, channels, columns } => {
                    [(height, 64), (width, 64), (channels, 32), (columns, 32)]
                        .into_iter()
                        .for_each(|(size, by)| shrink(size, by, 8));
                }
                Operation::Attention { tokens, heads, kv_heads, .. }
                | Operation::Rotary { tokens, heads, kv_heads, .. } => {
                    shrink(tokens, 32, 1);
                    shrink(heads, 8, 1);
                    shrink(kv_heads, 8, 1);
                }
                Operation::Norm { rows, .. } => shrink(rows, 512, 1),
                Operation::InstanceNorm { pixels, columns } => {
                    shrink(pixels, 4096, 1);
                    shrink(columns, 16, 8);
                }
            }
        }
        self
    }
}

fn step(name: &'static str, times: usize, operation: Operation) -> Step {
    Step { name, times, operation }
}

fn product(rows: usize, columns: usize, depth: usize, then: Then) -> Operation {
    Operation::Product { rows, columns, depth, then }
}

fn deconv(height: usize, width: usize, channels: usize, columns: usize) -> Operation {
    Operation::Deconv { height, width, channels, columns }
}

fn instance_norm(pixels: usize, columns: usize) -> Operation {
    Operation::InstanceNorm { pixels, columns }
}

/// 0.3b at 1024 x 768.
pub fn sapiens_0_3b() -> Network {
    let (tokens, dim, layers, pixels) = (64 * 48, 1024, 24, 512 * 384);
    let steps = vec![
        step("patch embedding", 1, product(tokens, dim, 768, Then::Add)),
        step("LayerNorm", 2 * layers + 1, Operation::Norm { rows: tokens, columns: dim, layer: true }),
        step("qkv", layers, product(tokens, 3 * dim, dim, Then::Store)),
        step("attention", layers, Operation::Attention { tokens, heads: 16, kv_heads: 16, head_dim: 64 }),
        step("proj", layers, product(tokens, dim, dim, Then::Add)),
        step("ffn, GELU", layers, product(tokens, 4 * dim, dim, Then::Gelu)),
        step("ffn, back", layers, product(tokens, dim, 4 * dim, Then::Add)),
        step("deconv 1", 1, deconv(64, 48, dim, 768)),
        step("norm 1", 1, instance_norm(128 * 96, 768)),
        step("deconv 2", 1, deconv(128, 96, 768, 768)),
        step("norm 2", 1, instance_norm(256 * 192, 768)),
        step("deconv 3", 1, deconv(256, 192, 768, 768)),
        step("norm 3 and of convs", 4, instance_norm(pixels, 768)),
        step("conv", 3, product(pixels, 768, 768, Then::Moments)),
        step("conv_seg", 1, product(pixels, 28, 768, Then::StoreF32)),
    ];
    Network { name: "0.3b", steps }
}

/// sapiens2-0.4b at 1024 x 768.
pub fn sapiens2_0_4b() -> Network {
    let (tokens, dim, layers, pixels) = (9 + 64 * 48, 1024, 24, 1024 * 768);
    // The first and the last eight layers have as many heads of keys as of queries, the others half as many.
    let (full, half) = (16, layers - 16);
    let attention = |kv_heads| Operation::Attention { tokens, heads: 16, kv_heads, head_dim: 64 };
    let rotary = |kv_heads| Operation::Rotary { tokens, heads: 16, kv_heads, head_dim: 64 };
    let steps = vec![
        step("patch embedding", 1, product(tokens - 9, dim, 768, Then::StoreF32)),
        step("RMSNorm", 2 * layers + 1, Operation::Norm { rows: tokens, columns: dim, layer: false }),
        step("qkv", full, product(tokens, 3 * dim, dim, Then::Store)),
        step("qkv, grouped", half, product(tokens, 2 * dim, dim, Then::Store)),
        step("rotary", full, rotary(16)),
        step("rotary, grouped", half, rotary(8)),
        step("attention", full, attention(16)),
        step("attention, grouped", half, attention(8)),
        step("proj", layers, product(tokens, dim, dim, Then::AddScaled)),
        step("w12, SwiGLU", layers, product(tokens, 8 * dim, dim, Then::SwiGlu)),
        step("w3", layers, product(tokens, dim, 4 * dim, Then::Add)),
        step("deconv 1", 1, deconv(64, 48, dim, 512)),
        step("norm 1", 1, instance_norm(128 * 96, 512)),
        step("deconv 2", 1, deconv(128, 96, 512, 256)),
        step("norm 2", 1, instance_norm(256 * 192, 256)),
        step("deconv 3", 1, deconv(256, 192, 256, 128)),
        step("norm 3", 1, instance_norm(512 * 384, 128)),
        step("deconv 4", 1, deconv(512, 384, 128, 64)),
        step("norm 4 and of convs", 3, instance_norm(pixels, 64)),
        step("conv", 2, product(pixels, 64, 64, Then::Moments)),
        step("conv_seg", 1, product(pixels, 32, 64, Then::StoreF32)),
    ];
    Network { name: "sapiens2-0.4b", steps }
}

/// Precisions in the order of the table.
pub fn precisions() -> [(&'static str, Precision); 3] {
    [("f16", Precision::F16), ("f16, promoted", Precision::F16Promoted), ("bf16", Precision::Bf16)]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The published counts of the design, in TFLOP: what is timed is all of it.
    #[test]
    fn all_work_of_a_frame_is_there() {
        let tflop = |network: Network| {
            network.steps.iter().map(|step| step.times as f64 * step.operation.flop()).sum::<f64>() / 1e12
        };
        assert!((tflop(sapiens_0_3b()) - 4.73).abs() < 0.05, "{}", tflop(sapiens_0_3b()));
        assert!((tflop(sapiens2_0_4b()) - 3.58).abs() < 0.05, "{}", tflop(sapiens2_0_4b()));
    }
}
