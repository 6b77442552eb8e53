//! AMX's tile registers: products of bfloat16 pairs, 16 by 16 sums at a time.
//!
//! There are eight registers of 16 rows of 64 bytes. Here four are sums, `32 x 32` of them, two are the left operand's
//! rows and two the right operand's columns: each tile that is loaded is multiplied twice, and a sum is added to
//! again only when its last product is finished. Both operands lie in units of 32 bits, pairs of bfloat16 that are neighbours
//! in k; 16 units of k are a step.
#![allow(unsafe_code)]

use std::arch::asm;
use std::marker::PhantomData;

use super::level::Amx;

/// Units of k that one product of tiles sums over.
pub(super) const DEPTH: usize = 16;
/// Rows of a tile, and columns of its sums.
pub(super) const SIDE: usize = 16;
/// A product of tiles' multiplications and additions.
const OPERATIONS: usize = 2 * 2 * DEPTH * SIDE * SIDE;

/// While it exists, this thread's tile registers are ready for use.
pub(super) struct Configured(PhantomData<*const ()>);

/// What LDTILECFG reads.
#[repr(C, align(64))]
struct Configuration {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

const _: () = assert!(size_of::<Configuration>() == 64);

/// All eight tiles whole: operands are padded.
static WHOLE: Configuration = {
    let (mut row_bytes, mut rows) = ([0; 16], [0; 16]);
    let mut tile = 0;
    while tile < 8 {
        (row_bytes[tile], rows[tile]) = (64, 16);
        tile += 1;
    }
    Configuration { palette: 1, start_row: 0, reserved: [0; 14], row_bytes, rows }
};

/// The operands of [`multiply`], distances in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Operands {
    /// Steps of k, at least one.
    pub steps: usize,
    /// The left operand's first row of the first step.
    pub a: *const u8,
    /// To its next row, its next [`SIDE`] rows, its next step.
    pub a_row: usize,
    pub a_band: usize,
    pub a_step: usize,
    /// The right operand's first unit of k; the second vector of columns is next to the first.
    pub b: *const u8,
    /// To its next unit of k.
    pub b_unit: usize,
    /// Sums, two vectors next to each other too.
    pub sums: *mut f32,
    pub sums_row: usize,
    /// Whether the sums begin at zero, else at what they are.
    pub first: bool,
}

impl Configured {
    #[inline]
    pub(super) fn new(_: Amx) -> Self {
        // SAFETY: the token proves that the tile registers may be used; the configuration is a valid one.
        unsafe {
            asm!(
                "ldtilecfg [{}]",
                in(reg) &raw const WHOLE,
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                options(nostack, readonly, preserves_flags),
            );
        }
        Self(PhantomData)
    }
}

impl Drop for Configured {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: as in `new`.
        unsafe {
            asm!(
                "tilerelease",
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                options(nostack, nomem, preserves_flags),
            );
        }
    }
}

/// Sums up `SIDE * BANDS` rows times `VECTORS` vectors of columns, one or two of each.
///
/// # Safety
/// There is a [`Configured`] on this thread. The operands have the rows, columns and steps described, whole ones, and the sums
/// can be written.
#[inline(always)]
pub(super) unsafe fn multiply<const BANDS: usize, const VECTORS: usize>(operands: Operands) {
    const { assert!(BANDS >= 1 && BANDS <= 2 && VECTORS >= 1 && VECTORS <= 2) };
    let Operands { steps, a, a_row, a_band, a_step, b, b_unit, sums, sums_row, first } = operands;
    debug_assert!(steps > 0);
    // SAFETY: the caller's promise.
    unsafe {
        asm!(
            "test {first:e}, {first:e}",
            "jnz 2f",
            "tileloadd tmm0, [{sums} + {sums_row}]",
            ".if {VECTORS} > 1",
            "tileloadd tmm1, [{sums} + {sums_row} + 64]",
            ".endif",
            ".if {BANDS} > 1",
            "tileloadd tmm2, [{sums2} + {sums_row}]",
            ".if {VECTORS} > 1",
            "tileloadd tmm3, [{sums2} + {sums_row} + 64]",
            ".endif",
            ".endif",
            "jmp 3f",
            "2:",
            "tilezero tmm0",
            "tilezero tmm1",
            "tilezero tmm2",
            "tilezero tmm3",
            "3:",
            "tileloadd tmm4, [{a} + {a_row}]",
            "tileloadd tmm6, [{b} + {b_unit}]",
            "tdpbf16ps tmm0, tmm4, tmm6",
            ".if {VECTORS} > 1",
            "tileloadd tmm7, [{b} + {b_unit} + 64]",
            "tdpbf16ps tmm1, tmm4, tmm7",
            ".endif",
            ".if {BANDS} > 1",
            "tileloadd tmm5, [{a2} + {a_row}]",
            "tdpbf16ps tmm2, tmm5, tmm6",
            ".if {VECTORS} > 1",
            "tdpbf16ps tmm3, tmm5, tmm7",
            ".endif",
            ".endif",
            "add {a}, {a_step}",
            "add {a2}, {a_step}",
            "add {b}, {b_step}",
            "dec {steps}",
            "jnz 3b",
            "tilestored [{sums} + {sums_row}], tmm0",
            ".if {VECTORS} > 1",
            "tilestored [{sums} + {sums_row} + 64], tmm1",
            ".endif",
            ".if {BANDS} > 1",
            "tilestored [{sums2} + {sums_row}], tmm2",
            ".if {VECTORS} > 1",
            "tilestored [{sums2} + {sums_row} + 64], tmm3",
            ".endif",
            ".endif",
            BANDS = const BANDS,
            VECTORS = const VECTORS,
            first = in(reg) u32::from(first),
            steps = inout(reg) steps => _,
            a = inout(reg) a => _,
            a2 = inout(reg) a.wrapping_add(a_band) => _,
            a_row = in(reg) a_row,
            a_step = in(reg) a_step,
            b = inout(reg) b => _,
            b_unit = in(reg) b_unit,
            b_step = in(reg) DEPTH * b_unit,
            sums = in(reg) sums,
            sums2 = in(reg) sums.wrapping_byte_add(SIDE * sums_row),
            sums_row = in(reg) sums_row,
            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
            out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
            options(nostack),
        );
    }
}

/// Does `rounds` times four products from registers, and returns the operations that were.
pub(super) fn from_registers(token: Amx, rounds: usize) -> usize {
    if rounds == 0 {
        return 0;
    }
    let _configured = Configured::new(token);
    // SAFETY: the tiles were just configured, and nothing else is touched.
    unsafe {
        asm!(
            "tilezero tmm0",
            "tilezero tmm1",
            "tilezero tmm2",
            "tilezero tmm3",
            "tilezero tmm4",
            "tilezero tmm5",
            "tilezero tmm6",
            "tilezero tmm7",
            "2:",
            "tdpbf16ps tmm0, tmm4, tmm6",
            "tdpbf16ps tmm1, tmm4, tmm7",
            "tdpbf16ps tmm2, tmm5, tmm6",
            "tdpbf16ps tmm3, tmm5, tmm7",
            "dec {rounds}",
            "jnz 2b",
            rounds = inout(reg) rounds => _,
            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
            out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
            options(nostack, nomem),
        );
    }
    rounds * 4 * OPERATIONS
}
