mod columns;
mod connection;
#[cfg(test)]
mod example;

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, IsTerminal};
use std::os::unix::fs::MetadataExt;
use std::process::ExitCode;

use anyhow::Result;
use pillion_bundler::{list_closed, list_flows};
use pillion_report::{Table, columns_of};
use rustix::termios::tcgetwinsize;

pub use columns::{Cell, columns};
use columns::{Shown, all_together, columns_of_closed, fewer};
pub use connection::{Connection, owned, owners};
#[cfg(test)]
pub use example::example;

use crate::VERSION;
use crate::print::{print, print_json, print_line, say_line};
use crate::service::{Health, status_socket};

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
        let flows = owned(flows, &mut owners());
        if self.json {
            print_json(&flows)?;
        } else if flows.is_empty() {
            print_line!("{none}")?;
        } else {
            let table = |shown: &[Shown]| by_namespace(&flows, shown);
            print(&fitting(width(), columns, table))?;
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

/// A table with as many columns as fit.
fn fitting(
    width: Option<usize>,
    mut shown: Vec<Shown>,
    table: impl Fn(&[Shown]) -> Table,
) -> String {
    loop {
        let text = table(&shown).to_text();
        let widest = text.lines().map(columns_of).max();
        let fits = width.is_none_or(|width| widest.is_none_or(|widest| widest <= width));
        match fewer(&shown).filter(|_| !fits) {
            Some(kept) => shown = kept,
            None => return text,
        }
    }
}

/// A line for each connection, in this order, below two of headings; the last one is of all together
/// where there are several.
pub fn list(connections: &[&Connection], width: Option<usize>) -> String {
    fitting(width, columns(), |shown| {
        let mut table = Table::new("", shown.iter().map(|it| it.column.clone()));
        for connection in connections {
            table.row(cells(connection, shown));
        }
        all_together(connections, shown, &mut table);
        table
    })
}

fn cells(connection: &Connection, shown: &[Shown]) -> impl Iterator<Item = String> {
    let cells = shown.iter().map(|it| (it.of)(connection).text().to_owned());
    cells.collect::<Vec<_>>().into_iter()
}

fn by_namespace(connections: &[Connection], shown: &[Shown]) -> Table {
    let mut table = Table::new("", shown.iter().map(|it| it.column.clone()));
    let names = namespaces();
    let mut namespaced = BTreeMap::<_, Vec<&Connection>>::new();
    for connection in connections {
        let namespace = connection.flow.netns;
        namespaced.entry(namespace).or_default().push(connection);
    }
    for (netns, of_it) in &namespaced {
        if namespaced.len() > 1 {
            let number = netns.unwrap_or(0);
            let name = names.get(&u64::from(number)).cloned();
            let of_unit = || {
                of_it
                    .iter()
                    .find_map(|it| Some(format!("of {}", it.unit.as_ref()?)))
            };
            let name = name.or_else(of_unit);
            let name = name.unwrap_or_else(|| number.to_string());
            table.section(format!("network namespace {name}"));
        }
        for connection in of_it {
            table.row(cells(connection, shown));
        }
    }
    all_together(&connections.iter().collect::<Vec<_>>(), shown, &mut table);
    table
}

/// What network namespaces are called, by their inode numbers.
fn namespaces() -> BTreeMap<u64, String> {
    let named = fs::read_dir("/run/netns").into_iter().flatten().flatten();
    let named = named.filter_map(|entry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        Some((fs::metadata(entry.path()).ok()?.ino(), name))
    });
    let this = fs::metadata("/proc/self/ns/net").ok();
    let this = this.map(|it| (it.ino(), "of this shell".to_owned()));
    this.into_iter().chain(named).collect()
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
        super::fitting(width, columns(), |shown| by_namespace(connections, shown))
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
        assert!(!fitting(&flows, None).contains("network namespace"));
        flows[1].flow.netns = Some(2);
        assert!(fitting(&flows, None).contains("network namespace 2"));
    }
}
