//! The pool that operations run on: a fixed number of threads, owned by a value, that share out the tasks of one job
//! after another. It knows nothing of what the tasks do.
//!
//! A job is taken task by task from one atomic word, so the caller waits for tasks, never for threads: one that the
//! system woke late, or not at all, holds nothing up. Nothing is allocated per job.
#![allow(unsafe_code)]

use std::any::Any;
use std::cell::UnsafeCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle, Thread};
use std::{hint, io, ptr};

/// Rounds of waiting in the processor before a thread sleeps: some tens of microseconds, more than lies between two
/// operations of a frame and less than anybody minds between two frames.
const SPINS: u32 = 1 << 10;

/// Threads, the caller's among them. Dropping it ends them.
pub struct Threads {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
}

impl Threads {
    /// `count` threads, the one that calls [`run`](Self::run) among them; at least 1.
    ///
    /// # Errors
    /// If the system can't start that many.
    pub fn new(count: usize) -> io::Result<Self> {
        // Grows as threads start: a count that is too high ends as an error of the system's.
        let mut threads = Self { shared: Arc::default(), workers: Vec::new() };
        for worker in 1..count {
            let shared = Arc::clone(&threads.shared);
            let name = format!("sapiens-cpu-{worker}");
            threads.workers.push(thread::Builder::new().name(name).spawn(move || shared.work(worker))?);
        }
        Ok(threads)
    }

    /// How many threads take part.
    pub fn count(&self) -> usize {
        self.workers.len() + 1
    }

    /// Calls `work(worker, task)` for every task below `tasks`, in no order, and returns when all are done. `worker` is
    /// below [`count`](Self::count), and no two calls at the same time have the same.
    ///
    /// # Panics
    /// With the panic of a task, when no task runs any more; tasks that hadn't begun are left out.
    pub fn run<F: Fn(usize, usize) + Sync>(&mut self, tasks: usize, work: F) {
        if tasks <= 1 || self.workers.is_empty() {
            (0..tasks).for_each(|task| work(0, task));
            return;
        }
        // So many tasks go to a thread at a time that their number fits its field.
        let group = tasks.div_ceil(Word::MAX_GROUPS);
        let groups = tasks.div_ceil(group);
        let run_group = |worker: usize, index: usize| {
            (index * group..((index + 1) * group).min(tasks)).for_each(|task| work(worker, task));
        };
        self.shared.publish(groups, &run_group);
        for worker in self.workers.iter().take(groups - 1) {
            worker.thread().unpark();
        }
        self.shared.take_part(0);
        self.shared.wait_for(groups);
        // Before the unwinding, `run_group` must be out of every thread's reach: all groups are done.
        if self.shared.panicked.swap(false, Ordering::Relaxed) {
            let panic = self.shared.panic.lock().unwrap_or_else(PoisonError::into_inner).take();
            resume_unwind(panic.unwrap_or_else(|| Box::new("a task panicked")));
        }
    }

    /// As [`run`](Self::run), with a value of `slots` for each thread: what it packs into, what it counts in.
    ///
    /// # Panics
    /// If there are fewer slots than threads, and as `run` does.
    pub fn run_with<T: Send, F: Fn(&mut T, usize) + Sync>(&mut self, slots: &mut [T], tasks: usize, work: F) {
        assert!(slots.len() >= self.count(), "{} slots for {} threads", slots.len(), self.count());
        let slots = SharedMut(slots.as_mut_ptr());
        self.run(tasks, |worker, task| {
            // SAFETY: `worker` is a slot's index, and no other call has the same at this time.
            work(unsafe { &mut *slots.at(worker) }, task);
        });
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.shared.ending.store(true, Ordering::Release);
        for worker in self.workers.drain(..) {
            worker.thread().unpark();
            // Workers catch the panics of tasks, and have none of their own.
            let _ = worker.join();
        }
    }
}

impl std::fmt::Debug for Threads {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Threads({})", self.count())
    }
}

/// A pointer that several threads write through, each to places of its own: they see to it.
#[derive(Debug)]
pub(crate) struct SharedMut<T>(pub *mut T);

impl<T> Clone for SharedMut<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for SharedMut<T> {}

// SAFETY: it is only an address; whoever dereferences it says why nobody else uses that place.
unsafe impl<T: Send> Send for SharedMut<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for SharedMut<T> {}

impl<T> SharedMut<T> {
    /// # Safety
    /// `index` is within the allocation.
    #[inline(always)]
    pub(crate) unsafe fn at(self, index: usize) -> *mut T {
        // SAFETY: the caller's promise.
        unsafe { self.0.add(index) }
    }
}

/// Which job is running, its groups of tasks and how many of them are taken, in one word.
#[derive(Clone, Copy)]
struct Word(u64);

impl Word {
    const MAX_GROUPS: usize = 0xffff;

    fn new(job: u32, groups: usize) -> Self {
        Self(u64::from(job) << 32 | (groups as u64) << 16)
    }

    fn job(self) -> u32 {
        (self.0 >> 32) as u32
    }

    fn groups(self) -> usize {
        (self.0 >> 16) as usize & Self::MAX_GROUPS
    }

    fn taken(self) -> usize {
        self.0 as usize & Self::MAX_GROUPS
    }
}

type Call = unsafe fn(*const (), usize, usize);

#[derive(Default)]
struct Shared {
    word: AtomicU64,
    /// The job's closure and the function that calls it. They are read before a group is taken and hold only if taking
    /// it succeeds: then the job has a group that isn't done, so its caller still waits.
    data: AtomicPtr<()>,
    call: AtomicPtr<()>,
    done: AtomicUsize,
    /// Who waits for `done`. Written between jobs, read by threads that hold a group.
    caller: UnsafeCell<Option<Thread>>,
    ending: AtomicBool,
    panicked: AtomicBool,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

// SAFETY: `caller` is the one field that isn't Sync by itself. It is written by `publish`, which runs under `&mut
// Threads` and when every group of the job before is done, and read while holding a group of the job after.
unsafe impl Sync for Shared {}

impl Shared {
    fn publish<F: Fn(usize, usize) + Sync>(&self, groups: usize, run_group: &F) {
        unsafe fn call<F: Fn(usize, usize) + Sync>(data: *const (), worker: usize, group: usize) {
            // SAFETY: `data` is the `run_group` beside which this instance was published, and its caller waits.
            let run_group = unsafe { &*data.cast::<F>() };
            run_group(worker, group);
        }
        // SAFETY: no group of a job is held by anybody, so nobody reads the field.
        unsafe { *self.caller.get() = Some(thread::current()) };
        self.data.store(ptr::from_ref(run_group).cast_mut().cast(), Ordering::Relaxed);
        self.call.store((call::<F> as Call) as *mut (), Ordering::Relaxed);
        self.done.store(0, Ordering::Relaxed);
        let job = Word(self.word.load(Ordering::Relaxed)).job().wrapping_add(1);
        self.word.store(Word::new(job, groups).0, Ordering::Release);
    }

    /// Runs groups of the current job until all are taken.
    fn take_part(&self, worker: usize) {
        loop {
            let word = Word(self.word.load(Ordering::Acquire));
            if word.taken() == word.groups() {
                return;
            }
            let (data, call) = (self.data.load(Ordering::Relaxed), self.call.load(Ordering::Relaxed));
            // That the word is unchanged means that the job's groups weren't all done between the two loads above and
            // now, so both are of this job; job numbers come round only after 2^32 jobs.
            let next = word.0 + 1;
            if self.word.compare_exchange(word.0, next, Ordering::AcqRel, Ordering::Relaxed).is_err() {
                continue;
            }
            if !self.panicked.load(Ordering::Relaxed) {
                // SAFETY: `publish` stored a `Call` there, and functions are as wide as pointers here.
                let call = unsafe { std::mem::transmute::<*mut (), Call>(call) };
                // SAFETY: `data` belongs to `call`, and the caller waits for the group taken.
                let group = AssertUnwindSafe(|| unsafe { call(data, worker, word.taken()) });
                if let Err(panic) = catch_unwind(group) {
                    *self.panic.lock().unwrap_or_else(PoisonError::into_inner) = Some(panic);
                    self.panicked.store(true, Ordering::Relaxed);
                }
            }
            // SAFETY: a group is held, so `publish` isn't writing. The clone outlives the job, the field might not.
            let caller = unsafe { (*self.caller.get()).clone() };
            if self.done.fetch_add(1, Ordering::AcqRel) + 1 == word.groups()
                && worker != 0
                && let Some(caller) = caller
            {
                caller.unpark();
            }
        }
    }

    fn wait_for(&self, groups: usize) {
        let mut spins = 0;
        while self.done.load(Ordering::Acquire) < groups {
            if spins < SPINS {
                spins += 1;
                hint::spin_loop();
            } else {
                thread::park();
            }
        }
    }

    /// What a worker does until the pool ends.
    fn work(&self, worker: usize) {
        let mut seen = 0;
        let mut spins = 0;
        while !self.ending.load(Ordering::Acquire) {
            let job = Word(self.word.load(Ordering::Acquire)).job();
            if job != seen {
                seen = job;
                spins = 0;
                self.take_part(worker);
            } else if spins < SPINS {
                spins += 1;
                hint::spin_loop();
            } else {
                // A wake-up between the loads above and here is remembered, so none is lost.
                thread::park();
                spins = 0;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use super::*;

    #[test]
    fn every_task_runs_once_for_any_numbers() {
        for count in [0, 1, 2, 3, 8, 33] {
            let mut threads = Threads::new(count).unwrap();
            assert_eq!(threads.count(), count.max(1));
            for tasks in [0, 1, 2, 3, 7, 100, 70_000, 140_001] {
                let runs: Vec<_> = (0..tasks).map(|_| AtomicU32::new(0)).collect();
                threads.run(tasks, |worker, task| {
                    assert!(worker < count.max(1));
                    runs[task].fetch_add(1, Ordering::Relaxed);
                });
                assert!(
                    runs.iter().all(|runs| runs.load(Ordering::Relaxed) == 1),
                    "{count} threads, {tasks}"
                );
            }
        }
    }

    #[test]
    fn jobs_follow_each_other_at_once_and_after_sleep() {
        let mut threads = Threads::new(4).unwrap();
        let sum = AtomicUsize::new(0);
        for round in 0..20_000 {
            let before = sum.load(Ordering::Relaxed);
            let tasks = round % 9;
            threads.run(tasks, |_, task| {
                sum.fetch_add(task + 1, Ordering::Relaxed);
            });
            assert_eq!(sum.load(Ordering::Relaxed) - before, tasks * (tasks + 1) / 2);
            if round % 4000 == 0 {
                thread::sleep(std::time::Duration::from_millis(5));
            }
        }
    }

    #[test]
    fn several_pools_contend_without_mixing() {
        thread::scope(|scope| {
            for pool in 0..4usize {
                scope.spawn(move || {
                    let mut threads = Threads::new(3).unwrap();
                    let mut slots = vec![0usize; 3];
                    for _ in 0..2000 {
                        threads.run_with(&mut slots, 5, |slot, task| *slot += pool * 10 + task);
                    }
                    assert_eq!(slots.iter().sum::<usize>(), 2000 * (5 * pool * 10 + 10));
                });
            }
        });
    }

    #[test]
    fn no_two_tasks_share_a_worker_at_the_same_time() {
        let mut threads = Threads::new(5).unwrap();
        let busy: Vec<_> = (0..5).map(|_| AtomicBool::new(false)).collect();
        threads.run(2000, |worker, _| {
            assert!(!busy[worker].swap(true, Ordering::AcqRel));
            thread::yield_now();
            busy[worker].store(false, Ordering::Release);
        });
    }

    #[test]
    fn a_panic_comes_back_to_the_caller_and_the_pool_lives_on() {
        let mut threads = Threads::new(3).unwrap();
        for culprit in [0, 5, 19] {
            let panic = catch_unwind(AssertUnwindSafe(|| {
                threads.run(20, |_, task| assert_ne!(task, culprit, "task {task} gives up"));
            }))
            .unwrap_err();
            let message = panic.downcast_ref::<String>().unwrap();
            assert!(message.contains("gives up"), "{message}");
            let ran = AtomicUsize::new(0);
            threads.run(20, |_, _| {
                ran.fetch_add(1, Ordering::Relaxed);
            });
            assert_eq!(ran.into_inner(), 20);
        }
    }

    #[test]
    fn another_thread_may_run_the_next_job() {
        let mut threads = Threads::new(2).unwrap();
        for _ in 0..50 {
            threads = thread::spawn(move || {
                threads.run(10, |_, _| thread::yield_now());
                threads
            })
            .join()
            .unwrap();
        }
    }
}
