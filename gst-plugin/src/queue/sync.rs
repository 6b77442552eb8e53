//! The locks of the queue, exchanged for loom's where its models are checked.
//!
//! The models are run by
//! `RUSTFLAGS="--cfg loom" cargo test -p gst-plugin-sapiensseg --no-default-features --lib --release loom`.

use std::time::Duration;

#[cfg(all(test, loom))]
use loom::sync as imp;
#[cfg(not(all(test, loom)))]
use std::sync as imp;

use std::sync::PoisonError;

pub(super) use imp::{Condvar, Mutex, MutexGuard};

// A poisoned lock is taken all the same: the state is changed by total functions that don't call out, so a panic
// elsewhere in a thread that held it leaves nothing half done.

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn wait<'a, T>(condvar: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    condvar.wait(guard).unwrap_or_else(PoisonError::into_inner)
}

/// Waits to be woken, at most for `limit`; callers look again whatever the reason. Under loom there is no time: only
/// being woken ends the wait.
pub(super) fn wait_at_most<'a, T>(
    condvar: &Condvar,
    guard: MutexGuard<'a, T>,
    limit: Duration,
) -> MutexGuard<'a, T> {
    condvar.wait_timeout(guard, limit).unwrap_or_else(PoisonError::into_inner).0
}
