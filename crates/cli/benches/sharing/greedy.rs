//! Streams that send as much as they can.

use std::ffi::OsString;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use std::{io, iter};

use nix::sys::socket::{setsockopt, sockopt};
use pillion_lab::Lane;

/// Not that of the thin streams.
pub const PORT: u16 = 7778;

/// Between the starts of two, as the papers have it (LCN 2015, section IV.B).
const RAMP_UP: Duration = Duration::from_millis(100);

/// Greedy streams at work, from a lane's sender to its receiver.
pub struct Greedy {
    streams: Vec<TcpStream>,
    writers: Vec<JoinHandle<()>>,
    reader: JoinHandle<io::Result<()>>,
}

impl Greedy {
    /// All of them have begun when this returns.
    pub fn start(lane: &Lane, count: usize, congestion: &str) -> io::Result<Self> {
        let address = SocketAddr::from((lane.receiver.address, PORT));
        let listener = lane
            .receiver
            .namespace
            .enter(move || TcpListener::bind(address))??;
        let reader = thread::spawn(move || read_all(&listener, count));
        let (mut streams, mut writers) = (Vec::new(), Vec::new());
        for _ in 0..count {
            let stream = lane
                .sender
                .namespace
                .enter(move || TcpStream::connect(address))??;
            setsockopt(&stream, sockopt::TcpCongestion, &OsString::from(congestion))?;
            let mut writer = stream.try_clone()?;
            streams.push(stream);
            writers.push(thread::spawn(move || {
                let buffer = [0; 64 << 10];
                while writer.write_all(&buffer).is_ok() {}
            }));
            thread::sleep(RAMP_UP);
        }
        Ok(Self {
            streams,
            writers,
            reader,
        })
    }

    /// Breaks them off.
    pub fn stop(self) -> io::Result<()> {
        for stream in &self.streams {
            // A stream that broke is no matter: its throughput shows it.
            let _ = stream.shutdown(Shutdown::Both);
        }
        let joined = self.writers.into_iter().try_for_each(JoinHandle::join);
        drop(self.streams);
        let panicked = || io::Error::other("a greedy stream's thread panicked");
        joined.map_err(|_| panicked())?;
        self.reader.join().map_err(|_| panicked())?
    }
}

/// Accepts so many connections, and reads each to its end.
fn read_all(listener: &TcpListener, count: usize) -> io::Result<()> {
    let accept = || listener.accept().map(|(stream, _)| stream);
    let streams: io::Result<Vec<TcpStream>> = iter::repeat_with(accept).take(count).collect();
    let readers = streams?.into_iter().map(|mut stream| {
        thread::spawn(move || {
            let mut buffer = [0; 64 << 10];
            while stream.read(&mut buffer).is_ok_and(|bytes| bytes > 0) {}
        })
    });
    for reader in readers.collect::<Vec<_>>() {
        let _ = reader.join();
    }
    Ok(())
}
