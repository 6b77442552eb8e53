//! As much of PTX as a driver must know of a module whose code it won't run: for which device it is, and its kernels
//! with their parameters and limits.

/// What a module says of itself.
#[derive(Debug, PartialEq)]
pub struct Ptx {
    /// The version of PTX, `(8, 4)`.
    pub version: (u32, u32),
    /// The architecture, as in `sm_86`.
    pub target: u32,
    /// Whether it runs on no later one: `sm_90a`, `sm_100f`.
    pub is_exact: bool,
    pub entries: Vec<Entry>,
}

/// A kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    pub name: String,
    /// The size of each parameter.
    pub parameters: Vec<usize>,
    /// The most threads of a block, if it says so.
    pub max_threads: Option<u32>,
    /// The block that it must be launched with, if it says so.
    pub required_block: Option<[u32; 3]>,
    /// Bytes of shared memory that a launch need not ask for.
    pub static_shared: usize,
}

impl Ptx {
    /// Reads a module.
    ///
    /// # Errors
    /// If it can't be read; the text says why.
    pub fn parse(text: &str) -> Result<Self, String> {
        let text = without_comments(text);
        let word_after = |directive: &str| {
            let (_, rest) = text.split_once(directive)?;
            rest.split(|letter: char| letter.is_whitespace() || letter == ',').find(|word| !word.is_empty())
        };
        let version = word_after(".version").and_then(|word| word.split_once('.'));
        let version = version.and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
        let version = version.ok_or("it has no .version")?;
        let target =
            word_after(".target").and_then(|word| word.strip_prefix("sm_")).ok_or("it has no .target sm_")?;
        let digits = target.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
        let is_exact = digits.len() < target.len();
        let target = digits.parse().map_err(|_| format!("its target is sm_{target}"))?;
        let entries = text.split(".entry").skip(1).map(entry).collect::<Result<_, _>>()?;
        Ok(Self { version, target, is_exact, entries })
    }
}

/// The text with spaces for comments.
fn without_comments(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('/') {
        let end = match rest.as_bytes().get(at + 1) {
            Some(b'/') => "\n",
            Some(b'*') => "*/",
            _ => {
                kept.push_str(&rest[..=at]);
                rest = &rest[at + 1..];
                continue;
            }
        };
        kept.push_str(&rest[..at]);
        kept.push(' ');
        rest = rest[at + 2..].split_once(end).map_or("", |(_, rest)| rest);
    }
    kept + rest
}

/// A kernel, from behind its `.entry`.
fn entry(text: &str) -> Result<Entry, String> {
    let head = text.find('{').ok_or("a kernel without a body")?;
    let (head, body) = text.split_at(head);
    let (name, parameters, directives) = match head.split_once('(') {
        Some((name, rest)) => {
            let (parameters, directives) =
                rest.split_once(')').ok_or("a list of parameters without an end")?;
            (name.trim(), parameters, directives)
        }
        None => {
            let name = head.split_whitespace().next().unwrap_or_default();
            (name, "", head)
        }
    };
    let declared = parameters.split(',').map(str::trim).filter(|parameter| !parameter.is_empty());
    let parameters = declared.map(|parameter| size(parameter, ".param")).collect::<Option<_>>();
    let parameters = parameters.ok_or_else(|| format!("the parameters of {name}"))?;
    let required_block = dimensions(directives, ".reqntid");
    let max_threads = dimensions(directives, ".maxntid").map(|block| block.iter().product());
    let body = &body[..end_of_block(body)];
    let shared =
        body.split([';', '{', '}']).map(str::trim).filter(|statement| statement.starts_with(".shared"));
    let static_shared = shared.filter_map(|statement| size(statement, ".shared")).sum();
    Ok(Entry { name: name.to_owned(), parameters, max_threads, required_block, static_shared })
}

/// The size of a declaration: `.param .align 8 .b8 name[40]`, `.param .u64 .ptr .global .align 1 name`.
fn size(declaration: &str, space: &str) -> Option<usize> {
    let words: Vec<&str> = declaration.strip_prefix(space)?.split_whitespace().collect();
    let element = words.iter().find_map(|word| {
        let kind = word.strip_prefix(['.'])?;
        let bits: usize =
            kind.trim_start_matches(|letter: char| letter.is_ascii_alphabetic()).parse().ok()?;
        let kind = kind.trim_end_matches(|letter: char| letter.is_ascii_digit());
        matches!(kind, "b" | "u" | "s" | "f").then_some(bits / 8)
    })?;
    let (_, name) = declaration.rsplit_once('.')?;
    let count = match name.split_once('[') {
        Some((_, count)) => count.split_once(']')?.0.trim().parse().ok()?,
        None => 1,
    };
    element.checked_mul(count)
}

/// `.maxntid 256, 1, 1`; dimensions that are left out are 1.
fn dimensions(directives: &str, name: &str) -> Option<[u32; 3]> {
    let (_, rest) = directives.split_once(name)?;
    let rest = rest.split('.').next()?;
    let mut block = [1; 3];
    for (dimension, text) in block.iter_mut().zip(rest.split(',')) {
        *dimension = text.split_whitespace().next()?.parse().ok()?;
    }
    Some(block)
}

/// Where a block that begins here ends.
fn end_of_block(text: &str) -> usize {
    let mut depth = 0;
    for (at, letter) in text.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' if depth == 1 => return at,
            '}' => depth -= 1,
            _ => (),
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "
        // Generated by a compiler: .target sm_10, .entry nothing
        .version 8.4
        .target sm_86
        .address_size 64
        .extern .shared .align 16 .b8 dynamic[];
        /* .entry
           nothing */ .file 1 of/a/path
        .visible .entry first(
            .param .u64 first_param_0,
            .param .u32 first_param_1,
            .param .align 8 .b8 first_param_2[40],
            .param .u64 .ptr .global .align 16 first_param_3,
            .param .f32 first_param_4
        )
        .maxntid 256, 1, 1
        .minnctapersm 2
        {
            .reg .pred %p<2>;
            .shared .align 16 .b8 tile[1024];
            .shared .f32 sum[2];
            { .reg .b32 %r1; }
            ld.shared.f32 %f1, [sum];
            ret;
        }
        .visible .entry second()
        .reqntid 32
        { ret; }
        .entry third { .shared .align 4 .u32 one; ret; }
        ";

    #[test]
    fn a_module_is_read() {
        let ptx = Ptx::parse(TEXT).unwrap();
        assert_eq!((ptx.version, ptx.target, ptx.is_exact), ((8, 4), 86, false));
        let names: Vec<_> = ptx.entries.iter().map(|entry| entry.name.as_str()).collect();
        assert_eq!(names, ["first", "second", "third"]);
        let [first, second, third] = ptx.entries.try_into().unwrap();
        assert_eq!(first.parameters, [8, 4, 40, 8, 4]);
        assert_eq!((first.max_threads, first.required_block, first.static_shared), (Some(256), None, 1032));
        assert_eq!((second.parameters.len(), second.required_block), (0, Some([32, 1, 1])));
        assert_eq!(third.static_shared, 4);
    }

    #[test]
    fn what_is_no_module_is_refused() {
        assert!(Ptx::parse("").is_err());
        assert!(Ptx::parse(".version 8.4").is_err());
        assert!(Ptx::parse(".version 8.4\n.target sm_x").is_err());
        assert!(Ptx::parse(".version 8.4\n.target sm_80\n.visible .entry a(.param .b8").is_err());
        assert!(Ptx::parse(".version 8.4\n.target sm_80\n.visible .entry a(.param .thing x) {}").is_err());
    }

    #[test]
    fn targets_of_one_device_only_are_known() {
        let ptx = Ptx::parse(".version 8.0\n.target sm_90a, debug\n").unwrap();
        assert_eq!((ptx.target, ptx.is_exact), (90, true));
    }
}
