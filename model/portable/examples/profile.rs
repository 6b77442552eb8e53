//! Milliseconds per step of a published variant with generated weights, at 1024 x 768 on the CPU.
//!
//! `cargo run --release -p sapiens-portable --example profile -- 0.3b [frames]`

use std::ops::{AddAssign, Sub};
use std::time::{Instant, SystemTime};

use sapiens_portable::Step;

#[path = "../tests/common/mod.rs"]
mod common;

/// Milliseconds by the clock and of the process's threads together: on a machine that others use, the second tells
/// more. It counts in hundredths of a second.
#[derive(Clone, Copy, Default)]
struct Times {
    wall: f64,
    cpu: f64,
}

impl Times {
    fn now() -> Self {
        let wall = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_secs_f64() * 1e3;
        let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
        // User and system time, behind the process's name in parentheses.
        let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace().skip(11).take(2);
        Self { wall, cpu: fields.filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() * 10.0 }
    }
}

impl Sub for Times {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self { wall: self.wall - other.wall, cpu: self.cpu - other.cpu }
    }
}

impl AddAssign for Times {
    fn add_assign(&mut self, other: Self) {
        self.wall += other.wall;
        self.cpu += other.cpu;
    }
}

fn main() -> Result<(), String> {
    let mut args = std::env::args().skip(1);
    let nick = args.next().unwrap_or("0.3b".into());
    let frames: usize =
        args.next().map_or(Ok(1), |n| n.parse()).map_err(|error| format!("frames: {error}"))?;
    let dims = common::variant(&nick).ok_or(format!("no variant {nick}"))?;
    let start = Instant::now();
    let network = common::network(&dims, 3);
    println!(
        "{nick}, {} threads, weights {:.1} s",
        rayon::current_num_threads(),
        start.elapsed().as_secs_f64()
    );
    let (height, width) = (1024, 768);
    for _ in 0..frames {
        let input = common::generated_input(height, width, 9);
        let mut steps = Vec::new();
        let (mut attention, mut ffn) = (Times::default(), Times::default());
        let start = Times::now();
        let mut last = start;
        let logits = network.forward_with(input, height, width, &mut |step, _| {
            let now = Times::now();
            let spent = now - last;
            last = now;
            match step {
                Step::Attention(_) => attention += spent,
                Step::Block(_) => ffn += spent,
                _ => steps.push((step.to_string(), spent)),
            }
        });
        steps.push(("out".into(), Times::now() - last));
        steps.insert(1, (format!("attention x {}", dims.layers), attention));
        steps.insert(2, (format!("ffn x {}", dims.layers), ffn));
        steps.push(("all".into(), Times::now() - start));
        for (step, Times { wall, cpu }) in steps {
            println!("{step:16} {wall:9.1} ms, {cpu:9.0} ms of all threads");
        }
        println!("{} x {} x {}", logits.classes, logits.height, logits.width);
    }
    println!("peak {:.2} GB", common::peak_rss_gb());
    Ok(())
}
