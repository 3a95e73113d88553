use std::collections::BTreeMap;
use std::fs;
use std::io::{self, IsTerminal};
use std::os::unix::fs::MetadataExt;
use std::process::ExitCode;

use anyhow::Result;
use pillion_bundler::{Counters, Flow, Outcome, WantedBy, list_flows};
use pillion_report::{Column, Table, number};
use rustix::termios::tcgetwinsize;

use crate::companions::words;
use crate::print::{print, print_json, print_line};

/// List the connections that running pillions bundle, and why a segment was not
///
/// On a terminal that is too narrow for all columns, the least important ones are left out.
#[derive(clap::Args)]
pub struct Args {
    /// Print the connections as JSON
    #[arg(long)]
    json: bool,
}

impl Args {
    pub fn execute(self) -> Result<ExitCode> {
        let flows = list_flows()?;
        if self.json {
            print_json(&flows)?;
        } else if flows.is_empty() {
            print_line!("no connection is being bundled")?;
        } else {
            print(&fitting(&flows, width()))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// The terminal's columns; None where everything fits.
fn width() -> Option<usize> {
    let stdout = io::stdout();
    let size = stdout.is_terminal().then(|| tcgetwinsize(stdout));
    let columns = size?.ok()?.ws_col;
    (columns > 0).then_some(columns.into())
}

/// The rules or the application; the latter may also have switched it off.
fn wanted_by(flow: &Flow) -> String {
    match (flow.off, flow.wanted_by, flow.rule) {
        (true, ..) => "nobody: switched off".to_owned(),
        (false, WantedBy::Application, _) => "its application".to_owned(),
        (false, WantedBy::Rule, Some(rule)) => format!("rule {rule}"),
        (false, WantedBy::Rule, None) => "default".to_owned(),
    }
}

/// A column: what it shows of a connection, and of all together.
struct Shown {
    column: Column,
    /// The higher, the sooner it is left out.
    rank: u8,
    of: fn(&Flow) -> String,
    of_all: fn(&Counters) -> String,
}

fn columns() -> Vec<Shown> {
    let of_flow = |column, rank, of| Shown {
        column,
        rank,
        of,
        of_all: |_| String::new(),
    };
    let counted = |column, rank, of, of_all| Shown {
        column,
        rank,
        of,
        of_all,
    };
    let right = Column::right;
    vec![
        Shown {
            of_all: |_| "all together".to_owned(),
            ..of_flow(Column::left("local"), 0, |flow| flow.local.to_string())
        },
        of_flow(Column::left("peer"), 0, |flow| flow.peer.to_string()),
        of_flow(Column::left("wanted by"), 3, wanted_by),
        of_flow(right("in flight"), 9, |flow| flow.in_flight.to_string()),
        of_flow(right("min RTT").unit("ms"), 4, |flow| {
            number::millis(flow.rtt_min_us.map(|us| f64::from(us) / 1e3))
        }),
        counted(
            right("segments"),
            5,
            |flow| number::count(flow.counters.segments()),
            |all| number::count(all.segments()),
        ),
        counted(
            right("bundled"),
            1,
            |flow| number::count(flow.counters.of(Outcome::Bundled)),
            |all| number::count(all.of(Outcome::Bundled)),
        ),
        counted(
            right("redundant"),
            6,
            |flow| number::percent(flow.counters.redundant_share()),
            |all| number::percent(all.redundant_share()),
        ),
        counted(
            right("hidden losses"),
            2,
            |flow| number::count(flow.counters.hidden_losses),
            |all| number::count(all.hidden_losses),
        ),
        counted(
            right("saved").unit("ms"),
            2,
            |flow| number::millis(flow.counters.saved_us as f64 / 1e3),
            |all| number::millis(all.saved_us as f64 / 1e3),
        ),
        counted(
            right("reactions"),
            7,
            |flow| number::count(flow.counters.reactions),
            |all| number::count(all.reactions),
        ),
        of_flow(Column::left("last segment"), 2, last),
        of_flow(Column::left("companions"), 8, companions),
    ]
}

/// The table, with as many columns as fit.
fn fitting(flows: &[Flow], width: Option<usize>) -> String {
    let mut shown = columns();
    loop {
        let text = table(flows, &shown).to_text(false);
        let widest = text.lines().map(|line| line.chars().count()).max();
        let fits = width.is_none_or(|width| widest.is_none_or(|widest| widest <= width));
        let least = shown.iter().map(|it| it.rank).max().unwrap_or(0);
        if fits || least == 0 {
            return text;
        }
        shown.retain(|it| it.rank < least);
    }
}

fn table(flows: &[Flow], shown: &[Shown]) -> Table {
    let mut table = Table::new("", shown.iter().map(|it| it.column.clone()));
    let names = namespaces();
    let mut by_namespace = BTreeMap::<_, Vec<&Flow>>::new();
    for flow in flows {
        by_namespace.entry(flow.netns).or_default().push(flow);
    }
    for (netns, of_it) in &by_namespace {
        if by_namespace.len() > 1 {
            let number = netns.unwrap_or(0);
            let name = names.get(&u64::from(number)).cloned();
            let name = name.unwrap_or_else(|| number.to_string());
            table.section(format!("network namespace {name}"));
        }
        for flow in of_it {
            table.row(shown.iter().map(|it| (it.of)(flow)));
        }
    }
    if flows.len() > 1 {
        let mut all = Counters::default();
        flows.iter().for_each(|flow| all += &flow.counters);
        table.row(shown.iter().map(|it| (it.of_all)(&all)));
    }
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

/// What became of its last segment, and how large bundles get while the path takes no larger ones.
fn last(flow: &Flow) -> String {
    let last = flow.last.map(|last| last.label().to_owned());
    let limit = flow
        .path_size
        .map(|bytes| format!("at most {}", number::counted(bytes.into(), "byte")));
    last.into_iter().chain(limit).collect::<Vec<_>>().join(", ")
}

/// What it has, and what the kernel refused.
fn companions(flow: &Flow) -> String {
    let refused = flow.companions_refused.iter();
    let refused = refused.map(|companion| format!("({} refused)", companion.label()));
    let has = Some(words(&flow.companions)).filter(|words| !words.is_empty());
    has.into_iter().chain(refused).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use pillion_bundler::{Companions, LossRule};

    use super::*;

    fn flow(port: u16, hidden_losses: u64) -> Flow {
        Flow {
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
            level: 1,
            path_size: None,
            companions: Companions::default(),
            companions_refused: Vec::new(),
            last: None,
            counters: Counters {
                hidden_losses,
                ..Counters::default()
            },
            decision: None,
        }
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
        flows[1].netns = Some(2);
        assert!(fitting(&flows, None).contains("network namespace 2"));
    }
}
