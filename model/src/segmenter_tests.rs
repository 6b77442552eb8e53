//! On the fake engine: order, slots, failures.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use super::*;
use crate::engine::fake::{self, Outcome, Turn};
use crate::frame::{FrameView, OwnedFrame, Pixels};
use crate::variant::Variant;

fn segmenter(slots: usize, script: impl FnMut(usize) -> Turn + Send + 'static) -> Segmenter {
    let engine = fake::engine(slots, Box::new(script)).unwrap();
    Segmenter::with_engine(ModelCard::of(Variant::Sapiens1b), engine)
}

fn quick(outcome: Outcome) -> Turn {
    Turn { delay: Duration::ZERO, outcome }
}

fn frame() -> OwnedFrame {
    OwnedFrame::rgb(3, 2, vec![0; 18]).unwrap()
}

#[test]
fn results_leave_in_order_and_slots_are_bounded() {
    let segmenter = segmenter(2, |n| quick(Outcome::Fill(n as u8)));
    let mut output = Output::default();
    assert_eq!(segmenter.receive(&mut output).unwrap_err().kind(), ErrorKind::Empty);
    for n in 0..20u8 {
        segmenter.submit(frame()).unwrap();
        if n > 0 {
            let error = segmenter.submit(frame()).unwrap_err();
            assert_eq!((error.kind(), segmenter.in_flight()), (ErrorKind::Full, 2));
            segmenter.receive(&mut output).unwrap();
            assert_eq!((output.labels.labels(), output.labels.width()), ([n - 1; 6].as_slice(), 3));
        }
    }
    segmenter.receive(&mut output).unwrap();
    assert_eq!((output.labels.labels()[0], segmenter.in_flight()), (19, 0));
}

#[test]
fn a_failed_or_panicking_frame_is_its_own_error_and_the_next_goes_on() {
    let segmenter = segmenter(2, |n| {
        quick(match n {
            0 => Outcome::Fail("no power".into()),
            1 => Outcome::Panic("index 9 of 3".into()),
            _ => Outcome::Fill(7),
        })
    });
    let mut output = Output::default();
    output.labels.resize(1, 1);
    for expected in ["no power", "inference panicked: index 9 of 3"] {
        segmenter.submit(frame()).unwrap();
        let error = segmenter.receive(&mut output).unwrap_err();
        assert_eq!((error.kind(), error.to_string().as_str()), (ErrorKind::Engine, expected));
        assert_eq!(output.labels.width(), 1, "a failed frame must leave the output alone");
    }
    segmenter.submit(frame()).unwrap();
    segmenter.receive(&mut output).unwrap();
    assert_eq!(output.labels.labels(), [7; 6]);
}

#[test]
fn submitting_and_receiving_threads_keep_the_order() {
    let segmenter = segmenter(3, |n| Turn {
        delay: Duration::from_micros((n as u64 * 7919) % 300),
        outcome: Outcome::Fill((n % 251) as u8),
    });
    let received = std::thread::scope(|scope| {
        let (freed, slots) = mpsc::sync_channel(3);
        let (started, begun) = mpsc::channel();
        let segmenter = &segmenter;
        scope.spawn(move || {
            for _ in 0..500 {
                freed.send(()).unwrap();
                segmenter.submit(frame()).unwrap();
                started.send(()).unwrap();
            }
        });
        let mut output = Output::default();
        begun
            .iter()
            .map(|()| {
                segmenter.receive(&mut output).unwrap();
                slots.recv().unwrap();
                output.labels.labels()[0]
            })
            .collect::<Vec<_>>()
    });
    assert_eq!(received, (0..500).map(|n| (n % 251) as u8).collect::<Vec<_>>());
}

/// Counts how many are alive.
struct Counted(&'static AtomicUsize);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Frame for Counted {
    fn pixels(&self) -> Pixels<'_> {
        Pixels::Host(FrameView::rgb(1, 1, &[1, 2, 3]).unwrap())
    }
}

#[test]
fn without_a_network_frames_are_refused() {
    let loaded = segmenter(2, |_| Turn { delay: Duration::ZERO, outcome: Outcome::Fill(1) });
    let segmenter = loaded.unloaded();
    assert_eq!((segmenter.slots(), segmenter.card().name()), (2, loaded.card().name()));
    for _ in 0..3 {
        let error = segmenter.submit(OwnedFrame::rgb(1, 1, vec![1, 2, 3]).unwrap()).unwrap_err();
        assert!(error.to_string().contains("no network is loaded"), "{error}");
    }
    assert_eq!((segmenter.in_flight(), segmenter.discard()), (0, 0));
}

#[test]
fn discard_waits_for_begun_work_leaves_out_the_rest_and_gives_frames_back() {
    static ALIVE: AtomicUsize = AtomicUsize::new(0);
    let delay = Duration::from_millis(150);
    let segmenter = segmenter(4, move |n| Turn { delay, outcome: Outcome::Fill(n as u8) });
    let start = Instant::now();
    for _ in 0..4 {
        ALIVE.fetch_add(1, Ordering::SeqCst);
        segmenter.submit(Counted(&ALIVE)).unwrap();
    }
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(segmenter.discard(), 4);
    let elapsed = start.elapsed();
    assert_eq!((ALIVE.load(Ordering::SeqCst), segmenter.in_flight()), (0, 0));
    assert!(elapsed >= delay && elapsed < 3 * delay, "one frame's work, not four: {elapsed:?}");
    // And it works as before, on the script's next turn: the frames left out took none.
    segmenter.submit(frame()).unwrap();
    let mut output = Output::default();
    segmenter.receive(&mut output).unwrap();
    assert_eq!(output.labels.labels()[0], 1);
    assert_eq!(segmenter.discard(), 0);
}

#[test]
fn discard_shortens_the_wait_of_whoever_receives() {
    let delay = Duration::from_millis(150);
    let segmenter = segmenter(4, move |n| Turn { delay, outcome: Outcome::Fill(n as u8) });
    (0..4).for_each(|_| segmenter.submit(frame()).unwrap());
    let start = Instant::now();
    std::thread::scope(|scope| {
        let receiver = scope.spawn(|| {
            let mut output = Output::default();
            std::iter::repeat_with(|| segmenter.receive(&mut output))
                .take_while(|result| !matches!(result, Err(error) if error.kind() == ErrorKind::Empty))
                .count()
        });
        std::thread::sleep(Duration::from_millis(20));
        let discarded = segmenter.discard();
        assert_eq!(receiver.join().unwrap() + discarded, 4);
    });
    assert!(start.elapsed() < 3 * delay, "one frame's work, not four: {:?}", start.elapsed());
}

#[test]
fn label_memory_goes_round() {
    let segmenter = segmenter(1, |_| quick(Outcome::Fill(1)));
    let mut output = Output::default();
    let mut addresses = std::collections::HashSet::new();
    for _ in 0..50 {
        segmenter.submit(frame()).unwrap();
        segmenter.receive(&mut output).unwrap();
        addresses.insert(output.labels.labels().as_ptr());
    }
    assert!(addresses.len() <= 2, "{} buffers for one slot and one caller", addresses.len());
}

#[test]
fn dropping_with_frames_in_flight_ends_quietly() {
    let start = Instant::now();
    let delay = Duration::from_millis(150);
    let segmenter = segmenter(4, move |_| Turn { delay, outcome: Outcome::Fill(0) });
    for _ in 0..4 {
        segmenter.submit(frame()).unwrap();
    }
    drop(segmenter);
    assert!(start.elapsed() < 3 * delay, "frames that had not begun were worked on");
}
