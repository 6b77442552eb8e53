//! What is said on the bus and by `stats`.

use gst::prelude::*;
use sapiens_model::engine::fake::Outcome;

use crate::common::{element_of, green_element, turn};
use crate::live_rig::{Rig, class_of};

const FRAME: gst::ClockTime = gst::ClockTime::from_mseconds(40);

/// What the element's own messages say.
fn said(rig: &Rig) -> Vec<gst::Structure> {
    let ours = |message: gst::Message| {
        let structure = message.structure()?.to_owned();
        (message.type_() == gst::MessageType::Element && structure.name() == "sapiensseg")
            .then_some(structure)
    };
    rig.messages().into_iter().filter_map(ours).collect()
}

/// Class, name, pixels and box of each region.
fn regions(said: &gst::Structure) -> Vec<(u32, String, u64, [u32; 4])> {
    let regions = said.get::<gst::Array>("regions").unwrap();
    let region = |value: &glib::SendValue| {
        let region = value.get::<gst::Structure>().unwrap();
        let number = |name: &str| region.get::<u32>(name).unwrap();
        let bounds = ["x", "y", "width", "height"].map(number);
        (number("id"), region.get("class").unwrap(), region.get("pixels").unwrap(), bounds)
    };
    regions.iter().map(region).collect()
}

#[test]
fn nothing_is_said_unless_asked_for() {
    let rig = Rig::file(green_element());
    rig.start("25/1");
    for n in 0..5 {
        rig.push(n).unwrap();
    }
    rig.src.wait_frames(5);
    assert_eq!(said(&rig).len(), 0);
}

#[test]
fn messages_say_each_frames_classes_with_their_pixels_and_boxes() {
    let rig = Rig::file(green_element());
    rig.element.set_property("post-messages", true);
    rig.element.set_property("interval", 2u32);
    rig.start("25/1");
    for n in 0..4 {
        rig.push(n).unwrap();
    }
    rig.src.wait_frames(4);
    let said = said(&rig);
    assert_eq!(said.len(), 4);
    for (n, said) in (0u64..).zip(&said) {
        let of = n / 2 * 2;
        let time = (n * FRAME).nseconds();
        for name in ["timestamp", "running-time", "stream-time"] {
            assert_eq!(said.get::<u64>(name).unwrap(), time, "{name}");
        }
        assert_eq!(said.get::<u64>("labels-pts").unwrap(), (of * FRAME).nseconds());
        assert_eq!(said.get::<bool>("reused").unwrap(), n != of);
        assert_eq!((said.get::<u32>("width").unwrap(), said.get::<u32>("height").unwrap()), rig.size);
        // The left 30 columns of 61 x 45; the background, on the right, isn't shown.
        let regions = regions(said);
        assert_eq!(regions.len(), 1, "{regions:?}");
        let (class, name, pixels, bounds) = &regions[0];
        assert_eq!(*class, u32::from(class_of(of)));
        let card = sapiens_model::ModelCard::of(sapiens_model::Variant::Sapiens1b);
        assert_eq!(*name, card.classes[usize::from(class_of(of))].name);
        assert_eq!((*pixels, *bounds), (30 * 45, [0, 0, 30, 45]));
    }
}

#[test]
fn messages_are_about_the_classes_that_are_shown() {
    let rig = Rig::file(green_element());
    rig.element.set_property("post-messages", true);
    // Class 1 is frame 0's, 2 frame 1's.
    rig.element.set_property("classes", "0,2");
    rig.start("25/1");
    rig.push(0).unwrap();
    rig.push(1).unwrap();
    rig.src.wait_frames(2);
    let classes: Vec<Vec<u32>> =
        said(&rig).iter().map(|said| regions(said).iter().map(|region| region.0).collect()).collect();
    assert_eq!(classes, [vec![0], vec![0, 2]]);
    rig.element.set_property("post-messages", false);
    rig.push(2).unwrap();
    rig.src.wait_frames(3);
    assert_eq!(said(&rig).len(), 0, "it may be turned off while playing");
}

#[test]
fn stats_count_frames_and_time_steps() {
    let rig = Rig::file(element_of(2, |n| turn(if n == 2 { 30 } else { 10 }, Outcome::Fill(1))));
    let stats = || rig.element.property::<gst::Structure>("stats");
    let before = stats();
    assert_eq!(before.get::<Option<String>>("backend").unwrap(), None);
    rig.element.set_property("interval", 2u32);
    rig.start("25/1");
    for n in 0..10 {
        rig.push(n).unwrap();
    }
    rig.src.wait_frames(10);
    let stats = stats();
    assert_eq!(stats.name(), "application/x-sapiensseg-stats");
    assert_eq!(stats.get::<String>("backend").unwrap(), "portable cpu f32");
    let count = |name: &str| stats.get::<u64>(name).unwrap();
    for (name, expected) in
        [("frames", 10), ("inferred", 5), ("reused", 5), ("dropped", 0), ("failed", 0), ("queued", 0)]
    {
        assert_eq!(count(name), expected, "{name}");
    }
    assert!((1..=4).contains(&count("max-queued")), "{}", count("max-queued"));
    for step in ["network", "inference"] {
        assert_eq!(count(&format!("{step}-mean-ns")), 14_000_000, "{step}");
        assert_eq!(count(&format!("{step}-p99-ns")), 30_000_000, "{step}: of five frames it's the slowest");
    }
    for step in ["preprocess", "postprocess"] {
        assert_eq!((count(&format!("{step}-mean-ns")), count(&format!("{step}-p99-ns"))), (0, 0), "{step}");
    }
    let names: std::collections::BTreeSet<_> = stats.fields().map(ToString::to_string).collect();
    assert_eq!(names.len(), 8 + 8, "{names:?}");
}

#[test]
fn stats_count_failures() {
    let rig = Rig::file(element_of(2, |_| turn(0, Outcome::Fail("as scripted".into()))));
    rig.start("25/1");
    rig.push(0).unwrap();
    let error = rig.wait_message(gst::MessageType::Error);
    let gst::MessageView::Error(error) = error.view() else { unreachable!() };
    assert!(error.error().to_string().contains("as scripted"), "{error:?}");
    assert_eq!(rig.stat("failed"), 1);
}

#[test]
fn stats_are_there_before_and_after_running() {
    let element = green_element();
    assert_eq!(element.property::<gst::Structure>("stats").get::<u64>("frames"), Ok(0));
    let rig = Rig::file(element.clone());
    rig.start("25/1");
    rig.push(0).unwrap();
    rig.src.wait_frames(1);
    assert_eq!(rig.stat("frames"), 1);
    drop(rig);
    assert_eq!(element.property::<gst::Structure>("stats").get::<u64>("frames"), Ok(0));
}
