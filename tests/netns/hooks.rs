//! Hooks: tcx and clsact next to foreign programs, and complete removal.

use std::fs;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use caps::Capability;
use nix::net::if_::if_nametoindex;
use nix::sys::signal::{Signal, kill};
use pillion_tests::{FirstProgram, SegmentPadder, detach_link};
use serde_json::Value;

use crate::common::*;
use crate::devices::{Attach, Hosts};
use crate::service::status;

/// Returns qdiscs and filters of a device, as `tc` shows them.
pub fn tc_state(hosts: &Hosts, device: &str) -> String {
    let show = |what: &str| {
        let arguments = what.split(' ').chain(["dev", device]);
        stdout(&hosts.near.command("tc").args(arguments).output().unwrap())
    };
    let [mut all, ingress, egress] =
        ["qdisc show", "filter show ingress", "filter show egress"].map(show);
    all.push_str(&ingress);
    all.push_str(&egress);
    all
}

fn tc(hosts: &Hosts, arguments: &str) {
    let mut command = hosts.near.command("tc");
    let status = command.args(arguments.split(' ')).status().unwrap();
    assert!(status.success(), "tc {arguments}");
}

#[test]
fn clsact_bundles_like_tcx_and_is_removed_at_exit() {
    needs_root!();
    let hosts = Hosts::create();
    hosts.join("v0");
    hosts.ip("link set v0 up");
    let before = tc_state(&hosts, "v0");
    let attach = Attach::start(&hosts, &["--hook", "clsact"]);
    let during = tc_state(&hosts, "v0");
    assert!(during.contains("pillion_egress:["), "{during}");
    assert!(during.contains("pillion_dsack:["), "{during}");
    hosts.send_over("v0", 50);
    assert_eq!(attach.stop()["new_bytes"], 5000);
    assert_eq!(tc_state(&hosts, "v0"), before);
}

#[test]
fn foreign_clsact_and_filters_stay_and_run_first() {
    needs_root!();
    let hosts = Hosts::create();
    hosts.join("v0");
    hosts.ip("link set v0 up");
    tc(&hosts, "qdisc add dev v0 clsact");
    let no_match = "u32 match u32 0xffffffff 0xffffffff at 0 flowid 1:1";
    tc(
        &hosts,
        &format!("filter add dev v0 egress protocol all prio 9 {no_match}"),
    );
    let before = tc_state(&hosts, "v0");
    let attach = Attach::start(&hosts, &["--hook", "clsact"]);
    let during = tc_state(&hosts, "v0");
    let (theirs, ours) = (during.rfind("u32 chain"), during.rfind("pillion_egress:["));
    assert!(theirs.is_some() && theirs < ours, "{during}");
    hosts.send_over("v0", 50);
    assert_eq!(attach.stop()["new_bytes"], 5000);
    assert_eq!(tc_state(&hosts, "v0"), before);
}

#[test]
fn foreign_filters_added_later_preserve_clsact() {
    needs_root!();
    let hosts = Hosts::create();
    let attach = Attach::start(&hosts, &["--hook", "clsact", "--dev", "a0"]);
    let no_match = "u32 match u32 0xffffffff 0xffffffff at 0 flowid 1:1";
    tc(
        &hosts,
        &format!("filter add dev a0 ingress protocol all prio 9 {no_match}"),
    );
    attach.stop();
    let after = tc_state(&hosts, "a0");
    assert!(after.contains("u32"), "{after}");
    assert!(!after.contains("pillion"), "{after}");
}

#[test]
fn filter_that_replaced_removed_one_stays() {
    needs_root!();
    let hosts = Hosts::create();
    let first = Attach::start(&hosts, &["--hook", "clsact", "--dev", "a0"]);
    tc(&hosts, "qdisc delete dev a0 clsact");
    let second = Attach::start(&hosts, &["--hook", "clsact", "--dev", "a0"]);
    // By now the first process may have restored its own filter.
    first.stop();
    let after = tc_state(&hosts, "a0");
    for program in ["pillion_egress:[", "pillion_dsack:["] {
        assert_eq!(after.matches(program).count(), 1, "{after}");
    }
    second.stop();
    assert!(!tc_state(&hosts, "a0").contains("clsact"));
}

#[test]
fn killed_process_leaves_no_filter() {
    needs_root!();
    let hosts = Hosts::create();
    let attach = Attach::start(&hosts, &["--hook", "clsact", "--dev", "a0"]);
    assert!(tc_state(&hosts, "a0").contains("pillion"));
    send_signal(&attach.process, Signal::SIGKILL);
    eventually("the filters are removed", || {
        !tc_state(&hosts, "a0").contains("pillion")
    });
}

/// A later `kill -9` would leave filters.
#[test]
fn attach_stops_when_cleanup_helper_is_killed() {
    needs_root!();
    let hosts = Hosts::create();
    let before = tc_state(&hosts, "a0");
    for hook in ["clsact", "tcx"] {
        let mut attach = Attach::start(&hosts, &["--hook", hook, "--dev", "a0"]);
        kill(cleanup_helper(attach.process.id()), Signal::SIGKILL).unwrap();
        attach.wait_for_line(
            "error: the cleanup helper (pillion-cleanup) was killed, so that a killed pillion could \
             leave programs attached: pillion stops; start it again",
        );
        assert_eq!(attach.process.wait().unwrap().code(), Some(1));
        assert_eq!(tc_state(&hosts, "a0"), before);
    }
}

#[test]
fn cleanup_helper_has_only_capabilities_that_it_needs() {
    needs_root!();
    let hosts = Hosts::create();
    let far = hosts.far_netns().replace("netns ", "");
    let filters = [Capability::CAP_BPF, Capability::CAP_NET_ADMIN].as_slice();
    let namespaces = [Capability::CAP_SYS_ADMIN, Capability::CAP_SYS_PTRACE];
    let namespaces = [filters, &namespaces].concat();
    for (options, expected) in [
        (&["--hook", "tcx"][..], &[][..]),
        (&["--hook", "tcx", "--dev", "lo", "--netns", &far], &[]),
        (&["--hook", "clsact"], filters),
        (
            &["--hook", "clsact", "--dev", "lo", "--netns", &far],
            &namespaces,
        ),
    ] {
        let attach = Attach::start(&hosts, options);
        let helper = cleanup_helper(attach.process.id());
        let mask = expected.iter().map(caps::Capability::bitmask).sum::<u64>();
        let expected = ["CapPrm", "CapEff"].map(|set| format!("{set}:\t{mask:016x}\n"));
        // The helper drops its capabilities once it is scheduled.
        eventually("the helper has these capabilities only", || {
            let status = fs::read_to_string(format!("/proc/{helper}/status")).unwrap();
            expected.iter().all(|line| status.contains(line))
        });
        attach.stop();
    }
}

#[test]
fn held_device_lock_delays_attach_for_limited_time() {
    needs_root!();
    let hosts = Hosts::create();
    let name = SocketAddr::from_abstract_name("pillion-clsact").unwrap();
    let bind = move || UnixDatagram::bind_addr(&name);
    let lock = hosts.near.enter(bind).unwrap().unwrap();
    let started = Instant::now();
    let attach = Attach::start(&hosts, &["--hook", "clsact", "--dev", "a0"]);
    let waited = started.elapsed();
    assert!(waited >= Duration::from_secs(2), "{waited:?}");
    assert!(tc_state(&hosts, "a0").contains("pillion_egress:["));
    attach.stop();
    assert!(!tc_state(&hosts, "a0").contains("clsact"));
    drop(lock);
}

#[test]
fn held_device_lock_is_waited_for_only_once() {
    needs_root!();
    let hosts = Hosts::create();
    let name = SocketAddr::from_abstract_name("pillion-clsact").unwrap();
    let bind = move || UnixDatagram::bind_addr(&name);
    let lock = hosts.near.enter(bind).unwrap().unwrap();
    for n in 0..4 {
        for command in [
            format!("link add d{n} up type veth peer name e{n}"),
            format!("link set e{n} up"),
        ] {
            let mut ip = hosts.near.command("ip");
            assert!(ip.args(command.split(' ')).status().unwrap().success());
        }
    }
    let started = Instant::now();
    Attach::start(&hosts, &["--hook", "clsact"]).stop();
    // Two seconds for each of ten devices, at start and stop, would be forty.
    let took = started.elapsed();
    assert!(took < Duration::from_secs(20), "{took:?}");
    drop(lock);
}

#[test]
fn clsact_with_ingress_qdisc_is_reported_once_and_retried() {
    needs_root!();
    let hosts = Hosts::create();
    tc(&hosts, "qdisc add dev a0 ingress");
    let before = tc_state(&hosts, "a0");
    let arguments = ["run", "--hook", "clsact", "--dev", "a0", "--", "true"];
    let refused = pillion_in(&hosts.near, &arguments).output().unwrap();
    assert_eq!(refused.status.code(), Some(1));
    assert!(stderr(&refused).contains("a0 has the queueing discipline `ingress`"));
    let mut attach = Attach::start(&hosts, &["--hook", "clsact"]);
    let log = attach.next_line();
    assert!(
        log.contains("a0 has the queueing discipline `ingress`"),
        "{log}"
    );
    // pillion retries after one second and after two more.
    thread::sleep(Duration::from_millis(3500));
    assert_eq!(tc_state(&hosts, "a0"), before);
    tc(&hosts, "qdisc delete dev a0 ingress");
    attach.expect_line("attached to a0");
    assert!(tc_state(&hosts, "a0").contains("pillion_egress:["));
    attach.stop();
}

#[test]
fn removed_filters_are_restored() {
    needs_root!();
    let hosts = Hosts::create();
    let mut attach = Attach::start(&hosts, &["--hook", "clsact"]);
    tc(&hosts, "qdisc delete dev a0 clsact");
    attach.expect_line("warning: a0: pillion\'s filters were removed; retrying");
    attach.expect_line("attached to a0");
    assert!(tc_state(&hosts, "a0").contains("pillion_egress:["));
    tc(&hosts, "filter delete dev a1 egress");
    attach.expect_line("warning: a1: pillion\'s filters were removed; retrying");
    attach.expect_line("attached to a1");
    let after = tc_state(&hosts, "a1");
    for program in ["pillion_egress:[", "pillion_dsack:["] {
        assert_eq!(after.matches(program).count(), 1, "{after}");
    }
    attach.stop();
    assert!(!tc_state(&hosts, "a1").contains("clsact"));
}

#[test]
fn detached_programs_are_attached_again() {
    needs_root!();
    let hosts = Hosts::create();
    hosts.join("v0");
    hosts.ip("link set v0 up");
    let mut attach = Attach::start(&hosts, &["--hook", "tcx"]);
    let before = attach.link_ids();
    let mut detached = before.clone();
    detached.retain(|link| detach_link(*link));
    assert!(detached.len() > 5, "{detached:?} of {before:?}");
    // Links are detached one by one; pillion may check in between.
    attach.wait_for_line("warning: pillion\'s programs were detached from the cgroup; retrying");
    attach.wait_for_line("attached to the cgroup again");
    let all_restored = || {
        let links = attach.link_ids();
        links.len() == before.len() && detached.iter().all(|link| !links.contains(link))
    };
    eventually("all links are back", all_restored);
    hosts.send_over("v0", 50);
    assert_eq!(attach.stop()["new_bytes"], 5000);
}

#[test]
fn last_process_removes_own_clsact() {
    needs_root!();
    let hosts = Hosts::create();
    let before = tc_state(&hosts, "a0");
    let start = || Attach::start(&hosts, &["--hook", "clsact", "--dev", "a0"]);
    let [first, second] = [start(), start()];
    first.stop();
    assert!(tc_state(&hosts, "a0").contains("pillion_egress:["));
    second.stop();
    assert_eq!(tc_state(&hosts, "a0"), before);
}

/// Queries a filter of the device in a loop, as filter-management tools do, until `alive` is
/// dropped.
fn query_filters(device: u32, alive: &Weak<()>) {
    let hook = libbpf_sys::bpf_tc_hook {
        sz: size_of::<libbpf_sys::bpf_tc_hook>() as _,
        ifindex: device.cast_signed(),
        attach_point: libbpf_sys::BPF_TC_INGRESS,
        ..Default::default()
    };
    while alive.strong_count() > 0 {
        let mut options = libbpf_sys::bpf_tc_opts {
            sz: size_of::<libbpf_sys::bpf_tc_opts>() as _,
            handle: 1,
            priority: 1,
            ..Default::default()
        };
        // SAFETY: both live across the call.
        unsafe { libbpf_sys::bpf_tc_query(&raw const hook, &raw mut options) };
    }
}

#[test]
fn clsact_is_removed_while_others_query_filters() {
    needs_root!();
    let hosts = Hosts::create();
    let before = tc_state(&hosts, "a0");
    // libbpf logs each missing filter, so its output is off.
    // SAFETY: libbpf exchanges the callback atomically.
    unsafe { libbpf_sys::libbpf_set_print(None) };
    let index = || if_nametoindex("a0").unwrap();
    let device = hosts.near.enter(index).unwrap();
    thread::scope(|scope| {
        let alive = Arc::new(());
        for _ in 0..2 {
            let alive = Arc::downgrade(&alive);
            let query = || hosts.near.enter(move || query_filters(device, &alive));
            scope.spawn(query);
        }
        for _ in 0..12 {
            Attach::start(&hosts, &["--hook", "clsact", "--dev", "a0"]).stop();
            assert_eq!(tc_state(&hosts, "a0"), before);
        }
    });
}

#[test]
fn killed_processes_leave_no_own_clsact() {
    needs_root!();
    let hosts = Hosts::create();
    let before = tc_state(&hosts, "a0");
    let start = || Attach::start(&hosts, &["--hook", "clsact", "--dev", "a0"]);
    let mut processes = [start(), start()];
    for attach in &mut processes {
        attach.process.kill().unwrap();
        attach.process.wait().unwrap();
    }
    eventually("the qdiscs are as before", || {
        tc_state(&hosts, "a0") == before
    });
    // A foreign clsact stays.
    tc(&hosts, "qdisc add dev a0 clsact");
    let before = tc_state(&hosts, "a0");
    let mut attach = start();
    attach.process.kill().unwrap();
    attach.process.wait().unwrap();
    eventually("the qdiscs are as before", || {
        tc_state(&hosts, "a0") == before
    });
}

/// Stopping processes may remove the qdisc if another process never releases the device lock. Here
/// it is removed fifty times a second until one second after the start.
#[test]
fn clsact_removed_during_start_is_created_again() {
    needs_root!();
    let hosts = Hosts::create();
    let ended = AtomicBool::new(false);
    let attach = thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                let mut tc = hosts.near.command("tc");
                tc.args(["qdisc", "delete", "dev", "a0", "clsact"]);
                let _ = tc.stderr(Stdio::null()).status();
                thread::sleep(Duration::from_millis(15));
            }
        });
        let attach = Attach::start(&hosts, &["--hook", "clsact"]);
        thread::sleep(Duration::from_secs(1));
        ended.store(true, Ordering::Relaxed);
        attach
    });
    eventually("each filter exists once", || {
        let tc_state = tc_state(&hosts, "a0");
        ["pillion_egress:[", "pillion_dsack:["]
            .iter()
            .all(|program| tc_state.matches(program).count() == 1)
    });
    attach.stop();
    assert!(!tc_state(&hosts, "a0").contains("clsact"));
}

#[test]
fn full_tcx_device_is_reported_with_remedy() {
    needs_root!();
    let hosts = Hosts::create();
    let fill = || {
        (0..63)
            .map(|_| SegmentPadder::start("a0", 0))
            .collect::<Vec<_>>()
    };
    let _full = hosts.near.enter(fill).unwrap();
    let attach = |hook| {
        let arguments = ["attach", "--dev", "a0", "--hook", hook];
        let mut attach = pillion_in(&hosts.near, &arguments);
        attach.stderr(Stdio::piped()).spawn().unwrap()
    };
    let output = attach("tcx").wait_with_output().unwrap();
    let message = stderr(&output);
    assert!(
        message.contains(
            "pillion: error: a0: the kernel's limit of 63 programs for each direction is reached; \
             detach one (`bpftool net` lists them), leave the device out with --dev, or use --hook \
             clsact"
        ),
        "{message}"
    );
    assert_eq!(output.status.code(), Some(1));
    Attach::start(&hosts, &["--hook", "clsact", "--dev", "a0"]).stop();
}

/// A connection over the device `v0`, and the messages sent on it.
struct Stream {
    near: TcpStream,
    _far: TcpStream,
}

impl Stream {
    fn open(hosts: &Hosts) -> Self {
        hosts.join("v0");
        hosts.ip("link set v0 up");
        hosts.send_over("v0", 1);
        let listen = || TcpListener::bind("10.78.0.2:7778").unwrap();
        let listener = hosts.far.enter(listen).unwrap();
        let connect = || TcpStream::connect("10.78.0.2:7778").unwrap();
        let near = hosts.near.enter(connect).unwrap();
        near.set_nodelay(true).unwrap();
        let (far, _) = listener.accept().unwrap();
        Self { near, _far: far }
    }

    /// Sends 200 segments.
    fn send(&mut self) {
        for _ in 0..200 {
            self.near.write_all(&[7; 100]).unwrap();
            thread::sleep(Duration::from_millis(2));
        }
    }
}

/// Attaches a first program with this verdict to `v0`.
fn run_first(hosts: &Hosts, verdict: i32) -> FirstProgram {
    let start = || FirstProgram::start("v0", verdict);
    hosts.near.enter(start).unwrap()
}

/// Time for several windows of segments on a busy machine.
const SLOW: Duration = Duration::from_secs(60);

const TCX_PASS: i32 = 0;
const TCX_NEXT: i32 = -1;

#[test]
fn program_attached_before_does_not_hide_segments() {
    needs_root!();
    let hosts = Hosts::create();
    hosts.join("v0");
    hosts.ip("link set v0 up");
    let _theirs = run_first(&hosts, TCX_PASS);
    let attach = Attach::start(&hosts, &["--hook", "tcx"]);
    hosts.send_over("v0", 50);
    let stats = attach.stop();
    assert_eq!(stats["new_bytes"], 5000);
    assert_eq!(
        stats["outcomes"]["unattached_device"],
        Value::Null,
        "{stats}"
    );
}

#[test]
fn bypassed_program_is_reported_and_moved_first() {
    needs_root!();
    let hosts = Hosts::create();
    let mut stream = Stream::open(&hosts);
    let mut attach = Attach::start(&hosts, &["--hook", "tcx"]);
    let theirs = run_first(&hosts, TCX_PASS);
    stream.send();
    let lines = "warning: v0: more than half of the segments do not reach pillion: program ";
    let reported = attach.wait_for_start(lines);
    assert!(reported.contains(" runs before it ("), "{reported}");
    // It may have been moved already, so the exit status is another test's.
    let (_, text) = status(&hosts.near);
    assert!(
        text.contains(": v0: more than half of the segments "),
        "{text}"
    );
    attach.wait_for_line("attached to v0");
    within(SLOW, "status is healthy again", || {
        stream.send();
        status(&hosts.near).0 == Some(0)
    });
    drop(theirs);
    attach.stop();
}

#[test]
fn filter_bypassed_by_tcx_program_fails_status() {
    needs_root!();
    let hosts = Hosts::create();
    let mut stream = Stream::open(&hosts);
    let attach = Attach::start(&hosts, &["--hook", "clsact"]);
    stream.send();
    assert_eq!(status(&hosts.near).0, Some(0));
    let theirs = run_first(&hosts, TCX_PASS);
    within(SLOW, "status fails", || {
        stream.send();
        let (code, text) = status(&hosts.near);
        code == Some(1)
            && text.contains("another program or filter ends the chain")
            && text.contains("  degraded: more than half of the segments ")
    });
    drop(theirs);
    within(SLOW, "status is healthy again", || {
        stream.send();
        status(&hosts.near).0 == Some(0)
    });
    attach.stop();
}

#[test]
fn harmless_first_program_is_noted_and_left_first() {
    needs_root!();
    let hosts = Hosts::create();
    let mut stream = Stream::open(&hosts);
    let mut attach = Attach::start(&hosts, &["--hook", "tcx"]);
    let _theirs = run_first(&hosts, TCX_NEXT);
    stream.send();
    let logged = attach.wait_for_start("v0: program ");
    assert!(logged.contains(" runs before pillion ("), "{logged}");
    stream.send();
    let (code, text) = status(&hosts.near);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("  note: v0: program "), "{text}");
    assert!(
        text.contains("  note: another tcx program runs before pillion's\n"),
        "{text}"
    );
    let stats = attach.stop();
    assert_eq!(
        stats["outcomes"]["unattached_device"],
        Value::Null,
        "{stats}"
    );
}

#[test]
fn device_without_fq_warns_of_ignored_copy_delay() {
    needs_root!();
    let namespace = namespace_with_loopback();
    let delayed: &[_] = &["--copies", "1", "--copy-delay", "15ms"];
    for (options, warns) in [(delayed, true), (&["--copies", "1"], false)] {
        let arguments = [&["run", "--dev", "lo"], options, &["--", "true"]].concat();
        let output = pillion_in(&namespace, &arguments).output().unwrap();
        let warning = "lo ignores the delay of copies, because it lacks the queueing discipline fq";
        assert_eq!(
            stderr(&output).contains(warning),
            warns,
            "{}",
            stderr(&output)
        );
    }
}
