//! How far a download is: a bar on a terminal, a line every tenth elsewhere. All on standard error.

use indicatif::{HumanBytes, ProgressBar, ProgressStyle};

pub(super) struct Progress {
    bar: ProgressBar,
    name: String,
    size: u64,
    /// Of ten, the last that was told.
    tenths: u64,
}

impl Progress {
    /// A download of `size` bytes of which `start` are there.
    pub fn new(name: &str, size: u64, start: u64) -> Self {
        let style = ProgressStyle::with_template(
            "{prefix} [{bar:30}] {bytes}/{total_bytes}, {bytes_per_sec}, {eta} left",
        );
        let bar = ProgressBar::new(size)
            .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
            .with_prefix(name.to_owned())
            .with_position(start);
        // Speed and time left are of what is fetched now.
        bar.reset_eta();
        let progress = Self { bar, name: name.to_owned(), size, tenths: tenths(start, size) };
        if progress.bar.is_hidden() && start == 0 {
            progress.say(&format!("fetching {}", HumanBytes(size)));
        }
        progress
    }

    pub fn at(&mut self, position: u64) {
        self.bar.set_position(position);
        let now = tenths(position, self.size);
        // A download that starts over is told nothing twice.
        if self.bar.is_hidden() && now > self.tenths {
            self.tenths = now;
            self.say(&format!("{} % of {}", now * 10, HumanBytes(self.size)));
        }
    }

    /// A line about this download, above the bar if there is one.
    pub fn say(&self, line: &str) {
        self.bar.suspend(|| anstream::eprintln!("{}: {line}", self.name));
    }

    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

fn tenths(position: u64, size: u64) -> u64 {
    // Without overflow: a hub may claim any size.
    (u128::from(position) * 10)
        .checked_div(u128::from(size))
        .and_then(|tenths| u64::try_from(tenths).ok())
        .unwrap_or(0)
}
