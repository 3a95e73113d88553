use std::time::{Duration, Instant};

use pillion_tests::{Setup, Wire, isolated, sysctl};

pub const MS: Duration = Duration::from_millis(1);

/// Default round-trip time of the path.
pub const RTT: Duration = Duration::from_millis(100);

/// Returns a setup with plain TCP on a path with ECN.
pub fn plain() -> Setup {
    Setup {
        rtt: RTT,
        ecn: true,
        bundlers: vec![],
        ..Setup::default()
    }
}

/// Runs a test after setting sysctls of `net.ipv4`, before the connection opens.
pub fn run(setup: &Setup, sysctls: &[(&str, u8)], test: impl Fn(&mut Wire) + Sync) {
    isolated(|| {
        for (name, value) in sysctls {
            sysctl(&format!("net.ipv4.{name}"), &value.to_string());
        }
        test(&mut Wire::open(setup.clone()));
    });
}

/// Writes a segment of 100 bytes and expects it on the wire. Returns its range `START:END`.
pub fn send(wire: &mut Wire) -> String {
    let start = wire.written() + 1;
    let segment = format!("{start}:{}", start + 100);
    wire.sends(&segment);
    segment
}

/// Sends several segments, as [`send`] does.
pub fn send_several<const N: usize>(wire: &mut Wire) -> [String; N] {
    [(); N].map(|()| send(wire))
}

/// Waits for a round trip and acknowledges all written data.
pub fn acknowledge(wire: &mut Wire) {
    wire.expect_nothing(RTT);
    wire.ack(wire.written() + 1);
}

/// Waits for a round trip and sends a SACK of `segment`; the cumulative ACK stays before
/// `first_missing`.
pub fn sack(wire: &mut Wire, first_missing: &str, segment: &str) {
    wire.expect_nothing(RTT);
    wire.ack_sack(position(first_missing), segment);
}

/// Returns the start of a segment's range.
pub fn position(segment: &str) -> u32 {
    let start = segment.split_once(':').expect("a range").0;
    start.parse().expect("a position")
}

/// Signals congestion by ECN, so that the kernel reduces its window. Afterwards the connection has
/// left its initial slow start and has an RTT estimate.
pub fn leave_slow_start(wire: &mut Wire) {
    send(wire);
    wire.expect_nothing(RTT);
    wire.ack_echo(wire.written() + 1);
    send(wire);
    acknowledge(wire);
}

/// Sends four segments, the first of which is lost. Expects its retransmission after three dupACKs
/// and not earlier.
pub fn expect_wait_for_three_dupacks(wire: &mut Wire) {
    let [first, second, third, fourth] = send_several(wire);
    sack(wire, &first, &second);
    sack(wire, &first, &format!("{second} {third}"));
    wire.expect_nothing(500 * MS);
    sack(wire, &first, &format!("{second} {third} {fourth}"));
    expect_immediately(wire, &first);
}

/// Sends two segments, the first of which is lost, while unsent data exists. Expects that the dupACK
/// triggers only this new data.
pub fn expect_new_data_instead(wire: &mut Wire) {
    let [first, second] = send_several(wire);
    wire.write_with(100, libc::MSG_MORE);
    sack(wire, &first, &second);
    let end = wire.written() + 1;
    wire.expect(&format!("{}:{end}", end - 100));
    wire.expect_nothing(500 * MS);
}

/// Expects a segment immediately.
pub fn expect_immediately(wire: &mut Wire, segment: &str) {
    expect_after(wire, segment, Duration::ZERO);
}

/// Expects a segment after `time` without any other. The kernel's timers expire up to 1 ms plus an
/// eighth of their value late; the packet that set them was sent up to 4 ms ago.
pub fn expect_after(wire: &mut Wire, segment: &str, time: Duration) {
    let started = Instant::now();
    wire.expect(segment);
    let passed = started.elapsed();
    let latest = time + MS + time / 8;
    assert!(
        passed + 4 * MS >= time && passed <= latest,
        "{segment} after {passed:?}, not {time:?}"
    );
}
