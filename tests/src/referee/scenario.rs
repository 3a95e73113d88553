//! Random parameters of one simulation.

use std::time::{Duration, Instant};

use pillion_bpf::{Level, LossRule, Options, Reaction, ThinTest};
use rand::{Rng, RngExt};

use super::receiver::AckBehaviour;
use crate::{Bundler, Checksums, Ip, Setup};

#[derive(Debug, Clone)]
pub struct Scenario {
    pub setup: Setup,
    pub options: Options,
    pub congestion: &'static str,
    pub sysctls: Vec<(&'static str, u8)>,
    pub forward: Direction,
    pub backward: Direction,
    /// The ACK filter on the reverse path passes every n-th ACK, and each one without a successor.
    pub filter: usize,
    pub ack_behaviour: AckBehaviour,
    /// Maximum copies of a segment. Rules that change keep it: reports are due for outstanding
    /// copies as if they had been sent by the present rules.
    pub max_copies: u8,
    /// Actions of the application and others, with their time after the start.
    pub actions: Vec<(Duration, Action)>,
}

#[derive(Debug, Clone, Copy)]
pub enum Action {
    /// The application writes `0` bytes.
    Write(u32, WriteMode),
    /// The peer sends data with an ACK.
    PeerSends(usize),
    /// The peer announces this receive window.
    Window(u16),
    /// Packets with more payload are dropped from now on.
    Largest(usize),
    /// The device's queue refuses data, or accepts it again.
    Refuse(bool),
    /// The rules change.
    Rules(Options),
    /// All bundlers detach; a new one attaches and adopts the connection.
    ReplaceBundler(Options),
    /// The application switches bundling on or off.
    Switch(bool),
    /// Changes the device's MTU.
    Mtu(u16),
    /// The application corks or uncorks the socket.
    Cork(bool),
    /// The application changes the congestion control.
    Congestion(&'static str),
}

#[derive(Debug, Clone, Copy)]
pub enum WriteMode {
    Plain,
    More,
    Urgent,
    EndOfRecord,
    OwnPages,
    File,
}

const MS: Duration = Duration::from_millis(1);

fn choose<T: Copy>(random: &mut impl Rng, all: &[T]) -> T {
    all[random.random_range(0..all.len())]
}

fn options(random: &mut impl Rng, loss_rule: LossRule, max_copies: u8) -> Options {
    let level = match max_copies {
        0 => choose(random, &[Level::Fixed, Level::Fixed, Level::Adaptive]),
        1 => choose(random, &[Level::Fixed, Level::Adaptive, Level::Auto]),
        _ => choose(random, &[Level::Fixed, Level::Adaptive]),
    };
    let itt_min = choose(random, &[1, 10]) * MS;
    let limit = random.random_range(1..6);
    Options {
        thin: choose(
            random,
            &[
                ThinTest::Always,
                ThinTest::Always,
                ThinTest::Dpifl { itt_min },
                ThinTest::Spifl { limit },
            ],
        ),
        max_packets: Some(choose(random, &[0, 1, 1, 1, 2, 5])),
        max_bytes: choose(random, &[0, 0, 0, 450, 1000]),
        level: Some(level),
        copies: match level {
            Level::Auto => 0,
            _ => max_copies,
        },
        reaction: Some(choose(
            random,
            &[
                Reaction::Cwr,
                Reaction::Cwr,
                Reaction::TfrcSp,
                Reaction::None,
            ],
        )),
        loss_rule,
        published: max_copies == 0 && random.random_bool(0.2),
        ..Options::default()
    }
}

fn setup(random: &mut impl Rng) -> Setup {
    let checksums = choose(
        random,
        &[Checksums::Kernel, Checksums::Device, Checksums::Bridge],
    );
    let sack = random.random_bool(0.95);
    let ip = choose(random, &[Ip::V4, Ip::V4, Ip::V6, Ip::Mapped]);
    Setup {
        ip,
        // Close to the sequence wrap in half of the cases.
        isn: Some(match random.random() {
            true => random.random(),
            false => u32::MAX - random.random_range(0..20_000),
        }),
        // IPv6 requires an MTU of 1,280 bytes.
        mss: choose(
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

fn direction(random: &mut impl Rng, max: f64) -> Direction {
    let good_state = choose(random, &[0.0, 0.0, 0.02, 0.1, 0.2]);
    let bad_state = choose(random, &[0.3, 0.8]);
    let bursts = random.random_bool(0.3);
    Direction {
        loss: [f64::min(good_state, max), f64::min(bad_state, max)],
        changes: if bursts { [0.02, 0.3] } else { [0.0, 1.0] },
        duplicate_probability: choose(random, &[0.0, 0.0, 0.01, 0.05]),
        delay: choose(random, &[0, 1, 10, 40, 150]) * MS,
        jitter: choose(random, &[0, 0, 0, 5, 40]) * MS,
        largest: usize::MAX,
        is_bad: false,
    }
}

fn write_mode(random: &mut impl Rng) -> WriteMode {
    let common = [WriteMode::Plain; 12];
    let rare = [
        WriteMode::More,
        WriteMode::Urgent,
        WriteMode::EndOfRecord,
        WriteMode::OwnPages,
        WriteMode::File,
    ];
    choose(random, &[&common[..], &rare].concat())
}

fn actions(random: &mut impl Rng, loss_rule: LossRule, max_copies: u8) -> Vec<(Duration, Action)> {
    let mut actions = Vec::new();
    let mut at = Duration::ZERO;
    let itt = choose(random, &[2, 10, 30, 100]);
    let usual_bytes = choose(random, &[20, 120, 400, 448, 700]);
    let large = choose(random, &[0.0, 0.0, 0.05]);
    let pauses = choose(random, &[0.0, 0.0, 0.05]);
    for _ in 0..random.random_range(20..150) {
        at += random.random_range(0..=2 * itt) * MS;
        if random.random_bool(pauses) {
            at += random.random_range(200..4000) * MS;
        }
        let bytes = match random.random_range(0..10) {
            0 => random.random_range(1..1500),
            _ if random.random_bool(large) => random.random_range(1500..20_000),
            _ => usual_bytes,
        };
        actions.push((at, Action::Write(bytes, write_mode(random))));
    }
    let end = at;
    add_random_actions(random, (0.3, 20), end, &mut actions, |random| {
        Action::PeerSends(below(random, 300))
    });
    add_random_actions(random, (0.15, 4), end, &mut actions, |random| {
        Action::Window(below(random, 30_000) as u16)
    });
    add_random_actions(random, (0.1, 2), end, &mut actions, |random| {
        Action::Largest(300 + below(random, 1200))
    });
    add_random_actions(random, (0.15, 2), end, &mut actions, |random| {
        Action::Rules(options(random, loss_rule, max_copies))
    });
    add_random_actions(random, (0.15, 2), end, &mut actions, |random| {
        Action::ReplaceBundler(options(random, loss_rule, max_copies))
    });
    add_random_actions(random, (0.5, 6), end, &mut actions, |random| {
        Action::Switch(random.random())
    });
    add_random_actions(random, (0.3, 4), end, &mut actions, |random| {
        Action::Mtu(1280 + below(random, 300) as u16)
    });
    add_random_actions(random, (0.2, 6), end, &mut actions, |random| {
        Action::Cork(random.random())
    });
    actions.push((end, Action::Cork(false)));
    add_random_actions(random, (0.15, 3), end, &mut actions, |random| {
        Action::Congestion(choose(random, &["reno", "cubic"]))
    });
    if random.random_bool(0.15) {
        let from = end.mul_f64(random.random());
        actions.push((from, Action::Refuse(true)));
        actions.push((from + below(random, 300) as u32 * MS, Action::Refuse(false)));
    }
    // At the end the peer always has an open window.
    actions.push((end, Action::Window(u16::MAX)));
    actions.sort_by_key(|(at, _)| *at);
    actions
}

fn below(random: &mut impl Rng, limit: usize) -> usize {
    random.random_range(0..limit)
}

/// Adds random actions of one kind in a share of the simulations.
fn add_random_actions<R: Rng>(
    random: &mut R,
    (share, max): (f64, u32),
    end: Duration,
    actions: &mut Vec<(Duration, Action)>,
    make: impl Fn(&mut R) -> Action,
) {
    if !random.random_bool(share) {
        return;
    }
    for _ in 0..random.random_range(1..=max) {
        let at = end.mul_f64(random.random());
        actions.push((at, make(random)));
    }
}

impl Scenario {
    pub fn random(random: &mut impl Rng) -> Self {
        let setup = setup(random);
        let dsacks = random.random_bool(0.8);
        let loss_rule = match (setup.sack && dsacks, random.random_range(0..4)) {
            (true, 0) => LossRule::Auto,
            (true, _) => LossRule::Dsack,
            (false, 0) => LossRule::Ack,
            (false, _) => LossRule::Auto,
        };
        let max_copies = choose(random, &[0, 0, 0, 0, 0, 0, 1, 2]);
        let options = Options {
            without_sack: !setup.sack && random.random(),
            bundle_retransmissions: random.random_bool(0.15),
            ..options(random, loss_rule, max_copies)
        };
        let bundlers = vec![Bundler::with(options)];
        Self {
            setup: Setup { bundlers, ..setup },
            options,
            congestion: choose(random, &["reno", "cubic"]),
            sysctls: vec![
                ("tcp_early_retrans", choose(random, &[0, 3])),
                (
                    "tcp_retrans_collapse",
                    if options.bundle_retransmissions {
                        0
                    } else {
                        choose(random, &[0, 1])
                    },
                ),
                ("tcp_recovery", choose(random, &[1, 1, 0, 2, 5, 7])),
                ("tcp_reordering", choose(random, &[3, 3, 1])),
                ("tcp_thin_linear_timeouts", choose(random, &[0, 1])),
                ("tcp_autocorking", choose(random, &[1, 0])),
                ("tcp_slow_start_after_idle", choose(random, &[1, 0])),
                ("tcp_min_tso_segs", choose(random, &[2, 1])),
                ("tcp_frto", choose(random, &[2, 2, 0])),
            ],
            forward: direction(random, 0.8),
            backward: direction(random, 0.5),
            filter: choose(random, &[1, 1, 1, 1, 5, 20]),
            ack_behaviour: AckBehaviour {
                sack: true,
                dsacks,
                every: choose(random, &[1, 1, 2, 2, 4]),
                delay: choose(random, &[1, 40, 200]) * MS,
                reneges: choose(random, &[0.0, 0.0, 0.0, 0.01]),
            },
            max_copies,
            actions: actions(random, loss_rule, max_copies),
        }
        .consistent()
    }

    /// Returns the payload of the smallest full segment, with all options.
    pub fn full_size(&self) -> u32 {
        u32::from(self.setup.mss) - 12
    }

    /// Returns the smallest size in bytes that counts as full at any time.
    pub fn min_full_size(&self) -> u32 {
        let mtus = self.actions.iter().filter_map(|(_, action)| match action {
            Action::Mtu(bytes) => Some(u32::from(*bytes) - 72),
            _ => None,
        });
        mtus.fold(self.full_size(), u32::min)
    }

    /// Returns true if some writes do not fit into a segment.
    pub fn has_large_writes(&self) -> bool {
        let full_size_bytes = self.full_size();
        let large = |action: &Action| match action {
            Action::Write(bytes, _) => *bytes > full_size_bytes,
            Action::Mtu(_) | Action::Cork(true) => true,
            _ => false,
        };
        self.actions.iter().any(|(_, action)| large(action))
    }

    /// Returns true if TCP's duration varies little, because chance cannot cause timeouts of
    /// minutes.
    pub fn is_steady(&self) -> bool {
        let loss = [&self.forward, &self.backward].map(|direction| {
            let bursts = direction.changes[0] > 0.0;
            direction.loss[0] + if bursts { direction.loss[1] } else { 0.0 }
        });
        // With an ACK filter few ACKs remain: without RTT samples the timeout stays backed off.
        let max = if self.filter > 1 { 0.02 } else { 0.15 };
        loss.iter().sum::<f64>() <= max
    }

    fn consistent(mut self) -> Self {
        self.ack_behaviour.sack = self.setup.sack;
        let largest = |(_, action): &(Duration, Action)| matches!(action, Action::Largest(_));
        if self.actions.iter().any(largest) {
            // Plain TCP must be able to deliver the stream.
            self.sysctls.push(("tcp_mtu_probing", 1));
        }
        if self.setup.on_bridge {
            // A bridge does not report its port's refusals to TCP.
            self.actions
                .retain(|(_, action)| !matches!(action, Action::Refuse(_)));
        }
        self
    }

    /// Returns the scenario without pillion.
    pub fn plain(&self) -> Self {
        let mut plain = self.clone();
        plain.setup.bundlers.clear();
        plain.actions.retain(|(_, action)| {
            !matches!(
                action,
                Action::Rules(_) | Action::ReplaceBundler(_) | Action::Switch(_)
            )
        });
        plain
    }
}

#[derive(Debug, Clone)]
pub struct Direction {
    /// Loss probability in the good and in the bad state.
    pub loss: [f64; 2],
    /// Probability per packet of a change from good to bad, and back.
    pub changes: [f64; 2],
    /// Probability of a duplicate.
    pub duplicate_probability: f64,
    pub delay: Duration,
    /// Maximum additional delay; later packets may overtake.
    pub jitter: Duration,
    /// Maximum payload of packets that are not dropped, in bytes.
    pub largest: usize,
    pub is_bad: bool,
}

impl Direction {
    /// Returns the arrival times of a packet: none, one or two.
    pub fn carry(&mut self, random: &mut impl Rng, bytes: usize, now: Instant) -> Vec<Instant> {
        let state = usize::from(self.is_bad);
        if random.random_bool(self.changes[state]) {
            self.is_bad = !self.is_bad;
        }
        let lost = random.random_bool(self.loss[usize::from(self.is_bad)]);
        let duplicated = random.random_bool(self.duplicate_probability);
        let mut arrivals = Vec::new();
        for _ in 0..=usize::from(duplicated) {
            let late = random.random_range(0.0..=1.0);
            arrivals.push(now + self.delay + self.jitter.mul_f64(late));
        }
        if lost || bytes > self.largest {
            arrivals.clear();
        }
        arrivals
    }
}
