//! How the tool speaks: errors, warnings and the compiler's own words, on stderr.

use std::fmt::{Display, Write};

use clap::builder::styling::AnsiColor;

/// Says what went wrong.
pub(crate) fn complain(error: &dyn Display) {
    anstream::eprintln!("{0}error:{0:#} {error}", AnsiColor::Red.on_default().bold());
}

/// Says what isn't as one might think.
pub(crate) fn warn(what: &dyn Display) {
    anstream::eprintln!("{0}warning:{0:#} {what}", AnsiColor::Yellow.on_default().bold());
}

/// What the compiler says while files are compiled for several targets, most of it for all of them alike.
#[derive(Default)]
pub(crate) struct CompilerTalk {
    said: Vec<(String, String, Vec<&'static str>)>,
}

impl CompilerTalk {
    /// Notes what was said about `file` for `target`, if anything was.
    pub(crate) fn note(&mut self, file: &str, target: &'static str, text: &str) {
        let text = text.trim();
        if text.is_empty() {
            return;
        }
        match self.said.iter_mut().find(|(of, said, _)| of == file && said == text) {
            Some((.., targets)) => targets.push(target),
            None => self.said.push((file.to_owned(), text.to_owned(), vec![target])),
        }
    }

    /// Says it on stderr, the same words once.
    pub(crate) fn print(&self) {
        for (file, text, targets) in &self.said {
            anstream::eprintln!("{file} ({}):\n{text}", targets.join(", "));
        }
    }
}

/// "1 file", "2 files".
pub(crate) fn count(number: usize, what: &str) -> String {
    let mut text = format!("{number} {what}");
    if number != 1 {
        let _ = text.write_char('s');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_words_are_said_once() {
        let mut talk = CompilerTalk::default();
        talk.note("a.cu", "sm_75", "a warning\n");
        talk.note("a.cu", "sm_80", " \n");
        talk.note("a.cu", "sm_90", "a warning");
        talk.note("b.cu", "sm_90", "a warning");
        assert_eq!(
            talk.said,
            [
                ("a.cu".to_owned(), "a warning".to_owned(), vec!["sm_75", "sm_90"]),
                ("b.cu".to_owned(), "a warning".to_owned(), vec!["sm_90"]),
            ]
        );
    }

    #[test]
    fn plurals() {
        assert_eq!([count(0, "file"), count(1, "file"), count(2, "file")], ["0 files", "1 file", "2 files"]);
    }
}
