use std::thread;
use std::time::{Duration, Instant};

use etherparse::{TcpHeader, TcpOptionElement};

use crate::segment::{self, Segment, frame, insert_destination_options};
use crate::setup::{Ip, Setup};
use crate::tap::{LOCAL_MAC, PEER_MAC, Tap};

/// Default port of the peer, and the port that a passive socket listens on.
pub(crate) const PEER_PORT: u16 = 7777;
pub(crate) const LISTENING_PORT: u16 = 8888;

/// Maximum time that the peer waits: longer than any stall of a busy machine.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(5);

const WINDOW_SCALE: u8 = 7;

/// Two NOPs before timestamps and SACK align their values (RFC 7323, appendix A).
const ALIGNMENT: [TcpOptionElement; 2] = [TcpOptionElement::Noop, TcpOptionElement::Noop];

/// Scripted TCP endpoint of the other host.
pub(crate) struct Peer {
    tap: Tap,
    ip: Ip,
    mss: u16,
    timestamps: bool,
    sack: bool,
    signed: bool,
    multipath: bool,
    spoofed_syns: u16,
    ecn: bool,
    /// The peer's port.
    pub port: u16,
    /// The kernel's port, known after the handshake.
    kernel_port: u16,
    /// The kernel's initial sequence number.
    isn: u32,
    /// The peer's next sequence number.
    next: u32,
    /// The peer's timestamp clock, and the kernel's timestamp to echo.
    clock: u32,
    pub echo: u32,
    /// Keeps the echoed timestamp unchanged.
    pub hold_echo: bool,
    /// Window field of all segments except SYNs.
    window: u16,
}

/// MP_CAPABLE, version 1, with HMAC-SHA256.
const MULTIPATH: [u8; 4] = [30, 4, 1, 1];

impl Peer {
    pub fn new(tap: Tap, setup: &Setup) -> Self {
        Self {
            tap,
            ip: setup.ip,
            mss: setup.mss,
            timestamps: setup.timestamps,
            sack: setup.sack,
            signed: setup.signed,
            multipath: setup.multipath,
            spoofed_syns: setup.spoofed_syns,
            ecn: setup.ecn,
            port: PEER_PORT,
            kernel_port: 0,
            isn: 0,
            next: 0x7000_0000,
            clock: 0,
            echo: 0,
            hold_echo: false,
            window: u16::MAX,
        }
    }

    /// Accepts a connection, `rtt` after the SYN.
    pub fn accept(&mut self, rtt: Duration) {
        self.wait_for_syn();
        thread::sleep(rtt);
        self.send_syn(Some(1), &[], &[]);
        let ack = loop {
            let segment = self.read(TIMEOUT).expect("an ACK of the SYN-ACK");
            // On a busy machine the answer may be so late that the kernel repeated its SYN.
            if !segment.header.syn {
                break segment;
            }
        };
        assert_eq!(self.position(ack.header.sequence_number), 1);
        assert_eq!(ack.header.acknowledgment_number, self.next);
    }

    /// Accepts a connection whose SYN may carry data, and sends a Fast Open cookie. Returns the
    /// data, which is acknowledged if `accept_payload`.
    pub fn accept_data(&mut self, accept_payload: bool) -> Vec<u8> {
        const KIND: u8 = 34;
        let cookie = [KIND, 10, 1, 2, 3, 4, 5, 6, 7, 8];
        let syn = self.wait_for_syn();
        let length = if accept_payload {
            syn.payload.len() as u32
        } else {
            0
        };
        self.send_syn(Some(1 + length), &cookie, &[]);
        syn.payload
    }

    /// Opens a connection and sends the last ACK of the handshake `rtt` after the SYN-ACK.
    pub fn connect(&mut self, rtt: Duration) {
        self.start_connection(&[]);
        self.flood_syns(self.kernel_port, self.spoofed_syns);
        if self.spoofed_syns > 0 {
            self.forge_syn();
        }
        thread::sleep(rtt);
        while let Some(repeated) = self.read(Duration::ZERO) {
            assert!(repeated.header.syn, "{repeated:?}");
        }
        self.acknowledge(1, &[]);
    }

    /// Sends SYNs with MPTCP from other ports and drops the answers.
    pub fn flood_syns(&self, port: u16, syns: u16) {
        const FIRST_PORT: u16 = 20_000;
        for number in 0..syns {
            let source = FIRST_PORT + number;
            let mut header = TcpHeader::new(source, port, number.into(), self.window);
            header.syn = true;
            header.set_options_raw(&MULTIPATH).expect("the options fit");
            self.write(header, &[]);
            while self.tap.read(Duration::ZERO).is_some() {}
        }
    }

    /// Sends a forged SYN of this connection without MPTCP and with a wrong sequence number.
    fn forge_syn(&self) {
        let forged = self.next.wrapping_add(1_000_000);
        let mut header = TcpHeader::new(self.port, self.kernel_port, forged, self.window);
        header.syn = true;
        self.write(header, &[]);
        while self.tap.read(Duration::ZERO).is_some() {}
    }

    /// Starts a connection with a SYN that may carry data. The script sends the last ACK of the
    /// handshake.
    pub fn start_connection(&mut self, data: &[u8]) {
        self.kernel_port = LISTENING_PORT;
        let more = if self.multipath { &MULTIPATH[..] } else { &[] };
        self.send_syn(None, more, data);
        let syn_ack = self.read(TIMEOUT).expect("a SYN-ACK");
        assert!(syn_ack.header.syn && syn_ack.header.ack, "{syn_ack:?}");
        assert_eq!(syn_ack.header.acknowledgment_number, self.next);
        self.store_handshake(&syn_ack);
    }

    /// Returns the next segment of this connection, or `None` after the timeout.
    pub fn read(&mut self, timeout: Duration) -> Option<Segment> {
        let deadline = Instant::now() + timeout;
        loop {
            let segment = self.receive(deadline.saturating_duration_since(Instant::now()))?;
            if segment.header.source_port == self.kernel_port {
                if !self.hold_echo {
                    self.echo = segment.timestamp().unwrap_or(0);
                }
                return Some(segment);
            }
        }
    }

    /// Returns the next frame of any kind.
    pub fn frame(&mut self, timeout: Duration) -> Option<Vec<u8>> {
        Some(self.tap.read(timeout)?.bytes)
    }

    /// Acknowledges everything before `position`, and selectively the ranges.
    pub fn acknowledge(&mut self, position: u32, ranges: &[(u32, u32)]) {
        let header = self.ack_header(position, ranges);
        self.write(header, &[]);
    }

    /// Acknowledges everything before `position`, after an IPv6 header with destination options.
    pub fn acknowledge_after_header(&mut self, position: u32) {
        let header = self.ack_header(position, &[]);
        let addresses = (self.ip.peer(), self.ip.local());
        let mut frame = frame([PEER_MAC, LOCAL_MAC], addresses, header, &[]);
        insert_destination_options(&mut frame);
        self.tap.write(&frame);
    }

    /// Acknowledges everything before `position`, with more TCP options after the timestamps.
    pub fn acknowledge_with(&mut self, position: u32, options: &[u8]) {
        let mut header = self.ack_header(position, &[]);
        let options = [header.options.as_slice(), options].concat();
        header.set_options_raw(&options).expect("the options fit");
        self.write(header, &[]);
    }

    /// Makes this position of the stream position 1 from now on.
    pub fn rebase(&mut self, position: u32) {
        self.isn = self.isn.wrapping_add(position).wrapping_sub(1);
    }

    /// Converts a position to a sequence number of the kernel's stream.
    pub fn sequence_number(&self, position: u32) -> u32 {
        self.isn.wrapping_add(position)
    }

    /// Acknowledges everything before `position` and echoes an ECN mark.
    pub fn echo_congestion(&mut self, position: u32) {
        let mut header = self.ack_header(position, &[]);
        header.ece = true;
        self.write(header, &[]);
    }

    /// Sends data `gap` bytes after the last byte sent.
    pub fn send(&mut self, position: u32, gap: u32, payload: &[u8]) {
        self.send_with(position, &[], gap, payload);
    }

    /// Sends data `gap` bytes after the last byte sent, and acknowledges ranges selectively.
    pub fn send_with(&mut self, position: u32, ranges: &[(u32, u32)], gap: u32, payload: &[u8]) {
        let mut header = self.ack_header(position, ranges);
        header.sequence_number = self.next.wrapping_add(gap);
        header.psh = true;
        self.write(header, payload);
        if gap == 0 {
            self.next = self.next.wrapping_add(payload.len() as u32);
        }
    }

    /// Sends data segments merged into one packet. All of them acknowledge everything before
    /// `position`, and selectively the ranges.
    pub fn send_merged(&mut self, position: u32, ranges: &[(u32, u32)], segments: u16, bytes: u16) {
        let mut header = self.ack_header(position, ranges);
        header.psh = true;
        let payload = vec![0; usize::from(segments * bytes)];
        let tcp_header = header.header_len();
        let addresses = (self.ip.peer(), self.ip.local());
        let frame = frame([PEER_MAC, LOCAL_MAC], addresses, header, &payload);
        let payload_offset = frame.len() - payload.len();
        self.tap
            .write_merged(&frame, [payload_offset - tcp_header, payload_offset], bytes);
        self.next = self.next.wrapping_add(u32::from(segments * bytes));
    }

    /// Closes the sending half and acknowledges everything before `position`.
    pub fn close(&mut self, position: u32) {
        let mut header = self.ack_header(position, &[]);
        header.fin = true;
        self.write(header, &[]);
        self.next = self.next.wrapping_add(1);
    }

    /// Sends a reset, like a host without the connection.
    pub fn reset(&mut self) {
        let mut header = self.ack_header(0, &[]);
        (header.ack, header.rst) = (false, true);
        self.write(header, &[]);
    }

    /// Announces a window of `bytes` bytes from now on, rounded down to the window scale.
    pub fn set_window(&mut self, bytes: u16) {
        self.window = bytes >> WINDOW_SCALE;
    }

    /// Converts a sequence number to a position in the stream; 1 is the first byte.
    pub fn position(&self, sequence_number: u32) -> u32 {
        sequence_number.wrapping_sub(self.isn)
    }

    /// Returns the acknowledgement number expected from the kernel.
    pub fn next(&self) -> u32 {
        self.next
    }
}

impl Peer {
    /// Returns the next TCP segment of any connection.
    fn receive(&mut self, timeout: Duration) -> Option<Segment> {
        let deadline = Instant::now() + timeout;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let frame = self.tap.read(left)?;
            if let Some(segment) = Segment::read(&frame) {
                return Some(segment);
            }
        }
    }

    fn wait_for_syn(&mut self) -> Segment {
        let syn = loop {
            let segment = self.receive(TIMEOUT).expect("a SYN");
            if segment.header.syn {
                break segment;
            }
        };
        self.store_handshake(&syn);
        syn
    }

    fn store_handshake(&mut self, first: &Segment) {
        assert_eq!(first.fault, None, "{first:?}");
        self.kernel_port = first.header.source_port;
        self.isn = first.header.sequence_number;
        self.echo = first.timestamp().unwrap_or(0);
    }

    /// Sends a SYN or SYN-ACK with extra options and data.
    fn send_syn(&mut self, acknowledged: Option<u32>, more: &[u8], data: &[u8]) {
        let mut header = self.header(acknowledged.unwrap_or(1));
        header.syn = true;
        header.ack = acknowledged.is_some();
        header.ece = header.ack && self.ecn;
        let mut options = vec![
            TcpOptionElement::MaximumSegmentSize(self.mss),
            if self.sack {
                TcpOptionElement::SelectiveAcknowledgementPermitted
            } else {
                TcpOptionElement::Noop
            },
            // A NOP, not the end of the option list, because more options may follow.
            TcpOptionElement::Noop,
            TcpOptionElement::WindowScale(WINDOW_SCALE),
            TcpOptionElement::Noop,
            TcpOptionElement::Noop,
        ];
        options.extend(self.timestamp_option());
        header.set_options(&options).expect("the options fit");
        let options = [header.options.as_slice(), more].concat();
        header.set_options_raw(&options).expect("the options fit");
        self.write(header, data);
        self.next = self.next.wrapping_add(1 + data.len() as u32);
    }

    fn header(&self, acknowledged: u32) -> TcpHeader {
        let mut header = TcpHeader::new(self.port, self.kernel_port, self.next, self.window);
        header.ack = true;
        header.acknowledgment_number = self.isn.wrapping_add(acknowledged);
        header
    }

    fn ack_header(&mut self, position: u32, ranges: &[(u32, u32)]) -> TcpHeader {
        let mut header = self.header(position);
        let mut options = self.timestamp_option();
        let sequence_number =
            |(start, end)| (self.isn.wrapping_add(start), self.isn.wrapping_add(end));
        if let Some((first, more)) = ranges.split_first() {
            let mut others = [None; 3];
            for (other, range) in others.iter_mut().zip(more) {
                *other = Some(sequence_number(*range));
            }
            options.extend(ALIGNMENT);
            options.push(TcpOptionElement::SelectiveAcknowledgement(
                sequence_number(*first),
                others,
            ));
        }
        header.set_options(&options).expect("the options fit");
        header
    }

    fn timestamp_option(&mut self) -> Vec<TcpOptionElement> {
        if !self.timestamps {
            return Vec::new();
        }
        self.clock += 1;
        let mut option = ALIGNMENT.to_vec();
        option.push(TcpOptionElement::Timestamp(self.clock, self.echo));
        option
    }

    fn write(&self, mut header: TcpHeader, payload: &[u8]) {
        let addresses = (self.ip.peer(), self.ip.local());
        if self.signed {
            segment::sign(addresses, &mut header, payload);
        }
        self.tap
            .write(&frame([PEER_MAC, LOCAL_MAC], addresses, header, payload));
    }
}
