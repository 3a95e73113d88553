//! Thin streams whose peers may answer.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use pillion_report::Distribution;
use pillion_traffic::{SendConfig, Sender};

use crate::args::Args;

pub const MESSAGE: [u8; 120] = [0x5a; 120];

/// How long losses of the last messages may take to be repaired.
const DRAIN: Duration = Duration::from_secs(2);

/// Sends for as long as the arguments say. The connections are left open, so that what the
/// bundler knows of them can be read; with them, the 99th percentile of lateness in
/// microseconds.
pub fn send(args: &Args, to: SocketAddr) -> io::Result<(Vec<TcpStream>, f64)> {
    let connect = |_| {
        let stream = TcpStream::connect(to)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(stream)
    };
    let mut streams: Vec<TcpStream> = (0..args.streams).map(connect).collect::<io::Result<_>>()?;
    let begun = Instant::now();
    let mut late = Vec::new();
    for (due, stream) in schedule(args, to)? {
        thread::sleep(due.saturating_sub(begun.elapsed()));
        late.push((begun.elapsed() - due).as_secs_f64() * 1e6);
        exchange(&mut streams[stream as usize])?;
    }
    thread::sleep(DRAIN);
    let late = Distribution::new(late).quantile(0.99);
    Ok((streams, late.unwrap_or_default()))
}

/// When each message is due, and on which stream, in order.
fn schedule(args: &Args, to: SocketAddr) -> io::Result<Vec<(Duration, u32)>> {
    let itt = Duration::from_secs_f64(args.itt / 1e3);
    let sender = Sender::new(SendConfig {
        to,
        streams: args.streams as usize,
        itt,
        itt_sd: itt / 10,
        size: MESSAGE.len(),
        duration: Duration::from_secs_f64(args.seconds),
        ramp_up: None,
        congestion: None,
        seed: args.seed,
        connect_timeout: DRAIN,
        drain_timeout: DRAIN,
    });
    Ok(sender.map_err(io::Error::other)?.due())
}

/// Takes what was answered, and sends a message; one that finds no room is left out.
fn exchange(stream: &mut TcpStream) -> io::Result<()> {
    let mut buffer = [0; 64 << 10];
    let waits = |error: &io::Error| error.kind() == ErrorKind::WouldBlock;
    match stream.read(&mut buffer) {
        Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
        Err(error) if !waits(&error) => return Err(error),
        _ => {}
    }
    match stream.write(&MESSAGE) {
        Err(error) if !waits(&error) => Err(error),
        _ => Ok(()),
    }
}
