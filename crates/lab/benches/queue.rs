//! Measures the cost of the queue probe: time in each of its programs, and packets per second
//! through a queue with and without it. As root: `cargo bench -p pillion-lab --bench queue`.

use std::net::UdpSocket;
use std::os::fd::{FromRawFd, OwnedFd};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use libbpf_rs::query::{ProgInfoIter, ProgramInfo};
use nix::sched::{CloneFlags, unshare};
use pillion_lab::queue::{Recording, Target};

const ROUNDS: usize = 5;
const ROUND: Duration = Duration::from_secs(1);

/// The cases: a name, and the observed device if there is one.
const CASES: [(&str, Option<&str>); 3] = [
    ("not observed", None),
    ("other device observed", Some("v2")),
    ("observed", Some("v0")),
];

fn main() {
    // `cargo test --benches` only checks that the benchmark builds.
    if std::env::args().any(|argument| argument == "--test") {
        return;
    }
    if !nix::unistd::Uid::effective().is_root() {
        println!("skipped: benchmarks of the queue probe need root");
        return;
    }
    make_devices();
    throughput();
    programs();
}

/// Creates the devices in a new network namespace of this process. Packets leave by `v0`, through a
/// queue.
fn make_devices() {
    unshare(CloneFlags::CLONE_NEWNET).expect("a network namespace");
    for line in [
        "ip link add v0 type veth peer name v1",
        "ip link add v2 type veth peer name v3",
        "ip address add 10.79.0.1/24 dev v0",
        "ip link set v0 arp off up",
        "ip link set v1 up",
        "tc qdisc add dev v0 root handle 1: htb default 1",
        "tc class add dev v0 parent 1: classid 1:1 htb rate 100gbit",
        "tc qdisc add dev v0 parent 1:1 pfifo limit 1000",
    ] {
        let mut words = line.split(' ');
        let mut command = Command::new(words.next().unwrap_or_default());
        assert!(
            command.args(words).status().is_ok_and(|it| it.success()),
            "{line}"
        );
    }
}

fn observe(device: &str, seen: &Arc<AtomicU64>) -> Recording {
    let target = Target::find(device).expect("the device");
    let seen = Arc::clone(seen);
    let count = move |_| {
        seen.fetch_add(1, Ordering::Relaxed);
        Ok(())
    };
    Recording::start(&target, count).expect("the probe")
}

/// Sends packets with 100 bytes of payload from one thread. Returns packets per second.
fn send() -> f64 {
    let socket = UdpSocket::bind("10.79.0.1:7000").expect("a socket");
    socket.connect("10.79.0.2:7001").expect("a route");
    let start = Instant::now();
    let mut sent = 0u32;
    while start.elapsed() < ROUND {
        for _ in 0..100 {
            let _ = socket.send(&[7; 100]);
        }
        sent += 100;
    }
    f64::from(sent) / start.elapsed().as_secs_f64()
}

fn throughput() {
    let mut rates = [const { Vec::new() }; CASES.len()];
    let seen = Arc::new(AtomicU64::new(0));
    for _ in 0..ROUNDS {
        for ((_, device), rates) in CASES.iter().zip(&mut rates) {
            let recording = device.map(|device| observe(device, &seen));
            rates.push(send());
            recording.map_or(Ok(()), Recording::stop).expect("it stops");
        }
    }
    println!("packets from one thread through htb and pfifo, {ROUNDS} rounds of 1 s, in turn");
    println!(
        "{:<20} {:>16} {:>20}",
        "case", "1/s, median", "ratio min/med/max"
    );
    let plain = rates[0].clone();
    for ((name, _), rates) in CASES.iter().zip(&rates) {
        let ratios = sorted(rates.iter().zip(&plain).map(|(rate, plain)| rate / plain));
        let median = sorted(rates.iter().copied())[ROUNDS / 2];
        let [min, mid, max] = [0, ROUNDS / 2, ROUNDS - 1].map(|index| ratios[index]);
        println!("{name:<20} {median:>16.0} {min:>8.3} {mid:>5.3} {max:>5.3}");
    }
    println!("packets seen: {}", seen.load(Ordering::Relaxed));
}

/// Prints the cost of each program as the kernel counts it; this includes two clock readings per
/// run.
fn programs() {
    // SAFETY: a plain system call; the result is checked.
    let counting = unsafe { libbpf_sys::bpf_enable_stats(libbpf_sys::BPF_STATS_RUN_TIME) };
    assert!(
        counting >= 0,
        "{}",
        std::io::Error::from_raw_os_error(-counting)
    );
    // SAFETY: a new file descriptor without another owner.
    let _counting = unsafe { OwnedFd::from_raw_fd(counting) };
    for device in ["v0", "v2"] {
        let recording = observe(device, &Arc::default());
        let packets = send() * ROUND.as_secs_f64();
        println!("\n{packets:.0} packets by v0, and {device} is observed");
        println!("{:<20} {:>10} {:>10}", "program", "runs", "ns a run");
        let is_ours = |info: &ProgramInfo| info.name.as_encoded_bytes().starts_with(b"queue_");
        for info in ProgInfoIter::default().filter(is_ours) {
            let name = info.name.to_string_lossy();
            let each = info.run_time_ns as f64 / (info.run_cnt as f64).max(1.0);
            println!("{name:<20} {:>10} {each:>10.0}", info.run_cnt);
        }
        recording.stop().expect("it stops");
    }
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<_> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}
