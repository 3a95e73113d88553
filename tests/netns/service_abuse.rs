//! Other users and processes of the host cannot disturb pillion's interfaces.

use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::process::{Child, Stdio};
use std::thread::sleep;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, connect, listen, socket,
};
use pillion_bpf::host::interruption::retry;
use pillion_lab::Namespace;
use serde_json::Value;

use crate::common::*;
use crate::service::{ServiceGuard, http_get};

/// Returns the resident memory of a process in KiB.
fn resident_kib(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|it| it.strip_prefix("VmRSS:"));
    let count = line.unwrap().trim_end_matches("kB").trim();
    count.parse().unwrap()
}

#[test]
fn endless_requests_use_bounded_memory_and_descriptors() {
    needs_root!();
    let namespace = namespace_with_loopback();
    let service = ServiceGuard::start(&namespace, &["--dev", "lo", "--metrics", "127.0.0.1:9275"]);
    let reach = || TcpStream::connect("127.0.0.1:9275");
    let reach = || namespace.enter(reach).unwrap().unwrap();
    let process = service.pid();
    let descriptors = || fs::read_dir(format!("/proc/{process}/fd")).unwrap().count();
    let before = (resident_kib(process), descriptors());

    let mut endless = reach();
    let piece = vec![b'a'; 1 << 20];
    let ended = (0..64).find_map(|_| endless.write_all(&piece).err());
    let kind = ended.expect("the connection is closed").kind();
    assert!(
        [ErrorKind::ConnectionReset, ErrorKind::BrokenPipe].contains(&kind),
        "{kind:?}"
    );
    let idle: Vec<_> = (0..100).map(|_| reach()).collect();
    let (head, _) = http_get(reach(), "/metrics?name=value");
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    assert!(resident_kib(process) < before.0 + (16 << 10), "{before:?}");
    assert!(descriptors() < before.1 + 32, "{before:?}");
    // Connections that made room for others are closed.
    let mut first = &idle[0];
    assert_eq!(retry(|| first.read(&mut [0])).unwrap(), 0);
    drop(idle);
    service.stop();
}

/// Takes a socket name that `pillion status` queries, and fills its backlog.
fn full_socket(namespace: &Namespace, number: usize) -> Vec<OwnedFd> {
    let bind_and_fill = || -> nix::Result<_> {
        let name = format!("pillion-status/1/{number}");
        let address = UnixAddr::new_abstract(name.as_bytes())?;
        let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
        let new = || socket(AddressFamily::Unix, SockType::Stream, flags, None);
        let listener = new()?;
        bind(listener.as_raw_fd(), &address)?;
        listen(&listener, Backlog::new(1)?)?;
        let mut all = vec![listener];
        loop {
            all.push(new()?);
            match connect(all.last().unwrap().as_raw_fd(), &address) {
                Err(Errno::EAGAIN) => return Ok(all),
                done => done?,
            }
        }
    };
    namespace.enter(bind_and_fill).unwrap().unwrap()
}

#[test]
fn full_foreign_sockets_do_not_block_status() {
    needs_root!();
    let namespace = namespace_with_loopback();
    let full: Vec<_> = (0..20)
        .map(|number| full_socket(&namespace, number))
        .collect();
    let service = ServiceGuard::start(&namespace, &["--dev", "lo"]);
    // `status` takes two seconds for all of them together.
    let mut status = namespace.command("timeout");
    let output = status.args(["15", PILLION, "status"]).output().unwrap();
    drop(full);
    let text = stdout(&output);
    assert!(text.contains("attached to lo"), "{output:?}");
    service.stop();
}

/// Returns the CPU time of a process in ticks of 10 ms.
fn cpu_ticks(process: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let (_, fields) = stat.rsplit_once(')').unwrap();
    let fields = fields.split_whitespace().skip(11).take(2);
    fields.map(|it| it.parse::<u64>().unwrap()).sum()
}

#[test]
fn exhausted_descriptors_do_not_cause_busy_loop() {
    needs_root!();
    let namespace = namespace_with_loopback();
    let service = ServiceGuard::start(&namespace, &["--dev", "lo"]);
    let process = service.pid();
    let limit = |max: libc::rlim_t| {
        let (process, limit) = (process.cast_signed(), libc::RLIMIT_NOFILE);
        let new = libc::rlimit {
            rlim_cur: max,
            rlim_max: 4096,
        };
        // SAFETY: it reads a structure that lives across it.
        let set = unsafe { libc::prlimit(process, limit, &new, std::ptr::null_mut()) };
        assert_eq!(set, 0);
    };
    // By then it has opened everything that it needs for status requests.
    let is_ready = || {
        let status = pillion_in(&namespace, &["status"]).output().unwrap();
        status.status.code() == Some(3)
    };
    eventually("pillion is ready", is_ready);
    // Fewer than it has open already.
    limit(8);
    // The waiting thread may hold one reserved descriptor; later requests wait.
    for _ in 0..2 {
        pillion_in(&namespace, &["status"]).output().unwrap();
    }
    let before = cpu_ticks(process);
    sleep(Duration::from_secs(2));
    let used = cpu_ticks(process) - before;
    assert!(used < 50, "{used}");
    limit(4096);
    service.stop();
}

/// Starts a process of another user with all capabilities in its own user namespace. Its socket has a
/// `name` of pillion's, and it sends `text` to every status request. Returns `None` if no such namespace can be created.
fn impostor(namespace: &Namespace, name: &str, text: &str) -> Option<Child> {
    const LISTEN: &str = "use Socket; $| = 1; socket(L, AF_UNIX, SOCK_STREAM, 0) or die; \
        bind(L, pack('S a*', AF_UNIX, \"\\0$ARGV[0]/1/0\")) or die; listen(L, 5) or die; \
        print \"ready\\n\"; while (accept(C, L)) { print C $ARGV[1]; close C }";
    let mut command = namespace.command("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    command.args(["unshare", "--user", "--map-root-user", "perl", "-e", LISTEN]);
    command.args([name, text]).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    output.read_line(&mut line).unwrap();
    if line != "ready\n" {
        println!("left out: another user cannot create a user namespace here");
        let _ = child.wait();
        return None;
    }
    Some(child)
}

#[test]
fn non_utf8_socket_name_does_not_break_status() {
    needs_root!();
    let namespace = namespace_with_loopback();
    let bound = || UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(b"\xff\xe4").unwrap());
    let _bound = namespace.enter(bound).unwrap().unwrap();
    let service = ServiceGuard::start(&namespace, &["--dev", "lo"]);
    let output = pillion_in(&namespace, &["status"]).output().unwrap();
    let text = stdout(&output);
    assert!(text.contains("attached to lo"), "{output:?}");
    service.stop();
}

#[test]
fn processes_of_other_versions_are_reported() {
    needs_root!();
    let namespace = namespace_with_loopback();
    let service = ServiceGuard::start(&namespace, &["--dev", "lo"]);
    let output = |arguments: &[&str]| pillion_in(&namespace, arguments).output().unwrap();
    let mut own: Value = serde_json::from_slice(&output(&["status", "--json"]).stdout).unwrap();
    assert!(!stderr(&output(&["flows"])).contains("this is"));
    own[0]["version"] = "0.0.1".into();
    let name = SocketAddr::from_abstract_name("pillion-status/1/other").unwrap();
    let bound = namespace.enter(|| UnixListener::bind_addr(&name));
    let bound = bound.unwrap().unwrap();
    let answers = [own[0].to_string(), "words of another time".to_owned()];
    let answers = std::thread::spawn(move || {
        for answer in answers {
            bound
                .accept()
                .unwrap()
                .0
                .write_all(answer.as_bytes())
                .unwrap();
        }
    });
    let text = stderr(&output(&["flows"]));
    assert!(text.contains("is pillion 0.0.1, this is "), "{text}");
    let status = output(&["status"]);
    answers.join().unwrap();
    assert!(stderr(&status).contains("another version"), "{status:?}");
    assert_eq!(status.status.code(), Some(1));
    service.stop();
}

#[test]
fn impostor_process_is_not_listed() {
    needs_root!();
    let namespace = namespace_with_loopback();
    let service = ServiceGuard::start(&namespace, &["--dev", "lo"]);
    let status = || -> Value {
        let output = pillion_in(&namespace, &["status", "--json"]).output();
        serde_json::from_slice(&output.unwrap().stdout).unwrap()
    };
    let own = status();
    assert_eq!(own.as_array().unwrap().len(), 1);
    for name in ["pillion-status", "pillion-trial"] {
        let Some(mut impostor) = impostor(&namespace, name, &own[0].to_string()) else {
            return;
        };
        let listed = status();
        let _ = impostor.kill();
        let _ = impostor.wait();
        assert_eq!(listed.as_array().unwrap().len(), 1);
        assert_eq!(listed[0]["conditions"], Value::Array(Vec::new()));
    }
    service.stop();
}
