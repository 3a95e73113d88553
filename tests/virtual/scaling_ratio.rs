//! Sender and receiver in one kernel, and segments that grow on their way although their truesize does
//! not: `net.ipv4.tcp_clamp_scaling_ratio` (lab-kernel/patches/0012).

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::thread;
use std::time::Duration;

use pillion_tests::{SegmentPadder, isolated, segment_overhead, sysctl, tcp_info};

use crate::common::*;

const CLAMP: &str = "net.ipv4.tcp_clamp_scaling_ratio";
/// Payload of a segment before it grows, in bytes.
const PAYLOAD: usize = 448;
const PAUSE: Duration = Duration::from_millis(50);

/// A connection over the loopback device, in its own network namespace.
struct Connection {
    sender: TcpStream,
    receiver: TcpStream,
}

impl Connection {
    fn open() -> Self {
        let up = Command::new("ip")
            .args(["link", "set", "lo", "up"])
            .status();
        assert!(up.unwrap().success());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (receiver, _) = listener.accept().unwrap();
        Self { sender, receiver }
    }

    /// Sends a segment, after a pause that gives the receiver a round-trip time. Without one the
    /// receiver does not adjust its window.
    fn send(&mut self) {
        thread::sleep(PAUSE);
        self.sender.write_all(&[0; PAYLOAD]).unwrap();
        thread::sleep(PAUSE);
    }

    fn read(&mut self) {
        self.receiver.read_exact(&mut [0; PAYLOAD]).unwrap();
    }

    /// Sends a segment that grows on its way until its payload exceeds its truesize by `excess`
    /// bytes.
    fn send_grown_to_truesize(&mut self, excess: i32) {
        self.send();
        self.read();
        let growth = segment_overhead().saturating_add_signed(excess);
        let _growth = SegmentPadder::start("lo", growth);
        self.send();
    }

    /// Returns the bytes that the receiver's kernel expects in a round trip; at most its window.
    fn receive_space(&self) -> u32 {
        tcp_info(&self.receiver).tcpi_rcv_space
    }
}

/// Returns the receive space before and after the arrival of a segment that exceeds its truesize by
/// `excess` bytes.
fn receive_spaces(clamp: &str, excess: i32) -> [u32; 2] {
    let mut spaces = [0; 2];
    isolated(|| {
        sysctl(CLAMP, clamp);
        let mut connection = Connection::open();
        let before = connection.receive_space();
        connection.send_grown_to_truesize(excess);
        spaces = [before, connection.receive_space()];
    });
    spaces
}

/// Sends and reads a segment that has grown to its truesize, and one more segment.
fn read_segment_grown_to_truesize(clamp: &str) {
    isolated(|| {
        sysctl(CLAMP, clamp);
        let mut connection = Connection::open();
        connection.send_grown_to_truesize(0);
        connection.read();
        connection.send();
        connection.read();
    });
}

mod inside {
    use super::{read_segment_grown_to_truesize, receive_spaces};

    #[test]
    #[ignore = "runs in the lab kernel"]
    fn clamped_ratio_keeps_window_for_any_growth() {
        for excess in [-1, 0, 1, 5, 20, 1000] {
            let [before, after] = receive_spaces("1", excess);
            assert_eq!(after, before, "{excess} bytes more than truesize");
        }
        read_segment_grown_to_truesize("1");
    }

    /// The ratio wraps at the truesize and not one byte below; pillion's bound follows from this.
    #[test]
    #[ignore = "runs in the lab kernel"]
    fn unclamped_ratio_wraps_from_truesize() {
        let [before, after] = receive_spaces("0", -1);
        assert_eq!(after, before);
        let [_, after] = receive_spaces("0", 0);
        assert_eq!(after, 0);
        let [before, after] = receive_spaces("0", 20);
        assert!(after > 0 && after < before / 10, "{before}, then {after}");
    }
}

#[test]
#[ignore = "crashes the lab kernel"]
fn unclamped_ratio_divides_by_zero() {
    read_segment_grown_to_truesize("0");
}

#[test]
fn clamp_is_on_unless_switched_off() {
    needs_kernel!();
    run_tests_inside("scaling_ratio::inside::");
}

#[test]
fn zero_scaling_ratio_crashes_linux() {
    needs_kernel!();
    let this = std::env::current_exe().unwrap();
    let name = "scaling_ratio::unclamped_ratio_divides_by_zero";
    let program = [this.to_str().unwrap(), "--ignored", "--exact", name];
    let output = boot(&[], &program).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", stdout(&output));
    let line = stderr(&output);
    assert!(line.contains("(in tcp_rcv_space_adjust)"), "{line}");
}
