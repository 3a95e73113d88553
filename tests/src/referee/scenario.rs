//! Everything about one game that chance decides.

use std::time::{Duration, Instant};

use pillion_bpf::{Level, LossRule, Options, Reaction, ThinTest};
use rand::{Rng, RngExt};

use super::receiver::Manner;
use crate::{Bundler, Checksums, Ip, Setup};

#[derive(Debug, Clone)]
pub struct Scenario {
    pub setup: Setup,
    pub options: Options,
    pub congestion: &'static str,
    pub sysctls: Vec<(&'static str, u8)>,
    pub forward: Direction,
    pub backward: Direction,
    /// An ACK filter on the way back passes every n-th ACK, and each that no newer one follows.
    pub filter: usize,
    pub manner: Manner,
    /// What the application and others do, and how long after the beginning.
    pub acts: Vec<(Duration, Act)>,
}

#[derive(Debug, Clone, Copy)]
pub enum Act {
    /// The application writes so many bytes.
    Write(u32, How),
    /// The peer sends data of its own, with an acknowledgement.
    PeerSends(usize),
    /// The peer has room for so many bytes.
    Window(u16),
    /// Packets with more payload vanish from now on.
    Largest(usize),
    /// The device's queue refuses data, or takes it again.
    Refuse(bool),
    /// The rules change.
    Rules(Options),
    /// All bundlers end; another one begins, and takes the connection in.
    Exchange(Options),
    /// The application switches bundling off, or on again.
    Switch(bool),
    /// The device takes packets of so many bytes.
    Mtu(u16),
    /// The application holds back what does not fill a segment, or does so no more.
    Cork(bool),
    /// The application takes another congestion control.
    Congestion(&'static str),
}

#[derive(Debug, Clone, Copy)]
pub enum How {
    Plain,
    More,
    Urgent,
    EndOfRecord,
    OwnPages,
    File,
}

const MS: Duration = Duration::from_millis(1);

fn one_of<T: Copy>(random: &mut impl Rng, all: &[T]) -> T {
    all[random.random_range(0..all.len())]
}

fn options(random: &mut impl Rng, loss_rule: LossRule) -> Options {
    let itt_min = one_of(random, &[1, 10]) * MS;
    let limit = random.random_range(1..6);
    Options {
        thin: one_of(
            random,
            &[
                ThinTest::Always,
                ThinTest::Always,
                ThinTest::Dpifl { itt_min },
                ThinTest::Spifl { limit },
            ],
        ),
        max_packets: Some(one_of(random, &[0, 1, 1, 1, 2, 5])),
        max_bytes: one_of(random, &[0, 0, 0, 450, 1000]),
        level: one_of(random, &[Level::Fixed, Level::Fixed, Level::Adaptive]),
        reaction: one_of(
            random,
            &[
                Reaction::Cwr,
                Reaction::Cwr,
                Reaction::TfrcSp,
                Reaction::None,
            ],
        ),
        loss_rule,
        published: random.random_bool(0.2),
        ..Options::default()
    }
}

fn setup(random: &mut impl Rng) -> Setup {
    let checksums = one_of(
        random,
        &[Checksums::Kernel, Checksums::Device, Checksums::Bridge],
    );
    let sack = random.random_bool(0.95);
    let ip = one_of(random, &[Ip::V4, Ip::V4, Ip::V6, Ip::Mapped]);
    Setup {
        ip,
        // Near the wrap, half of the time.
        isn: Some(match random.random() {
            true => random.random(),
            false => u32::MAX - random.random_range(0..20_000),
        }),
        // IPv6 wants an MTU of 1,280 bytes.
        mss: one_of(
            random,
            &[if ip == Ip::V6 { 1220 } else { 536 }, 1460, 1460, 8960],
        ),
        timestamps: random.random(),
        sack,
        checksums,
        on_bridge: checksums == Checksums::Bridge,
        rto_min: 200 * MS,
        nodelay: random.random_bool(0.9),
        initial_window: 10,
        rtt: 20 * MS,
        ..Setup::default()
    }
}

fn direction(random: &mut impl Rng, most: f64) -> Direction {
    let good = one_of(random, &[0.0, 0.0, 0.02, 0.1, 0.2]);
    let bad = one_of(random, &[0.3, 0.8]);
    let bursts = random.random_bool(0.3);
    Direction {
        loss: [f64::min(good, most), f64::min(bad, most)],
        changes: if bursts { [0.02, 0.3] } else { [0.0, 1.0] },
        doubles: one_of(random, &[0.0, 0.0, 0.01, 0.05]),
        delay: one_of(random, &[0, 1, 10, 40, 150]) * MS,
        jitter: one_of(random, &[0, 0, 0, 5, 40]) * MS,
        largest: usize::MAX,
        is_bad: false,
    }
}

fn how(random: &mut impl Rng) -> How {
    let common = [How::Plain; 12];
    let rare = [
        How::More,
        How::Urgent,
        How::EndOfRecord,
        How::OwnPages,
        How::File,
    ];
    one_of(random, &[&common[..], &rare].concat())
}

fn acts(random: &mut impl Rng, loss_rule: LossRule) -> Vec<(Duration, Act)> {
    let mut acts = Vec::new();
    let mut at = Duration::ZERO;
    let itt = one_of(random, &[2, 10, 30, 100]);
    let usual = one_of(random, &[20, 120, 400, 448, 700]);
    let large = one_of(random, &[0.0, 0.0, 0.05]);
    let pauses = one_of(random, &[0.0, 0.0, 0.05]);
    for _ in 0..random.random_range(20..150) {
        at += random.random_range(0..=2 * itt) * MS;
        if random.random_bool(pauses) {
            at += random.random_range(200..4000) * MS;
        }
        let bytes = match random.random_range(0..10) {
            0 => random.random_range(1..1500),
            _ if random.random_bool(large) => random.random_range(1500..20_000),
            _ => usual,
        };
        acts.push((at, Act::Write(bytes, how(random))));
    }
    let end = at;
    disturb(random, (0.3, 20), end, &mut acts, |random| {
        Act::PeerSends(below(random, 300))
    });
    disturb(random, (0.15, 4), end, &mut acts, |random| {
        Act::Window(below(random, 30_000) as u16)
    });
    disturb(random, (0.1, 2), end, &mut acts, |random| {
        Act::Largest(300 + below(random, 1200))
    });
    disturb(random, (0.15, 2), end, &mut acts, |random| {
        Act::Rules(options(random, loss_rule))
    });
    disturb(random, (0.15, 2), end, &mut acts, |random| {
        Act::Exchange(options(random, loss_rule))
    });
    disturb(random, (0.5, 6), end, &mut acts, |random| {
        Act::Switch(random.random())
    });
    disturb(random, (0.3, 4), end, &mut acts, |random| {
        Act::Mtu(1280 + below(random, 300) as u16)
    });
    disturb(random, (0.2, 6), end, &mut acts, |random| {
        Act::Cork(random.random())
    });
    acts.push((end, Act::Cork(false)));
    disturb(random, (0.15, 3), end, &mut acts, |random| {
        Act::Congestion(one_of(random, &["reno", "cubic"]))
    });
    if random.random_bool(0.15) {
        let from = end.mul_f64(random.random());
        acts.push((from, Act::Refuse(true)));
        acts.push((from + below(random, 300) as u32 * MS, Act::Refuse(false)));
    }
    // Whatever was changed, in the end the peer has room.
    acts.push((end, Act::Window(u16::MAX)));
    acts.sort_by_key(|(at, _)| *at);
    acts
}

fn below(random: &mut impl Rng, limit: usize) -> usize {
    random.random_range(0..limit)
}

/// Adds, in a share of the games, some acts of one kind, at any time.
fn disturb<R: Rng>(
    random: &mut R,
    (share, most): (f64, u32),
    end: Duration,
    acts: &mut Vec<(Duration, Act)>,
    make: impl Fn(&mut R) -> Act,
) {
    if !random.random_bool(share) {
        return;
    }
    for _ in 0..random.random_range(1..=most) {
        let at = end.mul_f64(random.random());
        acts.push((at, make(random)));
    }
}

impl Scenario {
    pub fn draw(random: &mut impl Rng) -> Self {
        let setup = setup(random);
        let reports = random.random_bool(0.8);
        let loss_rule = match (setup.sack && reports, random.random_range(0..4)) {
            (true, 0) => LossRule::Auto,
            (true, _) => LossRule::Dsack,
            (false, 0) => LossRule::Ack,
            (false, _) => LossRule::Auto,
        };
        let options = Options {
            without_sack: !setup.sack && random.random(),
            retransmissions: random.random_bool(0.15),
            ..options(random, loss_rule)
        };
        let bundlers = vec![Bundler::with(options)];
        Self {
            setup: Setup { bundlers, ..setup },
            options,
            congestion: one_of(random, &["reno", "cubic"]),
            sysctls: vec![
                ("tcp_early_retrans", one_of(random, &[0, 3])),
                (
                    "tcp_retrans_collapse",
                    if options.retransmissions {
                        0
                    } else {
                        one_of(random, &[0, 1])
                    },
                ),
                ("tcp_recovery", one_of(random, &[1, 1, 0, 2, 5, 7])),
                ("tcp_reordering", one_of(random, &[3, 3, 1])),
                ("tcp_thin_linear_timeouts", one_of(random, &[0, 1])),
                ("tcp_autocorking", one_of(random, &[1, 0])),
                ("tcp_slow_start_after_idle", one_of(random, &[1, 0])),
                ("tcp_min_tso_segs", one_of(random, &[2, 1])),
                ("tcp_frto", one_of(random, &[2, 2, 0])),
            ],
            forward: direction(random, 0.8),
            backward: direction(random, 0.5),
            filter: one_of(random, &[1, 1, 1, 1, 5, 20]),
            manner: Manner {
                sack: true,
                reports,
                every: one_of(random, &[1, 1, 2, 2, 4]),
                delay: one_of(random, &[1, 40, 200]) * MS,
                reneges: one_of(random, &[0.0, 0.0, 0.0, 0.01]),
            },
            acts: acts(random, loss_rule),
        }
        .consistent()
    }

    /// Payload of the smallest segment that has as much as fits: with all options.
    pub fn full_size(&self) -> u32 {
        u32::from(self.setup.mss) - 12
    }

    /// Bytes of the smallest segment that is full-sized at some time.
    pub fn least_full_size(&self) -> u32 {
        let mtus = self.acts.iter().filter_map(|(_, act)| match act {
            Act::Mtu(bytes) => Some(u32::from(*bytes) - 72),
            _ => None,
        });
        mtus.fold(self.full_size(), u32::min)
    }

    /// True if some writes do not fit into a segment.
    pub fn has_large_writes(&self) -> bool {
        let full = self.full_size();
        let large = |act: &Act| match act {
            Act::Write(bytes, _) => *bytes > full,
            Act::Mtu(_) | Act::Cork(true) => true,
            _ => false,
        };
        self.acts.iter().any(|(_, act)| large(act))
    }

    /// True if TCP needs about as long for the scenario each time: chance alone does not make it
    /// back off to minutes.
    pub fn is_steady(&self) -> bool {
        let loss = [&self.forward, &self.backward].map(|direction| {
            let bursts = direction.changes[0] > 0.0;
            direction.loss[0] + if bursts { direction.loss[1] } else { 0.0 }
        });
        // A filter leaves one ACK of many: without RTT samples, the time-out stays backed off.
        let most = if self.filter > 1 { 0.02 } else { 0.15 };
        loss.iter().sum::<f64>() <= most
    }

    fn consistent(mut self) -> Self {
        self.manner.sack = self.setup.sack;
        let largest = |(_, act): &(Duration, Act)| matches!(act, Act::Largest(_));
        if self.acts.iter().any(largest) {
            // Plain TCP must get through.
            self.sysctls.push(("tcp_mtu_probing", 1));
        }
        if self.setup.on_bridge {
            // A bridge does not tell TCP what its port refuses.
            self.acts.retain(|(_, act)| !matches!(act, Act::Refuse(_)));
        }
        self
    }

    /// The scenario without pillion.
    pub fn plain(&self) -> Self {
        let mut plain = self.clone();
        plain.setup.bundlers.clear();
        plain
            .acts
            .retain(|(_, act)| !matches!(act, Act::Rules(_) | Act::Exchange(_) | Act::Switch(_)));
        plain
    }
}

#[derive(Debug, Clone)]
pub struct Direction {
    /// Share of the packets that are lost on a good path, and on a bad one.
    pub loss: [f64; 2],
    /// Probability per packet that the path changes: from good to bad, and back.
    pub changes: [f64; 2],
    /// Share of the packets that come twice.
    pub doubles: f64,
    pub delay: Duration,
    /// By how much longer a packet may take at most; the next one may overtake it.
    pub jitter: Duration,
    /// Payload in bytes of the largest packets that do not vanish.
    pub largest: usize,
    pub is_bad: bool,
}

impl Direction {
    /// When a packet arrives, once or twice or never.
    pub fn carry(&mut self, random: &mut impl Rng, bytes: usize, now: Instant) -> Vec<Instant> {
        let state = usize::from(self.is_bad);
        if random.random_bool(self.changes[state]) {
            self.is_bad = !self.is_bad;
        }
        let lost = random.random_bool(self.loss[usize::from(self.is_bad)]);
        let doubled = random.random_bool(self.doubles);
        let mut arrivals = Vec::new();
        for _ in 0..=usize::from(doubled) {
            let late = random.random_range(0.0..=1.0);
            arrivals.push(now + self.delay + self.jitter.mul_f64(late));
        }
        if lost || bytes > self.largest {
            arrivals.clear();
        }
        arrivals
    }
}
