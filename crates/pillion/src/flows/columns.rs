//! What is shown of connections, one column each.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::iter;
use std::time::Duration;

use pillion_bpf::{Companions, Counters, Flow, Outcome, WantedBy};
use pillion_stats::report::{Column, Table, number};

use super::Connection;
use crate::status::since;

/// The heading of the column that tells network namespaces apart.
const NAMESPACE: &str = "namespace";

/// A cell, and how it compares with others of its column.
#[derive(Debug, Clone, PartialEq)]
pub enum Cell {
    Words(String),
    Number { value: f64, shown: String },
}

impl Cell {
    fn count(count: u64) -> Self {
        Self::number(count as f64, number::count(count))
    }

    fn number(value: f64, shown: String) -> Self {
        Self::Number { value, shown }
    }

    /// A number that may not be known, which comes before all others.
    fn known(value: Option<f64>, show: impl Fn(Option<f64>) -> String) -> Self {
        Self::number(value.unwrap_or(f64::NEG_INFINITY), show(value))
    }

    pub fn text(&self) -> &str {
        match self {
            Self::Words(shown) | Self::Number { shown, .. } => shown,
        }
    }

    pub fn compare(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Number { value: a, .. }, Self::Number { value: b, .. }) => a.total_cmp(b),
            _ => self.text().cmp(other.text()),
        }
    }
}

/// A column: what it shows of a connection, and of all together.
#[derive(Clone)]
pub struct Shown {
    pub column: Column,
    /// The higher, the sooner it is left out.
    rank: u8,
    pub of: fn(&Connection) -> Cell,
    of_all: fn(&Counters) -> String,
}

impl Shown {
    fn new(column: Column, rank: u8, of: fn(&Connection) -> Cell) -> Self {
        let of_all = |_: &Counters| String::new();
        Self {
            column,
            rank,
            of,
            of_all,
        }
    }

    fn in_all(self, of_all: fn(&Counters) -> String) -> Self {
        Self { of_all, ..self }
    }
}

/// All columns, in their order.
pub fn columns() -> Vec<Shown> {
    let right = Column::right;
    let words = Column::left;
    vec![
        Shown::new(words("local"), 0, |it| {
            Cell::Words(it.flow.local.to_string())
        })
        .in_all(|_| "all together".to_owned()),
        Shown::new(words("peer"), 0, |it| Cell::Words(it.flow.peer.to_string())),
        Shown::new(words(NAMESPACE), 1, |it| Cell::Words(it.namespace.clone())),
        Shown::new(words("process"), 2, |it| {
            Cell::Words(it.process.clone().unwrap_or_default())
        }),
        Shown::new(words("container or unit"), 8, |it| {
            Cell::Words(it.unit.clone().unwrap_or_default())
        }),
        Shown::new(words("wanted by"), 7, |it| Cell::Words(wanted_by(&it.flow))),
        Shown::new(right("in flight"), 10, |it| {
            Cell::count(it.flow.in_flight.into())
        }),
        Shown::new(right("RTT").unit("ms"), 4, |it| millis(it.flow.srtt_us)),
        Shown::new(right("min RTT").unit("ms"), 9, |it| {
            millis(it.flow.rtt_min_us)
        }),
        Shown::new(right("loss"), 3, |it| {
            Cell::known(it.flow.loss(), number::percent)
        }),
        Shown::new(right("level"), 8, |it| Cell::count(it.flow.level.into())),
        Shown::new(right("segments"), 6, |it| {
            Cell::count(it.flow.counters.segments())
        })
        .in_all(|all| number::count(all.segments())),
        Shown::new(right("bundled"), 2, |it| {
            Cell::count(it.flow.counters.of(Outcome::Bundled))
        })
        .in_all(|all| number::count(all.of(Outcome::Bundled))),
        Shown::new(right("redundant"), 5, |it| {
            let share = it.flow.counters.bundled_share();
            Cell::number(share, number::percent(share))
        })
        .in_all(|all| number::percent(all.bundled_share())),
        Shown::new(right("hidden losses"), 2, |it| {
            Cell::count(it.flow.counters.hidden_losses)
        })
        .in_all(|all| number::count(all.hidden_losses)),
        Shown::new(right("saved").unit("ms"), 2, |it| {
            let ms = it.flow.counters.saved_us as f64 / 1e3;
            Cell::number(ms, number::millis(ms))
        })
        .in_all(|all| number::millis(all.saved_us as f64 / 1e3)),
        Shown::new(right("reactions"), 8, |it| {
            Cell::count(it.flow.counters.reactions)
        })
        .in_all(|all| number::count(all.reactions)),
        Shown::new(words("last segment"), 1, |it| Cell::Words(last(&it.flow))),
        Shown::new(words("companions"), 11, |it| {
            Cell::Words(companions(&it.flow))
        }),
    ]
}

/// The columns without that of the namespace, where all connections are of one.
pub fn telling(mut shown: Vec<Shown>, connections: &[&Connection]) -> Vec<Shown> {
    let namespaces = connections.iter().map(|it| it.flow.netns);
    if namespaces.collect::<BTreeSet<_>>().len() < 2 {
        shown.retain(|it| it.column.header != NAMESPACE);
    }
    shown
}

/// The columns of connections that have ended.
pub fn columns_of_closed() -> Vec<Shown> {
    let closed = Shown::new(Column::right("closed"), 1, |it| {
        let closed_at = it.flow.closed_at.unwrap_or_default();
        Cell::number(closed_at as f64, format!("{} ago", since(closed_at)))
    });
    iter::once(closed).chain(columns()).collect()
}

fn millis(us: Option<u32>) -> Cell {
    Cell::known(us.map(|us| f64::from(us) / 1e3), number::millis)
}

/// The columns without the least important one, the last of several; `None` where no more can be left
/// out.
pub fn fewer(shown: &[Shown]) -> Option<Vec<Shown>> {
    let least = shown.iter().map(|it| it.rank).max().filter(|it| *it > 0)?;
    let last = shown.iter().rposition(|it| it.rank == least)?;
    let kept = shown.iter().enumerate().filter(|(place, _)| *place != last);
    Some(kept.map(|(_, it)| it.clone()).collect())
}

/// The row of all connections together, where there are several.
pub fn all_together(connections: &[&Connection], shown: &[Shown], table: &mut Table) {
    if connections.len() > 1 {
        let mut all = Counters::default();
        connections.iter().for_each(|it| all += &it.flow.counters);
        table.row(shown.iter().map(|it| (it.of_all)(&all)));
    }
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

/// What became of its last segment, and how large bundles get while the path takes no larger ones.
fn last(flow: &Flow) -> String {
    let last = flow.last.map(|last| last.label().to_owned());
    let limit = flow
        .path_size
        .map(|bytes| format!("at most {}", number::counted(bytes.into(), "byte")));
    let ignored = flow.ignores_cwr.then(|| "CWR ignored".to_owned());
    let all = last.into_iter().chain(limit).chain(ignored);
    all.collect::<Vec<_>>().join(", ")
}

/// What it has, and what the kernel refused.
fn companions(flow: &Flow) -> String {
    let refused = flow.companions_refused.iter();
    let refused = refused.map(|companion| format!("({} refused)", companion.label()));
    let has = Some(companion_words(&flow.companions)).filter(|words| !words.is_empty());
    has.into_iter().chain(refused).collect::<Vec<_>>().join(" ")
}

/// A connection's companions in a few words, as in `linear-timeouts rto-min=50`.
fn companion_words(companions: &Companions) -> String {
    let flag = |name: &str, on: bool| on.then(|| name.to_owned());
    let time = |name: &str, time: Option<Duration>| {
        time.map(|time| format!("{name}={}", time.as_secs_f64() * 1e3))
    };
    let words = [
        flag("linear-timeouts", companions.linear_timeouts),
        flag("nodelay", companions.nodelay),
        time("rto-min", companions.rto_min),
        time("delack-max", companions.delack_max),
        time("user-timeout", companions.user_timeout),
        companions
            .congestion
            .map(|name| format!("congestion={name}")),
    ];
    words.into_iter().flatten().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use pillion_bpf::Companion;

    use super::*;

    #[test]
    fn on_a_narrow_terminal_what_tells_them_apart_and_the_reason_go_last() {
        let all = iter::successors(Some(columns()), |shown| fewer(shown));
        let left: Vec<Vec<String>> = all
            .map(|shown| shown.into_iter().map(|it| it.column.header).collect())
            .collect();
        let last: Vec<_> = left.iter().rev().skip(1).take(2).collect();
        assert_eq!(last[0], &["local", "peer", "namespace"]);
        assert_eq!(last[1], &["local", "peer", "namespace", "last segment"]);
        assert!(left.windows(2).all(|two| two[0].len() == two[1].len() + 1));
    }

    #[test]
    fn what_a_connection_has_is_told_under_the_options_names() {
        let all = Companions {
            linear_timeouts: true,
            nodelay: true,
            rto_min: Some(Duration::from_micros(50_500)),
            delack_max: Some(Duration::from_millis(10)),
            user_timeout: Some(Duration::from_secs(30)),
            congestion: "reno".parse().ok(),
        };
        let told = "linear-timeouts nodelay rto-min=50.5 delack-max=10 user-timeout=30000 \
                    congestion=reno";
        assert_eq!(companion_words(&all), told);
        let names: Vec<_> = told
            .split(' ')
            .filter_map(|word| word.split('=').next())
            .collect();
        let all: Vec<_> = Companion::ALL.iter().map(|one| one.name()).collect();
        assert_eq!(names, all);
        assert_eq!(companion_words(&Companions::default()), "");
    }
}
