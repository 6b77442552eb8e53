//! The networks' figures for people, and as tables for `docs/performance.md`.

use crate::network_times::{NetworkTimes, Times};

impl NetworkTimes {
    /// Everything that was measured, and a chart of the stream.
    pub fn print(&self) {
        let Self { network, precision, input, frame, .. } = self;
        anstream::println!(
            "\n{network}, {precision}, {} x {}, frames NV12 {} x {}",
            input[0],
            input[1],
            frame[0],
            frame[1]
        );
        if let Some(reason) = &self.not_run {
            anstream::println!("not run: {reason}");
        }
        if let Some(times) = &self.times {
            times.print();
        }
    }
}

impl Times {
    fn print(&self) {
        let Self { load_ms, first_frame_ms, stream_frame_ms, stream_frames, latency_ms, .. } = self;
        anstream::println!(
            "a frame in a stream {stream_frame_ms:.2} ms ({:.1} a second, {stream_frames} frames), alone {latency_ms:.2} ms",
            1e3 / stream_frame_ms
        );
        anstream::println!(
            "of that preprocess {:.2}, network {:.2} ({:.0} TFLOP/s, {} launches as one), postprocess {:.2} ms",
            self.preprocess_ms,
            self.network_ms,
            self.tflop_per_second,
            self.launches,
            self.postprocess_ms
        );
        anstream::println!(
            "load {load_ms:.0} ms, first frame {first_frame_ms:.0} ms, {:.0} MiB of the card's memory at most",
            self.peak_memory_mib
        );
        let all: f64 = self.stages.iter().map(|stage| stage.ms).sum();
        anstream::println!("{:<14}{:>12}{:>9}{:>10}", "launch by launch", "ms", "share", "TFLOP/s");
        for stage in &self.stages {
            let rate = match stage.tflop_per_second {
                0.0 => String::new(),
                rate => format!("{rate:.1}"),
            };
            let share = 100.0 * stage.ms / all;
            anstream::println!("{:<16}{:>10.3}{share:>7.0} %{rate:>10}", stage.stage, stage.ms);
        }
        anstream::println!("{:<16}{all:>10.3}", "all");
        let hidden =
            self.timeline.hidden_share.map_or("none".to_owned(), |share| format!("{:.0} %", 100.0 * share));
        anstream::println!(
            "u pixels come, # work, d labels go; of the copies' time {hidden} is hidden behind work"
        );
        self.timeline.chart().iter().for_each(|row| anstream::println!("{row}"));
    }
}

/// Markdown: a row for each network and precision, and what the stages took.
pub fn tables(machine: &str, networks: &[NetworkTimes]) -> String {
    let mut text = format!("{machine}; generated weights, `make device-check`:\n\n");
    text += "| | precision | network, ms | frame in a stream, ms | frame alone, ms | TFLOP/s | launches | memory, MiB | copies hidden | load with made weights, s |\n";
    text += "|---|---|---|---|---|---|---|---|---|---|\n";
    for NetworkTimes { network, precision, not_run, times, .. } in networks {
        let figures = match (times, not_run) {
            (Some(times), _) => times.row(),
            (None, reason) => format!("not run: {} | | | | | | | ", reason.as_deref().unwrap_or_default()),
        };
        text += &format!("| {network} | {precision} | {figures} |\n");
    }
    let measured: Vec<_> =
        networks.iter().filter_map(|network| Some((network, network.times.as_ref()?))).collect();
    if measured.is_empty() {
        return text;
    }
    text += "\nLaunch by launch, ms:\n\n|";
    for (network, _) in &measured {
        text += &format!(" | {}, {}", network.network, network.precision);
    }
    text += &format!(" |\n|{}\n", "---|".repeat(measured.len() + 1));
    let all = sapiens_model::Stage::ALL.map(sapiens_model::Stage::name);
    for stage in all {
        text += &format!("| {stage} |");
        for (_, times) in &measured {
            let found = times.stages.iter().find(|of| of.stage == stage);
            text += &found.map_or(" |".to_owned(), |of| format!(" {:.3} |", of.ms));
        }
        text.push('\n');
    }
    text
}

impl Times {
    fn row(&self) -> String {
        let hidden =
            self.timeline.hidden_share.map_or(String::new(), |share| format!("{:.0} %", 100.0 * share));
        format!(
            "{:.2} | {:.2} | {:.2} | {:.0} | {} | {:.0} | {hidden} | {:.1}",
            self.network_ms,
            self.stream_frame_ms,
            self.latency_ms,
            self.tflop_per_second,
            self.launches,
            self.peak_memory_mib,
            self.load_ms / 1e3
        )
    }
}
