//! From gradients to the next parameters: Muon for the large matrices, AdamW for the rest, and a running mean.
//!
//! Muon's step for a matrix is its momentum with all singular values made about one, so that directions that
//! rarely get a gradient are learnt as fast as the loud ones; a short training gains much by it. Scaled so that its
//! elements are as large as AdamW's, the two share a learning rate and weight decay.

use rayon::prelude::*;
use sapiens_portable::{Matrix, product};

use crate::parameters::{Entry, Kind, Layout};
use crate::recipe::Recipe;

/// Momentum of the matrices.
const MOMENTUM: f32 = 0.95;
/// AdamW: of the mean and of the mean square.
const BETAS: [f32; 2] = [0.9, 0.98];
const EPSILON: f32 = 1e-8;
/// Root mean square of an AdamW step's elements, by experience, in units of the learning rate.
const STEP_SIZE: f32 = 0.2;
/// The odd polynomial of degree five whose repetition brings singular values near one: coefficients that Keller
/// Jordan published with Muon.
const POLYNOMIAL: [f32; 3] = [3.4445, -4.7750, 2.0315];
const REPETITIONS: usize = 5;

/// Parameters and all that the optimiser remembers of them, each in the layout's order.
#[derive(Debug, Clone, PartialEq)]
pub struct State {
    /// Steps taken.
    pub step: u64,
    /// The parameters.
    pub values: Vec<f32>,
    /// Momentum.
    pub first: Vec<f32>,
    /// Mean square of the gradient, where AdamW is used.
    pub second: Vec<f32>,
    /// Running mean of the parameters: what is validated and exported.
    pub mean: Vec<f32>,
}

impl State {
    /// Before the first step.
    pub fn new(values: Vec<f32>) -> Self {
        let zeros = vec![0.0; values.len()];
        Self { step: 0, mean: values.clone(), values, first: zeros.clone(), second: zeros }
    }

    /// One step along `gradient`; returns the gradient's norm before clipping.
    pub fn advance(
        &mut self,
        layout: &Layout,
        recipe: &Recipe,
        learning_rate: f32,
        gradient: &mut [f32],
    ) -> f32 {
        self.step += 1;
        // In float64, where three million squares add up without loss.
        let norm = gradient.iter().map(|&g| f64::from(g) * f64::from(g)).sum::<f64>().sqrt() as f32;
        if norm > recipe.clip {
            let scale = recipe.clip / norm;
            gradient.iter_mut().for_each(|g| *g *= scale);
        }
        let mut tasks = Vec::new();
        let (mut values, mut first, mut second) =
            (self.values.as_mut_slice(), self.first.as_mut_slice(), self.second.as_mut_slice());
        for entry in layout.entries() {
            let count = entry.range.len();
            let parts = (values.split_at_mut(count), first.split_at_mut(count), second.split_at_mut(count));
            let ((v, values_left), (f, first_left), (s, second_left)) = parts;
            (values, first, second) = (values_left, first_left, second_left);
            tasks.push((entry, v, f, s));
        }
        let step = self.step;
        let decay = learning_rate * recipe.weight_decay;
        tasks.into_par_iter().for_each(|(entry, values, first, second)| {
            let gradient = &gradient[entry.range.clone()];
            if entry.kind != Kind::Offset {
                values.iter_mut().for_each(|x| *x -= decay * *x);
            }
            let rate = learning_rate * entry.part.rate();
            match entry.kind {
                Kind::Matrix => muon(entry, rate, values, first, gradient),
                Kind::Weight | Kind::Offset => adam(step, rate, values, first, second, gradient),
            }
        });
        // The first values are far from the last: a mean over few steps forgets them at once.
        let keep = recipe.ema.min((1.0 + self.step as f32) / (10.0 + self.step as f32));
        self.mean.iter_mut().zip(&self.values).for_each(|(m, x)| *m += (1.0 - keep) * (x - *m));
        norm
    }
}

fn adam(step: u64, rate: f32, values: &mut [f32], first: &mut [f32], second: &mut [f32], gradient: &[f32]) {
    let [c1, c2] = BETAS.map(|beta| 1.0 - f64::from(beta).powf(step as f64) as f32);
    for (((x, m), v), g) in values.iter_mut().zip(first).zip(second).zip(gradient) {
        *m += (1.0 - BETAS[0]) * (g - *m);
        *v += (1.0 - BETAS[1]) * (g * g - *v);
        *x -= rate * (*m / c1) / ((*v / c2).sqrt() + EPSILON);
    }
}

fn muon(entry: &Entry, rate: f32, values: &mut [f32], first: &mut [f32], gradient: &[f32]) {
    let rows = entry.shape[0];
    let columns = values.len() / rows;
    let mut ahead = Vec::with_capacity(values.len());
    for (m, g) in first.iter_mut().zip(gradient) {
        *m += (1.0 - MOMENTUM) * (g - *m);
        // Nesterov: where the momentum will be after this gradient once more.
        ahead.push(*m + (1.0 - MOMENTUM) * (g - *m));
    }
    let direction = orthogonal(ahead, rows, columns);
    let rate = rate * STEP_SIZE * (rows.max(columns) as f32).sqrt();
    values.iter_mut().zip(direction).for_each(|(x, d)| *x -= rate * d);
}

/// `[rows, columns]` with its singular vectors and singular values of about one, from 0.7 to 1.2.
fn orthogonal(matrix: Vec<f32>, rows: usize, columns: usize) -> Vec<f32> {
    let norm = matrix.iter().map(|x| x * x).sum::<f32>().sqrt();
    if norm == 0.0 {
        return matrix;
    }
    let tall = rows > columns;
    // The square below is as large as the first dimension: that should be the short one.
    let (m, n) = if tall { (columns, rows) } else { (rows, columns) };
    let mut x: Vec<f32> = if tall { transposed(&matrix, rows) } else { matrix };
    x.iter_mut().for_each(|x| *x /= norm);
    let [a, b, c] = POLYNOMIAL;
    for _ in 0..REPETITIONS {
        let wide = Matrix::dense(&x, n);
        let square = product([m, n, m], wide, wide.transposed());
        let mut factor = product([m, m, m], Matrix::dense(&square, m), Matrix::dense(&square, m));
        factor.iter_mut().zip(&square).for_each(|(f, s)| *f = b * s + c * *f);
        let moved = product([m, m, n], Matrix::dense(&factor, m), wide);
        x.iter_mut().zip(moved).for_each(|(x, moved)| *x = a * *x + moved);
    }
    if tall { transposed(&x, columns) } else { x }
}

/// Rows as columns of a matrix of `rows` rows.
fn transposed(matrix: &[f32], rows: usize) -> Vec<f32> {
    let columns = matrix.len() / rows;
    (0..columns).flat_map(|j| matrix[j..].iter().step_by(columns).copied()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn singular_values_near_one() {
        for (rows, columns) in [(6, 6), (4, 9), (9, 4)] {
            let matrix: Vec<f32> = (0..rows * columns).map(|i| ((i * i) as f32 * 0.37).sin()).collect();
            let x = orthogonal(matrix, rows, columns);
            // Rows or columns, whichever are fewer, have products near the identity.
            let (count, at): (usize, &dyn Fn(usize, usize) -> f32) = if rows <= columns {
                (rows, &|i, j| (0..columns).map(|k| x[i * columns + k] * x[j * columns + k]).sum())
            } else {
                (columns, &|i, j| (0..rows).map(|k| x[k * columns + i] * x[k * columns + j]).sum())
            };
            for i in 0..count {
                for j in 0..count {
                    let expected = if i == j { 1.0 } else { 0.0 };
                    assert!((at(i, j) - expected).abs() < 0.6, "{i}, {j}: {}", at(i, j));
                }
            }
        }
    }

    #[test]
    fn adam_first_step_is_the_rate() {
        let (mut x, mut m, mut v) = ([1.0f32, 2.0], [0.0; 2], [0.0; 2]);
        adam(1, 0.1, &mut x, &mut m, &mut v, &[3.0, -0.5]);
        assert!((x[0] - 0.9).abs() < 1e-5 && (x[1] - 2.1).abs() < 1e-5, "{x:?}");
    }
}
