//! Published numbers compared with those of the virtual engine.

use std::fs;
use std::path::Path;
use std::process::{Output, Stdio};

use nix::sys::signal::Signal;

use crate::common::*;

const EXPERIMENT: &str = r#"
title = "small"
duration = 4
repetitions = 2
[reproduction]
source = "a paper"
baseline = "kernel=current"
causes = [{ runs = "kernel=published", description = "the path is another one", source = "a paper, table 1" }]
[[reproduction.claim]]
description = "holds today"
measure = "ack_latency_ms p50"
runs = "plain"
value = 40
tolerance = "10 %"
[[reproduction.claim]]
description = "held then"
measure = "ack_latency_ms p50"
runs = "plain"
value = 80
tolerance = "10 %"
[[reproduction.claim]]
description = "never held"
measure = "ack_latency_ms p50"
runs = "plain"
at-most = 10
[[reproduction.claim]]
description = "nothing waits in the sender"
measure = "sojourn_ms p99"
at-most = 0.1
[[reproduction.table]]
title = "Packets"
source = "table 1"
duration = 8
columns = [{ label = "sent", measure = "data_packets", counts = true }]
lines = [{ label = "of both", runs = "plain", published = [534] }]
[[reproduction.figure]]
title = "ACK latency"
source = "figure 1"
measure = "ack_latency_ms"
label = "ACK latency"
series = [{ label = "plain", runs = "plain" }]
[path]
rtt = 40
[group.thin]
streams = 2
itt = 30
[measure]
sockets = false
[variant.plain]
[axis.kernel.current]
[axis.kernel.published]
path.rtt = 80
"#;

fn reproduce(folder: &Path, arguments: &[&str]) -> Output {
    let arguments = [&["reproduce"], arguments].concat();
    lab_in(folder, &arguments).output().unwrap()
}

/// Returns the line of the printed table that contains this text.
fn line(output: &Output, text: &str) -> String {
    let printed = stdout(output);
    let line = printed.lines().find(|line| line.contains(text));
    line.unwrap_or_else(|| panic!("no {text}: {printed}{}", stderr(output)))
        .to_owned()
}

#[test]
fn claims_are_judged_on_current_and_published_kernel() {
    needs_kernel!();
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("small.toml"), EXPERIMENT).unwrap();
    let arguments = ["small.toml", "--html", "r.html", "--figures", "figures"];
    let output = reproduce(folder, &arguments);
    assert!(output.status.success(), "{}", stderr(&output));
    let report = fs::read_to_string(folder.join("r.html")).unwrap();
    for (what, verdict, why) in [
        ("holds today", "near", ""),
        ("held then", "changed", "holds if the path is another one"),
        ("never held", "miss", "no cause explains it"),
        ("nothing waits", "near", ""),
    ] {
        assert!(line(&output, what).ends_with(verdict));
        let row = report.lines().find(|line| line.contains(what)).unwrap();
        assert!(row.contains(verdict) && row.contains(why), "{row}");
    }
    assert!(report.contains("2 hold on the current kernel"));
    let csv = fs::read_to_string(folder.join("figures/small-1.csv")).unwrap();
    assert!(csv.lines().count() > 1000, "{csv}");
    assert!(folder.join("figures/small-2.svg").is_file());
    let csv = fs::read_to_string(folder.join("figures/small-1-table.csv")).unwrap();
    let current = csv
        .lines()
        .find(|it| it.starts_with("of both,sent,data_packets,534,current kernel,"));
    let fields: Vec<_> = current.unwrap().split(',').collect();
    // 2 streams write every 30 ms for 4 s; the published runs of 8 s have twice as many packets.
    let sent: f64 = fields[5].parse().unwrap();
    assert!((sent - 534.0).abs() < 10.0 && fields[8] == "2", "{csv}");
    assert!(stdout(&output).contains("small: Packets (table 1)"));
    assert!(report.contains("Packets<p>table 1. kernel=published: if the path is another one."));

    // Existing runs are not made again and give the same verdicts.
    let time = |run: &str| {
        let path = folder.join("pillion-runs/small.toml/default").join(run);
        fs::metadata(path.join("host.json"))
            .unwrap()
            .modified()
            .unwrap()
    };
    let cached = time("plain,kernel=current,seed=1");
    fs::remove_dir_all(
        folder.join("pillion-runs/small.toml/default/plain,kernel=published,seed=2"),
    )
    .unwrap();
    let again = reproduce(folder, &["small.toml"]);
    assert_eq!(line(&again, "held then"), line(&output, "held then"));
    assert_eq!(time("plain,kernel=current,seed=1"), cached);

    // Warnings of runs appear with the claims that depend on them.
    let runs = folder.join("pillion-runs/small.toml/default");
    for seed in [1, 2] {
        let summary = runs.join(format!("plain,kernel=current,seed={seed}/summary.json"));
        let text = fs::read_to_string(&summary).unwrap();
        let doubtful = text.replace(r#""warnings": []"#, r#""warnings": ["packets miss"]"#);
        assert_ne!(text, doubtful);
        fs::write(summary, doubtful).unwrap();
    }
    let message = "2 runs, first plain,kernel=current,seed=1";
    let again = reproduce(folder, &["small.toml", "--no-runs", "--html", "r.html"]);
    let printed = stderr(&again);
    assert_eq!(
        printed,
        format!(
            "pillion-lab: warning: small: 4 runs, first plain,kernel=current,seed=1: \
             all seeds give identical results: they count as one test, and their interval is \
             meaningless\n\
             pillion-lab: warning: small: {message}: packets miss\n"
        )
    );
    let report = fs::read_to_string(folder.join("r.html")).unwrap();
    assert!(report.contains("Runs with warnings") && report.contains(message));

    // A cache file of another run, copied by hand, is not used for this run.
    let cached = |kernel: &str| {
        let runs = fs::read_dir(folder.join("pillion-runs/small.toml/default")).unwrap();
        let name = format!("plain,kernel={kernel},seed=1.cache-");
        let mut files = runs.map(|file| file.unwrap().path());
        let file = files.find(|it| it.to_str().unwrap().contains(&name));
        file.unwrap()
    };
    fs::copy(cached("published"), cached("current")).unwrap();
    let again = reproduce(folder, &["small.toml"]);
    assert_eq!(line(&again, "holds today"), line(&output, "holds today"));
}

#[test]
fn interrupt_logs_one_line_and_keeps_old_report() {
    needs_kernel!();
    let folder = tempfile::tempdir().unwrap();
    let endless = EXPERIMENT.replace("duration = 4", "duration = 90000\nseed = 7770079");
    fs::write(folder.path().join("small.toml"), endless).unwrap();
    fs::write(folder.path().join("r.html"), "<!DOCTYPE html>before").unwrap();
    let arguments = ["reproduce", "small.toml", "--html", "r.html"];
    let mut pillion = lab_in(folder.path(), &arguments);
    let pillion = pillion.stderr(Stdio::piped()).spawn().unwrap();
    let mark = "pillion.seed=7770079";
    wait_until("kernels run", || count_processes_with(mark) > 0);
    let second = reproduce(folder.path(), &["small.toml", "--html", "other.html"]);
    let refused = stderr(&second);
    assert!(
        refused.contains("another process makes these runs"),
        "{refused}"
    );
    send_signal(&pillion, Signal::SIGINT);
    let output = pillion.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let printed = stderr(&output);
    assert!(
        printed.contains("pillion-lab: small: 4 of 4 runs to make"),
        "{printed}"
    );
    let end = "pillion-lab: error: interrupted; the same command continues\n";
    assert_eq!(printed.matches(end).count(), 1, "{printed}");
    assert!(!printed.contains("stopped"), "{printed}");
    assert_eq!(
        fs::read_to_string(folder.path().join("r.html")).unwrap(),
        "<!DOCTYPE html>before"
    );
}

/// Streams write four times the link rate, so that a backlog is still sent after their end.
const OVERLOADED: &str = r#"
duration = 10
[reproduction]
source = "a paper"
baseline = "kernel=current"
[[reproduction.claim]]
description = "no more than the link takes"
measure = "received_throughput_bit_per_s"
at-most = 105e3
[[reproduction.claim]]
description = "nearly all that it takes"
measure = "received_throughput_bit_per_s"
at-least = 80e3
[[reproduction.claim]]
description = "goodput is less than throughput"
measure = "received_goodput_bit_per_s"
at-most = 100e3
[[reproduction.claim]]
description = "one loses most"
measure = "lost_data_packets_share of streams p100"
at-least = 0.01
[[reproduction.claim]]
description = "most waits in the sender"
measure = "sojourn_ms p50"
at-least = 500
[bottleneck]
rate = 0.1
limit = 5
[path]
rtt = 40
[group.thin]
streams = 4
itt = 20
size = 250
[measure]
sockets = false
[axis.kernel.current]
"#;

#[test]
fn rates_cover_only_planned_sending_time() {
    needs_kernel!();
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("over.toml"), OVERLOADED).unwrap();
    let output = reproduce(folder.path(), &["over.toml"]);
    assert!(output.status.success(), "{}", stderr(&output));
    for what in [
        "no more than the link takes",
        "nearly all that it takes",
        "goodput is less than throughput",
        "one loses most",
        "most waits in the sender",
    ] {
        let line = line(&output, what);
        assert!(line.contains("near"), "{line}");
    }
}

#[test]
fn only_option_limits_runs_but_judges_all_existing() {
    needs_kernel!();
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("small.toml"), EXPERIMENT).unwrap();
    let only = |runs: &[&str]| {
        let options = runs.iter().flat_map(|runs| ["--only", runs]);
        let arguments: Vec<_> = ["small.toml"].into_iter().chain(options).collect();
        reproduce(folder, &arguments)
    };
    let run_names = || {
        let runs = fs::read_dir(folder.join("pillion-runs/small.toml/default")).unwrap();
        let names = runs.map(|run| run.unwrap().file_name().into_string().unwrap());
        let is_run = |name: &String| name.starts_with("plain") && !name.contains(".cache-");
        let mut names: Vec<_> = names.filter(is_run).collect();
        names.sort();
        names
    };
    let first = only(&["kernel=current,seed=1", "seed=1,kernel=current,plain"]);
    assert!(first.status.success(), "{}", stderr(&first));
    assert_eq!(run_names(), ["plain,kernel=current,seed=1"]);
    assert!(line(&first, "holds today").ends_with("undecided"));
    assert!(only(&["seed=2"]).status.success());
    let remaining = [
        "plain,kernel=current,seed=1",
        "plain,kernel=current,seed=2",
        "plain,kernel=published,seed=2",
    ];
    assert_eq!(run_names(), remaining);
    let both = only(&["seed=2", "seed=1"]);
    assert!(line(&both, "holds today").ends_with("near"));
    for unmatched in ["seed=3", "kernel=current,kernel=published", ""] {
        let refused = only(&["seed=2", unmatched]);
        assert_eq!(refused.status.code(), Some(2));
        let message = format!(
            "--only `{unmatched}` matches no run of this scale; give parts of a name such as "
        );
        assert!(stderr(&refused).contains(&message), "{}", stderr(&refused));
    }
}

#[test]
fn damaged_run_names_remedy_and_report_replaces_no_input() {
    needs_kernel!();
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("small.toml"), EXPERIMENT).unwrap();
    let output = reproduce(folder, &["small.toml"]);
    assert!(output.status.success(), "{}", stderr(&output));
    for input in [
        "small.toml",
        "pillion-runs/small.toml/default/plain,kernel=current,seed=1/run.toml",
    ] {
        let refused = reproduce(folder, &["small.toml", "--no-runs", "--html", input]);
        assert_eq!(refused.status.code(), Some(2));
        let message = stderr(&refused);
        assert!(message.contains("is not an HTML page"), "{message}");
    }
    let run = folder.join("pillion-runs/small.toml/default/plain,kernel=current,seed=1");
    for entry in fs::read_dir(run.parent().unwrap()).unwrap() {
        let file = entry.unwrap().path();
        if file.is_file() && !file.ends_with("experiment.toml") {
            fs::remove_file(file).unwrap();
        }
    }
    fs::write(run.join("summary.json"), "{").unwrap();
    let damaged = reproduce(folder, &["small.toml", "--no-runs"]);
    assert_eq!(damaged.status.code(), Some(1));
    let message = stderr(&damaged);
    assert!(
        message.contains("summary.json: EOF while parsing"),
        "{message}"
    );
    assert!(
        message.contains("seed=1, and the same command repeats the run"),
        "{message}"
    );
}

#[test]
fn missing_runs_are_not_judged() {
    let folder = tempfile::tempdir().unwrap();
    let output = reproduce(folder.path(), &["uniform-loss", "--no-runs", "--quick"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(line(&output, "ACK latency of TCP").contains("not run"));
}

#[test]
fn invalid_reproduction_is_refused_before_any_run() {
    let folder = tempfile::tempdir().unwrap();
    let write = |text: &str| fs::write(folder.path().join("own.toml"), text).unwrap();
    for (text, message) in [
        (
            "duration = 1\n[group.a]\n",
            "own: the file has no [reproduction]",
        ),
        (
            &EXPERIMENT.replace("at-most = 10", ""),
            "claim `never held`: give one of `value`, `at-most`, `at-least` and `ascending`",
        ),
    ] {
        write(text);
        let output = reproduce(folder.path(), &["own.toml"]);
        assert_eq!(output.status.code(), Some(2));
        assert!(stderr(&output).contains(message), "{}", stderr(&output));
    }
    let output = reproduce(folder.path(), &["unheard-of"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("expected a file, or one of dpifl, uniform-loss, "));
}

#[test]
fn file_keeps_runs_of_published_experiment_of_same_name() {
    needs_kernel!();
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let published = folder.join("pillion-runs/uniform-loss/default/plain,kernel=current,seed=1");
    fs::create_dir_all(&published).unwrap();
    for file in ["run.toml", "summary.json", "manifest.json"] {
        fs::write(published.join(file), "hours of work").unwrap();
    }
    fs::write(folder.join("uniform-loss.toml"), EXPERIMENT).unwrap();
    let output = reproduce(folder, &["./uniform-loss.toml"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let cached = fs::read_to_string(published.join("run.toml"));
    assert_eq!(cached.unwrap(), "hours of work");
    let listed = lab_in(folder, &["list"]).output().unwrap();
    assert!(line(&listed, "uniform-loss.toml/default").contains('4'));
}

#[test]
fn duplicate_experiment_names_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("more")).unwrap();
    for file in ["own.toml", "more/own.toml", "dpifl.toml"] {
        fs::write(folder.path().join(file), EXPERIMENT).unwrap();
    }
    for (names, name) in [
        (["own.toml", "more/own.toml"], "own"),
        (["own.toml", "./own.toml"], "own"),
        (["dpifl", "dpifl"], "dpifl"),
        (["dpifl.toml", "dpifl"], "dpifl"),
    ] {
        let output = reproduce(folder.path(), &[&names[..], &["--no-runs"]].concat());
        assert_eq!(output.status.code(), Some(2), "{names:?}");
        let printed = stderr(&output);
        let message = format!(
            "duplicate name `{name}`: runs and figures are stored by name; remove one, or rename \
             its file"
        );
        assert!(
            printed.contains(&message) && printed.lines().count() == 1,
            "{printed}"
        );
    }
}
