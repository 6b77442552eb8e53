//! Milliseconds per step of a published variant with generated weights, at 1024 x 768 on the CPU.
//!
//! `cargo run --release -p sapiens-portable --example profile -- 0.3b [frames]`

use std::time::Instant;

use sapiens_portable::Step;

#[path = "../tests/common/mod.rs"]
mod common;

#[allow(clippy::print_stdout)]
fn main() -> Result<(), String> {
    let mut args = std::env::args().skip(1);
    let nick = args.next().unwrap_or("0.3b".into());
    let frames: usize = args.next().map_or(Ok(1), |n| n.parse()).map_err(|error| format!("frames: {error}"))?;
    let dims = common::variant(&nick).ok_or(format!("no variant {nick}"))?;
    let start = Instant::now();
    let network = common::network(&dims, 3);
    println!("{nick}, {} threads, weights {:.1} s", rayon::current_num_threads(), start.elapsed().as_secs_f64());
    let (height, width) = (1024, 768);
    for _ in 0..frames {
        let input = common::generated_input(height, width, 9);
        let mut steps = Vec::new();
        let (mut attention, mut ffn) = (0.0, 0.0);
        let start = Instant::now();
        let mut last = start;
        let logits = network.forward_with(input, height, width, &mut |step, _| {
            let now = Instant::now();
            let ms = (now - last).as_secs_f64() * 1e3;
            last = now;
            match step {
                Step::Attention(_) => attention += ms,
                Step::Block(_) => ffn += ms,
                _ => steps.push((step.to_string(), ms)),
            }
        });
        steps.push(("out".into(), last.elapsed().as_secs_f64() * 1e3));
        steps.insert(1, (format!("attention x {}", dims.layers), attention));
        steps.insert(2, (format!("ffn x {}", dims.layers), ffn));
        for (step, ms) in steps {
            println!("{step:16} {ms:9.1} ms");
        }
        println!("{:16} {:9.1} ms", "all", start.elapsed().as_secs_f64() * 1e3);
        println!("{} x {} x {}", logits.classes, logits.height, logits.width);
    }
    println!("peak {:.2} GB", common::peak_rss_gb());
    Ok(())
}
