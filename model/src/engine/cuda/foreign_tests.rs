//! A program with a context of its own, whose frames lie on the device: they are read and painted there.
#![allow(unsafe_code)] // The program calls the driver.

use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};

use sapiens_stand_in_loader::inside;

use super::flight_tests::{SMALL, alone, small_card};
use super::*;
use crate::alpha::apply_alpha;
use crate::cuda::{Context, CudaFrame, ForeignPlane, ForeignStream, Look};
use crate::frame::{
    Colorimetry, FrameView, FrameViewMut, Matrix, OwnedFrame, PixelFormat, Plane, PlaneMut, Range,
};
use crate::label_map::LabelMap;
use crate::overlay::paint_overlay;
use crate::palette::Palette;
use crate::segmenter::Segmenter;

type Handle = *mut c_void;

/// A function of the driver's, by its name and type.
macro_rules! driver {
    ($name:literal($($argument:expr => $type:ty),*)) => {{
        // SAFETY: whoever names a function gives its type.
        let function: extern "C" fn($($type),*) -> u32 = unsafe { std::mem::transmute(inside::function($name)) };
        assert_eq!(function($($argument),*), 0, $name);
    }};
}

/// A context and a stream in it, as other programs make them.
struct Program {
    context: Handle,
    stream: Handle,
}

// SAFETY: both may be used from any thread.
unsafe impl Send for Program {}
// SAFETY: as above.
unsafe impl Sync for Program {}

impl Program {
    fn new() -> Arc<Self> {
        let (mut context, mut stream) = (std::ptr::null_mut(), std::ptr::null_mut());
        driver!("cuInit"(0 => u32));
        driver!("cuCtxCreate_v2"(&mut context => &mut Handle, 0 => u32, 0 => i32));
        driver!("cuStreamCreate"(&mut stream => &mut Handle, 0 => u32));
        driver!("cuCtxPopCurrent_v2"(&mut std::ptr::null_mut() => &mut Handle));
        Arc::new(Self { context, stream })
    }

    fn in_it<T>(&self, work: impl FnOnce() -> T) -> T {
        driver!("cuCtxPushCurrent_v2"(self.context => Handle));
        let result = work();
        driver!("cuCtxPopCurrent_v2"(&mut std::ptr::null_mut() => &mut Handle));
        result
    }

    fn shared(self: &Arc<Self>) -> Context {
        // SAFETY: the context lives as long as the program.
        unsafe { Context::new(self.context, Box::new(self.clone())) }
    }

    fn segmenter(self: &Arc<Self>, family: usize) -> Segmenter {
        let card = small_card(family);
        Segmenter::in_context(card.clone(), &Weights::generated(&card, 7), SMALL, self.shared()).unwrap()
    }

    /// Puts a frame on the device, some time after this returns.
    fn upload(self: &Arc<Self>, frame: &OwnedFrame) -> Lying {
        let view = frame.view();
        let info = view.info();
        let mut lying =
            Lying { program: self.clone(), frame: None, copies: Vec::new(), addresses: Vec::new() };
        let mut planes = Vec::new();
        self.in_it(|| {
            for index in 0..info.format.planes() {
                let Plane { data, stride } = view.plane(index);
                let mut address = 0;
                driver!("cuMemAlloc_v2"(&mut address => &mut u64, data.len() => usize));
                for _ in 0..60 {
                    let size = data.len();
                    driver!("cuMemsetD8Async"(address => u64, 0 => u8, size => usize, self.stream => Handle));
                }
                let copy = data.to_vec();
                let (from, size) = (copy.as_ptr(), copy.len());
                driver!(
                    "cuMemcpyHtoDAsync_v2"(address => u64, from => *const u8, size => usize, self.stream => Handle)
                );
                lying.copies.push(copy);
                lying.addresses.push(address);
                // SAFETY: it lives as long as `lying`.
                planes.push(unsafe { ForeignPlane::new(self.shared().id(), address, data.len(), stride) });
            }
        });
        // SAFETY: the stream lives as long as the program.
        let written_in = unsafe { ForeignStream::new(self.stream) };
        lying.frame = Some(CudaFrame::new(info, planes, written_in).unwrap());
        ALIVE.fetch_add(1, Ordering::SeqCst);
        lying
    }

    /// A frame's planes as they are on the device.
    fn download(&self, lying: &Lying) -> Vec<Vec<u8>> {
        self.in_it(|| {
            let planes = lying.copies.iter().zip(&lying.addresses).map(|(copy, &address)| {
                let mut bytes = vec![0; copy.len()];
                let (to, size) = (bytes.as_mut_ptr(), bytes.len());
                driver!(
                    "cuMemcpyDtoHAsync_v2"(to => *mut u8, address => u64, size => usize, self.stream => Handle)
                );
                driver!("cuStreamSynchronize"(self.stream => Handle));
                bytes
            });
            planes.collect()
        })
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.in_it(|| driver!("cuStreamDestroy_v2"(self.stream => Handle)));
        driver!("cuCtxDestroy_v2"(self.context => Handle));
    }
}

/// Frames on the device that somebody holds.
static ALIVE: AtomicUsize = AtomicUsize::new(0);

/// A frame on the device.
struct Lying {
    program: Arc<Program>,
    frame: Option<CudaFrame>,
    /// What is copied there.
    copies: Vec<Vec<u8>>,
    addresses: Vec<u64>,
}

impl Frame for Lying {
    fn pixels(&self) -> Pixels<'_> {
        Pixels::Cuda(self.frame.as_ref().unwrap())
    }
}

/// Labels shown on a frame in another.
fn paint(
    segmenter: &Segmenter,
    (lying, canvas): (&Lying, &mut Lying),
    labels: Option<&LabelMap>,
    look: Look,
) -> Result<()> {
    let (Some(frame), Some(canvas)) = (lying.frame.as_ref(), canvas.frame.as_mut()) else {
        unreachable!("frames are there as long as what they lie in")
    };
    let palette = &Palette::of(segmenter.card());
    segmenter.paint(Painting { frame, canvas, labels, palette, look })
}

/// A frame that somebody else holds too.
struct Kept(Arc<Lying>);

impl Frame for Kept {
    fn pixels(&self) -> Pixels<'_> {
        self.0.pixels()
    }
}

impl Drop for Lying {
    fn drop(&mut self) {
        ALIVE.fetch_sub(1, Ordering::SeqCst);
        self.program.in_it(|| {
            for &address in &self.addresses {
                driver!("cuMemFree_v2"(address => u64));
            }
        });
    }
}

const FORMATS: [PixelFormat; 8] = [
    PixelFormat::Nv12,
    PixelFormat::I420,
    PixelFormat::Rgb,
    PixelFormat::Bgr,
    PixelFormat::Rgba,
    PixelFormat::Bgra,
    PixelFormat::Rgbx,
    PixelFormat::Bgrx,
];

/// Noise of its own for each number, with padding between rows.
fn frame(format: PixelFormat, number: usize) -> OwnedFrame {
    let colorimetry = Colorimetry { matrix: Matrix::Bt709, range: Range::Limited };
    let info = FrameInfo { format, width: 61, height: 45, colorimetry };
    let planes = (0..format.planes()).map(|index| {
        let (row_bytes, rows) = info.plane_size(index);
        let byte = |i: usize| ((((i + index) * 40_503 + number * 7_919) * 2_654_435_761) >> 11) as u8;
        ((0..(row_bytes + 7) * rows).map(byte).collect(), row_bytes + 7)
    });
    OwnedFrame::new(info, planes.collect()).unwrap()
}

fn labels_of(segmenter: &Segmenter, frame: impl Frame) -> LabelMap {
    let mut output = Output::default();
    segmenter.submit(frame).unwrap();
    segmenter.receive(&mut output).unwrap();
    output.labels
}

#[test]
fn frames_are_read_where_they_lie() {
    let _alone = alone();
    let before = inside::left_over();
    {
        let program = Program::new();
        for family in [0, 1] {
            let segmenter = program.segmenter(family);
            assert_eq!(segmenter.cuda_context(), Some(program.shared().id()));
            for (number, format) in FORMATS.into_iter().enumerate() {
                let frame = frame(format, number);
                let expected = labels_of(&segmenter, frame.clone());
                let found = labels_of(&segmenter, program.upload(&frame));
                assert!(found.labels() == expected.labels(), "{format}");
                assert_eq!(ALIVE.load(Ordering::SeqCst), 0, "a frame is held whose labels are there");
            }
            // It can't be given back before its pixels are read.
            segmenter.submit(program.upload(&frame(PixelFormat::Rgb, 1))).unwrap();
            assert_eq!(ALIVE.load(Ordering::SeqCst), 1);
            assert_eq!(segmenter.discard(), 1);
            assert_eq!(ALIVE.load(Ordering::SeqCst), 0);
        }
    }
    assert_eq!(inside::left_over(), before);
}

/// Two in flight, each written by the program while the one before is computed.
#[test]
fn the_stream_that_writes_a_frame_is_waited_for() {
    let _alone = alone();
    let program = Program::new();
    let segmenter = program.segmenter(0);
    let frames: Vec<OwnedFrame> = (0..3).map(|number| frame(PixelFormat::Nv12, number)).collect();
    let expected: Vec<LabelMap> = frames.iter().map(|frame| labels_of(&segmenter, frame.clone())).collect();
    let wrong = || {
        let mut output = Output::default();
        let mut wrong = 0;
        for number in 0..10 {
            if number < 9 {
                segmenter.submit(program.upload(&frames[number % 3])).unwrap();
            }
            if number > 0 {
                segmenter.receive(&mut output).unwrap();
                wrong += usize::from(output.labels.labels() != expected[(number - 1) % 3].labels());
            }
        }
        wrong
    };
    assert_eq!(wrong(), 0);
    if sapiens_stand_in_loader::wants_card() {
        return;
    }
    // Of a frame's two waits the first is for the program's stream.
    inside::leave_out("cuStreamWaitEvent", 2, 0);
    let without = wrong();
    inside::leave_out_nothing();
    assert!(without > 0, "nobody needs the wait");

    // And where labels are shown on it.
    let painted = |leaves_out: bool| {
        let (lying, mut canvas) = (program.upload(&frames[0]), program.upload(&frames[1]));
        if leaves_out {
            inside::leave_out("cuStreamWaitEvent", 1, 0);
        }
        let look = Look::Overlay { opacity: 0.5 };
        paint(&segmenter, (&lying, &mut canvas), Some(&expected[0]), look).unwrap();
        inside::leave_out_nothing();
        program.download(&canvas)
    };
    assert!(painted(false) == painted(false));
    assert!(painted(true) != painted(false), "nobody needs the waits");
}

#[test]
fn frames_of_others_are_refused() {
    let _alone = alone();
    let (program, other) = (Program::new(), Program::new());
    let segmenter = program.segmenter(0);
    let error = segmenter.submit(other.upload(&frame(PixelFormat::Rgb, 0))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidFrame);
    assert!(error.to_string().contains("in another CUDA context"), "{error}");
    assert_eq!((segmenter.in_flight(), ALIVE.load(Ordering::SeqCst)), (0, 0));
    // An engine that reads the machine's memory only.
    let cpu = Options { backend: Default::default(), ..SMALL };
    let card = small_card(0);
    let on_cpu = Segmenter::new(card.clone(), &Weights::generated(&card, 7), cpu).unwrap();
    if on_cpu.cuda_context().is_none() {
        let mut output = Output::default();
        on_cpu.submit(program.upload(&frame(PixelFormat::Rgb, 0))).unwrap();
        let error = on_cpu.receive(&mut output).unwrap_err();
        assert!(error.to_string().contains("in a GPU's memory: expected one in the machine's"), "{error}");
    }
    // A context of another device than was asked for.
    let elsewhere = Options {
        backend: crate::BackendRequest { device: crate::DeviceRequest::Cuda(Some(1)), ..Default::default() },
        ..SMALL
    };
    let weights = Weights::generated(&card, 8);
    let error = Segmenter::in_context(card, &weights, elsewhere, program.shared()).unwrap_err();
    assert!(error.to_string().contains("a CUDA context of GPU 0: expected one of cuda:1"), "{error}");
}

/// Rows of a frame's planes, without what is between them.
fn rows(info: FrameInfo, planes: &[Vec<u8>], strides: &[usize]) -> Vec<Vec<u8>> {
    let planes: Vec<Plane<'_>> =
        planes.iter().zip(strides).map(|(data, &stride)| Plane { data, stride }).collect();
    let view = FrameView::new(info, &planes).unwrap();
    let rows =
        (0..info.format.planes()).flat_map(|index| (0..info.plane_size(index).1).map(move |y| (index, y)));
    rows.map(|(index, y)| view.row(index, y).to_vec()).collect()
}

/// Shows labels on a frame on the device, and on the processor by `on_host`.
fn check_look(
    (program, segmenter): (&Arc<Program>, &Segmenter),
    format: PixelFormat,
    look: Look,
    labels: Option<&LabelMap>,
    on_host: impl FnOnce(&mut FrameViewMut<'_>),
) {
    let host = frame(format, 5);
    let info = host.view().info();
    let lying = program.upload(&host);
    let mut canvas = program.upload(&frame(format, 99));
    let mut on_device = |labels: Option<&LabelMap>| paint(segmenter, (&lying, &mut canvas), labels, look);
    // Other labels of the same size first, which must not be seen again.
    on_device(Some(&LabelMap::from_labels(61, 45, vec![3; 61 * 45]).unwrap())).unwrap();
    on_device(labels).unwrap();
    let error = on_device(Some(&LabelMap::new(3, 4))).unwrap_err();
    assert!(error.to_string().contains("a map of 3 x 4 labels"), "{error}");
    on_device(labels).unwrap();

    for (index, (after, before)) in program.download(&lying).iter().zip(&lying.copies).enumerate() {
        assert!(after == before, "{format}: plane {index} of the frame was painted on");
    }
    let strides: Vec<usize> = (0..format.planes()).map(|index| host.view().plane(index).stride).collect();
    let mut expected = lying.copies.clone();
    {
        let mut planes = expected.iter_mut().zip(&strides);
        let mut next = || match planes.next() {
            Some((data, &stride)) => PlaneMut { data, stride },
            None => PlaneMut::default(),
        };
        let view = match format.planes() {
            1 => FrameViewMut::new(info, [next()]),
            2 => FrameViewMut::new(info, [next(), next()]),
            _ => FrameViewMut::new(info, [next(), next(), next()]),
        };
        on_host(&mut view.unwrap());
    }
    let found = rows(info, &program.download(&canvas), &strides);
    assert!(found == rows(info, &expected, &strides), "{format}, {look:?}");
}

#[test]
fn labels_are_painted_where_the_frame_lies() {
    let _alone = alone();
    let program = Program::new();
    let segmenter = program.segmenter(0);
    let palette = Palette::of(segmenter.card());
    let labels = labels_of(&segmenter, frame(PixelFormat::Rgb, 3));
    for format in FORMATS {
        for opacity in [0.0, 0.4, 1.0] {
            check_look((&program, &segmenter), format, Look::Overlay { opacity }, Some(&labels), |view| {
                paint_overlay(view, &labels, &palette, opacity).unwrap();
            });
        }
    }
    check_look((&program, &segmenter), PixelFormat::Nv12, Look::Overlay { opacity: 0.4 }, None, |_| {});
}

#[test]
fn frames_are_cut_out_where_they_lie() {
    let _alone = alone();
    let program = Program::new();
    let segmenter = program.segmenter(0);
    let palette = Palette::of(segmenter.card());
    let labels = labels_of(&segmenter, frame(PixelFormat::Rgb, 3));
    for format in [PixelFormat::Rgba, PixelFormat::Bgra, PixelFormat::Rgbx, PixelFormat::Bgrx] {
        for labels in [Some(&labels), None] {
            check_look((&program, &segmenter), format, Look::CutOut, labels, |view| {
                apply_alpha(view, labels, &palette).unwrap();
            });
        }
    }
    let (lying, mut canvas) =
        (program.upload(&frame(PixelFormat::Rgb, 0)), program.upload(&frame(PixelFormat::Rgb, 1)));
    let error = paint(&segmenter, (&lying, &mut canvas), None, Look::CutOut).unwrap_err();
    assert!(error.to_string().contains("a frame in RGB can't have alpha"), "{error}");
}

#[test]
fn a_canvas_of_another_shape_is_refused() {
    let _alone = alone();
    let program = Program::new();
    let segmenter = program.segmenter(0);
    let (lying, mut canvas) =
        (program.upload(&frame(PixelFormat::Rgb, 0)), program.upload(&frame(PixelFormat::Nv12, 0)));
    let look = Look::Overlay { opacity: 0.5 };
    let error = paint(&segmenter, (&lying, &mut canvas), None, look).unwrap_err();
    assert!(error.to_string().contains("a canvas of 61 x 45 NV12 for a frame of 61 x 45 RGB"), "{error}");
    // As many bytes, and other colours.
    let mut canvas = program.upload(&frame(PixelFormat::Bgr, 0));
    let error = paint(&segmenter, (&lying, &mut canvas), None, look).unwrap_err();
    assert!(error.to_string().contains("a canvas of 61 x 45 BGR for a frame of 61 x 45 RGB"), "{error}");
}

/// Reading a frame and painting on it, with each call of the driver failing once: nothing is held on to, and the next one is right.
#[test]
fn every_call_around_a_frame_may_fail() {
    let _alone = alone();
    if sapiens_stand_in_loader::wants_card() {
        return;
    }
    let program = Program::new();
    let segmenter = program.segmenter(0);
    let run = |failing: Option<u64>| {
        let noise = |number| program.upload(&frame(PixelFormat::Nv12, number));
        let (read, lying, mut canvas) = (Arc::new(noise(1)), noise(1), noise(2));
        let first = inside::calls();
        if let Some(failing) = failing {
            inside::fail_call(first + failing + 1);
        }
        let mut output = Output::default();
        let shown = segmenter.submit(Kept(read.clone())).and_then(|()| segmenter.receive(&mut output));
        let shown = shown.and_then(|()| {
            let look = Look::Overlay { opacity: 0.5 };
            paint(&segmenter, (&lying, &mut canvas), Some(&output.labels), look)
        });
        let calls = inside::calls() - first;
        inside::fail_nothing();
        assert_eq!((segmenter.in_flight(), Arc::strong_count(&read)), (0, 1), "the frame is held");
        (shown.map(|()| program.download(&canvas)), calls)
    };
    // Memory is there, and the forward pass is captured.
    let expected = [run(None), run(None), run(None)].map(|(painted, _)| painted.unwrap());
    assert!(expected[0] == expected[1] && expected[1] == expected[2]);
    let (mut failing, mut errors) = (0, 0);
    loop {
        let (painted, calls) = run(Some(failing));
        match painted {
            Ok(painted) => assert!(painted == expected[0], "call {failing} failed"),
            Err(error) => {
                errors += 1;
                assert!(error.to_string().contains("NVIDIA driver"), "{error}");
            }
        }
        failing += 1;
        if failing > calls {
            break;
        }
    }
    assert!(errors > 60, "{errors} of {failing}");
    assert!(run(None).0.unwrap() == expected[0]);
}
