use super::*;

#[test]
fn loss_is_told_by_packets_bytes_ranges_and_by_what_was_lost() {
    let mut script = established();
    script.at(200).data(1, 101).at(230).data(101, 201);
    script.at(260).data(101, 301).at(290).data(301, 401);
    script.at(380).ack(1).at(410).ack(1);
    script.at(500).data(1, 101).data(201, 301);
    script.at(650).ack(401).at(700).close(401);
    let (here, there) = carry(&script, ONE_WAY, AHEAD, &[4, 6]);
    let results = measure_both(&here, &there, Options::default());
    let loss = results.all.main.loss.as_ref().unwrap();
    assert_eq!((loss.data_packets, loss.passage.lost_data_packets), (6, 2));
    assert_eq!((loss.data_bytes, loss.passage.lost_bytes), (700, 300));
    assert_eq!(loss.lost_data_packets_share, Some(1.0 / 3.0));
    assert_eq!(loss.lost_bytes_share, Some(3.0 / 7.0));
    assert_eq!((loss.lost_new_bytes, loss.lost_old_bytes), (200, 100));
    assert_eq!((loss.lost_new_packets, loss.lost_bundled_packets), (1, 1));
    assert_eq!((loss.delivered_ranges, loss.lost_ranges), (4, 2));
    assert_eq!(loss.ranges_repaired_by_retransmission, 2);
    assert_eq!(loss.passage.loss_runs[..2], [2, 0]);
}

#[test]
fn the_nth_retransmission_that_is_lost_is_counted_as_that() {
    let mut script = established();
    for at in [200, 500, 1100, 2300] {
        script.at(at).data(1, 101);
    }
    script.at(2450).ack(101).at(2500).close(101);
    let (here, there) = carry(&script, ONE_WAY, 0, &[4, 5, 6]);
    let results = measure_both(&here, &there, Options::default());
    let main = &results.all.main;
    let loss = main.loss.as_ref().unwrap();
    assert_eq!(main.sent.nth_retransmissions[..4], [1, 1, 1, 0]);
    assert_eq!(loss.lost_nth_retransmissions[..4], [1, 1, 0, 0]);
    assert_eq!(loss.lost_retransmitted_packets, 2);
    assert_eq!(
        (loss.passage.longest_loss_run, loss.passage.loss_runs[2]),
        (3, 1)
    );
}

/// "Connections where no data packets were received" (thesis, section 4.1.1).
#[test]
fn a_connection_whose_data_is_all_lost_is_one_without_data() {
    let mut script = established();
    script.at(200).data(1, 101).at(500).data(1, 101);
    for (lost, without_data) in [(&[4, 5][..], 1), (&[4], 0)] {
        let (here, there) = carry(&script, ONE_WAY, 0, lost);
        let results = measure_both(&here, &there, Options::default());
        assert_eq!(results.all.handshakes.without_data, without_data);
    }
}

#[test]
fn bundles_that_repair_are_hits() {
    let script = repaired_by_a_bundle();
    let (here, there) = carry(&script, ONE_WAY, AHEAD, &[4]);
    let results = measure_both(&here, &there, Options::default());
    let loss = results.all.main.loss.as_ref().unwrap();
    assert_eq!(
        (loss.passage.bundle_hits, loss.passage.bundle_misses),
        (1, 1)
    );
    assert_eq!(
        (loss.passage.repaired_bytes, loss.passage.needless_bytes),
        (100, 100)
    );
    assert_eq!(loss.bundle_hit_share, Some(0.5));
    assert_eq!((loss.lost_ranges, loss.ranges_repaired_by_bundle), (1, 1));
}

/// As a receiver's capture shows what its device or kernel has joined: the packets with these
/// numbers as one, with the time of the last.
fn join(there: &mut Vec<Packet>, numbers: &[u64]) {
    let is_one = |packet: &Packet| numbers.contains(&packet.number);
    let mut joined = *there.iter().find(|packet| is_one(packet)).unwrap();
    let parts = there.iter().filter(|packet| is_one(packet));
    joined.payload_len = parts.clone().map(|packet| packet.payload_len).sum();
    joined.at_ns = parts.map(|packet| packet.at_ns).max().unwrap();
    there.retain(|packet| !is_one(packet));
    there.push(joined);
    there.sort_by_key(|packet| packet.at_ns);
}

#[test]
fn what_was_joined_on_the_way_is_not_taken_for_lost() {
    let mut script = established();
    for number in 0..6 {
        let begin = number * 1460 + 1;
        script.at(200 + number).data(begin, begin + 1460);
    }
    // The third again, which had arrived, and the fourth, which had not.
    script.at(500).data(2921, 4381).at(510).data(4381, 5841);
    script.at(700).ack(8761).at(800).close(8761);
    let (here, mut there) = carry(&script, ONE_WAY, AHEAD, &[7]);
    join(&mut there, &[5, 6]);
    join(&mut there, &[8, 9]);
    let results = measure_both(&here, &there, Options::default());
    let loss = results.all.main.loss.as_ref().unwrap();
    // Nothing tells which copy of the third came first.
    assert_eq!(loss.unattributed_ranges, 1);
    assert_eq!((loss.delivered_ranges, loss.lost_ranges), (5, 1));
    assert_eq!(loss.lost_ranges_share, Some(0.2));
    assert_eq!(loss.ranges_repaired_by_retransmission, 1);
}

#[test]
fn what_was_joined_is_not_taken_for_lost_where_segments_are_small_or_their_size_is_not_known() {
    for (size, with_handshake) in [(1460, false), (100, true), (100, false)] {
        let mut script = established();
        for number in 0..6 {
            let begin = number * size + 1;
            script.at(200 + number).data(begin, begin + size);
        }
        script.at(700).ack(6 * size + 1).at(800).close(6 * size + 1);
        let (mut here, mut there) = carry(&script, ONE_WAY, AHEAD, &[]);
        for numbers in [[4, 5], [6, 7], [8, 9]] {
            join(&mut there, &numbers);
        }
        if !with_handshake {
            for trace in [&mut here, &mut there] {
                trace.retain(|packet| packet.number > 3);
            }
        }
        let results = measure_both(&here, &there, Options::default());
        let loss = results.all.main.loss.as_ref().unwrap();
        let known = (loss.passage.lost_data_packets, loss.unknown_data_packets);
        assert_eq!(known, (0, 6), "{size} {with_handshake}");
        assert_eq!((loss.delivered_ranges, loss.lost_ranges), (6, 0));
    }
}
