use super::*;
use crate::script::hosts::{NOT_SHOWN, SHOWN, is_shown, traces, with};

#[test]
fn a_connection_that_the_other_trace_does_not_show_is_measured_as_of_one_trace() {
    for opened_by_other in [false, true] {
        let scripts = [
            with(5001, SHOWN, opened_by_other),
            with(5002, NOT_SHOWN, opened_by_other),
        ];
        let [here, there] = traces(&scripts, is_shown);
        let results = measure_both(&here, &there, Options::default());
        let [shown, other] = &results.connections[..] else {
            panic!("{:?}", results.connections);
        };
        assert_eq!((shown.only_at, other.only_at), (None, Some(Side::Sender)));
        let all = &results.all;
        let counts = all.handshakes;
        assert_eq!((counts.only_at_sender, counts.only_at_receiver), (1, 0));
        assert_eq!((counts.without_data, counts.problematic), (0, 0));
        // Both send the same.
        assert_eq!(other.main.sent.counts, shown.main.sent.counts);
        assert_eq!(other.throughput_bit_per_s, shown.throughput_bit_per_s);
        assert_eq!(all.fairness.jain_index, Some(1.0));
        assert_eq!(other.main.latency.ack_latency.len(), 20);
        assert!(other.main.loss.is_none() && other.back.loss.is_none());
        let loss = all.main.loss.as_ref().unwrap();
        assert_eq!((loss.data_packets, loss.unknown_data_packets), (20, 0));
        assert_eq!(
            (loss.passage.lost_packets, loss.passage.unseen_bytes),
            (0, 0)
        );
        assert_eq!(all.main.delay.untold, Default::default());
        let json = serde_json::to_value(&results).unwrap();
        assert_eq!(json["connections"][1]["only_at"], "sender");
        assert_eq!(json["connections"][0]["only_at"], serde_json::Value::Null);
        assert_eq!(json["all"]["handshakes"]["only_at_sender"], 1);
    }
}

#[test]
fn what_the_receivers_trace_shows_alone_has_brought_its_data() {
    let scripts = [with(5001, SHOWN, false), with(5002, SHOWN, false)];
    let [mut here, there] = traces(&scripts, |_| true);
    here.retain(|packet| [packet.from.port, packet.to.port].contains(&5001));
    let results = measure_both(&here, &there, Options::default());
    let counts = results.all.handshakes;
    assert_eq!((counts.only_at_sender, counts.only_at_receiver), (0, 1));
    assert_eq!(counts.without_data, 0);
}
