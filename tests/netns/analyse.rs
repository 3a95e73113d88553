//! `pillion-lab analyse`, on traces written by hand.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::common::*;
use crate::trace::{Conversation, INITIAL};

/// Bytes 101 to 200 are lost and repaired by the next packet. Bytes 301 to 400 are lost and
/// retransmitted after later bytes have arrived.
fn conversation() -> Conversation {
    let mut conversation = Conversation::begin();
    conversation.data(110, 1, 101).data(130, 101, 201).lost();
    conversation.data(160, 101, 301).ack(210, 101).ack(260, 301);
    conversation.data(300, 301, 401).lost();
    conversation.data(310, 401, 501).ack(410, 301);
    conversation.data(450, 301, 401).ack(550, 501);
    conversation
}

/// Arguments that name both traces in a folder.
fn both(folder: &Path) -> Vec<String> {
    let [client, server] = conversation().write(folder);
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    vec![
        "analyse".into(),
        text(&client),
        "--receiver".into(),
        text(&server),
    ]
}

fn analyse(files: &[String], options: &[&str]) -> std::process::Output {
    let files = files.iter().map(String::as_str);
    lab(&files.chain(options.iter().copied()).collect::<Vec<_>>())
}

fn json_of(files: &[String], options: &[&str]) -> Value {
    let output = analyse(files, &[options, &["--json"]].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[test]
fn the_list_has_ends_times_and_what_went_each_way() {
    let folder = tempfile::tempdir().unwrap();
    let files = both(folder.path());
    let list = json_of(&files, &["--list"]);
    let [only] = &list.as_array().unwrap()[..] else {
        panic!("one connection: {list}");
    };
    assert_eq!(only["opened_by"], "192.0.2.1:40000");
    assert_eq!(only["to"], "198.51.100.1:80");
    assert_eq!(
        (&only["begin_s"], &only["duration_s"]),
        (&json!(0.0), &json!(0.55))
    );
    assert_eq!(only["handshake"], "completed");
    let there = json!({
        "packets": 8, "new_bytes": 500, "bundled_packets": 1, "retransmitted_packets": 1,
        "lost_packets": 2,
    });
    assert_eq!(only["there"], there);
    let text = stdout(&analyse(&files, &["--list"]));
    assert!(
        text.lines().any(|line| line.contains("198.51.100.1:80")),
        "{text}"
    );
}

#[test]
fn connections_are_chosen_by_address_port_and_number() {
    let folder = tempfile::tempdir().unwrap();
    let files = both(folder.path());
    for (options, found) in [
        (&["--address", "192.0.2.0/24"][..], 1),
        (&["--address", "192.0.2.9"], 0),
        (&["--port", "81", "--port", "80"], 1),
        (&["--port", "81"], 0),
        (&["--port", "79-81"], 1),
        (&["--port", "81-90"], 0),
        (&["--connection", "1"], 1),
        (&["--connection", "1", "--port", "81"], 0),
    ] {
        let list = json_of(&files, &[&["--list"], options].concat());
        assert_eq!(list.as_array().unwrap().len(), found, "{options:?}");
    }
}

#[test]
fn the_story_of_a_lost_range_says_what_brought_it_and_when() {
    let folder = tempfile::tempdir().unwrap();
    let files = both(folder.path());
    let story = json_of(&files, &["--explain", "1:150"]);
    assert_eq!((&story["begin"], &story["end"]), (&json!(101), &json!(201)));
    let events = story["events"].as_array().unwrap();
    let events: Vec<_> = events
        .iter()
        .map(|event| {
            (
                event["ms"].as_f64().unwrap(),
                event["event"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        events,
        [
            (0.0, "sent"),
            (30.0, "sent"),
            (80.0, "arrived"),
            (130.0, "acked")
        ]
    );
    assert_eq!(story["events"][0]["fate"], "lost");
    assert_eq!(story["events"][1]["copy"], "bundled");
    assert_eq!(story["application_latency_ms"], 80.0);
    let raw = INITIAL.wrapping_add(150);
    assert_eq!(
        json_of(&files, &["--explain", &format!("1:raw={raw}")]),
        story
    );
}

#[test]
fn the_story_says_who_waited_behind_the_range() {
    let folder = tempfile::tempdir().unwrap();
    let files = both(folder.path());
    let front = json_of(&files, &["--explain", "1:301"]);
    let waited = json!([{"begin": 401, "end": 501, "ms": 140.0}]);
    assert_eq!(front["waited_behind"], waited);
    let behind = json_of(&files, &["--explain", "1:401"]);
    assert_eq!(behind["waited_for"], 301);
    assert_eq!(behind["events"][0]["packet"], 10, "in the client's trace");
    assert_eq!(behind["events"][1]["packet"], 8, "in the server's trace");
    assert_eq!(behind["transport_latency_ms"], 50.0);
    assert_eq!(behind["application_latency_ms"], 190.0);
    let text = stdout(&analyse(&files, &["--explain", "1:301"]));
    assert!(text.contains("bytes 401 to 500: 140.0 ms"), "{text}");
    // The sender's trace without the receiver's shows the same, except for arrivals.
    let alone = json_of(&files[..2], &["--explain", "1:301"]);
    assert_eq!(alone["ack_latency_ms"], 250.0);
    assert_eq!(alone["application_latency_ms"], Value::Null);
}

#[test]
fn the_results_have_what_was_sent_lost_and_repaired_and_how_long_it_took() {
    let folder = tempfile::tempdir().unwrap();
    let files = both(folder.path());
    let results = json_of(&files, &[]);
    let main = &results["all"]["main"];
    let sent = |name: &str| main["sent"][name].as_f64().unwrap();
    assert_eq!((sent("data_packets"), sent("new_bytes")), (6.0, 500.0));
    assert_eq!(
        (sent("bundled_packets"), sent("retransmitted_packets")),
        (1.0, 1.0)
    );
    assert_eq!(sent("redundant_share"), 200.0 / 700.0);
    let loss = |name: &str| main["loss"][name].as_u64().unwrap();
    assert_eq!((loss("lost_data_packets"), loss("bundle_hits")), (2, 1));
    assert_eq!(loss("ranges_repaired_by_bundle"), 1);
    assert_eq!(loss("ranges_repaired_by_retransmission"), 1);
    let ms = |measure: &str, what: &str| main[measure][what].as_f64().unwrap().round();
    assert_eq!(ms("ack_latency_ms", "count"), 5.0);
    assert_eq!(
        (ms("ack_latency_ms", "min"), ms("ack_latency_ms", "max")),
        (100.0, 250.0)
    );
    assert_eq!(ms("application_latency_ms", "max"), 200.0);
    assert_eq!(
        results["clock"]["round_trip_ms"].as_f64().unwrap().round(),
        100.0
    );
    assert_eq!(
        results["clock"]["ahead_ms"].as_f64().unwrap().round(),
        7000.0
    );
    let alone = json_of(&files[..2], &[]);
    assert_eq!(
        (&alone["clock"], &alone["all"]["main"]["loss"]),
        (&Value::Null, &Value::Null)
    );
    assert_eq!(
        alone["all"]["main"]["ack_latency_ms"],
        main["ack_latency_ms"]
    );
}

#[test]
fn the_summary_has_the_percentiles_asked_for_and_a_column_for_each_group() {
    let folder = tempfile::tempdir().unwrap();
    let files = both(folder.path());
    let groups = ["--group", "web=to::80", "--group", "other=:81"];
    let options = [
        &groups[..],
        &["--percentiles", "40,99.5", "--optimum", "web=10k"],
    ]
    .concat();
    let text = stdout(&analyse(&files, &options)).replace('\u{a0}', " ");
    let line = |begin: &str| {
        let found = text.lines().find(|line| line.trim().starts_with(begin));
        found
            .unwrap_or_else(|| panic!("{begin}: {text}"))
            .split_whitespace()
            .collect::<Vec<_>>()
    };
    assert_eq!(line("all  "), ["all", "web", "other"]);
    assert_eq!(line("number"), ["number", "min", "p40", "p99.5", "max"]);
    assert_eq!(
        line("ACK latency")[3..],
        ["5", "100.0", "100.0", "250.0", "250.0"]
    );
    assert_eq!(
        line("packets with payload"),
        ["packets", "with", "payload", "6", "6", "0"]
    );
}

#[test]
fn a_trace_taken_at_the_receiver_is_known_as_such_where_it_stands_alone() {
    let folder = tempfile::tempdir().unwrap();
    let files = both(folder.path());
    let server = [files[0].clone(), files[3].clone()];
    let taken_there = "seems to have been taken at the receiver";
    for (files, expected) in [(&server[..], true), (&files[..2], false), (&files, false)] {
        let text = stdout(&analyse(files, &[]));
        assert_eq!(text.contains(taken_there), expected, "{text}");
    }
}

#[test]
fn tables_and_report_are_written_beside_the_summary() {
    let folder = tempfile::tempdir().unwrap();
    let files = both(folder.path());
    let (tables, report) = (
        folder.path().join("tables"),
        folder.path().join("report.html"),
    );
    let paths = [&tables, &report].map(|path| path.to_str().unwrap());
    let output = analyse(
        &files,
        &["--csv", paths[0], "--report", paths[1], "--slice", "0.1"],
    );
    assert!(output.status.success(), "{}", stderr(&output));
    let table = |name: &str| fs::read_to_string(tables.join(name)).expect(name);
    let latency = table("ack_latency_ms.csv");
    assert!(
        latency.starts_with("scope,name,direction,share_at_most,ack_latency_ms\n"),
        "{latency}"
    );
    assert!(latency.contains("all,,main,1,250\n"), "{latency}");
    let connections = table("connections.csv");
    assert!(
        connections
            .lines()
            .nth(1)
            .unwrap()
            .contains("192.0.2.1:40000"),
        "{connections}"
    );
    assert!(table("slices.csv").starts_with("scope,name,direction,begin_s,"));
    let html = fs::read_to_string(&report).unwrap();
    for shown in [
        "client.pcap and server.pcap",
        "ACK latency",
        "Throughput and goodput",
        "<svg",
    ] {
        assert!(html.contains(shown), "{shown}");
    }
    assert!(html.trim_end().ends_with("</html>"));
    assert!(stdout(&output).contains("report: "));
}

#[test]
fn a_part_is_chosen_by_seconds_or_by_date_by_the_senders_clock() {
    let folder = tempfile::tempdir().unwrap();
    let files = both(folder.path());
    for (from, to) in [
        ("0.29", "0.42"),
        ("1970-01-01T00:00:00.29Z", "1970-01-01T00:00:00.42Z"),
    ] {
        for files in [&files[..], &files[..2]] {
            let list = json_of(files, &["--list", "--from", from, "--to", to]);
            assert_eq!(list[0]["there"]["packets"], 2, "{from}: {list}");
            assert_eq!(list[0]["back"]["packets"], 1, "{from}: {list}");
            // The connection started before the range, and its start is still read.
            assert_eq!(list[0]["begin_s"], 0.0);
        }
    }
}

#[test]
fn options_that_cannot_be_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let files = both(folder.path());
    for (options, said) in [
        (&["--percentiles", "50,101"][..], "from 0 to 100"),
        (&["--slice", "0"], "at least"),
        (&["--from", "noon"], "2026-11-21T22:49:11Z"),
        (&["--group", "web"], "NAME=CONDITION"),
        (
            &["--group", "a=:1", "--group", "a=:2"],
            "two groups are called `a`",
        ),
        (&["--optimum", "web=10k"], "no --group is called `web`"),
        (&["--optimum", "fast"], "no rate in bit/s"),
        (&["--nat", "one"], "203.0.113.9=10.0.0.7"),
        (&["--list", "--explain", "1:1"], "cannot be used with"),
    ] {
        let output = analyse(&files, options);
        assert_eq!(output.status.code(), Some(2), "{options:?}");
        assert!(
            stderr(&output).contains(said),
            "{options:?}: {}",
            stderr(&output)
        );
    }
}

#[test]
fn a_reader_that_has_enough_is_no_failure() {
    let folder = tempfile::tempdir().unwrap();
    let files = both(folder.path());
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = std::process::Command::new(PILLION_LAB);
    let status = command.args(&files).arg("--json").stdout(writer).status();
    assert!(status.unwrap().success());
}

#[test]
fn a_byte_or_connection_that_is_not_there_is_said_to_be_missing() {
    let folder = tempfile::tempdir().unwrap();
    let files = both(folder.path());
    for (target, said) in [
        ("1:501", "it shows bytes 1 to 500"),
        ("1:back:1", "it shows none"),
        ("2:1", "--list shows 1"),
        ("one:1", "names no byte"),
    ] {
        let output = analyse(&files, &["--explain", target]);
        assert_eq!(output.status.code(), Some(2), "{target}");
        assert!(
            stderr(&output).contains(said),
            "{target}: {}",
            stderr(&output)
        );
    }
}

#[test]
fn a_connection_chosen_by_a_number_that_none_has_is_said_to_be_missing() {
    let folder = tempfile::tempdir().unwrap();
    let files = both(folder.path());
    for more in [&[][..], &["--list"], &["--json"]] {
        let chosen = [&["--connection", "1", "--connection", "9"], more].concat();
        let output = analyse(&files, &chosen);
        assert_eq!(output.status.code(), Some(2), "{more:?}");
        let said = stderr(&output);
        assert!(said.contains("no connection has the number 9"), "{said}");
        // A connection that exists but is excluded by another condition is not missing.
        let left_out = [&["--connection", "1", "--port", "1"], more].concat();
        let output = analyse(&files, &left_out);
        assert!(output.status.success(), "{more:?}: {}", stderr(&output));
    }
}

#[test]
fn of_a_trace_that_breaks_off_all_before_is_read_and_the_exit_status_is_3() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cut.pcap");
    let whole = conversation().at_client();
    fs::write(&path, &whole[..whole.len() - 1]).unwrap();
    let output = lab(&["analyse", path.to_str().unwrap(), "--list", "--json"]);
    assert_eq!(output.status.code(), Some(3));
    let last = whole.len() - 16 - 40;
    let expected = format!("cut.pcap: at byte {last}: the trace ends within a record");
    assert!(stderr(&output).contains(&expected), "{}", stderr(&output));
    let list: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(list[0]["there"]["packets"], 8);
    assert_eq!(list[0]["back"]["packets"], 4, "all but the last");
}

#[test]
fn what_is_no_trace_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notes.txt");
    let file = path.to_str().unwrap();
    for (content, said) in [
        (&b""[..], "is empty; check that the capture ran"),
        (b"Dear diary", "is not a packet trace"),
    ] {
        fs::write(&path, content).unwrap();
        let output = lab(&["analyse", file, "--list"]);
        assert_eq!(output.status.code(), Some(2));
        let expected = format!("pillion-lab: {file}: {said}");
        assert!(
            stderr(&output).starts_with(&expected),
            "{}",
            stderr(&output)
        );
        assert_eq!(stderr(&output).lines().count(), 1);
    }
    let missing = lab(&["analyse", "/nonexistent/a.pcap", "--list"]);
    assert_eq!(missing.status.code(), Some(2));
    let twice = lab(&["analyse", "-", "--receiver", "-", "--list"]);
    assert_eq!(twice.status.code(), Some(2));
    assert!(stderr(&twice).contains("name a file"), "{}", stderr(&twice));
}

#[test]
fn packets_that_are_in_no_number_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cut.pcap");
    fs::write(&path, cut(&conversation().at_client(), 30)).unwrap();
    for options in [&[][..], &["--json"], &["--list"]] {
        let output = analyse(&["analyse".into(), path.display().to_string()], options);
        let said = stderr(&output);
        assert!(
            said.contains("13 were captured too short for the TCP header")
                && said.contains("tcpdump -s 128"),
            "{options:?}: {said}"
        );
    }
}

/// Truncates each packet of a trace to `snaplen` bytes.
fn cut(trace: &[u8], snaplen: usize) -> Vec<u8> {
    let (header, mut rest) = trace.split_at(24);
    let mut cut = header.to_vec();
    while let Some((record, behind)) = rest.split_at_checked(16) {
        let captured = u32::from_le_bytes(record[8..12].try_into().unwrap()) as usize;
        let (packet, next) = behind.split_at(captured);
        let kept = &packet[..snaplen.min(captured)];
        cut.extend(&record[..8]);
        cut.extend((kept.len() as u32).to_le_bytes());
        cut.extend(&record[12..]);
        cut.extend(kept);
        rest = next;
    }
    cut
}

#[test]
fn options_of_a_trace_that_would_have_no_effect_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let files = both(folder.path());
    for (options, named) in [
        (&["--list", "--slice", "0.1"][..], "--slice"),
        (&["--list", "--percentiles", "50"], "--percentiles"),
        (&["--list", "--group", "a=:80"], "--group"),
        (&["--explain", "1:1", "--port", "80"], "--port"),
        (&["--explain", "1:1", "--optimum", "9k"], "--optimum"),
        (&["--json", "--percentiles", "50"], "--percentiles"),
        (&["--from", "2", "--to", "1"], "--to is not after --from"),
    ] {
        let output = analyse(&files, options);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{options:?}: {said}");
        assert!(said.contains(named), "{options:?}: {said}");
    }
}
