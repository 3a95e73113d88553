use pillion_stats::measure::Unit;
use pillion_stats::report::{Column, Table, number};

use crate::analysis::summary::{Summary, outcome, value};

/// More would make a page that no browser likes to show.
const MOST: usize = 500;

pub fn table(summary: &Summary) -> Table {
    let connections = &summary.results.connections;
    let caption = match connections.len() {
        ..=MOST => "Each connection, in its main direction".to_owned(),
        all => format!("The first {MOST} of {all} connections, each in its main direction"),
    };
    let columns = [
        Column::right(""),
        Column::left("sender"),
        Column::left("receiver"),
        Column::right("begin").unit("s"),
        Column::right("duration").unit("s"),
        Column::left("handshake"),
        Column::right("new bytes"),
        Column::right("retransmitted"),
        Column::right("bundled"),
        Column::right("lost"),
        Column::right("ACK latency p50").unit("ms"),
        Column::right("p99").unit("ms"),
    ];
    let mut table = Table::new(caption, columns);
    for single in connections.iter().take(MOST) {
        let (main, counts) = (&single.main, &single.main.sent.counts);
        let lost = main.loss.as_deref();
        let lost = lost.map(|loss| number::count(loss.passage.lost_data_packets));
        let latency = |q| value(main.latency.ack_latency.quantile(q), Unit::Milliseconds);
        table.row([
            single.number.to_string(),
            single.sender.to_string(),
            single.receiver.to_string(),
            number::seconds(single.begin_s),
            number::seconds(single.duration_s),
            outcome(single.outcome).to_owned(),
            number::count(counts.new_bytes),
            number::count(counts.retransmitted_packets),
            number::count(counts.bundled_packets),
            lost.unwrap_or_default(),
            latency(0.5),
            latency(0.99),
        ]);
    }
    table
}
