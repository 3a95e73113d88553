use super::{classes, established};
use crate::script::{MS, Script};
use crate::{Class, CopyKind};

#[test]
fn each_segment_that_is_sent_once_is_one_range() {
    let mut script = established();
    script.at(10).data(1, 101).at(20).data(101, 201);
    script.at(60).ack(101).at(70).ack(201);
    let record = script.analyse();
    assert_eq!(
        record.summary(),
        [(1, 101, 1, Some(60)), (101, 201, 1, Some(70))]
    );
    assert_eq!(record.ranges[0].1.ack_latency_ns(), Some(50 * MS));
    let counts = record.only().forward;
    assert_eq!((counts.new_packets, counts.new_bytes), (2, 200));
    assert_eq!(counts.payload_bytes, 200);
}

#[test]
fn a_bundle_has_an_old_part_and_a_new_part() {
    let mut script = established();
    script.at(10).data(1, 101).at(40).data(1, 201);
    script.at(90).ack(201);
    let record = script.analyse();
    assert_eq!(
        record.summary(),
        [(1, 101, 2, Some(90)), (101, 201, 1, Some(90))]
    );
    let copies = &record.ranges[0].1.copies;
    assert_eq!(copies[0].kind, CopyKind::New);
    assert_eq!(copies[1].kind, CopyKind::Bundled);
    assert_eq!(copies[1].at_ns, 40 * MS);
    let bundle = record.sent.iter().find(|sent| sent.class == Class::Bundled);
    let bundle = bundle.unwrap();
    assert_eq!((bundle.old_bytes, bundle.new_bytes), (100, 100));
    let counts = record.only().forward;
    assert_eq!((counts.bundled_packets, counts.bundled_bytes), (1, 100));
    assert_eq!((counts.new_bytes, counts.payload_bytes), (200, 300));
    assert_eq!(counts.retransmitted_packets, 0);
}

#[test]
fn the_nth_retransmission_is_counted_from_the_first_copy() {
    let mut script = established();
    for at in [10, 210, 610] {
        script.at(at).data(1, 101);
    }
    script.at(700).ack(101);
    assert_eq!(
        classes(&script),
        [
            Class::New,
            Class::Retransmission { nth: 1 },
            Class::Retransmission { nth: 2 }
        ]
    );
    assert_eq!(script.analyse().ranges[0].1.retransmissions(), 2);
}

#[test]
fn a_retransmission_of_a_part_cuts_the_range() {
    let mut script = established();
    script.at(10).data(1, 301).at(20).data(301, 401);
    script.at(210).data(101, 351).at(300).ack(401);
    assert_eq!(
        script.analyse().summary(),
        [
            (1, 101, 1, Some(300)),
            (101, 301, 2, Some(300)),
            (301, 351, 2, Some(300)),
            (351, 401, 1, Some(300))
        ]
    );
}

#[test]
fn an_ack_of_a_part_cuts_the_range() {
    let mut script = established();
    script.at(10).data(1, 301).at(50).ack(101).at(60).ack(301);
    assert_eq!(
        script.analyse().summary(),
        [(1, 101, 1, Some(50)), (101, 301, 1, Some(60))]
    );
}

#[test]
fn sequence_numbers_may_wrap() {
    let mut script = Script::new();
    script.initial = [u32::MAX - 150, u32::MAX];
    script.handshake();
    script.at(10).data(1, 101).at(20).data(101, 201);
    script.at(220).data(101, 201).at(300).ack(201);
    let record = script.analyse();
    assert_eq!(
        record.summary(),
        [(1, 101, 1, Some(300)), (101, 201, 2, Some(300))]
    );
    assert_eq!(record.only().forward.stray_packets, 0);
}
