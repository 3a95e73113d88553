//! The socket option, used by a C program that knows only the header.

use std::fs;
use std::io::Read;
use std::mem::offset_of;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;

use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{AddressFamily, SockFlag, SockProtocol, SockType, socket};
use nix::unistd::Pid;
use pillion_bpf::host::{pillion as option, socket_option};
use pillion_tests::HostPair;
use serde_json::Value;
use tempfile::TempDir;

use crate::common::*;

/// Compiles a program against the header, with all warnings as errors.
fn compile(compiler: &str, source: &Path) -> (TempDir, PathBuf) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = folder.path().join("program");
    let status = Command::new(compiler)
        .args(["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-I"])
        .arg(root.join("include"))
        .arg(source)
        .arg("-o")
        .arg(&program)
        .status();
    assert!(status.expect("a compiler").success());
    (folder, program)
}

fn example() -> (TempDir, PathBuf) {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../bpf/examples");
    compile("cc", &examples.join("switch/switch.c"))
}

/// Running example, directly or under a pillion, and the receiver of its connection.
struct Example {
    program: Child,
    received: JoinHandle<String>,
    started: Receiver<()>,
}

impl Example {
    fn start(pair: &HostPair, program: &Path, under: &[&str]) -> Self {
        let bind = || TcpListener::bind("10.77.0.2:7001");
        let listener = pair.receiver.namespace.enter(bind).unwrap().unwrap();
        let (notify, started) = channel();
        let received = std::thread::spawn(move || {
            let mut text = vec![0];
            let (mut stream, _) = listener.accept().unwrap();
            stream.read_exact(&mut text).unwrap();
            let _ = notify.send(());
            stream.read_to_end(&mut text).unwrap();
            String::from_utf8(text).unwrap()
        });
        let mut arguments = under.to_vec();
        arguments.extend([program.to_str().unwrap(), "10.77.0.2", "7001"]);
        let mut command = pair.sender.namespace.command(arguments[0]);
        let command = command.args(&arguments[1..]);
        let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        Self {
            program: command.spawn().unwrap(),
            received,
            started,
        }
    }

    /// Stops the program after its first byte and runs `something` while its connection stays.
    fn while_stopped<T>(&self, something: impl FnOnce() -> T) -> T {
        let pid = Pid::from_raw(self.program.id().cast_signed());
        self.started.recv().expect("a first byte");
        kill(pid, Signal::SIGSTOP).unwrap();
        let _stopped = ContinueOnDrop(pid);
        something()
    }

    fn finish(self) -> Output {
        let output = self.program.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        let received = self.received.join().unwrap();
        assert!(received.ends_with("line 49\n"), "{received}");
        output
    }
}

/// Continues a stopped process when dropped, so that a failing test does not wait for it forever.
struct ContinueOnDrop(Pid);

impl Drop for ContinueOnDrop {
    fn drop(&mut self) {
        let _ = kill(self.0, Signal::SIGCONT);
    }
}

/// Runs the example to its end, directly or under a pillion.
fn run(pair: &HostPair, program: &Path, under: &[&str]) -> Output {
    Example::start(pair, program, under).finish()
}

/// Returns how many of the fifty lines were bundled, according to the example.
fn bundled(output: &Output) -> u64 {
    let text = stdout(output);
    let number = |index| {
        text.split(' ')
            .nth(index)
            .and_then(|n: &str| n.parse().ok())
    };
    assert_eq!(number(0), Some(50), "{text}");
    number(2).expect("a number")
}

#[test]
fn unprivileged_program_enables_bundling_on_request() {
    needs_root!();
    let pair = clean_pair();
    let (_folder, program) = example();
    let under = |options: &[&'static str]| {
        let run = [PILLION, "run", "--user", "nobody"];
        [&run[..], options, &["--"]].concat()
    };
    let allowed = run(&pair, &program, &under(&["--on-request"]));
    assert!(bundled(&allowed) > 20, "{allowed:?}");
    let others = ["--on-request", "--quiet"];
    let quiet = stderr(&run(&pair, &program, &under(&others)));
    assert_eq!(quiet, "", "nothing is logged");

    let without = run(&pair, &program, &[]);
    assert_eq!(stderr(&without), "no pillion is at work here\n");
    assert_eq!(stdout(&without), "");
}

#[test]
fn attach_without_rules_bundles_only_requesting_sockets() {
    needs_root!();
    let pair = clean_pair();
    let (folder, program) = example();
    let stats = folder.path().join("stats");
    let arguments = ["attach", "--stats", stats.to_str().unwrap()];
    let mut attach = pillion_in(&pair.sender.namespace, &arguments)
        .spawn()
        .unwrap();
    await_attached(attach.id());
    let example_run = Example::start(&pair, &program, &[]);
    let requested_by = example_run.while_stopped(|| {
        let mut requested_by = Value::Null;
        eventually("the connection is listed", || {
            let flows = pillion(&["flows", "--json"]);
            let flows: Vec<Value> = serde_json::from_slice(&flows.stdout).expect("JSON");
            let mut flows = flows.iter();
            let flow = flows.find(|flow| flow["peer"] == "10.77.0.2:7001");
            requested_by = flow.map_or(Value::Null, |flow| flow["requested_by"].clone());
            flow.is_some()
        });
        requested_by
    });
    let example_run = example_run.finish();
    assert_eq!(requested_by, "application");
    send_signal(&attach, Signal::SIGTERM);
    assert!(attach.wait().unwrap().success());
    let stats = read_json(&stats);
    assert_eq!(stats["connections"], 1);
    assert_eq!(stats["outcomes"]["bundled"], bundled(&example_run));
}

#[test]
fn traffic_streams_can_request_and_decline_bundling() {
    needs_root!();
    let pair = clean_pair();
    let folder = tempfile::tempdir().unwrap();
    let stats = folder.path().join("stats");
    let bundled = |options: &[&str], switch: &[&str]| {
        let mut receiver = receive(&pair, 7002, 1);
        let run = ["run", "--stats", stats.to_str().unwrap()];
        let send = [
            "--",
            PILLION_LAB,
            "traffic",
            "send",
            "--to",
            "10.77.0.2:7002",
        ];
        let writes = ["--itt", "15ms", "--messages", "50"];
        let arguments = [&run[..], options, &send, &writes, switch].concat();
        let sent = pillion_in(&pair.sender.namespace, &arguments).output();
        assert!(sent.as_ref().unwrap().status.success(), "{sent:?}");
        assert!(receiver.wait().unwrap().success());
        let bundled = &read_json(&stats)["outcomes"]["bundled"];
        bundled.as_u64().unwrap_or(0)
    };
    let requested = bundled(
        &["--on-request"],
        &["--pillion", "on", "--max-packets", "1"],
    );
    assert!(requested > 20, "{requested} of 50");
    assert!(bundled(&[], &[]) > 20, "by rules");
    assert_eq!(bundled(&[], &["--pillion", "off"]), 0);
}

#[test]
fn c_header_matches_rust_definitions() {
    macro_rules! offsets {
        ($($field:ident)+) => {
            [$((
                concat!("offsetof(struct pillion_stats, ", stringify!($field), ")"),
                offset_of!(option::Stats, $field),
            )),+]
        };
    }
    let offsets = offsets! {
        segments bundled new_bytes redundant_bytes hidden_losses repaired_bytes reactions time_saved_us
        state last rule in_flight level max_packets max_bytes mode
    };
    let size = ("sizeof(struct pillion_stats)", size_of::<option::Stats>());
    let options = [
        ("PILLION_BUNDLE", option::BUNDLE),
        ("PILLION_MAX_PACKETS", option::MAX_PACKETS),
        ("PILLION_MAX_BYTES", option::MAX_BYTES),
        ("PILLION_MODE", option::MODE),
        ("PILLION_STATS", option::STATS),
        ("PILLION_ADAPTIVE", option::ADAPTIVE),
        ("PILLION_WAIT_FOR_LOSS", option::WAIT_FOR_LOSS),
        ("PILLION_REACT_CWR", option::REACT_CWR),
    ];
    let sources = [
        ("PILLION_OFF", option::OFF),
        ("PILLION_BY_RULE", option::BY_RULE),
        ("PILLION_BY_APPLICATION", option::BY_APPLICATION),
        ("PILLION_REFUSED", option::REFUSED),
    ];
    let all = offsets.into_iter().chain([size]);
    let all = all.chain(options.map(|(name, number)| (name, number as usize)));
    let all = all.chain(sources.map(|(name, number)| (name, number as usize)));
    let (mut prints, mut expected) = (String::new(), String::new());
    for (name, number) in all {
        prints += &format!("printf(\"%s %d\\n\", \"{name}\", (int)({name}));\n");
        expected += &format!("{name} {number}\n");
    }
    let source = format!(
        "#include <pillion.h>\n#include <stddef.h>\n#include <stdio.h>\n\
         int main(void)\n{{\n{prints}return 0;\n}}\n"
    );
    let folder = tempfile::tempdir().unwrap();
    for (compiler, name) in [("cc", "print.c"), ("c++", "print.cc")] {
        let file = folder.path().join(name);
        fs::write(&file, &source).unwrap();
        let (_folder, program) = compile(compiler, &file);
        let text = Command::new(program).output().unwrap();
        assert_eq!(stdout(&text), expected, "{compiler}");
    }
}

/// A netlink socket's list of groups returns the length that would be needed.
#[test]
fn oversized_getsockopt_result_is_unchanged_by_attach() {
    needs_root!();
    let namespace = namespace_with_loopback();
    let answer = || {
        let flags = SockFlag::SOCK_CLOEXEC;
        let protocol = SockProtocol::NetlinkRoute;
        let socket = socket(AddressFamily::Netlink, SockType::Raw, flags, protocol).unwrap();
        let group = (libc::SOL_NETLINK, libc::NETLINK_ADD_MEMBERSHIP);
        let joined = socket_option::set(&socket, group, &33_u32);
        let groups = (libc::SOL_NETLINK, libc::NETLINK_LIST_MEMBERSHIPS);
        let length = socket_option::read(&socket, groups, &mut [0; 4]);
        (joined, length.map(|length| length > 4))
    };
    let without = namespace.enter(answer).unwrap();
    assert_eq!(without, (Ok(()), Ok(true)));
    let mut attach = pillion_in(&namespace, &["attach", "--all", "--dev", "lo"]);
    let mut attach = attach.stderr(Stdio::null()).spawn().unwrap();
    await_attached(attach.id());
    let with = namespace.enter(answer).unwrap();
    send_signal(&attach, Signal::SIGTERM);
    attach.wait().unwrap();
    assert_eq!(with, without);
}
