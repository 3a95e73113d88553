use super::*;

#[test]
fn what_arrives_is_delivered_in_order_without_waiting() {
    let mut script = established();
    script.at(200).data(1, 101).at(230).data(101, 201);
    script.at(350).ack(101).at(380).ack(201).at(400).close(201);
    let (here, there) = carry(&script, ONE_WAY, 0, &[]);
    let (record, _) = analyse_both(&here, &there);
    assert_eq!(
        record.deliveries(),
        [
            (1, Some((275, Some(0), Some(275), None))),
            (101, Some((305, Some(0), Some(305), None)))
        ]
    );
    assert_eq!(
        record.summary(),
        [(1, 101, 1, Some(350)), (101, 201, 1, Some(380))]
    );
    let [forward, backward] = record.only().passages;
    assert_eq!((forward.delivered_packets, forward.lost_packets), (6, 0));
    assert_eq!((backward.delivered_packets, backward.lost_packets), (4, 0));
    assert_eq!((forward.delivered_bytes, forward.unseen_bytes), (200, 0));
    assert!(
        record
            .fates
            .iter()
            .all(|fate| fate.raw_delay_ns() == Some(ONE_WAY))
    );
}

#[test]
fn a_bundle_that_brings_a_lost_byte_is_a_hit() {
    let script = repaired_by_a_bundle();
    let (here, there) = carry(&script, ONE_WAY, AHEAD, &[4]);
    let (record, _) = analyse_both(&here, &there);
    let ahead = AHEAD / MS;
    assert_eq!(
        record.deliveries(),
        [
            (1, Some((305 + ahead, Some(1), Some(305 + ahead), None))),
            (101, Some((305 + ahead, Some(0), Some(305 + ahead), None))),
            (201, Some((335 + ahead, Some(0), Some(335 + ahead), None)))
        ]
    );
    assert_eq!(arrivals(&record), [false, true, true]);
    let passage = record.only().passages[0];
    assert_eq!((passage.bundle_hits, passage.bundle_misses), (1, 1));
    assert_eq!((passage.repaired_bytes, passage.needless_bytes), (100, 100));
    assert_eq!((passage.lost_data_packets, passage.lost_bytes), (1, 100));
}

#[test]
fn later_bytes_wait_behind_a_missing_one() {
    let mut script = established();
    script.at(200).data(1, 101).at(230).data(101, 201);
    script.at(260).data(201, 301).at(380).ack(1).at(410).ack(1);
    script
        .at(500)
        .data(1, 101)
        .at(650)
        .ack(301)
        .at(700)
        .close(301);
    let (here, there) = carry(&script, ONE_WAY, 0, &[4]);
    let (record, _) = analyse_both(&here, &there);
    assert_eq!(
        record.deliveries(),
        [
            (1, Some((575, Some(1), Some(575), None))),
            (101, Some((305, Some(0), Some(575), Some(1)))),
            (201, Some((335, Some(0), Some(575), Some(1))))
        ]
    );
    let blocked: Vec<_> = record
        .ranges
        .iter()
        .map(|(_, range)| range.delivery.unwrap().blocked_ns())
        .collect();
    assert_eq!(blocked, [Some(0), Some(270 * MS), Some(240 * MS)]);
}

#[test]
fn losses_in_a_row_are_one_run() {
    let mut script = established();
    for message in 0..8 {
        script
            .at(200 + message * 30)
            .data(message * 10 + 1, message * 10 + 11);
    }
    script.at(700).data(1, 81).at(900).ack(81).at(950).close(81);
    let (here, there) = carry(&script, ONE_WAY, 0, &[5, 6, 7, 9]);
    let passage = analyse_both(&here, &there).0.only().passages[0];
    assert_eq!(passage.loss_runs[..4], [1, 0, 1, 0]);
    assert_eq!((passage.longest_loss_run, passage.lost_packets), (3, 4));
}

#[test]
fn lost_acks_are_lost_packets_of_the_way_back() {
    let mut script = established();
    script.at(200).data(1, 101).at(230).data(101, 201);
    script.at(350).ack(101).at(380).ack(201).at(400).close(201);
    let (here, there) = carry(&script, ONE_WAY, 0, &[6]);
    let (record, _) = analyse_both(&here, &there);
    let [forward, backward] = record.only().passages;
    assert_eq!((forward.lost_packets, backward.lost_packets), (0, 1));
    assert_eq!(
        record.summary(),
        [(1, 101, 1, Some(380)), (101, 201, 1, Some(380))]
    );
}

#[test]
fn a_server_that_sends_is_analysed_at_its_own_trace() {
    let mut script = established();
    script.at(200);
    script.packet(Backward, 1, 500);
    script.at(201);
    script.packet(Forward, 1, 0).ack = Some(script.initial[1] + 501);
    let (mut here, mut there) = carry(&script, ONE_WAY, 0, &[]);
    there.sort_by_key(|packet| packet.at_ns);
    here.sort_by_key(|packet| packet.at_ns);
    let (record, _) = analyse_both(&there, &here);
    let (_, range) = &record.ranges[0];
    assert_eq!(range.ack_latency_ns(), Some(151 * MS));
    assert_eq!(range.delivery.unwrap().at_ns, 200 * MS);
    assert_eq!(record.only().passages[1].delivered_bytes, 500);
}
