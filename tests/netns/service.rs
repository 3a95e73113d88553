//! Interfaces of a running pillion: metrics, `status`, totals in its log.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use pillion_bpf::{Counters, Outcome, StatisticKind};
use pillion_lab::Namespace;
use serde_json::Value;
use tempfile::TempDir;

use crate::attach::{send_to, with_streams};
use crate::common::*;

/// Running `pillion attach`; dropping it kills it.
pub struct ServiceGuard(Child);

impl ServiceGuard {
    pub fn start(namespace: &Namespace, options: &[&str]) -> Self {
        let arguments = [&["attach", "--port", "7001"], options].concat();
        let mut attach = pillion_in(namespace, &arguments);
        let service = Self(attach.stderr(Stdio::piped()).spawn().unwrap());
        await_attached(service.0.id());
        service
    }

    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    pub fn stop(mut self) {
        send_signal(&self.0, Signal::SIGTERM);
        let text = self.0.stderr.take().map(io::read_to_string);
        assert!(self.0.wait().unwrap().success(), "{text:?}");
    }
}

impl Drop for ServiceGuard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Sends an HTTP request and returns the head and the body of the response.
pub fn http_get(mut stream: impl Read + Write, path: &str) -> (String, String) {
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    (head.to_owned(), body.to_owned())
}

/// Returns the metrics once they contain totals. The programs run a moment before these are read.
fn metrics<S: Read + Write>(connect: impl Fn() -> io::Result<S>) -> String {
    let mut metrics = String::new();
    eventually("metrics are served", || {
        let Ok(stream) = connect() else { return false };
        let (head, body) = http_get(stream, "/metrics");
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        let kind = "application/openmetrics-text; version=1.0.0";
        assert!(head.contains(kind), "{head}");
        metrics = body;
        metrics.contains("\npillion_ready 1.0\n")
    });
    metrics
}

pub fn scrape(socket: &Path) -> String {
    metrics(|| UnixStream::connect(socket))
}

/// Returns the value of a sample by its name and labels.
pub fn value(metrics: &str, sample: &str) -> f64 {
    let mut lines = metrics.lines().filter_map(|line| line.split_once(' '));
    let found = lines.find(|(name, _)| *name == sample);
    let (_, value) = found.unwrap_or_else(|| panic!("no {sample} in\n{metrics}"));
    value.parse().unwrap()
}

#[test]
fn metrics_equal_stats_file() {
    needs_root!();
    let pair = clean_pair();
    let folder = tempfile::tempdir().unwrap();
    let (socket, stats) = (folder.path().join("metrics"), folder.path().join("stats"));
    let endpoint = format!("unix:{}", socket.display());
    let options = ["--metrics", &endpoint, "--stats", stats.to_str().unwrap()];
    let service = ServiceGuard::start(&pair.sender.namespace, &options);
    let before = scrape(&socket);
    assert_eq!(
        value(&before, "pillion_data_segments_total{outcome=\"bundled\"}"),
        0.0
    );
    send_to(&pair, &[7001]);
    let metrics = scrape(&socket);
    service.stop();
    assert!(!socket.exists(), "the socket is gone with its pillion");

    let stats_json = read_json(&stats);
    let count = |value: &Value| value.as_u64().unwrap_or(0) as f64;
    for outcome in Outcome::ALL {
        let name = serde_json::to_value(outcome).unwrap();
        let sample = match outcome {
            Outcome::UnparsedIp => "pillion_unparsed_packets_total".to_owned(),
            Outcome::Retransmission | Outcome::RetransmissionBundled => {
                format!("pillion_retransmitted_segments_total{{outcome={name}}}")
            }
            _ => format!("pillion_data_segments_total{{outcome={name}}}"),
        };
        let expected = count(&stats_json["outcomes"][name.as_str().unwrap()]);
        assert_eq!(value(&metrics, &sample), expected, "{sample}");
    }
    for statistic in Counters::STATISTICS
        .iter()
        .filter(|it| it.kind == StatisticKind::Counter)
    {
        let sample = format!("pillion_{}_total", statistic.name);
        assert_eq!(
            value(&metrics, &sample),
            count(&stats_json[statistic.name]),
            "{sample}"
        );
    }
    let saved = value(&metrics, "pillion_time_saved_seconds");
    assert!(
        (saved * 1e6 - count(&stats_json["time_saved_us"])).abs() < 1.0,
        "{saved}"
    );
    assert_eq!(value(&metrics, "pillion_connections_total"), 2.0);
    assert_eq!(
        value(&metrics, "pillion_device_attached{device=\"tap0\"}"),
        1.0
    );
    assert_eq!(value(&metrics, "pillion_active_failures"), 0.0);
}

#[test]
fn metrics_have_rtt_of_covered_connections() {
    needs_root!();
    let pair = clean_pair();
    let (_folder, socket, endpoint) = unix_endpoint();
    let service = ServiceGuard::start(&pair.sender.namespace, &["--metrics", &endpoint]);
    let [rtt, min_rtt] =
        ["rtt", "min_rtt"].map(|it| format!("pillion_{it}_seconds{{quantile=\"0.99\"}}"));
    assert_eq!(value(&scrape(&socket), &rtt), 0.0);
    with_streams(&pair, || {
        eventually("connections have an RTT", || {
            let metrics = scrape(&socket);
            let [rtt, min_rtt] = [&rtt, &min_rtt].map(|it| value(&metrics, it));
            assert!(rtt < 10.0 && min_rtt < 10.0, "{rtt} {min_rtt}");
            rtt > 0.0 && min_rtt > 0.0
        });
    });
    service.stop();
}

#[test]
fn metrics_conform_to_openmetrics() {
    needs_root!();
    let namespace = namespace_with_loopback();
    let service = ServiceGuard::start(&namespace, &["--dev", "lo", "--metrics", "127.0.0.1:29473"]);
    let connect = || TcpStream::connect("127.0.0.1:29473");
    let reach = || namespace.enter(connect).unwrap();
    let metrics = metrics(reach);
    assert!(metrics.ends_with("# EOF\n"), "{metrics}");
    let (mut samples, mut family) = (BTreeSet::new(), (String::new(), String::new()));
    for line in metrics.lines() {
        if let Some((sample, value)) = line.rsplit_once(' ').filter(|_| !line.starts_with('#')) {
            let name = sample.split('{').next().unwrap();
            let suffix = match family.1.as_str() {
                "counter" => "_total",
                "info" => "_info",
                _ => "",
            };
            assert_eq!(name, format!("{}{suffix}", family.0), "{line}");
            assert!(value.parse::<f64>().is_ok(), "{line}");
            assert!(samples.insert(sample.to_owned()), "twice: {line}");
            continue;
        }
        let mut words = line.split(' ').skip(1);
        match (words.next(), words.next()) {
            (Some("HELP"), Some(name)) => {
                assert!(line.len() > name.len() + 20, "{line}");
                assert!(!line.contains("  ") && !line.ends_with('\\'), "{line}");
                assert!(!line.replace("\\\"", "").contains('"'), "{line}");
            }
            (Some("TYPE"), Some(name)) => {
                family = (name.to_owned(), words.next().unwrap().to_owned());
            }
            _ => {}
        }
    }
    assert!(samples.len() < 100, "labels are bounded");
    assert_served("grafana/pillion.json", &samples);
    assert_served("prometheus/alerts.yaml", &samples);
    let (head, _) = http_get(reach().unwrap(), "/other");
    assert!(head.starts_with("HTTP/1.1 404 "), "{head}");
    service.stop();
}

/// Checks that a file below packaging/ uses only metrics that exist.
fn assert_served(file: &str, samples: &BTreeSet<String>) {
    let path = format!("{}/../../packaging/{file}", env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(path).unwrap();
    let names = text.match_indices("pillion_").map(|(at, _)| {
        let is_part = |c: char| c.is_ascii_lowercase() || c == '_';
        let end = text[at..].find(|c| !is_part(c)).unwrap_or(text.len() - at);
        &text[at..at + end]
    });
    let names: BTreeSet<_> = names.collect();
    assert!(names.len() > 2, "{names:?}");
    for name in names {
        let is_it = |sample: &String| sample.split('{').next() == Some(name);
        assert!(samples.iter().any(is_it), "{file}: {name}");
    }
}

/// Returns a folder, a socket path in it, and the `--metrics` value for that socket.
pub fn unix_endpoint() -> (TempDir, PathBuf, String) {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("metrics");
    let endpoint = format!("unix:{}", socket.display());
    (folder, socket, endpoint)
}

#[test]
fn stale_socket_is_replaced_but_other_file_is_not() {
    needs_root!();
    let namespace = namespace_with_loopback();
    let (_folder, socket, endpoint) = unix_endpoint();
    let options = ["--dev", "lo", "--metrics", &endpoint];
    let killed = ServiceGuard::start(&namespace, &options);
    scrape(&socket);
    drop(killed);
    assert!(socket.exists());
    let service = ServiceGuard::start(&namespace, &options);
    scrape(&socket);
    fs::remove_file(&socket).unwrap();
    eventually("status fails", || {
        let (code, text) = status(&namespace);
        code == Some(1) && text.contains(" was removed: restart pillion\n")
    });
    service.stop();

    fs::write(&socket, "mine").unwrap();
    let arguments = [&["attach", "--all"], &options[..]].concat();
    let output = pillion_in(&namespace, &arguments).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).contains("not a socket"),
        "{}",
        stderr(&output)
    );
    assert_eq!(fs::read_to_string(&socket).unwrap(), "mine");
}

#[test]
fn socket_served_by_other_process_is_left_alone() {
    needs_root!();
    let namespace = namespace_with_loopback();
    let (_folder, socket, endpoint) = unix_endpoint();
    let options = ["--dev", "lo", "--metrics", &endpoint];
    let first = ServiceGuard::start(&namespace, &options);
    let arguments = [&["attach", "--all"], &options[..]].concat();
    let mut second = pillion_in(&namespace, &arguments);
    let mut second = ServiceGuard(second.stderr(Stdio::piped()).spawn().unwrap());
    eventually("the process exits", || {
        second.0.try_wait().unwrap().is_some()
    });
    assert_eq!(second.0.wait().unwrap().code(), Some(1));
    let text = io::read_to_string(second.0.stderr.take().unwrap()).unwrap();
    let refused = "in use by another process; choose another path";
    let expected = format!("pillion: error: serve --metrics {endpoint}: {refused}\n");
    assert_eq!(text, expected);
    scrape(&socket);
    first.stop();
    assert!(!socket.exists());
}

#[test]
fn socket_in_folder_of_other_user_is_removed_at_exit() {
    needs_root!();
    let namespace = namespace_with_loopback();
    let (folder, socket, endpoint) = unix_endpoint();
    chown(folder.path(), Some(65534), None).unwrap();
    let service = ServiceGuard::start(&namespace, &["--dev", "lo", "--metrics", &endpoint]);
    scrape(&socket);
    service.stop();
    assert!(!socket.exists());
}

#[test]
fn file_size_limit_does_not_stop_service() {
    needs_root!();
    let namespace = namespace_with_loopback();
    let folder = tempfile::tempdir().unwrap();
    let stats = folder.path().join("stats.json");
    let stats = stats.to_str().unwrap();
    let arguments = ["attach", "--all", "--dev", "lo", "--stats", stats];
    let mut attach = pillion_in(&namespace, &arguments);
    // SAFETY: between fork and exec a system call is made.
    unsafe {
        attach.pre_exec(|| setrlimit(Resource::RLIMIT_FSIZE, 0, 0).map_err(Into::into));
    }
    let mut service = ServiceGuard(attach.stderr(Stdio::piped()).spawn().unwrap());
    await_attached(service.pid());
    send_signal(&service.0, Signal::SIGUSR1);
    let mut text = BufReader::new(service.0.stderr.take().unwrap()).lines();
    let refused = text.find_map(|line| line.ok().filter(|line| line.contains(stats)));
    assert!(refused.unwrap().contains("File too large"));
    assert!(service.0.try_wait().unwrap().is_none());
}

pub fn status(namespace: &Namespace) -> (Option<i32>, String) {
    let output = pillion_in(namespace, &["status"]).output().unwrap();
    (output.status.code(), stdout(&output) + &stderr(&output))
}

#[test]
fn status_shows_waiting_process() {
    needs_root!();
    let namespace = namespace_with_loopback();
    let mut attach = pillion_in(&namespace, &["attach", "--all", "--wait", "--dev", "late0"]);
    let mut waiting = attach.stderr(Stdio::null()).spawn().unwrap();
    eventually("status names the device", || {
        let (code, text) = status(&namespace);
        let waits = "note: waiting: no network device `late0`";
        code == Some(1) && text.contains("  not ready yet\n") && text.contains(waits)
    });
    send_signal(&waiting, Signal::SIGTERM);
    assert!(waiting.wait().unwrap().success());
}

#[test]
fn status_reports_health_by_text_and_exit_status() {
    needs_root!();
    let pair = clean_pair();
    let namespace = &pair.sender.namespace;
    let (code, text) = status(namespace);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("no `pillion attach`"), "{text}");

    let service = ServiceGuard::start(namespace, &[]);
    eventually("no connection is covered yet", || {
        status(namespace).0 == Some(3)
    });
    let (_, text) = status(namespace);
    assert!(
        text.contains("  bundling connections with port 7001\n"),
        "{text}"
    );
    assert!(text.contains("  attached to tap0\n"), "{text}");
    assert!(
        text.contains("  covers 0 connections now, 0 since the start\n"),
        "{text}"
    );

    with_streams(&pair, || {
        eventually("both connections are covered", || {
            let (code, text) = status(namespace);
            code == Some(0) && text.contains("covers 2 connections now, 2 since")
        });
    });

    let json = pillion_in(namespace, &["status", "--json"])
        .output()
        .unwrap();
    let json: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(json[0]["pid"], service.0.id());
    assert_eq!(json[0]["totals"]["connections"], 2);

    let mut down = namespace.command("ip");
    assert!(
        down.args(["link", "delete", "tap0"])
            .status()
            .unwrap()
            .success()
    );
    eventually("status reports the missing device", || {
        let (code, text) = status(namespace);
        code == Some(1) && text.contains("not attached to any device")
    });
    service.stop();
}

#[test]
fn status_is_refused_to_other_users() {
    needs_root!();
    let namespace = namespace_with_loopback();
    let service = ServiceGuard::start(&namespace, &["--dev", "lo"]);
    eventually("root can read the status", || {
        status(&namespace).0 == Some(3)
    });
    let folder = tempfile::tempdir().unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(folder.path(), open).unwrap();
    let copy = folder.path().join("pillion");
    fs::copy(PILLION, &copy).unwrap();
    let mut other: Command = namespace.command("setpriv");
    other
        .args(["--reuid", "nobody", "--clear-groups"])
        .arg(copy)
        .arg("status");
    assert_eq!(other.output().unwrap().status.code(), Some(1));
    service.stop();
}

#[test]
fn totals_are_logged_at_requested_interval() {
    needs_root!();
    let namespace = namespace_with_loopback();
    let mut service = ServiceGuard::start(&namespace, &["--dev", "lo", "--log-totals", "1s"]);
    let log = BufReader::new(service.0.stderr.take().unwrap()).lines();
    let totals = log
        .map_while(Result::ok)
        .filter(|line| line.contains("so far"));
    for line in totals.take(2) {
        assert!(
            line.starts_with("pillion: so far: 0 connections, "),
            "{line}"
        );
    }
    service.stop();
}

#[test]
fn status_reports_unresponsive_process() {
    needs_root!();
    let namespace = namespace_with_loopback();
    let service = ServiceGuard::start(&namespace, &["--dev", "lo"]);
    let pid = service.pid();
    let signal = |signal| kill(Pid::from_raw(pid.cast_signed()), signal).unwrap();
    signal(Signal::SIGSTOP);
    let (code, text) = status(&namespace);
    assert_eq!(code, Some(1), "{text}");
    let silent = format!("process {pid} does not respond");
    assert!(
        text.contains(&silent) && !text.contains("no `pillion attach`"),
        "{text}"
    );
    signal(Signal::SIGCONT);
    eventually("the process answers again", || {
        status(&namespace).0 == Some(3)
    });
    service.stop();
}

/// systemd sets `JOURNAL_STREAM` to the device and inode of standard error (systemd.exec(5)).
#[test]
fn log_lines_have_priorities_in_journal_only() {
    needs_root!();
    let namespace = namespace_with_loopback();
    let cases: [(&[&str], &str, &str); 3] = [
        (
            &["status"],
            "<4>no `pillion attach`",
            "pillion: warning: no `pillion attach`",
        ),
        (&["attach", "--dev", "nosuch0"], "<3>", "pillion: error: "),
        (
            &["run", "--dev", "lo", "--", "true"],
            "<6>0 connections",
            "pillion: 0 connections",
        ),
    ];
    for (arguments, in_journal, elsewhere) in cases {
        for is_journal in [true, false] {
            let log = tempfile::NamedTempFile::new().unwrap();
            let metadata = log.as_file().metadata().unwrap();
            let inode = metadata.ino() + u64::from(!is_journal);
            let mut pillion = namespace.command(PILLION);
            pillion.args(arguments).stderr(log.reopen().unwrap());
            pillion.env("JOURNAL_STREAM", format!("{}:{inode}", metadata.dev()));
            pillion.output().unwrap();
            let line = fs::read_to_string(log.path()).unwrap();
            let expected = if is_journal { in_journal } else { elsewhere };
            assert!(line.starts_with(expected), "{arguments:?}: {line}");
        }
    }
}

#[test]
fn log_level_hides_less_severe_lines() {
    needs_root!();
    let namespace = namespace_with_loopback();
    let log_of = |level: &str| {
        let mut run = namespace.command(PILLION);
        let output = run
            .args(["run", "--dev", "lo", "--log-level", level, "--", "true"])
            .output();
        stderr(&output.unwrap())
    };
    assert!(log_of("info").starts_with("pillion: 0 connections"));
    assert_eq!(log_of("warning"), "");
}
