//! The loss: cross entropy of every pixel and soft Dice of every class that an image shows, and its gradient.
//!
//! Cross entropy alone is decided by background and clothes. Dice weighs lips and socks as much as those, and is
//! close to what is measured in the end, the intersection over union. Works on slices; knows no backend.

use pulp::NullaryFnOnce;
use sapiens_portable::ops::exp;

/// What the parts of the loss weigh.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Weights {
    /// Of the Dice loss, beside a cross entropy of weight one.
    pub dice: f32,
    /// Share of the truth that is spread over all classes in the cross entropy.
    pub smoothing: f32,
}

/// Pixels from which on a class counts as shown. Fewer are lost in a frame, and in the measure, too.
const MIN_PIXELS: f64 = 8.0;

/// Added to both sides of Dice's fraction: pixels. Keeps classes of a pixel or two from shaking everything.
const DICE_EPSILON: f64 = 4.0;

/// The parts of one image's loss.
#[derive(Debug, Clone, Copy, PartialEq, Default, serde::Serialize, serde::Deserialize)]
pub struct Loss {
    /// Mean cross entropy of the pixels, in nats.
    pub cross_entropy: f64,
    /// Mean over the classes shown of one minus the soft Dice coefficient.
    pub dice: f64,
}

/// One image: `logits` are `[pixels, classes]`, `labels` `[pixels]`, each less than `classes`. Replaces `logits` by
/// `scale` times the gradient of the weighted loss.
///
/// # Panics
/// If the lengths don't agree.
pub fn loss_and_gradient(
    logits: &mut [f32],
    labels: &[u8],
    classes: usize,
    weights: Weights,
    scale: f32,
) -> Loss {
    assert_eq!(logits.len(), labels.len() * classes, "logits of {} pixels", labels.len());
    let arch = pulp::Arch::new();
    let log_sum =
        arch.dispatch(Softmax { logits: &mut *logits, labels, classes, smoothing: weights.smoothing });
    let cross_entropy = log_sum / labels.len() as f64;
    // Per class: pixels, share of all pixels' probability, and of that on its own pixels.
    let mut sizes = vec![0f64; classes];
    let mut shares = vec![0f64; classes];
    let mut hits = vec![0f64; classes];
    for (chunk, labels) in logits.chunks(classes << 10).zip(labels.chunks(1 << 10)) {
        // Float32 within a thousand pixels, float64 across.
        let mut sums = vec![0f32; classes];
        for (pixel, &label) in chunk.chunks_exact(classes).zip(labels) {
            sums.iter_mut().zip(pixel).for_each(|(sum, p)| *sum += p);
            sizes[usize::from(label)] += 1.0;
            hits[usize::from(label)] += f64::from(pixel[usize::from(label)]);
        }
        shares.iter_mut().zip(sums).for_each(|(share, sum)| *share += f64::from(sum));
    }
    let shown = sizes.iter().filter(|&&size| size >= MIN_PIXELS).count().max(1) as f64;
    let mut dice = 0.0;
    // Slope of the Dice loss by a class's probability: on its own pixels it is the sum of the two.
    let (mut everywhere, mut own) = (vec![0f32; classes], vec![0f32; classes]);
    for c in 0..classes {
        if sizes[c] >= MIN_PIXELS {
            let whole = shares[c] + sizes[c] + DICE_EPSILON;
            let coefficient = (2.0 * hits[c] + DICE_EPSILON) / whole;
            dice += (1.0 - coefficient) / shown;
            everywhere[c] = (coefficient / whole / shown) as f32 * weights.dice;
            own[c] = (-2.0 / whole / shown) as f32 * weights.dice;
        }
    }
    arch.dispatch(Gradient {
        shares: logits,
        labels,
        classes,
        everywhere: &everywhere,
        own: &own,
        smoothing: weights.smoothing,
        scale,
    });
    Loss { cross_entropy, dice }
}

/// Replaces logits by the classes' probabilities; returns the sum of the pixels' cross entropies.
struct Softmax<'a> {
    logits: &'a mut [f32],
    labels: &'a [u8],
    classes: usize,
    smoothing: f32,
}

impl NullaryFnOnce for Softmax<'_> {
    type Output = f64;

    #[inline(always)]
    fn call(self) -> f64 {
        let Self { logits, labels, classes, smoothing } = self;
        let mut total = 0.0;
        // Blocks that stay in the cache, so that the exponentials are one long loop.
        for (block, labels) in logits.chunks_mut(classes << 7).zip(labels.chunks(1 << 7)) {
            for (pixel, &label) in block.chunks_exact_mut(classes).zip(labels) {
                let max = pixel.iter().fold(f32::NEG_INFINITY, |m, &x| if x > m { x } else { m });
                let mut sum = 0.0;
                for x in pixel.iter_mut() {
                    *x -= max;
                    sum += *x;
                }
                let own = pixel[usize::from(label)];
                total -= f64::from((1.0 - smoothing) * own + smoothing * sum / classes as f32);
            }
            block.iter_mut().for_each(|x| *x = exp(*x));
            for pixel in block.chunks_exact_mut(classes) {
                let sum: f32 = pixel.iter().sum();
                total += f64::from(sum.ln());
                let inverse = 1.0 / sum;
                pixel.iter_mut().for_each(|x| *x *= inverse);
            }
        }
        total
    }
}

/// Replaces probabilities by the gradient of the logits.
struct Gradient<'a> {
    shares: &'a mut [f32],
    labels: &'a [u8],
    classes: usize,
    everywhere: &'a [f32],
    own: &'a [f32],
    smoothing: f32,
    scale: f32,
}

impl NullaryFnOnce for Gradient<'_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let Self { shares, labels, classes, everywhere, own, smoothing, scale } = self;
        let per_pixel = scale / labels.len() as f32;
        let spread = smoothing / classes as f32;
        let everywhere = &everywhere[..classes];
        for (pixel, &label) in shares.chunks_exact_mut(classes).zip(labels) {
            let label = usize::from(label);
            let share = pixel[label];
            let mean: f32 =
                pixel.iter().zip(everywhere).map(|(p, d)| p * d).sum::<f32>() + share * own[label];
            for (p, d) in pixel.iter_mut().zip(everywhere) {
                *p = scale * *p * (d - mean) + per_pixel * (*p - spread);
            }
            pixel[label] += scale * share * own[label] - per_pixel * (1.0 - smoothing);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WEIGHTS: Weights = Weights { dice: 0.7, smoothing: 0.1 };

    fn value(loss: Loss) -> f64 {
        loss.cross_entropy + f64::from(WEIGHTS.dice) * loss.dice
    }

    #[test]
    fn gradient_is_the_slope() {
        let classes = 5;
        // Class 3 isn't shown, and 4 is a speck: Dice doesn't count it.
        let labels = [[0, 1, 1, 2, 0, 0].repeat(8), vec![4; MIN_PIXELS as usize - 1]].concat();
        let logits: Vec<f32> = (0..labels.len() * classes).map(|i| (i as f32 * 1.7).sin() * 2.0).collect();
        let of =
            |logits: &[f32]| value(loss_and_gradient(&mut logits.to_vec(), &labels, classes, WEIGHTS, 1.0));
        let mut gradient = logits.clone();
        loss_and_gradient(&mut gradient, &labels, classes, WEIGHTS, 3.0);
        for i in 0..logits.len() {
            // Wide enough for float32 values, narrow enough for the loss to be straight.
            let step = 0.01;
            let moved = |by| {
                let mut logits = logits.clone();
                logits[i] += by;
                of(&logits)
            };
            let slope = 3.0 * (moved(step) - moved(-step)) / (2.0 * f64::from(step));
            assert!((f64::from(gradient[i]) - slope).abs() < 5e-5, "{i}: {} and {slope}", gradient[i]);
        }
    }

    #[test]
    fn by_hand() {
        // Eight pixels of each of two classes, equal logits: cross entropy ln 2. Dice of each: shares 8, size 8, hits 4.
        let labels = [0, 1].repeat(8);
        let weights = Weights { dice: 1.0, smoothing: 0.0 };
        let loss = loss_and_gradient(&mut [0.3; 32], &labels, 2, weights, 1.0);
        assert!((loss.cross_entropy - std::f64::consts::LN_2).abs() < 1e-6);
        let dice = 1.0 - (8.0 + DICE_EPSILON) / (16.0 + DICE_EPSILON);
        assert!((loss.dice - dice).abs() < 1e-6);
        // One pixel less of class 1, and Dice is class 0's alone: shares 7.5, size 8, hits 4.
        let loss = loss_and_gradient(&mut [0.3; 30], &labels[..15], 2, weights, 1.0);
        let dice = 1.0 - (8.0 + DICE_EPSILON) / (15.5 + DICE_EPSILON);
        assert!((loss.dice - dice).abs() < 1e-6);
    }

    #[test]
    fn certainty_costs_nothing() {
        let labels = [[0; 8], [1; 8]].concat();
        let sure = |&label: &u8| if label == 0 { [40.0, 0.0] } else { [0.0, 40.0] };
        let weights = Weights { dice: 1.0, smoothing: 0.0 };
        let mut logits: Vec<f32> = labels.iter().flat_map(sure).collect();
        let loss = loss_and_gradient(&mut logits, &labels, 2, weights, 1.0);
        assert!(loss.cross_entropy.abs() < 1e-6 && loss.dice.abs() < 1e-6, "{loss:?}");
        assert!(logits.iter().all(|g| g.abs() < 1e-6));
        // Sure and wrong: Dice is all but one.
        let mut logits: Vec<f32> =
            labels.iter().map(|label| 1 - label).flat_map(|label| sure(&label)).collect();
        assert!(loss_and_gradient(&mut logits, &labels, 2, weights, 1.0).dice > 0.75);
    }
}
