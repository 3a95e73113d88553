//! `pillion attach --config`: rules of a file, and the effect of SIGHUP on existing connections.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrIn, bind, connect, socket};
use nix::unistd::Pid;
use pillion_bpf::host::interruption::retry;
use pillion_tests::HostPair;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::common::*;

/// Running `pillion attach` on the sender's host, with its rules file.
struct Attached {
    process: Child,
    says: BufReader<ChildStderr>,
    folder: TempDir,
}

impl Attached {
    fn begin(pair: &HostPair, rules: &str) -> Self {
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
        let says = BufReader::new(process.stderr.take().unwrap());
        let mut attached = Self {
            process,
            says,
            folder,
        };
        let line = attached.line();
        assert!(line.starts_with("pillion: bundling by "), "{line}");
        attached
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("rules.toml")
    }

    /// Reads the next log line, with the file's path replaced by FILE.
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.says.read_line(&mut line).unwrap();
        let file = self.file();
        line.trim_end().replace(file.to_str().unwrap(), "FILE")
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.process.id().cast_signed()), signal).unwrap();
    }

    fn reload(&mut self, rules: &str) -> String {
        fs::write(self.file(), rules).unwrap();
        self.signal(Signal::SIGHUP);
        self.line()
    }

    fn end(mut self) -> Value {
        self.signal(Signal::SIGTERM);
        assert!(self.process.wait().unwrap().success());
        read_json(&self.folder.path().join("stats"))
    }
}

/// Stream with a message every 10 ms; dropping it stops both ends.
struct Stream {
    port: u16,
    ends: [Child; 2],
}

impl Stream {
    fn begin(pair: &HostPair, port: u16) -> Self {
        Self::begin_by(pair, port, PILLION_LAB)
    }

    /// Starts the sender with another program instead of pillion-lab.
    fn begin_by(pair: &HostPair, port: u16, program: &str) -> Self {
        let address = format!("10.77.0.2:{port}");
        let start = |mut command: Command| {
            command.stdout(Stdio::null()).stderr(Stdio::null());
            command.spawn().unwrap()
        };
        let receive = ["traffic", "receive", "--listen", &address, "--streams", "1"];
        let receiver = start(lab_in(&pair.receiver.namespace, &receive));
        await_listening(&pair.receiver.namespace, port);
        let mut send = pair.sender.namespace.command(program);
        send.args(["traffic", "send", "--to", &address, "--streams", "1"]);
        send.args(["--itt", "10", "--duration", "60"]);
        let sender = start(send);
        Self {
            port,
            ends: [receiver, sender],
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
    fn bundles(&self, more: u64) -> f64 {
        let before = self.counts();
        let mut after = before;
        eventually("the stream is bundled", || {
            after = self.counts();
            after.0 >= before.0 + more
        });
        (after.1 - before.1) as f64 / (after.0 - before.0) as f64
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        for end in &mut self.ends {
            let _ = end.kill();
            let _ = end.wait();
        }
    }
}

#[test]
fn the_rules_of_a_file_choose_and_the_first_that_matches_decides() {
    needs_root!();
    let pair = clean_pair();
    let attached = Attached::begin(
        &pair,
        "[[rule]]\nmode = \"leave-alone\"\nremote-ports = \"7110-7112\"\n\
         [[rule]]\npeers = \"10.77.0.0/24\"\ndirection = \"connect\"\nthin = \"always\"\n",
    );
    let (alone, bundled) = (Stream::begin(&pair, 7111), Stream::begin(&pair, 7113));
    bundled.bundles(50);
    assert_eq!(alone.flow(), None);
    drop((alone, bundled));
    assert_eq!(attached.end()["connections"], 1);
}

/// Two nested cgroups, and a script that runs pillion-lab in the inner one.
struct Nested {
    outer: PathBuf,
    script: TempDir,
}

impl Nested {
    fn create() -> Self {
        let name = format!("rules-{}", std::process::id());
        let outer = pillion_bpf::cgroup2_mount().unwrap().join(name);
        let inner = outer.join("inner");
        fs::create_dir_all(&inner).unwrap();
        let script = tempfile::tempdir().unwrap();
        let door = inner.join("cgroup.procs");
        let text = format!(
            "#!/bin/sh\necho 0 > {} && exec {PILLION_LAB} \"$@\"\n",
            door.display()
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

impl Drop for Nested {
    fn drop(&mut self) {
        // The cgroup is busy until its killed process is gone.
        eventually("the cgroups are empty", || {
            let _ = fs::remove_dir(self.outer.join("inner"));
            fs::remove_dir(&self.outer).is_ok()
        });
    }
}

#[test]
fn a_cgroup_covers_the_connections_of_those_below_it() {
    needs_root!();
    let pair = clean_pair();
    let nested = Nested::create();
    let path = nested.outer.file_name().unwrap().to_str().unwrap();
    for cgroup in [path.to_owned(), format!("/{path}/inner")] {
        let rule = format!("[[rule]]\nthin = \"always\"\ncgroup = \"{cgroup}\"\n");
        let attached = Attached::begin(&pair, &rule);
        let outside = Stream::begin(&pair, 7151);
        let inside = Stream::begin_by(&pair, 7152, &nested.program());
        inside.bundles(20);
        assert_eq!(outside.flow(), None);
        drop((outside, inside));
        assert_eq!(attached.end()["connections"], 1);
    }
}

#[test]
fn a_reload_changes_the_options_of_a_running_stream_and_keeps_its_counters() {
    needs_root!();
    let pair = clean_pair();
    let rules = |limit| format!("[[rule]]\nports = 7121\nthin = \"always\"\nmax-packets = {limit}");
    let mut attached = Attached::begin(&pair, &rules(1));
    let stream = Stream::begin(&pair, 7121);
    let one = stream.bundles(100);
    let before = stream.counts();
    let said = attached.reload(&rules(3));
    assert_eq!(said, "pillion: reloaded FILE: 1 rule; 1 connection covered");
    let three = stream.bundles(100);
    let after = stream.counts();
    assert!(after.0 >= before.0 + 100, "{before:?} {after:?}");
    assert!(three > one * 1.5, "{one} and {three} bytes in a bundle");
    drop(stream);
    assert_eq!(attached.end()["connections"], 1);
}

#[test]
fn a_reload_says_which_changed_keys_take_a_new_start() {
    needs_root!();
    let pair = clean_pair();
    let rules = |telling: &str| format!("{telling}[[rule]]\nports = 7171\n");
    let mut attached = Attached::begin(&pair, &rules("totals-every = 3600\n"));
    let reloaded = "pillion: reloaded FILE: 1 rule; 0 connections covered";
    let of = |keys: &str| {
        format!("pillion: changes of {keys} take a new start; until then all is told as before")
    };
    for (telling, changed) in [
        ("totals-every = 3600\n", None),
        // The command line takes precedence over this key.
        ("totals-every = 3600\nstats = \"/nonexistent\"\n", None),
        ("totals-every = 60\n", Some("`totals-every`")),
        (
            "metrics = \"127.0.0.1:9273\"\n",
            Some("`metrics`, `totals-every`"),
        ),
    ] {
        assert_eq!(attached.reload(&rules(telling)), reloaded);
        if let Some(keys) = changed {
            assert_eq!(attached.line(), of(keys));
        }
    }
    attached.end();
}

#[test]
fn a_reload_lets_go_of_what_is_no_longer_covered_and_adopts_what_is() {
    needs_root!();
    let pair = clean_pair();
    let rules = |port| format!("[[rule]]\nthin = \"always\"\nports = {port}\n");
    let mut attached = Attached::begin(&pair, &rules(7131));
    let (first, second) = (Stream::begin(&pair, 7131), Stream::begin(&pair, 7132));
    first.bundles(20);
    assert_eq!(second.flow(), None);
    let said = attached.reload(&rules(7132));
    assert_eq!(said, "pillion: reloaded FILE: 1 rule; 1 connection covered");
    assert_eq!(first.flow(), None);
    second.bundles(20);
    drop((first, second));
    assert_eq!(attached.end()["connections"], 2);
}

#[test]
fn a_reload_sets_companions_on_a_running_stream_bundled_or_not() {
    needs_root!();
    let pair = clean_pair();
    let rules = |how: &str| format!("[[rule]]\nports = \"7161-7162\"\n{how}");
    let mut attached = Attached::begin(&pair, &rules("thin = \"always\"\n"));
    let stream = Stream::begin(&pair, 7161);
    stream.bundles(20);
    assert_eq!(stream.flow().unwrap()["companions"], Value::Null);
    let companions = "linear-timeouts = true\nrto-min = 120\ncongestion = \"reno\"\n";
    let said = attached.reload(&rules(companions));
    assert_eq!(said, "pillion: reloaded FILE: 1 rule; 1 connection covered");
    let expected = json!({
        "linear_timeouts": true,
        "rto_min_us": 120_000,
        "congestion": "reno",
    });
    assert_eq!(stream.flow().unwrap()["companions"], expected);
    assert!(stdout(&pillion(&["flows"])).contains("linear-timeouts rto-min=120 congestion=reno"));
    let said = attached.reload(&rules("mode = \"companions\"\nuser-timeout = 30000\n"));
    assert_eq!(said, "pillion: reloaded FILE: 1 rule; 1 connection covered");
    assert_eq!(stream.flow(), None, "no longer bundled");
    drop(stream);
    let stats = attached.end();
    assert_eq!(stats["companions_set"]["user_timeout"], 1);
    assert_eq!(stats["companions_set"]["linear_timeouts"], 1);
    assert_eq!(stats["companions_refused"], Value::Null);
}

#[test]
fn a_mistake_at_reload_leaves_the_old_rules_in_force_and_is_told() {
    needs_root!();
    let pair = clean_pair();
    let mut attached = Attached::begin(&pair, "[[rule]]\nthin = \"always\"\nports = 7141\n");
    let stream = Stream::begin(&pair, 7141);
    stream.bundles(20);
    let said = attached.reload("[[rule]]\nports = 70000\nprot = 1\n");
    assert!(
        said.starts_with("FILE:2:9: `70000`; expected a port"),
        "{said}"
    );
    let said = attached.line();
    assert!(said.starts_with("FILE:3:1: unknown key `prot`; "), "{said}");
    assert_eq!(
        attached.line(),
        "pillion: FILE not reloaded: the old rules hold"
    );
    stream.bundles(20);
    let status = || {
        pillion_in(&pair.sender.namespace, &["status"])
            .output()
            .unwrap()
    };
    let out_of_date = "fails: the file of the rules was not reloaded, and the old ones hold";
    eventually("status reports the failed reload", || {
        stdout(&status()).contains(out_of_date)
    });
    assert_eq!(status().status.code(), Some(1));
    let told = stdout(&status());
    let mut of_last = told.lines().filter(|line| line.contains("last error, "));
    let last = of_last.next().unwrap_or_else(|| panic!("{told}"));
    assert!(last.contains(":2:9: `70000`"), "{told}");
    assert!(last.ends_with("not reloaded: the old rules hold"), "{told}");
    let said = attached.reload("[[rule]]\nthin = \"always\"\nports = 7141\n");
    assert!(said.starts_with("pillion: reloaded FILE"), "{said}");
    eventually("status reports success", || status().status.success());
    drop(stream);
    attached.end();
}

/// Runs `attach --config FILE --check-config` with this text as FILE. Returns status, stdout and
/// stderr.
fn check(text: &str) -> (Option<i32>, String, String) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rules.toml");
    fs::write(&file, text).unwrap();
    let name = file.to_str().unwrap();
    let output = pillion(&["attach", "--config", name, "--check-config"]);
    let told = |text: String| text.replace(name, "FILE");
    (
        output.status.code(),
        told(stdout(&output)),
        told(stderr(&output)),
    )
}

#[test]
fn check_config_says_how_many_rules_or_every_mistake() {
    let good = check("[[rule]]\nports = 1\n[[rule]]\n");
    let said = "no mistake: would bundle by 2 rules of FILE\n".to_owned();
    assert_eq!(good, (Some(0), said, String::new()));
    let (code, said, mistakes) = check("[[rule]]\nports = 0\n[[rule]]\nuid = \"root\"\n");
    assert_eq!((code, &said[..]), (Some(2), ""));
    let starts: Vec<_> = mistakes
        .lines()
        .filter_map(|line| line.split_once(": "))
        .map(|(start, _)| start)
        .collect();
    assert_eq!(starts, ["FILE:2:9", "FILE:4:7"]);
}

#[test]
fn the_example_has_no_mistake() {
    needs_root!();
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/pillion.toml");
    let output = pillion(&["attach", "--config", example, "--check-config"]);
    assert!(output.status.success(), "{}", stderr(&output));
}

#[test]
fn what_the_file_says_cannot_be_said_beside_it() {
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
fn rules_come_from_standard_input_as_well_and_once() {
    needs_root!();
    let namespace = namespace_with_loopback();
    let arguments = ["attach", "--dev", "lo", "--config", "-"];
    let mut attach = pillion_in(&namespace, &arguments)
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut rules = attach.stdin.take().unwrap();
    rules.write_all(b"[[rule]]\nports = 7001\n").unwrap();
    drop(rules);
    let mut says = BufReader::new(attach.stderr.take().unwrap()).lines();
    let mut line = || says.next().unwrap().unwrap();
    assert!(line().starts_with("pillion: bundling by 1 rule of standard input"));
    let pid = Pid::from_raw(attach.id().cast_signed());
    kill(pid, Signal::SIGHUP).unwrap();
    assert!(line().contains("standard input: only a regular file can be read again"));
    assert!(line().contains("not reloaded: the old rules hold"));
    kill(pid, Signal::SIGTERM).unwrap();
    assert!(attach.wait().unwrap().success());
}

/// Both ends call connect(), so TCP treats the connection as an accepted one.
#[test]
fn a_connection_whose_syns_crossed_was_opened_here() {
    needs_root!();
    let namespace = namespace_with_loopback();
    let folder = tempfile::tempdir().unwrap();
    let rules = folder.path().join("rules.toml");
    fs::write(&rules, "[[rule]]\ndirection = \"connect\"\n").unwrap();
    let options = ["attach", "--dev", "lo", "--config", rules.to_str().unwrap()];
    let mut attach = pillion_in(&namespace, &options);
    let mut attach = attach.stderr(Stdio::null()).spawn().unwrap();
    await_attached(attach.id());
    let connected = namespace.enter(|| {
        let socket = socket(
            AddressFamily::Inet,
            SockType::Stream,
            SockFlag::SOCK_CLOEXEC,
            None,
        );
        let socket = socket.unwrap();
        let own = SockaddrIn::new(127, 0, 0, 1, 7001);
        bind(socket.as_raw_fd(), &own).unwrap();
        retry(|| connect(socket.as_raw_fd(), &own)).expect("connect to itself");
        socket
    });
    let status = pillion_in(&namespace, &["status"]).output().unwrap();
    kill(Pid::from_raw(attach.id().cast_signed()), Signal::SIGTERM).unwrap();
    assert!(attach.wait().unwrap().success());
    assert!(
        stdout(&status).contains("covers 1 connection now"),
        "{status:?}"
    );
    drop(connected);
}
