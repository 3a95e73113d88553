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
    begun: Receiver<()>,
}

impl Example {
    fn start(pair: &HostPair, program: &Path, under: &[&str]) -> Self {
        let bind = || TcpListener::bind("10.77.0.2:7001");
        let listener = pair.receiver.namespace.enter(bind).unwrap().unwrap();
        let (tell, begun) = channel();
        let received = std::thread::spawn(move || {
            let mut text = vec![0];
            let (mut stream, _) = listener.accept().unwrap();
            stream.read_exact(&mut text).unwrap();
            let _ = tell.send(());
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
            begun,
        }
    }

    /// Stops the program after its first byte and runs `something` while its connection stays.
    fn held<T>(&self, something: impl FnOnce() -> T) -> T {
        let pid = Pid::from_raw(self.program.id().cast_signed());
        self.begun.recv().expect("a first byte");
        kill(pid, Signal::SIGSTOP).unwrap();
        let _stopped = Stopped(pid);
        something()
    }

    fn end(self) -> Output {
        let output = self.program.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        let received = self.received.join().unwrap();
        assert!(received.ends_with("line 49\n"), "{received}");
        output
    }
}

/// Continues a stopped process when dropped, so that a failing test does not wait for it forever.
struct Stopped(Pid);

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = kill(self.0, Signal::SIGCONT);
    }
}

/// Runs the example to its end, directly or under a pillion.
fn run(pair: &HostPair, program: &Path, under: &[&str]) -> Output {
    Example::start(pair, program, under).end()
}

/// Returns how many of the fifty lines were bundled, according to the example.
fn bundled(output: &Output) -> u64 {
    let said = stdout(output);
    let number = |place| {
        said.split(' ')
            .nth(place)
            .and_then(|n: &str| n.parse().ok())
    };
    assert_eq!(number(0), Some(50), "{said}");
    number(2).expect("a number")
}

#[test]
fn an_unprivileged_program_switches_bundling_on_where_it_may() {
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

    let alone = run(&pair, &program, &[]);
    assert_eq!(stderr(&alone), "no pillion is at work here\n");
    assert_eq!(stdout(&alone), "");
}

#[test]
fn attached_without_a_choice_only_what_asks_is_bundled() {
    needs_root!();
    let pair = clean_pair();
    let (folder, program) = example();
    let stats = folder.path().join("stats");
    let arguments = ["attach", "--stats", stats.to_str().unwrap()];
    let mut attach = pillion_in(&pair.sender.namespace, &arguments)
        .spawn()
        .unwrap();
    await_attached(attach.id());
    let asking = Example::start(&pair, &program, &[]);
    let wanted_by = asking.held(|| {
        let mut wanted_by = Value::Null;
        eventually("the connection is listed", || {
            let flows = pillion(&["flows", "--json"]);
            let flows: Vec<Value> = serde_json::from_slice(&flows.stdout).expect("JSON");
            let mut flows = flows.iter();
            let flow = flows.find(|flow| flow["peer"] == "10.77.0.2:7001");
            wanted_by = flow.map_or(Value::Null, |flow| flow["wanted_by"].clone());
            flow.is_some()
        });
        wanted_by
    });
    let asking = asking.end();
    assert_eq!(wanted_by, "application");
    kill(Pid::from_raw(attach.id().cast_signed()), Signal::SIGTERM).unwrap();
    assert!(attach.wait().unwrap().success());
    let stats = read_json(&stats);
    assert_eq!(stats["connections"], 1);
    assert_eq!(stats["outcomes"]["bundled"], bundled(&asking));
}

#[test]
fn the_traffics_streams_ask_for_bundling_and_decline_it() {
    needs_root!();
    let pair = clean_pair();
    let folder = tempfile::tempdir().unwrap();
    let stats = folder.path().join("stats");
    let bundled = |how: &[&str], switch: &[&str]| {
        let listen = [
            "traffic",
            "receive",
            "--listen",
            "10.77.0.2:7002",
            "--streams",
            "1",
        ];
        let mut receiver = lab_in(&pair.receiver.namespace, &listen).spawn().unwrap();
        await_listening(&pair.receiver.namespace, 7002);
        let run = ["run", "--stats", stats.to_str().unwrap()];
        let send = [
            "--",
            PILLION_LAB,
            "traffic",
            "send",
            "--to",
            "10.77.0.2:7002",
        ];
        let what = ["--itt", "15", "--messages", "50"];
        let arguments = [&run[..], how, &send, &what, switch].concat();
        let sent = pillion_in(&pair.sender.namespace, &arguments).output();
        assert!(sent.as_ref().unwrap().status.success(), "{sent:?}");
        assert!(receiver.wait().unwrap().success());
        let bundled = &read_json(&stats)["outcomes"]["bundled"];
        bundled.as_u64().unwrap_or(0)
    };
    let asked = bundled(
        &["--on-request"],
        &["--pillion", "on", "--max-packets", "1"],
    );
    assert!(asked > 20, "{asked} of 50");
    assert!(bundled(&[], &[]) > 20, "by rules");
    assert_eq!(bundled(&[], &["--pillion", "off"]), 0);
}

#[test]
fn the_header_says_the_same_to_c_and_to_rust() {
    macro_rules! offsets {
        ($($field:ident)+) => {
            [$((
                concat!("offsetof(struct pillion_stats, ", stringify!($field), ")"),
                offset_of!(option::Stats, $field),
            )),+]
        };
    }
    let offsets = offsets! {
        segments bundled new_bytes redundant_bytes hidden_losses repaired_bytes reactions saved_us
        standing last rule in_flight level max_packets max_bytes mode
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
    let standings = [
        ("PILLION_OFF", option::OFF),
        ("PILLION_BY_RULE", option::BY_RULE),
        ("PILLION_BY_APPLICATION", option::BY_APPLICATION),
        ("PILLION_REFUSED", option::REFUSED),
    ];
    let all = offsets.into_iter().chain([size]);
    let all = all.chain(options.map(|(name, number)| (name, number as usize)));
    let all = all.chain(standings.map(|(name, number)| (name, number as usize)));
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
        let said = Command::new(program).output().unwrap();
        assert_eq!(stdout(&said), expected, "{compiler}");
    }
}

/// A netlink socket's list of groups returns the length that would be needed.
#[test]
fn an_answer_of_the_kernels_that_is_longer_than_there_is_room_for_is_as_without_pillion() {
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
    kill(Pid::from_raw(attach.id().cast_signed()), Signal::SIGTERM).unwrap();
    attach.wait().unwrap();
    assert_eq!(with, without);
}
