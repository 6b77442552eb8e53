//! All figures of a device, as a table and as JSON.

use sapiens_kernels::cuda::{Buffer, CudaError, Event, Gpu, Precision, Stream, probe};
use serde::Serialize;

use crate::network_checks::NetworkCheck;
use crate::network_report;
use crate::network_times::NetworkTimes;

use crate::time::{Kernels, Patience};
use sapiens_device_check::steps::{Network, Operation, Step, precisions};

/// Figures of a device.
#[derive(Debug, Serialize)]
pub struct Report {
    device: String,
    capability: String,
    multiprocessors: u32,
    memory_mib: usize,
    driver: String,
    /// Of the kernels alone.
    precisions: Vec<PrecisionReport>,
    pub network_checks: Vec<NetworkCheck>,
    pub networks: Vec<NetworkTimes>,
}

#[derive(Debug, Serialize)]
struct PrecisionReport {
    precision: &'static str,
    /// Of the matrix instruction from registers.
    probe_tflop_per_second: f64,
    networks: Vec<NetworkReport>,
}

#[derive(Debug, Serialize)]
struct NetworkReport {
    network: &'static str,
    steps: Vec<StepReport>,
    /// Of all kernels of a frame, one after the other.
    frame_ms: f64,
}

#[derive(Debug, Serialize)]
struct StepReport {
    step: &'static str,
    operation: Operation,
    times: usize,
    /// Of one launch.
    ms: f64,
    tflop_per_second: f64,
    gb_per_second: f64,
    /// By cuBLASLt, where that is installed, with what follows the product.
    #[serde(skip_serializing_if = "Option::is_none")]
    cublaslt_ms: Option<f64>,
    /// With each tile, rows x columns.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tiles: Vec<(String, f64)>,
}

impl Report {
    /// Of a device, without any figures.
    pub fn new(gpu: &Gpu) -> Self {
        let properties = gpu.properties();
        Self {
            device: properties.name.clone(),
            capability: properties.capability.to_string(),
            multiprocessors: properties.multiprocessors,
            memory_mib: properties.memory >> 20,
            driver: driver(),
            precisions: Vec::new(),
            network_checks: Vec::new(),
            networks: Vec::new(),
        }
    }

    /// Times the kernels.
    pub fn time_kernels(
        &mut self,
        stream: &Stream,
        networks: &[Network],
        tiles: bool,
        patience: Patience,
    ) -> Result<(), CudaError> {
        for (name, precision) in precisions() {
            let kernels = match Kernels::new(stream.gpu(), precision, patience) {
                Ok(kernels) => kernels,
                Err(error @ CudaError::NoBf16 { .. }) => {
                    anstream::println!("{name}: {error}");
                    continue;
                }
                Err(error) => return Err(error),
            };
            let cublaslt = cublaslt(stream, precision, patience)?;
            let probe_tflop_per_second = probe_rate(stream, precision, patience.probe)?;
            let mut of_networks = Vec::new();
            for network in networks {
                let steps: Vec<StepReport> = network
                    .steps
                    .iter()
                    .map(|step| {
                        let tiles = tiles.then_some((precision, patience));
                        measure_step(stream, &kernels, cublaslt.as_ref(), step, tiles)
                    })
                    .collect::<Result<_, _>>()?;
                let frame_ms = steps.iter().map(|step| step.times as f64 * step.ms).sum();
                of_networks.push(NetworkReport { network: network.name, steps, frame_ms });
            }
            self.precisions.push(PrecisionReport {
                precision: name,
                probe_tflop_per_second,
                networks: of_networks,
            });
        }
        Ok(())
    }

    /// The networks' figures for `docs/performance.md`.
    pub fn tables(&self) -> String {
        let Self { device, capability, memory_mib, driver, .. } = self;
        let machine = format!("{device} ({capability}, {memory_mib} MiB), driver {driver}");
        network_report::tables(&machine, &self.networks)
    }

    /// The kernels' figures for people.
    pub fn print_kernels(&self) {
        for precision in &self.precisions {
            let peak = precision.probe_tflop_per_second;
            for network in &precision.networks {
                anstream::println!(
                    "\n{}, {}: {:.2} ms a frame in its kernels; the matrix units do {peak:.0} TFLOP/s from registers",
                    network.network,
                    precision.precision,
                    network.frame_ms,
                );
                anstream::println!(
                    "{:<22}{:>6}{:>12}{:>12}{:>9}{:>9}{:>12}",
                    "",
                    "times",
                    "one, ms",
                    "frame, ms",
                    "TFLOP/s",
                    "of peak",
                    "GB/s"
                );
                network.steps.iter().for_each(|step| step.print(peak));
            }
        }
    }
}

impl StepReport {
    fn print(&self, peak: f64) {
        let rate = match self.tflop_per_second {
            0.0 => format!("{:>9}{:>9}", "", ""),
            rate => format!("{rate:>9.1}{:>7.0} %", 100.0 * rate / peak),
        };
        let (ms, all) = (self.ms, self.times as f64 * self.ms);
        anstream::println!(
            "{:<22}{:>6}{ms:>12.4}{all:>12.3}{rate}{:>12.0}",
            self.step,
            self.times,
            self.gb_per_second
        );
        if let Some(ms) = self.cublaslt_ms {
            anstream::println!("  {:<26}{ms:>12.4}", "by cuBLASLt");
        }
        for (tile, ms) in &self.tiles {
            anstream::println!("  {tile:<26}{ms:>12.4}");
        }
    }
}

/// The kernels with products by cuBLASLt, where there is one.
fn cublaslt(stream: &Stream, precision: Precision, patience: Patience) -> Result<Option<Kernels>, CudaError> {
    match Kernels::new(stream.gpu(), precision, patience)?.with_cublaslt(stream.gpu()) {
        Ok(kernels) => Ok(Some(kernels)),
        Err(error @ (CudaError::NoCublasLt { .. } | CudaError::CublasLtVersion { .. })) => {
            anstream::println!("not timed: {error}");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

fn measure_step(
    stream: &Stream,
    kernels: &Kernels,
    cublaslt: Option<&Kernels>,
    step: &Step,
    tiles: Option<(Precision, Patience)>,
) -> Result<StepReport, CudaError> {
    let ms = kernels.time(stream, step.operation)?;
    let cublaslt = cublaslt.filter(|_| matches!(step.operation, Operation::Product { .. }));
    let cublaslt_ms = cublaslt.map(|kernels| kernels.time(stream, step.operation)).transpose()?;
    let mut of_tiles = Vec::new();
    if let Some((precision, patience)) = tiles
        && matches!(step.operation, Operation::Product { .. } | Operation::Deconv { .. })
    {
        for tile in kernels.tiles() {
            let only = Kernels::new(stream.gpu(), precision, patience)?.limited_to(tile);
            of_tiles.push((format!("{} x {}", tile[0], tile[1]), only.time(stream, step.operation)?));
        }
    }
    Ok(StepReport {
        step: step.name,
        operation: step.operation,
        times: step.times,
        ms,
        tflop_per_second: step.operation.flop() / ms / 1e9,
        gb_per_second: step.operation.bytes() / ms / 1e6,
        cublaslt_ms,
        tiles: of_tiles,
    })
}

/// The driver's version, as Linux's kernel module gives it.
fn driver() -> String {
    let text = std::fs::read_to_string("/proc/driver/nvidia/version").unwrap_or_default();
    let version = text
        .split_whitespace()
        .find(|word| word.contains('.') && word.starts_with(|c: char| c.is_ascii_digit()));
    version.unwrap_or("unknown").to_owned()
}

/// TFLOP/s of the matrix instruction alone.
fn probe_rate(stream: &Stream, precision: Precision, rounds: u32) -> Result<f64, CudaError> {
    let gpu = stream.gpu();
    let mut out = Buffer::new(gpu, probe::results(gpu.properties().multiprocessors))?;
    let [before, after] = [Event::new(gpu, true)?, Event::new(gpu, true)?];
    // The first run is there to let the clock rise.
    probe::run(stream, precision, rounds, out.slice_mut(..))?;
    before.record(stream)?;
    let flop = probe::run(stream, precision, rounds, out.slice_mut(..))?;
    after.record(stream)?;
    after.synchronize()?;
    Ok(flop / f64::from(after.milliseconds_since(&before)?) / 1e9)
}
