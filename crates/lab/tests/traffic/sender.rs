//! The sender's guarantees before and at the end of its run.

use crate::common;

use std::collections::BTreeSet;
use std::io::{ErrorKind, Read};
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

use common::{MS, NO_STOP, Thin, any_port, receive, send, thin};
use nix::sys::socket::{Backlog, listen};
use pillion_bpf::host::interruption::retry;
use pillion_lab::traffic::{SendError, Sender, Traffic};

/// Returns a listener with a backlog of two connections: the kernel ignores further ones until the
/// first are accepted.
fn narrow_listener() -> (SocketAddr, TcpListener) {
    let listener = TcpListener::bind(any_port()).unwrap();
    listen(&listener, Backlog::new(1).unwrap()).unwrap();
    (listener.local_addr().unwrap(), listener)
}

fn error(config: Thin) -> SendError {
    Sender::new(config).unwrap().run(&NO_STOP).unwrap_err()
}

fn config_error(config: Thin) -> String {
    Sender::new(config).err().unwrap().to_string()
}

#[test]
fn no_byte_is_sent_before_all_streams_connect() {
    let (address, listener) = narrow_listener();
    let sent = thread::spawn(move || send(thin(address)));
    let first = listener.accept().unwrap().0;
    first
        .set_read_timeout(Some(Duration::from_millis(300)))
        .unwrap();
    let mut early = vec![first];
    // The kernel has ignored the SYNs of the last two, and the sender retransmits them only after a
    // second.
    match retry(|| early[0].read(&mut [0])).map_err(|error| error.kind()) {
        Err(ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
        other => panic!("before all were connected: {other:?}"),
    }
    while early.len() < 4 {
        early.push(listener.accept().unwrap().0);
    }
    let readers: Vec<_> = early
        .into_iter()
        .map(|mut socket| {
            socket.set_read_timeout(None).unwrap();
            thread::spawn(move || socket.read_to_end(&mut Vec::new()).unwrap())
        })
        .collect();
    let read: usize = readers
        .into_iter()
        .map(|reader| reader.join().unwrap())
        .sum();
    let sent = sent.join().unwrap();
    assert_eq!(sent.failed, 0);
    assert_eq!(sent.bytes, read as u64);
}

#[test]
fn barrier_timeout_names_address_and_connected_streams() {
    let (address, _listener) = narrow_listener();
    let error = error(Thin {
        streams: 10,
        connect_timeout: 300 * MS,
        ..thin(address)
    });
    let SendError::ConnectTimeout { connected, .. } = error else {
        panic!("{error}");
    };
    assert!((1..10).contains(&connected));
    let text = error.to_string();
    assert!(
        text.contains(&format!("{address}: only {connected} of 10 streams")),
        "{text}"
    );
}

#[test]
fn refused_connection_names_address() {
    let listener = TcpListener::bind(any_port()).unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let text = error(thin(address)).to_string();
    assert!(
        text.contains(&format!("connecting to {address}: Connection refused")),
        "{text}"
    );
}

#[test]
fn partial_start_reports_unconnected_streams() {
    let (address, listener) = narrow_listener();
    let sender = Sender::new(Traffic {
        connect_timeout: 300 * MS,
        drain_timeout: 100 * MS,
        partly: true,
        ..Traffic::from(Thin {
            streams: 10,
            ..thin(address)
        })
    });
    let sent = sender.unwrap().run(&NO_STOP).unwrap();
    drop(listener);
    let group = &sent.groups[0];
    assert!((1..10).contains(&group.connected), "{}", group.connected);
    let silent: Vec<_> = sent.streams.iter().filter(|s| !s.connected).collect();
    assert_eq!(silent.len(), 10 - group.connected);
    let error = silent[0].error.as_ref().unwrap();
    assert_eq!(error, "never connected: no answer within 300ms");
}

#[test]
fn unanswered_stream_fails_or_reconnects_from_same_port() {
    let cases = [(false, false), (false, true), (true, true)];
    for ((connects_at_start, reconnect), first_port) in
        cases.into_iter().zip([28_000, 28_010, 28_020])
    {
        let (address, listener) = narrow_listener();
        let mut traffic = Traffic {
            connect_timeout: 30_000 * MS,
            duration: Some(20_000 * MS),
            drain_timeout: 1000 * MS,
            source_port: Some(first_port),
            partly: true,
            ..Traffic::from(thin(address))
        };
        traffic.groups[0].connects_at_start = connects_at_start;
        traffic.groups[0].reconnect = reconnect;
        traffic.groups[0].messages = Some(3);
        // It fails 2 or 3 s after the first SYN.
        traffic.groups[0].socket.syn_retries = Some(1);
        let readers = thread::spawn(move || {
            if !reconnect {
                return listener;
            }
            thread::sleep(4000 * MS);
            let mut ports = BTreeSet::new();
            for _ in 0..4 {
                let (mut socket, peer) = listener.accept().unwrap();
                ports.insert(peer.port());
                thread::spawn(move || socket.read_to_end(&mut Vec::new()));
            }
            assert_eq!(ports, (first_port..first_port + 4).collect());
            listener
        });
        let sent = Sender::new(traffic).unwrap().run(&NO_STOP).unwrap();
        let connected = sent.streams.iter().filter(|it| it.connected).count();
        match reconnect {
            true => assert_eq!((connected, sent.failed), (4, 0), "{:?}", sent.streams),
            false => {
                let errors = sent.streams.iter().filter_map(|it| it.error.as_deref());
                let unanswered = errors.filter(|it| it.contains("timed out"));
                assert_eq!(unanswered.count(), 4 - connected);
                assert!((1..4).contains(&connected), "{connected}");
            }
        }
        readers.join().unwrap();
    }
}

#[test]
fn partial_start_reports_refused_connections() {
    let address = TcpListener::bind(any_port()).unwrap().local_addr().unwrap();
    let sent = send(Traffic {
        partly: true,
        ..thin(address).into()
    });
    assert_eq!((sent.failed, sent.groups[0].connected), (4, 0));
    let error = sent.streams[3].error.as_ref().unwrap();
    assert!(error.contains("Connection refused"), "{error}");
}

#[test]
fn streams_have_requested_numbers_and_source_ports() {
    let (address, received) = receive(4);
    let sent = send(Traffic {
        first_stream: 7,
        source_port: Some(29_000),
        ..thin(address).into()
    });
    let numbers: Vec<u32> = sent.streams.iter().map(|s| s.stream).collect();
    assert_eq!(numbers, [7, 8, 9, 10]);
    let streams = received.join().unwrap().report.streams;
    let ends: Vec<_> = streams
        .iter()
        .map(|s| (s.stream.unwrap(), s.peer.port()))
        .collect();
    assert_eq!(ends, [(7, 29_000), (8, 29_001), (9, 29_002), (10, 29_003)]);
}

#[test]
fn connected_streams_are_silent_until_barrier_opens() {
    let (address, received) = receive(4);
    let sender = Sender::new(thin(address)).unwrap();
    let connected = sender.connect(&NO_STOP).unwrap();
    assert_eq!(connected.count(), 4);
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC).unwrap();
    let start_ns = Duration::from(now).as_nanos() as u64 + 150_000_000;
    let sent = connected.run(start_ns, &NO_STOP).unwrap();
    assert_eq!(sent.report.failed, 0);
    let records = received.join().unwrap().records;
    // A record's time is rounded to microseconds.
    assert!(records.iter().all(|it| it.sent_ns + 1000 > start_ns));
    assert_eq!(records.len() as u64, sent.report.messages);
}

#[test]
fn unknown_congestion_control_is_named() {
    let text = error(Thin {
        congestion: Some("nonesuch".to_owned()),
        ..thin("127.0.0.1:9".parse().unwrap())
    })
    .to_string();
    assert!(text.starts_with("congestion control nonesuch: "), "{text}");
}

#[test]
fn stop_ends_wait_at_barrier() {
    let (address, _listener) = narrow_listener();
    let config = Thin {
        streams: 10,
        ..thin(address)
    };
    let result = Sender::new(config).unwrap().run(&AtomicBool::new(true));
    assert!(matches!(result, Err(SendError::Stopped { .. })));
}

#[test]
fn missing_close_of_receiver_is_reported() {
    let listener = TcpListener::bind(any_port()).unwrap();
    let sent = send(Thin {
        drain_timeout: 100 * MS,
        ..thin(listener.local_addr().unwrap())
    });
    assert_eq!(sent.failed, 4);
    let error = sent.streams[0].error.as_ref().unwrap();
    assert!(
        error.contains("did not close in time; 0 messages"),
        "{error}"
    );
    assert!(sent.retransmissions.is_some());
}

#[test]
fn invalid_configurations_are_rejected_with_remedy() {
    let good = thin("127.0.0.1:9".parse().unwrap());
    assert!(Sender::new(good.clone()).is_ok());
    let size = config_error(Thin {
        size: 0,
        ..good.clone()
    });
    assert!(size.contains("0 B: expected 1 to 1048576 B"), "{size}");
    let ramp_up = config_error(Thin {
        ramp_up: Some(100 * MS),
        ..good.clone()
    });
    assert!(ramp_up.contains("would start after the end"), "{ramp_up}");
    let streams = config_error(Thin {
        streams: 0,
        ..good.clone()
    });
    assert!(
        streams.contains("number of streams 0: expected 1"),
        "{streams}"
    );
    let itt = config_error(Thin {
        itt: Duration::ZERO,
        ..good.clone()
    });
    assert!(itt.contains("at least 1 us"), "{itt}");
    let ports = Sender::new(Traffic {
        source_port: Some(65_533),
        ..good.clone().into()
    });
    let ports = ports.err().unwrap().to_string();
    assert!(ports.contains("65533 for 4 streams"), "{ports}");
    let port = config_error(Thin {
        to: any_port(),
        ..good.clone()
    });
    assert!(port.contains("port 0"), "{port}");
    let duration = config_error(Thin {
        duration: Duration::ZERO,
        ..good
    });
    assert!(duration.contains("duration 0"), "{duration}");
}
