use super::*;

/// Messages of 100 bytes each 100 ms from 200 ms on, each with the one before; each is acknowledged
/// after 150 ms.
fn ten_bundled() -> Script {
    let mut script = established();
    for message in 0..10 {
        let begin = message * 100 + 1;
        let bundled = if message == 0 { begin } else { begin - 100 };
        script.at(200 + message * 100).data(bundled, begin + 100);
        script.at(350 + message * 100).ack(begin + 100);
    }
    script.packets.sort_by_key(|packet| packet.at_ns);
    for (number, packet) in (1..).zip(&mut script.packets) {
        packet.number = number;
    }
    script
}

fn from(ms: i64) -> Period {
    Period {
        from: Some(When::After(ms * MS)),
        until: None,
    }
}

fn until(ms: i64) -> Period {
    Period {
        from: None,
        until: Some(When::After(ms * MS)),
    }
}

fn measure_part(script: &Script, period: Period) -> Results {
    let mut analysis = Analysis::of(Meter::new(Options::default()), period);
    for packet in &script.packets {
        analysis.packet(packet);
    }
    analysis.finish().finish()
}

#[test]
fn a_latency_belongs_to_the_part_in_which_it_began() {
    let results = measure_part(&ten_bundled(), from(600));
    let main = &results.connections[0].main;
    // Of the ACKs that come from then on, one is for what was sent before.
    assert_eq!(ms(&main.latency.ack_latency), [(150, 6)]);
    assert_eq!(main.latency.ack_latency.len(), 6);
    assert_eq!(ms(&main.spacing.itt), [(100, 5)]);
    let acked: u64 = main.slices.iter().map(|(_, slice)| slice.acked_bytes).sum();
    assert_eq!(acked, 700);
}

#[test]
fn what_was_sent_before_a_part_is_known_in_it() {
    let results = measure_part(&ten_bundled(), from(600));
    let single = &results.connections[0];
    let counts = single.main.sent.counts;
    assert_eq!((counts.bundled_packets, counts.new_packets), (6, 0));
    assert_eq!((counts.new_bytes, counts.bundled_bytes), (600, 600));
    assert_eq!(single.main.spacing.in_flight.min(), Some(1));
    assert_eq!(single.outcome, Outcome::Completed);
    assert_eq!((single.begin_s, single.duration_s), (0.0, 0.65));
}

#[test]
fn a_trace_has_the_counts_of_its_parts_together() {
    let script = ten_bundled();
    let counts = |period| {
        measure_part(&script, period).connections[0]
            .main
            .sent
            .counts
    };
    for ms in [100, 200, 455, 600, 1000] {
        let (mut parts, all) = (counts(until(ms)), counts(Period::default()));
        parts += counts(from(ms));
        assert_eq!(parts, all, "parts before and from {ms} ms");
    }
}

#[test]
fn a_connection_that_ended_before_a_part_is_not_in_it_and_others_keep_their_numbers() {
    let mut script = one_message();
    script.client = endpoint("192.0.2.1:40001");
    script.initial = [5, 6];
    script.at(5000).handshake();
    let results = measure_part(&script, from(4000));
    let numbers = results.connections.iter().map(|single| single.number);
    assert_eq!(numbers.collect::<Vec<_>>(), [2]);
}

#[test]
fn of_two_traces_what_was_in_flight_belongs_to_the_part_in_which_it_was_sent() {
    let mut script = ten_bundled();
    // What is lost is acknowledged with what brings it after all.
    script.packets.retain(|packet| packet.number != 10);
    let (here, there) = carry(&script, ONE_WAY, AHEAD, &[7]);
    let whole = measure_both(&here, &there, Options::default());
    for ms in [205, 340, 600, 930] {
        let pair = pair::Options {
            period: from(ms),
            ..pair::Options::default()
        };
        let later = measure_pair(&here, &there, &pair, Options::default());
        let pair = pair::Options {
            period: until(ms),
            ..pair::Options::default()
        };
        let before = measure_pair(&here, &there, &pair, Options::default());
        let sent_before = before.all.main.sent.counts.data_packets;
        let expected = whole.all.main.sent.counts.data_packets - sent_before;
        let main = &later.all.main;
        let loss = main.loss.as_ref().unwrap();
        assert_eq!(loss.data_packets, expected, "from {ms} ms");
        assert_eq!(main.delay.application.len(), expected, "from {ms} ms");
        assert_eq!(
            main.delay.one_way.len() + loss.passage.lost_data_packets,
            expected
        );
        assert_eq!(
            (loss.passage.unseen_bytes, loss.passage.unmatched_packets),
            (0, 0)
        );
        let delivered = loss.passage.delivered_bytes;
        // What the lost packet brought new comes with the next one.
        assert_eq!(delivered, 100 * expected, "from {ms} ms");
        let back = later.all.back.loss.as_ref().unwrap();
        assert_eq!(
            (back.passage.unknown_packets, back.passage.lost_packets),
            (0, 0)
        );
    }
}
