use std::net::SocketAddr;
use std::process::ExitCode;

use anyhow::Result;
use pillion_report::{Column, Table, number};
use pillion_trace::{Connection, Direction, Observer, Outcome};
use serde::Serialize;

use super::choice::{Choice, Chosen};
use super::summary::outcome;
use super::traces::{Trace, Traces};
use crate::print::{print, print_json};

/// A connection as `--list` shows it; there is from who opened it, back is the other way.
#[derive(Serialize)]
struct Listed {
    connection: u64,
    opened_by: SocketAddr,
    to: SocketAddr,
    begin_s: f64,
    duration_s: f64,
    handshake: Outcome,
    there: Way,
    back: Way,
}

#[derive(Serialize)]
struct Way {
    packets: u64,
    /// Of payload, sent for the first time.
    new_bytes: u64,
    bundled_packets: u64,
    retransmitted_packets: u64,
    /// Only with a trace at the receiver.
    lost_packets: Option<u64>,
}

/// Connections and when they began, in nanoseconds since 1970.
#[derive(Default)]
struct List(Vec<(i64, Listed)>);

impl Observer for List {
    fn finished(&mut self, connection: &Connection) {
        let seconds = |ns: i64| ns as f64 / 1e9;
        let listed = Listed {
            connection: connection.number,
            opened_by: connection.originator.into(),
            to: connection.responder.into(),
            begin_s: 0.0,
            duration_s: seconds(connection.duration_ns()),
            handshake: connection.outcome(),
            there: Way::of(connection, Direction::Forward),
            back: Way::of(connection, Direction::Backward),
        };
        self.0.push((connection.first_ns, listed));
    }
}

impl Way {
    fn of(connection: &Connection, direction: Direction) -> Self {
        let half = connection.half(direction);
        Self {
            packets: half.counts.packets,
            new_bytes: half.counts.new_bytes,
            bundled_packets: half.counts.bundled_packets,
            retransmitted_packets: half.counts.retransmitted_packets,
            lost_packets: half.passage().map(|passage| passage.lost_packets),
        }
    }
}

pub fn list(traces: Traces, choice: Choice, json: bool) -> Result<ExitCode> {
    let observed = traces.observe(Chosen {
        choice,
        observer: List::default(),
    });
    let exit_code = observed.exit_code();
    let begin_ns = observed.traces.first().map_or(0, Trace::begin_ns);
    let since = |at_ns: i64| at_ns.saturating_sub(begin_ns) as f64 / 1e9;
    let connections = observed.observer.observer.0.into_iter();
    let mut connections: Vec<Listed> = connections
        .map(|(first_ns, listed)| Listed {
            begin_s: since(first_ns),
            ..listed
        })
        .collect();
    connections.sort_by_key(|listed| listed.connection);
    if json {
        print_json(&connections)?;
    } else if connections.is_empty() {
        print("no TCP connection in the trace, or none of those chosen\n")?;
    } else {
        print(&table(&connections).to_text(false))?;
    }
    Ok(exit_code)
}

fn table(connections: &[Listed]) -> Table {
    let with_receiver = connections.iter().any(|c| c.there.lost_packets.is_some());
    let mut columns = vec![
        Column::right(""),
        Column::left("opened by"),
        Column::left("to"),
        Column::right("begin").unit("s"),
        Column::right("duration").unit("s"),
        Column::left("handshake"),
        Column::right("packets"),
        Column::right("new bytes"),
        Column::right("bundled"),
        Column::right("retransmitted"),
    ];
    if with_receiver {
        columns.push(Column::right("lost"));
    }
    let mut table = Table::new("", columns);
    for listed in connections {
        let both = |of: fn(&Way) -> u64| {
            let [there, back] = [&listed.there, &listed.back].map(|way| number::count(of(way)));
            format!("{there} / {back}")
        };
        table.row([
            listed.connection.to_string(),
            listed.opened_by.to_string(),
            listed.to.to_string(),
            number::seconds(listed.begin_s),
            number::seconds(listed.duration_s),
            outcome(listed.handshake).to_owned(),
            both(|way| way.packets),
            both(|way| way.new_bytes),
            both(|way| way.bundled_packets),
            both(|way| way.retransmitted_packets),
            both(|way| way.lost_packets.unwrap_or_default()),
        ]);
    }
    table
}
