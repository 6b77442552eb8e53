//! What ptxas says of every kernel when it is asked to be verbose, from a program's log. It never judges the numbers.

/// The option that makes ptxas say it; both versions of NVRTC pass it on.
pub(crate) const VERBOSE: &str = "--ptxas-options=-v";

/// What a kernel needs of a card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Usage {
    /// Its name as the driver knows it.
    pub(crate) kernel: String,
    /// Registers of a thread.
    pub(crate) registers: u32,
    /// Bytes of shared memory that a block has without asking for more at launch.
    pub(crate) shared_bytes: u32,
    /// Bytes of local memory that a thread has, the functions that it calls included.
    pub(crate) stack_bytes: u32,
    /// Bytes of registers that a thread stores to local memory, by the number of instructions, not of times.
    pub(crate) spill_store_bytes: u32,
    /// The same of loads.
    pub(crate) spill_load_bytes: u32,
}

/// Reads a log: what kernels use, and the lines that are about something else, such as warnings.
pub(crate) fn parse(log: &str) -> Result<(Vec<Usage>, String), String> {
    let mut kernels: Vec<Started> = Vec::new();
    let mut rest = String::new();
    for line in log.lines() {
        let Some(fact) = fact(line) else {
            rest.push_str(line);
            rest.push('\n');
            continue;
        };
        let read = match fact {
            Fact::Entry(name) => {
                kernels.push(Started::new(name));
                Some(())
            }
            Fact::Frame(text) => kernels.last_mut().and_then(|kernel| kernel.frame(text)),
            Fact::Used(text) => kernels.last_mut().and_then(|kernel| kernel.used(text)),
            Fact::Nothing => Some(()),
        };
        read.ok_or_else(|| format!("ptxas says what nobody here understands: {line:?}"))?;
    }
    let kernels: Result<_, _> = kernels.into_iter().map(Started::finish).collect();
    Ok((kernels?, rest))
}

/// A line of ptxas.
enum Fact<'a> {
    /// A kernel begins.
    Entry(&'a str),
    /// Stack and spills of it, or of a function that it calls.
    Frame(&'a str),
    /// What it uses in all.
    Used(&'a str),
    /// Not about a kernel, or about its name again.
    Nothing,
}

/// The fact in a line; none if the line is no report.
fn fact(line: &str) -> Option<Fact<'_>> {
    let (head, text) = line.split_once(": ").unwrap_or((line, ""));
    if head.trim_end() == "ptxas info" {
        let text = text.trim();
        if let Some(entry) = text.strip_prefix("Compiling entry function '") {
            return Some(Fact::Entry(entry.split_once('\'').map_or(entry, |(name, _)| name)));
        }
        if text.starts_with("Used ") {
            return Some(Fact::Used(text));
        }
        let known = text.starts_with("Function properties for ")
            || text.starts_with("Compile time = ")
            || text.contains(" bytes gmem");
        return known.then_some(Fact::Nothing);
    }
    let frame = line.trim_start().trim_start_matches("ptxas").trim_start_matches([' ', '.']);
    frame.contains(" bytes stack frame").then_some(Fact::Frame(frame))
}

/// A kernel whose report isn't complete yet.
struct Started {
    usage: Usage,
    frames: u32,
    used: bool,
}

impl Started {
    fn new(kernel: &str) -> Self {
        let usage = Usage {
            kernel: kernel.to_owned(),
            registers: 0,
            shared_bytes: 0,
            stack_bytes: 0,
            spill_store_bytes: 0,
            spill_load_bytes: 0,
        };
        Self { usage, frames: 0, used: false }
    }

    /// "56 bytes stack frame, 88 bytes spill stores, 104 bytes spill loads". The first is the kernel's own; a kernel
    /// also spills what the functions spill that it calls.
    fn frame(&mut self, text: &str) -> Option<()> {
        if self.frames == 0 {
            self.usage.stack_bytes = number(text, "bytes stack frame")?;
        }
        self.usage.spill_store_bytes += number(text, "bytes spill stores")?;
        self.usage.spill_load_bytes += number(text, "bytes spill loads")?;
        self.frames += 1;
        Some(())
    }

    /// "Used 64 registers, used 1 barriers, 56 bytes cumulative stack size, 512 bytes smem", what is 0 left out.
    fn used(&mut self, text: &str) -> Option<()> {
        self.usage.registers = number(text, "registers")?;
        self.usage.shared_bytes = number(text, "bytes smem").unwrap_or(0);
        self.usage.stack_bytes =
            number(text, "bytes cumulative stack size").unwrap_or(self.usage.stack_bytes);
        self.used = true;
        Some(())
    }

    fn finish(self) -> Result<Usage, String> {
        if self.used && self.frames > 0 {
            return Ok(self.usage);
        }
        Err(format!(
            "ptxas says of kernel {} not what it uses, expected its registers and its stack frame",
            self.usage.kernel
        ))
    }
}

/// The number before `what` in a list with commas.
fn number(list: &str, what: &str) -> Option<u32> {
    let item = list.split(',').find_map(|item| item.trim().strip_suffix(what))?;
    item.trim().rsplit(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As version 12.0 writes it; `hard` calls a function.
    const OLD: &str = "\
kernel.cu(3): warning #177-D: variable \"x\" was declared but never referenced

ptxas warning : Value of threads per SM for entry hard is out of range. .minnctapersm will be ignored
ptxas info    : 0 bytes gmem
ptxas info    : 3 bytes gmem, 16 bytes cmem[3], 16 bytes cmem[4]
ptxas info    : Compiling entry function 'easy' for 'sm_90'
ptxas info    : Function properties for easy
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 10 registers
ptxas info    : Compiling entry function 'hard' for 'sm_90'
ptxas info    : Function properties for hard
ptxas         .     56 bytes stack frame, 88 bytes spill stores, 104 bytes spill loads
ptxas info    : Used 64 registers, 80 bytes cumulative stack size, 512 bytes smem, 372 bytes cmem[0]
ptxas info    : Function properties for helper
ptxas         .     24 bytes stack frame, 4 bytes spill stores, 8 bytes spill loads
";

    /// As version 13.5 writes it.
    const NEW: &str = "\
ptxas info    : 0 bytes gmem
ptxas info    : (C7510) Potential Performance Loss: something is serialized
ptxas info    : Compiling entry function '_Z4easyILi3EEvPf' for 'sm_120'
ptxas info    : Function properties for _Z4easyILi3EEvPf
ptxas         .     256 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 38 registers, used 1 barriers, 256 bytes cumulative stack size, 16 bytes smem
ptxas info    : Compile time = 30.849 ms
";

    #[test]
    fn the_log_of_the_older_version() {
        let (kernels, rest) = parse(OLD).unwrap();
        let easy = Usage {
            kernel: "easy".to_owned(),
            registers: 10,
            shared_bytes: 0,
            stack_bytes: 0,
            spill_store_bytes: 0,
            spill_load_bytes: 0,
        };
        let hard = Usage {
            kernel: "hard".to_owned(),
            registers: 64,
            shared_bytes: 512,
            stack_bytes: 80,
            spill_store_bytes: 92,
            spill_load_bytes: 112,
        };
        assert_eq!(kernels, [easy, hard]);
        assert!(rest.contains("declared but never referenced"), "{rest}");
        assert!(rest.contains(".minnctapersm will be ignored"), "{rest}");
        assert!(!rest.contains("bytes"), "{rest}");
    }

    #[test]
    fn the_log_of_the_newer_version() {
        let (kernels, rest) = parse(NEW).unwrap();
        assert_eq!(kernels.len(), 1);
        assert_eq!(kernels[0].kernel, "_Z4easyILi3EEvPf");
        assert_eq!([kernels[0].registers, kernels[0].shared_bytes, kernels[0].stack_bytes], [38, 16, 256]);
        assert_eq!(rest.lines().count(), 1, "{rest}");
        assert!(rest.contains("C7510"), "{rest}");
    }

    #[test]
    fn what_is_not_understood_is_an_error_rather_than_no_spill() {
        let error = parse("ptxas info    : Compiling entry function 'k' for 'sm_75'\n").unwrap_err();
        assert!(error.contains("kernel k"), "{error}");
        let changed = OLD.replace("88 bytes spill stores", "88 B spilled");
        assert!(parse(&changed).unwrap_err().contains("88 B spilled"));
        let headless = OLD.lines().skip(6).collect::<Vec<_>>().join("\n");
        assert!(parse(&headless).is_err());
    }
}
