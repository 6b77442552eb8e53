//! One step's gradient: a batch goes through the network in parts, on as many threads as there are cores.
//!
//! Each thread has a part of its own and does it alone, rather than all threads sharing every operation: many of
//! burn's CPU operations are single-threaded. Parts are the same and are added in the same order whatever the
//! number of threads, so the result is too.

use std::sync::{Mutex, PoisonError};

use burn::backend::Autodiff;
use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::backend::AutodiffBackend;
use burn::tensor::{Tensor, TensorData};
use burn_flex::Flex;
use rayon::{ThreadPool, ThreadPoolBuilder};
use sapiens_portable::{Dims, Tables};

use crate::loss::{Loss, Weights, loss_and_gradient};
use crate::parameters::Layout;
use crate::sample::{Normalisation, Sample};

type Differentiable = Autodiff<Flex>;
type Gradients = <Differentiable as AutodiffBackend>::Gradients;

/// Computes losses and gradients.
#[derive(Debug)]
pub struct GradientOfBatch {
    dims: Dims,
    normalisation: Normalisation,
    weights: Weights,
    /// Images that go through the network together.
    part: usize,
    /// Which tensor of the layout each visited parameter is.
    order: Vec<usize>,
    pools: Vec<ThreadPool>,
}

/// Of a batch.
#[derive(Debug, Clone)]
pub struct BatchResult {
    /// Mean over the images.
    pub loss: Loss,
    /// In the layout's order.
    pub gradient: Vec<f32>,
}

impl GradientOfBatch {
    /// For networks of `dims`, `part` images at a time on each of `threads` threads.
    ///
    /// # Errors
    /// If the threads can't be started.
    pub fn new(
        dims: &Dims,
        layout: &Layout,
        normalisation: Normalisation,
        weights: Weights,
        part: usize,
        threads: usize,
    ) -> Result<Self, rayon::ThreadPoolBuildError> {
        let pools = (0..threads.max(1))
            .map(|i| {
                ThreadPoolBuilder::new().num_threads(1).thread_name(move |_| format!("train-{i}")).build()
            })
            .collect::<Result<_, _>>()?;
        Ok(Self {
            dims: dims.clone(),
            normalisation,
            weights,
            part,
            order: visiting_order(dims, layout),
            pools,
        })
    }

    /// Loss and gradient at the parameters `values`, means over `batch`.
    pub fn compute(&self, layout: &Layout, values: &[f32], batch: &[Sample]) -> BatchResult {
        let parts: Vec<_> = batch.chunks(self.part).collect();
        let results: Vec<_> = parts.iter().map(|_| Mutex::new(None)).collect();
        let threads = self.pools.len();
        std::thread::scope(|scope| {
            for (first, pool) in self.pools.iter().enumerate() {
                let (parts, results) = (&parts, &results);
                scope.spawn(move || {
                    pool.install(|| {
                        for i in (first..parts.len()).step_by(threads) {
                            let result = self.part(layout, values, parts[i], batch.len());
                            *results[i].lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
                        }
                    });
                });
            }
        });
        let mut total = BatchResult { loss: Loss::default(), gradient: vec![0.0; layout.count()] };
        for result in results {
            let Some((loss, gradient)) = result.into_inner().unwrap_or_else(PoisonError::into_inner) else {
                continue;
            };
            total.loss.cross_entropy += loss.cross_entropy;
            total.loss.dice += loss.dice;
            total.gradient.iter_mut().zip(gradient).for_each(|(sum, g)| *sum += g);
        }
        total
    }

    /// The part's share in the loss and gradient of a batch of `of` images.
    fn part(&self, layout: &Layout, values: &[f32], images: &[Sample], of: usize) -> (Loss, Vec<f32>) {
        let device = Default::default();
        let [height, width] = images[0].size();
        let model = layout.model::<Differentiable>(&self.dims, values);
        let tables: Tables<Differentiable> = model.tables(height, width, &device);
        let mut input = Vec::with_capacity(images.len() * 3 * height * width);
        images.iter().for_each(|image| image.normalise(&self.normalisation, &mut input));
        let input = Tensor::from_data(TensorData::new(input, [images.len(), 3, height, width]), &device);
        // Channels last, as they leave the network.
        let logits = model.forward(input, &tables).permute([0, 2, 3, 1]);
        let mut slopes = into_vec(logits.clone().inner());
        let mut total = Loss::default();
        let [batch, rows, columns, classes] = logits.dims();
        for (image, slopes) in images.iter().zip(slopes.chunks_exact_mut(rows * columns * classes)) {
            let loss = loss_and_gradient(slopes, image.labels(), classes, self.weights, 1.0 / of as f32);
            total.cross_entropy += loss.cross_entropy / of as f64;
            total.dice += loss.dice / of as f64;
        }
        let slopes = Tensor::from_data(TensorData::new(slopes, [batch, rows, columns, classes]), &device);
        // A sum whose gradient by the logits is the loss's.
        let gradients = (logits * slopes).sum().backward();
        let mut collector = Collector {
            gradients: &gradients,
            layout,
            order: self.order.iter(),
            values: vec![0.0; layout.count()],
        };
        model.visit(&mut collector);
        (total, collector.values)
    }
}

fn into_vec<const D: usize>(tensor: Tensor<Flex, D>) -> Vec<f32> {
    // The backend computes in f32, so the type is right.
    tensor.into_data().into_vec().unwrap_or_default()
}

/// Copies the gradients of the parameters it visits to their places.
struct Collector<'a> {
    gradients: &'a Gradients,
    layout: &'a Layout,
    order: std::slice::Iter<'a, usize>,
    values: Vec<f32>,
}

impl ModuleVisitor<Differentiable> for Collector<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<Differentiable, D>>) {
        let Some(&index) = self.order.next() else { return };
        if let Some(gradient) = param.val().grad(self.gradients) {
            let range = self.layout.entries()[index].range.clone();
            self.values[range].copy_from_slice(&into_vec(gradient));
        }
    }
}

/// Which tensor each parameter is that a visit comes to: found by a network whose tensors hold their own number.
fn visiting_order(dims: &Dims, layout: &Layout) -> Vec<usize> {
    struct Numbers(Vec<usize>);
    impl ModuleVisitor<Flex> for Numbers {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<Flex, D>>) {
            // Float32 counts far beyond the number of tensors.
            self.0.push(into_vec(param.val())[0] as usize);
        }
    }
    let mut values = vec![0.0; layout.count()];
    for (i, entry) in layout.entries().iter().enumerate() {
        values[entry.range.clone()].fill(i as f32);
    }
    let mut numbers = Numbers(Vec::new());
    layout.model::<Flex>(dims, &values).visit(&mut numbers);
    assert_eq!(numbers.0.len(), layout.entries().len(), "parameters visited and tensors loaded");
    numbers.0
}
