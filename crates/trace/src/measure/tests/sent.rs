use super::*;

#[test]
fn what_is_sent_is_counted_and_what_of_it_is_redundant() {
    let results = measure(&one_loss(), Options::default());
    let sent = &results.all.main.sent;
    assert_eq!(
        (sent.counts.data_packets, sent.counts.payload_bytes),
        (5, 600)
    );
    assert_eq!(
        (sent.counts.bundled_bytes, sent.counts.retransmitted_bytes),
        (100, 100)
    );
    assert_eq!(sent.redundant_share, Some(2.0 / 6.0));
    assert_eq!(sent.bundled_share, Some(1.0 / 6.0));
    assert_eq!(sent.estimated_loss_share, Some(1.0 / 5.0));
    assert_eq!(sent.nth_retransmissions[..2], [1, 0]);
    assert_eq!(sent.duplicate_acks_received, 2);
    assert!(results.all.main.loss.is_none());
    assert!(results.all.main.head_of_line.wait.is_empty());
}

#[test]
fn ack_latency_is_from_the_first_time_sent_to_the_ack_that_covers_it() {
    let results = measure(&one_loss(), Options::default());
    let main = &results.connections[0].main;
    assert_eq!(
        ms(&main.latency.ack_latency),
        [(360, 1), (390, 1), (420, 1), (450, 1)]
    );
    // Its only new ACK covers what was retransmitted.
    assert!(main.latency.rtt.is_empty());
}

#[test]
fn spacing_is_that_of_packets_with_payload() {
    let script = one_loss();
    let (here, there) = carry(&script, ONE_WAY, AHEAD, &[4]);
    let results = measure_both(&here, &there, Options::default());
    let spacing = &results.connections[0].main.spacing;
    assert_eq!(ms(&spacing.itt), [(30, 3), (210, 1)]);
    assert_eq!(ms(&spacing.iat), [(30, 2), (210, 1)]);
    assert_eq!(spacing.payload.steps(), [(100, 4), (200, 1)]);
    assert_eq!(spacing.packet.steps(), [(166, 4), (266, 1)]);
    assert_eq!(
        spacing.in_flight.steps(),
        [(0, 1), (1, 1), (2, 1), (3, 1), (4, 1)]
    );
}

#[test]
fn the_main_direction_is_that_of_more_new_bytes() {
    let mut script = Script::new();
    script.handshake();
    script.at(10).data(1, 11);
    script.at(20).packet(Backward, 1, 500);
    let results = measure(&script, Options::default());
    let connection = &results.connections[0];
    assert_eq!(connection.sender, script.server);
    assert!(!connection.opened_by_sender);
    assert_eq!(connection.main.sent.counts.new_bytes, 500);
    assert_eq!(connection.back.sent.counts.new_bytes, 10);
}
