//! How large this CPU's caches are. Block sizes come from here; they change the speed, never the result's correctness.
#![allow(unsafe_code)]

/// Bytes of data that the caches hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caches {
    /// First level, of one core.
    pub l1: usize,
    /// Second level, of one core or a few.
    pub l2: usize,
}

impl Caches {
    /// What CPUID reports; where it reports nothing, sizes that nearly every 64-bit CPU has.
    pub fn detect() -> Self {
        let (mut l1, mut l2) = (0, 0);
        for (level, bytes) in data_caches() {
            match level {
                1 => l1 = bytes,
                2 => l2 = bytes,
                _ => (),
            }
        }
        let l1 = if l1 == 0 { 32 << 10 } else { l1.clamp(16 << 10, 256 << 10) };
        let l2 = if l2 == 0 { 512 << 10 } else { l2.clamp(128 << 10, 8 << 20) };
        Self { l1, l2 }
    }
}

/// Level and size of each cache that holds data.
#[cfg(target_arch = "x86_64")]
#[allow(unused_unsafe, reason = "__cpuid is safe in newer compilers")]
fn data_caches() -> Vec<(u32, usize)> {
    use std::arch::x86_64::{__cpuid, __cpuid_count};

    /// "AuthenticAMD" puts its middle letters "enti" here.
    const AMD: u32 = u32::from_le_bytes(*b"enti");
    // SAFETY: every x86-64 CPU has CPUID, and these two leaves tell how many there are.
    let (basic, extended) = unsafe { (__cpuid(0), __cpuid(0x8000_0000)) };
    // Both makers describe a cache with the same bits, on different leaves.
    let leaf = if basic.edx == AMD && extended.eax >= 0x8000_001d {
        0x8000_001d
    } else if basic.eax >= 4 {
        4
    } else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for index in 0..16 {
        // SAFETY: the leaf exists, checked above; an index past the last cache reports kind 0.
        let cache = unsafe { __cpuid_count(leaf, index) };
        let (kind, level) = (cache.eax & 31, cache.eax >> 5 & 7);
        if kind == 0 {
            break;
        }
        const DATA: u32 = 1;
        const UNIFIED: u32 = 3;
        if kind == DATA || kind == UNIFIED {
            let field = |shift: u32, bits: u32| (cache.ebx >> shift & ((1 << bits) - 1)) as usize + 1;
            let sets = cache.ecx as usize + 1;
            found.push((level, field(22, 10) * field(12, 10) * field(0, 12) * sets));
        }
    }
    found
}

#[cfg(not(target_arch = "x86_64"))]
fn data_caches() -> Vec<(u32, usize)> {
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_believable() {
        let caches = Caches::detect();
        eprintln!("{caches:?}");
        assert!((16 << 10..=256 << 10).contains(&caches.l1));
        assert!((128 << 10..=8 << 20).contains(&caches.l2));
        assert!(caches.l2 > caches.l1);
    }
}
