use std::time::{Duration, Instant};

use pillion_tests::{Setup, Wire, isolated, sysctl};

pub const MS: Duration = Duration::from_millis(1);

/// What the path takes in both directions, where a test does not say.
pub const RTT: Duration = Duration::from_millis(100);

/// Plain TCP on a path that can announce congestion.
pub fn plain() -> Setup {
    Setup {
        rtt: RTT,
        ecn: true,
        bundlers: vec![],
        ..Setup::default()
    }
}

/// Runs a test with sysctls of `net.ipv4` that stand before the connection is opened.
pub fn run(setup: &Setup, sysctls: &[(&str, u8)], test: impl Fn(&mut Wire) + Sync) {
    isolated(|| {
        for (name, value) in sysctls {
            sysctl(&format!("net.ipv4.{name}"), &value.to_string());
        }
        test(&mut Wire::open(setup.clone()));
    });
}

/// Writes a small segment and expects it on the wire; gives its range.
pub fn send(wire: &mut Wire) -> String {
    let start = wire.written() + 1;
    let segment = format!("{start}:{}", start + 100);
    wire.sends(&segment);
    segment
}

/// [`send`] of several segments.
pub fn send_several<const N: usize>(wire: &mut Wire) -> [String; N] {
    [(); N].map(|()| send(wire))
}

/// Lets a round trip pass and acknowledges all that was written.
pub fn acknowledge(wire: &mut Wire) {
    wire.expect_nothing(RTT);
    wire.ack(wire.written() + 1);
}

/// A round trip later, the kernel takes the SACK of a segment in, with nothing before it
/// newly acknowledged.
pub fn sack(wire: &mut Wire, first_missing: &str, segment: &str) {
    wire.expect_nothing(RTT);
    wire.ack_sack(position(first_missing), segment);
}

/// Where a segment begins.
pub fn position(segment: &str) -> u32 {
    let start = segment.split_once(':').expect("a range").0;
    start.parse().expect("a position")
}

/// Congestion is announced, and the window reduced for it: from then on the connection is
/// not in its initial slow start, and has an estimate of the RTT.
pub fn leave_slow_start(wire: &mut Wire) {
    send(wire);
    wire.expect_nothing(RTT);
    wire.ack_echo(wire.written() + 1);
    send(wire);
    acknowledge(wire);
}

/// Sends four segments, of which the first does not arrive, and expects it again after three
/// dupACKs and not before.
pub fn expect_three_dupacks_awaited(wire: &mut Wire) {
    let [first, second, third, fourth] = send_several(wire);
    sack(wire, &first, &second);
    sack(wire, &first, &format!("{second} {third}"));
    wire.expect_nothing(500 * MS);
    sack(wire, &first, &format!("{second} {third} {fourth}"));
    expect_at_once(wire, &first);
}

/// Sends two segments, of which the first does not arrive, while more is to be sent, and expects
/// that the dupACK brings this out and nothing else.
pub fn expect_new_data_instead(wire: &mut Wire) {
    let [first, second] = send_several(wire);
    wire.write_with(100, libc::MSG_MORE);
    sack(wire, &first, &second);
    let end = wire.written() + 1;
    wire.expect(&format!("{}:{end}", end - 100));
    wire.expect_nothing(500 * MS);
}

/// Expects a segment at once.
pub fn expect_at_once(wire: &mut Wire, segment: &str) {
    expect_after(wire, segment, Duration::ZERO);
}

/// Expects a segment after a time of silence. The kernel's timers are late by up to a
/// millisecond, and by up to an eighth of what they are set to; it was some milliseconds
/// ago that the peer sent what set them.
pub fn expect_after(wire: &mut Wire, segment: &str, time: Duration) {
    let begun = Instant::now();
    wire.expect(segment);
    let passed = begun.elapsed();
    let latest = time + MS + time / 8;
    assert!(
        passed + 4 * MS >= time && passed <= latest,
        "{segment} after {passed:?}, not {time:?}"
    );
}
