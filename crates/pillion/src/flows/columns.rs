//! Columns of the connection tables.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::iter;
use std::time::Duration;

use pillion_bpf::{Counters, Flow, Outcome, RequestedBy, TcpOptions};
use pillion_stats::report::{Column, number};

use super::Connection;
use crate::status::elapsed_since;

/// Heading of the column of network namespaces.
const NAMESPACE: &str = "namespace";

/// Cell of a table, with its sort key.
#[derive(Debug, Clone)]
pub enum Cell {
    Text(String),
    Number { value: f64, text: String },
}

impl Cell {
    fn count(count: u64) -> Self {
        Self::number(count as f64, number::count(count))
    }

    fn number(value: f64, text: String) -> Self {
        Self::Number { value, text }
    }

    /// Creates a number cell; unknown values sort below all others.
    fn optional(value: Option<f64>, show: impl Fn(Option<f64>) -> String) -> Self {
        Self::number(value.unwrap_or(f64::NEG_INFINITY), show(value))
    }

    pub fn text(&self) -> &str {
        match self {
            Self::Text(text) | Self::Number { text, .. } => text,
        }
    }
}

impl Ord for Cell {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Number { value: a, .. }, Self::Number { value: b, .. }) => a.total_cmp(b),
            _ => self.text().cmp(other.text()),
        }
    }
}

impl PartialOrd for Cell {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Cell {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Cell {}

/// Column with its cell for a connection and for the totals.
#[derive(Clone)]
pub struct FlowColumn {
    pub column: Column,
    /// Columns with higher ranks are dropped first.
    drop_rank: u8,
    pub cell: fn(&Connection) -> Cell,
    total: fn(&Counters) -> String,
}

impl FlowColumn {
    fn new(column: Column, drop_rank: u8, cell: fn(&Connection) -> Cell) -> Self {
        let total = |_: &Counters| String::new();
        Self {
            column,
            drop_rank,
            cell,
            total,
        }
    }

    fn with_total(self, total: fn(&Counters) -> String) -> Self {
        Self { total, ..self }
    }
}

/// Returns all columns in order.
pub fn columns() -> Vec<FlowColumn> {
    let right = Column::right;
    let left = Column::left;
    vec![
        FlowColumn::new(left("local"), 3, |it| Cell::Text(it.flow.local.to_string())),
        FlowColumn::new(left("peer"), 0, |it| Cell::Text(it.flow.peer.to_string())),
        FlowColumn::new(left(NAMESPACE), 1, |it| Cell::Text(it.namespace.clone())),
        FlowColumn::new(left("process"), 4, |it| {
            Cell::Text(it.process.clone().unwrap_or_default())
        }),
        FlowColumn::new(left("container or unit"), 8, |it| {
            Cell::Text(it.unit.clone().unwrap_or_default())
        }),
        FlowColumn::new(left("requested by"), 7, |it| {
            Cell::Text(requested_by(&it.flow))
        }),
        FlowColumn::new(right("in flight"), 10, |it| {
            Cell::count(it.flow.in_flight.into())
        }),
        FlowColumn::new(right("RTT").unit("ms"), 5, |it| millis(it.flow.srtt_us)),
        FlowColumn::new(right("min RTT").unit("ms"), 9, |it| {
            millis(it.flow.rtt_min_us)
        }),
        FlowColumn::new(right("loss"), 1, |it| {
            Cell::optional(it.flow.loss(), number::percent)
        }),
        FlowColumn::new(right("level"), 8, |it| Cell::count(it.flow.level.into())),
        FlowColumn::new(right("segments"), 7, |it| {
            Cell::count(it.flow.counters.segments())
        })
        .with_total(|all| number::count(all.segments())),
        FlowColumn::new(right("bundled"), 4, |it| {
            Cell::count(it.flow.counters.of(Outcome::Bundled))
        })
        .with_total(|all| number::count(all.of(Outcome::Bundled))),
        FlowColumn::new(right("redundant"), 2, |it| {
            let share = it.flow.counters.bundled_share();
            Cell::number(share, number::percent(share))
        })
        .with_total(|all| number::percent(all.bundled_share())),
        FlowColumn::new(right("hidden losses"), 5, |it| {
            Cell::count(it.flow.counters.hidden_losses)
        })
        .with_total(|all| number::count(all.hidden_losses)),
        FlowColumn::new(right("saved").unit("ms"), 1, |it| {
            let ms = it.flow.counters.time_saved_us as f64 / 1e3;
            Cell::number(ms, number::millis(ms))
        })
        .with_total(|all| number::millis(all.time_saved_us as f64 / 1e3)),
        FlowColumn::new(right("reactions"), 8, |it| {
            Cell::count(it.flow.counters.reactions)
        })
        .with_total(|all| number::count(all.reactions)),
        FlowColumn::new(left("last segment"), 6, |it| {
            Cell::Text(last_outcome(&it.flow))
        }),
        FlowColumn::new(left("TCP options"), 11, |it| {
            Cell::Text(tcp_options(&it.flow))
        }),
    ]
}

/// Removes the namespace column if all connections are in one namespace.
pub fn hide_single_namespace(
    mut columns: Vec<FlowColumn>,
    connections: &[&Connection],
) -> Vec<FlowColumn> {
    let namespaces = connections.iter().map(|it| it.flow.netns);
    if namespaces.collect::<BTreeSet<_>>().len() < 2 {
        columns.retain(|it| it.column.header != NAMESPACE);
    }
    columns
}

/// Returns the columns for closed connections.
pub fn closed_columns() -> Vec<FlowColumn> {
    let closed = FlowColumn::new(Column::right("closed"), 1, |it| {
        let closed_at_s = it.flow.closed_at_s.unwrap_or_default();
        Cell::number(
            closed_at_s as f64,
            format!("{} ago", elapsed_since(closed_at_s)),
        )
    });
    iter::once(closed).chain(columns()).collect()
}

fn millis(us: Option<u32>) -> Cell {
    Cell::optional(us.map(|us| f64::from(us) / 1e3), number::millis)
}

/// Removes the least important column, the last one of equal rank. `None` if no more can be
/// removed.
pub fn drop_least_important(columns: &[FlowColumn]) -> Option<Vec<FlowColumn>> {
    let highest = columns
        .iter()
        .map(|it| it.drop_rank)
        .max()
        .filter(|it| *it > 0)?;
    let dropped = columns.iter().rposition(|it| it.drop_rank == highest)?;
    let remaining = columns
        .iter()
        .enumerate()
        .filter(|(index, _)| *index != dropped);
    Some(remaining.map(|(_, it)| it.clone()).collect())
}

/// Returns the cells of the row of totals.
pub fn total_row(total: &Counters, columns: &[FlowColumn]) -> impl Iterator<Item = String> {
    let cells = columns.iter().skip(1).map(|it| (it.total)(total));
    iter::once("total".to_owned()).chain(cells)
}

/// Returns the rule or application that requested bundling. An application may also have switched
/// it off.
fn requested_by(flow: &Flow) -> String {
    match (flow.disabled_by_application, flow.requested_by, flow.rule) {
        (true, ..) => "off: switched off by its application".to_owned(),
        (false, RequestedBy::Application, _) => "its application".to_owned(),
        (false, RequestedBy::Rule, Some(rule)) => format!("rule {rule}"),
        (false, RequestedBy::Rule, None) => "default".to_owned(),
    }
}

/// Returns the outcome of the last segment, with current waits for Nagle's algorithm and limits.
fn last_outcome(flow: &Flow) -> String {
    let label = flow.last_outcome.map(|outcome| outcome.label().to_owned());
    let limit = flow
        .path_size
        .map(|bytes| format!("at most {}", number::counted(bytes.into(), "byte")));
    let ignored = flow.ignores_cwr.then(|| "CWR ignored".to_owned());
    let nagle = flow.waits_for_nagle.then(|| "waits for Nagle".to_owned());
    let all = label.into_iter().chain(nagle).chain(limit).chain(ignored);
    all.collect::<Vec<_>>().join(", ")
}

/// Returns the TCP options that are set, and those that the kernel refused.
fn tcp_options(flow: &Flow) -> String {
    let refused = flow.tcp_options_refused.iter();
    let refused = refused.map(|option| format!("({} refused)", option.label()));
    let has = Some(tcp_option_words(&flow.tcp_options)).filter(|words| !words.is_empty());
    has.into_iter().chain(refused).collect::<Vec<_>>().join(" ")
}

/// Formats TCP options, as in `linear-timeouts rto-min=50ms`.
fn tcp_option_words(tcp_options: &TcpOptions) -> String {
    let flag = |name: &str, on: bool| on.then(|| name.to_owned());
    let time = |name: &str, time: Option<Duration>| {
        time.map(|time| format!("{name}={}ms", time.as_secs_f64() * 1e3))
    };
    let options = [
        flag("linear-timeouts", tcp_options.linear_timeouts),
        flag("nodelay", tcp_options.nodelay),
        time("rto-min", tcp_options.rto_min),
        time("delack-max", tcp_options.delack_max),
        time("user-timeout", tcp_options.user_timeout),
        tcp_options
            .congestion
            .map(|name| format!("congestion={name}")),
    ];
    options.into_iter().flatten().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use pillion_bpf::TcpOption;

    use super::*;

    #[test]
    fn peer_loss_cost_and_gain_are_dropped_last() {
        let all = iter::successors(Some(columns()), |columns| drop_least_important(columns));
        let left: Vec<Vec<String>> = all
            .map(|columns| columns.into_iter().map(|it| it.column.header).collect())
            .collect();
        let narrowest = left.iter().rev().nth(4).unwrap();
        let expected = ["peer", "namespace", "loss", "redundant", "saved"];
        assert_eq!(narrowest, &expected);
        assert!(left.windows(2).all(|two| two[0].len() == two[1].len() + 1));
    }

    #[test]
    fn tcp_options_are_printed_under_option_names() {
        let all = TcpOptions {
            linear_timeouts: true,
            nodelay: true,
            rto_min: Some(Duration::from_micros(50_500)),
            delack_max: Some(Duration::from_millis(10)),
            user_timeout: Some(Duration::from_secs(30)),
            congestion: "reno".parse().ok(),
        };
        let expected = "linear-timeouts nodelay rto-min=50.5ms delack-max=10ms user-timeout=30000ms \
                    congestion=reno";
        assert_eq!(tcp_option_words(&all), expected);
        let names: Vec<_> = expected
            .split(' ')
            .filter_map(|word| word.split('=').next())
            .collect();
        let all: Vec<_> = TcpOption::ALL.iter().map(|one| one.name()).collect();
        assert_eq!(names, all);
        assert_eq!(tcp_option_words(&TcpOptions::default()), "");
    }
}
