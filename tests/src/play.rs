//! What a test does to the wire, and what it expects to see there.

use std::io::Write;
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::sendfile::sendfile;
use nix::sys::socket::{MsgFlags, send};

use crate::peer::PATIENCE;
use crate::segment::{Segment, content, range};
use crate::tap::{self, PEER_MAC, TAP, mac};
use crate::{Checksums, Wire, netns, socket};

/// A program for a route that refuses all packets.
const REFUSE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/refuse.bpf.o"));

impl Wire {
    /// For each range, writes what of it is new and expects exactly it on the wire, as in
    /// `1:101 1:201`; nothing is acknowledged.
    pub fn sends(&mut self, ranges: &str) {
        for text in ranges.split_whitespace() {
            let (_, end) = range(text);
            self.write(end - 1 - self.written);
            self.expect(text);
        }
    }

    /// Has a segment of full size come through, so that bundles may be as large. Behind it,
    /// positions count anew.
    pub fn prove_path(&mut self) {
        let end = 1 + self.mss();
        self.sends(&format!("1:{end}"));
        self.ack(end);
        self.script.note("from here");
        self.count_from(end);
    }

    /// Has so many bytes come through and be acknowledged, unseen by the script. Behind them,
    /// positions count anew.
    pub fn pass(&mut self, bytes: u64) {
        static CHUNK: [u8; 1 << 16] = [0; 1 << 16];
        self.script.note(&format!("{bytes} bytes"));
        self.peer.set_window(u16::MAX);
        let (mut left, mut come) = (bytes, self.written + 1);
        let end = come.wrapping_add(bytes as u32);
        while left > 0 || come != end {
            let next = &CHUNK[..left.min(CHUNK.len() as u64) as usize];
            let sent = send(self.stream.as_raw_fd(), next, MsgFlags::empty());
            left -= sent.unwrap_or(0) as u64;
            while let Some(segment) = self.peer.read(Duration::ZERO) {
                let start = self.peer.position(segment.header.sequence_number);
                come = start.wrapping_add(segment.payload.len() as u32);
            }
            self.peer.acknowledge(come, &[]);
        }
        self.count_from(end);
        self.await_acknowledged(1);
    }

    /// The same over IPv6 in packets with an extension header, which the bundler does not read.
    pub fn pass_unread(&mut self, bytes: u64) {
        let options = (libc::IPPROTO_IPV6, libc::IPV6_DSTOPTS);
        self.set_option(options, &[0, 0, 1, 4, 0, 0, 0, 0]);
        self.pass(bytes);
        self.set_option(options, &[]);
    }

    /// Has this position, and the next that is written, be 1 from now on.
    fn count_from(&mut self, position: u32) {
        self.peer.count_from(position);
        self.written = 0;
    }

    /// Writes so many bytes of the stream at once, unseen by the script.
    pub fn write(&mut self, bytes: u32) {
        self.write_with(bytes, 0);
    }

    /// Writes so many bytes of the stream with send(2)'s flags, such as `MSG_MORE` or `MSG_OOB`.
    pub fn write_with(&mut self, bytes: u32, flags: i32) {
        let sent = self.offer(bytes, flags);
        if sent != bytes {
            self.script
                .fail(&format!("{sent} of {bytes} bytes were written"));
        }
    }

    /// Writes up to so many bytes of the stream with send(2)'s flags, as far as the socket has
    /// room; returns how many were written.
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

    /// Has the device's queue refuse whatever has payload from now on, or take it again: TCP hears
    /// of it, and sends the segment later.
    pub fn refuse_data(&mut self, refuse: bool) {
        self.script.note(if refuse { "refuse" } else { "take" });
        let command = match refuse {
            true => format!("qdisc add dev {TAP} root bfifo limit 90\n"),
            false => format!("qdisc del dev {TAP} root\n"),
        };
        netns::tc(&command);
    }

    /// Has the route to the peer refuse all packets from now on, with an error that TCP sees, or
    /// take them again. False if this kernel has no programs at routes.
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
        // The socket looks for its route anew: one that is gone for good may have an MTU of 68 bytes.
        let mark = u32::from(refuse).to_ne_bytes();
        self.set_option((libc::SOL_SOCKET, libc::SO_MARK), &mark);
        supported
    }

    /// Has the kernel forget the peer's hardware address, or learn it again: meanwhile, what it
    /// sends waits.
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

    /// Writes so many bytes of the stream from a file, which the kernel does not copy; as far as
    /// the socket has room.
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

    /// Bytes of the stream written so far.
    #[must_use]
    pub fn written(&self) -> u32 {
        self.written
    }

    /// Closes the stream's sending half.
    pub fn shutdown(&mut self) {
        self.script.note("shutdown");
        self.closed = true;
        self.stream.shutdown(Shutdown::Write).expect("shutdown");
    }

    /// Expects segments on the wire, in order and with nothing between them: `1:101` is
    /// data, `101:101` a segment without any, and an `F` behind it means FIN, a `U` URG.
    pub fn expect(&mut self, segments: &str) {
        for expected in segments.split_whitespace() {
            let Some(segment) = self.peer.read(PATIENCE) else {
                self.script.compare(expected, "nothing");
                return;
            };
            let seen = self.describe(&segment);
            self.script.compare(expected, &seen);
            self.inspect(&segment);
        }
    }

    /// Expects a segment that tells its receiver to hand on what it has (PSH), or does not.
    pub fn expect_push(&mut self, expected: &str, push: bool) {
        let Some(segment) = self.peer.read(PATIENCE) else {
            self.script.fail("nothing came");
        };
        self.script.compare(expected, &self.describe(&segment));
        self.inspect(&segment);
        if segment.header.psh != push {
            self.script
                .fail("PSH is set, or is not, as it should not be");
        }
    }

    /// Reads the next segment, whatever it is, checked like all others; returns its range.
    pub fn read(&mut self) -> (u32, u32) {
        self.read_within(PATIENCE)
            .unwrap_or_else(|| self.script.fail("nothing came"))
    }

    /// Reads the next segment, if one comes in time, checked like all others; returns its range.
    pub fn read_within(&mut self, time: Duration) -> Option<(u32, u32)> {
        let segment = self.peer.read(time)?;
        let seen = self.describe(&segment);
        self.script.note(&seen);
        self.inspect(&segment);
        Some(range(seen.trim_end_matches(char::is_alphabetic)))
    }

    /// Expects silence for a time.
    pub fn expect_nothing(&mut self, time: Duration) {
        let seen = match self.peer.read(time) {
            Some(segment) => self.describe(&segment),
            None => "nothing".to_owned(),
        };
        self.script.compare("nothing", &seen);
    }

    /// Has the peer acknowledge all before a position, and waits until the kernel takes note.
    pub fn ack(&mut self, position: u32) {
        self.script.note(&format!("ack={position}"));
        self.peer.acknowledge(position, &[]);
        self.await_acknowledged(position);
    }

    /// As [`Wire::ack`], in a packet with an IPv6 extension header.
    pub fn ack_behind_header(&mut self, position: u32) {
        self.script.note(&format!("ack={position},header"));
        self.peer.acknowledge_behind_header(position);
        self.await_acknowledged(position);
    }

    /// As [`Wire::ack`], with ranges beyond the position acknowledged selectively, as in `201:301`.
    pub fn ack_sack(&mut self, position: u32, ranges: &str) {
        self.script.note(&format!("ack={position},sack={ranges}"));
        let ranges: Vec<_> = ranges.split_whitespace().map(range).collect();
        self.peer.acknowledge(position, &ranges);
        self.await_acknowledged(position);
        if !socket::until(|| socket::sacked(&self.stream) > 0) {
            self.script.fail("the kernel took no note of a SACK");
        }
    }

    /// Waits until the kernel knows of so many segments acknowledged selectively.
    pub fn await_sacked(&self, segments: u32) {
        if !socket::until(|| socket::sacked(&self.stream) == segments) {
            self.script.fail("the kernel took no note of a SACK");
        }
    }

    /// As [`Wire::ack`], with a range reported as received twice (RFC 2883) and others beyond the
    /// position acknowledged selectively.
    pub fn ack_duplicate(&mut self, position: u32, duplicate: &str, ranges: &str) {
        self.script
            .note(&format!("ack={position},dsack={duplicate},sack={ranges}"));
        let blocks = duplicate
            .split_whitespace()
            .chain(ranges.split_whitespace());
        let blocks: Vec<_> = blocks.map(range).collect();
        self.peer.acknowledge(position, &blocks);
        self.await_acknowledged(position);
    }

    /// Has the peer echo the timestamp of what it has received so far, whatever comes, or that of
    /// what comes next, again.
    pub fn hold_echo(&mut self, holds: bool) {
        self.script.note(&format!("hold echo={holds}"));
        self.peer.holds_echo = holds;
    }

    /// As [`Wire::ack`], with an echo of a mark of congestion (ECN).
    pub fn ack_echo(&mut self, position: u32) {
        self.script.note(&format!("ack={position},ece"));
        self.peer.echo_congestion(position);
        self.await_acknowledged(position);
    }

    /// As [`Wire::ack`], with these options behind the timestamps: bytes before and behind the
    /// blocks of ranges such as `1:101`.
    pub fn ack_options(&mut self, position: u32, before: &[u8], ranges: &str, behind: &[u8]) {
        self.script.note(&format!(
            "ack={position},options={before:?},{ranges},{behind:?}"
        ));
        let blocks = ranges.split_whitespace().map(range);
        let numbers = blocks.flat_map(|(start, end)| [start, end]);
        let numbers = numbers.flat_map(|number| self.peer.absolute(number).to_be_bytes());
        let options: Vec<u8> = before.iter().copied().chain(numbers).collect();
        let options = [&options[..], behind].concat();
        self.peer.acknowledge_with(position, &options);
        self.await_acknowledged(position);
    }

    /// Has the peer acknowledge, and maybe report a duplicate, without waiting until the kernel
    /// takes note: the ACK comes late, or has to wait for the application.
    pub fn acks_late(&mut self, position: u32, duplicate: &str) {
        self.script
            .note(&format!("late ack={position},dsack={duplicate}"));
        let blocks: Vec<_> = duplicate.split_whitespace().map(range).collect();
        self.peer.acknowledge(position, &blocks);
    }

    /// As [`Wire::ack`], and the peer has room for so many more bytes (in steps of 128).
    pub fn ack_window(&mut self, position: u32, bytes: u16) {
        self.script.note(&format!("ack={position},win={bytes}"));
        self.peer.set_window(bytes);
        self.peer.acknowledge(position, &[]);
        self.await_acknowledged(position);
    }

    /// Has the peer send data of its own, `gap` bytes after what it sent last.
    pub fn peer_sends(&mut self, acknowledging: u32, gap: u32, bytes: usize) {
        self.script.note(&format!("peer={gap}+{bytes}"));
        self.peer.send(acknowledging, gap, &vec![0; bytes]);
    }

    /// Has the peer send so many segments of data, each of so many bytes, that arrive merged into
    /// one packet; they acknowledge, and may report a range as received twice.
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

    /// Has the peer close its sending half.
    pub fn peer_closes(&mut self, acknowledging: u32) {
        self.script.note("peer closes");
        self.peer.close(acknowledging);
    }

    /// Has the peer reset the connection, and waits until it has ended.
    pub fn peer_resets(&mut self) {
        const TCP_CLOSE: u8 = 7;
        self.script.note("reset");
        self.peer.reset();
        let has_ended = || self.tcp_info().tcpi_state == TCP_CLOSE;
        if !socket::until(has_ended) {
            self.script.fail("the kernel took no note of a reset");
        }
    }

    fn await_acknowledged(&self, position: u32) {
        let left = self.written + 1 + u32::from(self.closed) - position;
        if !socket::until(|| socket::unacknowledged(&self.stream) == left) {
            self.script.fail("the kernel took no note of an ACK");
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

    /// Checks of a segment what its range does not tell.
    fn inspect(&self, segment: &Segment) {
        if let Some(fault) = &segment.fault {
            self.script.fail(fault);
        }
        let start = self.peer.position(segment.header.sequence_number);
        let end = start.wrapping_add(segment.payload.len() as u32);
        if segment.payload != content(start, end) {
            self.script.fail("the payload is not that of the range");
        }
        if segment.header.acknowledgment_number != self.peer.next() {
            self.script.fail("the acknowledgement number is not right");
        }
        if segment.signed != self.setup.signed {
            self.script.fail("signed or not, which it should not be");
        }
        let offloaded = self.setup.checksums == Checksums::Device;
        if segment.offloaded != offloaded {
            self.script
                .fail("the checksum was not left to who should compute it");
        }
    }
}
