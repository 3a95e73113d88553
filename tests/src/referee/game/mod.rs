//! One connection from its beginning to its end.

mod backward;
mod forward;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::Read;
use std::time::{Duration, Instant};

use pillion_bpf::{Counters, Options};
use rand::SeedableRng;
use rand_pcg::Pcg64;

use super::Tally;
use super::judge::{self, Ends, Rule};
use super::ledger::Ledger;
use super::receiver::{Ack, Arrival, Receiver};
use super::scenario::{Act, How, Scenario};
use crate::{Bundler, Ip, Wire, netstat, socket, sysctl};

/// Time without progress after which the stream is stuck: time-outs back off to two minutes, and
/// may be lost as well.
const STUCK: Duration = Duration::from_secs(1200);

/// Number of segments that pillion's record holds: with more outstanding it says so, and the rules
/// in here do not go that far.
const CROWD: usize = 100;

/// Number of last events that are told with a failure.
const TOLD: usize = 60;

/// State of TCP in which it reduces its window, for whatever reason (`TCP_CA_CWR`).
const REDUCING: u8 = 2;

/// Something that is due, ordered by its time, and then by the order in which such were made.
type Due<T> = Reverse<(Instant, usize, T)>;

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A packet arrives at the receiver.
    Packet(usize, Arrival),
    /// A packet without data arrives at the receiver, and wants an answer.
    Probe,
    /// An ACK leaves the filter, unless a newer one has taken its place.
    Unfiltered(usize),
    /// An ACK arrives at the sender.
    Ack(usize),
    Act(usize),
}

pub struct Game {
    seed: u64,
    scenario: Scenario,
    random: Pcg64,
    wire: Wire,
    receiver: Receiver,
    ledger: Ledger,
    rule: Rule,
    ends: Ends,
    options: Options,
    events: BinaryHeap<Due<Event>>,
    made: usize,
    acks: Vec<Ack>,
    /// The ACK that waits in the filter.
    filtered: Option<usize>,
    /// Position where the record of the bundler at work begins.
    recorded_from: u32,
    /// True if more was outstanding than the rules in here know of, or TCP sent what nobody saw.
    is_uncertain: bool,
    counters: Counters,
    /// Position before which losses belong to a window that has been reduced.
    reduced_at: u32,
    /// Position before which losses have been reacted to, by pillion or TCP itself.
    answered: u32,
    /// Tail loss probes for which TCP has reduced its window.
    probes_needed: u64,
    /// Ends of bundles that an ACK has told of, as positions.
    judged: Vec<u32>,
    closed: bool,
    /// True if the application has switched bundling off.
    off: bool,
    log: Vec<String>,
    tells_all: bool,
    tally: Tally,
    begun: Instant,
    progress: Instant,
}

impl Game {
    pub fn begin(seed: u64, scenario: Scenario) -> Self {
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
        let mut game = Self {
            seed,
            random: Pcg64::seed_from_u64(!seed),
            receiver: Receiver::new(scenario.manner.clone()),
            ledger: Ledger::new(),
            rule: Rule::new(&scenario.options, scenario.setup.sack),
            ends: Ends::default(),
            options: scenario.options,
            events: BinaryHeap::new(),
            made: 0,
            acks: Vec::new(),
            filtered: None,
            recorded_from: 1,
            is_uncertain: false,
            counters: Counters::default(),
            reduced_at: 1,
            answered: 1,
            probes_needed: netstat("TCPLossProbeRecovery"),
            judged: Vec::new(),
            closed: false,
            off: false,
            log: Vec::new(),
            tells_all: std::env::var_os("PILLION_REFEREE_LOG").is_some(),
            tally: Tally::default(),
            begun: now,
            progress: now,
            wire,
            scenario,
        };
        for act in 0..game.scenario.acts.len() {
            let at = now + game.scenario.acts[act].0;
            game.plan(at, Event::Act(act));
        }
        game
    }

    /// Plays the game, and returns what happened; `None` where TCP itself gave up.
    pub fn play(mut self) -> Option<Tally> {
        while !self.receiver.is_complete() || self.outstanding() > 0 {
            let now = Instant::now();
            if now > self.progress + STUCK {
                // Where much is lost, TCP may give up in the end.
                match self.wire.stream.take_error() {
                    Ok(Some(_)) => return None,
                    _ => self.fail("the stream is stuck"),
                }
            }
            let due = self.events.peek().map(|Reverse((at, ..))| *at);
            let due = [due, self.receiver.due()].into_iter().flatten().min();
            let due = due.unwrap_or(now + STUCK);
            if due > now {
                if let Some(segment) = self.wire.peer.read(due - now) {
                    self.leaves(&segment);
                }
                continue;
            }
            // What has left by now has not seen what comes next.
            self.drain();
            self.next(now);
            self.drain();
        }
        Some(self.close())
    }

    fn plan(&mut self, at: Instant, event: Event) {
        self.events.push(Reverse((at, self.made, event)));
        self.made += 1;
    }

    /// Does what is due first.
    fn next(&mut self, now: Instant) {
        let timer = self.receiver.due().filter(|due| *due <= now);
        let event = self.events.peek().map(|Reverse((at, ..))| *at);
        if timer.is_some_and(|timer| event.is_none_or(|event| timer < event)) {
            let ack = self.receiver.acknowledge();
            self.sends_ack(ack, now);
            return;
        }
        let Some(Reverse((_, _, event))) = self.events.pop() else {
            return;
        };
        match event {
            Event::Packet(id, arrival) => self.arrives(id, arrival, now),
            Event::Probe => {
                let ack = self.receiver.acknowledge();
                self.sends_ack(ack, now);
            }
            Event::Unfiltered(id) => {
                if self.filtered == Some(id) {
                    self.filtered = None;
                    self.returns(id, now);
                }
            }
            Event::Ack(id) => self.deliver(self.acks[id].clone(), None),
            Event::Act(at) => self.act(self.scenario.acts[at].1, now),
        }
        let acts_left = |Reverse((_, _, event)): &Due<Event>| matches!(event, Event::Act(_));
        if !self.closed && !self.events.iter().any(acts_left) {
            self.closed = true;
            self.wire.shutdown();
        }
    }

    /// Takes in all that the kernel has sent by now.
    fn drain(&mut self) {
        while let Some(segment) = self.wire.peer.read(Duration::ZERO) {
            self.leaves(&segment);
        }
        let mut unread = [0; 4096];
        while matches!((&self.wire.stream).read(&mut unread), Ok(1..)) {}
    }

    /// Bytes that the kernel waits for to be acknowledged, or to be sent.
    fn outstanding(&self) -> u32 {
        socket::unacknowledged(&self.wire.stream)
    }

    fn close(mut self) -> Tally {
        let counters = self.read_counters();
        let [hidden, _, unacknowledged] = judge::hidden(&self.ledger, &self.judged);
        self.tally.hidden = hidden;
        self.tally.unacknowledged = unacknowledged;
        if !self.is_uncertain && counters.acks_unread > 0 {
            self.fail("an ACK could not be read");
        }
        self.tally.games = 1;
        self.tally.duration = self.begun.elapsed();
        self.tally
    }

    fn note(&mut self, event: String) {
        let at = self.begun.elapsed();
        let line = format!("{:10.6} {event}", at.as_secs_f64());
        if self.tells_all {
            println!("{line}");
        }
        self.log.push(line);
    }

    fn fail(&self, why: &str) -> ! {
        let from = self.log.len().saturating_sub(TOLD);
        panic!(
            "seed {}: {why}\n{:?}\n{}\nseed {}: {why}",
            self.seed,
            self.scenario,
            self.log[from..].join("\n"),
            self.seed
        )
    }
}

impl Game {
    fn act(&mut self, act: Act, now: Instant) {
        self.note(format!("{act:?}"));
        match act {
            Act::Write(bytes, how) => self.write(bytes, how),
            Act::PeerSends(bytes) => {
                let ack = self.receiver.acknowledge();
                self.deliver(ack, Some(&vec![0; bytes + 1]));
            }
            Act::Window(bytes) => {
                self.wire.peer.set_window(bytes);
                let ack = self.receiver.acknowledge();
                self.sends_ack(ack, now);
            }
            Act::Largest(bytes) => self.scenario.forward.largest = bytes,
            Act::Refuse(refuse) => {
                self.is_uncertain = true;
                self.wire.refuse_data(refuse);
            }
            Act::Rules(options) => self.change(options),
            Act::Exchange(options) => self.exchange(options),
            Act::Switch(on) => self.switch(on),
            Act::Mtu(bytes) => {
                let headers = if self.wire.setup.ip == Ip::V6 { 60 } else { 40 };
                self.wire.set_mtu(bytes.min(self.wire.setup.mss + headers));
            }
            Act::Congestion(name) => self
                .wire
                .set_option((libc::IPPROTO_TCP, libc::TCP_CONGESTION), name.as_bytes()),
            Act::Cork(on) => {
                let on = i32::from(on).to_ne_bytes();
                self.wire
                    .set_option((libc::IPPROTO_TCP, libc::TCP_CORK), &on);
            }
        }
    }

    pub(super) fn write(&mut self, bytes: u32, how: How) {
        let flags = match how {
            How::Plain => 0,
            How::More => libc::MSG_MORE,
            How::Urgent => libc::MSG_OOB,
            How::EndOfRecord => libc::MSG_EOR,
            How::OwnPages => libc::MSG_ZEROCOPY,
            How::File => {
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
            retransmissions: self.options.retransmissions,
            without_sack: self.options.without_sack,
            ..options
        };
        self.wire.replace_rules(&Bundler::with(options));
        self.options = options;
        self.answered = self.sent();
    }

    fn switch(&mut self, on: bool) {
        /// `PILLION_BUNDLE` of `include/pillion.h`.
        const BUNDLE: libc::c_int = 0x7069_6c01;
        if self.wire.attachments.is_empty() {
            return;
        }
        let value = i32::from(on).to_ne_bytes();
        self.wire.set_option((libc::IPPROTO_TCP, BUNDLE), &value);
        self.off = !on;
    }

    pub(super) fn exchange(&mut self, options: Options) {
        self.wire.detach();
        self.wire.attachments.clear();
        let options = Options {
            retransmissions: self.options.retransmissions,
            without_sack: self.options.without_sack,
            ..options
        };
        self.wire.attach(&Bundler::with(options));
        self.wire.adopt();
        self.off = false;
        self.options = options;
        self.rule = Rule::new(&options, self.scenario.setup.sack);
        self.ends = Ends::default();
        self.recorded_from = self.ledger.end();
        self.answered = self.sent();
        self.counters = Counters::default();
    }
}
