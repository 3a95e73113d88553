//! Device names are bytes, and names that are not UTF-8 do not disturb pillion.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::process::Output;
use std::thread;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::common::*;
use crate::devices::{Attach, Hosts};
use crate::hooks::tc_state;
use crate::namespaces::{NetnsName, Sleeper};

const LATIN_1: &[u8] = b"B\xfc";

fn ip(hosts: &Hosts, words: &str, name: &[u8]) {
    let mut command = hosts.near.command("ip");
    let status = command.args(words.split(' ')).arg(OsStr::from_bytes(name));
    assert!(status.status().unwrap().success(), "ip {words}");
}

/// Creates hosts with a non-UTF-8 device name, alias and alternative name.
fn hosts() -> Hosts {
    let hosts = Hosts::create();
    ip(&hosts, "link set a0 alias", LATIN_1);
    ip(&hosts, "link property add dev a1 altname", b"other-\xff");
    hosts.join("v0");
    ip(&hosts, "link set v0 name", LATIN_1);
    let up = [b"link set up dev ", LATIN_1].concat();
    let words: Vec<_> = up
        .split(|byte| *byte == b' ')
        .map(OsStr::from_bytes)
        .collect();
    assert!(
        hosts
            .near
            .command("ip")
            .args(words)
            .status()
            .unwrap()
            .success()
    );
    hosts
}

fn run_true(hosts: &Hosts, options: &[OsString]) -> Output {
    let mut command = hosts.near.command(PILLION);
    let command = command.arg("run").args(options).args(["--", "true"]);
    command.output().unwrap()
}

#[test]
fn run_starts_with_non_utf8_device_names() {
    needs_root!();
    let output = run_true(&hosts(), &[]);
    assert!(output.status.success(), "{}", stderr(&output));
}

#[test]
fn device_is_found_by_non_utf8_names_and_printed_escaped() {
    needs_root!();
    let hosts = hosts();
    for name in [LATIN_1, b"other-\xff"] {
        let options = ["--dev".into(), OsStr::from_bytes(name).to_owned()];
        let output = run_true(&hosts, &options);
        assert!(output.status.success(), "{}", stderr(&output));
    }
    let unknown = ["--dev".into(), OsStr::from_bytes(b"B\xfd").to_owned()];
    let output = run_true(&hosts, &unknown);
    assert_eq!(output.status.code(), Some(2));
    let message = stderr(&output);
    assert!(
        message.contains(r"no network device `B\xfd`; available: "),
        "{message}"
    );
    assert!(message.contains(r"B\xfc"), "{message}");
    let check = stdout(&pillion_in(&hosts.near, &["check"]).output().unwrap());
    assert!(check.contains(r"B\xfc (Ethernet)"), "{check}");
}

#[test]
fn devices_are_followed_despite_non_utf8_names() {
    needs_root!();
    let hosts = Hosts::create();
    let sleeper = Sleeper::of(&hosts.near);
    let other = Hosts::create();
    let other_sleeper = Sleeper::of(&other.near);
    let name = NetnsName::assign(&other_sleeper);
    let own = namespace_with_loopback();
    let options = ["--netns", &sleeper.pid(), "--netns", &name.0];
    let mut attach = Attach::start_in(&own, &options);
    let links = attach.links();
    ip(&hosts, "link set a0 alias", LATIN_1);
    ip(&hosts, "link property add dev a1 altname", b"other-\xff");
    hosts.ip("link add w0 type veth peer name w1");
    hosts.ip("link set w0 up");
    attach.expect_line(&format!("attached to w0 in {}", sleeper.pid()));
    ip(&hosts, "link set w1 name", LATIN_1);
    ip(&hosts, "link set up dev", LATIN_1);
    attach.expect_line(&format!(r"attached to B\xfc in {}", sleeper.pid()));
    // The other namespace is released as usual.
    name.delete();
    attach.expect_line(&format!("detached from network namespace {}", name.0));
    eventually("its links are detached", || attach.links() == links);
    hosts.ip("link delete w0");
    let mut removed = [attach.next_line(), attach.next_line()];
    removed.sort();
    let pid = sleeper.pid();
    let expected = [r"B\xfc", "w0"].map(|name| format!("pillion: detached from {name} in {pid}"));
    assert_eq!(removed, expected);
    attach.stop();
}

#[test]
fn cleanup_helper_removes_filters_despite_non_utf8_names() {
    needs_root!();
    let hosts = Hosts::create();
    let mut attach = Attach::start(&hosts, &["--hook", "clsact", "--dev", "a0"]);
    ip(&hosts, "link set a1 alias", LATIN_1);
    thread::sleep(Duration::from_millis(100));
    assert!(tc_state(&hosts, "a0").contains("pillion"));
    send_signal(&attach.process, Signal::SIGKILL);
    attach.process.wait().unwrap();
    eventually("the filters are removed", || {
        !tc_state(&hosts, "a0").contains("pillion")
    });
}
