//! Interfaces of a running pillion: metrics, `status`, totals in its log.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::chown;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use pillion_bpf::{Counters, Kind, Outcome};
use pillion_lab::Namespace;
use serde_json::Value;
use tempfile::TempDir;

use crate::attach::send_to;
use crate::common::*;
use crate::manager::signal;

/// Running `pillion attach`; dropping it kills it.
pub struct Attached(Child);

impl Attached {
    pub fn begin(namespace: &Namespace, options: &[&str]) -> Self {
        let arguments = [&["attach", "--port", "7001"], options].concat();
        let mut attach = pillion_in(namespace, &arguments);
        let attached = Self(attach.stderr(Stdio::piped()).spawn().unwrap());
        await_attached(attached.0.id());
        attached
    }

    pub fn process(&self) -> u32 {
        self.0.id()
    }

    pub fn end(mut self) {
        kill(Pid::from_raw(self.0.id().cast_signed()), Signal::SIGTERM).unwrap();
        let said = self.0.stderr.take().map(io::read_to_string);
        assert!(self.0.wait().unwrap().success(), "{said:?}");
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Sends an HTTP request and returns the head and the body of the response.
pub fn get(mut stream: impl Read + Write, path: &str) -> (String, String) {
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
        let (head, body) = get(stream, "/metrics");
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        let kind = "application/openmetrics-text; version=1.0.0";
        assert!(head.contains(kind), "{head}");
        metrics = body;
        metrics.contains("\npillion_connections_total ")
    });
    metrics
}

fn get_at(socket: &Path) -> String {
    metrics(|| UnixStream::connect(socket))
}

/// Returns the value of a sample by its name and labels.
fn value(metrics: &str, sample: &str) -> f64 {
    let mut lines = metrics.lines().filter_map(|line| line.split_once(' '));
    let found = lines.find(|(name, _)| *name == sample);
    let (_, value) = found.unwrap_or_else(|| panic!("no {sample} in\n{metrics}"));
    value.parse().unwrap()
}

#[test]
fn metrics_are_what_the_account_says_under_names_of_the_statistics() {
    needs_root!();
    let pair = clean_pair();
    let folder = tempfile::tempdir().unwrap();
    let (socket, stats) = (folder.path().join("metrics"), folder.path().join("stats"));
    let endpoint = format!("unix:{}", socket.display());
    let options = ["--metrics", &endpoint, "--stats", stats.to_str().unwrap()];
    let attached = Attached::begin(&pair.sender.namespace, &options);
    let before = get_at(&socket);
    assert_eq!(
        value(&before, "pillion_segments_total{outcome=\"bundled\"}"),
        0.0
    );
    send_to(&pair, &[7001]);
    let metrics = get_at(&socket);
    attached.end();
    assert!(!socket.exists(), "the socket is gone with its pillion");

    let told = read_json(&stats);
    let count = |value: &Value| value.as_u64().unwrap_or(0) as f64;
    for outcome in Outcome::ALL {
        let name = serde_json::to_value(outcome).unwrap();
        let sample = format!("pillion_segments_total{{outcome={name}}}");
        let expected = count(&told["outcomes"][name.as_str().unwrap()]);
        assert_eq!(value(&metrics, &sample), expected, "{sample}");
    }
    for statistic in Counters::STATISTICS
        .iter()
        .filter(|it| it.kind == Kind::Counter)
    {
        let sample = format!("pillion_{}_total", statistic.name);
        assert_eq!(
            value(&metrics, &sample),
            count(&told[statistic.name]),
            "{sample}"
        );
    }
    let saved = value(&metrics, "pillion_saved_seconds");
    assert!(
        (saved * 1e6 - count(&told["saved_us"])).abs() < 1.0,
        "{saved}"
    );
    assert_eq!(value(&metrics, "pillion_connections_total"), 2.0);
    assert_eq!(
        value(&metrics, "pillion_device_attached{device=\"tap0\"}"),
        1.0
    );
    assert_eq!(value(&metrics, "pillion_failing"), 0.0);
}

#[test]
fn metrics_keep_to_the_format() {
    needs_root!();
    let namespace = namespace_with_loopback();
    let attached = Attached::begin(&namespace, &["--dev", "lo", "--metrics", "127.0.0.1:9273"]);
    let connect = || TcpStream::connect("127.0.0.1:9273");
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
    let (head, _) = get(reach().unwrap(), "/other");
    assert!(head.starts_with("HTTP/1.1 404 "), "{head}");
    attached.end();
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
    assert!(names.len() > 3, "{names:?}");
    for name in names {
        let is_it = |sample: &String| sample.split('{').next() == Some(name);
        assert!(samples.iter().any(is_it), "{file}: {name}");
    }
}

/// Returns a folder, a socket path in it, and the `--metrics` value for that socket.
fn unix_endpoint() -> (TempDir, PathBuf, String) {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("metrics");
    let endpoint = format!("unix:{}", socket.display());
    (folder, socket, endpoint)
}

#[test]
fn a_socket_left_behind_is_replaced_and_another_file_is_not() {
    needs_root!();
    let namespace = namespace_with_loopback();
    let (_folder, socket, endpoint) = unix_endpoint();
    let options = ["--dev", "lo", "--metrics", &endpoint];
    let killed = Attached::begin(&namespace, &options);
    get_at(&socket);
    drop(killed);
    assert!(socket.exists());
    let attached = Attached::begin(&namespace, &options);
    get_at(&socket);
    attached.end();

    fs::write(&socket, "mine").unwrap();
    let arguments = [&["attach", "--all"], &options[..]].concat();
    let output = pillion_in(&namespace, &arguments).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).contains("something else than a socket"),
        "{}",
        stderr(&output)
    );
    assert_eq!(fs::read_to_string(&socket).unwrap(), "mine");
}

#[test]
fn a_socket_that_another_pillion_serves_is_left_to_it() {
    needs_root!();
    let namespace = namespace_with_loopback();
    let (_folder, socket, endpoint) = unix_endpoint();
    let options = ["--dev", "lo", "--metrics", &endpoint];
    let first = Attached::begin(&namespace, &options);
    let arguments = [&["attach", "--all"], &options[..]].concat();
    let mut second = pillion_in(&namespace, &arguments);
    let mut second = Attached(second.stderr(Stdio::piped()).spawn().unwrap());
    eventually("the process exits", || second.0.try_wait().unwrap().is_some());
    assert_eq!(second.0.wait().unwrap().code(), Some(1));
    let said = io::read_to_string(second.0.stderr.take().unwrap()).unwrap();
    assert!(said.contains("another process serves there"), "{said}");
    get_at(&socket);
    first.end();
    assert!(!socket.exists());
}

#[test]
fn a_socket_in_another_users_folder_goes_with_pillion() {
    needs_root!();
    let namespace = namespace_with_loopback();
    let (folder, socket, endpoint) = unix_endpoint();
    chown(folder.path(), Some(65534), None).unwrap();
    let attached = Attached::begin(&namespace, &["--dev", "lo", "--metrics", &endpoint]);
    get_at(&socket);
    attached.end();
    assert!(!socket.exists());
}

#[test]
fn files_that_may_not_grow_are_no_end_to_it() {
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
    let mut attached = Attached(attach.stderr(Stdio::piped()).spawn().unwrap());
    await_attached(attached.process());
    signal(&attached.0, Signal::SIGUSR1);
    let mut said = BufReader::new(attached.0.stderr.take().unwrap()).lines();
    let refused = said.find_map(|line| line.ok().filter(|line| line.contains(stats)));
    assert!(refused.unwrap().contains("File too large"));
    assert!(attached.0.try_wait().unwrap().is_none());
}

pub fn status(namespace: &Namespace) -> (Option<i32>, String) {
    let output = pillion_in(namespace, &["status"]).output().unwrap();
    (output.status.code(), stdout(&output) + &stderr(&output))
}

#[test]
fn one_that_waits_says_so_to_status() {
    needs_root!();
    let namespace = namespace_with_loopback();
    let mut attach = pillion_in(&namespace, &["attach", "--all", "--wait", "--dev", "late0"]);
    let mut waiting = attach.stderr(Stdio::null()).spawn().unwrap();
    eventually("status names the device", || {
        let (code, said) = status(&namespace);
        let waits = "note: waits: no network device `late0`";
        code == Some(1) && said.contains("  not at work yet\n") && said.contains(waits)
    });
    signal(&waiting, Signal::SIGTERM);
    assert!(waiting.wait().unwrap().success());
}

#[test]
fn status_tells_whether_all_is_well_by_words_and_exit_status() {
    needs_root!();
    let pair = clean_pair();
    let namespace = &pair.sender.namespace;
    let (code, said) = status(namespace);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("no `pillion attach`"), "{said}");

    let attached = Attached::begin(namespace, &[]);
    eventually("no connection is covered yet", || status(namespace).0 == Some(3));
    let (_, said) = status(namespace);
    assert!(
        said.contains("  bundling connections with port 7001\n"),
        "{said}"
    );
    assert!(said.contains("  attached to tap0\n"), "{said}");
    assert!(
        said.contains("  covers 0 connections now, 0 since it began\n"),
        "{said}"
    );

    std::thread::scope(|scope| {
        let traffic = scope.spawn(|| send_to(&pair, &[7001]));
        eventually("both connections are covered", || {
            let (code, said) = status(namespace);
            code == Some(0) && said.contains("covers 2 connections now, 2 since")
        });
        traffic.join().unwrap();
    });

    let json = pillion_in(namespace, &["status", "--json"])
        .output()
        .unwrap();
    let json: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(json[0]["pid"], attached.0.id());
    assert_eq!(json[0]["totals"]["connections"], 2);

    let mut down = namespace.command("ip");
    assert!(
        down.args(["link", "delete", "tap0"])
            .status()
            .unwrap()
            .success()
    );
    eventually("status reports the missing device", || {
        let (code, said) = status(namespace);
        code == Some(1) && said.contains("attached to no device")
    });
    attached.end();
}

#[test]
fn another_user_is_not_told() {
    needs_root!();
    let namespace = namespace_with_loopback();
    let attached = Attached::begin(&namespace, &["--dev", "lo"]);
    eventually("root can read the status", || status(&namespace).0 == Some(3));
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
    attached.end();
}

#[test]
fn totals_are_said_in_the_log_as_often_as_asked() {
    needs_root!();
    let namespace = namespace_with_loopback();
    let mut attached = Attached::begin(&namespace, &["--dev", "lo", "--totals-every", "1"]);
    let says = BufReader::new(attached.0.stderr.take().unwrap()).lines();
    let so_far = says
        .map_while(Result::ok)
        .filter(|line| line.contains("so far"));
    for line in so_far.take(2) {
        assert!(
            line.starts_with("pillion: so far: 0 connections, "),
            "{line}"
        );
    }
    attached.end();
}

#[test]
fn one_that_does_not_answer_is_told_of() {
    needs_root!();
    let namespace = namespace_with_loopback();
    let attached = Attached::begin(&namespace, &["--dev", "lo"]);
    let process = attached.process();
    let signal = |signal| kill(Pid::from_raw(process.cast_signed()), signal).unwrap();
    signal(Signal::SIGSTOP);
    let (code, said) = status(&namespace);
    assert_eq!(code, Some(1), "{said}");
    let silent = format!("process {process} does not answer");
    assert!(
        said.contains(&silent) && !said.contains("no `pillion attach`"),
        "{said}"
    );
    signal(Signal::SIGCONT);
    eventually("the process answers again", || status(&namespace).0 == Some(3));
    attached.end();
}
