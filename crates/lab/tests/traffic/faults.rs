//! Wrong and broken connections: each fault is detected, located and described.

use crate::common;

use std::io::{Read, Write};
use std::net::TcpStream;

use std::os::fd::AsFd;

use common::{Thin, connection, proxy, receive, receive_bytes, send, thin};
use nix::sys::socket::{setsockopt, sockopt};
use pillion_lab::traffic::wire::{Encoder, Preface, Role};
use pillion_lab::traffic::{Fault, FaultKind};

/// Returns the only fault of a connection with `bytes`.
fn fault(bytes: &[u8]) -> Fault {
    let report = receive_bytes(bytes).report;
    assert_eq!(report.corrupt + report.incomplete, 1);
    report.streams[0].fault.clone().unwrap()
}

#[test]
fn complete_connection_has_no_fault() {
    let received = receive_bytes(&connection(3, true));
    let stream = &received.report.streams[0];
    assert_eq!((stream.fault.clone(), stream.messages), (None, 3));
    assert_eq!(received.records[2].sent_ns, 3_000_000);
}

#[test]
fn corrupted_byte_is_located() {
    const WRONG_OFFSET: usize = 120 + 77;
    let (address, received) = receive(1);
    let address = proxy(address, |from, to| {
        let mut bytes = vec![0; 240];
        from.read_exact(&mut bytes).unwrap();
        bytes[WRONG_OFFSET] ^= 0x20;
        to.write_all(&bytes).unwrap();
    });
    let sent = send(Thin {
        streams: 1,
        ..thin(address)
    });
    assert_eq!(sent.failed, 1);
    let report = received.join().unwrap().report;
    assert_eq!((report.corrupt, report.incomplete), (1, 0));
    let fault = report.streams[0].fault.as_ref().unwrap();
    assert_eq!(fault.offset, WRONG_OFFSET as u64);
    assert!(
        fault.what.starts_with("message 1: content: found "),
        "{fault:?}"
    );
}

#[test]
fn truncated_stream_is_incomplete() {
    let bytes = connection(3, true);
    let fault = fault(&bytes[..130]);
    assert_eq!(fault.kind, FaultKind::Incomplete);
    assert_eq!(fault.offset, 130);
    assert_eq!(
        fault.what,
        "closed after 1 messages, before the sender's end"
    );
}

#[test]
fn empty_connection_is_incomplete() {
    let fault = fault(b"");
    assert_eq!((fault.kind, fault.offset), (FaultKind::Incomplete, 0));
    assert_eq!(fault.what, "closed after 0 of 44 bytes of preface");
}

#[test]
fn reset_connection_is_counted_and_keeps_its_messages() {
    let (address, received) = receive(5);
    let mut socket = TcpStream::connect(address).unwrap();
    socket.write_all(&connection(3, false)).unwrap();
    // This makes the close reset the connection.
    let linger = libc::linger {
        l_onoff: 1,
        l_linger: 0,
    };
    setsockopt(&socket.as_fd(), sockopt::Linger, &linger).unwrap();
    let sent = send(thin(address));
    drop(socket);
    let report = received.join().unwrap().report;
    assert_eq!(
        (report.broken, report.incomplete, report.corrupt),
        (1, 0, 0)
    );
    assert_eq!(report.messages, sent.messages + 3);
    let fault = report
        .streams
        .iter()
        .find_map(|stream| stream.fault.clone());
    let what = fault.unwrap().what;
    assert!(what.starts_with("Connection reset by peer"), "{what}");
    assert!(what.contains("after 3 messages"), "{what}");
}

#[test]
fn invalid_preface_is_rejected() {
    let received = receive_bytes(b"GET / HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n");
    let stream = &received.report.streams[0];
    assert_eq!(stream.stream, None);
    let fault = stream.fault.as_ref().unwrap();
    assert_eq!((fault.kind, fault.offset), (FaultKind::Corrupt, 0));
    assert!(
        fault.what.starts_with("preface: magic: found "),
        "{fault:?}"
    );
}

#[test]
fn duplicated_message_is_detected() {
    let mut bytes = connection(3, true);
    bytes.splice(240..240, bytes[120..240].to_vec());
    let fault = fault(&bytes);
    assert_eq!((fault.kind, fault.offset), (FaultKind::Corrupt, 240));
    assert!(
        fault.what.starts_with("message 2: check of the note"),
        "{fault:?}"
    );
}

#[test]
fn missing_message_is_detected() {
    let mut bytes = connection(3, true);
    bytes.drain(120..240);
    let fault = fault(&bytes);
    assert_eq!((fault.kind, fault.offset), (FaultKind::Corrupt, 120));
    assert!(
        fault.what.starts_with("message 1: check of the note"),
        "{fault:?}"
    );
}

#[test]
fn extra_byte_is_detected() {
    let mut bytes = connection(3, true);
    bytes.push(0);
    let fault = fault(&bytes);
    assert_eq!(fault.kind, FaultKind::Corrupt);
    assert_eq!(fault.offset, bytes.len() as u64 - 1);
    assert_eq!(fault.what, "data after the end of 3 messages");
}

#[test]
fn message_from_future_is_rejected() {
    let mut encoder = Encoder::new(Preface {
        role: Role::Sender,
        stream: 0,
        seed: 0,
        base_us: u64::MAX,
        answer_every: 0,
        answer_size: 0,
    });
    let mut bytes = Vec::new();
    encoder.message(120, 0, &mut bytes);
    encoder.end(&mut bytes);
    let fault = fault(&bytes);
    assert!(fault.what.contains("different hosts?"), "{fault:?}");
}

#[test]
fn fault_in_one_stream_does_not_affect_others() {
    let (address, received) = receive(5);
    let wrong = std::thread::spawn(move || {
        let mut socket = std::net::TcpStream::connect(address).unwrap();
        socket.write_all(&[0xff; 100]).unwrap();
    });
    let sent = send(thin(address));
    wrong.join().unwrap();
    let report = received.join().unwrap().report;
    assert_eq!((report.connections, report.corrupt), (5, 1));
    assert_eq!((report.messages, report.incomplete), (sent.messages, 0));
}
