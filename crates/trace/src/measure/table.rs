//! Results as tables for other tools.

use std::borrow::Cow;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use csv::Writer;
use serde::Serialize;
use thiserror::Error;

use super::catalogue::{Distributed, distributions, in_unit};
use super::measures::Measures;
use super::packets::{Loss, Volume};
use super::results::{Results, Single};
use crate::{Outcome, Side};

/// A table could not be written.
#[derive(Debug, Error)]
#[error("cannot write {path}", path = .path.display())]
pub struct TableError {
    path: PathBuf,
    source: io::Error,
}

type Table = Writer<File>;
type Rows = fn(&Results, &mut Table) -> csv::Result<()>;

const TABLES: [(&str, Rows); 8] = [
    ("connections", connections),
    ("groups", groups),
    ("sent", sent),
    ("loss", loss),
    ("retransmissions", retransmissions),
    ("loss_runs", loss_runs),
    ("slices", slices),
    ("head_of_line", head_of_line),
];

/// Writes all tables into a folder, which is made if it is not there; files of the same names are
/// replaced, each once the new one is whole. Gives the paths of what was written; tables without a row are not.
///
/// # Errors
/// Where the folder or a file cannot be written, with its path.
pub fn write_tables(results: &Results, folder: &Path) -> Result<Vec<PathBuf>, TableError> {
    let failed = |path: &Path, source| TableError {
        path: path.into(),
        source,
    };
    fs::create_dir_all(folder).map_err(|error| failed(folder, error))?;
    let mut written = Vec::new();
    let mut write = |name: &str, rows: &dyn Fn(&mut Table) -> csv::Result<()>| {
        let path = folder.join(name).with_extension("csv");
        match replace(&path, rows) {
            Ok(true) => written.push(path),
            Ok(false) => {}
            Err(error) => return Err(failed(&path, error)),
        }
        Ok(())
    };
    for (name, rows) in TABLES {
        write(name, &|table| rows(results, table))?;
    }
    for measure in distributions() {
        write(measure.name, &|table| curves(results, table, &measure))?;
    }
    Ok(written)
}

/// Has what is there stay until the table is whole; false of one without a row, which takes the place
/// of nothing, and leaves nothing there.
fn replace(path: &Path, rows: &dyn Fn(&mut Table) -> csv::Result<()>) -> io::Result<bool> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let new = path.with_file_name(format!(".{name}.new"));
    let table = Writer::from_path(&new).and_then(|mut table| {
        rows(&mut table)?;
        table.flush()?;
        Ok(())
    });
    let has_rows = table
        .map_err(io::Error::from)
        .and_then(|()| Ok(fs::metadata(&new)?.len() > 0));
    let done = match has_rows {
        Ok(true) => return fs::rename(&new, path).map(|()| true),
        Ok(false) => match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(false),
        },
        Err(error) => Err(error),
    };
    fs::remove_file(&new).and(done)
}

/// All measures, with whose they are.
fn each<'a>(results: &'a Results) -> impl Iterator<Item = (Whom<'a>, &'a Measures)> {
    let together = std::iter::once(&results.all).chain(&results.groups);
    let together = together.map(|together| {
        let whom = match &together.name {
            None => Whom::all(),
            Some(name) => Whom::group(name),
        };
        (whom, &together.main, &together.back)
    });
    let singles = results.connections.iter();
    let singles =
        singles.map(|single| (Whom::connection(single.number), &single.main, &single.back));
    together
        .chain(singles)
        .flat_map(|(whom, main, back)| [(whom.towards("main"), main), (whom.towards("back"), back)])
}

fn connections(results: &Results, table: &mut Table) -> csv::Result<()> {
    let mut rows = results.connections.iter().map(ConnectionRow::of);
    rows.try_for_each(|row| table.serialize(row))
}

fn groups(results: &Results, table: &mut Table) -> csv::Result<()> {
    let mut all = std::iter::once(&results.all).chain(&results.groups);
    all.try_for_each(|together| {
        let name = together.name.as_deref().unwrap_or_default();
        table.serialize((Named { name }, together.handshakes, together.fairness))
    })
}

fn sent(results: &Results, table: &mut Table) -> csv::Result<()> {
    each(results).try_for_each(|(whom, measures)| {
        table.serialize((whom, measures.sent.counts, SentRow::of(&measures.sent)))
    })
}

fn loss(results: &Results, table: &mut Table) -> csv::Result<()> {
    each(results).try_for_each(|(whom, measures)| match &measures.loss {
        Some(loss) => table.serialize((whom, LossRow::of(loss))),
        None => Ok(()),
    })
}

fn retransmissions(results: &Results, table: &mut Table) -> csv::Result<()> {
    for (whom, measures) in each(results) {
        let sent = measures.sent.nth_retransmissions;
        let lost = measures.loss.as_ref();
        let lost = lost.map(|loss| loss.lost_nth_retransmissions);
        for (nth, packets) in (1..).zip(sent) {
            let lost_packets = lost.and_then(|lost| lost.get(nth - 1).copied());
            let row = NthRow {
                nth,
                packets,
                lost_packets,
            };
            table.serialize((&whom, row))?;
        }
    }
    Ok(())
}

fn loss_runs(results: &Results, table: &mut Table) -> csv::Result<()> {
    for (whom, measures) in each(results) {
        let runs = measures.loss.iter().flat_map(|loss| loss.passage.loss_runs);
        for (run_packets, runs) in (1..).zip(runs) {
            table.serialize((&whom, RunRow { run_packets, runs }))?;
        }
    }
    Ok(())
}

fn slices(results: &Results, table: &mut Table) -> csv::Result<()> {
    for (whom, measures) in each(results) {
        for rates in measures.slices.rates() {
            table.serialize((&whom, rates))?;
        }
    }
    Ok(())
}

fn head_of_line(results: &Results, table: &mut Table) -> csv::Result<()> {
    for (whom, measures) in each(results) {
        for blocker in &measures.head_of_line.behind {
            table.serialize((&whom, blocker))?;
        }
    }
    Ok(())
}

fn curves(results: &Results, table: &mut Table, measure: &Distributed) -> csv::Result<()> {
    let mut begun = false;
    for (whom, measures) in each(results) {
        for (value, share) in (measure.of)(measures).curve() {
            if !begun {
                let columns = ["scope", "name", "direction", "share_at_most", measure.name];
                table.write_record(columns)?;
                begun = true;
            }
            let value = in_unit(value, measure.unit).to_string();
            let share = share.to_string();
            table.write_record(whom.columns().into_iter().chain([&share[..], &value]))?;
        }
    }
    Ok(())
}

/// Of whom a row tells.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Whom<'a> {
    scope: &'static str,
    name: Cow<'a, str>,
    direction: &'static str,
}

impl<'a> Whom<'a> {
    pub(super) fn all() -> Self {
        Self::new("all", "".into())
    }

    pub(super) fn group(name: &'a str) -> Self {
        Self::new("group", name.into())
    }

    pub(super) fn connection(number: u64) -> Self {
        Self::new("connection", number.to_string().into())
    }

    fn new(scope: &'static str, name: Cow<'a, str>) -> Self {
        Self {
            scope,
            name,
            direction: "",
        }
    }

    pub(super) fn towards(&self, direction: &'static str) -> Self {
        Self {
            direction,
            ..self.clone()
        }
    }

    pub(super) fn columns(&self) -> [&str; 3] {
        [self.scope, &self.name, self.direction]
    }
}

/// The name of a group; empty of all connections.
#[derive(Debug, Serialize)]
pub(super) struct Named<'a> {
    pub(super) name: &'a str,
}

/// Retransmissions that were the n-th of their bytes.
#[derive(Debug, Serialize)]
pub(super) struct NthRow {
    pub(super) nth: usize,
    pub(super) packets: u64,
    pub(super) lost_packets: Option<u64>,
}

/// Runs of losses that were so many packets long.
#[derive(Debug, Serialize)]
pub(super) struct RunRow {
    pub(super) run_packets: usize,
    pub(super) runs: u64,
}

#[derive(Debug, Serialize)]
pub(super) struct ConnectionRow {
    connection: u64,
    sender: String,
    receiver: String,
    opened_by_sender: bool,
    /// Separated by spaces.
    groups: String,
    begin_s: f64,
    duration_s: f64,
    outcome: Outcome,
    only_at: Option<Side>,
    syns: u32,
    handshake_ms: Option<f64>,
    throughput_bit_per_s: f64,
    optimum_bit_per_s: Option<f64>,
}

impl ConnectionRow {
    pub(super) fn of(single: &Single) -> Self {
        Self {
            connection: single.number,
            sender: single.sender.to_string(),
            receiver: single.receiver.to_string(),
            opened_by_sender: single.opened_by_sender,
            groups: single.groups.join(" "),
            begin_s: single.begin_s,
            duration_s: single.duration_s,
            outcome: single.outcome,
            only_at: single.only_at,
            syns: single.syns,
            handshake_ms: single.handshake_ms,
            throughput_bit_per_s: single.throughput_bit_per_s,
            optimum_bit_per_s: single.optimum_bit_per_s,
        }
    }
}

#[derive(Debug, Serialize)]
pub(super) struct SentRow {
    duplicate_acks_received: u64,
    redundant_share: Option<f64>,
    bundled_share: Option<f64>,
    estimated_loss_share: Option<f64>,
}

impl SentRow {
    pub(super) fn of(volume: &Volume) -> Self {
        Self {
            duplicate_acks_received: volume.duplicate_acks_received,
            redundant_share: volume.redundant_share,
            bundled_share: volume.bundled_share,
            estimated_loss_share: volume.estimated_loss_share,
        }
    }
}

#[derive(Debug, Serialize)]
pub(super) struct LossRow {
    delivered_packets: u64,
    lost_packets: u64,
    unknown_packets: u64,
    duplicated_packets: u64,
    unmatched_packets: u64,
    data_packets: u64,
    lost_data_packets: u64,
    lost_data_packets_share: Option<f64>,
    lost_new_packets: u64,
    lost_bundled_packets: u64,
    lost_retransmitted_packets: u64,
    data_bytes: u64,
    lost_bytes: u64,
    lost_bytes_share: Option<f64>,
    lost_new_bytes: u64,
    lost_old_bytes: u64,
    delivered_bytes: u64,
    unseen_bytes: u64,
    delivered_ranges: u64,
    lost_ranges: u64,
    lost_ranges_share: Option<f64>,
    ranges_repaired_by_bundle: u64,
    ranges_repaired_by_retransmission: u64,
    bundle_hits: u64,
    bundle_misses: u64,
    bundle_hit_share: Option<f64>,
    repaired_bytes: u64,
    needless_bytes: u64,
    longest_loss_run: u32,
}

impl LossRow {
    pub(super) fn of(loss: &Loss) -> Self {
        let passage = &loss.passage;
        Self {
            delivered_packets: passage.delivered_packets,
            lost_packets: passage.lost_packets,
            unknown_packets: passage.unknown_packets,
            duplicated_packets: passage.duplicated_packets,
            unmatched_packets: passage.unmatched_packets,
            data_packets: loss.data_packets,
            lost_data_packets: passage.lost_data_packets,
            lost_data_packets_share: loss.lost_data_packets_share,
            lost_new_packets: loss.lost_new_packets,
            lost_bundled_packets: loss.lost_bundled_packets,
            lost_retransmitted_packets: loss.lost_retransmitted_packets,
            data_bytes: loss.data_bytes,
            lost_bytes: passage.lost_bytes,
            lost_bytes_share: loss.lost_bytes_share,
            lost_new_bytes: loss.lost_new_bytes,
            lost_old_bytes: loss.lost_old_bytes,
            delivered_bytes: passage.delivered_bytes,
            unseen_bytes: passage.unseen_bytes,
            delivered_ranges: loss.delivered_ranges,
            lost_ranges: loss.lost_ranges,
            lost_ranges_share: loss.lost_ranges_share,
            ranges_repaired_by_bundle: loss.ranges_repaired_by_bundle,
            ranges_repaired_by_retransmission: loss.ranges_repaired_by_retransmission,
            bundle_hits: passage.bundle_hits,
            bundle_misses: passage.bundle_misses,
            bundle_hit_share: loss.bundle_hit_share,
            repaired_bytes: passage.repaired_bytes,
            needless_bytes: passage.needless_bytes,
            longest_loss_run: passage.longest_loss_run,
        }
    }
}
