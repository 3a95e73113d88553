//! Packets per second of one core's time read from a trace in the page cache. Time of other
//! processes does not count.
//!
//! `cargo bench -p pillion-trace --bench input`, with `-- --json` for machines.

#[path = "../tests/traces/common.rs"]
mod common;

use std::{collections::BTreeMap, env, fs, io::Write, time::Duration};

use common::{ETHERNET, IPV4, Order, Pcap, PcapNg, ethernet, ipv4, tcp_with};
use nix::time::{ClockId, clock_gettime};
use pillion_trace::input;
use serde_json::json;

const PACKETS: u64 = 2_000_000;
const ROUNDS: usize = 5;

fn main() {
    // Timestamps, and 34 bytes of payload: 100 bytes in all.
    let options = [1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2];
    let frame = ethernet(IPV4, &ipv4(&tcp_with(0x18, &options, &[7; 34])));
    assert_eq!(frame.len(), 100);
    let times = || (0..PACKETS).map(|number| number * 1000);
    let pcap = times().fold(
        Pcap::microseconds(Order::Little, ETHERNET),
        |file, at_ns| file.frame(at_ns, &frame),
    );
    let pcapng = times().fold(
        PcapNg::new(Order::Little).interface(ETHERNET, 0),
        |file, ticks| file.enhanced(0, ticks, &frame, frame.len()),
    );
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gzip.write_all(&pcap.bytes).expect("memory");
    let rates = [
        ("pcap_packets_per_s", rate(&pcap.bytes)),
        ("pcapng_packets_per_s", rate(&pcapng.bytes)),
        (
            "pcap_gzip_packets_per_s",
            rate(&gzip.finish().expect("memory")),
        ),
        (
            "pcap_zstd_packets_per_s",
            rate(&zstd::encode_all(&pcap.bytes[..], 3).expect("memory")),
        ),
    ];
    if env::args().any(|argument| argument == "--json") {
        println!(
            "{:#}",
            json!({ "input": rates.into_iter().collect::<BTreeMap<_, _>>() })
        );
    } else {
        for (name, rate) in rates {
            println!("{name:24} {:6.1} million", rate / 1e6);
        }
    }
}

/// The best of several rounds, because other processes share the caches.
fn rate(trace: &[u8]) -> f64 {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("trace");
    fs::write(&path, trace).expect("room for the trace");
    let round = || {
        let start = processor_time();
        let mut input = input::open(&path).expect("a trace");
        let payload: u64 = input
            .by_ref()
            .map(|packet| u64::from(packet.payload_len))
            .sum();
        assert_eq!(payload, 34 * PACKETS);
        processor_time() - start
    };
    let best = (0..ROUNDS).map(|_| round()).min();
    PACKETS as f64 / best.unwrap_or(Duration::MAX).as_secs_f64()
}

fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("a clock of this thread");
    time.into()
}
