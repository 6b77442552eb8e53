//! Elementwise nonlinearities, in float64 inside.

use super::rows;

/// GELU in its exact form: `x/2 * (1 + erf(x / sqrt 2))`.
pub fn gelu(x: &mut [f32]) {
    for x in x {
        let wide = f64::from(*x);
        *x = (0.5 * wide * (1.0 + erf(wide * std::f64::consts::FRAC_1_SQRT_2))) as f32;
    }
}

/// `x / (1 + exp(-x))`.
pub fn silu(x: &mut [f32]) {
    for x in x {
        *x = silu_of(f64::from(*x)) as f32;
    }
}

/// Each row of `x [rows, 2 * hidden]` is `[a | b]` and becomes `silu(a) * b`: `[rows, hidden]`.
pub fn swiglu(x: &[f32], hidden: usize) -> Vec<f32> {
    rows(x.len(), 2 * hidden, "swiglu");
    let gate = |row: &[f32]| {
        let (a, b) = row.split_at(hidden);
        a.iter().zip(b).map(|(&a, &b)| (silu_of(f64::from(a)) * f64::from(b)) as f32).collect::<Vec<_>>()
    };
    x.chunks_exact(2 * hidden).flat_map(gate).collect()
}

fn silu_of(x: f64) -> f64 {
    x / (1.0 + (-x).exp())
}

/// The error function by `2/sqrt(pi) * exp(-x^2) * sum of 2^n x^(2n+1) / (1 * 3 * ... * (2n+1))`. All terms have one
/// sign, so nothing cancels; from 6 on float64 can't tell it from 1.
fn erf(x: f64) -> f64 {
    if x.is_nan() || x.abs() >= 6.0 {
        return if x.is_nan() { x } else { x.signum() };
    }
    let mut term = x;
    let mut sum = x;
    let mut n = 1.0;
    while term.abs() > sum.abs() * f64::EPSILON / 4.0 {
        term *= 2.0 * x * x / (2.0 * n + 1.0);
        sum += term;
        n += 1.0;
    }
    std::f64::consts::FRAC_2_SQRT_PI * (-x * x).exp() * sum
}

#[cfg(test)]
mod tests {
    use super::erf;

    #[test]
    fn erf_has_its_tabulated_values() {
        for (x, expected) in [
            (0.0, 0.0),
            (0.5, 0.520_499_877_813_046_5),
            (1.0, 0.842_700_792_949_714_9),
            (2.0, 0.995_322_265_018_952_7),
            (3.5, 0.999_999_256_901_627_7),
            (5.5, 0.999_999_999_999_992_6),
            (7.0, 1.0),
        ] {
            assert!((erf(x) - expected).abs() < 2e-15, "erf({x}) is {}", erf(x));
            assert_eq!(erf(-x), -erf(x));
        }
        assert!(erf(f64::NAN).is_nan());
    }
}
