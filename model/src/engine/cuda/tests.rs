//! The forward pass on a GPU, or on the stand-in for its driver, against the authors' numbers, and the engine around it against the
//! processor's.

use std::time::Duration;

use sapiens_kernels::cuda::Capability;
use sapiens_stand_in_loader as stand_in;

use super::bare_network::{BareNetwork, allowed_of_tiny};
use super::flight_tests::{SMALL, alone, small_card};
use super::*;
use crate::backend::{BackendRequest, DeviceRequest, Mode};
use crate::engine::reference_data::{Difference, TINY, data, difference, reference};
use crate::frame::{OwnedFrame, PixelFormat};
use crate::segmenter::Segmenter;

/// All devices.
fn gpus() -> Vec<Arc<Gpu>> {
    stand_in::open();
    (0..).map_while(|index| Gpu::open(index).ok()).collect()
}

/// Products of a precision in every way that there is.
fn ways(gpu: &Arc<Gpu>, precision: Stored) -> Vec<(&'static str, Products)> {
    stand_in::open_cublaslt();
    let made = || Products::new(gpu, precision);
    match made() {
        Ok(own) => vec![("own", own), ("cuBLASLt", made().unwrap().with_cublaslt(gpu).unwrap())],
        Err(error) => {
            assert!(error.to_string().contains("bfloat16 needs"), "{error}");
            Vec::new()
        }
    }
}

#[test]
fn tiny_networks_agree_with_the_authors() {
    let _alone = alone();
    for (card, seed, files) in TINY {
        let card = ModelCard::load(&data(card)).unwrap();
        let weights = Weights::generated(&card, seed);
        for gpu in gpus() {
            // The kernels are the same on all devices of a generation: the other size is for one of them.
            let ampere = gpu.properties().capability == Capability { major: 8, minor: 0 };
            for precision in [Stored::F16, Stored::F16Promoted, Stored::Bf16] {
                // What is around cuBLASLt is the same on all devices.
                for (way, products) in ways(&gpu, precision).into_iter().take(if ampere { 2 } else { 1 }) {
                    let network = BareNetwork::load(&card, &weights, &gpu, products).unwrap();
                    for file in &files[..if ampere && way == "own" { 2 } else { 1 }] {
                        let reference = reference(file);
                        let (shape, input) = &reference["input"];
                        let found = network.logits([shape[2], shape[3]], input).unwrap();
                        let (shape, expected) = &reference["logits"];
                        assert_eq!(*shape, [1, found.classes, found.height, found.width]);
                        let Difference { mean, p99, .. } = difference(&found.values, expected);
                        let what = format!("{file}, {}, {precision:?}, {way}", gpu.properties().capability);
                        println!("{what}: mean {mean:.5}, 99 % {p99:.4}");
                        let allowed = allowed_of_tiny(precision);
                        assert!(mean <= allowed[0] && p99 <= allowed[1], "{what}: {mean}, {p99}");
                    }
                }
            }
        }
    }
}

/// Frame after frame, queued singly and as one launch, in two slots.
#[test]
fn frames_by_cublaslt_are_those_of_our_own_kernels() {
    let _alone = alone();
    for family in 0..2 {
        let card = Arc::new(small_card(family));
        let weights = Weights::generated(&card, 7);
        for gpu in gpus() {
            let device = Device::Cuda(gpu.index() as u32);
            let backend =
                Backend { mode: Mode::Kernels, device, precision: Precision::F16, instructions: None };
            let frames = |(_, products)| {
                self_check(&card, &gpu, backend, &products).unwrap();
                let network = Arc::new(Network::load(&card, &weights, &gpu, products).unwrap());
                let before = stand_in::inside::multiplied();
                let options = Options { keep_logits: true, ..SMALL };
                let engine = CudaEngine::new(&card, network, backend, &options).unwrap();
                let logits = |number: usize| {
                    let mut output = Output::default();
                    let frame = frame(PixelFormat::Rgb, 30 + number, 40);
                    engine.submit(number % 2, Box::new(frame)).unwrap();
                    engine.finish(number % 2, &mut output).unwrap();
                    output.logits.unwrap().values
                };
                let logits: Vec<Vec<f32>> = (0..5).map(logits).collect();
                (logits, stand_in::inside::multiplied() - before)
            };
            let [own, cublaslt]: [_; 2] =
                ways(&gpu, Stored::F16).into_iter().map(frames).collect::<Vec<_>>().try_into().unwrap();
            assert_eq!(own.1, 0);
            // Singly, and as it was captured; from then on nobody asks cuBLASLt.
            assert!(cublaslt.1 > 0 && cublaslt.1 % 2 == 0, "{} products", cublaslt.1);
            for (own, cublaslt) in own.0.iter().zip(&cublaslt.0) {
                let Difference { mean, p99, .. } = difference(cublaslt, own);
                assert!(mean <= 0.004 && p99 <= 0.016, "family {family}: {mean}, {p99}");
            }
        }
    }
}

#[test]
fn what_says_whether_cublaslt_multiplies_is_read_with_care() {
    for (value, wanted) in [(None, false), (Some(""), false), (Some("0"), false), (Some("1"), true)] {
        assert_eq!(wants_cublaslt(value.map(OsStr::new)).unwrap(), wanted, "{value:?}");
    }
    let error = wants_cublaslt(Some(OsStr::new("yes"))).unwrap_err();
    assert!(error.to_string().contains("SAPIENS_CUBLASLT=yes: expected 0"), "{error}");
}

/// A frame of a format with padding between rows, from a picture that all formats make alike.
fn frame(format: PixelFormat, width: usize, height: usize) -> OwnedFrame {
    let info = FrameInfo { format, width, height, colorimetry: Default::default() };
    let planes = (0..format.planes()).map(|index| {
        let (row_bytes, rows) = info.plane_size(index);
        let stride = row_bytes + 5;
        let value = |i: usize| ((i / stride * 3 + i % stride * 2) % 251) as u8;
        ((0..stride * rows).map(value).collect(), stride)
    });
    OwnedFrame::new(info, planes.collect()).unwrap()
}

#[test]
fn labels_are_those_of_the_processor() {
    let _alone = alone();
    for (card, seed, _) in TINY {
        let card = ModelCard::load(&data(card)).unwrap();
        let weights = Weights::generated(&card, seed);
        let segmenter = |backend| {
            let options = Options { backend, keep_logits: true, ..Options::default() };
            Segmenter::new(card.clone(), &weights, options).unwrap()
        };
        let f32 = BackendRequest {
            precision: Some(Precision::F32),
            mode: Some(Mode::Kernels),
            ..Default::default()
        };
        let expected = segmenter(f32);
        let device = DeviceRequest::Cuda(Some(if stand_in::wants_card() { 0 } else { 1 }));
        let found = segmenter(BackendRequest { device, ..Default::default() });
        assert_eq!(found.backend().precision, Precision::F16);
        // Twice the same size, then others: memory is made anew, and used again.
        for (format, width, height) in [
            (PixelFormat::Nv12, 97, 131),
            (PixelFormat::Nv12, 97, 131),
            (PixelFormat::Rgb, 200, 60),
            (PixelFormat::I420, 64, 64),
        ] {
            let [mut one, mut other] = [Output::default(), Output::default()];
            for (segmenter, output) in [(&expected, &mut one), (&found, &mut other)] {
                segmenter.submit(frame(format, width, height)).unwrap();
                segmenter.receive(output).unwrap();
            }
            let what = format!("{}, {format} {width} x {height}", card.name());
            let (one_logits, other_logits) = (one.logits.unwrap(), other.logits.unwrap());
            let Difference { mean, p99, .. } = difference(&other_logits.values, &one_logits.values);
            assert!(mean < 0.006 && p99 < 0.02, "{what}: logits differ by {mean}, {p99}");
            let labels = one.labels.labels().iter().zip(other.labels.labels());
            let equal = labels.filter(|(a, b)| a == b).count();
            // Random weights make near-ties everywhere.
            assert!(
                equal * 100 >= 97 * width * height,
                "{what}: {equal} of {} labels are equal",
                width * height
            );
            assert!(other.timing.network > Duration::ZERO, "{what}");
        }
    }
}

#[test]
fn what_cannot_be_had_is_named() {
    let _alone = alone();
    let count = gpus().len() as u32;
    let request = |device, mode, precision| BackendRequest { device, mode, precision }.resolve();
    let missing = request(DeviceRequest::Cuda(Some(count + 7)), None, None).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::BackendUnavailable);
    assert!(
        missing.to_string().contains(&format!("device cuda:{} is not available", count + 7)),
        "{missing}"
    );
    assert!(missing.to_string().contains(&format!("finds {count}")), "{missing}");
    let f32 = request(DeviceRequest::Cuda(None), None, Some(Precision::F32)).unwrap_err();
    assert!(f32.to_string().contains("expected precision auto, f16 or bf16"), "{f32}");
    let portable = request(DeviceRequest::Cuda(None), Some(Mode::Portable), None).unwrap_err();
    assert!(portable.to_string().contains("expected backend auto or kernels"), "{portable}");
    let backend = request(DeviceRequest::Cuda(None), None, None).unwrap();
    assert_eq!(backend.to_string(), "kernels cuda:0 f16");
}
