//! The product of matrices that the stand-in for cuBLASLt (`cublaslt/`) launches, as a kernel of the driver's own.

use std::ffi::c_void;

/// As `cublaslt/src/driver.rs` has them.
#[repr(C)]
#[derive(Clone, Copy)]
struct Arguments {
    a: u64,
    b: u64,
    d: u64,
    bias: u64,
    workspace: u64,
    workspace_bytes: u64,
    rows: u64,
    columns: u64,
    depth: u64,
    a_stride: u64,
    b_stride: u64,
    d_stride: u64,
    alpha: f32,
    beta: f32,
    bfloat16: u32,
    wide: u32,
}

/// Bytes of its one parameter.
pub const PARAMETER: usize = size_of::<Arguments>();

/// The result's value `[column][row]` is `alpha` times the product of A's column `row` and B's column `column`, plus `beta` times what
/// was there, plus the bias of the row. The workspace is written all over.
///
/// # Safety
/// There is a pointer to the arguments; that they name anything but memory of the device ends the process, as on a GPU.
pub unsafe fn run(_: [u32; 3], _: [u32; 3], values: &[*mut c_void]) -> Result<(), String> {
    // SAFETY: the caller's promise.
    let p = unsafe { values[0].cast::<Arguments>().read_unaligned() };
    // SAFETY: memory of the device, if the launch is right.
    unsafe { (p.workspace as *mut u8).write_bytes(0xFF, p.workspace_bytes as usize) };
    let [a, b] = [(p.a, p.rows, p.a_stride), (p.b, p.columns, p.b_stride)].map(|(at, columns, stride)| {
        let column = |i: u64| {
            // SAFETY: as above.
            let values = unsafe {
                std::slice::from_raw_parts((at as *const u16).add((i * stride) as usize), p.depth as usize)
            };
            values.iter().map(|&bits| widened(bits, p.bfloat16 != 0)).collect::<Vec<f32>>()
        };
        (0..columns).map(column).collect::<Vec<_>>()
    });
    for (j, b) in b.iter().enumerate() {
        for (i, a) in a.iter().enumerate() {
            let at = j * p.d_stride as usize + i;
            let sum: f32 = a.iter().zip(b).map(|(a, b)| a * b).sum();
            // SAFETY: as above.
            unsafe {
                if p.wide != 0 {
                    let bias = if p.bias == 0 { 0.0 } else { (p.bias as *const f32).add(i).read() };
                    let to = (p.d as *mut f32).add(at);
                    // What was there may be no number where it isn't asked for.
                    let before = if p.beta == 0.0 { 0.0 } else { p.beta * to.read() };
                    to.write(p.alpha * sum + before + bias);
                } else {
                    let bfloat16 = p.bfloat16 != 0;
                    let bias = if p.bias == 0 {
                        0.0
                    } else {
                        widened((p.bias as *const u16).add(i).read(), bfloat16)
                    };
                    let to = (p.d as *mut u16).add(at);
                    let before = if p.beta == 0.0 { 0.0 } else { p.beta * widened(to.read(), bfloat16) };
                    to.write(narrowed(p.alpha * sum + before + bias, bfloat16));
                }
            }
        }
    }
    Ok(())
}

fn widened(bits: u16, bfloat16: bool) -> f32 {
    if bfloat16 { half::bf16::from_bits(bits).to_f32() } else { half::f16::from_bits(bits).to_f32() }
}

fn narrowed(value: f32, bfloat16: bool) -> u16 {
    if bfloat16 { half::bf16::from_f32(value).to_bits() } else { half::f16::from_f32(value).to_bits() }
}
