//! Results as tables for other tools: a CSV file for each measure, one header, one observation a
//! row, units in the names.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use csv::Writer;
use thiserror::Error;

use super::catalogue::{Distributed, distributions, in_unit};
use super::measures::Measures;
use super::results::Results;
use super::rows::{ConnectionRow, LossRow, Named, NthRow, RunRow, SentRow, Whom};

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
