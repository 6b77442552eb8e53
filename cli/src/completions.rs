//! `sapiens completions`: a script for the user's shell.

use std::process::ExitCode;

use clap::{Args, CommandFactory};
use clap_complete::Shell;
use sapiens_model::Result;

#[derive(Args)]
#[command(
    after_help = "For bash: sapiens completions bash > ~/.local/share/bash-completion/completions/sapiens"
)]
pub(crate) struct Arguments {
    /// Which shell.
    shell: Shell,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let mut command = crate::Arguments::command();
    clap_complete::generate(arguments.shell, &mut command, "sapiens", &mut std::io::stdout());
    Ok(ExitCode::SUCCESS)
}
