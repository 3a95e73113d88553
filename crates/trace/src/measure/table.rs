//! Results as CSV tables.

use std::borrow::Cow;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use csv::Writer;
use serde::Serialize;
use thiserror::Error;

use super::catalogue::{DistributionMeasure, distributions, in_unit};
use super::measures::Measures;
use super::packets::{Loss, Volume};
use super::results::{ConnectionResults, Results};
use crate::{ConnectionOutcome, Side};

/// A table could not be written.
#[derive(Debug, Error)]
#[error("cannot write {path}", path = .path.display())]
pub struct TableError {
    path: PathBuf,
    source: io::Error,
}

type CsvTable = Writer<File>;
type Rows = fn(&Results, &mut CsvTable) -> csv::Result<()>;

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

/// Writes all tables into a folder, which is created if missing. Existing files are replaced once
/// the new file is complete. Tables without rows are not written. Returns the written paths.
///
/// # Errors
/// If the folder or a file cannot be written; the error names its path.
pub fn write_tables(results: &Results, folder: &Path) -> Result<Vec<PathBuf>, TableError> {
    let failed = |path: &Path, source| TableError {
        path: path.into(),
        source,
    };
    fs::create_dir_all(folder).map_err(|error| failed(folder, error))?;
    let mut written = Vec::new();
    let mut write = |name: &str, rows: &dyn Fn(&mut CsvTable) -> csv::Result<()>| {
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

/// Replaces a file once the new table is complete. Without rows, the old file is removed and the
/// result is false.
fn replace(path: &Path, rows: &dyn Fn(&mut CsvTable) -> csv::Result<()>) -> io::Result<bool> {
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

/// All measures with their subjects.
fn all_measures<'a>(results: &'a Results) -> impl Iterator<Item = (RowSubject<'a>, &'a Measures)> {
    let group_results = std::iter::once(&results.all).chain(&results.groups);
    let group_results = group_results.map(|group_results| {
        let subject = match &group_results.name {
            None => RowSubject::all(),
            Some(name) => RowSubject::group(name),
        };
        (subject, &group_results.main, &group_results.back)
    });
    let connections = results.connections.iter();
    let connections = connections.map(|connection| {
        (
            RowSubject::connection(connection.number),
            &connection.main,
            &connection.back,
        )
    });
    group_results
        .chain(connections)
        .flat_map(|(subject, main, back)| {
            [
                (subject.with_direction("main"), main),
                (subject.with_direction("back"), back),
            ]
        })
}

fn connections(results: &Results, table: &mut CsvTable) -> csv::Result<()> {
    let mut rows = results.connections.iter().map(ConnectionRow::new);
    rows.try_for_each(|row| table.serialize(row))
}

fn groups(results: &Results, table: &mut CsvTable) -> csv::Result<()> {
    let mut all = std::iter::once(&results.all).chain(&results.groups);
    all.try_for_each(|group_results| {
        let name = group_results.name.as_deref().unwrap_or_default();
        table.serialize((
            GroupName { name },
            group_results.handshakes,
            group_results.fairness,
        ))
    })
}

fn sent(results: &Results, table: &mut CsvTable) -> csv::Result<()> {
    all_measures(results).try_for_each(|(subject, measures)| {
        table.serialize((subject, measures.sent.counts, SentRow::new(&measures.sent)))
    })
}

fn loss(results: &Results, table: &mut CsvTable) -> csv::Result<()> {
    all_measures(results).try_for_each(|(subject, measures)| match &measures.loss {
        Some(loss) => table.serialize((subject, LossRow::new(loss))),
        None => Ok(()),
    })
}

fn retransmissions(results: &Results, table: &mut CsvTable) -> csv::Result<()> {
    for (subject, measures) in all_measures(results) {
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
            table.serialize((&subject, row))?;
        }
    }
    Ok(())
}

fn loss_runs(results: &Results, table: &mut CsvTable) -> csv::Result<()> {
    for (subject, measures) in all_measures(results) {
        let runs = measures
            .loss
            .iter()
            .flat_map(|loss| loss.delivery_stats.loss_runs);
        for (run_packets, runs) in (1..).zip(runs) {
            table.serialize((&subject, RunRow { run_packets, runs }))?;
        }
    }
    Ok(())
}

fn slices(results: &Results, table: &mut CsvTable) -> csv::Result<()> {
    for (subject, measures) in all_measures(results) {
        for rates in measures.slices.rates() {
            table.serialize((&subject, rates))?;
        }
    }
    Ok(())
}

fn head_of_line(results: &Results, table: &mut CsvTable) -> csv::Result<()> {
    for (subject, measures) in all_measures(results) {
        for hol_block in &measures.head_of_line.blocks {
            table.serialize((&subject, hol_block))?;
        }
    }
    Ok(())
}

fn curves(
    results: &Results,
    table: &mut CsvTable,
    measure: &DistributionMeasure,
) -> csv::Result<()> {
    let mut has_header = false;
    for (subject, measures) in all_measures(results) {
        for (value, share) in (measure.of)(measures).curve() {
            if !has_header {
                let columns = ["scope", "name", "direction", "share_at_most", measure.name];
                table.write_record(columns)?;
                has_header = true;
            }
            let value = in_unit(value, measure.unit).to_string();
            let share = share.to_string();
            table.write_record(subject.columns().into_iter().chain([&share[..], &value]))?;
        }
    }
    Ok(())
}

/// Subject of a row.
#[derive(Debug, Clone, Serialize)]
pub(super) struct RowSubject<'a> {
    scope: &'static str,
    name: Cow<'a, str>,
    direction: &'static str,
}

impl<'a> RowSubject<'a> {
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

    pub(super) fn with_direction(&self, direction: &'static str) -> Self {
        Self {
            direction,
            ..self.clone()
        }
    }

    pub(super) fn columns(&self) -> [&str; 3] {
        [self.scope, &self.name, self.direction]
    }
}

/// The name of a group; empty for all connections.
#[derive(Debug, Serialize)]
pub(super) struct GroupName<'a> {
    pub(super) name: &'a str,
}

/// Retransmissions by n, the number of earlier transmissions.
#[derive(Debug, Serialize)]
pub(super) struct NthRow {
    pub(super) nth: usize,
    pub(super) packets: u64,
    pub(super) lost_packets: Option<u64>,
}

/// Runs of losses by length in packets.
#[derive(Debug, Serialize)]
pub(super) struct RunRow {
    pub(super) run_packets: usize,
    pub(super) runs: u64,
}

/// Defines a row with its columns: name, type, and value.
macro_rules! row {
    ($row:ident from $of:ident: $kind:ty, $($(#[$doc:meta])* $column:ident: $type:ty = $value:expr,)+) => {
        #[derive(Debug, Serialize)]
        struct $row {
            $($(#[$doc])* $column: $type,)+
        }

        impl $row {
            fn new($of: &$kind) -> Self {
                Self { $($column: $value,)+ }
            }
        }
    };
}

row! {
    ConnectionRow from connection: ConnectionResults,
    connection: u64 = connection.number,
    sender: String = connection.sender.to_string(),
    receiver: String = connection.receiver.to_string(),
    opened_by_sender: bool = connection.opened_by_sender,
    /// Separated by spaces.
    groups: String = connection.groups.join(" "),
    start_s: f64 = connection.start_s,
    duration_s: f64 = connection.duration_s,
    outcome: ConnectionOutcome = connection.outcome,
    only_at: Option<Side> = connection.only_at,
    syns: u32 = connection.syns,
    handshake_ms: Option<f64> = connection.handshake_ms,
    throughput_bit_per_s: f64 = connection.throughput_bit_per_s,
    optimum_bit_per_s: Option<f64> = connection.optimum_bit_per_s,
}

row! {
    SentRow from volume: Volume,
    duplicate_acks_received: u64 = volume.duplicate_acks_received,
    redundant_share: Option<f64> = volume.redundant_share,
    bundled_share: Option<f64> = volume.bundled_share,
    estimated_loss_share: Option<f64> = volume.estimated_loss_share,
}

row! {
    LossRow from loss: Loss,
    delivered_packets: u64 = loss.delivery_stats.delivered_packets,
    lost_packets: u64 = loss.delivery_stats.lost_packets,
    unknown_packets: u64 = loss.delivery_stats.unknown_packets,
    duplicated_packets: u64 = loss.delivery_stats.duplicated_packets,
    delivered_copies: u64 = loss.delivery_stats.delivered_copies,
    unmatched_packets: u64 = loss.delivery_stats.unmatched_packets,
    data_packets: u64 = loss.data_packets,
    lost_data_packets: u64 = loss.delivery_stats.lost_data_packets,
    lost_data_packets_share: Option<f64> = loss.lost_data_packets_share,
    lost_new_packets: u64 = loss.lost_new_packets,
    lost_bundled_packets: u64 = loss.lost_bundled_packets,
    lost_retransmitted_packets: u64 = loss.lost_retransmitted_packets,
    data_bytes: u64 = loss.data_bytes,
    lost_bytes: u64 = loss.delivery_stats.lost_bytes,
    lost_bytes_share: Option<f64> = loss.lost_bytes_share,
    lost_new_bytes: u64 = loss.lost_new_bytes,
    lost_old_bytes: u64 = loss.lost_old_bytes,
    delivered_bytes: u64 = loss.delivery_stats.delivered_bytes,
    unseen_bytes: u64 = loss.delivery_stats.unseen_bytes,
    delivered_ranges: u64 = loss.delivered_ranges,
    lost_ranges: u64 = loss.lost_ranges,
    lost_ranges_share: Option<f64> = loss.lost_ranges_share,
    ranges_repaired_by_bundle: u64 = loss.ranges_repaired_by_bundle,
    ranges_repaired_by_retransmission: u64 = loss.ranges_repaired_by_retransmission,
    bundle_hits: u64 = loss.delivery_stats.bundle_hits,
    bundle_misses: u64 = loss.delivery_stats.bundle_misses,
    bundle_hit_share: Option<f64> = loss.bundle_hit_share,
    repaired_bytes: u64 = loss.delivery_stats.repaired_bytes,
    needless_bytes: u64 = loss.delivery_stats.needless_bytes,
    spurious_retransmissions: u64 = loss.delivery_stats.spurious_retransmissions,
    longest_loss_run: u32 = loss.delivery_stats.longest_loss_run,
}
