//! Frames in flight on the stand-in for the driver: in order, none with another's labels, and what happens where something fails.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use sapiens_stand_in_loader::inside;

use super::*;
use crate::backend::{BackendRequest, DeviceRequest};
use crate::engine::reference_data::{TINY, data};
use crate::engine::{DeviceSpans, Stage, StageTimes};
use crate::frame::OwnedFrame;
use crate::segmenter::Segmenter;
use crate::variant::Variant;

/// What is left out, fails or is left over is the whole process's.
pub(super) static ALONE: Mutex<()> = Mutex::new(());

pub(super) fn alone() -> MutexGuard<'static, ()> {
    sapiens_stand_in_loader::open();
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The smallest input: the tiny networks' sizes are none to be fast at on the stand-in.
pub(super) const SMALL: Options = Options {
    backend: BackendRequest { mode: None, device: DeviceRequest::Cuda(Some(0)), precision: None },
    input_size: InputSize::Fixed { width: 32, height: 32 },
    slots: 2,
    threads: 0,
    keep_logits: false,
};

/// The least network of either family: the stand-in runs some hundred blocks of threads a second.
pub(super) fn small_card(family: usize) -> ModelCard {
    let mut card = ModelCard::load(&data(TINY[family].0)).unwrap();
    let network = &mut card.network;
    (network.layers, network.embed_dim, network.heads, network.ffn_dim) = (1, 32, 2, 32);
    (network.deconv_channels, network.conv_channels) = (vec![8], vec![8]);
    card
}

/// Products in float16 by our own kernels.
fn own(gpu: &Arc<Gpu>) -> Products {
    Products::new(gpu, Stored::F16).unwrap()
}

fn small(family: usize) -> Result<Segmenter> {
    let card = small_card(family);
    Segmenter::new(card.clone(), &Weights::generated(&card, 7), SMALL)
}

/// Noise of its own for each number.
fn frame(number: usize) -> OwnedFrame {
    let (width, height) = (61, 45);
    let byte = |i: usize| (((i * 40_503 + number * 7_919) * 2_654_435_761) >> 11) as u8;
    OwnedFrame::rgb(width, height, (0..width * height * 3).map(byte).collect()).unwrap()
}

/// Labels of frames that are sent one after the other.
fn labels_alone(segmenter: &Segmenter, count: usize) -> Vec<Vec<u8>> {
    let mut output = Output::default();
    let labels = (0..count).map(|number| {
        segmenter.submit(frame(number)).unwrap();
        segmenter.receive(&mut output).unwrap();
        output.labels.labels().to_vec()
    });
    let labels: Vec<_> = labels.collect();
    for (i, one) in labels.iter().enumerate() {
        assert!(labels[..i].iter().all(|other| other != one), "frame {i} has another's labels");
    }
    labels
}

/// Of `count` frames, two in flight, how many have other labels than they should or none. `begun` is called when two are.
fn wrong(segmenter: &Segmenter, expected: &[Vec<u8>], count: usize, begun: impl FnOnce()) -> usize {
    let mut output = Output::default();
    let mut wrong = 0;
    let mut begun = Some(begun);
    for number in 0..=count {
        if number < count {
            segmenter.submit(frame(number % expected.len())).unwrap();
        }
        if number > 0 {
            if let Some(begun) = begun.take() {
                begun();
            }
            let received = segmenter.receive(&mut output);
            let expected = &expected[(number - 1) % expected.len()];
            wrong += usize::from(received.is_err() || output.labels.labels() != expected);
        }
    }
    wrong
}

#[test]
fn five_hundred_frames_keep_their_order() {
    let _alone = alone();
    for family in [0, 1] {
        let segmenter = small(family).unwrap();
        let expected = labels_alone(&segmenter, 7);
        assert_eq!(wrong(&segmenter, &expected, 2, || ()), 0);
        let in_use = inside::left_over();
        assert_eq!(wrong(&segmenter, &expected, 250, || ()), 0);
        assert_eq!(inside::left_over(), in_use, "something was made for a frame and kept");
    }
}

/// Each wait is there for something: without it frames get labels that aren't theirs.
#[test]
fn a_wait_left_out_shows() {
    let _alone = alone();
    if sapiens_stand_in_loader::wants_card() {
        return;
    }
    let segmenter = small(0).unwrap();
    let expected = labels_alone(&segmenter, 7);
    let shows = |name: &str, every: u64, number: u64| {
        let found = wrong(&segmenter, &expected, 30, || inside::leave_out(name, every, number));
        inside::leave_out_nothing();
        assert!(found > 0, "{name}, each {number} of {every}");
        // And no harm is done for good.
        assert_eq!(wrong(&segmenter, &expected, 7, || ()), 0);
    };
    // For the last frame's forward pass.
    shows("cuStreamWaitEvent", 1, 0);
    // For the labels; the others, in between, are for the room that pixels are copied to, which is free by then.
    shows("cuEventSynchronize", 2, 0);
}

/// A network is loaded and two frames are labelled.
fn work() -> Result<Vec<u8>> {
    let segmenter = small(1)?;
    let mut labels = Vec::new();
    let mut output = Output::default();
    segmenter.submit(frame(0))?;
    let second = segmenter.submit(frame(1));
    segmenter.receive(&mut output)?;
    labels.extend_from_slice(output.labels.labels());
    second?;
    segmenter.receive(&mut output)?;
    labels.extend_from_slice(output.labels.labels());
    Ok(labels)
}

#[test]
fn every_call_may_fail() {
    let _alone = alone();
    if sapiens_stand_in_loader::wants_card() {
        return;
    }
    let expected = work().unwrap();
    let nothing = inside::left_over();
    let (mut failures, mut errors) = (0, 0);
    loop {
        let first = inside::calls();
        inside::fail_call(first + failures + 1);
        let result = work();
        let all = inside::calls() - first;
        inside::fail_nothing();
        assert_eq!(inside::left_over(), nothing, "after a failure of call {failures} of {all}");
        match result {
            // Releasing something may fail, and there is nobody to tell.
            Ok(labels) => assert!(labels == expected, "call {failures} failed, and the labels are others"),
            Err(error) => {
                errors += 1;
                let text = error.to_string();
                assert!(text.contains("NVIDIA driver") || text.contains("GPU"), "{text}");
            }
        }
        failures += 1;
        if failures > all {
            break;
        }
    }
    assert!(errors > 300, "only {errors} of {failures} failures were errors");
    assert_eq!(work().unwrap(), expected);
}

/// A device whose kernels do something else is known before it labels anything.
#[test]
fn a_device_that_computes_wrong_is_refused() {
    let _alone = alone();
    if sapiens_stand_in_loader::wants_card() {
        return;
    }
    let backend = BackendRequest {
        device: DeviceRequest::Cuda(Some(2)),
        precision: Some(Precision::Bf16),
        ..Default::default()
    };
    let card = small_card(0);
    let on_it = || Segmenter::new(card.clone(), &Weights::generated(&card, 7), Options { backend, ..SMALL });
    // As if one kernel of some did nothing.
    inside::leave_out("cuLaunchKernel", 9, 8);
    let result = on_it();
    inside::leave_out_nothing();
    let error = result.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BackendUnavailable);
    let text = error.to_string();
    assert!(text.contains("cuda:2") && text.contains("fails its self-check"), "{text}");
    // It is asked again.
    assert!(on_it().is_ok());

    // Where the device is open, the processor does it.
    let mut card = small_card(1);
    card.network.embed_dim = 48;
    let weights = Weights::generated(&card, 7);
    let open = || Segmenter::new(card.clone(), &weights, Options { backend: Default::default(), ..SMALL });
    inside::leave_out("cuLaunchKernel", 9, 8);
    let found = open();
    inside::leave_out_nothing();
    assert_eq!(found.unwrap().backend().device, Device::Cpu);
    assert_eq!(open().unwrap().backend().device, Device::Cuda(0));
}

#[test]
fn weights_of_another_card_are_refused() {
    let _alone = alone();
    let (card, other) = (small_card(0), small_card(1));
    let error = Segmenter::new(card, &Weights::generated(&other, 7), SMALL).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WeightsMismatch);
    assert!(error.to_string().contains("are no weights of tiny-sapiens: expected backbone."), "{error}");
}

/// With everything that two frames of 1920 x 1080 need. What the kernels compute doesn't matter here, and would take an hour.
#[test]
fn memory_stays_within_what_is_promised() {
    let _alone = alone();
    if sapiens_stand_in_loader::wants_card() {
        return;
    }
    let device = DeviceRequest::Cuda(Some(1));
    let backend = BackendRequest { device, ..Default::default() }.resolve().unwrap();
    let (width, height) = (1920, 1080);
    for (variant, mebibytes) in [(Variant::Sapiens03b, 1621), (Variant::Sapiens1b, 3238)] {
        let card = Arc::new(ModelCard::of(variant));
        let weights = Weights::generated(&card, 3);
        let gpu = Gpu::open(1).unwrap();
        self_check(&card, &gpu, backend, &own(&gpu)).unwrap();
        let (before, _) = gpu.memory_use();
        assert_eq!(before, 0, "the self-check keeps something");
        inside::leave_out("cuLaunchKernel", 1, 0);
        let network = Arc::new(Network::load(&card, &weights, &gpu, own(&gpu)).unwrap());
        let engine = CudaEngine::new(&card, network, backend, &Options { slots: 2, ..Options::default() });
        let engine = engine.unwrap();
        for slot in 0..2 {
            let frame = OwnedFrame::rgb(width, height, vec![0; width * height * 3]).unwrap();
            engine.submit(slot, Box::new(frame)).unwrap();
        }
        for slot in 0..2 {
            engine.finish(slot, &mut Output::default()).unwrap();
        }
        inside::leave_out_nothing();
        let (now, peak) = gpu.memory_use();
        println!("{variant}: {} MiB, {} MiB at most", now.div_ceil(1 << 20), peak.div_ceil(1 << 20));
        assert!(now >= 2 * parameters(&card), "{variant}: {now} bytes hold no weights");
        assert!(peak <= mebibytes << 20, "{variant}: {peak} bytes, expected at most {mebibytes} MiB");
        drop(engine);
        assert_eq!(gpu.memory_use().0, 0, "{variant}");
    }
}

#[test]
fn stages_are_timed_and_launches_counted() {
    let _alone = alone();
    for family in [0, 1] {
        let segmenter = small(family).unwrap();
        let expected = labels_alone(&segmenter, 3);
        let mut output = Output::default();
        segmenter.time_stages(true);
        assert_eq!(labels_alone(&segmenter, 3), expected, "labels are others where stages are timed");
        assert_eq!(wrong(&segmenter, &expected, 9, || ()), 0);
        segmenter.submit(frame(0)).unwrap();
        segmenter.receive(&mut output).unwrap();
        let times = output.timing.stages;
        for stage in Stage::ALL {
            assert!(!times.of(stage).is_zero(), "{}", stage.name());
        }
        // Each is rounded to a microsecond or less.
        let network = output.timing.network;
        assert!(times.total() <= network + Duration::from_millis(1), "{times:?} of {network:?}");

        let DeviceSpans { upload, compute, download } = output.timing.device.unwrap();
        let marks = [upload.begin, upload.end, compute.begin, compute.end, download.begin, download.end];
        assert!(!upload.begin.is_zero() && marks.is_sorted(), "{marks:?}");

        segmenter.time_stages(false);
        segmenter.submit(frame(0)).unwrap();
        segmenter.receive(&mut output).unwrap();
        assert_eq!(output.timing.stages, StageTimes::default());
    }
}

/// What two slots are for: nobody who submits a frame waits for the device, and the next frame's pixels are there before the labels of the
/// one that is computed. The test's own thread may be late, but not each time.
#[test]
fn the_next_frame_comes_while_one_is_computed() {
    let _alone = alone();
    let segmenter = small(0).unwrap();
    labels_alone(&segmenter, 3);
    let mut output = Output::default();
    let overlaps = (0..5).any(|_| {
        let frames = [frame(0), frame(1)];
        let start = Instant::now();
        let submitted = frames.map(|frame| segmenter.submit(frame).unwrap());
        let submitting = start.elapsed();
        let [first, second] = submitted.map(|()| {
            segmenter.receive(&mut output).unwrap();
            output.timing.device.unwrap()
        });
        assert!(first.compute.end <= second.compute.begin, "they share memory: {first:?}, {second:?}");
        // A card computes this network in less time than it takes to say what it shall do; the stand-in in far more.
        let waited = submitting >= first.compute.end - first.compute.begin;
        second.upload.end < first.compute.end && (!waited || sapiens_stand_in_loader::wants_card())
    });
    assert!(overlaps);
}

/// Each launch is three calls of the driver: the context's, its own, and the context's again.
#[test]
fn as_many_launches_are_counted_as_are_queued() {
    let _alone = alone();
    if sapiens_stand_in_loader::wants_card() {
        return;
    }
    for family in [0, 1] {
        let card = small_card(family);
        let gpu = Gpu::open(0).unwrap();
        let network = Network::load(&card, &Weights::generated(&card, 7), &gpu, own(&gpu)).unwrap();
        let stream = Stream::new(&gpu).unwrap();
        let mut workspace = workspace::Workspace::new(&network, &stream, [32, 32]).unwrap();
        let mut launches = 0;
        let before = inside::calls();
        let mut count = |_, more: usize| {
            launches += more;
            Ok(())
        };
        network.forward(&stream, &mut workspace, &mut count).unwrap();
        assert_eq!(inside::calls() - before, 3 * launches as u64);

        let segmenter = small(family).unwrap();
        assert_eq!(segmenter.device_use().unwrap().launches, 0);
        labels_alone(&segmenter, 2);
        let found = segmenter.device_use().unwrap();
        assert_eq!(found.launches, launches);
        assert!(0 < found.memory && found.memory <= found.peak_memory, "{found:?}");
    }
}
