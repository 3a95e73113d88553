//! Two hosts in anonymous network namespaces, connected by a path.

use std::fs;
use std::net::UdpSocket;
use std::process::Command;

use nix::sys::socket::{setsockopt, sockopt};
use pillion_lab::Namespace;
use pillion_lab::path::{Direction, Path, PathConfig, Tap};

/// Two namespaces, with device `path0` and 10.0.0.1 in one, `path1` and 10.0.0.2 in the other, and
/// the path between them.
pub struct Hosts {
    namespaces: [Namespace; 2],
    pub path: Path,
}

impl Hosts {
    /// Creates the devices in a third namespace and moves them while the path runs, like a testbed
    /// that cannot create them in place.
    pub fn join(config: &PathConfig) -> Self {
        let namespaces = [(); 2].map(|()| Namespace::create().unwrap());
        let path = inside(&Namespace::create().unwrap(), || {
            let [a, b] = ["path0", "path1"].map(|name| Tap::open(name).unwrap());
            let path = Path::start(a, b, config).unwrap();
            for (host, namespace) in namespaces.iter().enumerate() {
                let namespace = namespace.path();
                ip(&format!(
                    "link set path{host} netns {}",
                    namespace.display()
                ));
            }
            path
        });
        inside(&namespaces[0], || configure("path0", 0, 1));
        inside(&namespaces[1], || configure("path1", 1, 0));
        Self { namespaces, path }
    }

    /// Runs `work` on a thread inside the namespace of host `own`.
    pub fn run<T: Send>(&self, own: usize, work: impl FnOnce() -> T + Send) -> T {
        inside(&self.namespaces[own], work)
    }

    /// Returns a UDP socket on host `own` (0 or 1) with large buffers, connected to the other host.
    pub fn socket(&self, own: usize) -> UdpSocket {
        self.run(own, || {
            let socket = UdpSocket::bind((address(own), 9)).unwrap();
            socket.connect((address(1 - own), 9)).unwrap();
            setsockopt(&socket, sockopt::RcvBufForce, &(64 << 20)).unwrap();
            setsockopt(&socket, sockopt::SndBufForce, &(64 << 20)).unwrap();
            socket
        })
    }
}

/// Runs `work` on a thread inside the namespace.
pub fn inside<T: Send>(namespace: &Namespace, work: impl FnOnce() -> T + Send) -> T {
    namespace.enter(work).unwrap()
}

/// Returns the address of a host.
pub fn address(host: usize) -> String {
    format!("10.0.0.{}", host + 1)
}

/// Configures a device of one host, within its namespace. Neighbours are permanent and IPv6 is
/// off, so the path carries only the test's packets.
pub fn configure(device: &str, own: usize, peer: usize) {
    fs::write("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1").unwrap();
    let (own_ip, peer_ip) = (address(own), address(peer));
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

/// Returns whether the tests may create namespaces; otherwise prints a line.
pub fn root(test: &str) -> bool {
    let root = nix::unistd::geteuid().is_root();
    if !root {
        println!("{test}: skipped, needs root");
    }
    root
}

/// Returns a direction with only a delay.
pub fn delay(ms: u64) -> Direction {
    Direction::delayed(std::time::Duration::from_millis(ms))
}
