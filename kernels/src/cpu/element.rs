//! The types that values are stored in, and memory for them. Sums are never kept in them.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, handle_alloc_error};

use half::bf16;

mod sealed {
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for half::bf16 {}
}

/// What activations and weights are stored as: float32 or bfloat16. All bit patterns are values, zero bytes are zero.
pub trait Element: sealed::Sealed + Copy + Default + Send + Sync + std::fmt::Debug + 'static {
    /// Whether it is bfloat16.
    const IS_BF16: bool;
    /// Not a number.
    const NAN: Self;

    /// Rounds to nearest, ties to even.
    fn from_f32(value: f32) -> Self;

    /// Exact.
    fn to_f32(self) -> f32;
}

impl Element for f32 {
    const IS_BF16: bool = false;
    const NAN: Self = f32::NAN;

    #[inline(always)]
    fn from_f32(value: f32) -> Self {
        value
    }

    #[inline(always)]
    fn to_f32(self) -> f32 {
        self
    }
}

impl Element for bf16 {
    const IS_BF16: bool = true;
    const NAN: Self = bf16::NAN;

    #[inline(always)]
    fn from_f32(value: f32) -> Self {
        bf16::from_f32(value)
    }

    #[inline(always)]
    fn to_f32(self) -> f32 {
        f32::from_bits(u32::from(self.to_bits()) << 16)
    }
}

/// A cache line, which is also the widest register.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line(#[allow(dead_code, reason = "read and written as values")] [u8; 64]);

/// Values on cache line boundaries, zero to begin with.
pub struct Aligned<T> {
    lines: Vec<Line>,
    len: usize,
    element: std::marker::PhantomData<T>,
}

impl<T: Element> Aligned<T> {
    /// `len` zeros. They come zeroed from the system, so that the thread that first writes to a page gets it.
    ///
    /// # Panics
    /// If that is more than an address space has.
    pub fn zeros(len: usize) -> Self {
        let count = len.checked_mul(size_of::<T>()).map(|bytes| bytes.div_ceil(64));
        let layout = count.and_then(|count| Layout::array::<Line>(count).ok());
        let (Some(count), Some(layout)) = (count, layout) else {
            panic!("{len} values are more than can be addressed")
        };
        if count == 0 {
            return Self { lines: Vec::new(), len, element: std::marker::PhantomData };
        }
        // SAFETY: the layout isn't empty.
        let memory = unsafe { alloc_zeroed(layout) };
        if memory.is_null() {
            handle_alloc_error(layout);
        }
        // SAFETY: it was just allocated for `count` lines, with their alignment, and zeros are lines.
        let lines = unsafe { Vec::from_raw_parts(memory.cast(), count, count) };
        Self { lines, len, element: std::marker::PhantomData }
    }
}

impl<T: Element> std::ops::Deref for Aligned<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: the lines hold `len` initialised values, all bit patterns of T are values, and lines are aligned
        // more strictly than T.
        unsafe { std::slice::from_raw_parts(self.lines.as_ptr().cast(), self.len) }
    }
}

impl<T: Element> std::ops::DerefMut for Aligned<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`, and the borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.lines.as_mut_ptr().cast(), self.len) }
    }
}

impl<T> std::fmt::Debug for Aligned<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Aligned({} of {})", self.len, std::any::type_name::<T>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aligned_values_start_on_a_line_and_are_zero() {
        for len in [0, 1, 15, 16, 17, 1000] {
            let mut values = Aligned::<f32>::zeros(len);
            assert!(values.as_ptr().addr().is_multiple_of(64));
            assert_eq!(*values, vec![0.0; len]);
            values.fill(1.0);
            assert_eq!(values.iter().sum::<f32>(), len as f32);
        }
        assert_eq!(Aligned::<bf16>::zeros(33).len(), 33);
    }
}
