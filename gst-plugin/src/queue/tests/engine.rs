//! The queue with the segmenter on the fake engine, as the element uses them: threads, real time, frames with pixels.

use std::sync::Mutex;

use sapiens_model::engine::fake::{self, Outcome, Turn};
use sapiens_model::{ModelCard, Output, OwnedFrame, Segmenter, Variant};

use super::threads::real_clock;
use super::*;

enum Segmented {}

impl Kinds for Segmented {
    type Payload = Item;
    type Labels = Arc<Output>;
    type Failure = String;
    type Flow = ();
}

fn segmenter(slots: usize, script: impl FnMut(usize) -> Turn + Send + 'static) -> Segmenter {
    Segmenter::with_engine(ModelCard::of(Variant::Sapiens1b), fake::engine(slots, Box::new(script)).unwrap())
}

/// A frame whose label is its number's remainder by 16.
fn pixels(frame: u32) -> OwnedFrame {
    OwnedFrame::rgb(2, 2, vec![(frame % 16 * 16) as u8; 12]).unwrap()
}

/// What the labels thread does.
fn serve(queue: &Queue<Segmented>, segmenter: &Segmenter) {
    while let Some(ticket) = queue.ticket() {
        let mut output = Output::default();
        let result = segmenter.receive(&mut output);
        ticket.complete(result.map(|()| Arc::new(output)).map_err(|error| error.to_string()));
    }
}

/// What the chain function does; whether the frame is in the queue.
fn chain(queue: &Queue<Segmented>, segmenter: &Segmenter, frame: u32, times: FrameTimes) -> bool {
    match queue.admit(times) {
        Ok(Admission::Infer(permit)) => {
            segmenter.submit(pixels(frame)).expect("a slot is free whenever the queue says so");
            permit.commit(Frame(frame)).is_ok()
        }
        Ok(Admission::Reuse(permit, _)) => permit.commit(Frame(frame)).is_ok(),
        Ok(Admission::Drop(_)) | Err(_) => false,
    }
}

#[test]
fn segmenter_not_live_frames_events_and_a_failure_come_out_in_order_with_their_own_labels() {
    const FRAMES: u32 = 300;
    let delay = |n: usize| Duration::from_micros((n as u64 * 7919) % 400);
    let segmenter = &segmenter(2, move |n| Turn {
        delay: delay(n),
        outcome: if n == 200 { Outcome::Fail("no power".into()) } else { Outcome::GreenOver16 },
    });
    let queue = &Queue::<Segmented>::new(segmenter.slots(), Settings::default(), real_clock());
    std::thread::scope(|scope| {
        let _ending = ShutDown(queue);
        scope.spawn(|| serve(queue, segmenter));
        scope.spawn(|| {
            for frame in 0..FRAMES {
                if frame % 50 == 0 {
                    assert!(queue.pass(Event(frame)).is_ok());
                }
                assert!(chain(queue, segmenter, frame, times(frame)));
            }
            assert!(queue.pass(Eos).is_ok());
        });
        for frame in 0..FRAMES {
            if frame % 50 == 0 {
                assert!(matches!(queue.next(), Next::Pass(Event(event)) if event == frame));
            }
            match queue.next() {
                Next::Frame(left) => {
                    assert_eq!((left.payload, left.reused), (Frame(frame), None));
                    let Stamped { labels, pts } = left.labels.unwrap();
                    assert_eq!(
                        (labels.labels.labels(), pts),
                        ([(frame % 16) as u8; 4].as_slice(), times(frame).pts)
                    );
                }
                Next::Failed { payload, failure } => {
                    assert_eq!((payload, failure.as_str(), frame), (Some(Frame(200)), "no power", 200));
                }
                _ => panic!("frame {frame} is to come"),
            }
        }
        assert!(matches!(queue.next(), Next::Pass(Eos)));
        queue.wait_idle();
    });
    let Stats { frames, inferred, fresh, failed, max_depth, .. } = queue.stats();
    assert_eq!((frames, inferred, fresh, failed), (300, 300, 299, 1));
    assert!(max_depth <= 4 && segmenter.in_flight() == 0);
}

#[test]
fn segmenter_live_frames_leave_on_time_while_the_engine_is_too_slow() {
    const FRAMES: u32 = 60;
    let period = millis(10);
    let segmenter = &segmenter(2, |n| Turn { delay: millis(150), outcome: Outcome::Fill(1 + n as u8) });
    let clock = real_clock();
    let queue = &Queue::<Segmented>::new(segmenter.slots(), Settings::default(), clock.clone());
    let start = clock.now() + period;
    let times = |frame: u32| {
        let at = start + period * frame;
        FrameTimes { pts: Some(at), running_time: Some(at), deadline: Some(at + period * 2) }
    };
    let mut lateness = std::thread::scope(|scope| {
        let _ending = ShutDown(queue);
        scope.spawn(|| serve(queue, segmenter));
        scope.spawn(|| {
            for frame in 0..FRAMES {
                std::thread::sleep(times(frame).pts.unwrap().saturating_sub(clock.now()));
                assert!(chain(queue, segmenter, frame, times(frame)));
            }
        });
        let mut last = 0;
        let leave = |frame: u32| {
            let Next::Frame(left) = queue.next() else { panic!("frame {frame} is to come") };
            assert_eq!(left.payload, Frame(frame));
            let class = left.labels.map_or(0, |labels| labels.labels.labels.labels()[0]);
            assert!(class >= last, "labels never grow older");
            last = class;
            clock.now().saturating_sub(times(frame).deadline.unwrap())
        };
        let lateness: Vec<Duration> = (0..FRAMES).map(leave).collect();
        assert!(last >= 2, "labels come even so");
        lateness
    });
    assert!(queue.stats().max_depth <= 4);
    lateness.sort();
    println!(
        "late by {:?} (median), {:?} (most)",
        lateness[FRAMES as usize / 2],
        lateness[FRAMES as usize - 1]
    );
    // Other tests run beside this one, so a few may be woken late.
    assert!(lateness[FRAMES as usize / 2] < period, "{lateness:?}");
}

#[test]
fn segmenter_flush_and_stop_in_mid_inference_give_every_frame_back() {
    let segmenter = &segmenter(2, |_| Turn { delay: millis(30), outcome: Outcome::GreenOver16 });
    let queue = &Queue::<Segmented>::new(segmenter.slots(), Settings::default(), real_clock());
    let served = Mutex::new(());
    std::thread::scope(|scope| {
        let _ending = ShutDown(queue);
        scope.spawn(|| {
            let _serving = served.lock().unwrap();
            serve(queue, segmenter);
        });
        for round in 0..10 {
            assert!(
                chain(queue, segmenter, round, times(round))
                    && chain(queue, segmenter, round + 1, times(round))
            );
            let drained: Vec<Item> = queue.start_flush().into_payloads().collect();
            assert_eq!(drained, [Frame(round), Frame(round + 1)]);
            // Beside the labels thread, which may find that its frame was discarded already.
            segmenter.discard();
            queue.wait_idle();
            assert_eq!(segmenter.in_flight(), 0);
            queue.stop_flush();
        }
        assert!(chain(queue, segmenter, 5, times(5)));
        let Next::Frame(left) = queue.next() else { panic!("the first after the flushes") };
        let labels = left.labels.unwrap().labels;
        assert_eq!((left.payload, left.reused, labels.labels.labels()), (Frame(5), None, [5; 4].as_slice()));
        assert!(chain(queue, segmenter, 6, times(6)));
        drop(queue.shut_down());
    });
    // The scope has ended, so the labels thread has, after the last result.
    assert_eq!(segmenter.in_flight(), 0);
}
