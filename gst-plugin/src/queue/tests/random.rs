//! The machine alone, driven by thousands of random schedules, against what must hold whatever comes.

use std::collections::{BTreeMap, VecDeque};

use super::*;

/// Random numbers by xorshift; the seed tells a schedule that fails.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 33) % bound
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// What a committed frame is known by.
struct Known {
    plan: Plan,
    deadline: Option<Duration>,
}

/// The world around the machine.
struct World {
    state: State<Numbers>,
    random: Random,
    slots: usize,
    live: bool,
    settings: Settings,
    now: Duration,
    /// Numbers payloads in the order in which they are queued.
    next: u32,
    /// Queued and not seen again yet.
    queued: VecDeque<Item>,
    known: BTreeMap<u32, Known>,
    /// Frames in flight, and whether a flush has come since.
    flights: VecDeque<(u32, bool)>,
    /// The first frame after the last flush: no labels are older.
    since: u32,
    /// What labels the last frame left with.
    last_labels: Option<u32>,
    failed: Vec<u32>,
    seen: u64,
    flushed: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let slots = 1 + random.below(4) as usize;
        let settings = Settings {
            interval: 1 + random.below(4) as u32,
            late: [Late::Reuse, Late::Drop, Late::Wait][random.below(3) as usize],
        };
        Self {
            state: State::new(slots, settings),
            live: random.chance(60),
            random,
            slots,
            settings,
            now: Duration::ZERO,
            next: 0,
            queued: VecDeque::new(),
            known: BTreeMap::new(),
            flights: VecDeque::new(),
            since: 0,
            last_labels: None,
            failed: Vec::new(),
            seen: 0,
            flushed: 0,
        }
    }

    fn step(&mut self) {
        match self.random.below(100) {
            0..35 => self.frame(),
            35..40 => self.event(),
            40..65 => self.result(),
            65..90 => self.take(),
            90..96 => self.now += millis(self.random.below(25)),
            96..97 => self.flush(),
            97..98 => {
                let earliest =
                    self.random.chance(50).then(|| millis(10) * (self.next + self.random.below(4) as u32));
                self.state.set_earliest(earliest);
            }
            98..99 => {
                self.settings.interval = 1 + self.random.below(4) as u32;
                self.state.configure(self.settings);
            }
            _ => self.refuse(),
        }
        let depth = self.queued.iter().filter(|item| matches!(item, Frame(_))).count();
        assert_eq!(self.state.stats().depth, depth);
        assert!(depth <= self.slots + 2, "the queue's bound");
        assert_eq!(self.state.stats().in_flight, self.flights.len(), "slots are conserved");
        assert_eq!(self.state.is_idle(), self.flights.is_empty());
    }

    fn frame(&mut self) {
        let frame = self.next;
        let times = if self.live { live(frame) } else { times(frame) };
        let place = match self.state.admit(times) {
            Answer::Place(place) => place,
            Answer::Drop(_) => {
                assert!(self.settings.late == Late::Drop);
                self.next += 1;
                return;
            }
            Answer::MustWait => {
                let full = self.state.stats().depth == self.slots + 2;
                let patient = !self.live || self.settings.late == Late::Wait;
                assert!(full || patient && self.flights.len() == self.slots, "it waits for nothing");
                return;
            }
            Answer::Closed(closed) => panic!("{closed:?}"),
        };
        if self.random.chance(3) {
            return self.state.cancel();
        }
        self.next += 1;
        let plan = Plan::from(&place);
        let infer = plan == Plan::Infer;
        assert!(!infer || self.flights.len() < self.slots);
        let flush = self.random.chance(1);
        if flush {
            self.flush_queued();
        }
        if infer {
            self.flights.push_back((frame, flush));
        }
        match self.state.commit(place, Frame(frame)) {
            Ok(()) => {
                assert!(!flush);
                self.known.insert(frame, Known { plan, deadline: times.deadline });
                self.queued.push_back(Frame(frame));
            }
            Err(refused) => {
                assert!(flush && refused.payload == Frame(frame));
                self.flushed += 1;
                self.state.stop_flush();
            }
        }
    }

    fn event(&mut self) {
        assert!(self.state.pass(Event(self.next)).is_ok());
        self.queued.push_back(Event(self.next));
        self.next += 1;
    }

    fn result(&mut self) {
        assert_eq!(self.state.begin_receive(), !self.flights.is_empty());
        let Some((frame, flushed)) = self.flights.pop_front() else { return };
        if self.random.chance(4) {
            self.failed.push(frame);
            self.state.complete(Err("no power"));
        } else {
            let spent = self.state.complete(Ok(frame));
            assert!(!flushed || spent == Some(Ok(frame)), "labels from before a flush are handed back");
        }
    }

    fn take(&mut self) {
        let out = match self.state.take(self.now) {
            Head::Ready(next) => Out::from(next),
            Head::Wait(until) => Wait(until),
        };
        let head = self.queued.front().copied();
        let in_flight = |frame: u32| self.flights.iter().any(|&(flight, _)| flight == frame);
        let left = match out {
            Failed(None, _) => return,
            Wait(until) => {
                let Some(Frame(frame)) = head else { return assert_eq!(head, None, "an event never waits") };
                let deadline = self.known[&frame].deadline.filter(|_| self.settings.late != Late::Wait);
                assert_eq!(until, deadline);
                assert!(deadline.is_none_or(|deadline| deadline > self.now), "it's time");
                return assert!(
                    self.flights.iter().any(|&(flight, _)| flight <= frame),
                    "it waits for nothing"
                );
            }
            Pass(item) => item,
            Fresh(frame) => {
                assert!(self.known[&frame].plan == Plan::Infer && !in_flight(frame));
                self.leave_with(Some(frame));
                Frame(frame)
            }
            Reused(frame, labels, why) => {
                let Known { plan, deadline } = self.known[&frame];
                assert!(labels.is_none_or(|labels| labels < frame), "{frame} has labels of {labels:?}");
                if why == Why::Late {
                    assert!(plan == Plan::Infer && in_flight(frame) && self.settings.late == Late::Reuse);
                    assert!(deadline.is_some_and(|deadline| deadline <= self.now), "too early");
                } else {
                    assert_eq!(plan, Plan::Reuse(why));
                }
                if !self.live {
                    let inferred = |(&frame, known): (&u32, &Known)| {
                        (known.plan == Plan::Infer && !self.failed.contains(&frame)).then_some(frame)
                    };
                    let before = self.known.range(..frame).rev().find_map(inferred);
                    let before = before.filter(|&before| before >= self.since);
                    // After downstream took no more, the labels of what it didn't take are lost.
                    assert!(
                        labels == before || self.last_labels == labels,
                        "{frame} has {labels:?}, not {before:?}"
                    );
                }
                self.leave_with(labels);
                Frame(frame)
            }
            Dropped(frame) => {
                let deadline = self.known[&frame].deadline.unwrap();
                assert!(self.settings.late == Late::Drop && deadline <= self.now && in_flight(frame));
                Frame(frame)
            }
            Failed(Some(frame), _) => {
                assert!(self.failed.contains(&frame));
                Frame(frame)
            }
            Out::Closed(closed) => panic!("{closed:?}"),
        };
        assert_eq!(Some(left), head, "order");
        self.queued.pop_front();
        self.seen += u64::from(matches!(left, Frame(_)));
    }

    /// Labels never grow older from one frame to the next, and are never from before a flush.
    fn leave_with(&mut self, labels: Option<u32>) {
        assert!(labels >= self.last_labels && labels.is_none_or(|labels| labels >= self.since));
        self.last_labels = labels;
    }

    fn check_drained(&mut self, drained: Drained<Numbers>) {
        let payloads: VecDeque<Item> = drained.into_payloads().collect();
        assert_eq!(payloads, self.queued, "nothing is lost or doubled");
        self.flushed += payloads.iter().filter(|item| matches!(item, Frame(_))).count() as u64;
        self.queued.clear();
        self.flights.iter_mut().for_each(|(_, flushed)| *flushed = true);
    }

    fn flush_queued(&mut self) {
        let drained = self.state.start_flush();
        self.check_drained(drained);
        self.since = self.next;
        self.last_labels = None;
    }

    fn flush(&mut self) {
        self.flush_queued();
        self.state.stop_flush();
    }

    fn refuse(&mut self) {
        let drained = self.state.refuse("not linked");
        self.check_drained(drained);
        assert!(matches!(self.state.admit(times(0)), Answer::Closed(Closed::Flow("not linked"))));
        self.state.accept();
    }

    /// The end of the stream.
    fn finish(mut self) -> Stats {
        while !self.flights.is_empty() {
            self.result();
            self.take();
        }
        self.now += Duration::from_secs(3600);
        while !self.queued.is_empty() {
            self.take();
        }
        let stats = self.state.stats();
        assert_eq!(stats.depth, 0);
        assert_eq!(stats.frames, stats.fresh + stats.reused + stats.dropped + stats.failed + stats.flushed);
        assert_eq!(stats.flushed, self.flushed);
        stats
    }
}

#[test]
fn random_schedules_keep_order_bounds_and_slots_and_lose_nothing() {
    let mut all = Stats::default();
    for seed in 0..20_000 {
        let stats = std::panic::catch_unwind(|| {
            let mut world = World::new(seed);
            (0..150).for_each(|_| world.step());
            world.finish()
        });
        let Ok(stats) = stats else { panic!("the schedule of seed {seed} fails") };
        all.fresh += stats.fresh;
        all.reused += stats.reused;
        all.dropped += stats.dropped;
        all.failed += stats.failed;
        all.flushed += stats.flushed;
        all.max_depth = all.max_depth.max(stats.max_depth);
    }
    // The schedules go everywhere.
    let Stats { fresh, reused, dropped, failed, flushed, max_depth, .. } = all;
    assert!([fresh, reused, dropped, failed, flushed].iter().all(|&frames| frames > 1000), "{all:?}");
    assert_eq!(max_depth, 6);
}
