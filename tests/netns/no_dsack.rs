//! Receiver that reports no duplicates: the stream performs like plain TCP.

use std::io::{Read, Write};
use std::net::{SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use pillion_bpf::{Counters, LossRule, Options, Outcome};
use pillion_lab::path::{Direction, PathConfig};
use pillion_tests::{HostPair, sysctl, tcp_info};

use crate::common::*;
use crate::stream::attach_with;

const DURATION: Duration = Duration::from_secs(8);
const ONE_WAY: Duration = Duration::from_millis(50);
const CLIENT_ITT: Duration = Duration::from_millis(20);
const SERVER_ITT: Duration = Duration::from_millis(50);
const MESSAGE: usize = 100;

/// Latencies, window and counters of a stream.
#[derive(Debug)]
struct Fared {
    p50: Duration,
    p90: Duration,
    cwnd: u32,
    counters: Option<Counters>,
}

/// Sends a message at each interval until `end`. Returns the send times.
fn send_messages(mut stream: &TcpStream, itt: Duration, end: Instant) -> Vec<Instant> {
    let mut next = Instant::now();
    let mut sent = Vec::new();
    while next < end {
        thread::sleep(next.saturating_duration_since(Instant::now()));
        sent.push(Instant::now());
        stream.write_all(&[1; MESSAGE]).expect("sent");
        next += itt;
    }
    sent
}

/// Reads messages until the stream ends. Returns the read times.
fn read_messages(mut stream: &TcpStream) -> Vec<Instant> {
    let mut received = Vec::new();
    while stream.read_exact(&mut [0; MESSAGE]).is_ok() {
        received.push(Instant::now());
    }
    received
}

/// Runs a client and a server that both send messages over a lossless path. With options, the
/// client's host bundles.
fn fares(options: Option<Options>) -> Fared {
    let direction = || Direction::delayed(ONE_WAY);
    let pair = HostPair::create(&PathConfig {
        forward: direction(),
        backward: direction(),
        seed: 1,
    });
    let address = SocketAddr::V4(SocketAddrV4::new(pair.receiver.address, 7777));
    let (listening, is_listening) = mpsc::channel();
    let server = pair.receiver.namespace.spawn(move || {
        sysctl("net.ipv4.tcp_dsack", "0");
        let listener = TcpListener::bind(address).expect("a listener");
        listening.send(()).expect("the client waits");
        let (stream, _) = listener.accept().expect("a connection");
        stream.set_nodelay(true).expect("TCP_NODELAY");
        thread::scope(|scope| {
            scope.spawn(|| send_messages(&stream, SERVER_ITT, Instant::now() + DURATION));
            read_messages(&stream)
        })
    });
    is_listening.recv().expect("a server");
    let client = pair.sender.namespace.enter(move || {
        sysctl("net.ipv4.tcp_congestion_control", "reno");
        let attachment = options.map(attach_with);
        let stream = TcpStream::connect(address).expect("a connection");
        stream.set_nodelay(true).expect("TCP_NODELAY");
        let reader = stream.try_clone().expect("another handle");
        thread::spawn(move || read_messages(&reader));
        let sent = send_messages(&stream, CLIENT_ITT, Instant::now() + DURATION);
        let cwnd = tcp_info(&stream).tcpi_snd_cwnd;
        stream
            .shutdown(std::net::Shutdown::Write)
            .expect("shutdown");
        let totals = attachment.map(|attachment| attachment.totals().expect("totals"));
        (sent, cwnd, totals.map(|totals| totals.counters))
    });
    let (sent, cwnd, counters) = client.expect("a client");
    let received = server.join().expect("a server").expect("its namespace");
    assert_eq!(sent.len(), received.len());
    let latencies = sent.iter().zip(&received);
    let mut latencies: Vec<_> = latencies.map(|(sent, at)| *at - *sent).collect();
    latencies.sort_unstable();
    let fared = Fared {
        p50: latencies[latencies.len() / 2],
        p90: latencies[latencies.len() * 9 / 10],
        cwnd,
        counters,
    };
    println!("{fared:?}");
    fared
}

#[test]
fn a_stream_to_a_receiver_without_dsack_fares_as_plain_tcp() {
    needs_root!();
    let plain = fares(None);
    let bundled = fares(Some(Options::default()));
    let counters = bundled.counters.expect("a bundler");
    assert_eq!((counters.hidden_losses, counters.reactions), (0, 0));
    assert!(counters.of(Outcome::NoDsack) > counters.of(Outcome::Bundled));
    assert!(bundled.p50 < plain.p50 + CLIENT_ITT / 2);
    assert!(bundled.p90 < plain.p90 + CLIENT_ITT);
    assert!(bundled.cwnd >= 10);

    let published = fares(Some(Options {
        loss_rule: LossRule::Ack,
        ..Options::default()
    }));
    let reactions = published.counters.expect("a bundler").reactions;
    assert!(
        reactions > 10,
        "the published rule takes delayed ACKs for losses: {reactions}"
    );
}
