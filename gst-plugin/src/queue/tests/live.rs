//! A live source of 30 frames a second, an engine that takes 2 seconds, and a clock that's told what time it is.

use std::collections::BTreeMap;

use super::*;

const FRAMES: u32 = 300;
const INFERENCE: Duration = Duration::from_secs(2);

fn arrival(frame: u32) -> Duration {
    Duration::from_nanos(1_000_000_000 * u64::from(frame) / 30)
}

/// The announced latency is as many frame durations as there are slots.
fn camera(frame: u32, slots: usize) -> FrameTimes {
    let deadline = arrival(frame + slots as u32);
    FrameTimes { running_time: Some(arrival(frame)), deadline: Some(deadline), ..times(frame) }
}

/// What left, when.
type Left = Vec<(Duration, Out)>;

/// Ten seconds, event by event: frames come and results come; the taker is there at once.
fn ten_seconds(slots: usize, late: Late, inference: Duration) -> (Left, Stats) {
    let mut machine = Machine::new(slots, 1, late);
    let mut left = Left::new();
    let mut next_frame = 0;
    // The engine works on one frame at a time.
    let mut engine_free = Duration::ZERO;
    let mut results = std::collections::VecDeque::new();
    let mut now = Duration::ZERO;
    // Each step is an arrival, a result or a deadline.
    for _ in 0..3 * FRAMES {
        if results.front().is_some_and(|&at| at <= now) {
            results.pop_front();
            machine.complete();
        }
        if next_frame < FRAMES && arrival(next_frame) <= now {
            // A live frame never waits here.
            if machine.push_frame(next_frame, camera(next_frame, slots)).unwrap() == Plan::Infer {
                engine_free = engine_free.max(now) + inference;
                results.push_back(engine_free);
            }
            next_frame += 1;
        }
        let mut wake = None;
        loop {
            match machine.take(now) {
                Wait(until) => break wake = until.or(wake),
                out => left.push((now, out)),
            }
        }
        let arrival = (next_frame < FRAMES).then(|| arrival(next_frame));
        match [wake, arrival, results.front().copied()].into_iter().flatten().min() {
            Some(next) => now = next,
            None => return (left, machine.state.stats()),
        }
    }
    panic!("it stands still at {now:?}");
}

#[test]
fn live_30_fps_and_an_engine_of_2_seconds_all_frames_leave_on_time_and_in_order() {
    for slots in [1, 2, 4] {
        let (left, stats) = ten_seconds(slots, Late::Reuse, INFERENCE);
        let mut on_time = BTreeMap::new();
        let mut oldest = Duration::ZERO;
        for (frame, &(at, out)) in (0..).zip(&left) {
            let (number, labels) = match out {
                Reused(number, labels, _) => (number, labels),
                Fresh(number) => (number, Some(number)),
                other => panic!("{other:?}"),
            };
            assert_eq!(number, frame, "in order");
            if at <= camera(frame, slots).deadline.unwrap() {
                *on_time.entry(frame / 30).or_insert(0) += 1;
            }
            let age = labels.map(|labels| arrival(frame) - arrival(labels));
            assert_eq!(age.is_none(), at < INFERENCE, "none before the first are there, at {at:?}");
            oldest = oldest.max(age.unwrap_or_default());
        }
        assert_eq!(left.len(), FRAMES as usize);
        assert!(on_time.len() == 10 && on_time.values().all(|&frames| frames >= 29), "{on_time:?}");
        assert!(stats.max_depth <= slots + 2, "{stats:?}");
        // Labels are one inference old when they come, and serve until the next come, however many slots there are.
        let bound = INFERENCE * 2 + millis(40);
        assert!(oldest > INFERENCE && oldest <= bound, "labels are up to {oldest:?} old");
        println!("{slots} slots: labels are up to {oldest:?} old; {stats:?}");
    }
}

#[test]
fn live_with_late_drop_only_labelled_frames_leave_and_none_late() {
    let (left, stats) = ten_seconds(2, Late::Drop, INFERENCE);
    assert!(left.iter().all(|(_, out)| matches!(out, Dropped(_))), "an engine of 2 s is never on time");
    assert_eq!((stats.dropped, stats.fresh + stats.reused), (u64::from(FRAMES), 0));
    assert!(
        left.iter()
            .all(|&(at, out)| matches!(out, Dropped(frame) if at == camera(frame, 2).deadline.unwrap()))
    );
}

#[test]
fn live_and_an_engine_that_is_nearly_fast_enough_most_frames_get_their_own_labels() {
    for late in [Late::Reuse, Late::Drop] {
        let (left, stats) = ten_seconds(2, late, millis(40));
        let fresh = left.iter().filter(|(_, out)| matches!(out, Fresh(_))).count();
        assert_eq!(stats.fresh, fresh as u64);
        // 250 could have labels. With both slots always filled, each would be 80 ms old: all too late.
        assert!(fresh >= 150, "{late:?}: {fresh} of {FRAMES}");
        println!("{late:?}: {stats:?}");
    }
}

#[test]
fn live_30_fps_with_threads_frames_leave_when_the_clock_says() {
    let (queue, clock) = queue(2, Settings::default());
    let (queue, clock) = (&queue, &clock);
    let left = &Mutex::new(Left::new());
    std::thread::scope(|scope| {
        scope.spawn(move || {
            loop {
                let next = Out::from(queue.next());
                if next == Out::Closed(Closed::Stopped) {
                    return;
                }
                left.lock().unwrap().push((clock.now(), next));
            }
        });
        let _ending = ShutDown(queue);
        let mut flight = None;
        for frame in 0..FRAMES + 2 {
            let now = arrival(frame);
            clock.set(now, queue);
            if let Some((done, _)) = flight.take_if(|(_, at)| *at <= now) {
                queue.ticket().expect("a flight").complete(Ok(done));
            }
            // The last two steps only let the last two frames go.
            if frame < FRAMES {
                match queue.admit(camera(frame, 2)).unwrap() {
                    Admission::Infer(permit) => {
                        assert_eq!(flight.replace((frame, now + INFERENCE)), None);
                        assert!(permit.commit(Frame(frame)).is_ok());
                    }
                    Admission::Reuse(permit, _) => assert!(permit.commit(Frame(frame)).is_ok()),
                    Admission::Drop(why) => panic!("{why:?}"),
                }
            }
            // Time stands still until those have left that must: all but this frame and the one before.
            let begun = std::time::Instant::now();
            while left.lock().unwrap().len() + 1 < frame as usize {
                assert!(begun.elapsed() < Duration::from_secs(20), "they don't leave");
                std::thread::yield_now();
            }
        }
        queue.wait_drained().unwrap();
        assert!(queue.stats().max_depth <= 4, "{:?}", queue.stats());
    });
    let left = left.lock().unwrap();
    assert_eq!(left.len(), FRAMES as usize);
    for (frame, &(at, out)) in (0..).zip(left.iter()) {
        let Reused(number, labels, _) = out else { panic!("{out:?}") };
        let deadline = camera(frame, 2).deadline.unwrap();
        assert!(number == frame && at <= deadline, "{out:?} at {at:?}, not {frame} by {deadline:?}");
        // The time of frame 58 and the first labels come at the same moment.
        assert!(labels.is_none() == (frame < 58) || frame == 58, "{out:?}");
    }
}
