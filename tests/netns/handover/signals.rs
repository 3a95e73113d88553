//! Reloads and signals during a hand-over.

use super::*;

#[test]
fn reload_while_new_process_waits_restarts_handover() {
    needs_root!();
    let mut waiting = WaitingHandover::start();
    let rules = waiting.folder.path().join("rules.toml");
    fs::write(rules, "[[rule]]\n[[rule]]\n").unwrap();
    send_signal(&waiting.old, Signal::SIGHUP);
    assert!(exits_successfully(&mut waiting.old));
    let new_process = NewProcess(ready_pids(&waiting.namespace)[0]);
    assert_ne!(new_process.0, waiting.new_process.0);
    let status = pillion_in(&waiting.namespace, &["status"])
        .output()
        .unwrap();
    assert!(stdout(&status).contains("by 2 rules"), "{status:?}");
    drop(new_process);
    expect_none_left(&waiting.namespace);
}

/// Returns whether a signal is pending for the process.
fn has_pending_signal(pid: u32, signal: Signal) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let mut lines = status.lines();
    let pending = lines.find_map(|line| line.strip_prefix("ShdPnd:")).unwrap();
    let pending = u64::from_str_radix(pending.trim(), 16).unwrap();
    pending >> (signal as u64 - 1) & 1 == 1
}

/// Starts a hand-over, and stops the old process before it reads the request to exit.
fn stop_during_handover(old: &Child) {
    send_signal(old, Signal::SIGUSR2);
    eventually("a new process starts", || {
        new_process_of(old.id()).is_some()
    });
    send_signal(old, Signal::SIGSTOP);
    let timeout = Duration::from_secs(60);
    within(timeout, "the new process takes over", || {
        has_pending_signal(old.id(), Signal::SIGTERM)
    });
}

/// The SIGTERM of the abandoned hand-over is read after the reload.
#[test]
fn reload_during_takeover_applies_to_new_process() {
    needs_root!();
    let namespace = namespace_with_loopback();
    let folder = tempfile::tempdir().unwrap();
    let rules = folder.path().join("rules.toml");
    fs::write(&rules, "[[rule]]\n").unwrap();
    let config = ["attach", "--dev", "lo", "--config", rules.to_str().unwrap()];
    let mut attach = pillion_in(&namespace, &config);
    let mut old = attach.stderr(Stdio::null()).spawn().unwrap();
    await_attached(old.id());
    stop_during_handover(&old);
    fs::write(&rules, "[[rule]]\n[[rule]]\n").unwrap();
    send_signal(&old, Signal::SIGHUP);
    send_signal(&old, Signal::SIGCONT);
    assert!(exits_successfully(&mut old));
    let new_process = NewProcess(ready_pids(&namespace)[0]);
    let status = pillion_in(&namespace, &["status"]).output().unwrap();
    assert!(stdout(&status).contains("by 2 rules"), "{status:?}");
    drop(new_process);
    expect_none_left(&namespace);
}

/// systemd would take the exit of the supposed main process for that of the service.
#[test]
fn new_process_stays_main_pid_after_last_word_of_old_one() {
    needs_root!();
    let namespace = namespace_with_loopback();
    let folder = tempfile::tempdir().unwrap();
    let rules = folder.path().join("rules.toml");
    fs::write(&rules, "[[rule]]\n").unwrap();
    let config = ["attach", "--dev", "lo", "--config", rules.to_str().unwrap()];
    let manager = Manager::new();
    let mut old = manager.start(&namespace, &config);
    let main = |pid: u32| format!("MAINPID={pid}");
    manager.wait_for(&main(old.id()));
    stop_during_handover(&old);
    let new_process = NewProcess(new_process_of(old.id()).unwrap());
    manager.wait_for(&main(new_process.0));
    fs::write(&rules, "[[mistake]]\n").unwrap();
    send_signal(&old, Signal::SIGHUP);
    send_signal(&old, Signal::SIGCONT);
    manager.wait_for(&main(old.id()));
    manager.wait_for(&main(new_process.0));
    assert!(exits_successfully(&mut old));
    drop(new_process);
    expect_none_left(&namespace);
}

/// The old process waits for data in flight, and the sender never pauses.
#[test]
fn reload_after_takeover_is_forwarded_to_new_process() {
    needs_root!();
    let pair = clean_pair();
    let namespace = &pair.sender.namespace;
    let folder = tempfile::tempdir().unwrap();
    let rules = folder.path().join("rules.toml");
    fs::write(&rules, "[[rule]]\n").unwrap();
    let mut attach = pillion_in(namespace, &["attach", "--config", rules.to_str().unwrap()]);
    let mut old = attach.stderr(Stdio::null()).spawn().unwrap();
    await_attached(old.id());
    let address = "10.77.0.2:7001";
    let send = [
        ["traffic", "send"],
        ["--to", address],
        ["--itt", "20ms"],
        ["--duration", "60s"],
    ];
    let _receiver = KillOnDrop(receive(&pair, 7001, 1));
    let mut sender = lab_in(namespace, send.as_flattened());
    let quiet = sender.stdout(Stdio::null()).stderr(Stdio::null());
    let _sender = KillOnDrop(quiet.spawn().unwrap());
    stop_during_handover(&old);
    send_signal(&old, Signal::SIGCONT);
    eventually("the process exits", || {
        !has_pending_signal(old.id(), Signal::SIGTERM)
    });
    send_signal(&old, Signal::SIGSTOP);
    fs::write(&rules, "[[rule]]\n[[rule]]\n").unwrap();
    send_signal(&old, Signal::SIGHUP);
    send_signal(&old, Signal::SIGCONT);
    assert!(exits_successfully(&mut old));
    let new_process = NewProcess(ready_pids(namespace)[0]);
    eventually("the new rules are loaded", || {
        let status = pillion_in(namespace, &["status"]).output().unwrap();
        stdout(&status).contains("by 2 rules")
    });
    drop(new_process);
    expect_none_left(namespace);
}

/// Returns the number of links by which a process is attached to devices.
fn device_links(pid: u32) -> usize {
    let entries = fs::read_dir(format!("/proc/{pid}/fdinfo")).into_iter();
    let entries = entries.flatten().flatten();
    let texts = entries.filter_map(|entry| fs::read_to_string(entry.path()).ok());
    texts
        .filter(|text| text.contains("link_type:\ttcx"))
        .count()
}

/// The old process waits a second for ACKs of a peer that is gone.
#[test]
fn sigterm_during_handover_stops_both_processes() {
    needs_root!();
    let (manager, pair) = (Manager::new(), clean_pair());
    let namespace = &pair.sender.namespace;
    let mut service = manager.start(namespace, &["attach", "--port", "7001"]);
    manager.wait_for("READY=1");
    if device_links(service.id()) == 0 {
        println!("left out: this kernel has no tcx");
        send_signal(&service, Signal::SIGTERM);
        service.wait().unwrap();
        return;
    }
    let listen = || TcpListener::bind("10.77.0.2:7001").unwrap();
    let listener = pair.receiver.namespace.enter(listen).unwrap();
    let connect = || TcpStream::connect("10.77.0.2:7001").unwrap();
    let mut near = namespace.enter(connect).unwrap();
    let _far = listener.accept().unwrap();
    let mut ip = pair.receiver.namespace.command("ip");
    let blackhole = ["route", "add", "blackhole", "10.77.0.1/32"];
    assert!(ip.args(blackhole).status().unwrap().success());
    near.write_all(b"unheard").unwrap();
    let all = device_links(service.id());
    send_signal(&service, Signal::SIGUSR2);
    within(
        Duration::from_secs(60),
        "the old process detaches its egress programs",
        || device_links(service.id()) < all,
    );
    send_signal(&service, Signal::SIGTERM);
    assert!(exits_successfully(&mut service));
    expect_none_left(namespace);
}
