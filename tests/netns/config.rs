//! `pillion attach --config`: rules of a file, and the effect of SIGHUP on existing connections.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use pillion_tests::HostPair;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::common::*;

/// Running `pillion attach` on the sender's host, with its rules file.
pub struct AttachWithRules {
    pub process: Child,
    log: BufReader<ChildStderr>,
    folder: TempDir,
}

impl AttachWithRules {
    pub fn start(pair: &HostPair, rules: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (file, stats) = (
            folder.path().join("rules.toml"),
            folder.path().join("stats"),
        );
        fs::write(&file, rules).unwrap();
        let text = |path: &Path| path.to_str().unwrap().to_owned();
        let arguments = ["attach", "--config", &text(&file), "--stats", &text(&stats)];
        let mut process = pillion_in(&pair.sender.namespace, &arguments)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let log = BufReader::new(process.stderr.take().unwrap());
        let mut attach = Self {
            process,
            log,
            folder,
        };
        let line = attach.line();
        assert!(line.starts_with("pillion: bundling by "), "{line}");
        attach
    }

    pub fn file(&self) -> PathBuf {
        self.folder.path().join("rules.toml")
    }

    /// Reads the next log line, with the file's path replaced by FILE.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.log.read_line(&mut line).unwrap();
        let file = self.file();
        line.trim_end().replace(file.to_str().unwrap(), "FILE")
    }

    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.process.id().cast_signed()), signal).unwrap();
    }

    pub fn reload(&mut self, rules: &str) -> String {
        fs::write(self.file(), rules).unwrap();
        self.signal(Signal::SIGHUP);
        self.line()
    }

    fn stop(mut self) -> Value {
        self.signal(Signal::SIGTERM);
        assert!(self.process.wait().unwrap().success());
        read_json(&self.folder.path().join("stats"))
    }
}

/// Stream with a message every 10 ms; dropping it stops both ends.
struct Stream {
    port: u16,
    _ends: [KillOnDrop; 2],
}

impl Stream {
    fn start(pair: &HostPair, port: u16) -> Self {
        Self::start_with(pair, port, PILLION_LAB)
    }

    /// Starts the sender with another program instead of pillion-lab.
    fn start_with(pair: &HostPair, port: u16, program: &str) -> Self {
        let address = format!("10.77.0.2:{port}");
        let receiver = receive(pair, port, 1);
        let mut send = pair.sender.namespace.command(program);
        send.args(["traffic", "send", "--to", &address, "--streams", "1"]);
        send.args(["--itt", "10ms", "--duration", "60s"]);
        send.stdout(Stdio::null()).stderr(Stdio::null());
        let sender = send.spawn().unwrap();
        Self {
            port,
            _ends: [receiver, sender].map(KillOnDrop),
        }
    }

    /// Returns the stream's entry in `flows`, if it is being bundled.
    fn flow(&self) -> Option<Value> {
        let output = pillion(&["flows", "--json"]);
        let all: Vec<Value> = serde_json::from_slice(&output.stdout).expect("JSON");
        let peer = format!("10.77.0.2:{}", self.port);
        all.into_iter().find(|flow| flow["peer"] == peer)
    }

    /// Returns the stream's bundled segments and redundant bytes.
    fn counts(&self) -> (u64, u64) {
        let flow = self.flow().unwrap_or_default();
        let number = |value: &Value| value.as_u64().unwrap_or(0);
        (
            number(&flow["outcomes"]["bundled"]),
            number(&flow["redundant_bytes"]),
        )
    }

    /// Waits for `more` bundled segments. Returns the redundant bytes per bundled segment.
    fn wait_for_bundles(&self, more: u64) -> f64 {
        let before = self.counts();
        let mut after = before;
        eventually("the stream is bundled", || {
            after = self.counts();
            after.0 >= before.0 + more
        });
        (after.1 - before.1) as f64 / (after.0 - before.0) as f64
    }
}

#[test]
fn first_matching_rule_decides() {
    needs_root!();
    let pair = clean_pair();
    let attach = AttachWithRules::start(
        &pair,
        "[[rule]]\nmode = \"never\"\nremote-port = \"7110-7112\"\n\
         [[rule]]\npeer = \"10.77.0.0/24\"\ndirection = \"connect\"\nthin = \"always\"\n",
    );
    let (excluded, bundled) = (Stream::start(&pair, 7111), Stream::start(&pair, 7113));
    bundled.wait_for_bundles(50);
    assert_eq!(excluded.flow(), None);
    drop((excluded, bundled));
    assert_eq!(attach.stop()["connections"], 1);
}

/// Two nested cgroups, and a script that runs pillion-lab in the inner one.
struct NestedCgroups {
    outer: PathBuf,
    script: TempDir,
}

impl NestedCgroups {
    fn create() -> Self {
        let name = format!("rules-{}", std::process::id());
        let outer = pillion_bpf::cgroup2_mount().unwrap().join(name);
        let inner = outer.join("inner");
        fs::create_dir_all(&inner).unwrap();
        let script = tempfile::tempdir().unwrap();
        let procs_file = inner.join("cgroup.procs");
        let text = format!(
            "#!/bin/sh\necho 0 > {} && exec {PILLION_LAB} \"$@\"\n",
            procs_file.display()
        );
        let file = script.path().join("inside");
        fs::write(&file, text).unwrap();
        fs::set_permissions(&file, PermissionsExt::from_mode(0o755)).unwrap();
        Self { outer, script }
    }

    fn program(&self) -> String {
        self.script.path().join("inside").display().to_string()
    }
}

impl Drop for NestedCgroups {
    fn drop(&mut self) {
        // The cgroup is busy until its killed process is gone.
        eventually("the cgroups are empty", || {
            let _ = fs::remove_dir(self.outer.join("inner"));
            fs::remove_dir(&self.outer).is_ok()
        });
    }
}

#[test]
fn cgroup_rule_covers_descendant_cgroups() {
    needs_root!();
    let pair = clean_pair();
    let nested = NestedCgroups::create();
    let path = nested.outer.file_name().unwrap().to_str().unwrap();
    for cgroup in [path.to_owned(), format!("/{path}/inner")] {
        let rule = format!("[[rule]]\nthin = \"always\"\ncgroup = \"{cgroup}\"\n");
        let attach = AttachWithRules::start(&pair, &rule);
        let outside = Stream::start(&pair, 7151);
        let inside = Stream::start_with(&pair, 7152, &nested.program());
        inside.wait_for_bundles(20);
        assert_eq!(outside.flow(), None);
        drop((outside, inside));
        assert_eq!(attach.stop()["connections"], 1);
    }
}

#[test]
fn reload_changes_options_and_preserves_counters() {
    needs_root!();
    let pair = clean_pair();
    let rules = |limit| format!("[[rule]]\nport = 7121\nthin = \"always\"\nmax-packets = {limit}");
    let mut attach = AttachWithRules::start(&pair, &rules(1));
    let stream = Stream::start(&pair, 7121);
    let one = stream.wait_for_bundles(100);
    let before = stream.counts();
    let line = attach.reload(&rules(3));
    assert_eq!(line, "pillion: reloaded FILE: 1 rule; 1 connection covered");
    let three = stream.wait_for_bundles(100);
    let after = stream.counts();
    assert!(after.0 >= before.0 + 100, "{before:?} {after:?}");
    assert!(three > one * 1.5, "{one} and {three} bytes in a bundle");
    drop(stream);
    assert_eq!(attach.stop()["connections"], 1);
}

#[test]
fn many_streams_together_stay_below_caps() {
    needs_root!();
    let pair = clean_pair();
    let rules = "max-redundancy-rate = \"32kbit\"\nmax-copy-rate = 10\n\
                 [[rule]]\nthin = \"always\"\nlevel = \"fixed\"\ncopies = 1\n";
    let started = Instant::now();
    let attach = AttachWithRules::start(&pair, rules);
    let streams = [7181, 7182, 7183, 7184].map(|port| Stream::start(&pair, port));
    let is_capped = |stream: &Stream| {
        let flow = stream.flow().unwrap_or_default();
        flow["outcomes"]["capped"].as_u64() > Some(100)
    };
    within(Duration::from_secs(60), "each stream is capped", || {
        streams.iter().all(is_capped)
    });
    drop(streams);
    let stats = attach.stop();
    let seconds = 1.0 + started.elapsed().as_secs_f64();
    let number = |name| stats[name].as_u64().unwrap() as f64;
    let (bytes, copies) = (number("redundant_bytes"), number("copies"));
    assert!(
        (4000.0..=4000.0 * seconds).contains(&bytes),
        "{seconds} {stats}"
    );
    assert!(
        (10.0..=10.0 * seconds).contains(&copies),
        "{seconds} {stats}"
    );
    assert!(number("copies_capped") > 400.0, "{stats}");
}

#[test]
fn reload_changes_and_removes_caps() {
    needs_root!();
    let pair = clean_pair();
    let rules = |caps: &str| format!("{caps}[[rule]]\nport = 7191\nthin = \"always\"\n");
    let reloaded = "pillion: reloaded FILE: 1 rule; 1 connection covered";
    let mut attach = AttachWithRules::start(&pair, &rules(""));
    let stream = Stream::start(&pair, 7191);
    stream.wait_for_bundles(20);
    // No message fits.
    assert_eq!(
        attach.reload(&rules("max-redundancy-rate = \"8bit\"\n")),
        reloaded
    );
    let counts = stream.counts();
    eventually("the stream is capped", || {
        let flow = stream.flow().unwrap_or_default();
        flow["outcomes"]["capped"].as_u64() > Some(50)
    });
    assert_eq!(stream.counts(), counts);
    assert_eq!(
        attach.reload(&rules("max-redundancy-rate = \"1gbit\"\n")),
        reloaded
    );
    stream.wait_for_bundles(20);
    drop(stream);
    attach.stop();
}

#[test]
fn reload_reports_keys_that_need_restart() {
    needs_root!();
    let pair = clean_pair();
    let rules = |output_keys: &str| format!("{output_keys}[[rule]]\nport = 7171\n");
    let mut attach = AttachWithRules::start(&pair, &rules("log-totals = \"1h\"\n"));
    let reloaded = "pillion: reloaded FILE: 1 rule; 0 connections covered";
    let restart_line = |keys: &str| {
        let (it, value) = match keys.contains(',') {
            true => ("them", "values"),
            false => ("it", "value"),
        };
        format!(
            "pillion: warning: {keys} changed: restart pillion to apply {it} (still using the old {value})"
        )
    };
    for (output_keys, changed) in [
        ("log-totals = \"1h\"\n", None),
        // The command line takes precedence over this key.
        ("log-totals = \"1h\"\nstats = \"/nonexistent\"\n", None),
        ("log-totals = \"1m\"\n", Some("`log-totals`")),
        (
            "metrics = \"127.0.0.1:29473\"\n",
            Some("`log-totals`, `metrics`"),
        ),
    ] {
        assert_eq!(attach.reload(&rules(output_keys)), reloaded);
        if let Some(keys) = changed {
            assert_eq!(attach.line(), restart_line(keys));
        }
    }
    attach.stop();
}

#[test]
fn reload_drops_unmatched_and_adopts_matching_connections() {
    needs_root!();
    let pair = clean_pair();
    let rules = |port| format!("[[rule]]\nthin = \"always\"\nport = {port}\n");
    let mut attach = AttachWithRules::start(&pair, &rules(7131));
    let (first, second) = (Stream::start(&pair, 7131), Stream::start(&pair, 7132));
    first.wait_for_bundles(20);
    assert_eq!(second.flow(), None);
    let line = attach.reload(&rules(7132));
    assert_eq!(line, "pillion: reloaded FILE: 1 rule; 1 connection covered");
    assert_eq!(first.flow(), None);
    second.wait_for_bundles(20);
    drop((first, second));
    assert_eq!(attach.stop()["connections"], 2);
}

#[test]
fn reload_sets_tcp_options_on_existing_connections() {
    needs_root!();
    let pair = clean_pair();
    let rules = |options: &str| format!("[[rule]]\nport = \"7161-7162\"\n{options}");
    let mut attach = AttachWithRules::start(&pair, &rules("thin = \"always\"\n"));
    let stream = Stream::start(&pair, 7161);
    stream.wait_for_bundles(20);
    assert_eq!(stream.flow().unwrap()["tcp_options"], Value::Null);
    let tcp_options = "linear-timeouts = true\nrto-min = \"120ms\"\ncongestion = \"reno\"\n";
    let line = attach.reload(&rules(tcp_options));
    assert_eq!(line, "pillion: reloaded FILE: 1 rule; 1 connection covered");
    let expected = json!({
        "linear_timeouts": true,
        "rto_min_us": 120_000,
        "congestion": "reno",
    });
    assert_eq!(stream.flow().unwrap()["tcp_options"], expected);
    assert!(stdout(&pillion(&["flows"])).contains("linear-timeouts rto-min=120ms congestion=reno"));
    let line = attach.reload(&rules("mode = \"tcp-options\"\nuser-timeout = \"30s\"\n"));
    assert_eq!(
        line,
        "pillion: reloaded FILE: 1 rule; 0 connections covered"
    );
    assert_eq!(stream.flow(), None, "no longer bundled");
    drop(stream);
    let stats = attach.stop();
    assert_eq!(stats["tcp_options_set"]["user_timeout"], 1);
    assert_eq!(stats["tcp_options_set"]["linear_timeouts"], 1);
    assert_eq!(stats["tcp_options_refused"], Value::Null);
}

#[test]
fn reload_keeps_old_rules_on_error() {
    needs_root!();
    let pair = clean_pair();
    let mut attach = AttachWithRules::start(&pair, "[[rule]]\nthin = \"always\"\nport = 7141\n");
    let stream = Stream::start(&pair, 7141);
    stream.wait_for_bundles(20);
    let line = attach.reload("[[rule]]\nport = 70000\nprot = 1\n");
    assert!(
        line.starts_with("FILE:2:8: `70000`; expected a port"),
        "{line}"
    );
    let line = attach.line();
    assert!(line.starts_with("FILE:3:1: unknown key `prot`; "), "{line}");
    assert_eq!(
        attach.line(),
        "pillion: error: FILE not reloaded: the old rules stay in force; fix the file and reload"
    );
    stream.wait_for_bundles(20);
    let status = || {
        pillion_in(&pair.sender.namespace, &["status"])
            .output()
            .unwrap()
    };
    let reload_failed = "fails: the rules file was not reloaded; the old rules stay in force";
    eventually("status reports the failed reload", || {
        stdout(&status()).contains(reload_failed)
    });
    assert_eq!(status().status.code(), Some(1));
    let report = stdout(&status());
    let mut last_errors = report.lines().filter(|line| line.contains("last error, "));
    let last = last_errors.next().unwrap_or_else(|| panic!("{report}"));
    assert!(last.contains(":2:8: `70000`"), "{report}");
    assert!(
        last.ends_with("not reloaded: the old rules stay in force; fix the file and reload"),
        "{report}"
    );
    let line = attach.reload("[[rule]]\nthin = \"always\"\nport = 7141\n");
    assert!(line.starts_with("pillion: reloaded FILE"), "{line}");
    eventually("status reports success", || status().status.success());
    drop(stream);
    attach.stop();
}

/// Runs `attach --config FILE --check-config` with this text as FILE. Returns status, stdout and
/// stderr.
fn check(text: &str) -> (Option<i32>, String, String) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rules.toml");
    fs::write(&file, text).unwrap();
    let name = file.to_str().unwrap();
    let output = pillion(&["attach", "--config", name, "--check-config"]);
    let anonymise = |text: String| text.replace(name, "FILE");
    (
        output.status.code(),
        anonymise(stdout(&output)),
        anonymise(stderr(&output)),
    )
}

#[test]
fn check_config_reports_rule_count_or_all_errors() {
    let valid = check("[[rule]]\nport = 1\n[[rule]]\n");
    let expected = "no mistake: would bundle by 2 rules of FILE\n".to_owned();
    assert_eq!(valid, (Some(0), expected, String::new()));
    let (code, output, mistakes) = check("[[rule]]\nport = 0\n[[rule]]\nuid = \"root\"\n");
    assert_eq!((code, &output[..]), (Some(2), ""));
    let starts: Vec<_> = mistakes
        .lines()
        .filter_map(|line| line.split_once(": "))
        .map(|(start, _)| start)
        .collect();
    assert_eq!(starts, ["FILE:2:8", "FILE:4:7"]);
}

#[test]
fn example_rules_are_valid() {
    needs_root!();
    let example = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/reference/rules.toml"
    );
    let output = pillion(&["attach", "--config", example, "--check-config"]);
    assert!(output.status.success(), "{}", stderr(&output));
}

#[test]
fn options_that_belong_in_file_are_rejected() {
    for option in [
        "--port=1",
        "--peer=10.0.0.1",
        "--all",
        "--thin=always",
        "--max-packets=2",
    ] {
        let output = pillion(&["attach", "--config", "rules.toml", option]);
        assert_eq!(output.status.code(), Some(2));
        assert!(stderr(&output).contains("cannot be used with"), "{option}");
    }
}

#[test]
fn rules_from_standard_input_cannot_be_reloaded() {
    needs_root!();
    let namespace = namespace_with_loopback();
    let arguments = ["attach", "--dev", "lo", "--config", "-"];
    let mut attach = pillion_in(&namespace, &arguments)
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut rules = attach.stdin.take().unwrap();
    rules.write_all(b"[[rule]]\nport = 7001\n").unwrap();
    drop(rules);
    let mut log = BufReader::new(attach.stderr.take().unwrap()).lines();
    let mut line = || log.next().unwrap().unwrap();
    assert!(line().starts_with("pillion: bundling by 1 rule of standard input"));
    send_signal(&attach, Signal::SIGHUP);
    assert_eq!(
        line(),
        "standard input: only a regular file can be reloaded; give one to --config"
    );
    assert_eq!(
        line(),
        "pillion: error: standard input not reloaded: the old rules stay in force; fix the file \
         and reload"
    );
    send_signal(&attach, Signal::SIGTERM);
    assert!(attach.wait().unwrap().success());
}
