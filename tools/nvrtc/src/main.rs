//! Compiles the CUDA kernels on a machine without a GPU, with NVIDIA's run-time compiler (NVRTC): to the PTX that is
//! committed and shipped, and for every generation of cards to see that nothing spills. It knows nothing of what the
//! kernels do.

mod library;
mod machine;
mod messages;
mod ptx;
mod ptxas_log;
mod release;
mod sources;
mod spills;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::messages::complain;
use crate::release::Compilers;
use crate::sources::Sources;

/// Compiles the CUDA kernels without a GPU, with NVRTC 12.0 and 13.5.
///
/// Every `.cu` file of the folder is a program of its own; `.cuh` files of the same folder can be included. A comment
/// `// nvrtc: <options>` among the first comments of a `.cu` file passes options to the compiler.
#[derive(Parser)]
#[command(
    name = "sapiens-nvrtc",
    version,
    arg_required_else_help = true,
    after_help = "Exit codes: 0 all is well, 1 something isn't and was reported, 2 a mistake in the arguments."
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,

    /// Folder with the .cu files; their PTX is in `ptx`, explained spills are in `spills.toml` there
    #[arg(long, global = true, default_value = "kernels/cuda")]
    source: PathBuf,

    /// Folder with nvrtc-12.0 and nvrtc-13.5 [default: $SAPIENSSEG_CUDA, or where tools/fetch-cuda.sh puts them]
    #[arg(long, global = true)]
    nvrtc_dir: Option<PathBuf>,
}

#[derive(Subcommand)]
enum Command {
    /// Write every kernel's PTX, and remove PTX that has no source any more
    Ptx,
    /// Compare the PTX that is there with what the compiler makes of the sources now
    Check,
    /// Compile for every generation of cards: registers, shared memory, stack and spills of every kernel
    ///
    /// A spill is an error unless `spills.toml` beside the sources explains it, with entries `[[spill]]` that have
    /// `kernel` (its name as the driver knows it), `arch` ("*" or a list such as ["sm_75", "sm_86"]), `max_bytes` (of
    /// stores and loads together) and `why`.
    Machine {
        /// Write the table as JSON to this file, too
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
    },
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&error);
            ExitCode::FAILURE
        }
    }
}

/// Bytes of stack of a thread that compiles: what a main thread has, and the compiler may count on.
const STACK: usize = 8 << 20;

fn run(arguments: &Arguments) -> Result<(), String> {
    let threads = rayon::ThreadPoolBuilder::new().stack_size(STACK).build_global();
    threads.map_err(|error| format!("can't start threads: {error}"))?;
    let sources = Sources::read(&arguments.source)?;
    let compilers = Compilers::new(arguments.nvrtc_dir.as_deref())?;
    match &arguments.command {
        Command::Ptx => ptx::write(&sources, &compilers),
        Command::Check => ptx::check(&sources, &compilers),
        Command::Machine { json } => machine::run(&sources, &compilers, json.as_deref()),
    }
}
