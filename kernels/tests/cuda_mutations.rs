//! Whether the tests of the CUDA kernels find mistakes: each one of `cuda/mutations` is planted in a copy of a kernel, which
//! is compiled for the stand-in, and the test that is named beside it must fail.
//!
//! A list is a file; what stands in it before the first mistake holds for all of them. A mistake that can't change any result
//! doesn't belong there. Where threads meet, exchange or wait there must be one, so a new kernel needs a list.
//!
//! `cargo test -p sapiens-kernels --features cuda-check --test cuda_mutations -- --nocapture` prints how each was found, once the
//! other tests are built; `SAPIENS_TEST_MUTATIONS=attention` keeps to those whose file or words contain that.

#![cfg(all(feature = "cuda-check", target_os = "linux", target_arch = "x86_64"))]
#![allow(clippy::unwrap_used, reason = "test code")]

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::ops::Range;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use serde::Deserialize;

/// A mistake, with what its file says of all its mistakes.
#[derive(Deserialize, Clone)]
#[serde(deny_unknown_fields)]
struct Mutation {
    /// Where it is planted, in `kernels/cuda`.
    file: String,
    /// The kernels that are compiled with it, if that isn't the same file.
    kernel: Option<String>,
    /// In words.
    what: String,
    /// What is replaced. It occurs once, or `nth` says which one it is, from 1.
    find: String,
    nth: Option<usize>,
    replace: String,
    /// The test target that finds it, and what its tests' names contain.
    test: String,
    case: Option<String>,
    /// What it is tried with: as long as all instances of a kernel have the same code, one of them is enough.
    precision: String,
    instance: Option<String>,
    #[serde(default = "ampere")]
    arch: u32,
}

fn ampere() -> u32 {
    80
}

impl Mutation {
    /// The file that is compiled.
    fn kernel(&self) -> &str {
        self.kernel.as_deref().unwrap_or(&self.file)
    }

    /// Where in the text it is planted.
    fn place(&self, text: &str) -> Result<usize, String> {
        let places: Vec<usize> = text.match_indices(&self.find).map(|(place, _)| place).collect();
        match (self.nth, &places[..]) {
            (None, [place]) => Ok(*place),
            (Some(nth), places) if nth > 0 && nth <= places.len() && places.len() > 1 => Ok(places[nth - 1]),
            _ => Err(format!("{}: {} places have {:?}", self.what, places.len(), self.find)),
        }
    }

    /// What becomes of the text.
    fn plant(&self, text: &str) -> Result<String, String> {
        let place = self.place(text)?;
        Ok([&text[..place], &self.replace, &text[place + self.find.len()..]].concat())
    }

    /// The part that really changes: without what `find` has only to be found.
    fn changed(&self, text: &str) -> Result<Range<usize>, String> {
        let same = |(a, b): &(u8, u8)| a == b;
        let (find, replace) = (self.find.bytes(), self.replace.bytes());
        let begin = find.clone().zip(replace.clone()).take_while(same).count();
        let rest = find.rev().zip(replace.rev()).take(self.find.len().min(self.replace.len()) - begin);
        let end = self.find.len() - rest.take_while(same).count();
        let place = self.place(text)?;
        Ok(place + begin..place + end)
    }

    /// The same path with nothing changed.
    fn control(&self) -> Self {
        let all = || "all".to_owned();
        let (case, instance) =
            (self.case.clone().unwrap_or_else(all), self.instance.clone().unwrap_or_else(all));
        let what = format!("nothing ({case}, {instance}, {}, compute_{})", self.precision, self.arch);
        Self {
            file: self.kernel().to_owned(),
            find: String::new(),
            replace: String::new(),
            what,
            ..self.clone()
        }
    }

    fn is_control(&self) -> bool {
        self.find.is_empty()
    }
}

fn kernels() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("cuda")
}

fn source(file: &str) -> String {
    fs::read_to_string(kernels().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// The files of a folder with an ending, in the order of their names.
fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let files = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let mut files: Vec<_> = files.filter(|file| file.extension().is_some_and(|is| is == ending)).collect();
    files.sort();
    files
}

/// What those in `kernels/cuda` are called.
fn sources(ending: &str) -> Vec<String> {
    let name = |path: PathBuf| path.file_name().unwrap().to_str().unwrap().to_owned();
    files(&kernels(), ending).into_iter().map(name).collect()
}

/// All mistakes of all lists.
fn mutations() -> Vec<Mutation> {
    let of = |path: PathBuf| {
        let read = || {
            let mut list: toml::Table = fs::read_to_string(&path).unwrap().parse()?;
            let entries: Vec<toml::Table> = list.remove("mutation").unwrap().try_into()?;
            let complete = |mut entry: toml::Table| {
                for (key, value) in &list {
                    entry.entry(key.clone()).or_insert(value.clone());
                }
                entry.try_into()
            };
            entries.into_iter().map(complete).collect::<Result<Vec<Mutation>, toml::de::Error>>()
        };
        read().unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    };
    files(&kernels().join("mutations"), "toml").into_iter().flat_map(of).collect()
}

/// How a test took it.
enum Outcome {
    /// It ended with this.
    Fault(String),
    Emulator(String),
    Assertion(String),
    /// It went well.
    Passed,
    /// Nothing is shown by what happened.
    Broken(String),
}

impl Outcome {
    fn of(status: Option<ExitStatus>, said: &str) -> Self {
        let line = |with: &str| said.lines().find(|line| line.contains(with)).map(str::to_owned);
        let Some(status) = status else { return Self::Broken("it doesn't end".to_owned()) };
        if status.success() && !said.contains(" 0 passed") {
            return Self::Passed;
        }
        if let Some(libc::SIGSEGV | libc::SIGBUS) = status.signal() {
            // Nothing else may fault.
            let place = said.split_once("emulator: kernel ").and_then(|(_, rest)| rest.lines().next());
            return place
                .map_or_else(|| Self::Broken(said.to_owned()), |place| Self::Fault(place.to_owned()));
        }
        let assertion = || said.split_once("panicked at ")?.1.lines().nth(1).map(str::to_owned);
        match (status.code(), line("stand-in: kernel "), assertion()) {
            (Some(101), Some(message), _) => {
                Self::Emulator(message.split_once("failed: ").unwrap_or_default().1.to_owned())
            }
            (Some(101), None, Some(message)) if !said.contains("stand-in: ") => Self::Assertion(message),
            _ => Self::Broken(format!("{status}: {said}")),
        }
    }
}

/// What is needed to try mistakes.
struct Bench {
    folder: tempfile::TempDir,
    emulator: Vec<PathBuf>,
}

/// The longest that a test of one instance may take.
const LIMIT: Duration = Duration::from_secs(60);
/// What starts a line that makes kernels of a precision (first) and an instance (third and following).
const INSTANCES: [&str; 2] = ["TILES(", "HEADS("];

impl Bench {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let compile = |source: PathBuf| {
            let object = folder.path().join(source.file_name().unwrap()).with_extension("o");
            run(compiler().arg("-O2").arg("-c").arg(source).arg("-o").arg(&object)).unwrap();
            object
        };
        let emulator = files(&emulator(), "cpp").into_iter().map(compile).collect();
        Self { folder, emulator }
    }

    /// Compiles the kernels with the mistake, without the instances that it isn't tried with.
    fn compile(&self, mutation: &Mutation, folder: &Path) -> Result<PathBuf, String> {
        fs::create_dir_all(folder).unwrap();
        for file in sources("cuh").iter().map(String::as_str).chain([mutation.kernel()]) {
            let mut text = source(file);
            if file == mutation.file && !mutation.is_control() {
                text = mutation.plant(&text)?;
            }
            let wanted = |line: &&str| {
                let Some(start) = INSTANCES.iter().find(|start| line.starts_with(*start)) else {
                    return true;
                };
                let mut arguments = line[start.len()..].split(", ");
                let precision = arguments.next() == Some(&mutation.precision);
                let sides = mutation.instance.iter().flat_map(|instance| instance.split('x'));
                precision && sides.zip(arguments.skip(1)).all(|(side, argument)| side == argument)
            };
            let text: Vec<&str> = text.lines().filter(wanted).collect();
            fs::write(folder.join(file), text.join("\n")).unwrap();
        }
        let library = folder.join("libkernels.so");
        let arch = format!("-DSAPIENS_ARCH={}", mutation.arch);
        let mut compiler = compiler();
        // Bound to its own emulator, whatever else is in the process.
        compiler.args(["-O1", "-shared", "-fno-gnu-unique", "-Wl,-Bsymbolic", "-DSAPIENS_EMULATED", &arch]);
        compiler.args(["-xc++"]).arg(folder.join(mutation.kernel())).arg("-xnone").args(&self.emulator);
        run(compiler.arg("-o").arg(&library))?;
        Ok(library)
    }

    /// What the named test makes of it.
    fn try_out(&self, number: usize, mutation: &Mutation) -> Outcome {
        let folder = self.folder.path().join(number.to_string());
        let library = match self.compile(mutation, &folder) {
            Ok(library) => library,
            Err(why) => return Outcome::Broken(why),
        };
        let said = folder.join("said");
        let output = File::create(&said).unwrap();
        let mut test = Command::new(executable(&mutation.test));
        test.args(&mutation.case).arg("--test-threads=1");
        test.stdout(output.try_clone().unwrap()).stderr(output);
        let capability = format!("{}.{}", mutation.arch / 10, mutation.arch % 10);
        test.env_remove("SAPIENS_TEST_CUDA").env("SAPIENS_STAND_IN_CAPABILITY", capability);
        test.env("SAPIENS_STAND_IN_KERNELS", library).env("SAPIENS_TEST_PRECISION", &mutation.precision);
        test.envs(mutation.instance.iter().map(|instance| ("SAPIENS_TEST_INSTANCE", instance)));
        let mut test = test.spawn().unwrap();
        let begin = Instant::now();
        let status = loop {
            match test.try_wait().unwrap() {
                Some(status) => break Some(status),
                None if begin.elapsed() < LIMIT => std::thread::sleep(Duration::from_millis(5)),
                None => {
                    test.kill().unwrap();
                    test.wait().unwrap();
                    break None;
                }
            }
        };
        let outcome = Outcome::of(status, &String::from_utf8_lossy(&fs::read(said).unwrap()));
        fs::remove_dir_all(folder).unwrap();
        outcome
    }
}

fn emulator() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/stand-in/emulator")
}

/// The compiler as `tests/stand-in/build.rs` has it, without its opinions on planted mistakes.
fn compiler() -> Command {
    let mut compiler = Command::new(std::env::var_os("CXX").unwrap_or("c++".into()));
    compiler.args(["-std=c++17", "-fPIC", "-w", "-I"]).arg(emulator());
    compiler
}

fn run(command: &mut Command) -> Result<(), String> {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

/// Another test of this crate: what was built last of that name beside this one.
fn executable(test: &str) -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let start = format!("{test}-");
    let is_it = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy();
        name.starts_with(&start) && !name.contains('.')
    };
    let all = fs::read_dir(own.parent().unwrap()).unwrap().map(|file| file.unwrap().path());
    let newest = all.filter(is_it).max_by_key(|path| path.metadata().unwrap().modified().unwrap());
    newest.unwrap_or_else(|| {
        panic!("{test} isn't built: cargo test -p sapiens-kernels --features cuda-check --no-run")
    })
}

#[test]
fn planted_mistakes_are_found() {
    let only = std::env::var("SAPIENS_TEST_MUTATIONS").unwrap_or_default();
    let mut mutations = mutations();
    mutations.retain(|mutation| format!("{}: {}", mutation.file, mutation.what).contains(&only));
    assert!(!mutations.is_empty(), "none of the lists' mistakes is {only}");
    let mut paths = BTreeSet::new();
    let mut all: Vec<Mutation> = mutations.iter().map(Mutation::control).collect();
    all.retain(|control| paths.insert((control.file.clone(), control.what.clone())));
    let controls = all.len();
    all.append(&mut mutations);

    let bench = Bench::new();
    let (queue, failures) = (Mutex::new(all.iter().enumerate()), Mutex::new(Vec::new()));
    let next = || queue.lock().unwrap().next();
    let work = || {
        while let Some((number, mutation)) = next() {
            let begin = Instant::now();
            let outcome = bench.try_out(number, mutation);
            let (how, message) = match &outcome {
                Outcome::Fault(message) => ("fault", message.as_str()),
                Outcome::Emulator(message) => ("emulator", message.as_str()),
                Outcome::Assertion(message) => ("assertion", message.as_str()),
                Outcome::Passed => ("passed", ""),
                Outcome::Broken(why) => ("broken", why.as_str()),
            };
            let is_right = match outcome {
                Outcome::Passed => mutation.is_control(),
                Outcome::Broken(_) => false,
                _ => !mutation.is_control(),
            };
            let line = format!(
                "{}: {} -> {how}, {:.1} s{}{message}",
                mutation.file,
                mutation.what,
                begin.elapsed().as_secs_f64(),
                if message.is_empty() { "" } else { ": " },
            );
            println!("{line}");
            if !is_right {
                failures.lock().unwrap().push(line);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    let failures = failures.into_inner().unwrap();
    println!("{} mistakes, {controls} controls, {} wrong", all.len() - controls, failures.len());
    assert!(failures.is_empty(), "not as it should be:\n{}", failures.join("\n"));
}

/// Where threads meet, exchange or wait.
const WORDS: [&str; 6] =
    ["barrier(", "warp_barrier(", "copy_async_wait", "copy_async_commit", "shuffle_xor(", "load_matrices"];

/// Every use of such a word: where it begins and where its last argument ends.
fn uses(text: &str) -> Vec<Range<usize>> {
    // Words of comments are none, but places stay the same.
    let code: String = text
        .split_inclusive('\n')
        .map(|line| {
            let code = line.find("//").unwrap_or(line.len());
            format!("{}{}", &line[..code], " ".repeat(line.len() - code))
        })
        .collect();
    let begins = WORDS.iter().flat_map(|word| code.match_indices(word)).map(|(begin, _)| begin);
    let is_word = |begin: &usize| {
        !code[..*begin].ends_with(|before: char| before == '_' || before.is_ascii_alphanumeric())
    };
    let end = |begin: usize| {
        let mut depth = 0;
        let brackets = code[begin..].char_indices().find(|(_, char)| {
            depth += i32::from(*char == '(') - i32::from(*char == ')');
            *char == ')' && depth == 0
        });
        begin..begin + brackets.unwrap().0 + 1
    };
    begins.filter(is_word).map(end).collect()
}

#[test]
fn every_meeting_has_its_mistake() {
    let mutations = mutations();
    let mut missing = Vec::new();
    let mut check = |file: &str, from: usize| {
        let text = source(file);
        let changed = mutations.iter().filter(|mutation| mutation.file == file);
        let changed: Vec<Range<usize>> = changed.map(|mutation| mutation.changed(&text).unwrap()).collect();
        for place in uses(&text).into_iter().filter(|place| place.start >= from) {
            if !changed.iter().any(|changed| changed.start < place.end && place.start < changed.end) {
                let line = text[..place.start].matches('\n').count() + 1;
                missing.push(format!("{file}:{line}: {}", &text[place]));
            }
        }
    };
    for file in sources("cu").into_iter().chain(sources("cuh")) {
        // What is above is the device's own; the emulator has its own of it.
        let common = if file == "device.cuh" { "#endif  // SAPIENS_EMULATED" } else { "" };
        check(&file, source(&file).find(common).unwrap());
    }
    assert!(missing.is_empty(), "no mistake in cuda/mutations touches\n{}", missing.join("\n"));
}
