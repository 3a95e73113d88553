//! Throughput of a greedy stream between two network namespaces joined by a veth pair: without
//! pillion, with a pillion for another port, and with one for its port. The cases alternate, so
//! that a drift of the CPU frequency affects all equally.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use pillion_lab::Namespace;

use crate::PILLION;

const ROUNDS: usize = 5;
const SECONDS: u64 = 2;
const PORT: u16 = 7777;

/// Cases: name, and port of pillion, if attached.
const CASES: [(&str, Option<&str>); 3] = [
    ("without pillion", None),
    ("attached, other port", Some("1")),
    ("attached, same port", Some("7777")),
];

pub fn print() {
    let (sender, receiver) = pair();
    let mut rates = [const { Vec::new() }; CASES.len()];
    for _ in 0..ROUNDS {
        for ((_, port), rates) in CASES.iter().zip(&mut rates) {
            let attached = port.map(|port| attach(&sender, port));
            rates.push(throughput_of_greedy_stream(&sender, &receiver));
            if let Some(mut attached) = attached {
                attached.kill().expect("it runs");
                attached.wait().expect("it ends");
            }
        }
    }
    println!("\ngreedy stream between two namespaces (veth), {ROUNDS} rounds of {SECONDS} s");
    println!(
        "{:<20} {:>14} {:>20}",
        "case", "Gbit/s median", "ratio min/med/max"
    );
    let plain = rates[0].clone();
    for ((name, _), rates) in CASES.iter().zip(&rates) {
        let ratios = sorted(rates.iter().zip(&plain).map(|(rate, plain)| rate / plain));
        println!(
            "{name:<20} {:>14.2} {:>8.3} {:>5.3} {:>5.3}",
            sorted(rates.iter().copied())[ROUNDS / 2],
            ratios[0],
            ratios[ROUNDS / 2],
            ratios[ROUNDS - 1]
        );
    }
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<_> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}

fn pair() -> (Namespace, Namespace) {
    let (a, b) = (
        Namespace::create().expect("a namespace"),
        Namespace::create().expect("another"),
    );
    // The peer device is created in the other namespace, which a process must keep alive.
    let mut holder = b.command("sleep").arg("60").spawn().expect("sleep runs");
    let holder_id = holder.id().to_string();
    ip(
        &a,
        &[
            "link", "add", "veth0", "type", "veth", "peer", "veth1", "netns", &holder_id,
        ],
    );
    holder.kill().expect("it runs");
    holder.wait().expect("it ends");
    for (namespace, device, address) in
        [(&a, "veth0", "10.77.0.1/24"), (&b, "veth1", "10.77.0.2/24")]
    {
        ip(namespace, &["address", "add", address, "dev", device]);
        ip(namespace, &["link", "set", device, "up"]);
    }
    (a, b)
}

fn ip(namespace: &Namespace, arguments: &[&str]) {
    assert!(
        namespace
            .command("ip")
            .args(arguments)
            .status()
            .expect("ip runs")
            .success()
    );
}

fn attach(namespace: &Namespace, port: &str) -> Child {
    let mut command = namespace.command(PILLION);
    let child = command
        .args(["attach", "--port", port])
        .stderr(Stdio::null())
        .spawn();
    thread::sleep(Duration::from_millis(500));
    child.expect("pillion runs")
}

/// Returns the throughput of a greedy stream, in Gbit/s of payload.
fn throughput_of_greedy_stream(sender: &Namespace, receiver: &Namespace) -> f64 {
    let listener = receiver
        .enter(|| TcpListener::bind(("10.77.0.2", PORT)))
        .expect("enter");
    let listener = listener.expect("listen");
    let reader = thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("accept");
        let mut buffer = vec![0; 1 << 18];
        while stream.read(&mut buffer).is_ok_and(|read| read > 0) {}
    });
    let to = SocketAddr::from(([10, 77, 0, 2], PORT));
    let sent = sender.enter(move || {
        let mut stream = TcpStream::connect(to).expect("connect");
        let buffer = vec![0; 1 << 17];
        let (started_at, mut bytes) = (Instant::now(), 0);
        while started_at.elapsed() < Duration::from_secs(SECONDS) {
            stream.write_all(&buffer).expect("write");
            bytes += buffer.len();
        }
        bytes as f64 * 8e-9 / started_at.elapsed().as_secs_f64()
    });
    reader.join().expect("the reader ends");
    sent.expect("enter")
}
