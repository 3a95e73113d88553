use std::process::ExitCode;

use anyhow::Result;
use pillion_cli::print::{print, print_json};
use pillion_lab::analysis::{
    Choice, Chosen, List, Listed, ListedDirection, Trace, Traces, outcome,
};
use pillion_stats::report::{Column, Table, number};

use super::choice::all_found;
use super::files::{exit_code, observe};

pub fn list(traces: Traces, choice: Choice, json: bool) -> Result<ExitCode> {
    let observed = observe(traces, Chosen::new(choice, List::default()));
    all_found(&observed.observer)?;
    let exit_code = exit_code(&observed);
    let begin_ns = observed.traces.first().map_or(0, Trace::begin_ns);
    let connections = observed.observer.observer.finish(begin_ns);
    if json {
        print_json(&connections)?;
    } else if connections.is_empty() {
        print("no TCP connection in the trace, or none of those chosen\n")?;
    } else {
        print(&table(&connections).to_text())?;
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
        let both = |of: fn(&ListedDirection) -> u64| {
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
            match listed.there.lost_packets {
                Some(_) => both(|way| way.lost_packets.unwrap_or_default()),
                None => String::new(),
            },
        ]);
    }
    table
}
