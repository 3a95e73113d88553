//! Reads samples that a run of the lab stored.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;

/// Row of a sample file, by column.
pub type Row = BTreeMap<String, String>;

/// Columns that join socket samples with pillion's flow records.
const KEY_COLUMNS: [&str; 3] = ["at_ns", "local", "peer"];

/// Reads the rows of a compressed sample file.
///
/// # Panics
/// If the file cannot be read, or a row has more or fewer columns than the heading.
#[must_use]
pub fn read(file: &Path) -> Vec<Row> {
    let compressed = File::open(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let text = zstd::decode_all(compressed).expect("zstd");
    let text = String::from_utf8(text).expect("text");
    let mut lines = text.lines().map(|line| line.split(','));
    let heading: Vec<&str> = lines.next().expect("a heading").collect();
    let line = |values: std::str::Split<char>| {
        let values: Vec<&str> = values.collect();
        assert_eq!(values.len(), heading.len(), "{values:?}");
        let pairs = heading.iter().zip(values);
        pairs
            .map(|it| (it.0.to_string(), it.1.to_owned()))
            .collect()
    };
    lines.map(line).collect()
}

/// Checks the flow records of a host with one bundled group of `streams` streams. They must belong
/// to sockets sampled at the same moment, grow, and approach pillion's total of new and redundant
/// bytes.
///
/// # Panics
/// If a record is wrong.
pub fn assert_flows(run: &Path, host: &str, streams: usize, bytes: [u64; 2]) {
    let sampled = |kind: &str| read(&run.join(format!("{kind}-{host}.csv.zst")));
    let number = |line: &Row, column: &str| line[column].parse::<u64>().expect(column);
    let key = |line: &Row| KEY_COLUMNS.map(|column| line[column].clone());
    let sockets: Vec<_> = sampled("sockets").iter().map(key).collect();
    let mut connections: BTreeMap<String, Row> = BTreeMap::new();
    for line in sampled("flows") {
        assert!(sockets.contains(&key(&line)), "{line:?}");
        let previous = connections.insert(line["local"].clone(), line.clone());
        for column in [
            "at_ns",
            "segments",
            "bundled",
            "redundant_bytes",
            "hidden_losses",
        ] {
            let before = previous
                .as_ref()
                .map_or(0, |previous| number(previous, column));
            assert!(number(&line, column) >= before, "{column}: {line:?}");
        }
    }
    assert_eq!(connections.len(), streams);
    for (column, all) in ["new_bytes", "redundant_bytes"].into_iter().zip(bytes) {
        let last = connections.values().map(|line| number(line, column));
        let last = last.sum::<u64>();
        assert!(last <= all && last > all / 2, "{column}: {last} of {all}");
    }
}
