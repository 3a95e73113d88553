use pillion_measure::Percentile;
use pillion_report::{Column, Table, number};

use super::Demo;

/// The demo's numbers, both groups beside each other.
#[must_use]
pub fn demo_table(demo: &Demo) -> Table {
    let columns = [
        Column::left(""),
        Column::right("plain TCP"),
        Column::right("pillion"),
        Column::right("plain / pillion"),
    ];
    let (plain, pillion) = (&demo.plain, &demo.pillion);
    let mut table = Table::new("Plain TCP and pillion, side by side", columns);
    let counts = |name: &str, plain: u64, pillion: u64| {
        let ratio = (pillion > 0).then(|| plain as f64 / pillion as f64);
        [
            name.to_owned(),
            number::count(plain),
            number::count(pillion),
            number::ratio(ratio),
        ]
    };
    table.row(counts("messages", plain.messages, pillion.messages));
    table.section("delivery latency, ms");
    for Percentile { label, share, .. } in Percentile::LATENCY {
        let (a, b) = (
            plain.latency.quantile(share),
            pillion.latency.quantile(share),
        );
        let ratio = number::ratio(a.zip(b).map(|(a, b)| a / b));
        table.row([
            label.to_owned(),
            number::millis(a),
            number::millis(b),
            ratio,
        ]);
    }
    table.section("cost");
    table.row(counts(
        "retransmissions",
        plain.retransmissions,
        pillion.retransmissions,
    ));
    let packets = [&plain.path, &pillion.path].map(|path| path.received.packets);
    table.row(counts("packets on the wire", packets[0], packets[1]));
    let bytes = [&plain.path, &pillion.path].map(|path| path.received.bytes as f64);
    table.row([
        "bytes on the wire".to_owned(),
        number::bytes(bytes[0]),
        number::bytes(bytes[1]),
        number::ratio(bytes[0] / bytes[1]),
    ]);
    for (name, key) in [
        ("losses hidden", "hidden_losses"),
        ("window reductions for them", "reactions"),
    ] {
        let counted = pillion
            .bundler
            .as_ref()
            .and_then(|account| account[key].as_u64());
        let counted = counted.map_or_else(String::new, number::count);
        table.row([name.to_owned(), String::new(), counted, String::new()]);
    }
    table
}
