//! Two hosts in anonymous network namespaces, joined by a path.

use std::{
    fs::{self, File},
    net::UdpSocket,
    os::fd::AsRawFd,
    process::Command,
    thread,
};

use nix::{
    sched::{CloneFlags, setns, unshare},
    sys::socket::{setsockopt, sockopt},
};
use pillion_lab::path::{Direction, Path, PathConfig, Tap};

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

/// Two namespaces, with device `path0` and 10.0.0.1 in one, `path1` and 10.0.0.2 in the other, and
/// the path between.
pub struct Hosts {
    pub namespaces: [Namespace; 2],
    pub path: Path,
}

impl Hosts {
    /// Makes the devices in a third namespace and moves them while the path runs, as a testbed
    /// does that cannot make them in place.
    pub fn join(config: &PathConfig) -> Self {
        let namespaces = [Namespace::new(), Namespace::new()];
        let path = Namespace::new().run(|| {
            let [a, b] = ["path0", "path1"].map(|name| Tap::open(name).unwrap());
            let path = Path::start(a, b, config).unwrap();
            for (host, namespace) in namespaces.iter().enumerate() {
                let (process, fd) = (std::process::id(), namespace.0.as_raw_fd());
                ip(&format!(
                    "link set path{host} netns /proc/{process}/fd/{fd}"
                ));
            }
            path
        });
        namespaces[0].run(|| configure(0, 1));
        namespaces[1].run(|| configure(1, 0));
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

/// Configures the device of one host, within its namespace. Neighbours are fixed and IPv6 is off,
/// so that the path carries what a test sends and nothing else.
fn configure(own: usize, peer: usize) {
    fs::write("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1").unwrap();
    let (own_ip, peer_ip, device) = (address(own), address(peer), format!("path{own}"));
    let (own_mac, peer_mac) = (
        format!("02:00:00:00:00:0{own}"),
        format!("02:00:00:00:00:0{peer}"),
    );
    ip(&format!(
        "link set {device} address {own_mac} txqueuelen 10000 up"
    ));
    ip(&format!("address add {own_ip}/24 dev {device}"));
    ip(&format!(
        "neighbour add {peer_ip} lladdr {peer_mac} dev {device} nud permanent"
    ));
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
    Direction::delayed(std::time::Duration::from_millis(ms))
}
