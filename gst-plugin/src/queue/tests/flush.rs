//! The machine alone: flushes, the end, and a downstream that takes no more.

use super::*;

const ZERO: Duration = Duration::ZERO;

fn payloads(drained: Drained<Numbers>) -> Vec<Item> {
    drained.into_payloads().collect()
}

/// Two frames in two slots, a frame before them that left, an event, a query.
fn full() -> Machine {
    let mut machine = Machine::new(2, 1, Late::Reuse);
    machine.push(0);
    machine.complete();
    assert_eq!(machine.take(ZERO), Fresh(0));
    machine.push(1);
    machine.pass(Event(1));
    machine.push(2);
    machine.pass(Query);
    machine
}

#[test]
fn flush_with_all_slots_full_hands_everything_back() {
    let mut machine = full();
    assert_eq!(payloads(machine.state.start_flush()), [Frame(1), Event(1), Frame(2), Query]);
    assert_eq!(machine.take(ZERO), Out::Closed(Closed::Flushing));
    assert!(matches!(machine.state.admit(times(3)), Answer::Closed(Closed::Flushing)));
    let refused = machine.state.pass(Query).expect_err("it is being flushed");
    assert_eq!((refused.payload, refused.closed), (Query, Closed::Flushing), "to be answered");
    assert_eq!(payloads(machine.state.start_flush()), [], "a second flush finds nothing");
    machine.state.stop_flush();
    let Stats { frames, fresh, flushed, depth, .. } = machine.state.stats();
    assert_eq!((frames, fresh, flushed, depth), (3, 1, 2, 0));
}

#[test]
fn results_that_arrive_after_a_flush_are_ignored_but_occupy_their_slots_until_then() {
    let mut machine = full();
    drop(machine.state.start_flush());
    machine.state.stop_flush();
    assert_eq!((machine.state.stats().in_flight, machine.state.is_idle()), (2, false));
    assert_eq!(machine.push(3), None);
    // Live, it needn't wait; the last labels are forgotten, and those that arrive are from before the flush.
    assert_eq!(machine.push_live(3), Some(Plan::Reuse(Why::Busy)));
    assert!(machine.state.begin_receive());
    assert_eq!(machine.state.complete(Ok(1)), Some(Ok(1)), "handed back");
    assert!(machine.state.begin_receive());
    assert_eq!(machine.state.complete(Err("no power")), Some(Err("no power")), "failures too");
    machine.flights.clear();
    assert_eq!(machine.take(ZERO), Reused(3, None, Why::Busy));
    assert!(machine.state.is_idle());
    assert_eq!(machine.push(4), Some(Plan::Infer), "the turn is the first frame's again");
    machine.complete();
    assert_eq!(machine.take(ZERO), Fresh(4));
}

#[test]
fn a_flush_between_admission_and_commit_hands_the_frame_back() {
    for reopened in [false, true] {
        let mut machine = Machine::new(1, 1, Late::Reuse);
        let Answer::Place(place) = machine.state.admit(times(0)) else { panic!("the slot is free") };
        drop(machine.state.start_flush());
        if reopened {
            machine.state.stop_flush();
        }
        assert!(!machine.state.is_idle(), "it may have been submitted");
        let refused = machine.state.commit(place, Frame(0)).expect_err("it is from before the flush");
        assert_eq!((refused.payload, refused.closed), (Frame(0), Closed::Flushing));
        assert_eq!(
            (machine.state.stats().in_flight, machine.state.is_idle()),
            (1, false),
            "it was submitted"
        );
        assert!(machine.state.begin_receive());
        assert_eq!(machine.state.complete(Ok(0)), Some(Ok(0)));
        machine.state.stop_flush();
        assert_eq!(machine.push(1), Some(Plan::Infer), "it took no turn");
        let Stats { frames, inferred, flushed, .. } = machine.state.stats();
        assert_eq!((frames, inferred, flushed), (2, 2, 1));
    }
}

#[test]
fn flush_forgets_qos() {
    let mut machine = full();
    machine.state.set_earliest(Some(millis(1000)));
    drop(machine.state.start_flush());
    machine.state.set_earliest(Some(millis(1000)));
    machine.state.stop_flush();
    machine.complete();
    machine.complete();
    assert_eq!([0, 1].map(|frame| machine.push(frame)), [Some(Plan::Infer); 2]);
}

#[test]
fn what_downstream_answered_comes_back_to_the_next_frame() {
    let mut machine = full();
    assert_eq!(payloads(machine.state.refuse("not linked")), [Frame(1), Event(1), Frame(2), Query]);
    for _ in 0..2 {
        assert!(matches!(machine.state.admit(times(3)), Answer::Closed(Closed::Flow("not linked"))));
        assert_eq!(
            machine.state.pass(Eos).map_err(|refused| refused.closed),
            Err(Closed::Flow("not linked"))
        );
        assert_eq!(machine.take(ZERO), Out::Closed(Closed::Flow("not linked")));
    }
    machine.complete();
    machine.state.accept();
    // Linked again: frames go on, with the labels from before until there are new ones.
    assert_eq!(machine.push(3), Some(Plan::Infer));
    assert_eq!(machine.push_live(4), Some(Plan::Reuse(Why::Busy)));
    machine.complete();
    machine.complete();
    assert_eq!(machine.take_all(ZERO), [Fresh(3), Reused(4, Some(3), Why::Busy)]);

    drop(machine.state.refuse("eos"));
    drop(machine.state.start_flush());
    assert!(matches!(machine.state.admit(times(5)), Answer::Closed(Closed::Flushing)));
    machine.state.stop_flush();
    assert_eq!(machine.push(5), Some(Plan::Infer), "a flush ends it");
}

#[test]
fn the_end_is_final() {
    let mut machine = full();
    assert_eq!(payloads(machine.state.shut_down()), [Frame(1), Event(1), Frame(2), Query]);
    assert!(!machine.state.is_finished(), "two results are to come");
    drop(machine.state.start_flush());
    machine.state.stop_flush();
    assert!(matches!(machine.state.admit(times(3)), Answer::Closed(Closed::Stopped)));
    assert_eq!(machine.take(ZERO), Out::Closed(Closed::Stopped));
    machine.complete();
    machine.complete();
    assert!(machine.state.is_finished());
}
