//! One path: streams, a receiver of one kind, and a bundler with one rule.

use std::collections::BTreeMap;
use std::fs::File;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use pillion_bundler::{
    Attachment, Device, Flow, LossRule, Options, Policy, Programs, Rule, Scope, cgroup2_mount,
    list_flows,
};
use pillion_lab::{HostPair, PacketDirection, Seen, Truth, Watch};
use pillion_path::{Direction, Loss, PathConfig};

use crate::args::Args;
use crate::receiver::Receiver;
use crate::sender::send;
use crate::trust::Lateness;

/// What to measure on one path. Ports tell the paths' connections apart.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    pub receiver: Receiver,
    pub rule: LossRule,
    pub loss: f64,
    pub port: u16,
}

/// What came of the measurement on one path, in segments.
#[derive(Debug, Clone, Copy)]
pub struct Outcome {
    /// All packets that the path lost in the data direction.
    pub path_lost: u64,
    pub truth: Truth,
    /// Losses that the bundler found.
    pub found: u64,
    /// Losses that the bundler must have missed, counted stream by stream.
    pub missed: u64,
    /// Losses that the bundler must have found where there were none, counted stream by stream.
    pub falsely: u64,
    pub lateness: Lateness,
}

pub fn measure(args: &Args, case: Case) -> Result<Outcome> {
    let pair = HostPair::create("detection", &path(args, case.loss))?;
    let to = SocketAddr::from((pair.receiver.address, case.port));
    let listener = pair
        .receiver
        .namespace
        .enter(move || TcpListener::bind(to))??;
    case.receiver.listen(listener, args.streams);
    let leaving = Watch::start(&pair.sender, PacketDirection::Outgoing)?;
    let arriving = Watch::start(&pair.receiver, PacketDirection::Incoming)?;
    let work = args.clone();
    let worker = pair.sender.namespace.spawn(move || {
        let _attachment = attach(&work, case.rule)?;
        let (streams, late) = send(&work, to).context("send")?;
        let flows = list_flows()?;
        drop(streams);
        Ok::<_, anyhow::Error>((flows, late))
    });
    let panicked = |_| anyhow!("the sender panicked");
    let (flows, late) = worker.join().map_err(panicked)???;
    let sent = by_stream(leaving.finish()?, case.port);
    let arrived = by_stream(arriving.finish()?, case.port);
    let path = pair.path.stop().forward;
    let mut outcome = Outcome {
        path_lost: path.lost.packets,
        truth: Truth::default(),
        found: 0,
        missed: 0,
        falsely: 0,
        lateness: Lateness::new(late, &path),
    };
    let of_case = |flow: &&Flow| flow.peer.port() == case.port;
    for flow in flows.iter().filter(of_case) {
        let stream = |seen: &BTreeMap<u16, Vec<Seen>>| {
            seen.get(&flow.local.port()).cloned().unwrap_or_default()
        };
        let truth = Truth::of(&stream(&sent), &stream(&arrived));
        let found = flow.counters.hidden_losses;
        outcome.truth += truth;
        outcome.found += found;
        outcome.missed += truth.repaired.saturating_sub(found);
        outcome.falsely += found.saturating_sub(truth.repaired);
    }
    Ok(outcome)
}

fn path(args: &Args, loss: f64) -> PathConfig {
    let direction = |loss| Direction {
        loss: Loss::Uniform(loss),
        ..Direction::delayed(Duration::from_secs_f64(args.rtt / 2e3))
    };
    PathConfig {
        forward: direction(loss),
        backward: direction(0.0),
        seed: args.seed,
    }
}

/// Bundles the connections of the calling thread's namespace.
fn attach(args: &Args, loss_rule: LossRule) -> Result<Attachment> {
    let options = Options {
        max_packets: Some(args.max_packets),
        loss_rule,
        ..Options::default()
    };
    let programs = Programs::load(&Policy {
        rules: vec![Rule::all(options)],
        scope: Scope::ThisNamespace,
        ..Policy::default()
    })?;
    let cgroup = File::open(cgroup2_mount()?).context("open cgroup v2's root")?;
    let devices = Device::select(&["tap0".to_owned()])?;
    Ok(Attachment::new(programs, cgroup.as_fd(), &devices)?)
}

/// The segments to a port, by the port that they come from.
fn by_stream(seen: Vec<Seen>, port: u16) -> BTreeMap<u16, Vec<Seen>> {
    let mut streams: BTreeMap<u16, Vec<Seen>> = BTreeMap::new();
    for segment in seen {
        let [from, to] = segment.ports;
        if to == port {
            streams.entry(from).or_default().push(segment);
        }
    }
    streams
}
