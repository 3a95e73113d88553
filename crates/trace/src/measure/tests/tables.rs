use super::*;

#[test]
fn tables_have_one_header_and_a_row_for_each_of_whom_they_tell() {
    let (here, there) = carry(&one_loss(), ONE_WAY, AHEAD, &[4]);
    let options = Options {
        groups: vec!["thin=:80".parse().unwrap()],
        ..Options::default()
    };
    let results = measure_both(&here, &there, options);
    let folder = tempfile::tempdir().unwrap();
    let written = write_tables(&results, &folder.path().join("new")).unwrap();
    let read = |name: &str| {
        let path = folder.path().join("new").join(name);
        assert!(written.contains(&path), "{written:?}");
        std::fs::read_to_string(path).unwrap()
    };
    let all: Vec<String> = read("ack_latency_ms.csv").lines().map(Into::into).collect();
    assert_eq!(
        all[..5],
        [
            "scope,name,direction,share_at_most,ack_latency_ms",
            "all,,main,0.25,360",
            "all,,main,0.5,390",
            "all,,main,0.75,420",
            "all,,main,1,450",
        ]
    );
    assert_eq!(all[5], "group,thin,main,0.25,360");
    assert_eq!(all[9], "connection,1,main,0.25,360");
    assert_eq!(all.len(), 13);
    assert_eq!(
        read("retransmissions.csv").lines().nth(1),
        Some("all,,main,1,1,0")
    );
    assert_eq!(
        read("head_of_line.csv"),
        "scope,name,direction,position,ranges,bytes,longest_ms\nconnection,1,main,1,3,300,270.0\n"
    );
    for name in [
        "connections",
        "groups",
        "sent",
        "loss",
        "slices",
        "loss_runs",
    ] {
        let text = read(&format!("{name}.csv"));
        let mut lines = text.lines().map(|line| line.split(',').count());
        let columns = lines.next().unwrap();
        assert!(columns > 4 && lines.clone().count() > 0, "{name}: {text}");
        assert!(lines.all(|line| line == columns), "{name}: {text}");
    }
}

#[test]
fn tables_without_a_row_are_not_written() {
    let results = measure(&one_message(), Options::default());
    let folder = tempfile::tempdir().unwrap();
    let written = write_tables(&results, folder.path()).unwrap();
    let there = |name: &str| folder.path().join(name).exists();
    assert!(there("rtt_ms.csv") && written.contains(&folder.path().join("rtt_ms.csv")));
    assert!(!there("loss.csv") && !there("one_way_delay_ms.csv"));
    assert_eq!(
        written.len(),
        std::fs::read_dir(folder.path()).unwrap().count()
    );
}

#[test]
fn tables_stay_until_new_ones_are_whole_and_go_where_those_have_no_row() {
    use std::fs::{self, File};
    let results = measure(&one_message(), Options::default());
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    for name in ["rtt_ms.csv", "loss.csv"] {
        fs::write(path(name), "old").unwrap();
    }
    let held = File::open(path("rtt_ms.csv")).unwrap();
    let written = write_tables(&results, folder.path()).unwrap();
    assert_eq!(std::io::read_to_string(held).unwrap(), "old");
    assert_ne!(fs::read_to_string(path("rtt_ms.csv")).unwrap(), "old");
    assert!(!path("loss.csv").exists());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), written.len());
}

#[test]
fn a_folder_that_cannot_be_written_is_named() {
    let results = measure(&Script::new(), Options::default());
    let file = tempfile::NamedTempFile::new().unwrap();
    let error = write_tables(&results, &file.path().join("tables")).unwrap_err();
    assert!(error.to_string().contains("tables"), "{error}");
}
