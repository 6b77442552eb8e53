//! Products by NVIDIA's cuBLASLt, where it is installed: another way behind [`Products`](super::product::Products).
//!
//! Its kernels are NVIDIA's own for each generation of cards. What the own product kernel does to sums before it stores them, cuBLASLt can do
//! for a bias and for an addition; GELU (which it has in the form with tanh only), SwiGLU, LayerScale and moments are a pass of their own behind it
//! ([`Finish`]), over values that are rounded to 16 bits once more (in float16 they have to stay below 65,504). ConvTransposes, whose rows are gathered, stay with the own kernel, and so
//! does every product for which cuBLASLt has no algorithm. Sums are always float32.

mod library;
mod plan;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, PoisonError};

use self::library::{Functions, Opaque, call};
use self::plan::{Plan, Problem};
use super::finish::Finish;
use super::pack::{Format, Gather, Pack, Packed, Source};
use super::product::{Linear, Out, Rows, Then};
use super::{Buffer, CudaError, Gpu, Precision, Slice, SliceMut, Stream};

/// What NVIDIA recommends for its Hopper cards, which want most.
const WORKSPACE: usize = 32 << 20;

/// The library's products of one precision on one device.
#[derive(Debug)]
pub struct CublasLt {
    gpu: Arc<Gpu>,
    functions: &'static Functions,
    handle: Opaque,
    precision: Precision,
    plans: Mutex<HashMap<Problem, Option<Plan>>>,
    finish: Finish,
    pack: Pack,
}

// SAFETY: the library's handle may be used from any thread.
unsafe impl Send for CublasLt {}
// SAFETY: as above; plans are behind a lock.
unsafe impl Sync for CublasLt {}

/// Memory that products by cuBLASLt need beside their operands. Streams whose work overlaps need one each.
#[derive(Debug)]
pub struct Room {
    workspace: Buffer<u8>,
    /// Results whose columns aren't those that are wanted, or a bias in 16 bits.
    values: Buffer<u16>,
}

impl CublasLt {
    /// Looks for the library, for products in `precision`.
    ///
    /// # Errors
    /// [`CudaError::NoCublasLt`], [`CudaError::CublasLtVersion`], or what the library or the driver says.
    pub fn open(gpu: &Arc<Gpu>, precision: Precision) -> Result<Self, CudaError> {
        let functions = Functions::find(super::driver::version()? / 1000)?;
        let (finish, pack) = (Finish::new(gpu, precision)?, Pack::new(gpu, precision)?);
        let mut handle = std::ptr::null_mut();
        {
            let _entered = gpu.enter()?;
            // SAFETY: a context is current.
            unsafe { call!(functions, cublasLtCreate(&mut handle))? };
        }
        Ok(Self { gpu: gpu.clone(), functions, handle, precision, plans: Mutex::default(), finish, pack })
    }

    /// The library's version, as it writes it: `12.4.5`.
    pub fn version(&self) -> String {
        // SAFETY: it can be called at any time.
        let version = unsafe { (self.functions.cublasLtGetVersion)() };
        format!("{}.{}.{}", version / 10_000, version / 100 % 100, version % 100)
    }

    /// Room for products of which those with a SwiGLU or a scale have at most so many results, and those with a bias so many columns.
    ///
    /// # Errors
    /// If there isn't so much memory on the device.
    pub fn room(&self, values: usize) -> Result<Room, CudaError> {
        Ok(Room { workspace: Buffer::new(&self.gpu, WORKSPACE)?, values: Buffer::new(&self.gpu, values)? })
    }

    /// Queues a product whose sizes were checked, and what follows it; gives `then` back where there is no algorithm for it.
    pub(super) fn product<'a>(
        &self,
        stream: &Stream,
        a: Rows<'_>,
        linear: Linear<'_>,
        then: Then<'a>,
        room: &mut Room,
    ) -> Result<Option<Then<'a>>, CudaError> {
        let Rows { rows, depth, .. } = a;
        let Linear { bias, columns, .. } = linear;
        if rows == 0 || columns == 0 || depth == 0 {
            return Ok(Some(then));
        }
        let size = [rows, columns];
        let Room { workspace, values } = room;
        // Where the product itself goes, and how.
        let (wide, add, is_direct) = match &then {
            Then::Store(_) => (false, false, true),
            Then::StoreF32(_) => (true, false, true),
            Then::Add(_, None) => (true, true, true),
            Then::Gelu(_) | Then::Moments(..) | Then::SwiGlu(_) | Then::Add(_, Some(_)) => {
                (false, false, false)
            }
        };
        let aside = matches!(then, Then::SwiGlu(_) | Then::Add(_, Some(_)));
        let (to, stride) = if aside {
            assert!(values.len() >= rows * columns, "product: room for {} values beside it", values.len());
            (values.slice(..).at(stream), columns)
        } else {
            then.destination(stream)
        };
        let direct_bias = bias.filter(|_| is_direct);
        // In 16 bits it is in the room, once it is there.
        let bias_at =
            direct_bias.map(|bias| if wide { bias.at(stream) } else { values.slice(..).at(stream) });
        let addresses = [linear.weights.at(stream), a.values.at(stream), to];
        let alignment = |address: u64| 1 << address.trailing_zeros().min(8);
        let problem = Problem {
            rows: rows as u64,
            columns: columns as u64,
            depth: depth as u64,
            strides: [a.stride as u64, stride as u64],
            wide,
            add,
            bias: bias_at.map(alignment),
            alignments: addresses.map(alignment),
        };
        // Held until the product is queued: a plan knows one bias at a time.
        let mut plans = self.plans.lock().unwrap_or_else(PoisonError::into_inner);
        let known = match plans.entry(problem) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(unknown) => {
                let _entered = self.gpu.enter()?;
                let (functions, room) = (self.functions, workspace.len());
                let found = Plan::find(functions, self.handle, self.precision, problem, bias_at, room)?;
                unknown.insert(found)
            }
        };
        let Some(plan) = known else { return Ok(Some(then)) };
        if let (Some(bias), Some(at)) = (direct_bias, bias_at) {
            if !wide {
                self.narrow(stream, bias.part(..columns), values)?;
            }
            plan.set_bias(at)?;
        }
        let is_queued = {
            let _entered = self.gpu.enter()?;
            let workspace = (workspace.slice(..).at(stream), workspace.len());
            // SAFETY: the addresses are those of the problem, whose sizes the caller has checked.
            unsafe { plan.run(self.handle, addresses, add, workspace, stream.raw.cast())? }
        };
        if !is_queued {
            *known = None;
            return Ok(Some(then));
        }
        drop(plans);
        let raw = || values.slice(..rows * columns);
        match then {
            Then::Store(_) | Then::StoreF32(_) | Then::Add(_, None) => {}
            Then::Gelu(out) => self.finish.gelu_in_place(stream, out, size, bias)?,
            Then::SwiGlu(out) => self.finish.swiglu(stream, raw(), size, bias, out)?,
            Then::Add(out, scale) => self.finish.add(stream, raw(), size, bias, scale, out)?,
            Then::Moments(Out { values, stride }, moments) => {
                self.finish.moments(stream, values.as_slice(), stride, size, moments)?;
            }
        }
        Ok(None)
    }

    /// Moments of a product that the own kernel has stored.
    pub(super) fn moments(
        &self,
        stream: &Stream,
        stored: Slice<'_, u16>,
        stride: usize,
        size: [usize; 2],
        moments: SliceMut<'_, f32>,
    ) -> Result<(), CudaError> {
        self.finish.moments(stream, stored, stride, size, moments)
    }

    /// A bias as the results of 16 bits have it, in `room`.
    fn narrow(&self, stream: &Stream, bias: Slice<'_, f32>, room: &mut Buffer<u16>) -> Result<(), CudaError> {
        let columns = bias.len();
        assert!(room.len() >= columns, "product: room for {} values beside it", room.len());
        let sizes = [1, 1, 1, columns];
        let gather = Gather { first: 0, sizes, limits: sizes, strides: [0, 0, 0, 1] };
        let source = Source { format: Format::F32, bytes: bias.bytes() };
        self.pack.run(stream, source, &gather, Packed::Stored(room.slice_mut(..columns)))
    }
}

impl Drop for CublasLt {
    fn drop(&mut self) {
        self.plans.get_mut().unwrap_or_else(PoisonError::into_inner).clear();
        // Even where that fails: the library knows whose handle it is.
        let _entered = self.gpu.enter();
        // SAFETY: it was made once. Nothing can be done about a failure.
        let _ = unsafe { call!(self.functions, cublasLtDestroy(self.handle)) };
    }
}
