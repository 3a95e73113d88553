//! Simulation of one connection from start to end.

mod backward;
mod forward;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::Read;
use std::time::{Duration, Instant};

use pillion_bpf::{Counters, Options};
use rand::SeedableRng;
use rand_pcg::Pcg64;

use super::Statistics;
use super::ledger::Ledger;
use super::loss_model::{self, AckEnds, LearntRule};
use super::receiver::{Ack, Arrival, Receiver};
use super::scenario::{Action, Scenario, WriteMode};
use crate::{Bundler, Ip, Wire, netstat, socket, sysctl};

/// Time without progress after which the stream is stuck. Timeouts back off to two minutes, and
/// retransmissions may be lost too.
const STUCK_TIMEOUT: Duration = Duration::from_secs(1200);

/// Number of segments in pillion's record. With more outstanding its outcome shows that, and the
/// model does not apply.
const MAX_OUTSTANDING: usize = 100;

/// Number of events printed with a failure.
const LOGGED_EVENTS: usize = 60;

/// TCP state during a window reduction (`TCP_CA_CWR`).
const TCP_CA_CWR: u8 = 2;

/// Scheduled event, ordered by its time and then by its creation.
type Due<T> = Reverse<(Instant, usize, T)>;

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A packet arrives at the receiver.
    Packet(usize, Arrival),
    /// A packet without data arrives at the receiver and requires an answer.
    Probe,
    /// An ACK leaves the filter, unless a newer one has replaced it.
    Unfiltered(usize),
    /// An ACK arrives at the sender.
    Ack(usize),
    Action(usize),
}

pub struct Simulation {
    seed: u64,
    scenario: Scenario,
    random: Pcg64,
    wire: Wire,
    receiver: Receiver,
    ledger: Ledger,
    rule: LearntRule,
    ends: AckEnds,
    options: Options,
    events: BinaryHeap<Due<Event>>,
    scheduled: usize,
    acks: Vec<Ack>,
    /// The ACK that waits in the filter.
    filtered: Option<usize>,
    /// Start of the current bundler's record, as a position.
    recorded_from: u32,
    /// True if more was outstanding than the model covers, or TCP sent unobserved packets.
    is_uncertain: bool,
    counters: Counters,
    /// Position before which losses belong to a window that has been reduced.
    reduced_at: u32,
    /// Position before which pillion or TCP itself has reacted to losses.
    reacted_until: u32,
    /// Tail loss probes after which TCP has reduced its window.
    probes_needed: u64,
    /// ACK numbers received so far.
    ack_ends: Vec<u32>,
    closed: bool,
    /// True if the application has switched bundling off.
    disabled_by_application: bool,
    log: Vec<String>,
    print_all: bool,
    statistics: Statistics,
    started_at: Instant,
    last_progress: Instant,
}

impl Simulation {
    pub fn start(seed: u64, scenario: Scenario) -> Self {
        sysctl("net.ipv4.tcp_congestion_control", "reno");
        let wire = Wire::open(scenario.setup.clone());
        wire.set_option(
            (libc::IPPROTO_TCP, libc::TCP_CONGESTION),
            scenario.congestion.as_bytes(),
        );
        for (name, value) in &scenario.sysctls {
            sysctl(&format!("net.ipv4.{name}"), &value.to_string());
        }
        let one = 1i32.to_ne_bytes();
        wire.set_option((libc::SOL_SOCKET, libc::SO_ZEROCOPY), &one);
        let now = Instant::now();
        let mut simulation = Self {
            seed,
            random: Pcg64::seed_from_u64(!seed),
            receiver: Receiver::new(scenario.ack_behaviour.clone()),
            ledger: Ledger::new(),
            rule: LearntRule::new(&scenario.options, scenario.setup.sack),
            ends: AckEnds::default(),
            options: scenario.options,
            events: BinaryHeap::new(),
            scheduled: 0,
            acks: Vec::new(),
            filtered: None,
            recorded_from: 1,
            is_uncertain: false,
            counters: Counters::default(),
            reduced_at: 1,
            reacted_until: 1,
            probes_needed: netstat("TCPLossProbeRecovery"),
            ack_ends: Vec::new(),
            closed: false,
            disabled_by_application: false,
            log: Vec::new(),
            print_all: std::env::var_os("PILLION_REFEREE_LOG").is_some(),
            statistics: Statistics::default(),
            started_at: now,
            last_progress: now,
            wire,
            scenario,
        };
        for action in 0..simulation.scenario.actions.len() {
            let at = now + simulation.scenario.actions[action].0;
            simulation.schedule(at, Event::Action(action));
        }
        simulation
    }

    /// Runs the simulation. Returns its statistics, or `None` if TCP gave up.
    pub fn run(mut self) -> Option<Statistics> {
        while !self.receiver.is_complete() || self.outstanding() > 0 {
            let now = Instant::now();
            if now > self.last_progress + STUCK_TIMEOUT {
                // Under heavy loss, TCP may give up in the end.
                match self.wire.stream.take_error() {
                    Ok(Some(_)) => return None,
                    _ => self.fail("the stream is stuck"),
                }
            }
            let due = self.events.peek().map(|Reverse((at, ..))| *at);
            let due = [due, self.receiver.due()].into_iter().flatten().min();
            let due = due.unwrap_or(now + STUCK_TIMEOUT);
            if due > now {
                if let Some(segment) = self.wire.peer.read(due - now) {
                    self.on_sent(&segment);
                }
                continue;
            }
            // Packets that have left by now are not affected by the next event.
            self.drain();
            self.next(now);
            self.drain();
        }
        Some(self.close())
    }

    fn schedule(&mut self, at: Instant, event: Event) {
        self.events.push(Reverse((at, self.scheduled, event)));
        self.scheduled += 1;
    }

    /// Handles the next due event.
    fn next(&mut self, now: Instant) {
        let timer = self.receiver.due().filter(|due| *due <= now);
        let event = self.events.peek().map(|Reverse((at, ..))| *at);
        if timer.is_some_and(|timer| event.is_none_or(|event| timer < event)) {
            let ack = self.receiver.acknowledge();
            self.queue_ack(ack, now);
            return;
        }
        let Some(Reverse((_, _, event))) = self.events.pop() else {
            return;
        };
        match event {
            Event::Packet(id, arrival) => self.on_arrival(id, arrival, now),
            Event::Probe => {
                let ack = self.receiver.acknowledge();
                self.queue_ack(ack, now);
            }
            Event::Unfiltered(id) => {
                if self.filtered == Some(id) {
                    self.filtered = None;
                    self.send_back(id, now);
                }
            }
            Event::Ack(id) => self.deliver(self.acks[id].clone(), None),
            Event::Action(at) => self.action(self.scenario.actions[at].1, now),
        }
        let actions_left = |Reverse((_, _, event)): &Due<Event>| matches!(event, Event::Action(_));
        if !self.closed && !self.events.iter().any(actions_left) {
            self.closed = true;
            self.wire.shutdown();
        }
    }

    /// Reads everything that the kernel has sent by now.
    fn drain(&mut self) {
        while let Some(segment) = self.wire.peer.read(Duration::ZERO) {
            self.on_sent(&segment);
        }
        let mut unread = [0; 4096];
        while matches!((&self.wire.stream).read(&mut unread), Ok(1..)) {}
    }

    /// Returns the bytes that are not yet acknowledged or not yet sent.
    fn outstanding(&self) -> u32 {
        socket::unacknowledged(&self.wire.stream)
    }

    fn close(mut self) -> Statistics {
        let counters = self.read_counters();
        let [hidden, _, unacknowledged] = loss_model::hidden(&self.ledger, &self.ack_ends);
        self.statistics.hidden = hidden;
        self.statistics.unacknowledged = unacknowledged;
        if !self.is_uncertain && counters.acks_unparsed > 0 {
            self.fail("an ACK was not parsed");
        }
        self.statistics.simulations = 1;
        self.statistics.duration = self.started_at.elapsed();
        self.statistics
    }

    fn note(&mut self, event: String) {
        let at = self.started_at.elapsed();
        let line = format!("{:10.6} {event}", at.as_secs_f64());
        if self.print_all {
            println!("{line}");
        }
        self.log.push(line);
    }

    fn fail(&self, reason: &str) -> ! {
        let from = self.log.len().saturating_sub(LOGGED_EVENTS);
        panic!(
            "seed {}: {reason}\n{:?}\n{}\nseed {}: {reason}",
            self.seed,
            self.scenario,
            self.log[from..].join("\n"),
            self.seed
        )
    }
}

impl Simulation {
    fn action(&mut self, action: Action, now: Instant) {
        self.note(format!("{action:?}"));
        match action {
            Action::Write(bytes, write_mode) => self.write(bytes, write_mode),
            Action::PeerSends(bytes) => {
                let ack = self.receiver.acknowledge();
                self.deliver(ack, Some(&vec![0; bytes + 1]));
            }
            Action::Window(bytes) => {
                self.wire.peer.set_window(bytes);
                let ack = self.receiver.acknowledge();
                self.queue_ack(ack, now);
            }
            Action::Largest(bytes) => self.scenario.forward.largest = bytes,
            Action::Refuse(refuse) => {
                self.is_uncertain = true;
                self.wire.refuse_data(refuse);
            }
            Action::Rules(options) => self.change(options),
            Action::ReplaceBundler(options) => self.replace_bundler(options),
            Action::Switch(on) => self.switch(on),
            Action::Mtu(bytes) => {
                let headers = if self.wire.setup.ip == Ip::V6 { 60 } else { 40 };
                self.wire.set_mtu(bytes.min(self.wire.setup.mss + headers));
            }
            Action::Congestion(name) => self
                .wire
                .set_option((libc::IPPROTO_TCP, libc::TCP_CONGESTION), name.as_bytes()),
            Action::Cork(on) => {
                let on = i32::from(on).to_ne_bytes();
                self.wire
                    .set_option((libc::IPPROTO_TCP, libc::TCP_CORK), &on);
            }
        }
    }

    pub(super) fn write(&mut self, bytes: u32, write_mode: WriteMode) {
        let flags = match write_mode {
            WriteMode::Plain => 0,
            WriteMode::More => libc::MSG_MORE,
            WriteMode::Urgent => libc::MSG_OOB,
            WriteMode::EndOfRecord => libc::MSG_EOR,
            WriteMode::OwnPages => libc::MSG_ZEROCOPY,
            WriteMode::File => {
                self.wire.send_file(bytes);
                return;
            }
        };
        self.wire.offer(bytes, flags);
    }

    pub(super) fn change(&mut self, options: Options) {
        if self.wire.attachments.is_empty() {
            return;
        }
        let options = Options {
            bundle_retransmissions: self.options.bundle_retransmissions,
            without_sack: self.options.without_sack,
            ..options
        };
        self.wire.replace_rules(&Bundler::with(options));
        self.options = options;
        self.reacted_until = self.sent();
    }

    fn switch(&mut self, on: bool) {
        /// `PILLION_BUNDLE` of `include/pillion.h`.
        const BUNDLE: libc::c_int = 0x7069_6c01;
        if self.wire.attachments.is_empty() {
            return;
        }
        let value = i32::from(on).to_ne_bytes();
        self.wire.set_option((libc::IPPROTO_TCP, BUNDLE), &value);
        self.disabled_by_application = !on;
    }

    pub(super) fn replace_bundler(&mut self, options: Options) {
        self.wire.detach();
        self.wire.attachments.clear();
        let options = Options {
            bundle_retransmissions: self.options.bundle_retransmissions,
            without_sack: self.options.without_sack,
            ..options
        };
        self.wire.attach(&Bundler::with(options));
        self.wire.adopt();
        self.disabled_by_application = false;
        self.options = options;
        self.rule = LearntRule::new(&options, self.scenario.setup.sack);
        self.ends = AckEnds::default();
        self.recorded_from = self.ledger.end();
        self.reacted_until = self.sent();
        self.counters = Counters::default();
    }
}
