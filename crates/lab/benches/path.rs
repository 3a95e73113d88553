//! Measures the packet rate of a path, and the error of its delay. Needs root.
//!
//! `cargo bench -p pillion-lab --bench path`, with `-- --json` for machines.

#[path = "../tests/path/common.rs"]
mod common;

use std::{
    fs,
    net::UdpSocket,
    thread,
    time::{Duration, Instant},
};

use common::{Hosts, delay, ip, root};
use hdrhistogram::Histogram;
use pillion_lab::path::{DelayError, PathConfig};
use serde_json::{Value, json};

const PAYLOAD: usize = 120;
/// Largest share of packets that may be missing at a sustained rate, 0 to 1.
const TOLERANCE: f64 = 0.001;

fn main() {
    if !root("path bench") {
        return;
    }
    let json = std::env::args().any(|argument| argument == "--json");
    let (rate, timing) = (packet_rate(), delay_error());
    if json {
        println!(
            "{:#}",
            json!({ "packet_rate": rate.json(), "delay_error": timing.json() })
        );
    } else {
        println!("{}\n{}", rate.text(), timing.text());
    }
}

/// A run of packets at a fixed rate.
struct Trial {
    offered_pps: f64,
    received_pps: f64,
    sustained: bool,
    /// Share of a core that the path's thread used.
    cores: f64,
    /// The path's own record of its delay error.
    error: DelayError,
    /// Time from send to receive, less the delay, in microseconds.
    excess: Histogram<u64>,
}

/// Finds the highest rate sustained for two seconds, by doubling and then halving the interval.
/// Each rate has three attempts, so that a busy neighbour does not end the search.
fn packet_rate() -> Trial {
    let attempt = |pps| {
        let mut trials = (0..3).map(|_| Trial::run(pps, 10, Duration::from_secs(2)));
        trials.find(|trial| trial.sustained)
    };
    let mut best = attempt(5_000.0).expect("5000 packets/s; this machine is too busy to measure");
    let mut limit = f64::INFINITY;
    while limit - best.offered_pps > best.offered_pps / 16.0 {
        let next = (best.offered_pps * 2.0).min((best.offered_pps + limit) / 2.0);
        match attempt(next) {
            Some(trial) => best = trial,
            None => limit = next,
        }
    }
    best
}

fn delay_error() -> Trial {
    Trial::run(1_000.0, 75, Duration::from_secs(20))
}

impl Trial {
    fn run(pps: f64, delay_ms: u64, length: Duration) -> Self {
        let hosts = Hosts::join(&PathConfig {
            forward: delay(delay_ms),
            backward: delay(delay_ms),
            seed: 1,
        });
        // A longer queue before the path would hide that the path is too slow.
        hosts.run(0, || ip("link set path0 txqueuelen 500"));
        let [from, to] = [hosts.socket(0), hosts.socket(1)];
        let cpu_before = path_cpu();
        let start = Instant::now();
        let (sent, excess) = thread::scope(|scope| {
            let receiver = scope.spawn(|| receive(&to, start, Duration::from_millis(delay_ms)));
            let sent = send(&from, start, pps, length);
            (sent, receiver.join().unwrap())
        });
        let cores = (path_cpu() - cpu_before).div_duration_f64(length);
        let planned = pps * length.as_secs_f64();
        let received = excess.len() as f64;
        Self {
            offered_pps: pps,
            received_pps: received / length.as_secs_f64(),
            sustained: sent as f64 > planned * 0.99 && received >= sent as f64 * (1.0 - TOLERANCE),
            cores,
            error: hosts.path.stop().forward.delay_error,
            excess,
        }
    }

    fn json(&self) -> Value {
        json!({
            "packets_per_s": self.received_pps,
            "payload_bytes": PAYLOAD,
            "path_cores": self.cores,
            "packets_per_core_s": self.received_pps / self.cores,
            "delay_error": self.error,
            "send_to_receive_excess": summary(&self.excess),
        })
    }

    fn text(&self) -> String {
        let line = |name, error: DelayError| {
            let DelayError {
                p50_us,
                p99_us,
                max_us,
            } = error;
            format!("  {name:34} p50 {p50_us:5} us, p99 {p99_us:5} us, max {max_us:5} us\n")
        };
        format!(
            "{:.0} packets/s of {PAYLOAD} B payload, {:.1} % of one core: {:.0} packets per second of one core\n{}{}",
            self.received_pps,
            self.cores * 100.0,
            self.received_pps / self.cores,
            line("delay error", self.error),
            line("send to receive, beyond the delay", summary(&self.excess)),
        )
    }
}

fn summary(errors: &Histogram<u64>) -> DelayError {
    DelayError {
        p50_us: errors.value_at_quantile(0.50),
        p99_us: errors.value_at_quantile(0.99),
        max_us: errors.max(),
    }
}

/// Sends at `pps`, each packet with its time since `start`. Sends in bursts once a millisecond: a
/// sleep per packet would need more precision than a thread without its own core has. Returns the
/// number of packets sent.
fn send(socket: &UdpSocket, start: Instant, pps: f64, length: Duration) -> u64 {
    let mut payload = [0; PAYLOAD];
    let mut sent = 0;
    while start.elapsed() < length {
        let due = (start.elapsed().as_secs_f64() * pps) as u64;
        while sent < due && start.elapsed() < length {
            let stamp = start.elapsed().as_nanos() as u64;
            payload[..8].copy_from_slice(&stamp.to_le_bytes());
            socket.send(&payload).unwrap();
            sent += 1;
        }
        thread::sleep(Duration::from_millis(1));
    }
    sent
}

/// Receives until the socket is silent for half a second. Returns the delay of each packet beyond
/// `delay`, in microseconds.
fn receive(socket: &UdpSocket, start: Instant, delay: Duration) -> Histogram<u64> {
    socket
        .set_read_timeout(Some(Duration::from_millis(500)))
        .unwrap();
    let mut excess = Histogram::new_with_bounds(1, 60_000_000, 2).unwrap();
    let mut payload = [0; PAYLOAD];
    while socket.recv(&mut payload).is_ok() {
        let stamp = u64::from_le_bytes(payload[..8].try_into().unwrap());
        let late = start.elapsed() - Duration::from_nanos(stamp) - delay;
        excess.saturating_record(late.as_micros() as u64);
    }
    excess
}

/// Returns the CPU time of the path's thread; the process runs one path at a time.
fn path_cpu() -> Duration {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    let nanoseconds = tasks.filter_map(|task| {
        let task = task.ok()?.path();
        let name = fs::read_to_string(task.join("comm")).ok()?;
        let schedstat = fs::read_to_string(task.join("schedstat")).ok()?;
        let on_cpu = schedstat.split(' ').next()?.parse::<u64>().ok()?;
        (name.trim() == "pillion-path").then_some(on_cpu)
    });
    Duration::from_nanos(nanoseconds.sum())
}
