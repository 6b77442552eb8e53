//! Machine code for every generation of cards: what each kernel needs there, and that nothing spills unexplained.

use std::fs;
use std::path::Path;
use std::time::Instant;

use rayon::prelude::*;
use serde::Serialize;

use crate::messages::{CompilerTalk, complain, count, warn};
use crate::ptxas_log::{self, Usage, VERBOSE};
use crate::release::{Compilers, MACHINE_TARGETS};
use crate::sources::Sources;
use crate::spills::{self, Spills};

/// What a kernel needs on a card.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Row {
    /// Its source.
    pub(crate) file: String,
    /// Its name as the driver knows it.
    pub(crate) kernel: String,
    /// The card, as `sm_80`.
    pub(crate) arch: &'static str,
    /// As in [`Usage`], and so the rest.
    pub(crate) registers: u32,
    pub(crate) shared_bytes: u32,
    pub(crate) stack_bytes: u32,
    pub(crate) spill_store_bytes: u32,
    pub(crate) spill_load_bytes: u32,
}

impl Row {
    fn new(file: String, arch: &'static str, usage: Usage) -> Self {
        let Usage { kernel, registers, shared_bytes, stack_bytes, spill_store_bytes, spill_load_bytes } =
            usage;
        Self { file, kernel, arch, registers, shared_bytes, stack_bytes, spill_store_bytes, spill_load_bytes }
    }

    /// Stores and loads together.
    pub(crate) fn spilled_bytes(&self) -> u32 {
        self.spill_store_bytes + self.spill_load_bytes
    }
}

/// Compiles everything for every card, prints the table, writes it to `json`, and judges the spills.
pub(crate) fn run(sources: &Sources, compilers: &Compilers, json: Option<&Path>) -> Result<(), String> {
    let archs = MACHINE_TARGETS.map(|target| target.name);
    let spills = Spills::read(&sources.folder, &archs)?;
    let started = Instant::now();
    let mut rows = compile(sources, compilers)?;
    rows.sort_by(|a, b| (&a.file, &a.kernel).cmp(&(&b.file, &b.kernel)));
    if rows.is_empty() {
        anstream::println!("nothing to compile in {}", sources.folder.display());
    } else {
        print(&rows);
        anstream::println!(
            "{} for {} in {:.1} s",
            count(sources.programs.len(), "file"),
            count(archs.len(), "architecture"),
            started.elapsed().as_secs_f64()
        );
    }
    if let Some(path) = json {
        let text =
            serde_json::to_string_pretty(&rows).map_err(|error| format!("can't write JSON: {error}"))?;
        fs::write(path, text + "\n").map_err(|error| format!("can't write {}: {error}", path.display()))?;
    }

    let list = sources.folder.join(spills::FILE);
    let verdict = spills.judge(&rows);
    for gone in &verdict.gone {
        warn(&format_args!("{}: {gone} doesn't spill any more, the entry can go", list.display()));
    }
    for unexplained in &verdict.unexplained {
        complain(unexplained);
    }
    match verdict.unexplained.len() {
        0 => Ok(()),
        spills => Err(format!("{}: remove, or explain in {}", count(spills, "spill"), list.display())),
    }
}

/// All kernels of all sources on all cards, in the order of files, then cards.
fn compile(sources: &Sources, compilers: &Compilers) -> Result<Vec<Row>, String> {
    if sources.programs.is_empty() {
        return Ok(Vec::new());
    }
    compilers.load(&MACHINE_TARGETS)?;
    let jobs: Vec<_> = sources
        .programs
        .iter()
        .flat_map(|source| MACHINE_TARGETS.iter().map(move |target| (source, target)))
        .collect();
    let results: Vec<_> = jobs
        .par_iter()
        .map(|(source, target)| {
            let output = compilers.compile(sources, source, target, &[VERBOSE])?;
            let (usages, rest) = ptxas_log::parse(&output.log)?;
            // A kernel that ptxas didn't report could spill unseen.
            let kernels = kernels_in(&output.ptx);
            if usages.len() != kernels {
                return Err(format!(
                    "ptxas reports on {}, expected {kernels}",
                    count(usages.len(), "kernel")
                ));
            }
            Ok((usages, rest))
        })
        .collect();

    let mut talk = CompilerTalk::default();
    let mut rows = Vec::new();
    let mut failures = 0;
    for ((source, target), result) in jobs.iter().zip(results) {
        let text = match result {
            Ok((usages, rest)) => {
                rows.extend(usages.into_iter().map(|usage| Row::new(source.file(), target.name, usage)));
                rest
            }
            Err(error) => {
                failures += 1;
                error
            }
        };
        talk.note(&source.file(), target.name, &text);
    }
    talk.print();
    match failures {
        0 => Ok(rows),
        failures => Err(format!("{} of {} failed", count(failures, "compilation"), jobs.len())),
    }
}

/// How many kernels a program has.
fn kernels_in(ptx: &str) -> usize {
    ptx.lines().filter(|line| line.split_whitespace().take(2).any(|word| word == ".entry")).count()
}

fn print(rows: &[Row]) {
    let width = rows.iter().map(|row| row.kernel.len()).max().unwrap_or(0).max("kernel".len());
    let files = rows.iter().map(|row| row.file.len()).max().unwrap_or(0).max("file".len());
    anstream::println!(
        "{:files$}  {:width$}  {:6}  registers  shared  stack  spill stores  spill loads",
        "file",
        "kernel",
        "arch"
    );
    for row in rows {
        anstream::println!(
            "{:files$}  {:width$}  {:6}  {:9}  {:6}  {:5}  {:12}  {:11}",
            row.file,
            row.kernel,
            row.arch,
            row.registers,
            row.shared_bytes,
            row.stack_bytes,
            row.spill_store_bytes,
            row.spill_load_bytes
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_counted_in_ptx() {
        assert_eq!(
            kernels_in(
                ".func helper(\n)\n.visible .entry a(\n)\n{\n.weak .entry b()\n\t.entry c(\n// an .entry\n"
            ),
            3
        );
        assert_eq!(kernels_in(""), 0);
    }
}
