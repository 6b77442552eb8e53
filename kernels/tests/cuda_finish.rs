//! What follows products that are stored already, on the GPU against the naive ones: everything that can follow, with gaps between
//! rows and without, at sizes around those of blocks. Outputs are no numbers before, and gaps stay as they are.

#![cfg(feature = "cuda")]
#![allow(clippy::unwrap_used, reason = "test code")]

mod support;

use sapiens_kernels::cuda::finish::Finish;
use sapiens_kernels::cuda::product::Out;
use sapiens_kernels::cuda::{Buffer, Plain, Precision, Slice, Stream};
use sapiens_kernels::reference;
use support::gpu;

/// Rows and columns: less than a thread, a block's rows and one beside them, more columns than a warp has, more of both than a block.
const SIZES: [[usize; 2]; 9] =
    [[1, 4], [7, 20], [63, 68], [64, 4], [64, 260], [65, 20], [65, 260], [130, 4], [130, 68]];
/// Values before and behind what is written, which stay as they are.
const GUARD: usize = 8;

/// A map with `gap` values between its rows, a guard before the first and one behind the last; what lies between is no number.
struct Map<T> {
    buffer: Buffer<T>,
    size: [usize; 2],
    stride: usize,
}

impl<T: Plain + Default + PartialEq> Map<T> {
    /// With these values, or with none.
    fn new(stream: &Stream, size @ [rows, columns]: [usize; 2], gap: usize, values: Option<&[T]>) -> Self {
        let stride = columns + gap;
        let mut map = Self { buffer: gpu::poisoned(stream, 2 * GUARD + rows * stride), size, stride };
        for (row, values) in values.into_iter().flat_map(|values| values.chunks_exact(columns).enumerate()) {
            let at = GUARD + row * stride;
            stream.upload(values, map.buffer.slice_mut(at..at + columns)).unwrap();
        }
        map
    }

    /// From the first row to the end of the last.
    fn range(&self) -> std::ops::Range<usize> {
        let [rows, columns] = self.size;
        GUARD..GUARD + (rows - 1) * self.stride + columns
    }

    fn slice(&self) -> Slice<'_, T> {
        self.buffer.slice(self.range())
    }

    fn out(&mut self) -> Out<'_, T> {
        let range = self.range();
        Out { values: self.buffer.slice_mut(range), stride: self.stride }
    }

    /// The values without gaps, in which nothing may have changed; `bits` makes numbers of them that can be compared.
    fn values(&self, stream: &Stream, what: &str, bits: impl Fn(&T) -> u32) -> Vec<T> {
        let all = gpu::download(stream, &self.buffer);
        let (range, columns) = (self.range(), self.size[1]);
        // All ones, as many as there are bits.
        let poison = u32::MAX >> (32 - 8 * size_of::<T>());
        let inside = |at: usize| range.contains(&at) && (at - GUARD) % self.stride < columns;
        let changed = |&at: &usize| !inside(at) && bits(&all[at]) != poison;
        assert_eq!((0..all.len()).find(changed), None, "{what}: written to between rows or beside them");
        (0..all.len()).filter(|&at| inside(at)).map(|at| all[at]).collect()
    }
}

/// What is done in one precision, to one size.
struct Run<'a> {
    stream: &'a Stream,
    precision: Precision,
    finish: &'a Finish,
    size: [usize; 2],
    raw: Vec<u16>,
    bias: Vec<f32>,
    on_device: Buffer<f32>,
}

impl<'a> Run<'a> {
    fn new(stream: &'a Stream, precision: Precision, finish: &'a Finish, size: [usize; 2]) -> Self {
        let [rows, columns] = size;
        let raw = support::generated("x", &[rows, columns, 1], 6);
        // Up to four or five, where GELU and SiLU are curved and beyond.
        let spread = 2.5 * (columns as f32).sqrt();
        let raw = raw.iter().map(|x| precision.encode(x * spread)).collect();
        let bias: Vec<f32> = support::generated("b", &[columns, 1], 6).iter().map(|b| b * 0.7).collect();
        let on_device = gpu::upload(stream, &bias);
        Self { stream, precision, finish, size, raw, bias, on_device }
    }

    fn bias(&self, biased: bool) -> Option<Slice<'_, f32>> {
        biased.then(|| self.on_device.slice(..))
    }

    /// The values with their bias, to be done the rest with.
    fn naive(&self, biased: bool) -> Vec<f32> {
        let columns = self.size[1];
        let bias = |at: usize| if biased { self.bias[at % columns] } else { 0.0 };
        self.raw.iter().enumerate().map(|(at, &x)| self.precision.decode(x) + bias(at)).collect()
    }

    fn stored(&self, gap: usize) -> Map<u16> {
        Map::new(self.stream, self.size, gap, Some(&self.raw))
    }

    /// Each value within the rounding of its stored form.
    fn assert_stored(&self, what: &str, actual: &Map<u16>, expected: &[f32]) {
        let actual = actual.values(self.stream, what, |&bits| bits.into());
        let actual: Vec<f32> = actual.into_iter().map(|bits| self.precision.decode(bits)).collect();
        // What is smaller than float16's smallest normal number is rounded to a multiple of 2^-24.
        self.assert_close(what, gpu::rounding(self.precision), &actual, expected);
    }

    fn assert_close(&self, what: &str, rounding: f32, actual: &[f32], expected: &[f32]) {
        assert_eq!(actual.len(), expected.len(), "{what}");
        for (at, (a, e)) in actual.iter().zip(expected).enumerate() {
            // The functions' own errors, and float32's.
            let tolerance = (rounding + 1e-6) * e.abs() + 1e-6;
            assert!(
                (a - e).abs() <= tolerance,
                "{:?} {:?}, {what}: {a} at {at} instead of {e}",
                self.precision,
                self.size
            );
        }
    }
}

/// Runs a check of every size in every precision of every device.
fn each(check: impl Fn(&Run<'_>)) {
    gpu::each(|stream, precision| {
        let finish = Finish::new(stream.gpu(), precision).unwrap();
        for size in SIZES {
            check(&Run::new(stream, precision, &finish, size));
        }
    });
}

#[cfg_attr(test, test)]
pub(crate) fn gelu_agrees_with_the_naive_one() {
    each(|run| {
        for gap in [0, 12] {
            for biased in [false, true] {
                let mut map = run.stored(gap);
                run.finish.gelu_in_place(run.stream, map.out(), run.size, run.bias(biased)).unwrap();
                let mut expected = run.naive(biased);
                reference::gelu(&mut expected);
                run.assert_stored(&format!("gelu, biased: {biased}"), &map, &expected);
            }
        }
    });
}

#[cfg_attr(test, test)]
pub(crate) fn swiglu_agrees_with_the_naive_one() {
    each(|run| {
        let [rows, columns] = run.size;
        let raw = run.stored(0);
        for (biased, gap) in [(false, 0), (true, 6)] {
            let mut out = Map::new(run.stream, [rows, columns / 2], gap, None);
            run.finish.swiglu(run.stream, raw.slice(), run.size, run.bias(biased), out.out()).unwrap();
            let naive = run.naive(biased);
            let halves: Vec<f32> = naive
                .chunks_exact(columns)
                .flat_map(|row| row.iter().step_by(2).chain(row.iter().skip(1).step_by(2)).copied())
                .collect();
            let expected = reference::swiglu(&halves, columns / 2);
            run.assert_stored(&format!("swiglu, biased: {biased}"), &out, &expected);
        }
    });
}

#[cfg_attr(test, test)]
pub(crate) fn sums_agree_with_the_naive_ones() {
    each(|run| {
        let [rows, columns] = run.size;
        let raw = run.stored(0);
        let before = support::generated("before", &[rows, columns], 6);
        let gamma: Vec<f32> = support::generated("gamma", &[columns], 6);
        let scale = gpu::upload(run.stream, &gamma);
        for (biased, scaled, gap) in [(false, false, 0), (false, true, 4), (true, false, 4), (true, true, 0)]
        {
            let mut out = Map::new(run.stream, run.size, gap, Some(&before));
            let by = scaled.then(|| scale.slice(..));
            run.finish.add(run.stream, raw.slice(), run.size, run.bias(biased), by, out.out()).unwrap();
            let mut expected = before.clone();
            reference::scale_residual(&mut expected, &run.naive(biased), scaled.then_some(&gamma[..]));
            let what = format!("add, biased: {biased}, scaled: {scaled}");
            let actual = out.values(run.stream, &what, |x| x.to_bits());
            run.assert_close(&what, 0.0, &actual, &expected);
        }
    });
}

#[cfg_attr(test, test)]
pub(crate) fn moments_agree_with_the_naive_ones() {
    each(|run| {
        let columns = run.size[1];
        // Channels far from zero too: a sum of squares would lose their distances.
        let shifted = |(at, &x): (usize, &u16)| {
            run.precision.encode(run.precision.decode(x) * 0.5 + 30.0 * (at % columns % 3) as f32)
        };
        let values: Vec<u16> = run.raw.iter().enumerate().map(shifted).collect();
        let exact: Vec<f64> = values.iter().map(|&x| f64::from(run.precision.decode(x))).collect();
        let mut expected = Vec::new();
        for block in exact.chunks(Finish::MOMENT_ROWS * columns) {
            let of = |column: usize| block.iter().skip(column).step_by(columns);
            let count = (block.len() / columns) as f64;
            let means: Vec<f64> = (0..columns).map(|column| of(column).sum::<f64>() / count).collect();
            let square = |column: usize| of(column).map(|x| (x - means[column]).powi(2)).sum::<f64>() as f32;
            expected.extend(means.iter().map(|&mean| mean as f32));
            expected.extend((0..columns).map(square));
        }
        for gap in [0, 12] {
            let map = Map::new(run.stream, run.size, gap, Some(&values));
            let blocks = Finish::moment_blocks(run.size);
            assert_eq!(blocks.len(), expected.len());
            let mut out = Map::new(run.stream, [1, blocks.len()], 0, None);
            run.finish.moments(run.stream, map.slice(), map.stride, run.size, out.out().values).unwrap();
            let actual = out.values(run.stream, "moments", |x| x.to_bits());
            // A mean's error is that of a sum of values of up to 64; squared, it counts as often as there are rows.
            run.assert_close("moments", 1e-5, &actual, &expected);
        }
    });
}

#[test]
fn nothing_is_finished_without_rows() {
    fn out<T: Plain>(buffer: &mut Buffer<T>) -> Out<'_, T> {
        Out { values: buffer.slice_mut(..), stride: 4 }
    }
    gpu::each(|stream, precision| {
        let finish = Finish::new(stream.gpu(), precision).unwrap();
        let raw = gpu::poisoned::<u16>(stream, 0);
        let (mut stored, mut sums) = (gpu::poisoned(stream, 0), gpu::poisoned(stream, 0));
        let size = [0, 4];
        finish.gelu_in_place(stream, out(&mut stored), size, None).unwrap();
        finish.swiglu(stream, raw.slice(..), size, None, out(&mut stored)).unwrap();
        finish.add(stream, raw.slice(..), size, None, None, out(&mut sums)).unwrap();
        finish.moments(stream, raw.slice(..), 4, size, sums.slice_mut(..)).unwrap();
        stream.synchronize().unwrap();
    });
}

/// Lengths and strides with which all of it would work, for three rows of eight columns, unless one is changed.
#[cfg(test)]
struct Lengths {
    raw: usize,
    bias: usize,
    scale: usize,
    out: usize,
    moments: usize,
    size: [usize; 2],
    stride: usize,
    out_stride: usize,
    /// Where buffers begin.
    from: usize,
}

#[cfg(test)]
const RIGHT: Lengths = Lengths {
    raw: 24,
    bias: 8,
    scale: 8,
    out: 24,
    moments: 16,
    size: [3, 8],
    stride: 8,
    out_stride: 8,
    from: 0,
};

/// What is said of these lengths when something is asked for; nothing where it works.
#[cfg(test)]
fn refusal(operation: &str, lengths: &Lengths) -> String {
    let &Lengths { raw, bias, scale, out, moments, size, stride, out_stride, from } = lengths;
    let panic = std::panic::catch_unwind(|| {
        let stream = &Stream::new(&gpu::all()[0]).unwrap();
        let finish = Finish::new(stream.gpu(), Precision::F16).unwrap();
        let values = gpu::poisoned::<u16>(stream, from + raw);
        let [bias, scale] = [bias, scale].map(|len| gpu::poisoned::<f32>(stream, from + len));
        let (raw, bias, scale) = (values.slice(from..), bias.slice(from..), scale.slice(from..));
        let mut stored = gpu::poisoned(stream, from + out);
        let mut sums = gpu::poisoned(stream, from + out);
        let mut to = gpu::poisoned(stream, from + moments);
        let stored = Out { values: stored.slice_mut(from..), stride: out_stride };
        let sums = Out { values: sums.slice_mut(from..), stride: out_stride };
        let done = match operation {
            "gelu" => finish.gelu_in_place(stream, stored, size, Some(bias)),
            "swiglu" => finish.swiglu(stream, raw, size, Some(bias), stored),
            "add" => finish.add(stream, raw, size, Some(bias), Some(scale), sums),
            _ => finish.moments(stream, raw, stride, size, to.slice_mut(from..)),
        };
        done.unwrap();
        stream.synchronize().unwrap();
    });
    panic.err().map_or_else(String::new, |panic| {
        let text = panic.downcast_ref::<String>().cloned();
        text.or_else(|| panic.downcast_ref::<&str>().map(|&text| text.to_owned())).unwrap()
    })
}

#[test]
fn sizes_are_checked() {
    let all = ["gelu", "swiglu", "add", "moments"];
    for operation in all {
        assert_eq!(refusal(operation, &RIGHT), "", "{operation}");
        let none = refusal(operation, &Lengths { from: 1, ..RIGHT });
        assert!(none.contains("no multiple of 16 bytes"), "{operation}: {none}");
        let odd = refusal(operation, &Lengths { size: [3, 6], ..RIGHT });
        assert!(odd.contains("in rows of 6, "), "{operation}: {odd}");
    }
    let is_refused = |operation: &str, lengths: Lengths, why: &str| {
        let said = refusal(operation, &lengths);
        assert!(said.contains(why), "{operation}: {said:?} instead of {why:?}");
    };
    for operation in &all[..3] {
        is_refused(operation, Lengths { bias: 7, ..RIGHT }, "finish: biases for 8 columns");
    }
    is_refused("add", Lengths { scale: 7, ..RIGHT }, "finish: scales for 8 columns");
    for operation in ["gelu", "add"] {
        is_refused(operation, Lengths { out: 23, ..RIGHT }, "finish: 23 results in 3 rows of 8");
        is_refused(operation, Lengths { out_stride: 4, ..RIGHT }, "results in rows of 8, 4 apart");
        let wide = Lengths { out: 40, out_stride: 10, ..RIGHT };
        is_refused(operation, wide, "results in rows of 8, 10 apart");
    }
    is_refused("swiglu", Lengths { out: 11, out_stride: 4, ..RIGHT }, "finish: 11 results in 3 rows of 4");
    is_refused("swiglu", Lengths { out_stride: 5, ..RIGHT }, "results in rows of 4, 5 apart");
    for operation in &all[1..] {
        is_refused(operation, Lengths { raw: 23, ..RIGHT }, "finish: 23 values in 3 rows of 8");
    }
    is_refused("moments", Lengths { raw: 40, stride: 10, ..RIGHT }, "values in rows of 8, 10 apart");
    is_refused("moments", Lengths { stride: 4, ..RIGHT }, "values in rows of 8, 4 apart");
    is_refused("moments", Lengths { moments: 15, ..RIGHT }, "finish: 15 moments");
}
