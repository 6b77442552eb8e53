//! A bounded queue in front of the `mask` pad's task, so that neither pad keeps the other from prerolling.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, PoisonError};

use super::running::lock;

/// First in, first out; whoever fills it waits while it's full.
pub(super) struct Outbox<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
    capacity: usize,
}

struct State<T> {
    items: VecDeque<T>,
    open: bool,
}

impl<T> Outbox<T> {
    /// Closed at first.
    pub(super) fn new(capacity: usize) -> Self {
        let state = State { items: VecDeque::new(), open: false };
        Self { state: Mutex::new(state), changed: Condvar::new(), capacity }
    }

    /// Adds an item, once there is room; false if it's closed.
    pub(super) fn push(&self, item: T) -> bool {
        let mut state = lock(&self.state);
        while state.open && state.items.len() >= self.capacity {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.open {
            state.items.push_back(item);
            self.changed.notify_all();
        }
        state.open
    }

    /// Takes the oldest item, once there is one; none if it's closed.
    pub(super) fn pop(&self) -> Option<T> {
        let mut state = lock(&self.state);
        loop {
            if !state.open {
                return None;
            }
            if let Some(item) = state.items.pop_front() {
                self.changed.notify_all();
                return Some(item);
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    pub(super) fn open(&self) {
        lock(&self.state).open = true;
    }

    /// Empties it and wakes everybody.
    pub(super) fn close(&self) {
        let items = {
            let mut state = lock(&self.state);
            state.open = false;
            std::mem::take(&mut state.items)
        };
        self.changed.notify_all();
        drop(items);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_leave_in_order_and_no_more_than_fit_wait() {
        let outbox = Outbox::new(2);
        assert!(!outbox.push(0), "it's closed at first");
        outbox.open();
        std::thread::scope(|scope| {
            scope.spawn(|| (0..100).for_each(|n| assert!(outbox.push(n))));
            for n in 0..100 {
                assert!(lock(&outbox.state).items.len() <= 2);
                assert_eq!(outbox.pop(), Some(n));
            }
        });
    }

    #[test]
    fn closing_wakes_who_waits_to_push_and_to_pop() {
        for full in [true, false] {
            let outbox = Outbox::new(1);
            outbox.open();
            std::thread::scope(|scope| {
                let waiter = if full {
                    assert!(outbox.push(1));
                    scope.spawn(|| outbox.push(2))
                } else {
                    scope.spawn(|| outbox.pop().is_some())
                };
                std::thread::sleep(std::time::Duration::from_millis(20));
                outbox.close();
                assert!(!waiter.join().unwrap());
            });
            assert_eq!(outbox.pop(), None);
        }
    }
}
