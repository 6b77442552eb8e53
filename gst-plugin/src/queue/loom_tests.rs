//! Where threads meet: loom runs every order of their steps (up to the bound on preemptions below) and fails on a
//! wake-up that is lost, as that is a deadlock.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p gst-plugin-sapiensseg --no-default-features --lib --release loom`

use std::time::Duration;

use loom::sync::atomic::{AtomicU64, Ordering};
use loom::sync::{Arc, Mutex};
use loom::thread;

use super::*;

enum Numbers {}

impl Kinds for Numbers {
    type Payload = u32;
    type Labels = u32;
    type Failure = &'static str;
    type Flow = &'static str;
}

type TestQueue = Queue<Numbers>;

/// Stands still until it's set.
struct TestClock(AtomicU64);

impl Clock for TestClock {
    fn now(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::SeqCst))
    }
}

const NOT_LIVE: FrameTimes = FrameTimes { pts: None, running_time: None, deadline: None };

fn due_at(millis: u64) -> FrameTimes {
    FrameTimes { deadline: Some(Duration::from_millis(millis)), ..NOT_LIVE }
}

/// Runs a model. Two preemptions find nearly all there is to find; threads also switch wherever they wait.
fn model(preemptions: usize, check: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(check);
}

fn queue(slots: usize) -> (Arc<TestQueue>, std::sync::Arc<TestClock>) {
    let clock = std::sync::Arc::new(TestClock(AtomicU64::new(0)));
    (Arc::new(Queue::new(slots, Settings::default(), clock.clone())), clock)
}

/// Admits and commits; true if that's where it went.
fn push(queue: &TestQueue, frame: u32, times: FrameTimes) -> bool {
    match queue.admit(times) {
        Ok(Admission::Infer(permit) | Admission::Reuse(permit, _)) => permit.commit(frame).is_ok(),
        Ok(Admission::Drop(_)) | Err(_) => false,
    }
}

/// Labels are made from frames in order, until the end.
fn labels_thread(queue: &Arc<TestQueue>) -> thread::JoinHandle<()> {
    let queue = queue.clone();
    thread::spawn(move || {
        let mut labels = 100;
        while let Some(ticket) = queue.ticket() {
            ticket.complete(Ok(labels));
            labels += 1;
        }
    })
}

#[test]
fn loom_frames_and_events_pass_three_threads_in_order() {
    model(2, || {
        let (queue, _) = queue(1);
        let labels = labels_thread(&queue);
        let producer = {
            let queue = queue.clone();
            thread::spawn(move || {
                assert!(push(&queue, 0, NOT_LIVE));
                assert!(queue.pass(50).is_ok());
                assert!(push(&queue, 1, NOT_LIVE));
            })
        };
        let mut seen = Vec::new();
        while seen.len() < 3 {
            match queue.next() {
                Next::Pass(payload) => seen.push((payload, None)),
                Next::Frame(frame) => seen.push((frame.payload, frame.labels.map(|labels| labels.labels))),
                _ => panic!("neither a frame nor an event"),
            }
        }
        assert_eq!(seen, [(0, Some(100)), (50, None), (1, Some(101))]);
        producer.join().unwrap();
        queue.wait_idle();
        drop(queue.shut_down());
        labels.join().unwrap();
    });
}

#[test]
fn loom_places_are_taken_in_the_order_of_submission() {
    model(3, || {
        let (queue, _) = queue(2);
        let submitted = Arc::new(Mutex::new(Vec::new()));
        let submit = |frame: u32| {
            let (queue, submitted) = (queue.clone(), submitted.clone());
            thread::spawn(move || match queue.admit(NOT_LIVE) {
                Ok(Admission::Infer(permit)) => {
                    submitted.lock().unwrap().push(frame);
                    assert!(permit.commit(frame).is_ok());
                }
                _ => panic!("both slots are free"),
            })
        };
        let others = [submit(0), submit(1)];
        for other in others {
            other.join().unwrap();
        }
        for &frame in submitted.lock().unwrap().iter() {
            queue.ticket().unwrap().complete(Ok(frame));
            let Next::Frame(left) = queue.next() else { panic!("the labels are there") };
            assert_eq!((left.payload, left.labels.map(|labels| labels.labels)), (frame, Some(frame)));
        }
    });
}

#[test]
fn loom_a_submission_that_fails_gives_the_slot_to_who_waits_for_it() {
    model(3, || {
        let (queue, _) = queue(1);
        let Ok(Admission::Infer(permit)) = queue.admit(NOT_LIVE) else { panic!("the slot is free") };
        let other = {
            let queue = queue.clone();
            thread::spawn(move || assert!(matches!(queue.admit(NOT_LIVE), Ok(Admission::Infer(_)))))
        };
        drop(permit);
        other.join().unwrap();
        queue.wait_idle();
    });
}

#[test]
fn loom_a_submission_that_fails_wakes_who_waits_for_idleness_and_for_the_end() {
    model(3, || {
        let (queue, _) = queue(1);
        let Ok(Admission::Infer(permit)) = queue.admit(NOT_LIVE) else { panic!("the slot is free") };
        let idle = {
            let queue = queue.clone();
            thread::spawn(move || queue.wait_idle())
        };
        drop(permit);
        idle.join().unwrap();
    });
    model(3, || {
        let (queue, _) = queue(1);
        let Ok(Admission::Infer(permit)) = queue.admit(NOT_LIVE) else { panic!("the slot is free") };
        drop(queue.shut_down());
        // It may have been submitted, so the labels thread stays until it's known.
        let labels = labels_thread(&queue);
        drop(permit);
        labels.join().unwrap();
    });
}

#[test]
fn loom_a_ticket_that_is_dropped_goes_to_who_waits_for_it() {
    model(3, || {
        let (queue, _) = queue(1);
        assert!(push(&queue, 0, NOT_LIVE));
        let ticket = queue.ticket();
        let other = {
            let queue = queue.clone();
            thread::spawn(move || queue.ticket().map(|ticket| ticket.complete(Ok(100))))
        };
        drop(ticket);
        assert_eq!(other.join().unwrap(), Some(None));
    });
}

#[test]
fn loom_two_threads_share_the_tickets() {
    model(2, || {
        let (queue, _) = queue(2);
        assert!(push(&queue, 0, NOT_LIVE) && push(&queue, 1, NOT_LIVE));
        let other = {
            let queue = queue.clone();
            thread::spawn(move || queue.ticket().map(|ticket| ticket.complete(Ok(100))))
        };
        assert_eq!(queue.ticket().map(|ticket| ticket.complete(Ok(100))), Some(None));
        assert_eq!(other.join().unwrap(), Some(None));
        queue.wait_idle();
    });
}

#[test]
fn loom_an_event_wakes_the_taker() {
    model(3, || {
        let (queue, _) = queue(1);
        let producer = {
            let queue = queue.clone();
            thread::spawn(move || queue.pass(50).is_ok())
        };
        assert!(matches!(queue.next(), Next::Pass(50)));
        assert!(producer.join().unwrap());
    });
}

#[test]
fn loom_a_frame_without_inference_wakes_the_taker_and_who_waits_for_idleness() {
    model(3, || {
        let (queue, _) = queue(1);
        queue.configure(Settings { interval: 2, late: Late::Reuse });
        assert!(push(&queue, 0, NOT_LIVE));
        queue.ticket().unwrap().complete(Ok(100));
        let producer = {
            let queue = queue.clone();
            thread::spawn(move || push(&queue, 1, NOT_LIVE))
        };
        queue.wait_idle();
        assert!(matches!(queue.next(), Next::Frame(LabelledFrame { payload: 0, reused: None, .. })));
        assert!(matches!(
            queue.next(),
            Next::Frame(LabelledFrame { payload: 1, reused: Some(Why::Interval), .. })
        ));
        assert!(producer.join().unwrap());
    });
}

#[test]
fn loom_a_frame_that_leaves_makes_room_for_one_that_waits() {
    model(3, || {
        let (queue, _) = queue(1);
        queue.configure(Settings { interval: 9, late: Late::Reuse });
        assert!((0..3).all(|frame| push(&queue, frame, NOT_LIVE)), "slots + 2");
        queue.ticket().unwrap().complete(Ok(100));
        let producer = {
            let queue = queue.clone();
            thread::spawn(move || push(&queue, 3, NOT_LIVE))
        };
        assert!(matches!(queue.next(), Next::Frame(LabelledFrame { payload: 0, .. })));
        assert!(producer.join().unwrap());
    });
}

/// What ends every wait.
#[derive(Clone, Copy, PartialEq)]
enum End {
    Flush,
    ShutDown,
    Refuse,
}

impl End {
    const ALL: [Self; 3] = [Self::Flush, Self::ShutDown, Self::Refuse];

    fn begin(self, queue: &TestQueue) -> Vec<u32> {
        match self {
            Self::Flush => queue.start_flush(),
            Self::ShutDown => queue.shut_down(),
            Self::Refuse => queue.refuse("not linked"),
        }
        .into_payloads()
        .collect()
    }

    fn closed(self) -> Closed<&'static str> {
        match self {
            Self::Flush => Closed::Flushing,
            Self::ShutDown => Closed::Stopped,
            Self::Refuse => Closed::Flow("not linked"),
        }
    }
}

/// `wait` in a thread of its own, against each end.
fn every_end_against<R: Send + 'static>(
    prepare: impl Fn(&TestQueue) + Send + Sync + Copy + 'static,
    wait: impl Fn(&TestQueue) -> R + Send + Sync + Copy + 'static,
    check: impl Fn(End, R, Vec<u32>) + Send + Sync + Copy + 'static,
) {
    for end in End::ALL {
        model(3, move || {
            let (queue, _) = queue(1);
            prepare(&queue);
            let waiting = {
                let queue = queue.clone();
                thread::spawn(move || wait(&queue))
            };
            let drained = end.begin(&queue);
            check(end, waiting.join().unwrap(), drained);
        });
    }
}

#[test]
fn loom_every_end_wakes_admit() {
    every_end_against(
        |queue| assert!(push(queue, 0, NOT_LIVE)),
        |queue| queue.admit(NOT_LIVE).err(),
        |end, refused, drained| assert_eq!((refused, drained), (Some(end.closed()), vec![0])),
    );
}

#[test]
fn loom_every_end_wakes_next() {
    for deadline in [NOT_LIVE, due_at(5)] {
        every_end_against(
            move |queue| assert!(push(queue, 0, deadline)),
            |queue| match queue.next() {
                Next::Closed(closed) => Some(closed),
                _ => None,
            },
            |end, closed, drained| assert_eq!((closed, drained), (Some(end.closed()), vec![0])),
        );
    }
}

#[test]
fn loom_every_end_wakes_wait_drained() {
    every_end_against(
        |queue| assert!(queue.pass(50).is_ok()),
        |queue| queue.wait_drained(),
        |end, refused, drained| assert_eq!((refused, drained), (Err(end.closed()), vec![50])),
    );
}

#[test]
fn loom_shutting_down_wakes_who_waits_for_a_ticket() {
    model(3, || {
        let (queue, _) = queue(1);
        let labels = labels_thread(&queue);
        drop(queue.shut_down());
        labels.join().unwrap();
    });
}

#[test]
fn loom_a_permit_that_is_out_meets_every_end() {
    for end in End::ALL {
        model(3, move || {
            let (queue, _) = queue(1);
            let labels = labels_thread(&queue);
            let producer = {
                let queue = queue.clone();
                thread::spawn(move || push(&queue, 0, NOT_LIVE))
            };
            let drained = end.begin(&queue);
            let pushed = producer.join().unwrap();
            // It was queued and came out of the queue, or was handed back: neither both nor neither.
            assert_eq!(drained, if pushed { vec![0] } else { vec![] });
            // Whether or not it was submitted, the slot comes free.
            queue.wait_idle();
            if end != End::ShutDown {
                queue.stop_flush();
                assert!(push(&queue, 1, NOT_LIVE));
                let Next::Frame(frame) = queue.next() else { panic!("the new frame") };
                assert_eq!(frame.payload, 1);
                let labels = frame.labels.map(|labels| labels.labels);
                assert!(frame.reused.is_none() && labels >= Some(100), "labels of its own");
                drop(queue.shut_down());
            }
            labels.join().unwrap();
        });
    }
}

#[test]
fn loom_flush_and_start_over_with_all_threads_running() {
    model(2, || {
        let (queue, _) = queue(1);
        let labels = labels_thread(&queue);
        let producer = {
            let queue = queue.clone();
            thread::spawn(move || push(&queue, 0, NOT_LIVE))
        };
        let taker = {
            let queue = queue.clone();
            thread::spawn(move || {
                let mut seen = Vec::new();
                loop {
                    match queue.next() {
                        Next::Frame(frame) => seen.push(frame.payload),
                        Next::Closed(_) => return seen,
                        _ => panic!("only frames were pushed"),
                    }
                }
            })
        };
        let mut left: Vec<u32> = queue.start_flush().into_payloads().collect();
        queue.wait_idle();
        left.extend(taker.join().unwrap());
        assert_eq!(left, if producer.join().unwrap() { vec![0] } else { vec![] });
        queue.stop_flush();
        assert_eq!(queue.stats().depth, 0);
        drop(queue.shut_down());
        labels.join().unwrap();
    });
}

#[test]
fn loom_a_deadline_and_its_labels_meet() {
    model(3, || {
        let (queue, clock) = queue(1);
        assert!(push(&queue, 0, due_at(5)));
        let labels = labels_thread(&queue);
        let time = {
            let (queue, clock) = (queue.clone(), clock);
            thread::spawn(move || {
                clock.0.store(5, Ordering::SeqCst);
                queue.clock_changed();
            })
        };
        let Next::Frame(frame) = queue.next() else { panic!("a frame, labelled or not") };
        assert_eq!(frame.labels.is_some(), frame.reused.is_none(), "its own labels or none");
        time.join().unwrap();
        // Late or not, they are the last labels now.
        queue.wait_idle();
        assert!(push(&queue, 1, due_at(0)));
        let Next::Frame(frame) = queue.next() else { panic!("the second frame") };
        let expected = if frame.reused.is_some() { 100 } else { 101 };
        assert_eq!(frame.labels.map(|labels| labels.labels), Some(expected));
        drop(queue.shut_down());
        labels.join().unwrap();
    });
}

#[test]
fn loom_time_alone_lets_a_frame_go() {
    model(3, || {
        let (queue, clock) = queue(1);
        assert!(push(&queue, 0, due_at(5)));
        let taker = {
            let queue = queue.clone();
            thread::spawn(move || {
                matches!(queue.next(), Next::Frame(LabelledFrame { reused: Some(Why::Late), .. }))
            })
        };
        clock.0.store(5, Ordering::SeqCst);
        queue.clock_changed();
        assert!(taker.join().unwrap());
    });
}

#[test]
fn loom_drained_means_that_the_taker_is_back() {
    model(3, || {
        let (queue, _) = queue(1);
        assert!(queue.pass(50).is_ok());
        let pushed = Arc::new(AtomicU64::new(0));
        let taker = {
            let (queue, pushed) = (queue.clone(), pushed.clone());
            thread::spawn(move || {
                while let Next::Pass(_) = queue.next() {
                    pushed.fetch_add(1, Ordering::SeqCst);
                }
            })
        };
        assert_eq!(queue.wait_drained(), Ok(()));
        assert_eq!(pushed.load(Ordering::SeqCst), 1, "what was taken has been pushed");
        drop(queue.shut_down());
        taker.join().unwrap();
    });
}
