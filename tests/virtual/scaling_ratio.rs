//! A receiver in the kernel of its sender, and segments that have grown on their way, whose truesize
//! has not: `net.ipv4.tcp_clamp_scaling_ratio` (lab-kernel/patches/0012).

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::thread;
use std::time::Duration;

use pillion_tests::{Growth, isolated, segment_overhead, sysctl, tcp_info};

use crate::common::*;

const CLAMP: &str = "net.ipv4.tcp_clamp_scaling_ratio";
/// The payload that a segment has itself.
const OWN: usize = 448;
const PAUSE: Duration = Duration::from_millis(50);

/// A connection over the loopback device, in a network namespace of its own.
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

    /// Lets a segment arrive, a while after what was before: that is the receiver's round-trip
    /// time, without which it does not look at its window.
    fn send(&mut self) {
        thread::sleep(PAUSE);
        self.sender.write_all(&[0; OWN]).unwrap();
        thread::sleep(PAUSE);
    }

    fn read(&mut self) {
        self.receiver.read_exact(&mut [0; OWN]).unwrap();
    }

    /// Lets a segment arrive that has grown, which makes its payload as large as its truesize and
    /// `more` bytes larger.
    fn send_grown_to_truesize(&mut self, more: i32) {
        self.send();
        self.read();
        let growth = segment_overhead().saturating_add_signed(more);
        let _growth = Growth::begin("lo", growth);
        self.send();
    }

    /// What the receiver's kernel expects of a round trip, in bytes; its window at most.
    fn receive_space(&self) -> u32 {
        tcp_info(&self.receiver).tcpi_rcv_space
    }
}

/// The receive space before and after a segment has arrived that has grown to its truesize, and
/// `more` bytes beyond.
fn receive_spaces(clamp: &str, more: i32) -> [u32; 2] {
    let mut spaces = [0; 2];
    isolated(|| {
        sysctl(CLAMP, clamp);
        let mut connection = Connection::open();
        let before = connection.receive_space();
        connection.send_grown_to_truesize(more);
        spaces = [before, connection.receive_space()];
    });
    spaces
}

/// A segment that has grown to its truesize arrives and is read, and one behind it.
fn read_what_has_grown_to_its_truesize(clamp: &str) {
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
    use super::{read_what_has_grown_to_its_truesize, receive_spaces};

    #[test]
    #[ignore = "runs in the lab kernel"]
    fn leaves_the_window_alone_whatever_a_segment_has_grown_by() {
        for more in [-1, 0, 1, 5, 20, 1000] {
            let [before, after] = receive_spaces("1", more);
            assert_eq!(after, before, "{more} bytes more than truesize");
        }
        read_what_has_grown_to_its_truesize("1");
    }

    /// From the truesize on, and not from a byte before: what pillion's bound follows from.
    #[test]
    #[ignore = "runs in the lab kernel"]
    fn wraps_from_the_truesize_on_where_it_is_not_clamped() {
        let [before, after] = receive_spaces("0", -1);
        assert_eq!(after, before);
        let [_, after] = receive_spaces("0", 0);
        assert_eq!(after, 0);
        let [before, after] = receive_spaces("0", 20);
        assert!(after > 0 && after < before / 10, "{before}, then {after}");
    }
}

#[test]
#[ignore = "breaks the lab kernel down"]
fn divides_by_zero_where_it_is_not_clamped() {
    read_what_has_grown_to_its_truesize("0");
}

#[test]
fn is_clamped_unless_that_is_switched_off() {
    needs_kernel!();
    test_inside("scaling_ratio::inside::");
}

#[test]
fn of_zero_is_what_linux_breaks_down_from() {
    needs_kernel!();
    let this = std::env::current_exe().unwrap();
    let name = "scaling_ratio::divides_by_zero_where_it_is_not_clamped";
    let program = [this.to_str().unwrap(), "--ignored", "--exact", name];
    let output = boot(&[], &program).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", stdout(&output));
    let line = stderr(&output);
    assert!(line.contains("(in tcp_rcv_space_adjust)"), "{line}");
}
