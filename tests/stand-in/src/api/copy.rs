//! Copies and fills.
#![allow(non_snake_case, reason = "the names of the functions are CUDA's")]

use cudarc::driver::sys::CUDA_MEMCPY2D_st;

use crate::call::normal;
use crate::copy::{Claim, Request, Side};
use crate::driver::Driver;
use crate::error::{CUresult, Result};
use crate::ffi::{Handle, In};
use crate::memory::Place;
use crate::work::{Fill, Work};

/// Defines a copy of bytes in a row, and the same in a stream.
macro_rules! copies {
    ($($name:ident $name_async:ident: $source:ident -> $target:ident;)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name(target: usize, source: usize, bytes: usize) -> CUresult {
            normal(stringify!($name), |driver| {
                Request::of_bytes((Claim::$source, source), (Claim::$target, target), bytes).run(driver, None)
            })
        }

        #[unsafe(no_mangle)]
        extern "C" fn $name_async(target: usize, source: usize, bytes: usize, stream: Handle) -> CUresult {
            normal(stringify!($name_async), |driver| {
                Request::of_bytes((Claim::$source, source), (Claim::$target, target), bytes).run(driver, Some(stream))
            })
        }
    )*};
}

copies! {
    cuMemcpy cuMemcpyAsync: Unified -> Unified;
    cuMemcpyHtoD_v2 cuMemcpyHtoDAsync_v2: Host -> Device;
    cuMemcpyDtoH_v2 cuMemcpyDtoHAsync_v2: Device -> Host;
    cuMemcpyDtoD_v2 cuMemcpyDtoDAsync_v2: Device -> Device;
}

/// `CUDA_MEMCPY2D`, with numbers where C may pass any number.
#[derive(Clone, Copy)]
#[repr(C)]
struct Copy2d {
    source: Side2d,
    target: Side2d,
    width: usize,
    height: usize,
}

/// One side of it.
#[derive(Clone, Copy)]
#[repr(C)]
struct Side2d {
    x: usize,
    y: usize,
    memory_type: u32,
    host: usize,
    device: usize,
    array: usize,
    pitch: usize,
}

const _: () = assert!(size_of::<Copy2d>() == size_of::<CUDA_MEMCPY2D_st>());

impl Copy2d {
    fn request(&self) -> Result<Request> {
        let side = |side: Side2d| {
            let (claim, base) = match side.memory_type {
                1 => (Claim::Host, side.host),
                2 => (Claim::Device, side.device),
                4 => (Claim::Unified, side.device),
                // Arrays, which nobody can make.
                _ => return None,
            };
            // Without a pitch, rows lie without gaps.
            let pitch = if side.pitch == 0 { side.x.checked_add(self.width)? } else { side.pitch };
            let before = side.y.checked_mul(pitch)?.checked_add(side.x)?;
            // What is to be copied must not go over the end of a row.
            let fits = side.x.checked_add(self.width)? <= pitch;
            let address = base.checked_add(before).filter(|_| fits)?;
            Some(Side { claim, address, pitch })
        };
        let (width, height) = (self.width, self.height);
        let sides = side(self.source).zip(side(self.target));
        let (source, target) = sides.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        Ok(Request { source, target, width, height })
    }
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpy2D_v2(copy: In<Copy2d>) -> CUresult {
    normal("cuMemcpy2D_v2", |driver| copy.get()?.request()?.run(driver, None))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpy2DUnaligned_v2(copy: In<Copy2d>) -> CUresult {
    normal("cuMemcpy2DUnaligned_v2", |driver| copy.get()?.request()?.run(driver, None))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpy2DAsync_v2(copy: In<Copy2d>, stream: Handle) -> CUresult {
    normal("cuMemcpy2DAsync_v2", |driver| copy.get()?.request()?.run(driver, Some(stream)))
}

/// Fills memory of a device. Not even the functions without a stream wait for it.
fn fill(
    driver: &Driver,
    stream: Option<Handle>,
    target: usize,
    value: u32,
    size: usize,
    count: usize,
) -> Result {
    let mut state = driver.state();
    let queue = state.stream(stream.unwrap_or(Handle::NONE))?;
    if stream.is_none() {
        state.forbid_in_capture()?;
    }
    if count == 0 {
        return Ok(());
    }
    let bytes = size.checked_mul(count).filter(|_| target.is_multiple_of(size));
    let place = bytes.and_then(|bytes| state.memory.place(target, bytes));
    if place != Some(Place::Device) {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    state.enqueue(queue, Work::Fill(Fill { target, value, size, count })).map(|_| ())
}

/// Defines a fill, and the same in a stream.
macro_rules! fills {
    ($($name:ident $name_async:ident: $value:ty;)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name(target: usize, value: $value, count: usize) -> CUresult {
            let size = size_of::<$value>();
            normal(stringify!($name), |driver| fill(driver, None, target, value.into(), size, count))
        }

        #[unsafe(no_mangle)]
        extern "C" fn $name_async(target: usize, value: $value, count: usize, stream: Handle) -> CUresult {
            let size = size_of::<$value>();
            normal(stringify!($name_async), |driver| fill(driver, Some(stream), target, value.into(), size, count))
        }
    )*};
}

fills! {
    cuMemsetD8_v2 cuMemsetD8Async: u8;
    cuMemsetD16_v2 cuMemsetD16Async: u16;
    cuMemsetD32_v2 cuMemsetD32Async: u32;
}
