use super::established;
use crate::Class;
use crate::Direction::Forward;
use crate::script::MS;

#[test]
fn sack_dates_a_range_before_its_ack() {
    let mut script = established();
    script.at(10).data(1, 101).data(101, 201).data(201, 301);
    script.at(60).sack(1, &[(101, 201)]);
    script.at(61).sack(1, &[(101, 301)]);
    script.at(210).data(1, 101).at(260).ack(301);
    let record = script.analyse();
    let sacked: Vec<_> = record.ranges.iter().map(|(_, r)| r.sacked_ns).collect();
    assert_eq!(sacked, [None, Some(60 * MS), Some(61 * MS)]);
    let acks = record
        .acked
        .iter()
        .filter(|acked| acked.direction == Forward);
    let new: Vec<_> = acks.map(|acked| acked.sacked_bytes).collect();
    assert_eq!(new[new.len() - 3..], [100, 100, 0]);
    assert_eq!(record.only().backward.duplicate_acks, 2);
}

/// RFC 6675, section 2: the octets that it reports are sequence numbers, and a FIN has one.
#[test]
fn what_reports_nothing_but_a_fin_for_the_first_time_is_a_duplicate_ack() {
    let mut script = established();
    script.at(10).data(1, 101).data(101, 201);
    script.last().flags.fin = true;
    script.at(60).sack(1, &[(201, 202)]);
    script.at(61).sack(1, &[(201, 202)]);
    script.at(210).data(1, 101).at(260).ack(202);
    let record = script.analyse();
    assert_eq!(record.only().backward.duplicate_acks, 1);
    assert!(record.acked.iter().all(|acked| acked.sacked_bytes == 0));
}

#[test]
fn a_block_below_the_ack_says_what_came_twice() {
    let mut script = established();
    script.at(10).data(1, 101).at(40).data(1, 201);
    script.at(60).ack(101).at(90).sack(201, &[(1, 101)]);
    let record = script.analyse();
    assert_eq!(record.acked.last().unwrap().dsack, Some((1, 101)));
    assert_eq!(record.only().backward.dsacks, 1);
    assert_eq!(record.only().backward.duplicate_acks, 0);
}

#[test]
fn only_what_was_sent_once_gives_a_round_trip_time() {
    let mut script = established();
    script.at(10).data(1, 101).at(50).ack(101);
    script.at(60).data(101, 201).at(260).data(101, 201);
    script.at(300).ack(201);
    let record = script.analyse();
    let samples: Vec<_> = record
        .acked
        .iter()
        .filter_map(|acked| acked.rtt_ns)
        .collect();
    assert_eq!(samples, [40 * MS]);
}

#[test]
fn an_ack_to_where_only_the_first_packet_ended_tells_the_round_trip_time_despite_bundles() {
    let mut script = established();
    script.at(10).data(1, 101).at(40).data(1, 201);
    script.at(60).ack(101).at(90).ack(201);
    script.at(100).data(201, 301).at(130).data(201, 401);
    script.at(150).data(201, 301).at(160).ack(301);
    let record = script.analyse();
    let samples: Vec<_> = record
        .acked
        .iter()
        .filter_map(|acked| acked.rtt_ns)
        .collect();
    assert_eq!(samples, [50 * MS, 50 * MS]);
}

#[test]
fn packets_in_flight_are_those_with_new_bytes() {
    let mut script = established();
    script.at(10).data(1, 101).data(101, 201).data(1, 101);
    script.data(201, 301).at(50).ack(201).at(60).data(301, 401);
    let record = script.analyse();
    let data = record
        .sent
        .iter()
        .filter(|sent| sent.class != Class::Control);
    let in_flight: Vec<_> = data
        .map(|sent| (sent.in_flight, sent.bytes_in_flight))
        .collect();
    assert_eq!(in_flight, [(0, 0), (1, 100), (2, 200), (2, 200), (1, 100)]);
    assert_eq!(record.only().forward.most_in_flight, 3);
}
