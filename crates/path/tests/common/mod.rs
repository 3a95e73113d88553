//! Two hosts in anonymous network namespaces, joined by a path.

use std::{
    fs::{self, File},
    net::UdpSocket,
    process::Command,
    thread,
};

use nix::{
    sched::{CloneFlags, setns, unshare},
    sys::socket::{setsockopt, sockopt},
};
use pillion_path::{Direction, Path, PathConfig, Tap};

/// A network namespace without a name: it ends with the last descriptor that holds it.
pub struct Namespace(File);

impl Namespace {
    pub fn new() -> Self {
        let unshared = || {
            unshare(CloneFlags::CLONE_NEWNET).unwrap();
            File::open("/proc/thread-self/ns/net").unwrap()
        };
        Self(thread::spawn(unshared).join().unwrap())
    }

    /// Runs `work` on a thread inside the namespace.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let inside = || {
            setns(&self.0, CloneFlags::CLONE_NEWNET).unwrap();
            work()
        };
        thread::scope(|scope| scope.spawn(inside).join().unwrap())
    }
}

/// Two namespaces with a TAP device `path` each, 10.0.0.1 and 10.0.0.2, and the path between.
pub struct Hosts {
    pub namespaces: [Namespace; 2],
    pub path: Path,
}

impl Hosts {
    pub fn join(config: &PathConfig) -> Self {
        let namespaces = [Namespace::new(), Namespace::new()];
        let [a, b] = [(0, 1), (1, 0)].map(|(own, peer)| namespaces[own].run(|| host(own, peer)));
        let path = Path::start(a, b, config).unwrap();
        Self { namespaces, path }
    }

    /// A UDP socket on host `own` (0 or 1), connected to the other's, with ample buffers.
    pub fn socket(&self, own: usize) -> UdpSocket {
        self.namespaces[own].run(|| {
            let socket = UdpSocket::bind((address(own), 9)).unwrap();
            socket.connect((address(1 - own), 9)).unwrap();
            setsockopt(&socket, sockopt::RcvBufForce, &(64 << 20)).unwrap();
            setsockopt(&socket, sockopt::SndBufForce, &(64 << 20)).unwrap();
            socket
        })
    }
}

fn address(host: usize) -> String {
    format!("10.0.0.{}", host + 1)
}

/// Makes the device of one host, within its namespace. Neighbours are fixed and IPv6 is off, so
/// that the path carries what a test sends and nothing else.
fn host(own: usize, peer: usize) -> Tap {
    let tap = Tap::open("path").unwrap();
    fs::write("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1").unwrap();
    let (own_ip, peer_ip) = (address(own), address(peer));
    ip(&format!(
        "link set path address 02:00:00:00:00:0{own} txqueuelen 10000 up"
    ));
    ip(&format!("address add {own_ip}/24 dev path"));
    ip(&format!(
        "neighbour add {peer_ip} lladdr 02:00:00:00:00:0{peer} dev path nud permanent"
    ));
    tap
}

/// Runs ip(8) in the namespace of the calling thread.
pub fn ip(arguments: &str) {
    let status = Command::new("ip").args(arguments.split(' ')).status();
    assert!(status.unwrap().success(), "ip {arguments}");
}

/// Whether the tests may make namespaces; says so when not.
pub fn root(test: &str) -> bool {
    let root = nix::unistd::geteuid().is_root();
    if !root {
        println!("{test}: skipped, needs root");
    }
    root
}

/// A direction that does nothing but delay.
pub fn delay(ms: u64) -> Direction {
    Direction {
        delay: std::time::Duration::from_millis(ms),
        rate_bps: None,
        queue_packets: 1000,
        loss: 0.0,
    }
}
