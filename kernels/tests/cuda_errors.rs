//! What happens where something is missing or fails: an error that says what, nothing that is left behind.

#![cfg(feature = "cuda")]
#![allow(clippy::unwrap_used, reason = "test code")]

mod support;

use std::sync::{Mutex, PoisonError};

use sapiens_kernels::Filter;
use sapiens_kernels::cuda::attention::{Attention, QkvShape};
use sapiens_kernels::cuda::cut_out::{CutOut, Shown};
use sapiens_kernels::cuda::finish::Finish;
use sapiens_kernels::cuda::frame::{Frame, Patches, Plane, PlaneMut, ResizeTables};
use sapiens_kernels::cuda::generate::{Generate, Uniform};
use sapiens_kernels::cuda::norm::Norm;
use sapiens_kernels::cuda::overlay::Canvas;
use sapiens_kernels::cuda::pack::{Format, Gather, Pack, Packed as Weights, Source};
use sapiens_kernels::cuda::product::{Linear, Out, Products, Rows, Then};
use sapiens_kernels::cuda::{Buffer, CudaError, Event, Gpu, Precision, Stream};
use sapiens_kernels::frame::{Layout, Packed, YuvToRgb};
use sapiens_stand_in_loader::inside::{calls, fail_call, fail_nothing, left_over};
use support::gpu;

/// Calls that fail and what is left are the whole process's.
static ALONE: Mutex<()> = Mutex::new(());

/// A frame of 3 x 2 pixels of four bytes, cut out.
fn cut_out(stream: &Stream) -> Result<Vec<u8>, CudaError> {
    let gpu = stream.gpu();
    let (kernel, shown) = (CutOut::new(gpu)?, Shown::new(stream, &std::array::from_fn(|label| label == 2))?);
    let (mut pixels, mut labels) = (Buffer::new(gpu, 24)?, Buffer::new(gpu, 6)?);
    stream.upload(&[7; 24], pixels.slice_mut(..))?;
    stream.upload(&[0, 1, 2, 2, 1, 0], labels.slice_mut(..))?;
    let planes = &mut [PlaneMut { bytes: pixels.slice_mut(..), stride: 12 }];
    let layout = Layout::Packed(Packed { step: 4, r: 0, g: 1, b: 2 });
    let canvas = Canvas { layout, width: 3, height: 2, planes };
    kernel.run(stream, canvas, false, Some(labels.slice(..)), &shown)?;
    let mut result = vec![0; 24];
    stream.download(pixels.slice(..), &mut result)?;
    Ok(result)
}

/// A bit of everything: four kernels in two streams, one after the other, and those beside the network.
fn work() -> Result<Vec<u16>, CudaError> {
    let gpu = Gpu::open(1)?;
    let (stream, other) = (Stream::new(&gpu)?, Stream::new(&gpu)?);
    let cut: Vec<u16> = cut_out(&stream)?.into_iter().map(u16::from).collect();
    let norm = Norm::new(&gpu, Precision::F16)?;
    let products = Products::new(&gpu, Precision::F16)?.with_cublaslt(&gpu)?;
    let mut room = products.cublaslt().map(|cublaslt| cublaslt.room(48)).transpose()?;
    let attention = Attention::new(&gpu, Precision::F16, 16)?;
    let shape = QkvShape { tokens: 5, heads: 1, kv_heads: 1, head_dim: 16, head_stride: 16 };
    let (mut x, mut weight) = (Buffer::new(&gpu, 5 * 16)?, Buffer::new(&gpu, 16)?);
    stream.upload(&support::generated("x", &[5, 16], 6), x.slice_mut(..))?;
    stream.upload(&[1.0; 16], weight.slice_mut(..))?;
    let mut normed = Buffer::new(&gpu, 5 * 16)?;
    norm.run(&stream, x.slice(..), weight.slice(..), None, 1e-6, normed.slice_mut(..))?;
    let (mut staging, mut weights) = (Buffer::new(&gpu, 48 * 16 * 4)?, Buffer::new(&gpu, 48 * 16)?);
    let values = Uniform { base: 9, first: 0, scale: 0.1, offset: 0.25 };
    Generate::new(&gpu)?.run(&stream, values, staging.slice_mut(..))?;
    let source = Source { format: Format::F32, bytes: staging.slice(..) };
    let sizes = [1, 1, 48, 16];
    let gather = Gather { first: 0, sizes, limits: sizes, strides: [0, 0, 16, 1] };
    let packed = Weights::Stored(weights.slice_mut(..));
    Pack::new(&gpu, Precision::F16)?.run(&stream, source, &gather, packed)?;
    let rows = Rows { values: normed.slice(..), rows: 5, depth: 16, stride: 16 };
    let linear = Linear { weights: weights.slice(..), bias: None, columns: 48 };
    let mut qkv = Buffer::new(&gpu, 5 * 48)?;
    let out = Out { values: qkv.slice_mut(..), stride: 48 };
    products.product(&stream, rows, linear, Then::Store(out), room.as_mut())?;
    let out = Out { values: qkv.slice_mut(..), stride: 48 };
    Finish::new(&gpu, Precision::F16)?.gelu_in_place(&stream, out, [5, 48], None)?;
    let event = Event::new(&gpu, false)?;
    event.record(&stream)?;
    other.wait(&event)?;
    let mut out = Buffer::new(&gpu, 5 * 16)?;
    attention.run(&other, shape, qkv.slice(..), out.slice_mut(..))?;
    let mut result = vec![0; 5 * 16];
    other.download(out.slice(..), &mut result)?;
    Ok([result, cut].concat())
}

#[test]
fn every_call_may_fail() {
    if sapiens_stand_in_loader::wants_card() {
        eprintln!("skipped: a card's driver can't be told to fail");
        return;
    }
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    sapiens_stand_in_loader::open_cublaslt();
    drop(gpu::all());
    let expected = work().unwrap();
    let nothing = left_over();
    let mut failures = 0;
    loop {
        let first = calls();
        fail_call(first + failures + 1);
        let result = work();
        let all = calls() - first;
        fail_nothing();
        assert_eq!(left_over(), nothing, "after a failure of call {failures} of {all}: {result:?}");
        match result {
            // Releasing something may fail, and there is nobody to tell.
            Ok(result) => assert_eq!(result, expected, "call {failures} failed, and the result is another"),
            Err(error) => {
                let text = error.to_string();
                assert!(text.contains("NVIDIA driver") || text.contains("GPU"), "{text}");
            }
        }
        failures += 1;
        if failures > all {
            break;
        }
    }
    assert!(failures > 60, "only {failures} calls were made");
    assert_eq!(work().unwrap(), expected);
}

#[test]
fn what_cannot_be_had_is_named() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let gpus = gpu::all();
    let count = gpus.len();
    let error = Gpu::open(count + 4).unwrap_err();
    assert_eq!(error, CudaError::NoDevice { index: count + 4, count });
    assert!(error.to_string().contains(&format!("there is no GPU {}", count + 4)), "{error}");

    let gpu = &gpus[0];
    let error = Buffer::<f32>::new(gpu, usize::MAX / 8).unwrap_err();
    assert!(matches!(error, CudaError::OutOfMemory { .. }), "{error:?}");
    assert!(error.to_string().contains("MiB are free"), "{error}");
    // Nothing at all is no error.
    assert!(Buffer::<f32>::new(gpu, 0).unwrap().is_empty());

    for gpu in gpus.iter().filter(|gpu| gpu.properties().capability.major < 8) {
        let products = Products::new(gpu, Precision::Bf16).map(drop);
        let finish = Finish::new(gpu, Precision::Bf16).map(drop);
        for error in [products, finish].map(Result::unwrap_err) {
            assert!(error.to_string().contains("bfloat16 needs compute capability 8.0"), "{error}");
        }
    }
}

#[test]
#[should_panic(expected = "weights of 16 columns of 8")]
fn weights_that_are_too_few_are_a_bug() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let gpu = &gpu::all()[0];
    let stream = Stream::new(gpu).unwrap();
    let products = Products::new(gpu, Precision::F16).unwrap();
    let (x, weights) = (gpu::poisoned(&stream, 8), gpu::poisoned(&stream, 8 * 15));
    let mut out = gpu::poisoned(&stream, 16);
    let rows = Rows { values: x.slice(..), rows: 1, depth: 8, stride: 8 };
    let linear = Linear { weights: weights.slice(..), bias: None, columns: 16 };
    let out = Out { values: out.slice_mut(..), stride: 16 };
    let _ = products.product(&stream, rows, linear, Then::Store(out), None);
}

#[test]
#[should_panic(expected = "memory of one GPU, work on another")]
fn memory_of_another_gpu_is_refused() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let gpus = gpu::all();
    let [first, second, ..] = gpus.as_slice() else {
        panic!("skipped, as memory of one GPU, work on another, needs two");
    };
    let other = gpu::poisoned(&Stream::new(second).unwrap(), 4);
    let _: Vec<f32> = gpu::download(&Stream::new(first).unwrap(), &other);
}

#[test]
#[should_panic(expected = "lies outside of its plane")]
fn a_layout_that_reaches_past_its_plane_is_refused() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let stream = Stream::new(&gpu::all()[0]).unwrap();
    let bytes = gpu::poisoned::<u8>(&stream, 16 * 16 * 3);
    let patches = Patches::new(&stream, Precision::F16, [0.0; 3], [1.0; 3]).unwrap();
    let tables = ResizeTables::new(&stream, Filter::Linear, (16, 16), (16, 16)).unwrap();
    let mut out = gpu::poisoned(&stream, 16 * 16 * 3);
    let frame = Frame {
        layout: Layout::Packed(Packed { step: 3, r: 1 << 40, g: 1, b: 2 }),
        width: 16,
        height: 16,
        planes: &[Plane { bytes: bytes.slice(..), stride: 48 }],
        to_rgb: YuvToRgb { y_offset: 0, y: 0, v_to_r: 0, u_to_g: 0, v_to_g: 0, u_to_b: 0 },
    };
    let _ = patches.run(&stream, frame, &tables, (16, 16), out.slice_mut(..));
}

/// Kernels stay loaded as long as somebody can launch them.
#[test]
fn kernels_outlive_who_opened_them() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    drop(gpu::all());
    let norm = Norm::new(&Gpu::open(0).unwrap(), Precision::F16).unwrap();
    let stream = Stream::new(&Gpu::open(0).unwrap()).unwrap();
    let (x, weight) = (gpu::upload(&stream, &[2.0; 4]), gpu::upload(&stream, &[1.0; 4]));
    let mut out = gpu::poisoned(&stream, 4);
    norm.run(&stream, x.slice(..), weight.slice(..), None, 0.0, out.slice_mut(..)).unwrap();
    assert_eq!(gpu::download_stored(&stream, Precision::F16, &out), [1.0; 4]);
}
