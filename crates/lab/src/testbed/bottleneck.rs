//! Queueing disciplines of the testbed: bottleneck, links of the senders, emulated delay and loss.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::time::Duration;

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{MapCore, MapFlags, MapHandle, TC_INGRESS, TcHookBuilder};
use nix::net::if_::if_nametoindex;
use pillion_bpf::host::interruption::without_signals;

use super::Node;
use super::node::Port;
use crate::settings::experiment::{
    Bottleneck, Discipline, Emulation, Loss, Plan, Rate, SOURCE_PORTS, SendingHost, Shaper,
};
use crate::{Error, Namespace, kernel_release};

/// The queue's handle, which identifies it among the counters.
pub const QUEUE_HANDLE: &str = "10:";

/// Sets a bottleneck's rate and queue on a device of the router, unless it is a recorded link, which
/// is part of pillion's own path.
pub(super) fn build(
    router: &Node,
    device: &str,
    bottleneck: &Bottleneck,
    plan: &Plan,
) -> Result<(), Error> {
    if bottleneck.trace.is_some() {
        return Ok(());
    }
    let queue = queue(bottleneck, plan);
    let burst = bottleneck.burst;
    let shapes_itself = bottleneck.queue == Discipline::Cake;
    let rate = bottleneck.rate.map(Rate::bps).filter(|_| !shapes_itself);
    let parent = if rate.is_some() { "parent 1:1" } else { "root" };
    let mut lines = match (rate, bottleneck.shaper) {
        (None, _) => Vec::new(),
        (Some(rate), Shaper::Htb) => vec![
            format!("qdisc add dev {device} root handle 1: htb default 1"),
            format!(
                "class add dev {device} parent 1: classid 1:1 htb rate {rate}bit \
                 burst {burst} cburst {burst} quantum 1514"
            ),
        ],
        // tbf's own queue, which has this limit, is replaced below.
        (Some(rate), Shaper::Tbf) => vec![format!(
            "qdisc add dev {device} root handle 1: tbf rate {rate}bit burst {burst} limit {burst}"
        )],
    };
    lines.push(format!(
        "qdisc add dev {device} {parent} handle {QUEUE_HANDLE} {queue}"
    ));
    router.run_batch("tc", &lines).map_err(missing_discipline)
}

/// Returns the queue as arguments of `tc`.
fn queue(bottleneck: &Bottleneck, plan: &Plan) -> String {
    let discipline = bottleneck.queue;
    let mut words = vec![discipline.to_string()];
    let mut add = |name: &str, value: String| words.extend([name.to_owned(), value]);
    if let Some(limit) = plan.queue_limit(bottleneck) {
        match discipline {
            Discipline::Cake => add("memlimit", limit.to_string()),
            _ => add("limit", limit.to_string()),
        }
    }
    let rate = bottleneck
        .rate
        .map(Rate::bps)
        .map(|rate| format!("{rate}bit"));
    let options = || bottleneck.options.split_whitespace();
    let is_given = |word| options().any(|option| option == word);
    match discipline {
        Discipline::Cake => add("bandwidth", rate.unwrap_or_else(|| "unlimited".to_owned())),
        Discipline::Red => {
            if !is_given("avpkt") {
                add("avpkt", "1000".to_owned());
            }
            if let Some(rate) = rate.filter(|_| !is_given("bandwidth")) {
                add("bandwidth", rate);
            }
        }
        _ => {}
    }
    words.extend(options().map(str::to_owned));
    words.join(" ")
}

/// Converts the error of a discipline that the kernel lacks.
pub(super) fn missing_discipline(error: Error) -> Error {
    match error {
        Error::Command {
            command, reason, ..
        } if reason.contains("qdisc kind is unknown") => Error::Unsupported {
            feature: format!("a queue discipline of `{command}`"),
            kernel: kernel_release(),
        },
        other => other,
    }
}

// Links between the sending hosts and the bridge.

/// Sets the rate and delay of a sending host's link.
pub(super) fn build_link(host: &SendingHost, here: Port, bridge: Port) -> Result<(), Error> {
    let delayed = Emulation {
        delay: host.delay,
        ..Emulation::default()
    };
    let device = here.device;
    let mut lines = Vec::new();
    let mut parent = "root";
    if let Some(rate) = host.rate_bps {
        // The size table applies after pillion's program, which makes packets longer.
        let stab = "stab overhead 0 linklayer ethernet";
        lines.push(format!(
            "qdisc add dev {device} root handle 1: {stab} htb default 1"
        ));
        lines.push(format!(
            "class add dev {device} parent 1: classid 1:1 htb rate {rate}bit \
             burst 1520 cburst 1520 quantum 1514"
        ));
        parent = "parent 1:1";
    }
    if host.delay > Duration::ZERO {
        let netem = netem_arguments(&delayed);
        lines.push(format!(
            "qdisc add dev {device} {parent} handle 20: {netem}"
        ));
        let back = format!("qdisc add dev {} root handle 20: {netem}", bridge.device);
        bridge
            .node
            .run_batch("tc", &[back])
            .map_err(missing_discipline)?;
    } else if host.fq {
        lines.push(format!("qdisc add dev {device} {parent} handle 20: fq"));
    } else if host.rate_bps.is_some() {
        // The default queue length of a device.
        lines.push(format!(
            "qdisc add dev {device} {parent} handle 20: pfifo limit 1000"
        ));
    }
    here.node
        .run_batch("tc", &lines)
        .map_err(missing_discipline)
}

// The kernel's emulator.

/// Maximum packets in netem; more than any path here holds.
const LIMIT: u32 = 1_000_000;

/// Returns true if the running kernel has netem.
///
/// # Errors
/// [`Error::Namespace`], or [`Error::System`] if `tc` is missing.
pub(super) fn is_netem_available() -> Result<bool, Error> {
    let namespace = Namespace::create().map_err(|source| Error::Namespace {
        name: "for a test of netem".to_owned(),
        source,
    })?;
    let trial = ["qdisc", "add", "dev", "lo", "root", "netem"];
    let action = "run tc (package iproute2)";
    let output = namespace.run("tc", &trial, "");
    let output = output.map_err(|source| Error::System { action, source })?;
    Ok(output.status.success())
}

/// Returns netem's configuration as arguments of `tc`; netem is not used for jitter.
fn netem_arguments(emulation: &Emulation) -> String {
    let mut words = format!("netem limit {LIMIT} delay {}", time(emulation.delay));
    match &emulation.loss {
        Some(Loss::Uniform(share)) => words += &format!(" loss random {}", percent(*share)),
        Some(Loss::GilbertElliott {
            to_bad,
            to_good,
            in_bad,
            in_good,
        }) => {
            let [p, r, bad, good] = [to_bad, to_good, in_bad, in_good].map(|it| percent(*it));
            words += &format!(" loss gemodel {p} {r} {bad} {good}");
        }
        Some(Loss::Listed(_) | Loss::Steps(_)) | None => {}
    }
    if let Some(impairments) = emulation.impairments.filter(|it| it.duplicate > 0.0) {
        words += &format!(" duplicate {}", percent(impairments.duplicate));
    }
    words
}

/// Returns commands of `tc` that emulate one direction on the sending device.
pub(super) fn netem_commands(device: &str, emulation: &Emulation) -> Vec<String> {
    let words = netem_arguments(emulation);
    let mut lines = vec![format!("qdisc add dev {device} root handle 1: {words}")];
    if let Some(impairments) = emulation.impairments.filter(|it| it.reorder > 0.0) {
        // After the path's delay, most packets pass a second netem immediately.
        let late = time(impairments.late);
        let immediate = percent(1.0 - impairments.reorder);
        lines.push(format!(
            "qdisc add dev {device} parent 1:1 handle 2: netem limit {LIMIT} delay {late} \
             reorder {immediate}"
        ));
    }
    lines
}

/// Returns the same commands, with a class for each stream that has its own values, by stream
/// number. `port` is where its packets have the stream's source port: `proto-src` or `proto-dst`.
pub(super) fn netem_commands_by_stream(
    device: &str,
    emulation: &Emulation,
    port: &str,
    own: &[(u32, Emulation)],
) -> Vec<String> {
    // The rate of these classes never delays a packet.
    let class = "htb rate 10gbit quantum 60000";
    const DEFAULT_CLASS: &str = "ffff";
    let mut lines = vec![format!(
        "qdisc add dev {device} root handle 1: htb default {DEFAULT_CLASS}"
    )];
    let others = [(DEFAULT_CLASS.to_owned(), emulation)];
    let own = own.iter();
    let own = own.map(|(stream, own)| (format!("{:x}", stream + 1), own));
    for (minor, emulation) in others.into_iter().chain(own) {
        let words = netem_arguments(emulation);
        lines.push(format!(
            "class add dev {device} parent 1: classid 1:{minor} {class}"
        ));
        lines.push(format!("qdisc add dev {device} parent 1:{minor} {words}"));
    }
    lines.push(format!(
        "filter add dev {device} parent 1: protocol ip handle 1 flow map key {port} \
         addend -{SOURCE_PORTS} baseclass 1:1"
    ));
    lines
}

/// Returns a duration in microseconds, as an argument of `tc`.
fn time(duration: Duration) -> String {
    format!("{}us", duration.as_micros())
}

fn percent(share: f64) -> String {
    format!("{}%", share * 100.0)
}

// Loss of listed packets, which netem does not support.

#[allow(missing_docs, clippy::all, clippy::undocumented_unsafe_blocks)]
#[allow(clippy::cast_lossless, clippy::semicolon_if_nothing_returned)]
#[allow(dead_code, unsafe_op_in_unsafe_fn)]
mod program {
    include!(concat!(env!("OUT_DIR"), "/listed_loss.skel.rs"));
}

/// The program that drops listed packets at a device. It remains until the device is deleted.
#[derive(Debug)]
pub struct ListedLoss(MapHandle);

/// Key of the program's drop counter.
const DROPPED_KEY: u32 = 1;

impl ListedLoss {
    /// Drops the packets with these numbers, counted from 1, among those that arrive at a device.
    pub(super) fn attach(node: &Node, device: &str, numbers: &[u64]) -> Result<Self, Error> {
        let (device, numbers) = (device.to_owned(), numbers.to_vec());
        let attached = node.enter(move || attach(&device, &numbers))?;
        attached.map(Self).map_err(|source| Error::System {
            action: "attach the program that drops listed packets",
            source,
        })
    }

    /// Returns the number of dropped packets.
    pub(super) fn dropped(&self) -> u64 {
        let count = self.0.lookup(&DROPPED_KEY.to_ne_bytes(), MapFlags::ANY);
        let count = count.ok().flatten().and_then(|bytes| bytes.try_into().ok());
        count.map_or(0, u64::from_ne_bytes)
    }
}

fn attach(device: &str, numbers: &[u64]) -> io::Result<MapHandle> {
    let index = if_nametoindex(device)?.cast_signed();
    let mut storage = MaybeUninit::uninit();
    let mut open = program::ListedLossSkelBuilder::default()
        .open(&mut storage)
        .map_err(io::Error::other)?;
    let entries = numbers.len().max(1) as u32;
    let stab = open.maps.listed.set_max_entries(entries);
    stab.map_err(io::Error::other)?;
    let skel = without_signals(|| open.load()).map_err(io::Error::other)?;
    for number in numbers {
        let stored = skel
            .maps
            .listed
            .update(&number.to_ne_bytes(), &[1], MapFlags::ANY);
        stored.map_err(io::Error::other)?;
    }
    let mut hook = TcHookBuilder::new(skel.progs.listed_loss.as_fd())
        .ifindex(index)
        .replace(true)
        .handle(1)
        .priority(1)
        .hook(TC_INGRESS);
    hook.create()
        .and_then(|mut hook| hook.attach())
        .map_err(io::Error::other)?;
    MapHandle::try_from(&skel.maps.listed_counts).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::experiment::Limit;
    use crate::testbed::tests::plan;

    #[test]
    fn bdp_limit_is_rounded_up_to_packets() {
        // 5 Mbit/s and 150 ms are 93,750 B, and the papers' queue has 63 packets.
        let mut plan = plan();
        plan.bottleneck.limit = Some(Limit::BandwidthDelayProducts(1.0));
        assert_eq!(queue(&plan.bottleneck, &plan), "pfifo limit 63");
        plan.bottleneck.queue = Discipline::Bfifo;
        assert_eq!(queue(&plan.bottleneck, &plan), "bfifo limit 93750");
    }

    #[test]
    fn queue_gets_arguments_required_by_tc() {
        let mut plan = plan();
        plan.bottleneck.limit = Some(Limit::Bytes(90_000));
        plan.bottleneck.queue = Discipline::Red;
        assert_eq!(
            queue(&plan.bottleneck, &plan),
            "red limit 90000 avpkt 1000 bandwidth 5000000bit"
        );
        plan.bottleneck.options = "avpkt 500".to_owned();
        assert_eq!(
            queue(&plan.bottleneck, &plan),
            "red limit 90000 bandwidth 5000000bit avpkt 500"
        );
        plan.bottleneck.queue = Discipline::Cake;
        plan.bottleneck.options.clear();
        assert_eq!(
            queue(&plan.bottleneck, &plan),
            "cake memlimit 90000 bandwidth 5000000bit"
        );
    }
}
