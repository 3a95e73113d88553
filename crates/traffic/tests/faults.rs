//! Wrong and broken connections: each is found, located and described.

mod common;

use std::io::{Read, Write};

use common::{connection, proxy, receive, receive_bytes, send, thin};
use pillion_traffic::wire::{Message, Preface};
use pillion_traffic::{Fault, FaultKind, SendConfig};

const SECOND_MESSAGE: usize = Preface::LEN + 120;

/// The one fault of a connection that carries `bytes`.
fn fault(bytes: &[u8]) -> Fault {
    let report = receive_bytes(bytes).report;
    assert_eq!(report.corrupt + report.incomplete, 1);
    report.streams[0].fault.clone().unwrap()
}

#[test]
fn a_whole_connection_has_no_fault() {
    let received = receive_bytes(&connection(3));
    let stream = &received.report.streams[0];
    assert_eq!((stream.fault.clone(), stream.messages), (None, 3));
    assert_eq!(received.records[2].sent_ns, 1_002);
}

#[test]
fn a_byte_corrupted_on_the_way_is_located() {
    let (address, received) = receive(1);
    let address = proxy(address, |from, to| {
        let mut bytes = vec![0; SECOND_MESSAGE + 120];
        from.read_exact(&mut bytes).unwrap();
        bytes[SECOND_MESSAGE + 77] ^= 0x20;
        to.write_all(&bytes).unwrap();
    });
    let sent = send(SendConfig {
        streams: 1,
        ..thin(address)
    });
    assert_eq!(sent.failed, 1);
    let report = received.join().unwrap().report;
    assert_eq!(
        (report.corrupt, report.incomplete, report.messages),
        (1, 0, 1)
    );
    let fault = report.streams[0].fault.as_ref().unwrap();
    assert_eq!(fault.offset, SECOND_MESSAGE as u64 + 77);
    assert!(
        fault.what.starts_with("message 1: content: found "),
        "{fault:?}"
    );
}

#[test]
fn a_truncated_stream_is_incomplete() {
    let bytes = connection(3);
    let fault = fault(&bytes[..SECOND_MESSAGE + 10]);
    assert_eq!(fault.kind, FaultKind::Incomplete);
    assert_eq!(fault.offset, SECOND_MESSAGE as u64 + 10);
    assert_eq!(
        fault.what,
        "closed after 1 of 3 messages and 10 bytes of the next"
    );
}

#[test]
fn a_connection_without_a_byte_is_incomplete() {
    let fault = fault(b"");
    assert_eq!((fault.kind, fault.offset), (FaultKind::Incomplete, 0));
    assert_eq!(fault.what, "closed after 0 of 36 bytes of preface");
}

#[test]
fn a_wrong_preface_is_refused() {
    let received = receive_bytes(b"GET / HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n");
    let stream = &received.report.streams[0];
    assert_eq!((stream.stream, stream.expected), (None, None));
    let fault = stream.fault.as_ref().unwrap();
    assert_eq!((fault.kind, fault.offset), (FaultKind::Corrupt, 0));
    assert!(
        fault.what.starts_with("preface: magic: found "),
        "{fault:?}"
    );
}

#[test]
fn a_message_that_comes_twice_is_found() {
    let mut bytes = connection(3);
    bytes.splice(SECOND_MESSAGE..SECOND_MESSAGE, connection(1)[36..].to_vec());
    let fault = fault(&bytes);
    assert_eq!(fault.kind, FaultKind::Corrupt);
    assert_eq!(fault.offset, SECOND_MESSAGE as u64 + 4);
    assert_eq!(
        fault.what,
        "message 1: sequence: found 0 (0x0), expected 1 (0x1)"
    );
}

#[test]
fn a_missing_message_is_found() {
    let mut bytes = connection(3);
    bytes.drain(Preface::LEN..SECOND_MESSAGE);
    let fault = fault(&bytes);
    assert_eq!(
        fault.what,
        "message 0: sequence: found 1 (0x1), expected 0 (0x0)"
    );
}

#[test]
fn a_byte_too_many_is_found() {
    let mut bytes = connection(3);
    bytes.push(0);
    let fault = fault(&bytes);
    assert_eq!(fault.kind, FaultKind::Corrupt);
    assert_eq!(fault.offset, bytes.len() as u64 - 1);
    assert_eq!(fault.what, "data after the last of 3 messages");
}

#[test]
fn a_message_from_the_future_is_refused() {
    let preface = Preface {
        stream: 0,
        seed: 0,
        messages: 1,
        size: Message::HEADER_LEN as u32,
    };
    let mut bytes = preface.to_bytes().to_vec();
    let (sequence, sent_ns) = (0, u64::MAX);
    Message { sequence, sent_ns }.append(&preface, &mut bytes);
    let fault = fault(&bytes);
    assert!(fault.what.contains("is it the same host?"), "{fault:?}");
}

#[test]
fn a_fault_in_one_stream_leaves_the_others_alone() {
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
