//! Whether memory that is about to be taken is there: the system promises more than it has, and ends the process later.

use crate::error::{ErrorKind, Result, SegmentError};

/// Fails if `bytes` for `what` are more than the system has available. Where it doesn't say, nothing is refused.
pub(super) fn expect(bytes: u64, what: &str) -> Result<()> {
    compare(bytes, what, available())
}

fn compare(bytes: u64, what: &str, available: Option<u64>) -> Result<()> {
    let gigabytes = |bytes: u64| bytes as f64 / 1e9;
    match available {
        Some(available) if available < bytes => Err(SegmentError::new(
            ErrorKind::Engine,
            format!(
                "{what} takes {:.1} GB of memory: {:.1} GB are available",
                gigabytes(bytes),
                gigabytes(available)
            ),
        )),
        _ => Ok(()),
    }
}

/// What Linux can give without swapping.
fn available() -> Option<u64> {
    parse(&std::fs::read_to_string("/proc/meminfo").ok()?)
}

fn parse(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_is_read() {
        assert_eq!(parse("MemTotal: 9 kB\nMemAvailable:   20 kB\n"), Some(20 << 10));
        assert_eq!(parse("MemTotal: 9 kB\n"), None);
    }

    #[test]
    fn more_than_there_is_is_an_error_with_both_figures() {
        compare(5, "x", Some(5)).unwrap();
        compare(u64::MAX, "x", None).unwrap();
        let error = compare(30_000_000_000, "an input of 9 x 9", Some(2_000_000_000)).unwrap_err();
        assert_eq!(error.to_string(), "an input of 9 x 9 takes 30.0 GB of memory: 2.0 GB are available");
    }
}
