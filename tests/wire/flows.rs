//! Tests that the listed data of a connection matches the data on the wire.

use std::fs::File;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsRawFd;
use std::thread;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::socket::{Backlog, SockaddrStorage, bind, connect, listen};
use pillion_bpf::Outcome::{Bundled, NoRoom, NothingOutstanding};
use pillion_bpf::{Flow, FlowLister, list_closed, list_flows};
use pillion_tests::{Ip, Setup, sysctl};

/// Peer ports that no other test uses, because connections of all namespaces are listed.
const PORT: u16 = 7999;
const READERS_PORT: u16 = 7998;
const ENDED_PORT: u16 = 7997;
const RETRANSMITTED_SYN_PORT: u16 = 7996;
const BOTH_LISTERS_PORT: u16 = 7995;
const LISTENER_PORT: u16 = 7990;
const FAILED_CONNECT_PORT: u16 = 7989;
const NAGLE_PORT: u16 = 7988;

fn find(port: u16) -> Option<Flow> {
    let flows = list_flows().expect("the list");
    flows.into_iter().find(|flow| flow.peer.port() == port)
}

#[test]
fn connection_is_listed_with_endpoints_and_counters() {
    for ip in [Ip::V4, Ip::V6, Ip::Mapped] {
        Setup {
            ip,
            ..Setup::default()
        }
        .run(|wire| {
            wire.reconnect(PORT);
            wire.sends("1:101 1:201 1:301 301:1701");
            let flow = find(PORT).expect("the connection is listed");
            let (local, peer) = match ip {
                Ip::V4 | Ip::Mapped => ("10.0.0.1", "10.0.0.2"),
                Ip::V6 => ("fd00::1", "fd00::2"),
            };
            assert_eq!(flow.local.ip().to_string(), local);
            assert_eq!(flow.peer.ip().to_string(), peer);
            assert_eq!(flow.in_flight, 4);
            assert_eq!(flow.mss, 1460);
            assert_eq!(flow.last_outcome, Some(NoRoom));
            assert_eq!(flow.counters, wire.totals().counters);
            assert_eq!(flow.counters.new_bytes, 1700);
            assert_eq!(flow.counters.redundant_bytes, 300);
            wire.assert_outcomes(&[(Bundled, 2), (NothingOutstanding, 1), (NoRoom, 1)]);
        });
    }
}

#[test]
fn connections_are_found_with_and_without_storage_iterator() {
    Setup::default().run(|wire| {
        wire.reconnect(BOTH_LISTERS_PORT);
        wire.sends("1:101 1:201 1:301");
        // Keeps TCP from sending anything meanwhile.
        wire.ack(301);
        let list_by = |lister: FlowLister| {
            let flows = lister.list().expect("the list").into_iter();
            let found: Vec<_> = flows
                .filter(|flow| flow.peer.port() == BOTH_LISTERS_PORT)
                .collect();
            found
        };
        let found = list_by(FlowLister::over_sockets().expect("it is loaded"));
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].counters.of(Bundled), 2);
        assert_eq!(found, list_by(FlowLister::load().expect("it is loaded")));
        // After the last process closes the socket, only TCP holds it.
        let nothing = File::open("/dev/null").unwrap();
        // SAFETY: a system call on two open descriptors; the socket's descriptor refers to another
        // file from here on.
        unsafe { libc::dup2(nothing.as_raw_fd(), wire.socket().as_raw_fd()) };
        let left = list_by(FlowLister::over_sockets().expect("it is loaded"));
        assert_eq!(left.len(), 1, "{left:?}");
        assert_eq!((left[0].inode, left[0].cookie), (None, found[0].cookie));
    });
}

#[test]
fn retransmitted_handshake_is_not_lost_data() {
    // The SYN is retransmitted after a second.
    let setup = Setup {
        rtt: Duration::from_millis(1400),
        ..Setup::default()
    };
    setup.run(|wire| {
        wire.reconnect(RETRANSMITTED_SYN_PORT);
        wire.sends("1:101");
        assert_eq!(wire.tcp_info().tcpi_total_retrans, 1);
        // Keeps TCP from sending anything meanwhile.
        wire.ack(101);
        let flow = find(RETRANSMITTED_SYN_PORT).expect("the connection is listed");
        assert_eq!((flow.data_packets, flow.retransmitted_packets), (1, 0));
    });
}

#[test]
fn data_behind_small_segment_waits_for_nagle() {
    let setup = Setup {
        nodelay: false,
        ..Setup::default()
    };
    setup.run(|wire| {
        let waits = || find(NAGLE_PORT).expect("it is listed").waits_for_nagle;
        wire.reconnect(NAGLE_PORT);
        wire.sends("1:101");
        assert!(!waits());
        wire.write(100);
        assert!(waits());
        wire.ack(101);
        wire.expect("101:201");
        assert!(!waits());
    });
}

#[test]
fn totals_survive_connections() {
    Setup::default().run(|wire| {
        wire.sends("1:101 1:201");
        wire.reconnect(7777);
        wire.assert_outcomes(&[(Bundled, 1), (NothingOutstanding, 1)]);
        wire.sends("1:101");
        wire.assert_outcomes(&[(Bundled, 1), (NothingOutstanding, 2)]);
        assert_eq!(wire.totals().connections, 2);
    });
}

#[test]
fn ended_connection_is_not_listed_while_socket_is_open() {
    Setup::default().run(|wire| {
        wire.reconnect(ENDED_PORT);
        wire.sends("1:101 1:201");
        let flow = find(ENDED_PORT).expect("it is listed");
        wire.end();
        let flows = list_flows().expect("the list");
        let is_same = |it: &Flow| it.netns == flow.netns && it.local.ip() == flow.local.ip();
        assert!(!flows.iter().any(is_same), "{flows:?}");
        let closed = list_closed().expect("the list");
        let closed = closed.iter().rev().find(|it| is_same(it));
        let closed = closed.expect("it is listed as closed");
        assert_eq!((closed.local, closed.peer), (flow.local, flow.peer));
        assert_eq!(closed.counters, wire.totals().counters);
        assert_eq!(closed.counters.of(Bundled), 1);
    });
}

/// After its connection has ended, a socket may be used for anything.
#[test]
fn listener_reused_after_connection_is_not_listed() {
    Setup::default().run(|wire| {
        wire.reconnect(LISTENER_PORT);
        wire.sends("1:101 1:201");
        let flow = find(LISTENER_PORT).expect("it is listed");
        let closed = || {
            let all = list_closed().expect("the list");
            let same_socket = all.into_iter().filter(|it| it.cookie == flow.cookie);
            same_socket.count()
        };
        wire.end();
        assert_eq!((wire.active_connections(), closed()), (0, 1));
        let socket = wire.socket().try_clone_to_owned().expect("a handle");
        let end = SockaddrStorage::from(SocketAddr::from(([0, 0, 0, 0], 8999)));
        bind(socket.as_raw_fd(), &end).expect("a port");
        listen(&socket, Backlog::new(1).expect("one")).expect("it listens");
        let flows = list_flows().expect("the list");
        assert!(
            !flows.iter().any(|it| it.cookie == flow.cookie),
            "{flows:?}"
        );
        wire.end();
        assert_eq!((wire.active_connections(), closed()), (0, 1));
    });
}

#[test]
fn failed_reconnect_after_end_is_not_counted_as_second_end() {
    Setup::default().run(|wire| {
        wire.reconnect(FAILED_CONNECT_PORT);
        wire.sends("1:101 1:201");
        let flow = find(FAILED_CONNECT_PORT).expect("it is listed");
        wire.end();
        // Another socket occupies the only available port.
        sysctl("net.ipv4.ip_local_port_range", "40000 40000");
        let holder = TcpListener::bind("10.0.0.1:40000").expect("the port is free");
        let peer = SockaddrStorage::from(SocketAddr::from(([10, 0, 0, 2], FAILED_CONNECT_PORT)));
        for _ in 0..3 {
            let tried = connect(wire.socket().as_raw_fd(), &peer);
            assert_eq!(tried, Err(Errno::EADDRNOTAVAIL));
        }
        drop(holder);
        let closed = list_closed().expect("the list");
        let ends = closed.iter().filter(|it| it.cookie == flow.cookie);
        assert_eq!(ends.count(), 1);
    });
}

#[test]
fn reset_connection_is_not_covered_while_socket_is_open() {
    Setup::default().run(|wire| {
        wire.sends("1:101 1:201");
        assert_eq!(wire.active_connections(), 1);
        wire.peer_resets();
        assert_eq!(wire.active_connections(), 0);
    });
}

#[test]
fn many_readers_list_flows_while_connection_sends() {
    Setup::default().run(|wire| {
        wire.reconnect(READERS_PORT);
        let reader = || {
            let new_bytes_seen = (0..10).map(|_| find(READERS_PORT).expect("it is listed"));
            let new_bytes_seen: Vec<u64> =
                new_bytes_seen.map(|flow| flow.counters.new_bytes).collect();
            assert!(new_bytes_seen.is_sorted(), "{new_bytes_seen:?}");
        };
        thread::scope(|scope| {
            let readers = [(); 4].map(|()| scope.spawn(reader));
            let mut end = 1;
            while !readers.iter().all(thread::ScopedJoinHandle::is_finished) {
                wire.sends(&format!("{end}:{}", end + 100));
                assert_eq!(wire.totals().counters.new_bytes, u64::from(end) + 99);
                wire.ack(end + 100);
                end += 100;
            }
        });
        let flow = find(READERS_PORT).expect("it is listed");
        assert_eq!(flow.counters, wire.totals().counters);
    });
}
