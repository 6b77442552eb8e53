//! The machine alone: what becomes of frames.

use super::Why::{Busy, Interval, Late as TooLate, Qos};
use super::*;

const ZERO: Duration = Duration::ZERO;

/// Frames and the end through a pipeline that isn't live, inference as slow as can be.
fn frames_and_eos(count: u32, interval: u32) -> Vec<Out> {
    let mut machine = Machine::new(2, interval, Late::Reuse);
    let mut seen = Vec::new();
    for frame in 0..count {
        while machine.push(frame).is_none() {
            if !machine.flights.is_empty() {
                machine.complete();
            }
            let left = machine.take_all(ZERO);
            assert!(!left.is_empty(), "a slot was freed, but nothing moves");
            seen.extend(left);
        }
    }
    machine.pass(Eos);
    while !machine.flights.is_empty() {
        machine.complete();
    }
    seen.extend(machine.take_all(ZERO));
    assert!(machine.state.is_idle() && machine.state.is_drained());
    seen
}

fn all_fresh_and_eos(count: u32) -> Vec<Out> {
    (0..count).map(Fresh).chain([Pass(Eos)]).collect()
}

#[test]
fn not_live_0_frames_and_eos() {
    assert_eq!(frames_and_eos(0, 1), all_fresh_and_eos(0));
}

#[test]
fn not_live_1_frame_and_eos() {
    assert_eq!(frames_and_eos(1, 1), all_fresh_and_eos(1));
}

#[test]
fn not_live_2_frames_and_eos() {
    assert_eq!(frames_and_eos(2, 1), all_fresh_and_eos(2));
}

#[test]
fn not_live_20_frames_and_eos() {
    assert_eq!(frames_and_eos(20, 1), all_fresh_and_eos(20));
}

#[test]
fn a_single_frame_comes_out_without_a_following_one() {
    let mut machine = Machine::new(2, 1, Late::Reuse);
    assert_eq!(machine.push(0), Some(Plan::Infer));
    assert_eq!(machine.take(ZERO), Wait(None));
    machine.complete();
    assert_eq!(machine.take(ZERO), Fresh(0));
}

#[test]
fn without_a_deadline_a_frame_waits_for_a_slot_and_for_room() {
    let mut machine = Machine::new(1, 1, Late::Reuse);
    assert_eq!((machine.push(0), machine.push(1)), (Some(Plan::Infer), None));
    for frame in 0..3 {
        machine.complete();
        // Done, but not taken: the slot is free and there is room for two more.
        let expected = (frame < 2).then_some(Plan::Infer);
        assert_eq!(machine.push(frame + 1), expected, "frame {}", frame + 1);
        if expected.is_some() {
            assert_eq!(machine.state.stats().depth, frame as usize + 2);
        }
    }
    assert_eq!(machine.take(ZERO), Fresh(0));
    assert_eq!(machine.push(3), Some(Plan::Infer));
    assert_eq!(machine.state.stats().max_depth, 3);
}

#[test]
fn interval_gives_the_frames_between_the_labels_of_the_frame_before_them() {
    let expected = |frame: u32| {
        if frame.is_multiple_of(3) { Fresh(frame) } else { Reused(frame, Some(frame / 3 * 3), Interval) }
    };
    assert_eq!(frames_and_eos(20, 3), (0..20).map(expected).chain([Pass(Eos)]).collect::<Vec<_>>());
    assert_eq!(frames_and_eos(5, 0), all_fresh_and_eos(5), "0 is as 1");
}

#[test]
fn frames_between_wait_for_their_labels() {
    let mut machine = Machine::new(2, 2, Late::Reuse);
    let plans = [0, 1, 2, 3].map(|frame| machine.push(frame));
    let reuse = Some(Plan::Reuse(Interval));
    assert_eq!(plans, [Some(Plan::Infer), reuse, Some(Plan::Infer), reuse]);
    machine.complete();
    machine.complete();
    // The labels of frame 2 are there already, but frame 1 is before it.
    assert_eq!(
        machine.take_all(ZERO),
        [Fresh(0), Reused(1, Some(0), Interval), Fresh(2), Reused(3, Some(2), Interval)]
    );
}

#[test]
fn interval_may_change_between_frames() {
    let mut machine = Machine::new(20, 4, Late::Reuse);
    let inferred = |machine: &mut Machine, frames: std::ops::Range<u32>| -> Vec<u32> {
        frames.filter(|&frame| machine.push(frame) == Some(Plan::Infer)).collect()
    };
    assert_eq!(inferred(&mut machine, 0..6), [0, 4]);
    machine.state.configure(Settings { interval: 2, late: Late::Reuse });
    assert_eq!(inferred(&mut machine, 6..10), [6, 8]);
    machine.state.configure(Settings { interval: 5, late: Late::Reuse });
    assert_eq!(inferred(&mut machine, 10..16), [13]);
}

#[test]
fn a_live_frame_without_a_slot_leaves_its_turn_to_the_next() {
    let mut machine = Machine::new(1, 2, Late::Reuse);
    let mut plans = vec![];
    for frame in 0..8 {
        plans.push(machine.push_live(frame).unwrap());
        if frame == 4 {
            machine.complete();
        }
        machine.take_all(live(frame).deadline.unwrap());
    }
    let [infer, busy, interval] = [Plan::Infer, Plan::Reuse(Busy), Plan::Reuse(Interval)];
    // Frame 2 was due, and found its slot as frame 5; from there it's two frames to the next.
    assert_eq!(plans, [infer, interval, busy, busy, busy, infer, interval, busy]);
}

#[test]
fn qos_skips_inference() {
    let mut machine = Machine::new(2, 1, Late::Reuse);
    machine.state.set_earliest(Some(millis(25)));
    // There is nothing to reuse before the first.
    assert_eq!(machine.push(0), Some(Plan::Infer));
    assert_eq!(machine.push(1), Some(Plan::Reuse(Qos)));
    assert_eq!(machine.push(2), Some(Plan::Reuse(Qos)));
    assert_eq!(machine.push(3), Some(Plan::Infer));
    machine.complete();
    machine.complete();
    assert_eq!(
        machine.take_all(ZERO),
        [Fresh(0), Reused(1, Some(0), Qos), Reused(2, Some(0), Qos), Fresh(3)]
    );
    machine.state.set_earliest(None);
    assert_eq!(machine.push(1), Some(Plan::Infer));
}

#[test]
fn qos_drops_or_is_not_heeded_as_late_says() {
    let mut machine = Machine::new(2, 1, Late::Drop);
    machine.state.set_earliest(Some(millis(15)));
    assert_eq!(
        [0, 1, 2].map(|frame| machine.push(frame)),
        [Some(Plan::Drop(Qos)), Some(Plan::Drop(Qos)), Some(Plan::Infer)]
    );
    let mut machine = Machine::new(2, 1, Late::Wait);
    machine.state.set_earliest(Some(millis(15)));
    assert_eq!([0, 1].map(|frame| machine.push(frame)), [Some(Plan::Infer); 2]);
}

#[test]
fn a_live_frame_leaves_on_time_and_its_late_labels_become_the_last() {
    let mut machine = Machine::new(1, 1, Late::Reuse);
    assert_eq!(machine.push_live(0), Some(Plan::Infer));
    assert_eq!(machine.take(millis(19)), Wait(Some(millis(20))));
    assert_eq!(machine.take(millis(20)), Reused(0, None, TooLate), "there were none yet");
    assert_eq!(machine.push_live(1), Some(Plan::Reuse(Busy)));
    machine.complete();
    assert_eq!(machine.push_live(2), Some(Plan::Infer));
    assert_eq!(machine.take(millis(20)), Reused(1, Some(0), Busy));
    assert_eq!(machine.take(millis(20)), Wait(Some(millis(40))));
    assert_eq!(machine.take(millis(41)), Reused(2, Some(0), TooLate));
    machine.complete();
    assert_eq!(machine.push_live(3), Some(Plan::Infer));
    machine.complete();
    assert_eq!(machine.take(millis(99)), Fresh(3), "its labels are there, whatever the time");
}

#[test]
fn a_frame_without_labels_of_its_own_waits_for_fresher_ones_while_there_is_time_and_room() {
    let mut machine = Machine::new(1, 1, Late::Reuse);
    assert_eq!(machine.push_live(0), Some(Plan::Infer));
    assert_eq!(machine.push_live(1), Some(Plan::Reuse(Busy)));
    assert_eq!(machine.take(millis(25)), Reused(0, None, TooLate));
    assert_eq!(machine.take(millis(25)), Wait(Some(millis(30))));
    machine.complete();
    assert_eq!(machine.take(millis(26)), Reused(1, Some(0), Busy));

    assert_eq!(machine.push_live(2), Some(Plan::Infer));
    assert_eq!(machine.push_live(3), Some(Plan::Reuse(Busy)));
    assert_eq!(machine.take(millis(40)), Reused(2, Some(0), TooLate));
    assert_eq!(machine.push_live(4), Some(Plan::Reuse(Busy)));
    assert_eq!(machine.take(millis(40)), Wait(Some(millis(50))));
    assert_eq!(machine.push_live(5), Some(Plan::Reuse(Busy)));
    assert_eq!(machine.take(millis(40)), Reused(3, Some(0), Busy), "full: no time to wait for fresher ones");
    assert_eq!(machine.take(millis(40)), Wait(Some(millis(60))));
}

#[test]
fn late_drop_drops_what_has_no_labels_by_its_deadline_or_finds_no_slot() {
    let mut machine = Machine::new(1, 2, Late::Drop);
    assert_eq!(machine.push_live(0), Some(Plan::Infer));
    assert_eq!(machine.push_live(1), Some(Plan::Reuse(Interval)));
    assert_eq!(machine.push_live(2), Some(Plan::Drop(Busy)));
    assert_eq!(machine.take(millis(20)), Dropped(0));
    assert_eq!(machine.take(millis(20)), Wait(Some(millis(30))));
    machine.complete();
    assert_eq!(machine.take(millis(20)), Reused(1, Some(0), Interval), "the late result serves the next");
    assert_eq!(machine.push_live(3), Some(Plan::Infer));
    machine.complete();
    assert_eq!(machine.take(millis(20)), Fresh(3));
    let Stats { frames, inferred, fresh, reused, dropped, .. } = machine.state.stats();
    assert_eq!((frames, inferred, fresh, reused, dropped), (4, 2, 1, 1, 2));
}

#[test]
fn late_wait_waits() {
    let mut machine = Machine::new(1, 1, Late::Wait);
    assert_eq!(machine.push_live(0), Some(Plan::Infer));
    assert_eq!(machine.push_live(1), None);
    assert_eq!(machine.take(millis(2000)), Wait(None));
    machine.complete();
    assert_eq!(machine.take(millis(2000)), Fresh(0));
    assert_eq!(machine.push_live(1), Some(Plan::Infer));
    // The property may be set meanwhile.
    machine.state.configure(Settings { interval: 1, late: Late::Drop });
    assert_eq!(machine.take(millis(2000)), Dropped(1));
}

#[test]
fn events_between_frames_in_flight_keep_their_place() {
    let mut machine = Machine::new(2, 1, Late::Reuse);
    machine.pass(Event(0));
    machine.push(0);
    machine.pass(Event(1));
    machine.pass(Event(2));
    machine.push(1);
    machine.pass(Event(3));
    assert_eq!(machine.take_all(ZERO), [Pass(Event(0))]);
    machine.complete();
    assert_eq!(machine.take_all(ZERO), [Fresh(0), Pass(Event(1)), Pass(Event(2))]);
    machine.complete();
    assert_eq!(machine.take_all(ZERO), [Fresh(1), Pass(Event(3))]);
}

#[test]
fn a_query_finds_room_while_the_queue_is_full() {
    let mut machine = Machine::new(2, 2, Late::Reuse);
    for frame in 0..4 {
        assert!(machine.push(frame).is_some());
    }
    assert_eq!(machine.push(4), None);
    machine.pass(Query);
    machine.complete();
    machine.complete();
    assert_eq!(machine.take_all(ZERO).last(), Some(&Pass(Query)));
}

#[test]
fn a_failed_inference_surfaces_at_its_frame() {
    let mut machine = Machine::new(2, 2, Late::Reuse);
    for frame in 0..4 {
        machine.push(frame);
    }
    machine.complete();
    machine.fail("no power");
    assert_eq!(
        machine.take_all(ZERO),
        [Fresh(0), Reused(1, Some(0), Interval), Failed(Some(2), "no power"), Reused(3, Some(0), Interval)]
    );
    assert_eq!(machine.state.stats().failed, 1);
    assert_eq!(machine.push(4), Some(Plan::Infer), "its slot is free again");
}

#[test]
fn a_failed_inference_of_a_frame_that_has_left_surfaces_next() {
    let mut machine = Machine::new(1, 1, Late::Reuse);
    machine.push_live(0);
    assert_eq!(machine.take(millis(20)), Reused(0, None, TooLate));
    machine.push_live(1);
    machine.fail("no power");
    assert_eq!(machine.take(millis(20)), Failed(None, "no power"));
    assert_eq!(machine.take(millis(20)), Reused(1, None, Busy));
}

#[test]
fn a_failing_submission_leaves_slot_place_and_turn_to_the_next_frame() {
    let mut machine = Machine::new(1, 3, Late::Reuse);
    for _ in 0..5 {
        let Answer::Place(place) = machine.state.admit(times(0)) else { panic!("the slot is free") };
        assert_eq!((place.reuse, machine.state.is_idle()), (None, false));
        assert!(matches!(machine.state.admit(times(1)), Answer::MustWait), "one place at a time");
        machine.state.cancel();
        assert!(machine.state.is_idle());
    }
    assert_eq!(machine.push(5), Some(Plan::Infer));
    assert_eq!(machine.state.stats().frames, 1);
}

#[test]
fn labels_that_are_replaced_are_handed_out_to_be_used_again() {
    let mut state = State::<Numbers>::new(1, Settings::default());
    for frame in 0..3 {
        let Answer::Place(place) = state.admit(times(frame)) else { panic!("the slot is free") };
        assert!(state.commit(place, Frame(frame)).is_ok());
        assert!(state.begin_receive() && !state.begin_receive(), "one waits for a result");
        assert_eq!(state.complete(Ok(frame)), None);
        let Head::Ready(Next::Frame(left)) = state.take(ZERO) else { panic!("its labels are there") };
        assert_eq!(left.spent, frame.checked_sub(1));
    }
    let Answer::Place(place) = state.admit(live(3)) else { panic!("the slot is free") };
    assert!(state.commit(place, Frame(3)).is_ok());
    assert!(matches!(state.take(millis(50)), Head::Ready(Next::Frame(_))));
    assert_eq!(state.complete(Ok(3)), Some(Ok(2)), "late labels replace too");
}
