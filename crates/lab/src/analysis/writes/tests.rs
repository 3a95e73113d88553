use pillion_trace::{Analysis, Flags, Packet, SackBlocks};

use super::*;

const MSS: u16 = 1000;
const MAX_SIZE: u32 = 1 << 20;

/// What a client sends to a server, on connections told apart by the client's port.
#[derive(Default)]
struct Script(Vec<Packet>);

impl Script {
    fn packet(&mut self, port: u16, ms: i64, begin: u32, len: u32) -> &mut Packet {
        let client: std::net::SocketAddr = ([192, 0, 2, 1], port).into();
        let server: std::net::SocketAddr = ([198, 51, 100, 1], 80).into();
        let number = self.0.len() as u64 + 1;
        self.0.push(Packet {
            interface: 0,
            number,
            at_ns: ms * 1_000_000,
            from: client.into(),
            to: server.into(),
            frame_len: 54 + len,
            header_len: 40,
            payload_len: len,
            seq: begin,
            ack: Some(1),
            flags: Flags::default(),
            window: 500,
            ip_id: Some(number as u16),
            timestamps: None,
            sack: SackBlocks::default(),
            mss: None,
            window_scale: None,
        });
        self.0.last_mut().unwrap()
    }

    fn open(&mut self, port: u16) -> &mut Self {
        let syn = self.packet(port, 0, 0, 0);
        (syn.flags.syn, syn.ack) = (true, None);
        let answer = self.packet(port, 0, 0, 0);
        std::mem::swap(&mut answer.from, &mut answer.to);
        (answer.flags.syn, answer.mss) = (true, Some(MSS));
        self.packet(port, 0, 1, 0);
        self
    }

    /// From one position to another; `push` marks the end of a write.
    fn data(&mut self, ms: i64, begin: u32, end: u32, push: bool) -> &mut Self {
        self.packet(40_000, ms, begin, end - begin).flags.psh = push;
        self
    }

    fn watch(&self, wanted: Option<u64>) -> Result<Written, WritesError> {
        let mut analysis = Analysis::new(Writes::of(wanted));
        for packet in &self.0 {
            analysis.packet(packet);
        }
        analysis.finish().written(MAX_SIZE)
    }

    /// Milliseconds since the write before, and bytes.
    fn writes(&self) -> Vec<(u128, u32)> {
        let written = self.watch(None).unwrap();
        let writes = written.writes.iter();
        writes
            .map(|write| (write.gap.as_millis(), write.size))
            .collect()
    }
}

fn opened() -> Script {
    let mut script = Script::default();
    script.open(40_000);
    script
}

#[test]
fn writes_are_what_they_were_before_tcp_cut_bundled_and_repeated_them() {
    let mut script = opened();
    script.data(10, 1, 101, true);
    // Bundled with the one before, then sent again.
    script.data(40, 1, 301, true).data(90, 101, 301, true);
    // One write of 2500 B.
    script
        .data(120, 301, 1301, false)
        .data(120, 1301, 2301, false);
    script.data(130, 2301, 2801, true);
    // A full one by itself, and the next.
    script
        .data(170, 2801, 3801, true)
        .data(190, 3801, 3802, true);
    assert_eq!(
        script.writes(),
        [(0, 100), (30, 200), (80, 2500), (50, 1000), (20, 1)]
    );
}

#[test]
fn what_was_not_cut_yet_is_one_write_and_a_small_segment_never_goes_on() {
    let mut script = opened();
    script.data(10, 1, 4001, true).data(20, 4001, 5001, true);
    script
        .data(30, 5001, 5051, false)
        .data(40, 5051, 5101, true);
    assert_eq!(script.writes(), [(0, 4000), (10, 1000), (10, 50), (10, 50)]);
}

#[test]
fn a_hole_in_the_trace_does_not_join_what_is_around_it() {
    let mut script = opened();
    script.data(10, 1, 1001, false).data(20, 2001, 3001, false);
    script.data(30, 3001, 3101, true);
    assert_eq!(script.writes(), [(0, 1000), (10, 1100)]);
}

#[test]
fn one_of_several_connections_must_be_chosen_and_each_is_named() {
    let mut script = opened();
    script.open(40_001).open(40_002).data(10, 1, 101, true);
    script.packet(40_002, 20, 1, 7);
    let several = script.watch(None).unwrap_err();
    let expected = "2 connections with data; choose one with --connection N, of\n\
                    1: 192.0.2.1:40000 -> 198.51.100.1:80, 100\u{a0}B\n\
                    3: 192.0.2.1:40002 -> 198.51.100.1:80, 7\u{a0}B";
    assert_eq!(several.to_string(), expected);
    let third = script.watch(Some(3)).unwrap();
    assert_eq!(third.writes.len(), 1);
    assert_eq!(third.writes[0].size, 7);
    let empty = script.watch(Some(2)).unwrap_err().to_string();
    assert!(empty.starts_with("no connection 2 with data; choose "));
    let none = Script::default().watch(None).unwrap_err();
    assert_eq!(
        none.to_string(),
        "no TCP connection with data; nothing to replay"
    );
}
