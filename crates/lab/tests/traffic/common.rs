//! Both ends on loopback, for every test.
#![allow(dead_code, reason = "each test file uses its own part")]

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::AtomicBool;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use pillion_bpf::host::interruption::retry;
use pillion_lab::traffic::wire::{Encoder, Preface, Role};
use pillion_lab::traffic::{
    Distribution, Group, Kind, RampUp, ReadMode, ReceiveBehaviour, ReceiveConfig, ReceiveResult,
    Receiver, ResponseMode, SendReport, Sender, SocketOptions, Traffic,
};

pub const MS: Duration = Duration::from_millis(1);

/// A stop flag that is never set.
pub static NO_STOP: AtomicBool = AtomicBool::new(false);

pub fn any_port() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

/// Starts a receiver of `streams` connections, with records, on its own thread.
pub fn receive(streams: usize) -> (SocketAddr, JoinHandle<ReceiveResult>) {
    receive_with(streams, ReadMode::Immediate, ResponseMode::AsRequested)
}

fn receiver(streams: usize) -> Receiver {
    Receiver::bind(ReceiveConfig {
        listen: any_port(),
        streams: Some(streams),
        datagrams: false,
        records: true,
    })
    .unwrap()
}

/// Starts a receiver in the background with this behaviour.
pub fn receive_with(
    streams: usize,
    read_mode: ReadMode,
    response_mode: ResponseMode,
) -> (SocketAddr, JoinHandle<ReceiveResult>) {
    let receiver = receiver(streams)
        .with_behaviour(ReceiveBehaviour {
            read_mode,
            response_mode,
        })
        .unwrap();
    let address = receiver.local_addr();
    (address, thread::spawn(|| receiver.run(&NO_STOP).unwrap()))
}

/// Returns traffic of `streams` streams of one kind for 200 ms.
pub fn traffic(to: SocketAddr, streams: usize, kind: Kind) -> Traffic {
    let group = Group {
        streams,
        ..Group::new("group", kind)
    };
    Traffic {
        duration: Some(200 * MS),
        seed: 7,
        connect_timeout: Duration::from_secs(20),
        drain_timeout: Duration::from_secs(20),
        ..Traffic::new(to, group)
    }
}

/// Returns 4 streams with 120 B every 5 ms for 200 ms.
pub fn thin(to: SocketAddr) -> Thin {
    Thin {
        to,
        streams: 4,
        itt: 5 * MS,
        itt_sd: MS / 2,
        size: 120,
        duration: 200 * MS,
        ramp_up: None,
        congestion: Some("reno".to_owned()),
        seed: 7,
        connect_timeout: Duration::from_secs(20),
        drain_timeout: Duration::from_secs(20),
    }
}

pub fn send(config: impl Into<Traffic>) -> SendReport {
    Sender::new(config).unwrap().run(&NO_STOP).unwrap()
}

/// Starts a proxy between one sender's connection and the receiver at `to`. The sender's data goes
/// through `forward(from, to)`, and a close of either end is forwarded.
pub fn proxy(
    to: SocketAddr,
    forward: impl FnOnce(&mut TcpStream, &mut TcpStream) + Send + 'static,
) -> SocketAddr {
    let listener = TcpListener::bind(any_port()).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let (mut from, _) = listener.accept().unwrap();
        let mut to = TcpStream::connect(to).unwrap();
        forward(&mut from, &mut to);
        // The receiver may have closed first.
        let _ = to.shutdown(Shutdown::Write);
        let _ = retry(|| to.read(&mut [0]));
    });
    address
}

/// Forwards all data until the end.
pub fn forward_all(from: &mut TcpStream, to: &mut TcpStream) {
    // The receiver may close first, and the sender then sees it.
    let _ = std::io::copy(from, to);
}

/// Returns the bytes of stream 5: `messages` messages of 120 B, and the end if `end` is true.
pub fn connection(messages: u64, end: bool) -> Vec<u8> {
    let mut encoder = Encoder::new(Preface {
        role: Role::Sender,
        stream: 5,
        seed: 99,
        base_us: 1_000,
        answer_every: 0,
        answer_size: 0,
    });
    let mut bytes = Vec::new();
    for sequence in 0..messages {
        encoder.message(120, 1_000_000 * (sequence + 1), &mut bytes);
    }
    if end {
        encoder.end(&mut bytes);
    }
    bytes
}

/// Returns the receiver's result for a connection with `bytes` and a half-close.
pub fn receive_bytes(bytes: &[u8]) -> ReceiveResult {
    let (address, received) = receive(1);
    let mut socket = TcpStream::connect(address).unwrap();
    socket.write_all(bytes).unwrap();
    socket.shutdown(Shutdown::Write).unwrap();
    received.join().unwrap()
}

/// Identical thin streams.
#[derive(Debug, Clone)]
pub struct Thin {
    pub to: SocketAddr,
    pub streams: usize,
    pub itt: Duration,
    pub itt_sd: Duration,
    pub size: usize,
    pub duration: Duration,
    pub ramp_up: Option<Duration>,
    pub congestion: Option<String>,
    pub seed: u64,
    pub connect_timeout: Duration,
    pub drain_timeout: Duration,
}

impl From<Thin> for Traffic {
    fn from(thin: Thin) -> Self {
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        let itt = match thin.itt_sd.is_zero() {
            true => Distribution::constant(ms(thin.itt)),
            false => Distribution::Normal {
                mean: ms(thin.itt),
                sd: ms(thin.itt_sd),
            },
        };
        let size = Distribution::constant(thin.size as f64);
        let group = Group {
            streams: thin.streams,
            ramp_up: thin.ramp_up.map_or(RampUp::Spread, RampUp::Fixed),
            socket: SocketOptions {
                congestion: thin.congestion,
                ..SocketOptions::default()
            },
            ..Group::new("thin", Kind::Thin { itt, size })
        };
        Self {
            duration: Some(thin.duration),
            seed: thin.seed,
            connect_timeout: thin.connect_timeout,
            drain_timeout: thin.drain_timeout,
            ..Self::new(thin.to, group)
        }
    }
}
