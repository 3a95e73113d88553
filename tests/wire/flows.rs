//! What is told of a connection is what went over the wire.

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

/// Peers' ports that no other test uses: all namespaces' connections are listed.
const PORT: u16 = 7999;
const PORT_OF_READERS: u16 = 7998;
const PORT_OF_THE_ENDED: u16 = 7997;
const PORT_OF_THE_LATE: u16 = 7996;
const PORT_OF_BOTH_WAYS: u16 = 7995;
const PORT_OF_THE_LISTENER: u16 = 7990;
const PORT_OF_THE_VAIN: u16 = 7989;

fn find(port: u16) -> Option<Flow> {
    let flows = list_flows().expect("the list");
    flows.into_iter().find(|flow| flow.peer.port() == port)
}

#[test]
fn a_connection_is_listed_with_its_ends_and_counters() {
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
            assert_eq!(flow.last, Some(NoRoom));
            assert_eq!(flow.counters, wire.totals().counters);
            assert_eq!(flow.counters.new_bytes, 1700);
            assert_eq!(flow.counters.redundant_bytes, 300);
            wire.assert_outcomes(&[(Bundled, 2), (NothingOutstanding, 1), (NoRoom, 1)]);
        });
    }
}

#[test]
fn connections_are_found_whether_or_not_the_kernel_goes_through_socket_storage() {
    Setup::default().run(|wire| {
        wire.reconnect(PORT_OF_BOTH_WAYS);
        wire.sends("1:101 1:201 1:301");
        // So that TCP sends nothing more meanwhile.
        wire.ack(301);
        let by = |lister: FlowLister| {
            let flows = lister.list().expect("the list").into_iter();
            let found: Vec<_> = flows
                .filter(|flow| flow.peer.port() == PORT_OF_BOTH_WAYS)
                .collect();
            found
        };
        let found = by(FlowLister::over_sockets());
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].counters.of(Bundled), 2);
        assert_eq!(found, by(FlowLister::load().expect("it is loaded")));
        // TCP alone has it once no process has it open.
        let nothing = File::open("/dev/null").unwrap();
        // SAFETY: a system call on two open descriptors: the socket's is another file from here on.
        unsafe { libc::dup2(nothing.as_raw_fd(), wire.socket().as_raw_fd()) };
        let left = by(FlowLister::over_sockets());
        assert_eq!(left.len(), 1, "{left:?}");
        assert_eq!((left[0].inode, left[0].cookie), (None, found[0].cookie));
    });
}

#[test]
fn what_was_sent_again_of_the_handshake_is_no_lost_data() {
    // The SYN is sent again after a second.
    let setup = Setup {
        rtt: Duration::from_millis(1400),
        ..Setup::default()
    };
    setup.run(|wire| {
        wire.reconnect(PORT_OF_THE_LATE);
        wire.sends("1:101");
        assert_eq!(wire.tcp_info().tcpi_total_retrans, 1);
        // So that TCP sends nothing more meanwhile.
        wire.ack(101);
        let flow = find(PORT_OF_THE_LATE).expect("the connection is listed");
        assert_eq!((flow.data_packets, flow.retransmitted), (1, 0));
    });
}

#[test]
fn totals_outlive_the_connections() {
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
fn a_connection_that_has_ended_is_not_listed_though_its_socket_is_open() {
    Setup::default().run(|wire| {
        wire.reconnect(PORT_OF_THE_ENDED);
        wire.sends("1:101 1:201");
        let flow = find(PORT_OF_THE_ENDED).expect("it is listed");
        wire.end();
        let flows = list_flows().expect("the list");
        let is_it = |it: &Flow| it.netns == flow.netns && it.local.ip() == flow.local.ip();
        assert!(!flows.iter().any(is_it), "{flows:?}");
        let closed = list_closed().expect("the list");
        let closed = closed.iter().rev().find(|it| is_it(it));
        let closed = closed.expect("it is told as closed");
        assert_eq!((closed.local, closed.peer), (flow.local, flow.peer));
        assert_eq!(closed.counters, wire.totals().counters);
        assert_eq!(closed.counters.of(Bundled), 1);
    });
}

/// A socket whose connection has ended may be used for anything.
#[test]
fn a_socket_that_listens_once_its_connection_has_ended_is_no_connection() {
    Setup::default().run(|wire| {
        wire.reconnect(PORT_OF_THE_LISTENER);
        wire.sends("1:101 1:201");
        let flow = find(PORT_OF_THE_LISTENER).expect("it is listed");
        let closed = || {
            let all = list_closed().expect("the list");
            let of_it = all.into_iter().filter(|it| it.cookie == flow.cookie);
            of_it.count()
        };
        wire.end();
        assert_eq!((wire.connections_now(), closed()), (0, 1));
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
        assert_eq!((wire.connections_now(), closed()), (0, 1));
    });
}

#[test]
fn a_socket_that_connects_in_vain_once_its_connection_has_ended_ends_no_second_time() {
    Setup::default().run(|wire| {
        wire.reconnect(PORT_OF_THE_VAIN);
        wire.sends("1:101 1:201");
        let flow = find(PORT_OF_THE_VAIN).expect("it is listed");
        wire.end();
        // The only port that there is has another socket.
        sysctl("net.ipv4.ip_local_port_range", "40000 40000");
        let holder = TcpListener::bind("10.0.0.1:40000").expect("the port is free");
        let peer = SockaddrStorage::from(SocketAddr::from(([10, 0, 0, 2], PORT_OF_THE_VAIN)));
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
fn a_connection_that_was_reset_is_covered_no_more_though_its_socket_is_open() {
    Setup::default().run(|wire| {
        wire.sends("1:101 1:201");
        assert_eq!(wire.connections_now(), 1);
        wire.peer_resets();
        assert_eq!(wire.connections_now(), 0);
    });
}

#[test]
fn many_can_read_while_a_connection_sends() {
    Setup::default().run(|wire| {
        wire.reconnect(PORT_OF_READERS);
        let reader = || {
            let seen = (0..10).map(|_| find(PORT_OF_READERS).expect("it is listed"));
            let seen: Vec<u64> = seen.map(|flow| flow.counters.new_bytes).collect();
            assert!(seen.is_sorted(), "{seen:?}");
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
        let flow = find(PORT_OF_READERS).expect("it is listed");
        assert_eq!(flow.counters, wire.totals().counters);
    });
}
