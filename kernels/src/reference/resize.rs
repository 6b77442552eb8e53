//! OpenCV's resizes of 8-bit images `[height, width, 3]`, one output value after the other. Rounding is part of the
//! definition, so each step has the type and the order that OpenCV gives it.

const C: usize = 3;

/// `INTER_LINEAR`: half-pixel centres, weights rounded to 1/2048, in fixed point. Sizes are (width, height).
pub fn resize_linear(src: &[u8], from: (usize, usize), to: (usize, usize)) -> Vec<u8> {
    fixed_point(src, from, to, |i, n, o| {
        let position = ((i as f64 + 0.5) * step(n, o) - 0.5) as f32;
        (position.floor() as isize, position - position.floor())
    })
}

/// `INTER_AREA`: the mean over each pixel's source area where neither side grows, else two fixed-point taps per axis.
/// Sizes are (width, height).
pub fn resize_area(src: &[u8], from: (usize, usize), to: (usize, usize)) -> Vec<u8> {
    if from == to {
        return src.to_vec();
    }
    if to.0 > from.0 || to.1 > from.1 {
        return fixed_point(src, from, to, |i, n, o| {
            let first = (i as f64 * step(n, o)).floor();
            let share = ((i + 1) as f64 - (first + 1.0) * (o as f64 / n as f64)) as f32;
            (first as isize, if share <= 0.0 { 0.0 } else { share - share.floor() })
        });
    }
    let whole = |n: usize, o: usize| (step(n, o) - step(n, o).round()).abs() < f64::EPSILON;
    if whole(from.0, to.0) && whole(from.1, to.1) {
        let (step_x, step_y) = (step(from.0, to.0) as usize, step(from.1, to.1) as usize);
        return each_value(to, |x, y, c| {
            let mut sum = 0u32;
            for row in y * step_y..(y + 1) * step_y {
                for column in x * step_x..(x + 1) * step_x {
                    sum += u32::from(src[(row * from.0 + column) * C + c]);
                }
            }
            match (step_x, step_y) {
                (2, 2) => ((sum + 2) / 4) as u8,
                _ => to_byte(sum as f32 * (1.0 / (step_x * step_y) as f32)),
            }
        });
    }
    let columns: Vec<_> = (0..to.0).map(|x| shares(x, from.0, to.0)).collect();
    let rows: Vec<_> = (0..to.1).map(|y| shares(y, from.1, to.1)).collect();
    each_value(to, |x, y, c| {
        let mut sum = 0.0f32;
        for &(row, weight) in &rows[y] {
            let mut row_sum = 0.0f32;
            for &(column, weight) in &columns[x] {
                row_sum += f32::from(src[(row * from.0 + column) * C + c]) * weight;
            }
            sum += row_sum * weight;
        }
        to_byte(sum)
    })
}

/// `INTER_CUBIC`: 4 x 4 taps, a = -0.75, half-pixel centres, edge pixels repeated, weights and sums in float32.
/// Sizes are (width, height).
pub fn resize_cubic(src: &[u8], from: (usize, usize), to: (usize, usize)) -> Vec<u8> {
    const A: f64 = -0.75;
    let taps = |i: usize, n: usize, o: usize| {
        let position = (i as f64 + 0.5) * step(n, o) - 0.5;
        let t = position - position.floor();
        let inner = |x: f64| (A + 2.0) * x * x * x - (A + 3.0) * x * x + 1.0;
        let outer = |x: f64| A * x * x * x - 5.0 * A * x * x + 8.0 * A * x - 4.0 * A;
        let weights = [outer(t + 1.0), inner(t), inner(1.0 - t), outer(2.0 - t)].map(|w| w as f32);
        let first = position.floor() as isize - 1;
        [0, 1, 2, 3].map(|k| (clamp(first + k as isize, n), weights[k]))
    };
    each_value(to, |x, y, c| {
        let row_sum = |row: usize| {
            let columns = taps(x, from.0, to.0);
            columns
                .iter()
                .map(|&(column, w)| f32::from(src[(row * from.0 + column) * C + c]) * w)
                .sum::<f32>()
        };
        let [a, b, c, d] = taps(y, from.1, to.1).map(|(row, weight)| row_sum(row) * weight);
        to_byte(a + (b + (c + d)))
    })
}

/// Two taps per axis with integer weights of 2048ths. `position` gives the first index and the second one's share.
fn fixed_point(
    src: &[u8],
    from: (usize, usize),
    to: (usize, usize),
    position: impl Fn(usize, usize, usize) -> (isize, f32),
) -> Vec<u8> {
    let integer = |share: f32| ((1.0 - share) * 2048.0, share * 2048.0);
    let integer =
        |share| (integer(share).0.round_ties_even() as i32, integer(share).1.round_ties_even() as i32);
    each_value(to, |x, y, c| {
        let (column, share) = position(x, from.0, to.0);
        // Along x a position off the image has the edge pixel alone; along y both rows are clamped.
        let (a0, a1) = if column < 0 || column >= from.0 as isize - 1 { (2048, 0) } else { integer(share) };
        let row_sum = |row: isize| {
            let value =
                |column| i32::from(src[(clamp(row, from.1) * from.0 + clamp(column, from.0)) * C + c]);
            value(column) * a0 + value(column + 1) * a1
        };
        let (row, share) = position(y, from.1, to.1);
        let (b0, b1) = integer(share);
        let (upper, lower) = (row_sum(row) >> 4, row_sum(row + 1) >> 4);
        ((((b0 * upper) >> 16) + ((b1 * lower) >> 16) + 2) >> 2) as u8
    })
}

/// The source pixels under pixel `i` and the share of each in it; shares below a thousandth of a pixel are left out.
fn shares(i: usize, n: usize, o: usize) -> Vec<(usize, f32)> {
    let from = i as f64 * step(n, o);
    let to = from + step(n, o);
    let cell = step(n, o).min(n as f64 - from);
    let last = (to.floor() as usize).min(n - 1);
    let first = (from.ceil() as usize).min(last);
    let mut shares = Vec::new();
    if first as f64 - from > 1e-3 {
        shares.push((first - 1, ((first as f64 - from) / cell) as f32));
    }
    shares.extend((first..last).map(|pixel| (pixel, (1.0 / cell) as f32)));
    if to - last as f64 > 1e-3 {
        shares.push((last, ((to - last as f64).min(1.0).min(cell) / cell) as f32));
    }
    shares
}

fn each_value(size: (usize, usize), value: impl Fn(usize, usize, usize) -> u8) -> Vec<u8> {
    let (width, height) = size;
    (0..width * height * C).map(|i| value(i / C % width, i / C / width, i % C)).collect()
}

/// Source length per destination pixel, rounded as OpenCV's is.
fn step(n: usize, o: usize) -> f64 {
    1.0 / (o as f64 / n as f64)
}

fn clamp(i: isize, n: usize) -> usize {
    i.clamp(0, n as isize - 1) as usize
}

fn to_byte(value: f32) -> u8 {
    value.round_ties_even().clamp(0.0, 255.0) as u8
}
