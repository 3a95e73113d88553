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
    Answering, Distribution, Group, Kind, Manner, RampUp, Reading, ReceiveConfig, Received,
    Receiver, SendReport, Sender, SocketOptions, Traffic,
};

pub const MS: Duration = Duration::from_millis(1);

/// For both ends: nobody stops them.
pub static NEVER: AtomicBool = AtomicBool::new(false);

pub fn any_port() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

/// A receiver of `streams` connections, with records, on a thread of its own.
pub fn receive(streams: usize) -> (SocketAddr, JoinHandle<Received>) {
    receive_so(streams, Reading::AtOnce, Answering::AsAsked)
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

/// Receives in the background, reading and answering in this manner.
pub fn receive_so(
    streams: usize,
    reading: Reading,
    answering: Answering,
) -> (SocketAddr, JoinHandle<Received>) {
    let receiver = receiver(streams)
        .with_manner(Manner { reading, answering })
        .unwrap();
    let address = receiver.local_addr();
    (address, thread::spawn(|| receiver.run(&NEVER).unwrap()))
}

/// So many streams of one kind for 200 ms.
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

/// 4 streams, 120 B each 5 ms for 200 ms.
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
    Sender::new(config).unwrap().run(&NEVER).unwrap()
}

/// Stands between one sender's connection and the receiver at `to`. What the sender sends goes
/// through `forward(from, to)`, and the closing of either end is passed on.
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

/// Passes on whatever comes, until the end.
pub fn pass(from: &mut TcpStream, to: &mut TcpStream) {
    // The receiver may close first, and the sender then sees it.
    let _ = std::io::copy(from, to);
}

/// Bytes of stream 5: so many messages of 120 B, and the end if that is wanted.
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

/// What the receiver says of a connection that carries `bytes` and then half-closes.
pub fn receive_bytes(bytes: &[u8]) -> Received {
    let (address, received) = receive(1);
    let mut socket = TcpStream::connect(address).unwrap();
    socket.write_all(bytes).unwrap();
    socket.shutdown(Shutdown::Write).unwrap();
    received.join().unwrap()
}

/// Thin streams that are all alike.
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
