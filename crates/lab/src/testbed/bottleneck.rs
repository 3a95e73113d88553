//! The queueing disciplines of the testbed: bottleneck, links of the senders, emulated delay and loss.

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
    Bottleneck, Discipline, Emulation, Limit, Loss, Plan, Rate, SOURCE_PORTS, SendingHost, Shaper,
};
use crate::{Error, Namespace, kernel_release};

/// The queue's handle, by which it is found among the counters.
pub const QUEUE: &str = "10:";

/// Puts a bottleneck's rate and queue on a device of the router's.
pub(super) fn build(
    router: &Node,
    device: &str,
    bottleneck: &Bottleneck,
    plan: &Plan,
) -> Result<(), Error> {
    let queue = queue(bottleneck, plan);
    let burst = bottleneck.burst;
    let alone = bottleneck.queue == Discipline::Cake;
    let rate = bottleneck.rate.map(Rate::bps).filter(|_| !alone);
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
        // The limit is that of a queue which ours takes the place of.
        (Some(rate), Shaper::Tbf) => vec![format!(
            "qdisc add dev {device} root handle 1: tbf rate {rate}bit burst {burst} limit {burst}"
        )],
    };
    lines.push(format!(
        "qdisc add dev {device} {parent} handle {QUEUE} {queue}"
    ));
    router.run_batch("tc", &lines).map_err(lacking)
}

/// The queue in the words of `tc`.
fn queue(bottleneck: &Bottleneck, plan: &Plan) -> String {
    let discipline = bottleneck.queue;
    let mut words = vec![discipline.to_string()];
    let mut add = |name: &str, value: String| words.extend([name.to_owned(), value]);
    if let Some(limit) = bottleneck
        .limit
        .and_then(|limit| in_units(limit, bottleneck, plan))
    {
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
    let given = |word| options().any(|option| option == word);
    match discipline {
        Discipline::Cake => add("bandwidth", rate.unwrap_or_else(|| "unlimited".to_owned())),
        Discipline::Red => {
            if !given("avpkt") {
                add("avpkt", "1000".to_owned());
            }
            if let Some(rate) = rate.filter(|_| !given("bandwidth")) {
                add("bandwidth", rate);
            }
        }
        _ => {}
    }
    words.extend(options().map(str::to_owned));
    words.join(" ")
}

/// The queue's limit in packets or bytes, as the discipline counts.
fn in_units(limit: Limit, bottleneck: &Bottleneck, plan: &Plan) -> Option<u64> {
    const PACKET: f64 = 1500.0;
    Some(match limit {
        Limit::Packets(count) | Limit::Bytes(count) => count.into(),
        Limit::BandwidthDelayProducts(products) => {
            let bytes = products * plan.bdp_bytes(bottleneck)?;
            // Rounded up, as in the thesis, section 4.1.
            match bottleneck.queue.counts_bytes() {
                true => bytes.ceil() as u64,
                false => (bytes / PACKET).ceil() as u64,
            }
        }
    })
}

/// The error of a discipline that is not built into the kernel.
pub(super) fn lacking(error: Error) -> Error {
    match error {
        Error::Command {
            command, reason, ..
        } if reason.contains("qdisc kind is unknown") => Error::Lacks {
            what: format!("a queue discipline of `{command}`"),
            kernel: kernel_release(),
        },
        other => other,
    }
}

// The links between the sending hosts and the bridge.

/// Gives a sending host's link its rate and its delay.
pub(super) fn build_link(host: &SendingHost, here: Port, bridge: Port) -> Result<(), Error> {
    let delayed = Emulation {
        delay: host.delay,
        ..Emulation::default()
    };
    let device = here.device;
    let mut lines = Vec::new();
    let mut parent = "root";
    if let Some(rate) = host.rate_bps {
        // The size table is read behind pillion's program, which makes packets longer.
        let sized = "stab overhead 0 linklayer ethernet";
        lines.push(format!(
            "qdisc add dev {device} root handle 1: {sized} htb default 1"
        ));
        lines.push(format!(
            "class add dev {device} parent 1: classid 1:1 htb rate {rate}bit \
             burst 1520 cburst 1520 quantum 1514"
        ));
        parent = "parent 1:1";
    }
    if host.delay > Duration::ZERO {
        let netem = netem_words(&delayed);
        lines.push(format!(
            "qdisc add dev {device} {parent} handle 20: {netem}"
        ));
        let back = format!("qdisc add dev {} root handle 20: {netem}", bridge.device);
        bridge.node.run_batch("tc", &[back]).map_err(lacking)?;
    } else if host.rate_bps.is_some() {
        // As much as a device's queue holds by default.
        lines.push(format!(
            "qdisc add dev {device} {parent} handle 20: pfifo limit 1000"
        ));
    }
    here.node.run_batch("tc", &lines).map_err(lacking)
}

// The kernel's emulator.

/// Packets that netem may hold: more than any path here does.
const LIMIT: u32 = 1_000_000;

/// True if the running kernel has netem.
///
/// # Errors
/// [`Error::Namespace`], or [`Error::System`] where there is no `tc`.
pub(super) fn netem_is_there() -> Result<bool, Error> {
    let namespace = Namespace::create().map_err(|source| Error::Namespace {
        name: "of a trial".to_owned(),
        source,
    })?;
    let trial = ["qdisc", "add", "dev", "lo", "root", "netem"];
    let action = "run tc, which is of iproute2";
    let output = namespace.run("tc", &trial, "");
    let output = output.map_err(|source| Error::System { action, source })?;
    Ok(output.status.success())
}

/// What netem is to do, in the words of `tc`. It has no part in jitter.
fn netem_words(emulation: &Emulation) -> String {
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
        Some(Loss::Listed(_)) | None => {}
    }
    if let Some(disturbance) = emulation.disturbance.filter(|it| it.duplicate > 0.0) {
        words += &format!(" duplicate {}", percent(disturbance.duplicate));
    }
    words
}

/// Commands of `tc` that emulate one direction on the device that sends in it.
pub(super) fn netem_lines(device: &str, emulation: &Emulation) -> Vec<String> {
    let words = netem_words(emulation);
    let mut lines = vec![format!("qdisc add dev {device} root handle 1: {words}")];
    if let Some(disturbance) = emulation.disturbance.filter(|it| it.reorder > 0.0) {
        // Behind the path's own delay, all but some pass a second one at once.
        let late = time(disturbance.late);
        let at_once = percent(1.0 - disturbance.reorder);
        lines.push(format!(
            "qdisc add dev {device} parent 1:1 handle 2: netem limit {LIMIT} delay {late} \
             reorder {at_once}"
        ));
    }
    lines
}

/// The same, otherwise for each stream that has anything of its own, by its number. Its packets have the
/// stream's source port as `port`: `proto-src` or `proto-dst`.
pub(super) fn netem_lines_by_stream(
    device: &str,
    emulation: &Emulation,
    port: &str,
    own: &[(u32, Emulation)],
) -> Vec<String> {
    // Classes whose rate never holds anything up.
    let class = "htb rate 10gbit quantum 60000";
    const OTHERS: &str = "ffff";
    let mut lines = vec![format!(
        "qdisc add dev {device} root handle 1: htb default {OTHERS}"
    )];
    let others = [(OTHERS.to_owned(), emulation)];
    let own = own.iter();
    let own = own.map(|(stream, own)| (format!("{:x}", stream + 1), own));
    for (minor, emulation) in others.into_iter().chain(own) {
        let words = netem_words(emulation);
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

/// A duration in microseconds, in the words of `tc`.
fn time(duration: Duration) -> String {
    format!("{}us", duration.as_micros())
}

fn percent(share: f64) -> String {
    format!("{}%", share * 100.0)
}

// Loss of listed packets, which netem does not know.

#[allow(missing_docs, clippy::all, clippy::undocumented_unsafe_blocks)]
#[allow(clippy::cast_lossless, clippy::semicolon_if_nothing_returned)]
#[allow(dead_code, unsafe_op_in_unsafe_fn)]
mod program {
    include!(concat!(env!("OUT_DIR"), "/listed_loss.skel.rs"));
}

/// The program that drops listed packets at a device. It stays there as long as the device does.
#[derive(Debug)]
pub struct ListedLoss(MapHandle);

/// The key under which the program counts what it dropped.
const DROPPED: u32 = 1;

impl ListedLoss {
    /// Drops the packets with these numbers, counted from 1, of those that arrive at a device.
    pub(super) fn attach(node: &Node, device: &str, numbers: &[u64]) -> Result<Self, Error> {
        let (device, numbers) = (device.to_owned(), numbers.to_vec());
        let attached = node.enter(move || attach(&device, &numbers))?;
        attached.map(Self).map_err(|source| Error::System {
            action: "put the program that drops listed packets to work",
            source,
        })
    }

    /// Packets that the program dropped.
    pub(super) fn dropped(&self) -> u64 {
        let count = self.0.lookup(&DROPPED.to_ne_bytes(), MapFlags::ANY);
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
    let sized = open.maps.listed.set_max_entries(entries);
    sized.map_err(io::Error::other)?;
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
    use crate::testbed::tests::plan;

    #[test]
    fn a_limit_in_products_is_rounded_up_to_whole_packets() {
        // 5 Mbit/s and 150 ms are 93,750 B, and the papers' queue has 63 packets.
        let mut plan = plan();
        plan.bottleneck.limit = Some(Limit::BandwidthDelayProducts(1.0));
        assert_eq!(queue(&plan.bottleneck, &plan), "pfifo limit 63");
        plan.bottleneck.queue = Discipline::Bfifo;
        assert_eq!(queue(&plan.bottleneck, &plan), "bfifo limit 93750");
    }

    #[test]
    fn a_queue_gets_what_tc_insists_on_unless_the_experiment_says_it() {
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
