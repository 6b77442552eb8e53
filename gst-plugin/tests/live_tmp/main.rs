#[path = "../element/common.rs"]
mod common;
#[path = "../element/latency.rs"]
mod latency;
#[path = "../element/live.rs"]
mod live;
#[path = "../element/live_rig.rs"]
mod live_rig;
#[path = "../element/mask.rs"]
mod mask;
