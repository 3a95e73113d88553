//! `pillion flows`: the connections that are bundled, and who has them open.

mod columns;

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, IsTerminal};
use std::os::unix::fs::MetadataExt;
use std::process::ExitCode;

use anyhow::Result;
use pillion_bpf::host::{Owners, Socket};
use pillion_bpf::{Flow, cgroup2_mount, list_closed, list_flows};
use pillion_cli::VERSION;
use pillion_cli::print::{print, print_json, print_line, say_line};
use pillion_stats::report::{Table, columns_of};
use rustix::termios::tcgetwinsize;
use serde::Serialize;

use crate::service::{Health, status_socket};
use columns::{Shown, all_together, columns_of_closed, fewer, telling};

pub use columns::{Cell, columns};

/// List the connections that running pillions bundle, and why a segment was not
///
/// On a terminal that is too narrow for all columns, the least important ones are left out.
#[derive(clap::Args)]
pub struct Args {
    /// List those that ended last instead, up to 1024 of each pillion at work, the newest last
    ///
    /// Each as it was when it ended. They go when their pillion ends. No process has them open any
    /// more, but the container or unit is known while it exists.
    #[arg(long)]
    closed: bool,
    /// Print the connections as JSON
    #[arg(long)]
    json: bool,
}

impl Args {
    pub fn execute(self) -> Result<ExitCode> {
        let (flows, columns, none) = match self.closed {
            false => (list_flows()?, columns(), "no connection is being bundled"),
            true => (
                list_closed()?,
                columns_of_closed(),
                "no connection that was bundled has ended",
            ),
        };
        let mut flows = owned(flows, &mut owners());
        if !self.closed {
            flows.sort_by(|a, b| a.namespace.cmp(&b.namespace));
        }
        if self.json {
            print_json(&flows)?;
        } else if flows.is_empty() {
            print_line!("{none}")?;
        } else {
            print(&list(&flows.iter().collect::<Vec<_>>(), columns, width()).text)?;
        }
        // One that does not answer is waited for.
        tell_of_other_versions();
        Ok(ExitCode::SUCCESS)
    }
}

/// What other versions keep of connections may not be known to this one, or be taken for something
/// else.
fn tell_of_other_versions() {
    let at_work = status_socket::ask().unwrap_or_default().healths;
    for other in at_work.iter().filter(|it| it.version != VERSION) {
        let Health { pid, version, .. } = other;
        say_line!(
            "pillion: process {pid} is pillion {version}, this is {VERSION}: its connections may be \
             missing here, or wrong; `/proc/{pid}/exe flows` lists them"
        );
    }
}

/// The terminal's columns; None where everything fits.
fn width() -> Option<usize> {
    let stdout = io::stdout();
    let size = stdout.is_terminal().then(|| tcgetwinsize(stdout));
    let columns = size?.ok()?.ws_col;
    (columns > 0).then_some(columns.into())
}

/// A table of connections, in this order.
pub struct List {
    /// Below two lines of headings a line for each connection; the last one is of all together where
    /// there are several.
    pub text: String,
    /// The headings of the columns that fit.
    pub headings: Vec<String>,
}

/// The connections, with as many of the columns as fit.
pub fn list(connections: &[&Connection], columns: Vec<Shown>, width: Option<usize>) -> List {
    let mut shown = telling(columns, connections);
    loop {
        let text = table(connections, &shown).to_text();
        let widest = text.lines().map(columns_of).max();
        let fits = width.is_none_or(|width| widest.is_none_or(|widest| widest <= width));
        match fewer(&shown).filter(|_| !fits) {
            Some(kept) => shown = kept,
            None => {
                let headings = shown.into_iter().map(|it| it.column.header).collect();
                return List { text, headings };
            }
        }
    }
}

fn table(connections: &[&Connection], shown: &[Shown]) -> Table {
    let mut table = Table::new("", shown.iter().map(|it| it.column.clone()));
    for connection in connections {
        table.row(cells(connection, shown));
    }
    all_together(connections, shown, &mut table);
    table
}

fn cells(connection: &Connection, shown: &[Shown]) -> impl Iterator<Item = String> {
    let cells = shown.iter().map(|it| (it.of)(connection).text().to_owned());
    cells.collect::<Vec<_>>().into_iter()
}

// A connection and its owner.

/// A connection, and who has it open.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Connection {
    /// The name of a process that has it open.
    pub process: Option<String>,
    /// This process's id.
    pub pid: Option<u32>,
    /// The container or unit that the process is of, or its socket; a container by its name, or the
    /// digits of its id.
    pub unit: Option<String>,
    /// What its network namespace is called; where nothing tells, the number.
    pub namespace: String,
    #[serde(flatten)]
    pub flow: Flow,
}

/// Whose connections are that are to be listed.
pub fn owners() -> Owners {
    Owners::new(cgroup2_mount().ok())
}

/// The connections with their owners; it is looked again where some are new.
pub fn owned(flows: Vec<Flow>, owners: &mut Owners) -> Vec<Connection> {
    let sockets: Vec<_> = flows.iter().map(socket).collect();
    owners.look(&sockets);
    let units: Vec<_> = sockets.iter().map(|socket| owners.unit(*socket)).collect();
    let names = namespace_names();
    let of_units = flows.iter().zip(&units);
    let of_units = of_units.filter_map(|(flow, unit)| Some((flow.netns, unit.clone()?)));
    let of_units: BTreeMap<_, _> = of_units.collect();
    let all = flows.into_iter().zip(sockets).zip(units);
    let owned = all.map(|((flow, socket), unit)| {
        let process = owners.process(socket);
        let number = flow.netns.unwrap_or(0);
        let name = names.get(&u64::from(number)).cloned();
        let name = name.or_else(|| Some(format!("of {}", of_units.get(&flow.netns)?)));
        Connection {
            process: process.map(|it| it.process.clone()),
            pid: process.map(|it| it.pid),
            unit,
            namespace: name.unwrap_or_else(|| number.to_string()),
            flow,
        }
    });
    owned.collect()
}

fn socket(flow: &Flow) -> Socket {
    Socket {
        inode: flow.inode,
        cgroup: flow.cgroup,
    }
}

// Names of network namespaces.

/// Their names by their inode numbers: of those under /run/netns, and this process's own.
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

/// A connection of this port for tests.
#[cfg(test)]
pub fn example(port: u16) -> Connection {
    use pillion_bpf::{Companions, Counters, LossRule, WantedBy};

    let flow = Flow {
        cookie: Some(port.into()),
        inode: None,
        closed_at: None,
        cgroup: None,
        srtt_us: None,
        data_packets: 0,
        retransmitted: 0,
        local: ([192, 0, 2, 1], port).into(),
        peer: ([198, 51, 100, 1], 443).into(),
        netns: Some(1),
        in_flight: 0,
        rtt_min_us: None,
        snd_cwnd: 10,
        mss: 1460,
        wanted_by: WantedBy::Rule,
        rule: Some(1),
        off: false,
        loss_rule: LossRule::Auto,
        governor: None,
        level: 1,
        path_size: None,
        ignores_cwr: false,
        companions: Companions::default(),
        companions_refused: Vec::new(),
        last: None,
        counters: Counters::default(),
        decision: None,
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

    fn fitting(connections: &[Connection], width: Option<usize>) -> String {
        list(&connections.iter().collect::<Vec<_>>(), columns(), width).text
    }

    #[test]
    fn a_narrow_terminal_has_the_most_important_columns() {
        let flows = [flow(5001, 3), flow(5002, 4)];
        let wide = fitting(&flows, None);
        assert!(
            wide.contains("hidden losses") && wide.contains("companions"),
            "{wide}"
        );
        for width in [80, 100, 120] {
            let text = fitting(&flows, Some(width));
            assert!(
                text.lines().all(|line| line.chars().count() <= width),
                "{text}"
            );
            assert!(text.contains("bundled"), "{text}");
        }
        let text = fitting(&flows, Some(1));
        assert!(
            text.contains("192.0.2.1:5001") && !text.contains("bundled"),
            "{text}"
        );
    }

    #[test]
    fn the_last_row_is_of_all_together() {
        let text = fitting(&[flow(5001, 3), flow(5002, 4)], None);
        let last = text.lines().last().unwrap();
        assert!(
            last.contains("all together") && last.contains(" 7 "),
            "{text}"
        );
        assert!(!fitting(&[flow(5001, 3)], None).contains("all together"));
    }

    #[test]
    fn namespaces_are_told_apart_where_there_are_several() {
        let mut flows = [flow(5001, 0), flow(5002, 0)];
        assert!(!fitting(&flows, None).contains("namespace"));
        flows[1].flow.netns = Some(2);
        flows[1].namespace = "voice".to_owned();
        for width in [None, Some(80)] {
            let text = fitting(&flows, width);
            assert!(text.contains("game") && text.contains("voice"), "{text}");
        }
    }
}
