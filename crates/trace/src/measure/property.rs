//! What must hold of the measures of any packets.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::catalogue::distributions;
use super::{Measures, Meter, Options, Results};
use crate::flows_property::any_packet;
use crate::{Counts, Period, When, pair};

fn of_any_two_traces(seed: u64) -> Results {
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let mut traces = [Vec::new(), Vec::new()];
    for number in 0..300 {
        let mut packet = any_packet(&mut random, number);
        traces[0].push(packet);
        if random.random_ratio(3, 4) {
            let later_ns = random.random_range(0..50_000_000);
            packet.at_ns = packet.at_ns.saturating_add(later_ns);
            traces[1].push(packet);
        }
    }
    let options = Options {
        slice_ns: [1_000_000, 1_000_000_000, i64::MAX][random.random_range(0..3)],
        ..Options::default()
    };
    let pair = pair::Options {
        same_clock: random.random(),
        period: Period {
            from: [None, Some(When::After(random.random_range(0..300_000_000)))]
                [random.random_range(0..2)],
            until: None,
        },
        ..pair::Options::default()
    };
    let [here, there] = traces.map(Vec::into_iter);
    let (meter, finding) = pair::analyse(here, there, &pair, Meter::new(options));
    meter.finish_pair(&finding.clock)
}

fn holds_together(measures: &Measures) {
    let counts = &measures.sent.counts;
    assert_eq!(measures.spacing.payload.len(), counts.data_packets);
    assert_eq!(measures.spacing.in_flight.len(), counts.data_packets);
    let slices = measures.slices.iter();
    let in_slices: u64 = slices.map(|(_, slice)| u64::from(slice.data_packets)).sum();
    assert_eq!(in_slices, counts.data_packets);
    let retransmissions: u64 = measures.sent.nth_retransmissions.iter().sum();
    assert!(retransmissions <= counts.retransmitted_packets);
    if let Some(loss) = &measures.loss {
        let lost = loss.lost_new_packets + loss.lost_bundled_packets;
        let lost = lost + loss.lost_retransmitted_packets;
        assert_eq!(lost, loss.passage.lost_data_packets);
        assert_eq!(
            loss.lost_new_bytes + loss.lost_old_bytes,
            loss.passage.lost_bytes
        );
        let runs = loss.passage.loss_runs.iter().sum::<u64>();
        assert!(runs <= loss.passage.lost_packets);
    }
    for measure in distributions() {
        let distribution = (measure.of)(measures);
        let steps = distribution.steps();
        let total: u64 = steps.iter().map(|(_, times)| times).sum();
        assert_eq!(total, distribution.len(), "{}", measure.name);
        assert_eq!(steps.first().map(|step| step.0), distribution.min());
        assert_eq!(distribution.quantile(1.0), distribution.max());
    }
}

#[test]
fn whatever_two_traces_hold_the_measures_of_all_are_those_of_each_together() {
    for seed in 0..100 {
        let results = of_any_two_traces(seed);
        let (mut main, mut back) = (Counts::default(), Counts::default());
        for connection in &results.connections {
            holds_together(&connection.main);
            holds_together(&connection.back);
            main += connection.main.sent.counts;
            back += connection.back.sent.counts;
        }
        holds_together(&results.all.main);
        holds_together(&results.all.back);
        assert_eq!(results.all.main.sent.counts, main, "seed {seed}");
        assert_eq!(results.all.back.sent.counts, back, "seed {seed}");
        assert!(main.new_bytes >= back.new_bytes);
        let connections = results.connections.len() as u64;
        assert_eq!(results.all.handshakes.connections, connections);
        assert!(serde_json::to_value(&results).is_ok());
    }
}
