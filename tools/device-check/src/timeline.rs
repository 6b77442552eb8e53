//! When the frames of a stream came, were worked on and went, and how much of their copying took no time of its own.

use std::ops::Range;
use std::time::Duration;

use sapiens_model::{DeviceSpans, Span};
use serde::Serialize;

/// Characters of a chart's row.
const WIDTH: usize = 96;

/// A few frames, one after the other. Slots take turns.
#[derive(Debug, Serialize)]
pub struct Timeline {
    /// Frames in flight at once.
    pub slots: usize,
    /// Some from the middle, in their order.
    pub frames: Vec<FrameTimes>,
    /// Of the time that all frames' copies took, the part during which another frame was worked on, 0 to 1; none if there was no copy.
    pub hidden_share: Option<f64>,
}

/// Begin and end in milliseconds, from the begin of the first that is shown.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct FrameTimes {
    /// Pixels to the device.
    pub upload_ms: [f64; 2],
    /// From pixels to labels.
    pub compute_ms: [f64; 2],
    /// Labels from the device.
    pub download_ms: [f64; 2],
}

impl Timeline {
    /// Of a stream's frames in the order in which they were submitted, of which some are shown.
    ///
    /// # Panics
    /// If there are no such frames.
    pub fn new(slots: usize, spans: &[DeviceSpans], shown: Range<usize>) -> Self {
        let all = times(spans, Duration::ZERO);
        let shown = &spans[shown];
        let origin = shown.iter().map(|spans| spans.upload.begin).min().unwrap_or_default();
        Self { slots, hidden_share: hidden_share(&all), frames: times(shown, origin) }
    }

    /// A row for each slot: `u` where pixels come, `#` where a frame is worked on, `d` where labels go.
    pub fn chart(&self) -> Vec<String> {
        let end = self.frames.iter().map(|frame| frame.download_ms[1]).fold(0.0, f64::max);
        let column = |ms: f64| ((ms / end * WIDTH as f64) as usize).min(WIDTH - 1);
        let rows = (0..self.slots).map(|slot| {
            let mut row = vec![b'.'; WIDTH];
            for frame in self.frames.iter().skip(slot).step_by(self.slots) {
                // Copies last: they may be shorter than a character.
                for (mark, [begin, end]) in
                    [(b'#', frame.compute_ms), (b'u', frame.upload_ms), (b'd', frame.download_ms)]
                {
                    row[column(begin)..=column(end)].fill(mark);
                }
            }
            format!("slot {slot}  {}", String::from_utf8_lossy(&row))
        });
        rows.chain([format!("        0{:>width$}", format!("{end:.2} ms"), width = WIDTH - 1)]).collect()
    }
}

fn times(spans: &[DeviceSpans], origin: Duration) -> Vec<FrameTimes> {
    let ms = |span: Span| [span.begin, span.end].map(|at| at.saturating_sub(origin).as_secs_f64() * 1e3);
    let times = spans.iter().map(|spans| FrameTimes {
        upload_ms: ms(spans.upload),
        compute_ms: ms(spans.compute),
        download_ms: ms(spans.download),
    });
    times.collect()
}

/// A frame's own work doesn't overlap its copies, and no two frames are worked on at once.
fn hidden_share(frames: &[FrameTimes]) -> Option<f64> {
    let (mut all, mut hidden) = (0.0, 0.0);
    for [begin, end] in frames.iter().flat_map(|frame| [frame.upload_ms, frame.download_ms]) {
        all += end - begin;
        let overlap = |of: &FrameTimes| (end.min(of.compute_ms[1]) - begin.max(of.compute_ms[0])).max(0.0);
        hidden += frames.iter().map(overlap).sum::<f64>();
    }
    (all > 0.0).then(|| hidden / all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(begin: u64, end: u64) -> Span {
        Span { begin: Duration::from_millis(begin), end: Duration::from_millis(end) }
    }

    fn two_frames() -> Timeline {
        let first = DeviceSpans { upload: span(100, 110), compute: span(110, 150), download: span(150, 154) };
        let second =
            DeviceSpans { upload: span(110, 120), compute: span(150, 190), download: span(190, 196) };
        Timeline::new(2, &[first, second], 0..2)
    }

    #[test]
    fn copies_beside_other_frames_are_hidden() {
        let timeline = two_frames();
        assert_eq!(timeline.frames[1].compute_ms, [50.0, 90.0]);
        // Of 10, 4, 10 and 6 the second and the third.
        let share = timeline.hidden_share.unwrap_or_default();
        assert!((share - 14.0 / 30.0).abs() < 1e-9, "{share}");
        let one = Timeline::new(2, &[DeviceSpans::default(); 3], 1..2);
        assert_eq!((one.frames.len(), one.hidden_share), (1, None));
    }

    #[test]
    fn a_chart_has_every_part() {
        let chart = two_frames().chart();
        assert_eq!(chart.len(), 3);
        assert!(chart[0].starts_with("slot 0  uuuuuuuuuu") && chart[0].contains("#d"), "{chart:?}");
        assert!(chart[1].ends_with("##ddd") || chart[1].ends_with("#dddddd"), "{chart:?}");
        assert!(chart[2].ends_with("96.00 ms"), "{chart:?}");
        assert!(chart[..2].iter().all(|row| row.len() == 8 + WIDTH));
        assert_eq!(Timeline::new(2, &[], 0..0).chart().len(), 3);
    }
}
