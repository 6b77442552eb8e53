//! The queue: [`State`] behind a lock, with a condition to wait on for each of the threads that meet here.
//!
//! Nothing is called, and no payload or label map dropped, while the lock is held.

use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::time::Duration;

use super::state::{Answer, Head, Reservation, State};
use super::sync::{Condvar, Mutex, MutexGuard, lock, wait, wait_at_most};
use super::types::{Closed, Drained, FrameTimes, Kinds, Next, Refused, Settings, Stats, Why};

/// The time that deadlines are on.
pub trait Clock: Send + Sync {
    /// The time now. It is read without a lock held.
    fn now(&self) -> Duration;
}

/// Where the streaming thread, the thread that waits for labels and the task that pushes frames downstream meet.
///
/// One thread [`admit`](Self::admit)s frames and [`pass`](Self::pass)es what travels between them, one waits for
/// [`ticket`](Self::ticket)s and brings their results, one takes what is [`next`](Self::next). Any other may flush or
/// shut down. Everybody who waits is woken by both.
pub struct Queue<T: Kinds> {
    clock: Arc<dyn Clock>,
    guarded: Mutex<Guarded<T>>,
    /// Room, a free slot, the permit's return.
    room: Condvar,
    /// Something for the taker.
    head: Condvar,
    /// A flight.
    flight: Condvar,
    /// Idle or drained.
    quiet: Condvar,
}

struct Guarded<T: Kinds> {
    state: State<T>,
    /// How often the clock was said to have changed.
    clock_changes: u64,
}

/// What becomes of a frame that was admitted.
pub enum Admission<'a, T: Kinds> {
    /// Submit it, then commit.
    Infer(Permit<'a, T>),
    /// Commit: it leaves with older labels, for this reason.
    Reuse(Permit<'a, T>, Why),
    /// Drop it, for this reason.
    Drop(Why),
}

/// A reserved place in the queue. Whoever drops it uncommitted hands the place and the slot back, and must not have
/// submitted the frame.
#[must_use = "the frame isn't in the queue before the permit is committed"]
pub struct Permit<'a, T: Kinds> {
    queue: &'a Queue<T>,
    place: Reservation,
}

/// A frame in flight whose result its holder waits for. Dropped without a result, it is given out again.
#[must_use = "the slot stays occupied until the result is there"]
pub struct Ticket<'a, T: Kinds> {
    queue: &'a Queue<T>,
}

impl<T: Kinds> Queue<T> {
    /// An empty queue in front of an engine with that many slots.
    pub fn new(slots: usize, settings: Settings, clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            guarded: Mutex::new(Guarded { state: State::new(slots, settings), clock_changes: 0 }),
            room: Condvar::new(),
            head: Condvar::new(),
            flight: Condvar::new(),
            quiet: Condvar::new(),
        }
    }

    // Frames come.

    /// Decides what becomes of a frame, and reserves its place. Waits for a free slot or for room where the frame may
    /// not be dropped or leave without its own labels, and while another permit is out: frames are submitted in the
    /// order of their places.
    ///
    /// # Errors
    /// If the queue is, or is being, flushed or shut down, or downstream took no more.
    pub fn admit(&self, times: FrameTimes) -> Result<Admission<'_, T>, Closed<T::Flow>> {
        let mut guarded = self.lock();
        loop {
            match guarded.state.admit(times) {
                Answer::MustWait => guarded = wait(&self.room, guarded),
                Answer::Closed(closed) => return Err(closed),
                Answer::Drop(why) => return Ok(Admission::Drop(why)),
                Answer::Place(place) => {
                    let permit = Permit { queue: self, place };
                    return Ok(match place.reuse {
                        None => Admission::Infer(permit),
                        Some(why) => Admission::Reuse(permit, why),
                    });
                }
            }
        }
    }

    /// Queues something that isn't a frame. Never waits: it's for whoever needs an answer to wait for it.
    ///
    /// # Errors
    /// As [`Self::admit`], with the payload.
    pub fn pass(&self, payload: T::Payload) -> Result<(), Refused<T>> {
        self.lock().state.pass(payload)?;
        self.head.notify_all();
        Ok(())
    }

    // Results come.

    /// Waits until a frame is in flight whose result nobody waits for. None if there will be no more: the queue
    /// has been shut down and all slots are free.
    pub fn ticket(&self) -> Option<Ticket<'_, T>> {
        let mut guarded = self.lock();
        loop {
            if guarded.state.begin_receive() {
                return Some(Ticket { queue: self });
            }
            if guarded.state.is_finished() {
                return None;
            }
            guarded = wait(&self.flight, guarded);
        }
    }

    // The head leaves.

    /// Waits for the head of the queue to be ready to leave, and takes it. For one thread.
    pub fn next(&self) -> Next<T> {
        let mut guarded = self.lock();
        loop {
            // The clock is read without the lock. Should it be changed between that and the wait, it's read again.
            let clock_changes = guarded.clock_changes;
            drop(guarded);
            let now = self.clock.now();
            guarded = self.lock();
            let until = match guarded.state.take(now) {
                Head::Ready(next) => {
                    drop(guarded);
                    self.room.notify_all();
                    return next;
                }
                Head::Wait(until) => until,
            };
            if guarded.state.is_drained() {
                self.quiet.notify_all();
            }
            guarded = match until {
                None => wait(&self.head, guarded),
                Some(_) if clock_changes != guarded.clock_changes => guarded,
                Some(until) => wait_at_most(&self.head, guarded, until.saturating_sub(now)),
            };
        }
    }

    /// Has deadlines looked at anew: the clock has been set, started or exchanged.
    pub fn clock_changed(&self) {
        self.lock().clock_changes += 1;
        self.head.notify_all();
    }

    // Everything leaves.

    /// Empties the queue, and lets nobody in or wait until [`Self::stop_flush`]. Results of frames in flight will be
    /// ignored; their slots are occupied until then all the same. The last labels are forgotten.
    pub fn start_flush(&self) -> Drained<T> {
        self.close(State::start_flush)
    }

    /// Opens the queue again, and forgets what downstream answered.
    pub fn stop_flush(&self) {
        // Nobody waits meanwhile, so there is nobody to wake.
        self.lock().state.stop_flush();
    }

    /// Empties the queue for good. Frames in flight still get tickets.
    pub fn shut_down(&self) -> Drained<T> {
        self.close(State::shut_down)
    }

    /// Downstream took no more and answered `flow`: empties the queue, and answers the same to whoever comes, until
    /// [`Self::accept`] or the end of a flush.
    pub fn refuse(&self, flow: T::Flow) -> Drained<T> {
        self.close(|state| state.refuse(flow))
    }

    /// Downstream may take more.
    pub fn accept(&self) {
        self.lock().state.accept();
    }

    /// Whether the queue takes and gives nothing, and why.
    pub fn closed(&self) -> Option<Closed<T::Flow>> {
        self.lock().state.closed()
    }

    fn close(&self, close: impl FnOnce(&mut State<T>) -> Drained<T>) -> Drained<T> {
        let drained = close(&mut self.lock().state);
        for condition in [&self.room, &self.head, &self.flight, &self.quiet] {
            condition.notify_all();
        }
        drained
    }

    // Conditions to wait for.

    /// Waits until no slot is occupied. Bounded by the engine if whoever serves tickets goes on.
    pub fn wait_idle(&self) {
        let mut guarded = self.lock();
        while !guarded.state.is_idle() {
            guarded = wait(&self.quiet, guarded);
        }
    }

    /// Waits until everything queued has left and the taker has come back from it.
    ///
    /// # Errors
    /// As [`Self::admit`].
    pub fn wait_drained(&self) -> Result<(), Closed<T::Flow>> {
        let mut guarded = self.lock();
        loop {
            if let Some(closed) = guarded.state.closed() {
                return Err(closed);
            }
            if guarded.state.is_drained() {
                return Ok(());
            }
            guarded = wait(&self.quiet, guarded);
        }
    }

    // Settings.

    /// Changes the settings, also for frames that are in the queue.
    pub fn configure(&self, settings: Settings) {
        self.lock().state.configure(settings);
        self.room.notify_all();
        self.head.notify_all();
    }

    /// Downstream asks for frames of this running time or later: earlier ones aren't worth inference. Forgotten in a
    /// flush.
    pub fn set_earliest(&self, earliest: Option<Duration>) {
        self.lock().state.set_earliest(earliest);
        self.room.notify_all();
    }

    /// What the queue has seen.
    pub fn stats(&self) -> Stats {
        self.lock().state.stats()
    }

    fn lock(&self) -> MutexGuard<'_, Guarded<T>> {
        lock(&self.guarded)
    }
}

impl<T: Kinds> Permit<'_, T> {
    /// Queues the frame. One that is for inference must have been submitted.
    ///
    /// # Errors
    /// If the queue was emptied meanwhile. The payload comes back; inference goes on and its result will be ignored.
    pub fn commit(self, payload: T::Payload) -> Result<(), Refused<T>> {
        // Dropping it would cancel it.
        let permit = ManuallyDrop::new(self);
        let queue = permit.queue;
        let committed = queue.lock().state.commit(permit.place, payload);
        queue.flight.notify_all();
        queue.room.notify_all();
        queue.head.notify_all();
        queue.quiet.notify_all();
        committed
    }
}

impl<T: Kinds> Drop for Permit<'_, T> {
    fn drop(&mut self) {
        self.queue.lock().state.cancel();
        self.queue.room.notify_all();
        self.queue.flight.notify_all();
        self.queue.quiet.notify_all();
    }
}

impl<T: Kinds> Ticket<'_, T> {
    /// Brings the result. Gives back what the queue has no use for, to be dropped or its memory used again: a result
    /// that came after a flush, the labels that these take the place of.
    pub fn complete(self, result: Result<T::Labels, T::Failure>) -> Option<Result<T::Labels, T::Failure>> {
        // Dropping it would give the flight out again.
        let queue = ManuallyDrop::new(self).queue;
        let spent = queue.lock().state.complete(result);
        queue.room.notify_all();
        queue.head.notify_all();
        // Others may wait for tickets, and the last result after the end is what they wait for.
        queue.flight.notify_all();
        queue.quiet.notify_all();
        spent
    }
}

impl<T: Kinds> Drop for Ticket<'_, T> {
    fn drop(&mut self) {
        self.queue.lock().state.abandon_receive();
        self.queue.flight.notify_all();
    }
}
