//! What a level's multiply-add does from registers alone: the peak that products are measured against.

use super::Level;
use super::product::from_registers;

/// Does a millisecond's worth of multiply-adds on this thread, or a few, and returns how many operations that were, a
/// multiplication and an addition counted apart. `bf16` asks for what multiplies bfloat16 weights at this level.
pub fn run(level: Level, bf16: bool) -> usize {
    from_registers(level, bf16, 200_000)
}
