//! `pillion-lab analyse`, on traces written by hand.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::common::*;
use crate::trace::{Conversation, INITIAL, cut};

/// Bytes 101 to 200 are lost and repaired by the next packet. Bytes 301 to 400 are lost and
/// retransmitted after later bytes have arrived.
fn conversation() -> Conversation {
    let mut conversation = Conversation::start();
    conversation.data(110, 1, 101).data(130, 101, 201).lost();
    conversation.data(160, 101, 301).ack(210, 101).ack(260, 301);
    conversation.data(300, 301, 401).lost();
    conversation.data(310, 401, 501).ack(410, 301);
    conversation.data(450, 301, 401).ack(550, 501);
    conversation
}

/// Arguments that name both traces in a folder.
fn trace_arguments(folder: &Path) -> Vec<String> {
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

fn analyse_json(files: &[String], options: &[&str]) -> Value {
    let output = analyse(files, &[options, &["--json"]].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[test]
fn json_has_distributions_of_connections_only_by_request() {
    let folder = tempfile::tempdir().unwrap();
    let files = trace_arguments(folder.path());
    let short = analyse_json(&files, &[]);
    let whole = analyse_json(&files, &["--distributions"]);
    assert_eq!(short["all"], whole["all"]);
    let main = |results: &Value, name: &str| results["connections"][0]["main"].get(name).cloned();
    for name in ["ack_latency_ms", "slices"] {
        assert_eq!(main(&short, name), None);
        assert_eq!(main(&whole, name).as_ref(), whole["all"]["main"].get(name));
    }
    for name in ["sent", "loss", "unknown_delays"] {
        assert_eq!(main(&short, name), main(&whole, name));
    }
    assert!(
        short["connections"].to_string().len() < 5000,
        "{}",
        short["connections"]
    );
}

#[test]
fn list_shows_endpoints_times_and_counts_per_direction() {
    let folder = tempfile::tempdir().unwrap();
    let files = trace_arguments(folder.path());
    let list = analyse_json(&files, &["--list"]);
    let [connection] = &list.as_array().unwrap()[..] else {
        panic!("one connection: {list}");
    };
    assert_eq!(connection["opened_by"], "192.0.2.1:40000");
    assert_eq!(connection["to"], "198.51.100.1:80");
    assert_eq!(
        (&connection["start_s"], &connection["duration_s"]),
        (&json!(0.0), &json!(0.55))
    );
    assert_eq!(connection["handshake"], "completed");
    let forward = json!({
        "packets": 8, "new_bytes": 500, "bundled_packets": 1, "retransmitted_packets": 1,
        "lost_packets": 2,
    });
    assert_eq!(connection["there"], forward);
    let text = stdout(&analyse(&files, &["--list"]));
    assert!(
        text.lines().any(|line| line.contains("198.51.100.1:80")),
        "{text}"
    );
}

#[test]
fn connections_are_selected_by_address_port_and_number() {
    let folder = tempfile::tempdir().unwrap();
    let files = trace_arguments(folder.path());
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
        let list = analyse_json(&files, &[&["--list"], options].concat());
        assert_eq!(list.as_array().unwrap().len(), found, "{options:?}");
    }
}

#[test]
fn explain_shows_packets_and_times_of_lost_range() {
    let folder = tempfile::tempdir().unwrap();
    let files = trace_arguments(folder.path());
    let timeline = analyse_json(&files, &["--explain", "1:150"]);
    assert_eq!(
        (&timeline["start"], &timeline["end"]),
        (&json!(101), &json!(201))
    );
    let events = timeline["events"].as_array().unwrap();
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
    assert_eq!(timeline["events"][0]["disposition"], "lost");
    assert_eq!(timeline["events"][1]["copy"], "bundled");
    assert_eq!(timeline["application_latency_ms"], 80.0);
    let raw = INITIAL.wrapping_add(150);
    assert_eq!(
        analyse_json(&files, &["--explain", &format!("1:raw={raw}")]),
        timeline
    );
}

#[test]
fn explain_shows_ranges_blocked_by_lost_range() {
    let folder = tempfile::tempdir().unwrap();
    let files = trace_arguments(folder.path());
    let lost = analyse_json(&files, &["--explain", "1:301"]);
    let waited = json!([{"start": 401, "end": 501, "ms": 140.0}]);
    assert_eq!(lost["blocked_ranges"], waited);
    let blocked = analyse_json(&files, &["--explain", "1:401"]);
    assert_eq!(blocked["waited_for"], 301);
    assert_eq!(blocked["events"][0]["packet"], 10, "in the client's trace");
    assert_eq!(blocked["events"][1]["packet"], 8, "in the server's trace");
    assert_eq!(blocked["transport_latency_ms"], 50.0);
    assert_eq!(blocked["application_latency_ms"], 190.0);
    let text = stdout(&analyse(&files, &["--explain", "1:301"]));
    assert!(text.contains("bytes 401 to 500: 140.0 ms"), "{text}");
    // The sender's trace without the receiver's shows the same, except for arrivals.
    let sender_only = analyse_json(&files[..2], &["--explain", "1:301"]);
    assert_eq!(sender_only["ack_latency_ms"], 250.0);
    assert_eq!(sender_only["application_latency_ms"], Value::Null);
}

#[test]
fn results_count_sent_lost_repaired_and_measure_latencies() {
    let folder = tempfile::tempdir().unwrap();
    let files = trace_arguments(folder.path());
    let results = analyse_json(&files, &[]);
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
    let ms = |measure: &str, statistic: &str| main[measure][statistic].as_f64().unwrap().round();
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
    let sender_only = analyse_json(&files[..2], &[]);
    assert_eq!(
        (&sender_only["clock"], &sender_only["all"]["main"]["loss"]),
        (&Value::Null, &Value::Null)
    );
    assert_eq!(
        sender_only["all"]["main"]["ack_latency_ms"],
        main["ack_latency_ms"]
    );
}

#[test]
fn summary_has_requested_percentiles_and_group_columns() {
    let folder = tempfile::tempdir().unwrap();
    let files = trace_arguments(folder.path());
    let groups = ["--group", "web=to::80", "--group", "other=:81"];
    let options = [
        &groups[..],
        &["--percentiles", "40,99.5", "--optimum", "web=10k"],
    ]
    .concat();
    let text = stdout(&analyse(&files, &options)).replace('\u{a0}', " ");
    let line = |prefix: &str| {
        let found = text.lines().find(|line| line.trim().starts_with(prefix));
        found
            .unwrap_or_else(|| panic!("{prefix}: {text}"))
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
fn single_receiver_side_trace_is_recognised() {
    let folder = tempfile::tempdir().unwrap();
    let files = trace_arguments(folder.path());
    let server = [files[0].clone(), files[3].clone()];
    let receiver_side = "was probably taken at the receiver";
    for (files, expected) in [(&server[..], true), (&files[..2], false), (&files, false)] {
        let text = stdout(&analyse(files, &[]));
        assert_eq!(text.contains(receiver_side), expected, "{text}");
    }
}

#[test]
fn tables_and_report_are_written_with_summary() {
    let folder = tempfile::tempdir().unwrap();
    let files = trace_arguments(folder.path());
    let (tables, report) = (
        folder.path().join("tables"),
        folder.path().join("report.html"),
    );
    let paths = [&tables, &report].map(|path| path.to_str().unwrap());
    let output = analyse(
        &files,
        &["--csv-dir", paths[0], "--html", paths[1], "--slice", "0.1s"],
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
    assert!(table("slices.csv").starts_with("scope,name,direction,start_s,"));
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
fn time_range_is_selected_by_seconds_or_date_of_sender_clock() {
    let folder = tempfile::tempdir().unwrap();
    let files = trace_arguments(folder.path());
    for (from, to) in [
        ("0.29", "0.42"),
        ("1970-01-01T00:00:00.29Z", "1970-01-01T00:00:00.42Z"),
    ] {
        for files in [&files[..], &files[..2]] {
            let list = analyse_json(files, &["--list", "--from", from, "--to", to]);
            assert_eq!(list[0]["there"]["packets"], 2, "{from}: {list}");
            assert_eq!(list[0]["back"]["packets"], 1, "{from}: {list}");
            // The connection started before the range, and its start is still read.
            assert_eq!(list[0]["start_s"], 0.0);
        }
    }
}

#[test]
fn analyse_rejects_invalid_options() {
    let folder = tempfile::tempdir().unwrap();
    let files = trace_arguments(folder.path());
    for (options, message) in [
        (&["--percentiles", "50,101"][..], "from 0 to 100"),
        (&["--slice", "0s"], "at least"),
        (&["--from", "noon"], "2026-11-21T22:49:11Z"),
        (&["--group", "web"], "NAME=CONDITION"),
        (
            &["--group", "a=:1", "--group", "a=:2"],
            "duplicate --group `a`",
        ),
        (&["--optimum", "web=10k"], "unknown group `web`"),
        (&["--optimum", "fast"], "expected bit/s"),
        (&["--nat", "one"], "203.0.113.9=10.0.0.7"),
        (&["--list", "--explain", "1:1"], "cannot be used with"),
    ] {
        let output = analyse(&files, options);
        assert_eq!(output.status.code(), Some(2), "{options:?}");
        assert!(
            stderr(&output).contains(message),
            "{options:?}: {}",
            stderr(&output)
        );
    }
}

#[test]
fn closed_pipe_is_no_error() {
    let folder = tempfile::tempdir().unwrap();
    let files = trace_arguments(folder.path());
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = std::process::Command::new(PILLION_LAB);
    let status = command.args(&files).arg("--json").stdout(writer).status();
    assert!(status.unwrap().success());
}

#[test]
fn explain_rejects_missing_byte_or_connection() {
    let folder = tempfile::tempdir().unwrap();
    let files = trace_arguments(folder.path());
    for (target, message) in [
        ("1:501", "it shows bytes 1 to 500"),
        ("1:back:1", "it shows none"),
        ("2:1", "the trace has 1"),
        ("one:1", "invalid byte"),
    ] {
        let output = analyse(&files, &["--explain", target]);
        assert_eq!(output.status.code(), Some(2), "{target}");
        assert!(
            stderr(&output).contains(message),
            "{target}: {}",
            stderr(&output)
        );
    }
}

#[test]
fn unknown_connection_number_is_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let files = trace_arguments(folder.path());
    for output_options in [&[][..], &["--list"], &["--json"]] {
        let options = [&["--connection", "1", "--connection", "9"], output_options].concat();
        let output = analyse(&files, &options);
        assert_eq!(output.status.code(), Some(2), "{output_options:?}");
        let message = stderr(&output);
        assert!(
            message.contains(
                "--connection: no connection with the number 9; --list shows the numbers"
            ),
            "{message}"
        );
        // A connection that exists but is excluded by another condition is not missing.
        let excluded = [&["--connection", "1", "--port", "1"], output_options].concat();
        let output = analyse(&files, &excluded);
        assert!(
            output.status.success(),
            "{output_options:?}: {}",
            stderr(&output)
        );
    }
}

#[test]
fn truncated_trace_is_read_up_to_its_end_and_exits_3() {
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
fn file_that_is_no_trace_is_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notes.txt");
    let file = path.to_str().unwrap();
    for (test_data, message) in [
        (&b""[..], "is empty: check that the capture ran"),
        (b"Dear diary", "is not a packet trace"),
    ] {
        fs::write(&path, test_data).unwrap();
        let output = lab(&["analyse", file, "--list"]);
        assert_eq!(output.status.code(), Some(2));
        let expected = format!("pillion-lab: error: {file}: {message}");
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
fn packets_left_out_of_counts_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cut.pcap");
    fs::write(&path, cut(&conversation().at_client(), 30)).unwrap();
    for options in [&[][..], &["--json"], &["--list"]] {
        let output = analyse(&["analyse".into(), path.display().to_string()], options);
        let message = stderr(&output);
        assert!(
            message.contains("packets were truncated within the TCP header")
                && message.contains("tcpdump -s 128"),
            "{options:?}: {message}"
        );
    }
}

#[test]
fn analyse_rejects_options_without_effect() {
    let folder = tempfile::tempdir().unwrap();
    let files = trace_arguments(folder.path());
    for (options, expected) in [
        (&["--list", "--slice", "0.1s"][..], "--slice"),
        (&["--list", "--percentiles", "50"], "--percentiles"),
        (&["--list", "--group", "a=:80"], "--group"),
        (&["--explain", "1:1", "--port", "80"], "--port"),
        (&["--explain", "1:1", "--optimum", "9k"], "--optimum"),
        (&["--json", "--percentiles", "50"], "--percentiles"),
        (&["--from", "2", "--to", "1"], "--to is not after --from"),
    ] {
        let output = analyse(&files, options);
        let message = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{options:?}: {message}");
        assert!(message.contains(expected), "{options:?}: {message}");
    }
}
