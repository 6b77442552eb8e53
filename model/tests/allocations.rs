//! From the second frame of a size on, the kernels allocate nothing: what a frame takes is what its owner boxes.
#![allow(unsafe_code)] // An allocator that counts.
#![allow(clippy::unwrap_used)] // A test that can't go on has failed.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use sapiens_model::{
    BackendRequest, Mode, ModelCard, Options, Output, OwnedFrame, Precision, Segmenter, Variant, Weights,
};

struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: everything is the system allocator's own; counting touches no memory of its callers.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as above; the memory is the system allocator's.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn frame(seed: usize) -> OwnedFrame {
    let pixels = (0..320 * 240 * 3).map(|i: usize| (i * i / 7 + seed) as u8).collect();
    OwnedFrame::rgb(320, 240, pixels).unwrap()
}

#[test]
fn a_frame_costs_one_box() {
    const FRAMES: usize = 20;
    let card = ModelCard::of(Variant::Demo);
    let weights = Weights::locate_and_open(&card, None, false).unwrap();
    for precision in [Precision::F32, Precision::Bf16] {
        let backend =
            BackendRequest { mode: Some(Mode::Kernels), precision: Some(precision), ..Default::default() };
        let options = Options { backend, ..Options::default() };
        let segmenter = Segmenter::new(card.clone(), &weights, options).unwrap();
        let mut output = Output::default();
        // Every slot's output and the caller's take their size once.
        for seed in 0..2 * segmenter.slots() {
            segmenter.submit(frame(seed)).unwrap();
            segmenter.receive(&mut output).unwrap();
        }
        let frames: Vec<_> = (0..FRAMES).map(frame).collect();
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        for frame in frames {
            segmenter.submit(frame).unwrap();
            segmenter.receive(&mut output).unwrap();
        }
        let allocations = ALLOCATIONS.load(Ordering::Relaxed) - before;
        assert_eq!(allocations, FRAMES, "{}: one box for each of {FRAMES} frames", segmenter.backend());
    }
}
