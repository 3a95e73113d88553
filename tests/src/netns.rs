use std::fs;
use std::io::Write;
use std::panic::resume_unwind;
use std::process::{Command, Output, Stdio};
use std::thread;

use nix::sched::{CloneFlags, unshare};

/// Runs a test in a thread with its own unnamed network namespace, which ends with the thread.
/// Without root, prints that the test was skipped.
///
/// # Panics
/// If `test` panics, or the namespace cannot be created.
pub fn isolated(test: impl FnOnce() + Send) {
    let name = thread::current().name().unwrap_or("a test").to_owned();
    if !nix::unistd::Uid::effective().is_root() {
        println!("left out without root: {name}");
        return;
    }
    let inside = || {
        unshare(CloneFlags::CLONE_NEWNET).expect("a network namespace");
        disable_scaling_ratio_clamp();
        test();
    };
    thread::scope(|scope| {
        let thread = thread::Builder::new()
            .name(name)
            .spawn_scoped(scope, inside)
            .expect("a thread");
        if let Err(panic) = thread.join() {
            resume_unwind(panic);
        }
    });
}

/// Disables the lab kernel's clamp of the scaling ratio in the calling thread's network namespace.
/// Other kernels have no clamp: there the bundler must keep receive windows correct.
///
/// # Panics
/// If the kernel refuses.
pub fn disable_scaling_ratio_clamp() {
    let clamp = "net.ipv4.tcp_clamp_scaling_ratio";
    if fs::exists(path_of(clamp)).expect("/proc/sys") {
        sysctl(clamp, "0");
    }
}

/// Sets a sysctl of the calling thread's network namespace.
///
/// # Panics
/// If the sysctl does not exist or rejects the value.
pub fn sysctl(name: &str, value: &str) {
    if let Err(error) = fs::write(path_of(name), value) {
        panic!("sysctl {name}={value}: {error}");
    }
}

fn path_of(sysctl: &str) -> String {
    format!("/proc/sys/{}", sysctl.replace('.', "/"))
}

/// Returns a `TcpExt` counter (as in `nstat`) of the calling thread's namespace.
///
/// # Panics
/// If the kernel has no such counter.
#[must_use]
pub fn netstat(name: &str) -> u64 {
    let text = fs::read_to_string("/proc/thread-self/net/netstat").expect("counters");
    let mut lines = text
        .lines()
        .filter_map(|line| line.strip_prefix("TcpExt: "));
    let (names, values) = (lines.next().expect("names"), lines.next().expect("values"));
    let mut pairs = names.split(' ').zip(values.split(' '));
    let (_, value) = pairs.find(|(found, _)| *found == name).expect(name);
    value.parse().expect("a number")
}

/// Runs an `nft` command in the calling thread's namespace.
///
/// # Panics
/// If nft is missing, or rejects the command.
pub fn nft(command: &str) {
    let status = Command::new("nft").arg(command).status();
    assert!(status.expect("nft").success(), "{command}");
}

/// Runs `ip` commands, one per line.
pub(crate) fn ip(commands: &str) {
    batch("ip", commands);
}

/// Runs an `ip` command. Returns false if this kernel lacks the feature.
pub(crate) fn ip_if_supported(command: &str) -> bool {
    let output = run("ip", command);
    let stderr = String::from_utf8_lossy(&output.stderr);
    let unsupported = ["not supported", "not enabled in this kernel"];
    let supported = !unsupported.iter().any(|text| stderr.contains(text));
    assert!(
        output.status.success() || !supported,
        "{stderr}on {command}"
    );
    supported
}

/// Runs `tc` commands, one per line.
pub(crate) fn tc(commands: &str) {
    batch("tc", commands);
}

fn batch(tool: &str, commands: &str) {
    let output = run(tool, commands);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}on one of:\n{commands}");
}

fn run(tool: &str, commands: &str) -> Output {
    let mut process = Command::new(tool)
        .args(["-batch", "-"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("ip and tc (Debian package iproute2) start");
    let mut stdin = process.stdin.take().expect("it was piped");
    stdin
        .write_all(commands.as_bytes())
        .expect("it reads its commands");
    drop(stdin);
    process.wait_with_output().expect("it ends")
}
