//! The queue with threads and real time.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc;
use std::time::Instant;

use super::random::Random;
use super::*;

/// Longer than any wake-up takes on a busy machine.
const BOUND: Duration = Duration::from_secs(10);

struct RealClock(Instant);

impl Clock for RealClock {
    fn now(&self) -> Duration {
        self.0.elapsed()
    }
}

pub(super) fn real_clock() -> Arc<dyn Clock> {
    Arc::new(RealClock(Instant::now()))
}

/// Admits and commits a frame.
fn push(queue: &TestQueue, frame: u32, times: FrameTimes) -> Result<Plan, Closed<&'static str>> {
    let (plan, permit) = match queue.admit(times)? {
        Admission::Infer(permit) => (Plan::Infer, permit),
        Admission::Reuse(permit, why) => (Plan::Reuse(why), permit),
        Admission::Drop(why) => return Ok(Plan::Drop(why)),
    };
    permit.commit(Frame(frame)).map_err(|refused| refused.closed)?;
    Ok(plan)
}

/// Runs `blocked` in a thread, and `wake` when it has had time to block; what it came to, soon after.
fn blocked<R: Send>(queue: &TestQueue, blocked: impl FnOnce() -> R + Send, wake: impl FnOnce()) -> R {
    std::thread::scope(|scope| {
        let (done, result) = mpsc::channel();
        scope.spawn(move || done.send(blocked()));
        assert!(result.recv_timeout(millis(50)).is_err(), "it should be blocked");
        wake();
        result.recv_timeout(BOUND).unwrap_or_else(|_| {
            drop(queue.shut_down());
            panic!("it is still blocked");
        })
    })
}

#[test]
fn each_blocked_thread_ends_when_the_queue_is_shut_down() {
    let (queue, _) = queue(1, Settings::default());
    let queue = &queue;
    assert!(blocked(queue, || queue.next(), || drop(queue.shut_down())).is_closed(Closed::Stopped));

    let queue = &super::queue(1, Settings::default()).0;
    assert!(blocked(queue, || queue.ticket().is_none(), || drop(queue.shut_down())));

    // Its only slot full: a frame must wait, the taker for its labels, idleness for its result.
    for deadline in [None, Some(Duration::from_secs(3600))] {
        let queue = &super::queue(1, Settings { late: Late::Wait, interval: 1 }).0;
        let times = FrameTimes { deadline, ..times(0) };
        push(queue, 0, times).unwrap();
        let begun = Instant::now();
        blocked(
            queue,
            || {
                std::thread::scope(|scope| {
                    scope.spawn(|| assert_eq!(push(queue, 1, times), Err(Closed::Stopped)));
                    scope.spawn(|| assert!(queue.next().is_closed(Closed::Stopped)));
                    scope.spawn(|| assert_eq!(queue.wait_drained(), Err(Closed::Stopped)));
                });
            },
            || drop(queue.shut_down()),
        );
        assert!(begun.elapsed() < BOUND);
        // The frame in flight is waited for even so, and the labels thread ends after it.
        let ticket = queue.ticket().expect("a result is to come");
        blocked(queue, || queue.wait_idle(), || assert!(ticket.complete(Ok(0)).is_some()));
        assert!(queue.ticket().is_none());
    }
}

impl Next<Numbers> {
    fn is_closed(&self, expected: Closed<&'static str>) -> bool {
        matches!(self, Next::Closed(closed) if *closed == expected)
    }
}

#[test]
fn a_flush_wakes_each_blocked_thread() {
    let (queue, _) = queue(1, Settings::default());
    push(&queue, 0, times(0)).unwrap();
    assert_eq!(
        blocked(&queue, || push(&queue, 1, times(1)), || drop(queue.start_flush())),
        Err(Closed::Flushing),
        "the frame that found no slot"
    );
    queue.stop_flush();
    assert!(blocked(&queue, || queue.next(), || drop(queue.start_flush())).is_closed(Closed::Flushing));
    queue.stop_flush();
    // The frame from before is still in its slot, until its result has come and was ignored.
    let ticket = queue.ticket().expect("it is in flight");
    let plan =
        blocked(&queue, || push(&queue, 2, times(2)), || assert_eq!(ticket.complete(Ok(0)), Some(Ok(0))));
    assert_eq!(plan, Ok(Plan::Infer));
}

#[test]
fn what_downstream_answered_wakes_a_blocked_frame() {
    let (queue, _) = queue(1, Settings::default());
    push(&queue, 0, times(0)).unwrap();
    let refused = blocked(&queue, || push(&queue, 1, times(1)), || drop(queue.refuse("not linked")));
    assert_eq!(refused, Err(Closed::Flow("not linked")));
    assert_eq!(push(&queue, 2, times(2)), Err(Closed::Flow("not linked")));
}

#[test]
fn a_deadline_ends_the_wait_by_the_real_clock() {
    let queue = TestQueue::new(1, Settings::default(), real_clock());
    let deadline = millis(80);
    push(&queue, 0, FrameTimes { deadline: Some(deadline), ..times(0) }).unwrap();
    let begun = Instant::now();
    assert_eq!(Out::from(queue.next()), Reused(0, None, Why::Late));
    assert!(begun.elapsed() > millis(50) && begun.elapsed() < BOUND);
}

#[test]
fn a_clock_that_changes_has_deadlines_looked_at_anew() {
    let (queue, clock) = queue(1, Settings::default());
    push(&queue, 0, FrameTimes { deadline: Some(Duration::from_secs(3600)), ..times(0) }).unwrap();
    let out = blocked(&queue, || queue.next(), || clock.set(Duration::from_secs(3600), &queue));
    assert_eq!(Out::from(out), Reused(0, None, Why::Late));
}

#[test]
fn a_setting_that_changes_lets_a_frame_go() {
    let (queue, clock) = queue(1, Settings { late: Late::Wait, interval: 1 });
    clock.set(Duration::from_secs(3600), &queue);
    push(&queue, 0, live(0)).unwrap();
    let out =
        blocked(&queue, || queue.next(), || queue.configure(Settings { late: Late::Drop, interval: 1 }));
    assert_eq!(Out::from(out), Dropped(0));

    // A frame that waits for a slot is looked at anew, too.
    let (queue, _) = super::queue(1, Settings::default());
    push(&queue, 0, times(0)).unwrap();
    let plan = blocked(&queue, || push(&queue, 1, times(1)), || queue.set_earliest(Some(millis(15))));
    assert_eq!(plan, Ok(Plan::Reuse(Why::Qos)));
    let wake = || queue.configure(Settings { interval: 4, late: Late::Reuse });
    let plan = blocked(&queue, || push(&queue, 2, times(2)), wake);
    assert_eq!(plan, Ok(Plan::Reuse(Why::Interval)));
}

#[test]
fn a_frame_that_leaves_makes_room_for_one_that_waits() {
    let (queue, _) = queue(1, Settings { interval: 9, late: Late::Reuse });
    for frame in 0..3 {
        push(&queue, frame, times(frame)).unwrap();
    }
    queue.ticket().unwrap().complete(Ok(0));
    let leave = || assert_eq!(Out::from(queue.next()), Fresh(0));
    assert_eq!(blocked(&queue, || push(&queue, 3, times(3)), leave), Ok(Plan::Reuse(Why::Interval)));
}

#[test]
fn a_ticket_or_permit_that_is_dropped_goes_to_the_next() {
    let (queue, _) = queue(1, Settings::default());
    let permit = queue.admit(times(0)).unwrap();
    assert_eq!(blocked(&queue, || push(&queue, 0, times(0)), || drop(permit)), Ok(Plan::Infer));
    let ticket = queue.ticket();
    let complete = || queue.ticket().map(|ticket| ticket.complete(Ok(0)));
    assert_eq!(blocked(&queue, complete, || drop(ticket)), Some(None));
    assert_eq!(Out::from(queue.next()), Fresh(0));
}

#[test]
fn a_query_while_full_is_answered_in_its_turn() {
    let (queue, _) = queue(2, Settings { interval: 2, late: Late::Reuse });
    for frame in 0..4 {
        push(&queue, frame, times(frame)).unwrap();
    }
    let queue = &queue;
    std::thread::scope(|scope| {
        let _ending = ShutDown(queue);
        let (answer, answered) = mpsc::channel();
        let streaming = scope.spawn(move || {
            assert!(queue.pass(Query).is_ok());
            answered.recv_timeout(BOUND)
        });
        for labels in [0, 2] {
            queue.ticket().unwrap().complete(Ok(labels));
        }
        for frame in 0..4 {
            let Next::Frame(left) = queue.next() else { panic!("frames are before the query") };
            assert_eq!(left.payload, Frame(frame));
        }
        assert_eq!(Out::from(queue.next()), Pass(Query));
        answer.send("yes").unwrap();
        assert_eq!(streaming.join().unwrap(), Ok("yes"));
    });
}

#[test]
fn a_panic_in_a_payload_leaves_the_queue_usable() {
    // Payloads are dropped without the lock, so none is poisoned and nobody is kept waiting.
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            if !std::thread::panicking() {
                panic!("dropped");
            }
        }
    }
    enum Bombs {}
    impl Kinds for Bombs {
        type Payload = Bomb;
        type Labels = ();
        type Failure = ();
        type Flow = ();
    }
    let queue = Queue::<Bombs>::new(1, Settings::default(), real_clock());
    assert!(queue.pass(Bomb).is_ok());
    let dropped = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(queue.start_flush())));
    assert!(dropped.is_err());
    queue.stop_flush();
    assert_eq!(queue.wait_drained(), Ok(()));
}

/// A thousand flushes while frames, events, results and the taker come and go.
#[test]
fn flush_storm() {
    const FLUSHES: u32 = 1000;
    let queue = &TestQueue::new(2, Settings { interval: 2, late: Late::Reuse }, real_clock());
    let over = &AtomicBool::new(false);
    // What an engine would hold: frames submitted and not received.
    let engine = &Mutex::new(std::collections::VecDeque::new());
    let flushed_before = &AtomicU32::new(0);
    let pause = |random: &mut Random| match random.below(8) {
        0 => std::thread::sleep(Duration::from_micros(random.below(200))),
        1..4 => std::thread::yield_now(),
        _ => {}
    };
    let (pushed, mut seen) = std::thread::scope(|scope| {
        let ending = ShutDown(queue);
        let producer = scope.spawn(move || {
            let mut random = Random::new(1);
            let mut pushed = Vec::new();
            for number in 0.. {
                if over.load(Ordering::SeqCst) {
                    break;
                }
                pause(&mut random);
                let item = if random.below(4) == 0 { Event(number) } else { Frame(number) };
                let accepted = match item {
                    Frame(_) => match queue.admit(times(number)) {
                        Ok(Admission::Infer(permit)) => {
                            engine.lock().unwrap().push_back(number);
                            pause(&mut random);
                            permit.commit(item).is_ok()
                        }
                        Ok(Admission::Reuse(permit, _)) => permit.commit(item).is_ok(),
                        Ok(Admission::Drop(_)) => panic!("nothing is dropped"),
                        Err(closed) => {
                            assert_eq!(closed, Closed::Flushing);
                            false
                        }
                    },
                    event => queue.pass(event).is_ok(),
                };
                if accepted {
                    pushed.push(item);
                }
            }
            pushed
        });
        scope.spawn(move || {
            let _ending = ShutDown(queue);
            let mut random = Random::new(2);
            while let Some(ticket) = queue.ticket() {
                pause(&mut random);
                let frame = engine.lock().unwrap().pop_front().expect("the ticket's frame");
                ticket.complete(Ok(frame));
            }
        });
        let taker = scope.spawn(move || {
            let _ending = ShutDown(queue);
            let mut random = Random::new(3);
            let mut seen = Vec::new();
            loop {
                pause(&mut random);
                // Nothing that was flushed comes out after the flush.
                let oldest = flushed_before.load(Ordering::SeqCst);
                match queue.next() {
                    Next::Frame(LabelledFrame { payload: Frame(frame), labels, reused, .. }) => {
                        let Stamped { labels, pts } = labels.expect("not live: no frame is without");
                        assert_eq!(pts, times(labels).pts);
                        assert!(
                            frame >= oldest
                                && if reused.is_some() { labels < frame } else { labels == frame }
                        );
                        seen.push(Frame(frame));
                    }
                    Next::Pass(event) => seen.push(event),
                    Next::Closed(Closed::Flushing) => std::thread::yield_now(),
                    Next::Closed(Closed::Stopped) => return seen,
                    _ => panic!("nothing fails and nothing is dropped"),
                }
            }
        });
        let mut random = Random::new(4);
        let mut flushed: Vec<Item> = Vec::new();
        for _ in 0..FLUSHES {
            let drained: Vec<Item> = queue.start_flush().into_payloads().collect();
            for item in &drained {
                if let Frame(number) | Event(number) = item {
                    flushed_before.fetch_max(*number, Ordering::SeqCst);
                }
            }
            flushed.extend(drained);
            if random.below(2) == 0 {
                queue.wait_idle();
                assert!(engine.lock().unwrap().is_empty());
            }
            queue.stop_flush();
            pause(&mut random);
            if random.below(16) == 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        over.store(true, Ordering::SeqCst);
        let pushed = producer.join().unwrap();
        queue.wait_drained().unwrap();
        queue.wait_idle();
        drop(ending);
        let seen = taker.join().unwrap();
        assert!(seen.is_sorted_by_key(|item| match item {
            Frame(number) | Event(number) => *number,
            other => panic!("{other:?}"),
        }));
        println!("{} pushed, {} left, {} flushed", pushed.len(), seen.len(), flushed.len());
        (pushed, [seen, flushed].concat())
    });
    seen.sort_by_key(|item| if let Frame(number) | Event(number) = item { *number } else { u32::MAX });
    assert_eq!(seen, pushed, "each left or was flushed, once");
    assert!(queue.stats().max_depth <= 4);
}
