//! Steps of a test: actions on the wire and expected segments.

use std::io::Write;
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::sendfile::sendfile;
use nix::sys::socket::{MsgFlags, send};

use crate::peer::TIMEOUT;
use crate::segment::{Segment, content, range};
use crate::tap::{self, PEER_MAC, TAP, mac};
use crate::{Checksums, Wire, netns, socket};

/// Route program that refuses all packets.
const REFUSE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/refuse.bpf.o"));

impl Wire {
    /// Writes the new part of each range, as in `1:101 1:201`, and expects exactly that range on
    /// the wire. Nothing is acknowledged.
    pub fn sends(&mut self, ranges: &str) {
        for text in ranges.split_whitespace() {
            let (_, end) = range(text);
            self.write(end - 1 - self.written);
            self.expect(text);
        }
    }

    /// Delivers a segment of full size, so that bundles may be as large. Afterwards positions start
    /// at 1 again.
    pub fn prove_path(&mut self) {
        let end = 1 + self.mss();
        self.sends(&format!("1:{end}"));
        self.ack(end);
        self.script.note("from here");
        self.rebase(end);
    }

    /// Transfers and acknowledges `bytes` bytes without recording them. Afterwards positions start
    /// at 1 again.
    pub fn transfer(&mut self, bytes: u64) {
        static CHUNK: [u8; 1 << 16] = [0; 1 << 16];
        self.script.note(&format!("{bytes} bytes"));
        self.peer.set_window(u16::MAX);
        let (mut left, mut received_until) = (bytes, self.written + 1);
        let end = received_until.wrapping_add(bytes as u32);
        while left > 0 || received_until != end {
            let next = &CHUNK[..left.min(CHUNK.len() as u64) as usize];
            let sent = send(self.stream.as_raw_fd(), next, MsgFlags::empty());
            left -= sent.unwrap_or(0) as u64;
            while let Some(segment) = self.peer.read(Duration::ZERO) {
                let start = self.peer.position(segment.header.sequence_number);
                received_until = start.wrapping_add(segment.payload.len() as u32);
            }
            self.peer.acknowledge(received_until, &[]);
        }
        self.rebase(end);
        self.wait_for_ack(1);
    }

    /// Like [`Wire::transfer`], over IPv6 with an extension header, which the bundler does not
    /// parse.
    pub fn transfer_unparsed(&mut self, bytes: u64) {
        let options = (libc::IPPROTO_IPV6, libc::IPV6_DSTOPTS);
        self.set_option(options, &[0, 0, 1, 4, 0, 0, 0, 0]);
        self.transfer(bytes);
        self.set_option(options, &[]);
    }

    /// Makes this position, and the next byte written, position 1.
    fn rebase(&mut self, position: u32) {
        self.peer.rebase(position);
        self.written = 0;
    }

    /// Writes `bytes` bytes of the stream in one call, without expecting segments.
    pub fn write(&mut self, bytes: u32) {
        self.write_with(bytes, 0);
    }

    /// Writes `bytes` bytes of the stream with flags of send(2), such as `MSG_MORE` or `MSG_OOB`.
    pub fn write_with(&mut self, bytes: u32, flags: i32) {
        let sent = self.offer(bytes, flags);
        if sent != bytes {
            self.script
                .fail(&format!("{sent} of {bytes} bytes were written"));
        }
    }

    /// Writes at most `bytes` bytes with flags of send(2), as far as the socket has room. Returns
    /// the number written.
    pub(crate) fn offer(&mut self, bytes: u32, flags: i32) -> u32 {
        let start = self.written + 1;
        let content = content(start, start + bytes);
        let flags = MsgFlags::from_bits_retain(flags);
        let sent = match send(self.stream.as_raw_fd(), &content, flags) {
            Ok(sent) => sent as u32,
            Err(Errno::EAGAIN | Errno::ENOBUFS) => 0,
            Err(error) => self
                .script
                .fail(&format!("write of {bytes} bytes: {error}")),
        };
        if flags.bits() & libc::MSG_ZEROCOPY != 0 {
            self.pages.push(content);
        }
        self.written += sent;
        sent
    }

    /// Makes the device's queue refuse packets with payload, or accept them again. TCP sees the
    /// refusal and resends the segment later.
    pub fn refuse_data(&mut self, refuse: bool) {
        self.script.note(if refuse { "refuse" } else { "take" });
        let command = match refuse {
            true => format!("qdisc add dev {TAP} root bfifo limit 90\n"),
            false => format!("qdisc del dev {TAP} root\n"),
        };
        netns::tc(&command);
    }

    /// Makes the route to the peer refuse all packets with an error that TCP sees, or accept them
    /// again. Returns false if this kernel has no route programs.
    pub fn refuse_at_route(&mut self, refuse: bool) -> bool {
        self.script
            .note(if refuse { "refuse at route" } else { "take" });
        let route = tap::route(&self.setup, TAP);
        let mut program = tempfile::NamedTempFile::new().expect("a file");
        program.write_all(REFUSE).expect("room for a program");
        let path = program.path().display();
        let command = match refuse {
            true => {
                format!("route replace {route} encap bpf xmit object {path} section lwt_xmit\n")
            }
            false => format!("route replace {route}\n"),
        };
        let supported = netns::ip_if_supported(&command);
        // Forces a new route lookup: a removed route may keep an MTU of 68 bytes.
        let mark = u32::from(refuse).to_ne_bytes();
        self.set_option((libc::SOL_SOCKET, libc::SO_MARK), &mark);
        supported
    }

    /// Removes the peer's neighbour entry, or restores it. Meanwhile outgoing packets are queued.
    pub fn forget_neighbour(&mut self, forget: bool) {
        self.script.note(if forget { "forget" } else { "learn" });
        let (peer, mac) = (self.setup.ip.peer(), mac(PEER_MAC));
        let command = match forget {
            true => format!("neighbour del {peer} dev {TAP}\n"),
            false => {
                format!("neighbour replace {peer} lladdr {mac} nud permanent dev {TAP}\n")
            }
        };
        netns::ip(&command);
    }

    /// Sends `bytes` bytes of the stream from a file without a copy, as far as the socket has room.
    pub fn send_file(&mut self, bytes: u32) {
        let start = self.written + 1;
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(&content(start, start + bytes))
            .expect("it is written");
        match sendfile(&self.stream, &file, Some(&mut 0), bytes as usize) {
            Ok(sent) => self.written += sent as u32,
            Err(Errno::EAGAIN) => {}
            Err(error) => self.script.fail(&format!("sendfile of {bytes}: {error}")),
        }
    }

    /// Returns the number of stream bytes written so far.
    #[must_use]
    pub fn written(&self) -> u32 {
        self.written
    }

    /// Closes the sending half of the stream.
    pub fn shutdown(&mut self) {
        self.script.note("shutdown");
        self.closed = true;
        self.stream.shutdown(Shutdown::Write).expect("shutdown");
    }

    /// Expects segments on the wire, in order and without others between them: `1:101` is data,
    /// `101:101` has no payload. A trailing `F` means FIN, `U` URG and `R` RST.
    pub fn expect(&mut self, segments: &str) {
        for expected in segments.split_whitespace() {
            let Some(segment) = self.peer.read(TIMEOUT) else {
                self.script.compare(expected, "nothing");
                return;
            };
            let seen = self.describe(&segment);
            self.script.compare(expected, &seen);
            self.inspect(&segment);
        }
    }

    /// Expects a segment with or without PSH.
    pub fn expect_push(&mut self, expected: &str, push: bool) {
        let Some(segment) = self.peer.read(TIMEOUT) else {
            self.script.fail("no segment arrived");
        };
        self.script.compare(expected, &self.describe(&segment));
        self.inspect(&segment);
        if segment.header.psh != push {
            self.script.fail("PSH is not as expected");
        }
    }

    /// Reads and checks the next segment. Returns its range.
    pub fn read(&mut self) -> (u32, u32) {
        self.read_within(TIMEOUT)
            .unwrap_or_else(|| self.script.fail("no segment arrived"))
    }

    /// Reads and checks the next segment, if one arrives in time. Returns its range.
    pub fn read_within(&mut self, time: Duration) -> Option<(u32, u32)> {
        let segment = self.peer.read(time)?;
        let seen = self.describe(&segment);
        self.script.note(&seen);
        self.inspect(&segment);
        Some(range(seen.trim_end_matches(char::is_alphabetic)))
    }

    /// Expects no segment for a time.
    pub fn expect_nothing(&mut self, time: Duration) {
        let seen = match self.peer.read(time) {
            Some(segment) => self.describe(&segment),
            None => "nothing".to_owned(),
        };
        self.script.compare("nothing", &seen);
    }

    /// Acknowledges everything before a position, and waits until the kernel has processed it.
    pub fn ack(&mut self, position: u32) {
        self.script.note(&format!("ack={position}"));
        self.peer.acknowledge(position, &[]);
        self.wait_for_ack(position);
    }

    /// Like [`Wire::ack`], in a packet with an IPv6 extension header.
    pub fn ack_with_header(&mut self, position: u32) {
        self.script.note(&format!("ack={position},header"));
        self.peer.acknowledge_after_header(position);
        self.wait_for_ack(position);
    }

    /// Like [`Wire::ack`], with ranges after the position acknowledged selectively, as in
    /// `201:301`.
    pub fn ack_sack(&mut self, position: u32, ranges: &str) {
        self.script.note(&format!("ack={position},sack={ranges}"));
        let ranges: Vec<_> = ranges.split_whitespace().map(range).collect();
        self.peer.acknowledge(position, &ranges);
        self.wait_for_ack(position);
        if !socket::wait_until(|| socket::sacked(&self.stream) > 0) {
            self.script.fail("the kernel did not process the SACK");
        }
    }

    /// Waits until the kernel counts this number of selectively acknowledged segments.
    pub fn wait_for_sacked(&self, segments: u32) {
        if !socket::wait_until(|| socket::sacked(&self.stream) == segments) {
            self.script.fail("the kernel did not process the SACK");
        }
    }

    /// Like [`Wire::ack`], with a DSACK (RFC 2883) and other ranges acknowledged selectively.
    pub fn ack_duplicate(&mut self, position: u32, duplicate: &str, ranges: &str) {
        self.script
            .note(&format!("ack={position},dsack={duplicate},sack={ranges}"));
        let blocks = duplicate
            .split_whitespace()
            .chain(ranges.split_whitespace());
        let blocks: Vec<_> = blocks.map(range).collect();
        self.peer.acknowledge(position, &blocks);
        self.wait_for_ack(position);
    }

    /// Makes the peer keep its echoed timestamp unchanged, or update it again.
    pub fn hold_echo(&mut self, holds: bool) {
        self.script.note(&format!("hold echo={holds}"));
        self.peer.hold_echo = holds;
    }

    /// Like [`Wire::ack`], with an echo of an ECN mark.
    pub fn ack_echo(&mut self, position: u32) {
        self.script.note(&format!("ack={position},ece"));
        self.peer.echo_congestion(position);
        self.wait_for_ack(position);
    }

    /// Like [`Wire::ack`], with raw options after the timestamps: bytes before and after the blocks
    /// of ranges such as `1:101`.
    pub fn ack_options(&mut self, position: u32, before: &[u8], ranges: &str, trailing: &[u8]) {
        self.script.note(&format!(
            "ack={position},options={before:?},{ranges},{trailing:?}"
        ));
        let blocks = ranges.split_whitespace().map(range);
        let numbers = blocks.flat_map(|(start, end)| [start, end]);
        let numbers = numbers.flat_map(|number| self.peer.sequence_number(number).to_be_bytes());
        let options: Vec<u8> = before.iter().copied().chain(numbers).collect();
        let options = [&options[..], trailing].concat();
        self.peer.acknowledge_with(position, &options);
        self.wait_for_ack(position);
    }

    /// Acknowledges, with an optional DSACK, without waiting for the kernel: the ACK is late, or
    /// queued until the application releases the socket.
    pub fn ack_without_waiting(&mut self, position: u32, duplicate: &str) {
        self.script
            .note(&format!("late ack={position},dsack={duplicate}"));
        let blocks: Vec<_> = duplicate.split_whitespace().map(range).collect();
        self.peer.acknowledge(position, &blocks);
    }

    /// Like [`Wire::ack`], with a receive window of `bytes` bytes (in steps of 128).
    pub fn ack_window(&mut self, position: u32, bytes: u16) {
        self.script.note(&format!("ack={position},win={bytes}"));
        self.peer.set_window(bytes);
        self.peer.acknowledge(position, &[]);
        self.wait_for_ack(position);
    }

    /// Makes the peer send data, `gap` bytes after its last byte.
    pub fn peer_sends(&mut self, acknowledging: u32, gap: u32, bytes: usize) {
        self.script.note(&format!("peer={gap}+{bytes}"));
        self.peer.send(acknowledging, gap, &vec![0; bytes]);
    }

    /// Makes the peer send data segments that arrive merged into one packet, with an ACK and an
    /// optional DSACK.
    pub fn peer_sends_merged(
        &mut self,
        acknowledging: u32,
        duplicate: &str,
        segments: u16,
        bytes: u16,
    ) {
        self.script
            .note(&format!("peer={segments}x{bytes},dsack={duplicate}"));
        let blocks: Vec<_> = duplicate.split_whitespace().map(range).collect();
        self.peer
            .send_merged(acknowledging, &blocks, segments, bytes);
    }

    /// Makes the peer close its sending half.
    pub fn peer_closes(&mut self, acknowledging: u32) {
        self.script.note("peer closes");
        self.peer.close(acknowledging);
    }

    /// Makes the peer reset the connection, and waits until it has ended.
    pub fn peer_resets(&mut self) {
        const TCP_CLOSE: u8 = 7;
        self.script.note("reset");
        self.peer.reset();
        let has_ended = || self.tcp_info().tcpi_state == TCP_CLOSE;
        if !socket::wait_until(has_ended) {
            self.script.fail("the kernel did not process the reset");
        }
    }

    fn wait_for_ack(&self, position: u32) {
        let left = self.written + 1 + u32::from(self.closed) - position;
        if !socket::wait_until(|| socket::unacknowledged(&self.stream) == left) {
            self.script.fail("the kernel did not process the ACK");
        }
    }

    fn describe(&self, segment: &Segment) -> String {
        let start = self.peer.position(segment.header.sequence_number);
        let end = start.wrapping_add(segment.payload.len() as u32);
        let header = &segment.header;
        let flags = [(header.fin, "F"), (header.urg, "U"), (header.rst, "R")];
        let flags: String = flags
            .iter()
            .filter_map(|(set, letter)| set.then_some(*letter))
            .collect();
        format!("{start}:{end}{flags}")
    }

    /// Checks everything in a segment except its range.
    fn inspect(&self, segment: &Segment) {
        if let Some(fault) = &segment.fault {
            self.script.fail(fault);
        }
        let start = self.peer.position(segment.header.sequence_number);
        let end = start.wrapping_add(segment.payload.len() as u32);
        if segment.payload != content(start, end) {
            self.script.fail("the payload differs from the range");
        }
        if segment.header.acknowledgment_number != self.peer.next() {
            self.script.fail("the acknowledgement number is wrong");
        }
        if segment.signed != self.setup.signed {
            self.script.fail("the signature is not as expected");
        }
        let offloaded = self.setup.checksums == Checksums::Device;
        if segment.offloaded != offloaded {
            self.script
                .fail("the checksum was computed in the wrong place");
        }
    }
}
