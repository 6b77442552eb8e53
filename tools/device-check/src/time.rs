//! Times one operation on the device, on operands of its own.

use std::sync::Arc;

use sapiens_kernels::cuda::attention::{Angles, Attention, QkNorm, QkvShape, Rotary};
use sapiens_kernels::cuda::norm::{InstanceNorm, Norm};
use sapiens_kernels::cuda::product::{Linear, Map, MomentBlocks, Out, Products, Rows, Then as After};
use sapiens_kernels::cuda::{Buffer, CudaError, Event, Gpu, Plain, Precision, Stream, probe};

use sapiens_device_check::steps::{Operation, Then};

type Result<T> = std::result::Result<T, CudaError>;

/// How much is done to get one figure.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// Launches that are timed together.
    pub launches: usize,
    /// Times taken, of which the median counts.
    pub rounds: usize,
    /// Instructions of the probe, in rounds of eight a warp.
    pub probe: u32,
}

/// The kernels of one precision.
pub struct Kernels {
    patience: Patience,
    products: Products,
    rotary: Rotary,
    norm: Norm,
    instance_norm: InstanceNorm,
}

impl Kernels {
    pub fn new(gpu: &Arc<Gpu>, precision: Precision, patience: Patience) -> Result<Self> {
        Ok(Self {
            patience,
            products: Products::new(gpu, precision)?,
            rotary: Rotary::new(gpu, precision)?,
            norm: Norm::new(gpu, precision)?,
            instance_norm: InstanceNorm::new(gpu, precision)?,
        })
    }

    /// The same with products of one tile.
    pub fn limited_to(mut self, tile: [u32; 2]) -> Self {
        self.products = self.products.limited_to(tile);
        self
    }

    /// The same with products by cuBLASLt.
    ///
    /// # Errors
    /// If there is none, or what it says.
    pub fn with_cublaslt(mut self, gpu: &Arc<Gpu>) -> Result<Self> {
        self.products = self.products.with_cublaslt(gpu)?;
        Ok(self)
    }

    pub fn tiles(&self) -> Vec<[u32; 2]> {
        self.products.tiles()
    }

    /// Milliseconds of one launch: the median of several times.
    pub fn time(&self, stream: &Stream, operation: Operation) -> Result<f64> {
        match operation {
            Operation::Product { rows, columns, depth, then } => {
                self.product(stream, [rows, columns, depth], then)
            }
            Operation::Deconv { height, width, channels, columns } => {
                self.deconv(stream, [height, width, channels], columns)
            }
            Operation::Attention { tokens, heads, kv_heads, head_dim } => {
                let shape = QkvShape { tokens, heads, kv_heads, head_dim, head_stride: head_dim };
                let attention = Attention::new(stream.gpu(), self.products.precision(), head_dim)?;
                let qkv = self.halves(stream, tokens * shape.stride())?;
                let mut out = Buffer::new(stream.gpu(), tokens * heads * head_dim)?;
                self.measure(stream, || attention.run(stream, shape, qkv.slice(..), out.slice_mut(..)))
            }
            Operation::Rotary { tokens, heads, kv_heads, head_dim } => {
                let shape = QkvShape { tokens, heads, kv_heads, head_dim, head_stride: head_dim };
                let mut qkv = self.halves(stream, tokens * shape.stride())?;
                let angles = ones(stream, tokens * head_dim / 2)?;
                let weight = ones(stream, head_dim)?;
                let norm = QkNorm { q: weight.slice(..), k: weight.slice(..), epsilon: 1e-6 };
                let angles = Angles { prefix: 9, sin: angles.slice(..), cos: angles.slice(..) };
                self.measure(stream, || self.rotary.run(stream, shape, qkv.slice_mut(..), norm, angles))
            }
            Operation::Norm { rows, columns, layer } => {
                let x = ones(stream, rows * columns)?;
                let weight = ones(stream, columns)?;
                let mut out = Buffer::new(stream.gpu(), rows * columns)?;
                let bias = layer.then(|| weight.slice(..));
                self.measure(stream, || {
                    self.norm.run(stream, x.slice(..), weight.slice(..), bias, 1e-6, out.slice_mut(..))
                })
            }
            Operation::InstanceNorm { pixels, columns } => {
                let mut x = self.halves(stream, pixels * columns)?;
                let blocks = MomentBlocks { phases: 1, rows: pixels, block_rows: 64, columns };
                let moments = ones(stream, blocks.len())?;
                let mut statistics = Buffer::new(stream.gpu(), 2 * columns)?;
                self.measure(stream, || {
                    let (x, statistics) = (x.slice_mut(..), statistics.slice_mut(..));
                    self.instance_norm.run(stream, x, blocks, moments.slice(..), 1e-5, statistics)
                })
            }
        }
    }

    fn product(&self, stream: &Stream, [rows, columns, depth]: [usize; 3], then: Then) -> Result<f64> {
        let gpu = stream.gpu();
        let (x, weights) = (self.halves(stream, rows * depth)?, self.halves(stream, columns * depth)?);
        let bias = ones(stream, columns)?;
        let a = Rows { values: x.slice(..), rows, depth, stride: depth };
        let bias = (then != Then::Moments).then(|| bias.slice(..));
        let linear = Linear { weights: weights.slice(..), bias, columns };
        let mut moments = Buffer::new(gpu, self.products.moments(rows, columns).len())?;
        let mut room = self.products.cublaslt().map(|cublaslt| cublaslt.room(rows * columns)).transpose()?;
        if matches!(then, Then::Add | Then::AddScaled | Then::StoreF32) {
            let (mut out, scale) = (Buffer::new(gpu, rows * columns)?, ones(stream, columns)?);
            return self.measure(stream, || {
                let out = Out { values: out.slice_mut(..), stride: columns };
                let then = match then {
                    Then::Add => After::Add(out, None),
                    Then::AddScaled => After::Add(out, Some(scale.slice(..))),
                    _ => After::StoreF32(out),
                };
                self.products.product(stream, a, linear, then, room.as_mut())
            });
        }
        let stride = if then == Then::SwiGlu { columns / 2 } else { columns };
        let mut out = Buffer::new(gpu, rows * stride)?;
        self.measure(stream, || {
            let out = Out { values: out.slice_mut(..), stride };
            let then = match then {
                Then::Gelu => After::Gelu(out),
                Then::SwiGlu => After::SwiGlu(out),
                Then::Moments => After::Moments(out, moments.slice_mut(..)),
                _ => After::Store(out),
            };
            self.products.product(stream, a, linear, then, room.as_mut())
        })
    }

    fn deconv(&self, stream: &Stream, [height, width, channels]: [usize; 3], columns: usize) -> Result<f64> {
        let x = self.halves(stream, height * width * channels)?;
        let weights = self.halves(stream, 16 * channels * columns)?;
        let map = Map { values: x.slice(..), height, width, channels };
        let linear = Linear { weights: weights.slice(..), bias: None, columns };
        let blocks = self.products.deconv_moments(height, width, columns);
        let mut moments = Buffer::new(stream.gpu(), blocks.len())?;
        let mut out = Buffer::new(stream.gpu(), 4 * height * width * columns)?;
        self.measure(stream, || {
            let out = Out { values: out.slice_mut(..), stride: columns };
            self.products.deconv(stream, map, linear, After::Moments(out, moments.slice_mut(..)))
        })
    }

    /// Values between -1 and 1: a device that multiplies zeros draws less power and clocks higher than it would.
    fn halves(&self, stream: &Stream, len: usize) -> Result<Buffer<u16>> {
        let precision = self.products.precision();
        let pattern: Vec<u16> = (0..1 << 16).map(|i| precision.encode(noise(i))).collect();
        repeated(stream, &pattern, len)
    }

    /// Milliseconds of one launch.
    fn measure(&self, stream: &Stream, mut launch: impl FnMut() -> Result<()>) -> Result<f64> {
        let Patience { launches, rounds, .. } = self.patience;
        let [before, after] = [Event::new(stream.gpu(), true)?, Event::new(stream.gpu(), true)?];
        launch()?;
        stream.synchronize()?;
        let mut times = Vec::with_capacity(rounds);
        let mut busy = Buffer::new(stream.gpu(), probe::results(stream.gpu().properties().multiprocessors))?;
        for _ in 0..rounds {
            // The card is busy while the launches are queued, so that it doesn't wait for them.
            probe::run(stream, self.products.precision(), self.patience.probe, busy.slice_mut(..))?;
            before.record(stream)?;
            for _ in 0..launches {
                launch()?;
            }
            after.record(stream)?;
            after.synchronize()?;
            times.push(f64::from(after.milliseconds_since(&before)?) / launches as f64);
        }
        times.sort_by(f64::total_cmp);
        Ok(times[rounds / 2])
    }
}

/// A value between -1 and 1 for each number.
fn noise(i: u32) -> f32 {
    let mixed = (i ^ 0x9E37_79B9).wrapping_mul(0x85EB_CA6B);
    (mixed ^ (mixed >> 15)).wrapping_mul(0xC2B2_AE35) as f32 / 2f32.powi(31) - 1.0
}

fn ones(stream: &Stream, len: usize) -> Result<Buffer<f32>> {
    repeated(stream, &[1.0; 1 << 14], len)
}

/// A pattern over and over on the device.
fn repeated<T: Plain>(stream: &Stream, pattern: &[T], len: usize) -> Result<Buffer<T>> {
    let gpu: &Arc<Gpu> = stream.gpu();
    let mut buffer = Buffer::new(gpu, len)?;
    let first = pattern.len().min(len);
    let mut source = Buffer::new(gpu, first)?;
    stream.upload(&pattern[..first], source.slice_mut(..))?;
    for start in (0..len).step_by(first.max(1)) {
        let count = first.min(len - start);
        stream.copy(source.slice(..count), buffer.slice_mut(start..start + count))?;
    }
    Ok(buffer)
}
