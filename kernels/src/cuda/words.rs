//! The words that the kernels are written in, one by one (`cuda/words.cu`): for tests and for the check of a device.

use super::modules::Function;
use super::{CudaError, Precision, Slice, SliceMut, Stream, aligned};

/// What one warp does; a lane's results are eight 32-bit values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Words {
    /// Of 64 float32 values, two a lane: as float16 pair and single, both halves back; as bfloat16 single and back; as pair, and the
    /// upper half back.
    Convert,
    /// Of 32 float32 values: `2^x`, `1 / x`, `1 / sqrt(x^2 + 1)`, `erf(x)`, `x * 1.1`, that plus 0.3 in two roundings, `x / 1.1`, and
    /// `x * 1.1 + 0.3` in one.
    Functions,
    /// Of 32 float32 values: what lanes bring whose index differs in bit 0 to 4, the sum of all, the larger of it and minus infinity, the
    /// lane's index.
    Exchange,
    /// Of four 8 x 8 matrices of 16-bit values: a lane's parts, and those of the transposed matrices.
    Matrices,
    /// Of 128 values: sixteen bytes a lane without every third, eight bytes a lane without every third: those of the lane whose index
    /// differs in bit 0. Two results are left alone.
    Copies,
    /// `d + a b` over a depth of 32, from eight, four and four values a lane; four results, the others are left alone.
    Multiply(Precision),
}

/// As `cuda/words.cu` takes them.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Arguments {
    input: u64,
    out: u64,
}

/// Results of a warp.
pub const RESULTS: usize = 8 * 32;

impl Words {
    /// Values that it reads.
    pub fn inputs(self) -> usize {
        match self {
            Words::Convert => 64,
            Words::Functions | Words::Exchange => 32,
            Words::Matrices | Words::Copies => 128,
            Words::Multiply(_) => 16 * 32,
        }
    }

    /// Runs it.
    ///
    /// # Errors
    /// [`CudaError::NoBf16`], or if it can't be queued.
    ///
    /// # Panics
    /// If there are not as many values as it reads and writes.
    pub fn run(
        self,
        stream: &Stream,
        input: Slice<'_, u32>,
        out: SliceMut<'_, u32>,
    ) -> Result<(), CudaError> {
        assert_eq!((input.len(), out.len()), (self.inputs(), RESULTS), "{self:?}");
        let name = match self {
            Words::Convert => "words_convert".to_owned(),
            Words::Functions => "words_functions".to_owned(),
            Words::Exchange => "words_exchange".to_owned(),
            Words::Matrices => "words_matrices".to_owned(),
            Words::Copies => "words_copies".to_owned(),
            Words::Multiply(precision) => {
                precision.check(stream.gpu().properties().capability)?;
                format!("words_multiply_{}", precision.name())
            }
        };
        let function = {
            // Copies have the most: 128 values and 64.
            Function::find(stream.gpu(), &name, 32, 192 * 4)?
        };
        let arguments = Arguments { input: aligned(input.at(stream)), out: aligned(out.at(stream)) };
        // SAFETY: the struct is the kernel's, and both were measured above.
        unsafe { stream.launch(&function, [1, 1, 1], &arguments) }
    }
}
