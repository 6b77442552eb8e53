//! Where the kernels have the values of a checkpoint's tensors. What pads has two sizes, without and with the zeros.

use sapiens_kernels::cuda::pack::Gather;

/// As it is.
pub(super) fn whole(len: usize) -> Gather {
    padded([1, 1], [len, len])
}

/// A matrix with zeros below and beside it.
pub(super) fn padded(rows: [usize; 2], columns: [usize; 2]) -> Gather {
    gather(0, [1, 1, rows[1], columns[1]], [1, 1, rows[0], columns[0]], [0, 0, columns[0] as isize, 1])
}

/// So many heads' rows of `depth`, with zeros between the heads.
pub(super) fn heads(count: usize, rows: [usize; 2], depth: usize) -> Gather {
    let strides = [0, (rows[0] * depth) as isize, depth as isize, 1];
    gather(0, [1, count, rows[1], depth], [1, count, rows[0], depth], strides)
}

/// Rows of `depth` of the first half and of the second in turn, so many of each.
pub(super) fn in_turn(half: usize, depth: usize) -> Gather {
    let sizes = [1, half, 2, depth];
    gather(0, sizes, sizes, [0, depth as isize, (half * depth) as isize, 1])
}

/// The four phases of a ConvTranspose `[inputs, outputs, 4, 4]`, each `[outputs, 4, inputs]`: what
/// [`deconv_weights`](sapiens_kernels::cuda::product::deconv_weights) makes of padded ones.
pub(super) fn phases(inputs: [usize; 2], outputs: [usize; 2]) -> [Gather; 4] {
    // Even rows and columns get taps 1 and 3 of the kernel, odd ones 2 and 0.
    const TAPS: [(usize, isize); 2] = [(1, 2), (2, -2)];
    [0, 1, 2, 3].map(|phase| {
        let ((y, down), (x, right)) = (TAPS[phase / 2], TAPS[phase % 2]);
        let strides = [16, 4 * down, right, 16 * outputs[0] as isize];
        gather(4 * y + x, [outputs[1], 2, 2, inputs[1]], [outputs[0], 2, 2, inputs[0]], strides)
    })
}

fn gather(first: usize, sizes: [usize; 4], limits: [usize; 4], strides: [isize; 4]) -> Gather {
    Gather { first, sizes, limits, strides }
}
