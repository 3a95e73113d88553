//! Reads what a run of the lab has sampled.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;

/// A line of a file of samples, by column.
pub type Line = BTreeMap<String, String>;

/// Columns that join the samples of a socket and pillion's records of it.
const MOMENT_AND_ENDS: [&str; 3] = ["at_ns", "local", "peer"];

/// Reads the lines of a compressed file of samples.
///
/// # Panics
/// If it cannot be read, or if a line has more or fewer columns than the heading.
#[must_use]
pub fn read(file: &Path) -> Vec<Line> {
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

/// Checks the records of the connections that pillion bundled on a host, where there is one such
/// group, of so many streams: they are of sockets that were sampled at the same moment, they grow,
/// and they approach the new and redundant bytes that pillion says it sent in all.
///
/// # Panics
/// Where the records are otherwise.
pub fn assert_flows(run: &Path, host: &str, streams: usize, bytes: [u64; 2]) {
    let sampled = |kind: &str| read(&run.join(format!("{kind}-{host}.csv.zst")));
    let number = |line: &Line, column: &str| line[column].parse::<u64>().expect(column);
    let key = |line: &Line| MOMENT_AND_ENDS.map(|column| line[column].clone());
    let sockets: Vec<_> = sampled("sockets").iter().map(key).collect();
    let mut connections: BTreeMap<String, Line> = BTreeMap::new();
    for line in sampled("flows") {
        assert!(sockets.contains(&key(&line)), "{line:?}");
        let earlier = connections.insert(line["local"].clone(), line.clone());
        for column in [
            "at_ns",
            "segments",
            "bundled",
            "redundant_bytes",
            "hidden_losses",
        ] {
            let before = earlier
                .as_ref()
                .map_or(0, |earlier| number(earlier, column));
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
