//! A client that sends a line each 30 ms, as a game or a terminal would, and switches
//! bundling on for its own connection:
//!
//! ```text
//! pillion attach &
//! cargo run -p pillion-bpf --example switch -- ADDRESS:PORT
//! ```

use std::io::{self, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use pillion_bpf::host::pillion;

const LINES: u32 = 50;

fn main() -> io::Result<()> {
    let Some(address) = std::env::args().nth(1) else {
        return Err(io::Error::other(
            "expected the receiver, as in 192.0.2.1:7777",
        ));
    };
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    match pillion::set(&stream, pillion::BUNDLE, 1) {
        Ok(()) => {}
        // Continues without bundling: the connection works as usual.
        Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => {
            eprintln!("no pillion is at work here");
        }
        Err(error) => eprintln!("bundling refused: {error}"),
    }
    for line in 0..LINES {
        writeln!(stream, "line {line}")?;
        thread::sleep(Duration::from_millis(30));
    }
    if let Ok(stats) = pillion::stats(&stream) {
        println!(
            "{} segments, {} bundled, {} redundant bytes, {} losses hidden",
            stats.segments, stats.bundled, stats.redundant_bytes, stats.hidden_losses
        );
    }
    Ok(())
}
