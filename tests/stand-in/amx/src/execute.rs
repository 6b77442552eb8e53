//! The tile registers of one thread and what the operations do to them.

use std::ptr::read_unaligned;

/// What Intel's manual forbids, as a sentence.
pub type Forbidden = &'static str;

const ROWS: usize = 16;
const ROW_BYTES: usize = 64;
/// Lanes of 32 bits.
const LANES: usize = ROW_BYTES / 4;
const TILES: usize = 8;

/// Rows of lanes; the registers are bytes, and this machine is little-endian.
type Tile = [[u32; LANES]; ROWS];

/// One thread's registers.
pub struct Registers {
    /// Rows and bytes of a row of each, or none before they are configured.
    sizes: Option<[(usize, usize); TILES]>,
    tiles: [Tile; TILES],
}

impl Registers {
    pub const RELEASED: Self = Self { sizes: None, tiles: [[[0; LANES]; ROWS]; TILES] };

    fn size(&self, tile: usize) -> Result<(usize, usize), Forbidden> {
        match self.sizes.ok_or("tiles are used before they are configured")?[tile] {
            (0, _) | (_, 0) => Err("a tile without rows or columns is used"),
            size => Ok(size),
        }
    }

    /// # Safety
    /// 64 bytes can be read.
    pub unsafe fn load_configuration(&mut self, from: *const u8) -> Result<(), Forbidden> {
        // SAFETY: the caller's promise.
        let bytes = unsafe { read_unaligned(from.cast::<[u8; 64]>()) };
        match bytes[0] {
            0 => {
                self.release();
                return Ok(());
            }
            1 => (),
            _ => return Err("a configuration's palette is above 1"),
        }
        if bytes[2..16].iter().chain(&bytes[32..48]).chain(&bytes[56..]).any(|&byte| byte != 0) {
            return Err("a configuration has something in its reserved bytes");
        }
        let mut sizes = [(0, 0); TILES];
        for (tile, size) in sizes.iter_mut().enumerate() {
            let row_bytes = u16::from_le_bytes([bytes[16 + 2 * tile], bytes[17 + 2 * tile]]);
            *size = (usize::from(bytes[48 + tile]), usize::from(row_bytes));
            if size.0 > ROWS || size.1 > ROW_BYTES || (size.0 == 0) != (size.1 == 0) {
                return Err("a configuration has tiles of sizes that there aren't");
            }
        }
        self.release();
        self.sizes = Some(sizes);
        Ok(())
    }

    pub fn release(&mut self) {
        *self = Self::RELEASED;
    }

    pub fn zero(&mut self, tile: usize) -> Result<(), Forbidden> {
        self.size(tile)?;
        self.tiles[tile] = [[0; LANES]; ROWS];
        Ok(())
    }

    /// # Safety
    /// The tile's rows can be read, `stride` bytes apart.
    pub unsafe fn load(&mut self, tile: usize, from: *const u8, stride: usize) -> Result<(), Forbidden> {
        let (rows, row_bytes) = self.size(tile)?;
        self.tiles[tile] = [[0; LANES]; ROWS];
        for (row, to) in self.tiles[tile][..rows].iter_mut().enumerate() {
            let from = from.wrapping_add(row.wrapping_mul(stride));
            // SAFETY: the caller's promise; a row has room for 64 bytes.
            unsafe { std::ptr::copy_nonoverlapping(from, to.as_mut_ptr().cast(), row_bytes) };
        }
        Ok(())
    }

    /// # Safety
    /// The tile's rows can be written, `stride` bytes apart.
    pub unsafe fn store(&self, tile: usize, to: *mut u8, stride: usize) -> Result<(), Forbidden> {
        let (rows, row_bytes) = self.size(tile)?;
        for (row, from) in self.tiles[tile][..rows].iter().enumerate() {
            let to = to.wrapping_add(row.wrapping_mul(stride));
            // SAFETY: as in `load`.
            unsafe { std::ptr::copy_nonoverlapping(from.as_ptr().cast(), to, row_bytes) };
        }
        Ok(())
    }

    /// `sums[m][n] += a[m][2k] * b[k][2n] + a[m][2k + 1] * b[k][2n + 1]`, even and odd products each summed up by fused operations
    /// first. Subnormal operands and results count as zero.
    pub fn dot_bf16(&mut self, sums: usize, a: usize, b: usize) -> Result<(), Forbidden> {
        let [(rows, width), (a_rows, a_width), (b_rows, b_width)] =
            [self.size(sums)?, self.size(a)?, self.size(b)?];
        if sums == a || sums == b || a == b {
            return Err("a product has the same tile twice");
        }
        if a_rows != rows || b_width != width || a_width != 4 * b_rows {
            return Err("tiles of a product don't fit together");
        }
        if [width, a_width].iter().any(|width| width % 4 != 0) {
            return Err("a product has rows of parts of lanes");
        }
        let (a, b) = (self.tiles[a], &self.tiles[b][..b_rows]);
        let mut values = [[0.0; 2 * LANES]; ROWS];
        for (to, from) in values.iter_mut().zip(b) {
            to.as_chunks_mut().0.iter_mut().zip(from).for_each(|(to, &pair)| *to = half_values(pair));
        }
        for (sums, a) in self.tiles[sums][..rows].iter_mut().zip(&a) {
            let (some, a) = (&mut sums[..width / 4], &a[..b_rows]);
            // The level with AMX is tested where there is AVX-512; this crate's own tests run anywhere.
            if is_x86_feature_detected!("avx512f") {
                // SAFETY: just detected.
                unsafe { row_in_vectors(some, a, &values) };
            } else {
                row(some, a, &values);
            }
            sums[width / 4..].fill(0);
        }
        self.tiles[sums][rows..].fill([0; LANES]);
        Ok(())
    }
}

/// A pair of bfloat16, the lower half first.
fn half_values(pair: u32) -> [f32; 2] {
    [pair << 16, pair & 0xffff_0000].map(|bits| flushed(f32::from_bits(bits)))
}

/// As [`row`].
#[target_feature(enable = "avx512f")]
fn row_in_vectors(sums: &mut [u32], a: &[u32], b: &[[f32; 2 * LANES]; ROWS]) {
    row(sums, a, b);
}

/// One row of sums.
#[inline(always)]
fn row(sums: &mut [u32], a: &[u32], b: &[[f32; 2 * LANES]; ROWS]) {
    // Even and odd ones in turn, in one loop without branches: compilers make vectors of that.
    let mut products = [0.0f32; 2 * LANES];
    for (a, b) in a.iter().zip(b) {
        let pair = half_values(*a);
        let mut pairs = [0.0; 2 * LANES];
        pairs.as_chunks_mut().0.fill(pair);
        for i in 0..2 * LANES {
            products[i] = flushed(pairs[i].mul_add(b[i], products[i]));
        }
    }
    for (sum, &[even, odd]) in sums.iter_mut().zip(products.as_chunks().0) {
        *sum = flushed(flushed(f32::from_bits(*sum)) + flushed(even + odd)).to_bits();
    }
}

/// Subnormal numbers as zero.
#[inline(always)]
fn flushed(value: f32) -> f32 {
    if value.abs() < f32::MIN_POSITIVE { 0.0f32.copysign(value) } else { value }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sixteen rows and 64 bytes unless said otherwise, row by row of tiles 0, 1 and 2.
    fn configuration(sizes: [(u8, u16); 3]) -> [u8; 64] {
        let mut bytes = [0; 64];
        bytes[0] = 1;
        for (tile, (rows, row_bytes)) in sizes.into_iter().enumerate() {
            bytes[16 + 2 * tile..][..2].copy_from_slice(&row_bytes.to_le_bytes());
            bytes[48 + tile] = rows;
        }
        bytes
    }

    fn configured(sizes: [(u8, u16); 3]) -> Result<Registers, Forbidden> {
        let mut registers = Registers::RELEASED;
        let bytes = configuration(sizes);
        // SAFETY: there are 64 bytes.
        unsafe { registers.load_configuration(bytes.as_ptr()) }?;
        Ok(registers)
    }

    fn bf16(value: f32) -> u32 {
        value.to_bits() >> 16
    }

    #[test]
    fn products_of_pairs_are_added_up() {
        let mut registers = configured([(3, 20), (3, 8), (2, 20)]).unwrap();
        let value = |i: usize| (i as f32 - 7.0) * 0.25;
        for (m, row) in registers.tiles[1][..3].iter_mut().enumerate() {
            for (k, pair) in row[..2].iter_mut().enumerate() {
                *pair = bf16(value(m + 4 * k)) | bf16(value(2 * m + k)) << 16;
            }
        }
        for (k, row) in registers.tiles[2][..2].iter_mut().enumerate() {
            for (n, pair) in row[..5].iter_mut().enumerate() {
                *pair = bf16(value(n + k)) | bf16(value(3 * n)) << 16;
            }
        }
        registers.tiles[0] = [[10.0f32.to_bits(); LANES]; ROWS];
        registers.dot_bf16(0, 1, 2).unwrap();
        for m in 0..3 {
            for n in 0..5 {
                let products = (0..2)
                    .map(|k| value(m + 4 * k) * value(n + k) + value(2 * m + k) * value(3 * n))
                    .sum::<f32>();
                assert_eq!(f32::from_bits(registers.tiles[0][m][n]), 10.0 + products, "{m}, {n}");
            }
        }
        // What lies outside is zero.
        assert_eq!(registers.tiles[0][3], [0; LANES]);
        assert_eq!(registers.tiles[0][0][5..], [0; LANES - 5]);
    }

    #[test]
    fn subnormal_numbers_are_zero() {
        let mut registers = configured([(1, 4), (1, 4), (1, 4)]).unwrap();
        let subnormal = f32::from_bits(0x0040_0000);
        registers.tiles[0][0][0] = subnormal.to_bits();
        registers.tiles[1][0][0] = bf16(subnormal) | bf16(1e-30) << 16;
        registers.tiles[2][0][0] = bf16(1e30) | bf16(1e-30) << 16;
        registers.dot_bf16(0, 1, 2).unwrap();
        assert_eq!(registers.tiles[0][0][0], 0);
    }

    #[test]
    fn what_the_manual_forbids_is_refused() {
        let whole = (16, 64);
        let product = |sizes| configured(sizes).and_then(|mut registers| registers.dot_bf16(0, 1, 2));
        assert_eq!(product([whole; 3]), Ok(()));
        assert!(product([(16, 64), (15, 64), whole]).is_err());
        assert!(product([(16, 64), (16, 60), whole]).is_err());
        assert!(product([(16, 60), whole, whole]).is_err());
        assert!(product([(0, 0), whole, whole]).is_err());
        assert!(configured([(17, 64), whole, whole]).is_err());
        assert!(configured([(16, 65), whole, whole]).is_err());
        assert!(configured([(16, 0), whole, whole]).is_err());
        assert!(configured([whole; 3]).unwrap().dot_bf16(1, 1, 2).is_err());
        assert!(Registers::RELEASED.size(0).is_err());
        let mut registers = configured([whole; 3]).unwrap();
        for (at, value) in [(0, 2), (2, 1), (33, 1), (60, 1)] {
            let mut bytes = configuration([whole; 3]);
            bytes[at] = value;
            // SAFETY: there are 64 bytes.
            assert!(unsafe { registers.load_configuration(bytes.as_ptr()) }.is_err(), "byte {at}");
        }
    }
}
