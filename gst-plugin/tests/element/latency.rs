//! What the element answers and announces about its latency.

use std::time::Duration;

use gst::prelude::*;
use gstsapiensseg::SapiensSeg;
use sapiens_model::engine::fake::Outcome;

use crate::common::{element_of, turn};
use crate::live_rig::{Rig, eventually};

const MS: gst::ClockTime = gst::ClockTime::from_mseconds(1);

fn of_slots(slots: usize) -> SapiensSeg {
    element_of(slots, |_| turn(0, Outcome::Fill(1)))
}

fn latency(element: &SapiensSeg, pad: &str) -> (bool, gst::ClockTime, Option<gst::ClockTime>) {
    let mut query = gst::query::Latency::new();
    assert!(element.static_pad(pad).unwrap().query(&mut query));
    query.result()
}

fn latency_messages(rig: &Rig) -> usize {
    rig.messages().iter().filter(|message| message.type_() == gst::MessageType::Latency).count()
}

#[test]
fn slots_times_the_frame_duration_are_added_to_the_nanosecond() {
    for (slots, rate, own) in [
        (2, "30/1", 66_666_667),
        (2, "30000/1001", 66_733_334),
        (2, "25/1", 80_000_000),
        (1, "25/1", 40_000_000),
        (1, "30/1", 33_333_334),
        (5, "30000/1001", 166_833_334),
        (16, "1/2", 32_000_000_000),
    ] {
        let own = gst::ClockTime::from_nseconds(own);
        for live in [false, true] {
            for (max, with_own) in [(None, None), (Some(90 * MS), Some(90 * MS + own))] {
                let rig = Rig::new(of_slots(slots), (live, 20 * MS, max));
                rig.start(rate);
                let expected = (live, 20 * MS + own, with_own);
                let (_, mask) = rig.add_mask();
                assert_eq!(latency(&rig.element, "src"), expected, "{slots} slots, {rate}");
                assert_eq!(latency(&rig.element, "mask"), expected, "{slots} slots, {rate}, mask");
                drop(mask);
            }
        }
    }
}

#[test]
fn a_latency_message_says_when_caps_bring_another_rate() {
    let rig = Rig::file(of_slots(2));
    rig.start("30/1");
    assert_eq!(latency_messages(&rig), 1);
    rig.caps("30/1");
    assert_eq!(latency_messages(&rig), 0, "the rate is the same");
    rig.caps("25/1");
    assert_eq!(latency_messages(&rig), 1);
    assert_eq!(latency(&rig.element, "src").1, 80 * MS);
}

#[test]
fn without_a_rate_latency_is_measured_and_small_changes_are_not_announced() {
    // The mean is over all frames so far.
    let delay = |n| match n {
        0..3 => 20,
        3..6 => 24,
        _ => 120,
    };
    let rig = Rig::file(element_of(2, move |n| turn(delay(n), Outcome::Fill(1))));
    rig.start("0/1");
    assert_eq!(latency_messages(&rig), 0);
    assert_eq!(latency(&rig.element, "src").1, gst::ClockTime::ZERO, "nothing has been measured yet");
    for n in 0..3 {
        rig.push(n).unwrap();
    }
    rig.src.wait_frames(3);
    assert_eq!(latency(&rig.element, "src").1, 40 * MS);
    assert_eq!(latency_messages(&rig), 1);
    for n in 3..6 {
        rig.push(n).unwrap();
    }
    rig.src.wait_frames(6);
    assert_eq!(latency(&rig.element, "src").1, 40 * MS, "22 ms are within a quarter of 20");
    assert_eq!(latency_messages(&rig), 0);
    for n in 6..8 {
        rig.push(n).unwrap();
    }
    rig.src.wait_frames(8);
    eventually("a longer latency", || latency(&rig.element, "src").1 > 60 * MS);
    assert!(latency_messages(&rig) >= 1);
}

#[test]
fn a_known_rate_takes_the_place_of_measuring() {
    let rig = Rig::file(element_of(2, |_| turn(30, Outcome::Fill(1))));
    rig.start("0/1");
    rig.push(0).unwrap();
    rig.src.wait_frames(1);
    assert_eq!(latency(&rig.element, "src").1, 60 * MS);
    rig.caps("50/1");
    assert_eq!(latency(&rig.element, "src").1, 40 * MS);
    rig.push(1).unwrap();
    rig.src.wait_frames(2);
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(latency(&rig.element, "src").1, 40 * MS);
}
