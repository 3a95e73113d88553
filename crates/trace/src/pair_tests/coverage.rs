use super::*;

#[test]
fn bytes_that_the_receivers_trace_misses_are_counted() {
    let mut script = established();
    script.at(200).data(1, 101).at(230).data(101, 201);
    script.at(350).ack(101).at(380).ack(201).at(400).close(201);
    let (here, mut there) = carry(&script, ONE_WAY, 0, &[]);
    there.retain(|packet| packet.number != 4);
    let (record, _) = analyse_both(&here, &there);
    assert_eq!(record.only().passages[0].unseen_bytes, 100);
    assert_eq!(record.ranges[0].1.delivery, None);
    let second = record.ranges[1].1.delivery.unwrap();
    // The ACK of the first left before the second arrived.
    assert_eq!(
        (second.in_order_ns(), second.behind),
        (Some(305 * MS), None)
    );
}

#[test]
fn nothing_is_lost_while_the_other_trace_is_off() {
    let mut script = established();
    for message in 0..2000 {
        script
            .at(200 + message * 30)
            .data(message * 10 + 1, message * 10 + 11);
        script.at(350 + message * 30).ack(message * 10 + 11);
    }
    script.packets.sort_by_key(|packet| packet.at_ns);
    let (here, mut there) = carry(&script, ONE_WAY, 0, &[]);
    there.retain(|packet| (25_000 * MS..35_000 * MS).contains(&packet.at_ns));
    let passage = analyse_both(&here, &there).0.only().passages[0];
    assert_eq!((passage.delivered_packets, passage.lost_packets), (333, 0));
    // ACKs at the sender say of nearly all the others that they arrived.
    let others = passage.unknown_packets + passage.unseen_packets;
    assert_eq!(others, 2000 - 333 + 2);
}

#[test]
fn one_that_took_very_long_leaves_no_doubt_of_what_left_before_others_that_arrived() {
    let mut script = established();
    for message in 0..20 {
        script
            .at(200 + message * 30)
            .data(message * 10 + 1, message * 10 + 11);
    }
    script.at(900).ack(161);
    let (here, mut there) = carry(&script, ONE_WAY, 0, &[20]);
    let slow = there.iter_mut().find(|packet| packet.number == 6);
    slow.unwrap().at_ns += 700 * MS;
    there.sort_by_key(|packet| packet.at_ns);
    let passage = analyse_both(&here, &there).0.only().passages[0];
    assert_eq!((passage.lost_packets, passage.unknown_packets), (1, 0));
}

#[test]
fn drifting_clocks_and_random_losses_are_told_exactly() {
    for (seed, ppm) in [(1, 100.0), (2, -100.0)] {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let mut script = established();
        let (mut here, mut there) = carry(&script, ONE_WAY, 0, &[]);
        script.packets.clear();
        let (mut lost, mut last_lost) = (0, 0);
        // A thin stream of five minutes that bundles one segment; ACKs are never lost.
        for message in 0..10_000_i64 {
            let at_ns = (200 + message * 30) * MS;
            let begin = (message - 1).max(0) * 100 + 1;
            let mut packet = *script.packet(Forward, begin, (message * 100 + 101 - begin) as u32);
            packet.at_ns = at_ns;
            packet.number = here.len() as u64 + 1;
            here.push(packet);
            // Two in a row would need a retransmission.
            if random.random_ratio(1, 10) && message > last_lost + 1 {
                (lost, last_lost) = (lost + 1, message);
                continue;
            }
            let queue_ns = random.random_range(0..8 * MS);
            packet.at_ns = at_ns + ONE_WAY + queue_ns;
            there.push(packet);
            let mut ack = *script.ack(message * 100 + 101).last();
            ack.at_ns = packet.at_ns;
            there.push(ack);
            ack.at_ns = packet.at_ns + ONE_WAY;
            here.push(ack);
        }
        here.sort_by_key(|packet| packet.at_ns);
        for packet in &mut there {
            packet.at_ns += AHEAD + (packet.at_ns as f64 * ppm / 1e6) as i64;
        }
        let (record, finding) = analyse_both(&here, &there);
        let found = finding.clock.drift_ppm().unwrap();
        assert!((found - ppm).abs() < 1.0, "{found} ppm instead of {ppm}");
        let passage = record.only().passages[0];
        // Those of the last moments may count as unknown.
        let gone = passage.lost_packets + passage.unknown_packets;
        assert_eq!(gone, lost);
        assert!(passage.unknown_packets <= 10, "{passage:?}");
        assert_eq!(record.only().passages[1].lost_packets, 0);
        let least = finding.clock.there.unwrap();
        for fate in &record.fates {
            if let (Forward, Some(raw)) = (fate.direction, fate.raw_delay_ns()) {
                let variation = (raw as f64 - least.at(fate.sent_ns)) / MS as f64;
                assert!((-0.01..8.3).contains(&variation), "{variation} ms");
            }
        }
    }
}
