//! `pillion flows`: bundled connections with their processes.

mod columns;

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, IsTerminal};
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::process::ExitCode;

use anyhow::Result;
use pillion_bpf::host::{Owners, Socket};
use pillion_bpf::{Counters, Flow, cgroup2_mount, list_closed, list_flows};
use pillion_cli::VERSION;
use pillion_cli::print::{print, print_json, print_line};
use pillion_stats::report::{Table, display_width};
use rustix::termios::tcgetwinsize;
use serde::Serialize;

use crate::service::{Health, status_socket};
use columns::{FlowColumn, closed_columns, drop_least_important, hide_single_namespace, total_row};

pub use columns::{Cell, columns};

/// List the bundled connections and the outcome of their last segments
///
/// On narrow terminals the least important columns are omitted.
#[derive(clap::Args)]
pub struct Args {
    /// List connections that have ended, up to 1024 of each running pillion, newest last
    ///
    /// Each line is the state at the end of the connection. The list is lost when its pillion
    /// exits. The process is unknown, but the container or unit is known while it exists.
    #[arg(long)]
    closed: bool,
    /// Print the connections as JSON
    #[arg(long)]
    json: bool,
}

impl Args {
    pub fn execute(self) -> Result<ExitCode> {
        let (flows, columns, empty_message) = match self.closed {
            false => (list_flows()?, columns(), "no connection is bundled"),
            true => (
                list_closed()?,
                closed_columns(),
                "no bundled connection has ended",
            ),
        };
        let mut flows = with_owners(flows, &mut owners());
        if !self.closed {
            flows.sort_by(|a, b| a.namespace.cmp(&b.namespace));
        }
        if self.json {
            print_json(&flows)?;
        } else if flows.is_empty() {
            print_line!("{empty_message}")?;
        } else {
            let flows: Vec<_> = flows.iter().collect();
            print(&list(&flows, columns, width(), 0..flows.len()).text)?;
        }
        // Queried last, because a process that does not respond delays it.
        warn_of_other_versions();
        Ok(ExitCode::SUCCESS)
    }
}

/// Warns about running pillions of other versions, whose connections this version may misread.
fn warn_of_other_versions() {
    let running = status_socket::query().unwrap_or_default().healths;
    for other in running.iter().filter(|it| it.version != VERSION) {
        let Health { pid, version, .. } = other;
        log::warn!(
            "process {pid} is pillion {version}, this is {VERSION}: its connections may be missing \
             or wrong; list them with `/proc/{pid}/exe flows`"
        );
    }
}

/// Returns the width of the terminal; `None` without one.
pub fn width() -> Option<usize> {
    let stdout = io::stdout();
    let size = stdout.is_terminal().then(|| tcgetwinsize(stdout));
    let columns = size?.ok()?.ws_col;
    (columns > 0).then_some(columns.into())
}

/// Table of connections, in the given order.
pub struct List {
    /// Two heading lines, one line per listed connection, and with several connections a line of
    /// totals.
    pub text: String,
    /// Headings of the columns that fit.
    pub headings: Vec<String>,
}

/// Formats these `rows` of the connections, and the totals of all of them, with as many columns as
/// fit into `width`.
pub fn list(
    connections: &[&Connection],
    columns: Vec<FlowColumn>,
    width: Option<usize>,
    rows: Range<usize>,
) -> List {
    let mut fitting = hide_single_namespace(columns, connections);
    let mut total = Counters::default();
    connections.iter().for_each(|it| total += &it.flow.counters);
    let total = (connections.len() > 1).then_some(&total);
    loop {
        let text = table(&connections[rows.clone()], &fitting, total).to_text();
        let widest = text.lines().map(display_width).max();
        let fits = width.is_none_or(|width| widest.is_none_or(|widest| widest <= width));
        match drop_least_important(&fitting).filter(|_| !fits) {
            Some(remaining) => fitting = remaining,
            None => {
                let headings = fitting.into_iter().map(|it| it.column.header).collect();
                return List { text, headings };
            }
        }
    }
}

fn table(connections: &[&Connection], columns: &[FlowColumn], total: Option<&Counters>) -> Table {
    let mut table = Table::new("", columns.iter().map(|it| it.column.clone()));
    for connection in connections {
        table.row(cells(connection, columns));
    }
    if let Some(total) = total {
        table.row(total_row(total, columns));
    }
    table
}

fn cells(connection: &Connection, columns: &[FlowColumn]) -> impl Iterator<Item = String> {
    let cells = columns
        .iter()
        .map(|it| (it.cell)(connection).text().to_owned());
    cells.collect::<Vec<_>>().into_iter()
}

// Connections with their owners.

/// Connection with its owner.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Connection {
    /// Name of a process that has the socket open.
    pub process: Option<String>,
    /// PID of this process.
    pub pid: Option<u32>,
    /// Container or systemd unit of the process or of the socket. A container has its name,
    /// otherwise a prefix of its id.
    pub unit: Option<String>,
    /// Name of the network namespace; otherwise its inode number.
    pub namespace: String,
    #[serde(flatten)]
    pub flow: Flow,
}

/// Creates the lookup of processes, containers and units.
pub fn owners() -> Owners {
    Owners::new(cgroup2_mount().ok())
}

/// Adds the owners of the connections. `/proc` is searched only for new sockets.
pub fn with_owners(flows: Vec<Flow>, owners: &mut Owners) -> Vec<Connection> {
    let sockets: Vec<_> = flows.iter().map(socket).collect();
    owners.refresh(&sockets);
    let units: Vec<_> = sockets.iter().map(|socket| owners.unit(*socket)).collect();
    let names = namespace_names();
    let unit_by_namespace = flows.iter().zip(&units);
    let unit_by_namespace =
        unit_by_namespace.filter_map(|(flow, unit)| Some((flow.netns, unit.clone()?)));
    let unit_by_namespace: BTreeMap<_, _> = unit_by_namespace.collect();
    let all = flows.into_iter().zip(sockets).zip(units);
    let with_owners = all.map(|((flow, socket), unit)| {
        let process = owners.process(socket);
        let number = flow.netns.unwrap_or(0);
        let name = names.get(&u64::from(number)).cloned();
        let name = name.or_else(|| Some(format!("of {}", unit_by_namespace.get(&flow.netns)?)));
        Connection {
            process: process.map(|it| it.process.clone()),
            pid: process.map(|it| it.pid),
            unit,
            namespace: name.unwrap_or_else(|| number.to_string()),
            flow,
        }
    });
    with_owners.collect()
}

fn socket(flow: &Flow) -> Socket {
    Socket {
        inode: flow.inode,
        cgroup: flow.cgroup,
    }
}

// Names of network namespaces.

/// Returns the names of namespaces by inode number: those in /run/netns, and the one of this
/// process.
fn namespace_names() -> BTreeMap<u64, String> {
    let named = fs::read_dir("/run/netns").into_iter().flatten().flatten();
    let named = named.filter_map(|entry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        Some((fs::metadata(entry.path()).ok()?.ino(), name))
    });
    let this = fs::metadata("/proc/self/ns/net").ok();
    let this = this.map(|it| (it.ino(), "this one".to_owned()));
    this.into_iter().chain(named).collect()
}

/// Creates a connection with this port, for tests.
#[cfg(test)]
pub fn example(port: u16) -> Connection {
    use pillion_bpf::{LossRule, RequestedBy, TcpOptions};

    let flow = Flow {
        cookie: Some(port.into()),
        inode: None,
        closed_at_s: None,
        cgroup: None,
        srtt_us: None,
        data_packets: 0,
        retransmitted_packets: 0,
        local: ([192, 0, 2, 1], port).into(),
        peer: ([198, 51, 100, 1], 443).into(),
        netns: Some(1),
        in_flight: 0,
        waits_for_nagle: false,
        rtt_min_us: None,
        snd_cwnd: 10,
        mss: 1460,
        requested_by: RequestedBy::Rule,
        rule: Some(1),
        disabled_by_application: false,
        loss_rule: LossRule::Auto,
        governor: None,
        level: 1,
        copies_per_segment: 0,
        copies_limited: false,
        has_queue: false,
        path_size: None,
        ignores_cwr: false,
        tcp_options: TcpOptions::default(),
        tcp_options_refused: Vec::new(),
        last_outcome: None,
        counters: Counters::default(),
        tfrc_decision: None,
    };
    Connection {
        process: None,
        pid: None,
        unit: None,
        namespace: "game".to_owned(),
        flow,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(port: u16, hidden_losses: u64) -> Connection {
        let mut connection = example(port);
        connection.flow.counters.hidden_losses = hidden_losses;
        connection
    }

    fn text_of(connections: &[Connection], width: Option<usize>) -> String {
        let all: Vec<_> = connections.iter().collect();
        list(&all, columns(), width, 0..all.len()).text
    }

    #[test]
    fn narrow_terminal_shows_most_important_columns() {
        let flows = [flow(5001, 3), flow(5002, 4)];
        let wide = text_of(&flows, None);
        assert!(
            wide.contains("hidden losses") && wide.contains("TCP options"),
            "{wide}"
        );
        for width in [80, 100, 120] {
            let text = text_of(&flows, Some(width));
            assert!(
                text.lines().all(|line| line.chars().count() <= width),
                "{text}"
            );
            assert!(text.contains("saved, ms"), "{text}");
        }
        let text = text_of(&flows, Some(1));
        assert!(
            text.contains("198.51.100.1:443") && !text.contains("bundled"),
            "{text}"
        );
    }

    #[test]
    fn last_row_has_totals() {
        let text = text_of(&[flow(5001, 3), flow(5002, 4)], None);
        let last = text.lines().last().unwrap();
        assert!(last.contains("total") && last.contains(" 7 "), "{text}");
        assert!(!text_of(&[flow(5001, 3)], None).contains("total"));
    }

    #[test]
    fn namespace_column_appears_with_several_namespaces() {
        let mut flows = [flow(5001, 0), flow(5002, 0)];
        assert!(!text_of(&flows, None).contains("namespace"));
        flows[1].flow.netns = Some(2);
        flows[1].namespace = "voice".to_owned();
        for width in [None, Some(80)] {
            let text = text_of(&flows, width);
            assert!(text.contains("game") && text.contains("voice"), "{text}");
        }
    }
}
