//! Socket features that applications use work the same with bundling, and every byte arrives.

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags};
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, SockaddrIn, SockaddrStorage, connect, recv, recvmsg, send,
};
use pillion_bpf::host::interruption::{poll, retry};
use pillion_bpf::host::socket_option::set;
use pillion_bpf::{Counters, Outcome};

use crate::common::*;
use crate::stream::Transport::{Bundled, BundledMptcp, Plain};
use crate::stream::{
    attach, pause, read_to_end, send_spaced, socket, test_data, transfer, transfer_all,
};

/// Checks that more than half of the segments were bundled.
fn assert_bundled(counters: Option<Counters>) {
    let counters = counters.expect("a bundler");
    let bundled = counters.of(Outcome::Bundled);
    assert!(bundled * 2 > counters.segments(), "{counters:?}");
}

/// Reads the error queue until `is_last` holds or ten seconds have passed.
fn reports(
    stream: &TcpStream,
    origin: u8,
    is_last: impl Fn(&libc::sock_extended_err) -> bool,
) -> Vec<libc::sock_extended_err> {
    let mut reports = Vec::new();
    let started = Instant::now();
    while !reports.iter().any(&is_last) && started.elapsed() < Duration::from_secs(10) {
        let mut room = nix::cmsg_space!(libc::sock_extended_err, SockaddrIn, [libc::timespec; 3]);
        let flags = MsgFlags::MSG_ERRQUEUE;
        let message = match recvmsg::<()>(stream.as_raw_fd(), &mut [], Some(&mut room), flags) {
            Err(Errno::EAGAIN) => {
                pause();
                continue;
            }
            other => other.expect("the error queue"),
        };
        for control in message.cmsgs().expect("they have room") {
            if let ControlMessageOwned::Ipv4RecvErr(report, _) = control {
                assert_eq!(report.ee_origin, origin, "{report:?}");
                reports.push(report);
            }
        }
    }
    reports
}

/// Sends messages of 100 bytes. Returns the last bytes reported as sent, as scheduled and as
/// acknowledged, in order and without repetitions: TCP may have retransmitted some.
fn timestamps(stream: &TcpStream, messages: u32) -> [Vec<u32>; 3] {
    const SENT: u32 = 0;
    const SCHEDULED: u32 = 1;
    const ACKNOWLEDGED: u32 = 2;
    let flags = libc::SOF_TIMESTAMPING_OPT_ID
        | libc::SOF_TIMESTAMPING_OPT_TSONLY
        | libc::SOF_TIMESTAMPING_SOFTWARE
        | libc::SOF_TIMESTAMPING_TX_SOFTWARE
        | libc::SOF_TIMESTAMPING_TX_SCHED
        | libc::SOF_TIMESTAMPING_TX_ACK;
    set(stream, (libc::SOL_SOCKET, libc::SO_TIMESTAMPING), &flags).unwrap();
    let bytes = 100 * messages;
    send_spaced(stream, &test_data(bytes as usize), 100, 0);
    let reports = reports(stream, libc::SO_EE_ORIGIN_TIMESTAMPING, |report| {
        report.ee_info == ACKNOWLEDGED && report.ee_data == bytes - 1
    });
    [SENT, SCHEDULED, ACKNOWLEDGED].map(|kind| {
        let mut bytes = Vec::new();
        for report in reports.iter().filter(|report| report.ee_info == kind) {
            if !bytes.contains(&report.ee_data) {
                bytes.push(report.ee_data);
            }
        }
        bytes
    })
}

#[test]
fn transmit_timestamps_match_plain_tcp() {
    needs_root!();
    let outcomes =
        [Plain, Bundled].map(|transport| transfer_all(transport, |stream| timestamps(stream, 50)));
    let last_bytes: Vec<u32> = (1..=50).map(|message| 100 * message - 1).collect();
    for outcome in &outcomes {
        assert_eq!(outcome.sent, [(); 3].map(|()| last_bytes.clone()));
        assert_eq!(outcome.received, test_data(5000));
    }
    let [_, bundled] = outcomes;
    assert_bundled(bundled.counters);
}

#[test]
fn zero_copy_send_completes_in_order() {
    const ZERO_COPY: u8 = 5; // SO_EE_ORIGIN_ZEROCOPY
    needs_root!();
    let outcome = transfer_all(Bundled, |stream| {
        set(stream, (libc::SOL_SOCKET, libc::SO_ZEROCOPY), &1).unwrap();
        // The data must not change until the send completes.
        let data = test_data(5000);
        send_spaced(stream, &data, 100, libc::MSG_ZEROCOPY);
        let mut next = 0;
        for range in reports(stream, ZERO_COPY, |range| range.ee_data == 49) {
            assert_eq!(range.ee_info, next, "sends complete in order");
            next = range.ee_data + 1;
        }
        next
    });
    assert_eq!(outcome.sent, 50);
    assert_eq!(outcome.received, test_data(5000));
    assert_bundled(outcome.counters);
}

#[test]
fn sendfile_arrives_intact() {
    needs_root!();
    let outcome = transfer_all(Bundled, |stream| {
        let mut file: File = tempfile::tempfile().expect("a file");
        file.write_all(&test_data(5000)).expect("written");
        file.rewind().expect("rewound");
        let null = std::ptr::null_mut();
        for _ in 0..50 {
            // SAFETY: two descriptors that live across the call, and no offset.
            let sent = unsafe { libc::sendfile(stream.as_raw_fd(), file.as_raw_fd(), null, 100) };
            assert_eq!(sent, 100, "{}", std::io::Error::last_os_error());
            pause();
        }
    });
    assert_eq!(outcome.received, test_data(5000));
    assert_bundled(outcome.counters);
}

#[test]
fn msg_eor_records_arrive_intact() {
    needs_root!();
    let outcome = transfer_all(Bundled, |stream| {
        send_spaced(stream, &test_data(5000), 100, libc::MSG_EOR);
    });
    assert_eq!(outcome.received, test_data(5000));
    assert_bundled(outcome.counters);
}

#[test]
fn corked_messages_are_sent_whole_and_bundled() {
    needs_root!();
    let outcome = transfer_all(Bundled, |stream| {
        let cork = (libc::IPPROTO_TCP, libc::TCP_CORK);
        for message in test_data(5000).chunks(100) {
            set(stream, cork, &1).unwrap();
            for part in message.chunks(10) {
                let sent = retry(|| send(stream.as_raw_fd(), part, MsgFlags::empty()));
                assert_eq!(sent.expect("sent"), part.len());
            }
            set(stream, cork, &0).unwrap();
            pause();
        }
    });
    assert_eq!(outcome.received, test_data(5000));
    let segments = outcome.counters.as_ref().expect("a bundler").segments();
    assert!(segments < 100, "500 writes in {segments} segments");
    assert_bundled(outcome.counters);
}

/// Reads the data before the urgent mark, then the urgent byte, then the rest.
fn read_urgent(mut stream: TcpStream) -> (Vec<u8>, u8, Vec<u8>) {
    let mut fds = [PollFd::new(
        std::os::fd::AsFd::as_fd(&stream),
        PollFlags::POLLPRI,
    )];
    let timeout = Duration::from_secs(10);
    assert_eq!(poll(&mut fds, Some(timeout)), Ok(1), "urgent data come");
    let mut before = Vec::new();
    while !at_mark(&stream) {
        let mut some = [0; 100];
        let length = retry(|| stream.read(&mut some)).expect("data before the mark");
        assert_ne!(length, 0, "the mark comes before the end");
        before.extend(&some[..length]);
    }
    let mut urgent = [0];
    let flags = MsgFlags::MSG_OOB;
    let received = retry(|| recv(stream.as_raw_fd(), &mut urgent, flags));
    assert_eq!(received.expect("the urgent byte"), 1);
    (before, urgent[0], read_to_end(stream))
}

fn at_mark(stream: &TcpStream) -> bool {
    const SIOCATMARK: libc::c_ulong = 0x8905;
    let mut answer: libc::c_int = 0;
    // SAFETY: SIOCATMARK writes one integer, which lives across the call.
    let result = unsafe { libc::ioctl(stream.as_raw_fd(), SIOCATMARK as _, &raw mut answer) };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
    answer != 0
}

#[test]
fn urgent_byte_arrives_at_its_mark() {
    needs_root!();
    let send = |stream: &TcpStream| {
        send_spaced(stream, &test_data(2500), 100, 0);
        send_spaced(stream, b"!", 1, libc::MSG_OOB);
        send_spaced(stream, &test_data(2500), 100, 0);
    };
    let outcome = transfer(Bundled, send, read_urgent);
    assert_eq!(outcome.received, (test_data(2500), b'!', test_data(2500)));
    let counters = outcome.counters.as_ref().expect("a bundler");
    assert_eq!(counters.of(Outcome::Flags), 1);
    assert_bundled(outcome.counters);
}

#[test]
fn mptcp_is_not_bundled() {
    needs_root!();
    let outcome = transfer_all(BundledMptcp, |stream| {
        send_spaced(stream, &test_data(5000), 100, 0);
    });
    assert_eq!(outcome.received, test_data(5000));
    let counters = outcome.counters.expect("a bundler");
    assert_eq!(counters.of(Outcome::Bundled), 0, "{counters:?}");
    assert!(counters.of(Outcome::TcpOption) > 40, "{counters:?}");
}

/// The client falls back to plain TCP (RFC 8684, section 3.7).
#[test]
fn mptcp_fallback_client_receives_all_data() {
    needs_root!();
    let pair = clean_pair();
    let address = SocketAddr::from((pair.sender.address, 7777));
    let (ready, is_ready) = channel();
    let sender = pair.sender.namespace.spawn(move || {
        let _attachment = attach();
        let listener = TcpListener::bind(address).expect("a listener");
        ready.send(()).expect("the receiver waits");
        let (stream, _) = listener.accept().expect("a connection");
        stream.set_nodelay(true).expect("TCP_NODELAY");
        send_spaced(&stream, &test_data(5000), 100, 0);
    });
    is_ready.recv().expect("it listens");
    let receive = move || {
        let socket = socket(BundledMptcp);
        let address = SockaddrStorage::from(address);
        retry(|| connect(socket.as_raw_fd(), &address)).expect("connect");
        read_to_end(socket.into())
    };
    let received = pair.receiver.namespace.enter(receive).expect("enter");
    sender.join().expect("a sender").expect("its namespace");
    assert!(received == test_data(5000), "{} bytes", received.len());
}

/// Sends fifty megabytes at full speed in records of these sizes.
fn bulk_transfer(records: &'static [usize], flags: MsgFlags) -> Counters {
    const BYTES: usize = 50_000_000;
    let outcome = transfer_all(Bundled, move |stream| {
        let data = test_data(BYTES);
        let (mut at, mut lengths) = (0, records.iter().cycle());
        while at < BYTES {
            let end = BYTES.min(at + lengths.next().expect("they repeat"));
            at += retry(|| send(stream.as_raw_fd(), &data[at..end], flags)).expect("sent");
        }
    });
    assert!(outcome.received == test_data(BYTES), "every byte intact");
    outcome.counters.expect("a bundler")
}

#[test]
fn bulk_transfer_arrives_intact() {
    needs_root!();
    let counters = bulk_transfer(&[100_000], MsgFlags::empty());
    assert!(counters.of(Outcome::Gso) > 0, "{counters:?}");
}

#[test]
fn bulk_transfer_of_mixed_record_sizes_arrives_intact() {
    needs_root!();
    let records = &[
        100, 1000, 10_000, 1, 1448, 300, 20, 2047, 1400, 7, 600, 5000,
    ];
    let counters = bulk_transfer(records, MsgFlags::MSG_EOR);
    for outcome in [
        Outcome::Bundled,
        Outcome::Gso,
        Outcome::FullSize,
        Outcome::NoRoom,
    ] {
        assert!(counters.of(outcome) > 100, "{outcome:?}: {counters:?}");
    }
}
