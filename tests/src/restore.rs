//! A connection that is taken down and put up again, as checkpoints do it (TCP_REPAIR).

use std::net::TcpStream;
use std::os::fd::{AsFd, AsRawFd};

use nix::sys::socket::{SockaddrStorage, bind, setsockopt, sockopt::ReuseAddr};

use crate::Wire;
use crate::socket::{self, option, set_option};

/// Queues, as TCP_REPAIR_QUEUE has them.
const RECEIVED: i32 = 1;
const SENT: i32 = 2;
/// The peer's options of the handshake, as `struct tcp_repair_opt` has their codes.
const MSS: u32 = 2;
const SACK_PERMITTED: u32 = 4;
const TIMESTAMPS: u32 = 8;

impl Wire {
    /// Has another socket go on with the connection, of which all is acknowledged. It asks the peer
    /// for its window, by the byte before the next one, and sends nothing until it knows.
    pub fn restore(&mut self) {
        self.script.note("restore");
        let old = &self.stream;
        let [local, peer] = [old.local_addr(), old.peer_addr()].map(|it| it.expect("an end"));
        let mss = self.setup.mss.into();
        let clock = get(old, libc::TCP_TIMESTAMP);
        set(old, libc::TCP_REPAIR, 1);
        let queues = [SENT, RECEIVED].map(|queue| {
            set(old, libc::TCP_REPAIR_QUEUE, queue);
            (queue, get(old, libc::TCP_QUEUE_SEQ))
        });
        // While it is repaired it says nothing of that to its peer. Closing it alone would not do:
        // what another test begins at this moment has it open, too, until it runs.
        socket::disconnect(old);
        let new = socket::new(local.ip());
        self.stream = TcpStream::from(new);
        let new = &self.stream;
        setsockopt(new, ReuseAddr, &true).expect("SO_REUSEADDR");
        set(new, libc::TCP_REPAIR, 1);
        bind(new.as_raw_fd(), &SockaddrStorage::from(local)).expect("the same end");
        for (queue, next) in queues {
            set(new, libc::TCP_REPAIR_QUEUE, queue);
            set(new, libc::TCP_QUEUE_SEQ, next);
        }
        socket::begin(new, peer);
        let mut options = vec![(MSS, mss)];
        options.extend(self.setup.sack.then_some((SACK_PERMITTED, 0)));
        options.extend(self.setup.timestamps.then_some((TIMESTAMPS, 0)));
        let options = options.iter().flat_map(|(code, value)| [*code, *value]);
        let options: Vec<u8> = options.flat_map(u32::to_ne_bytes).collect();
        set_option(new, libc::IPPROTO_TCP, libc::TCP_REPAIR_OPTIONS, &options);
        set(new, libc::TCP_TIMESTAMP, clock);
        set(new, libc::TCP_REPAIR, 0);
        set(new, libc::TCP_NODELAY, self.setup.nodelay.into());
    }
}

fn set(socket: impl AsFd, name: i32, value: i32) {
    set_option(socket, libc::IPPROTO_TCP, name, &value.to_ne_bytes());
}

fn get(socket: impl AsFd, name: i32) -> i32 {
    option(socket, libc::IPPROTO_TCP, name)
}
