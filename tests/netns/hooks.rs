//! Hooks: tcx and clsact next to foreign programs, and complete removal.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use nix::net::if_::if_nametoindex;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use pillion_tests::{Growth, detach_link};

use crate::common::*;
use crate::devices::{Attach, Hosts};

/// Returns qdiscs and filters of a device, as `tc` shows them.
pub fn shown(hosts: &Hosts, device: &str) -> String {
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
fn clsact_serves_as_tcx_does_and_goes_with_pillion() {
    needs_root!();
    let hosts = Hosts::create();
    hosts.join("v0");
    hosts.ip("link set v0 up");
    let before = shown(&hosts, "v0");
    let attach = Attach::begin(&hosts, &["--hook", "clsact"]);
    let during = shown(&hosts, "v0");
    assert!(during.contains("pillion_egress:["), "{during}");
    assert!(during.contains("pillion_dsack:["), "{during}");
    hosts.send_by("v0", 50);
    assert_eq!(attach.end()["new_bytes"], 5000);
    assert_eq!(shown(&hosts, "v0"), before);
}

#[test]
fn the_clsact_and_the_filters_of_others_stay_and_come_first() {
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
    let before = shown(&hosts, "v0");
    let attach = Attach::begin(&hosts, &["--hook", "clsact"]);
    let during = shown(&hosts, "v0");
    let (theirs, ours) = (during.rfind("u32 chain"), during.rfind("pillion_egress:["));
    assert!(theirs.is_some() && theirs < ours, "{during}");
    hosts.send_by("v0", 50);
    assert_eq!(attach.end()["new_bytes"], 5000);
    assert_eq!(shown(&hosts, "v0"), before);
}

#[test]
fn filters_of_others_that_come_later_keep_the_clsact() {
    needs_root!();
    let hosts = Hosts::create();
    let attach = Attach::begin(&hosts, &["--hook", "clsact", "--dev", "a0"]);
    let no_match = "u32 match u32 0xffffffff 0xffffffff at 0 flowid 1:1";
    tc(
        &hosts,
        &format!("filter add dev a0 ingress protocol all prio 9 {no_match}"),
    );
    attach.end();
    let after = shown(&hosts, "a0");
    assert!(after.contains("u32"), "{after}");
    assert!(!after.contains("pillion"), "{after}");
}

#[test]
fn a_filter_in_the_place_of_one_that_was_taken_away_stays() {
    needs_root!();
    let hosts = Hosts::create();
    let first = Attach::begin(&hosts, &["--hook", "clsact", "--dev", "a0"]);
    tc(&hosts, "qdisc delete dev a0 clsact");
    let second = Attach::begin(&hosts, &["--hook", "clsact", "--dev", "a0"]);
    // By now the first process may have restored its own filter.
    first.end();
    let after = shown(&hosts, "a0");
    for program in ["pillion_egress:[", "pillion_dsack:["] {
        assert_eq!(after.matches(program).count(), 1, "{after}");
    }
    second.end();
    assert!(!shown(&hosts, "a0").contains("clsact"));
}

#[test]
fn a_killed_pillion_leaves_no_filter() {
    needs_root!();
    let hosts = Hosts::create();
    let attach = Attach::begin(&hosts, &["--hook", "clsact", "--dev", "a0"]);
    assert!(shown(&hosts, "a0").contains("pillion"));
    let pid = Pid::from_raw(attach.process.id().cast_signed());
    kill(pid, Signal::SIGKILL).unwrap();
    eventually("the filters are removed", || {
        !shown(&hosts, "a0").contains("pillion")
    });
}

#[test]
fn a_pillion_awaits_its_turn_at_a_device_but_not_for_ever() {
    needs_root!();
    let hosts = Hosts::create();
    let name = SocketAddr::from_abstract_name("pillion-clsact").unwrap();
    let bind = move || UnixDatagram::bind_addr(&name);
    let never_let_go = hosts.near.enter(bind).unwrap().unwrap();
    let begun = Instant::now();
    let attach = Attach::begin(&hosts, &["--hook", "clsact", "--dev", "a0"]);
    let waited = begun.elapsed();
    assert!(waited >= Duration::from_secs(2), "{waited:?}");
    assert!(shown(&hosts, "a0").contains("pillion_egress:["));
    attach.end();
    assert!(!shown(&hosts, "a0").contains("clsact"));
    drop(never_let_go);
}

#[test]
fn whoever_never_lets_go_of_the_turn_holds_pillion_up_once() {
    needs_root!();
    let hosts = Hosts::create();
    let name = SocketAddr::from_abstract_name("pillion-clsact").unwrap();
    let bind = move || UnixDatagram::bind_addr(&name);
    let never_let_go = hosts.near.enter(bind).unwrap().unwrap();
    for n in 0..4 {
        for command in [
            format!("link add d{n} up type veth peer name e{n}"),
            format!("link set e{n} up"),
        ] {
            let mut ip = hosts.near.command("ip");
            assert!(ip.args(command.split(' ')).status().unwrap().success());
        }
    }
    let begun = Instant::now();
    Attach::begin(&hosts, &["--hook", "clsact"]).end();
    // Two seconds for each of ten devices, at start and stop, would be forty.
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(20), "{took:?}");
    drop(never_let_go);
}

#[test]
fn beside_an_ingress_discipline_clsact_is_refused_once_and_tried_again() {
    needs_root!();
    let hosts = Hosts::create();
    tc(&hosts, "qdisc add dev a0 ingress");
    let before = shown(&hosts, "a0");
    let named = ["run", "--hook", "clsact", "--dev", "a0", "--", "true"];
    let refused = pillion_in(&hosts.near, &named).output().unwrap();
    assert_eq!(refused.status.code(), Some(1));
    assert!(stderr(&refused).contains("a0 has the queueing discipline `ingress`"));
    let mut attach = Attach::begin(&hosts, &["--hook", "clsact"]);
    let said = attach.said();
    assert!(
        said.contains("a0 has the queueing discipline `ingress`"),
        "{said}"
    );
    // pillion retries after one second and after two more.
    thread::sleep(Duration::from_millis(3500));
    assert_eq!(shown(&hosts, "a0"), before);
    tc(&hosts, "qdisc delete dev a0 ingress");
    attach.says("a0 has come: bundling there, too");
    assert!(shown(&hosts, "a0").contains("pillion_egress:["));
    attach.end();
}

#[test]
fn filters_that_others_remove_are_put_back() {
    needs_root!();
    let hosts = Hosts::create();
    let mut attach = Attach::begin(&hosts, &["--hook", "clsact"]);
    tc(&hosts, "qdisc delete dev a0 clsact");
    attach.says("a0: pillion's filters were removed; trying again");
    attach.says("a0 has come: bundling there, too");
    assert!(shown(&hosts, "a0").contains("pillion_egress:["));
    tc(&hosts, "filter delete dev a1 egress");
    attach.says("a1: pillion's filters were removed; trying again");
    attach.says("a1 has come: bundling there, too");
    let after = shown(&hosts, "a1");
    for program in ["pillion_egress:[", "pillion_dsack:["] {
        assert_eq!(after.matches(program).count(), 1, "{after}");
    }
    attach.end();
    assert!(!shown(&hosts, "a1").contains("clsact"));
}

#[test]
fn programs_that_others_detach_are_attached_again() {
    needs_root!();
    let hosts = Hosts::create();
    hosts.join("v0");
    hosts.ip("link set v0 up");
    let mut attach = Attach::begin(&hosts, &["--hook", "tcx"]);
    let before = attach.link_ids();
    let mut detached = before.clone();
    detached.retain(|link| detach_link(*link));
    assert!(detached.len() > 5, "{detached:?} of {before:?}");
    // Links are detached one by one; pillion may check in between.
    attach.hears("pillion's programs were detached from the cgroup; trying again");
    attach.hears("attached to the cgroup again");
    let all_back = || {
        let links = attach.link_ids();
        links.len() == before.len() && detached.iter().all(|link| !links.contains(link))
    };
    eventually("all links are back", all_back);
    hosts.send_by("v0", 50);
    assert_eq!(attach.end()["new_bytes"], 5000);
}

#[test]
fn the_last_pillion_removes_the_discipline_that_a_pillion_made() {
    needs_root!();
    let hosts = Hosts::create();
    let before = shown(&hosts, "a0");
    let begin = || Attach::begin(&hosts, &["--hook", "clsact", "--dev", "a0"]);
    let [first, second] = [begin(), begin()];
    first.end();
    assert!(shown(&hosts, "a0").contains("pillion_egress:["));
    second.end();
    assert_eq!(shown(&hosts, "a0"), before);
}

/// Queries a filter of the device in a loop, as filter-management tools do, until `asker` is
/// dropped.
fn ask_for_filters(device: u32, asker: &Weak<()>) {
    let hook = libbpf_sys::bpf_tc_hook {
        sz: size_of::<libbpf_sys::bpf_tc_hook>() as _,
        ifindex: device.cast_signed(),
        attach_point: libbpf_sys::BPF_TC_INGRESS,
        ..Default::default()
    };
    while asker.strong_count() > 0 {
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
fn the_discipline_goes_with_pillion_also_while_others_ask_for_filters() {
    needs_root!();
    let hosts = Hosts::create();
    let before = shown(&hosts, "a0");
    // libbpf logs each missing filter, so its output is off.
    // SAFETY: libbpf exchanges the callback atomically.
    unsafe { libbpf_sys::libbpf_set_print(None) };
    let index = || if_nametoindex("a0").unwrap();
    let device = hosts.near.enter(index).unwrap();
    thread::scope(|scope| {
        let asker = Arc::new(());
        for _ in 0..2 {
            let asker = Arc::downgrade(&asker);
            let ask = || hosts.near.enter(move || ask_for_filters(device, &asker));
            scope.spawn(ask);
        }
        for _ in 0..12 {
            Attach::begin(&hosts, &["--hook", "clsact", "--dev", "a0"]).end();
            assert_eq!(shown(&hosts, "a0"), before);
        }
    });
}

#[test]
fn a_killed_pillion_leaves_no_discipline_that_a_pillion_made() {
    needs_root!();
    let hosts = Hosts::create();
    let before = shown(&hosts, "a0");
    let begin = || Attach::begin(&hosts, &["--hook", "clsact", "--dev", "a0"]);
    let mut both = [begin(), begin()];
    for attach in &mut both {
        attach.process.kill().unwrap();
        attach.process.wait().unwrap();
    }
    eventually("the qdiscs are as before", || shown(&hosts, "a0") == before);
    // A foreign clsact stays.
    tc(&hosts, "qdisc add dev a0 clsact");
    let before = shown(&hosts, "a0");
    let mut attach = begin();
    attach.process.kill().unwrap();
    attach.process.wait().unwrap();
    eventually("the qdiscs are as before", || shown(&hosts, "a0") == before);
}

/// Stopping processes may remove the qdisc if another process never releases the device lock. Here
/// it is removed fifty times a second until one second after the start.
#[test]
fn a_discipline_that_is_removed_while_pillion_begins_is_made_again() {
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
        let attach = Attach::begin(&hosts, &["--hook", "clsact"]);
        thread::sleep(Duration::from_secs(1));
        ended.store(true, Ordering::Relaxed);
        attach
    });
    eventually("each filter exists once", || {
        let shown = shown(&hosts, "a0");
        ["pillion_egress:[", "pillion_dsack:["]
            .iter()
            .all(|program| shown.matches(program).count() == 1)
    });
    attach.end();
    assert!(!shown(&hosts, "a0").contains("clsact"));
}

#[test]
fn a_device_where_no_program_finds_a_place_any_more_is_told_with_the_way_out() {
    needs_root!();
    let hosts = Hosts::create();
    let fill = || (0..63).map(|_| Growth::begin("a0", 0)).collect::<Vec<_>>();
    let _full = hosts.near.enter(fill).unwrap();
    let attach = |hook| {
        let arguments = ["attach", "--dev", "a0", "--hook", hook];
        let mut attach = pillion_in(&hosts.near, &arguments);
        attach.stderr(Stdio::piped()).spawn().unwrap()
    };
    let output = attach("tcx").wait_with_output().unwrap();
    let told = stderr(&output);
    assert!(
        told.contains("a0: as many programs stand at it as the kernel takes"),
        "{told}"
    );
    assert_eq!(output.status.code(), Some(1));
    Attach::begin(&hosts, &["--hook", "clsact", "--dev", "a0"]).end();
}
