//! What happens around every call: it is counted, logged and maybe made to fail; nothing unwinds into C.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::driver::Driver;
use crate::error::{CUresult, Result};
use crate::settings::Fail;

thread_local! {
    /// Whether this thread runs a function of the host for a stream, which may not call the driver.
    static IN_HOST_FUNCTION: Cell<bool> = const { Cell::new(false) };
}

/// Counts calls, and knows which of them fail.
pub struct Calls {
    made: AtomicU64,
    /// Calls of the function that a setting names.
    made_by_name: AtomicU64,
    /// The call that a test wants to fail; 0 for none.
    fail_at: AtomicU64,
    /// Whether the setting is still to be followed: 1 or 0.
    follow_setting: AtomicU64,
    left_out: Mutex<Option<LeftOut>>,
}

/// Calls that do nothing.
struct LeftOut {
    name: String,
    /// Of so many the one of this number.
    every: u64,
    number: u64,
    made: u64,
}

impl Calls {
    pub fn new() -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            made: zero(),
            made_by_name: zero(),
            fail_at: zero(),
            follow_setting: AtomicU64::new(1),
            left_out: Mutex::default(),
        }
    }

    /// How many there were.
    pub fn made(&self) -> u64 {
        self.made.load(Ordering::SeqCst)
    }

    /// Makes the call of this number fail.
    pub fn fail_at(&self, number: u64) {
        self.fail_at.store(number, Ordering::SeqCst);
    }

    /// Makes none fail.
    pub fn reset_failures(&self) {
        self.fail_at.store(0, Ordering::SeqCst);
        self.follow_setting.store(0, Ordering::SeqCst);
    }

    /// Of every so many calls of a function the one of this number does nothing.
    pub fn leave_out(&self, name: String, every: u64, number: u64) {
        *self.left_out() = Some(LeftOut { name, every, number, made: 0 });
    }

    fn left_out(&self) -> MutexGuard<'_, Option<LeftOut>> {
        self.left_out.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this call is to do nothing.
    fn is_left_out(&self, name: &str) -> bool {
        let mut left_out = self.left_out();
        let Some(left_out) = left_out.as_mut().filter(|left_out| left_out.name == name) else { return false };
        left_out.made += 1;
        (left_out.made - 1) % left_out.every == left_out.number
    }

    /// Counts a call; its number, and the result it is made to fail with.
    fn count(&self, name: &str, setting: Option<&Fail>) -> (u64, Option<CUresult>) {
        let number = self.made.fetch_add(1, Ordering::SeqCst) + 1;
        if number == self.fail_at.load(Ordering::SeqCst) {
            return (number, Some(usual_failure(name)));
        }
        let Some(setting) = setting.filter(|_| self.follow_setting.load(Ordering::SeqCst) == 1) else {
            return (number, None);
        };
        let fails = match &setting.name {
            None => number == setting.at,
            Some(of) if of == name => self.made_by_name.fetch_add(1, Ordering::SeqCst) + 1 == setting.at,
            Some(_) => false,
        };
        (number, fails.then(|| setting.result.unwrap_or_else(|| usual_failure(name))))
    }
}

/// What a function mostly fails with.
fn usual_failure(name: &str) -> CUresult {
    let allocates = name.starts_with("cuMemAlloc") || name == "cuMemHostAlloc";
    if allocates { CUresult::CUDA_ERROR_OUT_OF_MEMORY } else { CUresult::CUDA_ERROR_UNKNOWN }
}

/// A call that needs no context, and that a failed one doesn't concern.
pub fn query(name: &'static str, body: impl FnOnce(&Driver) -> Result) -> CUresult {
    around(name, |driver, failure| match failure {
        Some(failure) => Err(failure),
        None => body(driver),
    })
}

/// A call that does something in the context of the thread, and fails if that has failed.
pub fn normal(name: &'static str, body: impl FnOnce(&Driver) -> Result) -> CUresult {
    around(name, |driver, failure| match failure.or_else(|| driver.failure_of_thread()) {
        Some(failure) => Err(failure),
        None => driver.initialised().and_then(|()| body(driver)),
    })
}

/// A call that gives something back: it does so even if it fails. The body gets the failure that it will be told.
pub fn release(name: &'static str, body: impl FnOnce(&Driver, Option<CUresult>) -> Result) -> CUresult {
    around(name, |driver, failure| {
        driver.initialised()?;
        let failure = failure.or_else(|| driver.failure_of_thread());
        let result = body(driver, failure);
        failure.map_or(result, Err)
    })
}

fn around(name: &'static str, body: impl FnOnce(&Driver, Option<CUresult>) -> Result) -> CUresult {
    let call = AssertUnwindSafe(|| {
        let driver = Driver::get();
        let (number, failure) = driver.calls.count(name, driver.settings.fail.as_ref());
        let begin = Instant::now();
        let result = if IN_HOST_FUNCTION.get() {
            Err(CUresult::CUDA_ERROR_NOT_PERMITTED)
        } else if driver.calls.is_left_out(name) {
            Ok(())
        } else {
            body(driver, failure)
        };
        let result = result.err().unwrap_or(CUresult::CUDA_SUCCESS);
        if driver.log.is_open() {
            let (begin, end) = (driver.log.time(begin), driver.log.time(Instant::now()));
            let thread = std::thread::current().id();
            driver.log.line(&format!("call {number} {begin} {end} {thread:?} {name} {result:?}"));
        }
        result
    });
    catch_unwind(call).unwrap_or(CUresult::CUDA_ERROR_UNKNOWN)
}

/// Runs a function of the host, which may not call the driver.
pub fn as_host_function(run: impl FnOnce()) {
    IN_HOST_FUNCTION.set(true);
    run();
    IN_HOST_FUNCTION.set(false);
}
