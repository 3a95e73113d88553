//! Streams of UDP datagrams: at their rate, verified, counted, ended.

use crate::common;

use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::{MS, NEVER, any_port, send, traffic};
use pillion_lab::traffic::wire::{Datagram, What};
use pillion_lab::traffic::{FaultKind, Kind, ReceiveConfig, Received, Receiver};

fn receiver(streams: usize) -> Receiver {
    Receiver::bind(ReceiveConfig {
        listen: any_port(),
        streams: Some(streams),
        datagrams: true,
        records: true,
    })
    .unwrap()
}

#[test]
fn datagrams_leave_at_their_rate_and_are_verified_and_recorded() {
    let receiver = receiver(2);
    let to = receiver.local_addr();
    let received = thread::spawn(|| receiver.run(&NEVER).unwrap());
    // 500 B each 2 ms are 2 Mbit/s, for 200 ms.
    let kind = Kind::Datagrams {
        size: 500,
        rate: 2_000_000,
    };
    let sent = send(traffic(to, 2, kind));
    let Received { report, records } = received.join().unwrap();
    assert_eq!((sent.failed, sent.messages), (0, 200), "{sent:?}");
    assert!(sent.streams.iter().all(|stream| stream.connected));
    assert_eq!((report.connections, report.messages), (2, 200));
    assert_eq!((report.bytes, report.corrupt), (100_000, 0));
    let sequences = records
        .iter()
        .map(|record| (record.stream, record.sequence));
    let expected = (0..2).flat_map(|stream| (0..100).map(move |sequence| (stream, sequence)));
    assert!(sequences.eq(expected));
    let of_first = records.iter().filter(|record| record.stream == 0);
    let times: Vec<u64> = of_first.map(|record| record.sent_ns).collect();
    let took = Duration::from_nanos(times[99] - times[0]);
    assert!((190 * MS..300 * MS).contains(&took), "{took:?}");
}

#[test]
fn a_datagram_that_comes_twice_counts_once_and_a_wrong_byte_is_told() {
    let receiver = receiver(1);
    let to = receiver.local_addr();
    let received = thread::spawn(|| receiver.run(&NEVER).unwrap());
    let socket = UdpSocket::bind(any_port()).unwrap();
    socket.connect(to).unwrap();
    let mut bytes = Vec::new();
    let mut put = |what, sequence, wrong: Option<usize>| {
        let datagram = Datagram {
            what,
            stream: 3,
            seed: 7,
            sent_ns: 1,
            sequence,
            size: 100,
        };
        datagram.write(&mut bytes);
        if let Some(place) = wrong {
            bytes[place] ^= 1;
        }
        socket.send(&bytes).unwrap();
    };
    put(What::Message, 0, None);
    put(What::Message, 0, None);
    put(What::Message, 1, Some(60));
    // What is no such datagram is nobody's.
    put(What::Message, 2, Some(5));
    put(What::End, 3, None);
    let report = received.join().unwrap().report;
    assert_eq!((report.connections, report.messages), (1, 1));
    assert_eq!(report.bytes, 100, "no byte counts twice, nor a wrong one");
    let fault = report.streams[0].fault.clone().unwrap();
    assert_eq!((fault.kind, fault.offset), (FaultKind::Corrupt, 60));
    let mut answer = [0; 100];
    let len = socket.recv(&mut answer).unwrap();
    let answer = Datagram::read(&answer[..len]).unwrap();
    assert_eq!((answer.what, answer.stream), (What::EndHeard, 3));
}

#[test]
fn a_datagram_that_was_cut_or_drawn_out_on_the_way_is_no_message() {
    let datagram = Datagram {
        what: What::Message,
        stream: 0,
        seed: 7,
        sent_ns: 1,
        sequence: 0,
        size: 100,
    };
    let mut whole = Vec::new();
    datagram.write(&mut whole);
    for (len, offset) in [(Datagram::LEN, Datagram::LEN), (99, 99), (101, 100)] {
        let receiver = receiver(1);
        let socket = UdpSocket::bind(any_port()).unwrap();
        socket.connect(receiver.local_addr()).unwrap();
        let received = thread::spawn(|| receiver.run(&NEVER).unwrap());
        let mut bytes = whole.clone();
        bytes.resize(len, 0);
        socket.send(&bytes).unwrap();
        let end = Datagram {
            what: What::End,
            ..datagram
        };
        end.write(&mut bytes);
        socket.send(&bytes).unwrap();
        let report = received.join().unwrap().report;
        assert_eq!((report.messages, report.corrupt), (0, 1), "{len}");
        let fault = report.streams[0].fault.clone().unwrap();
        assert_eq!(fault.offset, offset as u64);
        assert!(
            fault.what.contains(&format!("{len} B came of 100 B")),
            "{fault:?}"
        );
    }
}

#[test]
fn without_a_receiver_the_stream_fails_and_says_why() {
    // Its port is free again.
    let to = UdpSocket::bind(any_port()).unwrap().local_addr().unwrap();
    let kind = Kind::Datagrams {
        size: 500,
        rate: 2_000_000,
    };
    let sent = send(traffic(to, 1, kind));
    assert_eq!((sent.failed, sent.streams[0].connected), (1, false));
    let error = sent.streams[0].error.as_deref().unwrap();
    assert!(error.contains("--datagrams"), "{error}");
}

#[test]
fn a_stopped_sender_ends_at_once_also_where_it_cannot_keep_to_its_rate() {
    for (streams, rate) in [(1, 2_000_000), (50, 4_000_000_000)] {
        let receiver = receiver(streams);
        let to = receiver.local_addr();
        let [stop, end] = [false; 2].map(AtomicBool::new);
        let (stop, end) = (&stop, &end);
        let progress = receiver.progress();
        thread::scope(|scope| {
            let received = scope.spawn(|| receiver.run(end).unwrap());
            let mut config = traffic(to, streams, Kind::Datagrams { size: 500, rate });
            config.duration = Some(Duration::from_secs(60));
            let sender = pillion_lab::traffic::Sender::new(config).unwrap();
            let sent = scope.spawn(move || sender.run(stop).unwrap());
            while progress.load(Ordering::Relaxed) < 20 {
                thread::sleep(MS);
            }
            stop.store(true, Ordering::Relaxed);
            let stopped = Instant::now();
            assert_eq!(sent.join().unwrap().failed, streams);
            assert!(stopped.elapsed() < Duration::from_secs(10), "{rate}");
            end.store(true, Ordering::Relaxed);
            assert!(received.join().unwrap().report.messages >= 20);
        });
    }
}
