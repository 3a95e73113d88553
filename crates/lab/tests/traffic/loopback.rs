//! A sender and a receiver without faults, by streams and by datagrams.

use crate::common;

use std::io::Read;
use std::net::{TcpListener, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::{MS, NO_STOP, Thin, any_port, forward_all, proxy, receive, send, thin, traffic};
use pillion_bpf::host::interruption::retry;
use pillion_lab::traffic::wire::{Datagram, DatagramKind, MAX_SIZE};
use pillion_lab::traffic::{
    FaultKind, Kind, Quantiles, ReceiveConfig, ReceiveResult, Receiver, Sender,
};

#[test]
fn all_messages_of_all_streams_arrive_verified() {
    let (address, received) = receive(20);
    let config = Thin {
        streams: 20,
        ..thin(address)
    };
    let sender = Sender::new(config).unwrap();
    let (planned, progress) = (sender.planned().unwrap(), sender.progress());
    let sent = sender.run(&NO_STOP).unwrap();
    let received = received.join().unwrap();

    assert!(planned > 20 * 20, "{planned} messages planned");
    assert_eq!((sent.messages, sent.failed), (planned, 0));
    assert_eq!(progress.load(Ordering::Relaxed), planned);
    let report = &received.report;
    assert_eq!((report.corrupt, report.incomplete), (0, 0));
    assert_eq!((report.connections, report.messages), (20, planned));
    assert_eq!(report.bytes, sent.bytes);
    // pillion's own information is inside the messages, except for the end of each stream.
    let ends = sent.bytes - planned * 120;
    assert!((20 * 3..20 * 8).contains(&ends), "{ends} bytes for 20 ends");
    for (stream, (sent, received)) in (0..).zip(sent.streams.iter().zip(&report.streams)) {
        assert_eq!((sent.stream, received.stream), (stream, Some(stream)));
        assert_eq!(sent.messages, received.messages);
        assert!(sent.tcp.segs_out > Some(0));
        assert!(sent.tcp.cwnd.is_some() && sent.tcp.rtt_us.is_some());
    }
}

#[test]
fn records_are_ordered_and_match_quantiles() {
    let (address, received) = receive(4);
    send(thin(address));
    let received = received.join().unwrap();
    let records = &received.records;
    assert_eq!(records.len() as u64, received.report.messages);
    for pair in records.windows(2) {
        let next = (pair[0].stream, pair[0].sequence + 1);
        let first_of_next = (pair[0].stream + 1, 0);
        let this = (pair[1].stream, pair[1].sequence);
        assert!(this == next || this == first_of_next, "{pair:?}");
        assert!(this == first_of_next || pair[0].sent_ns < pair[1].sent_ns);
    }
    let latencies = records.iter().map(|record| record.latency_us).collect();
    assert_eq!(received.report.latency_us, Quantiles::exact(latencies));
}

#[test]
fn slow_reader_blocks_writes_without_loss() {
    let (address, received) = receive(1);
    let address = proxy(address, |from, to| {
        thread::sleep(600 * MS);
        forward_all(from, to);
    });
    // 25 MB, more than the kernel buffers by default, in messages small enough to share a write.
    let sent = send(Thin {
        streams: 1,
        itt: MS / 10,
        itt_sd: Duration::ZERO,
        size: 5000,
        duration: 500 * MS,
        ..thin(address)
    });
    let report = received.join().unwrap().report;
    assert_eq!(sent.streams[0].error, None);
    assert!(sent.blocked_writes > 0);
    assert_eq!((report.corrupt, report.incomplete), (0, 0));
    assert_eq!(report.messages, sent.messages);
    // A message written when due, but delayed by the reader, is measured as late.
    assert!(report.latency_us.unwrap().max > 100_000.0);
}

#[test]
fn messages_of_maximum_size_arrive_verified() {
    let (address, received) = receive(2);
    let sent = send(Thin {
        streams: 2,
        itt: 50 * MS,
        size: MAX_SIZE as usize,
        ..thin(address)
    });
    let report = received.join().unwrap().report;
    assert_eq!((sent.failed, report.corrupt, report.incomplete), (0, 0, 0));
    assert_eq!(report.messages, sent.messages);
}

#[test]
fn stopped_receiver_reports_received_messages() {
    let receiver = Receiver::bind(ReceiveConfig {
        listen: any_port(),
        streams: None,
        datagrams: false,
        records: false,
    })
    .unwrap();
    let config = Thin {
        duration: Duration::from_secs(60),
        ..thin(receiver.local_addr())
    };
    let progress = receiver.progress();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let received = scope.spawn(|| receiver.run(&stop).unwrap());
        let sent = scope.spawn(|| send(config));
        while progress.load(Ordering::Relaxed) < 20 {
            thread::sleep(MS);
        }
        stop.store(true, Ordering::Relaxed);
        let report = received.join().unwrap().report;
        assert_eq!((report.connections, report.incomplete), (4, 4));
        assert!(report.messages >= 20);
        assert_eq!(report.latency_us.unwrap().count, report.messages);
        // The receiver's stop also ends the sender, long before its duration is over.
        assert_eq!(sent.join().unwrap().failed, 4);
    });
}

#[test]
fn stopped_sender_closes_every_stream_in_order() {
    let (address, received) = receive(4);
    let stop = AtomicBool::new(false);
    let started = Instant::now();
    let sender = Sender::new(Thin {
        duration: Duration::from_secs(60),
        ..thin(address)
    })
    .unwrap();
    let (planned, progress) = (sender.planned().unwrap(), sender.progress());
    let sent = thread::scope(|scope| {
        let sent = scope.spawn(|| sender.run(&stop).unwrap());
        while progress.load(Ordering::Relaxed) < 20 {
            thread::sleep(MS);
        }
        stop.store(true, Ordering::Relaxed);
        sent.join().unwrap()
    });
    assert!(started.elapsed() < Duration::from_secs(30));
    let report = received.join().unwrap().report;
    assert_eq!(sent.failed, 0);
    assert!(sent.messages < planned);
    assert_eq!(report.messages, sent.messages);
    assert_eq!(
        (report.corrupt, report.incomplete, report.broken),
        (0, 0, 0)
    );
}

#[test]
fn first_write_contains_only_first_message() {
    let listener = TcpListener::bind(any_port()).unwrap();
    let address = listener.local_addr().unwrap();
    let reader = thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        let first = retry(|| socket.read(&mut [0; 4096])).unwrap();
        socket.read_to_end(&mut Vec::new()).unwrap();
        first
    });
    // The second message is due so late that it cannot arrive with the first.
    let sent = send(Thin {
        streams: 1,
        itt: Duration::from_secs(3600),
        ..thin(address)
    });
    assert_eq!(sent.failed, 0);
    let first = reader.join().unwrap();
    // The end may arrive with it.
    assert!((120..130).contains(&first), "{first}");
}

// Streams of UDP datagrams: at their rate, verified, counted, ended.

fn datagram_receiver(streams: usize) -> Receiver {
    Receiver::bind(ReceiveConfig {
        listen: any_port(),
        streams: Some(streams),
        datagrams: true,
        records: true,
    })
    .unwrap()
}

#[test]
fn datagrams_leave_at_rate_and_are_verified_and_recorded() {
    let receiver = datagram_receiver(2);
    let to = receiver.local_addr();
    let received = thread::spawn(|| receiver.run(&NO_STOP).unwrap());
    // 500 B every 2 ms are 2 Mbit/s, for 200 ms.
    let kind = Kind::Datagrams {
        size: 500,
        rate: 2_000_000,
    };
    let sent = send(traffic(to, 2, kind));
    let ReceiveResult { report, records } = received.join().unwrap();
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
    let duration = Duration::from_nanos(times[99] - times[0]);
    assert!((190 * MS..300 * MS).contains(&duration), "{duration:?}");
}

#[test]
fn duplicate_datagram_counts_once_and_fault_is_reported() {
    let receiver = datagram_receiver(1);
    let to = receiver.local_addr();
    let received = thread::spawn(|| receiver.run(&NO_STOP).unwrap());
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
        if let Some(position) = wrong {
            bytes[position] ^= 1;
        }
        socket.send(&bytes).unwrap();
    };
    put(DatagramKind::Message, 0, None);
    put(DatagramKind::Message, 0, None);
    put(DatagramKind::Message, 1, Some(60));
    // An invalid datagram is ignored.
    put(DatagramKind::Message, 2, Some(5));
    put(DatagramKind::End, 3, None);
    let report = received.join().unwrap().report;
    assert_eq!((report.connections, report.messages), (1, 1));
    assert_eq!(report.bytes, 100, "no byte counts twice, nor a wrong one");
    let fault = report.streams[0].fault.clone().unwrap();
    assert_eq!((fault.kind, fault.offset), (FaultKind::Corrupt, 60));
    let mut answer = [0; 100];
    let len = socket.recv(&mut answer).unwrap();
    let answer = Datagram::read(&answer[..len]).unwrap();
    assert_eq!((answer.what, answer.stream), (DatagramKind::EndAck, 3));
}

#[test]
fn truncated_and_extended_datagrams_are_rejected() {
    let datagram = Datagram {
        what: DatagramKind::Message,
        stream: 0,
        seed: 7,
        sent_ns: 1,
        sequence: 0,
        size: 100,
    };
    let mut whole = Vec::new();
    datagram.write(&mut whole);
    for (len, offset) in [(Datagram::LEN, Datagram::LEN), (99, 99), (101, 100)] {
        let receiver = datagram_receiver(1);
        let socket = UdpSocket::bind(any_port()).unwrap();
        socket.connect(receiver.local_addr()).unwrap();
        let received = thread::spawn(|| receiver.run(&NO_STOP).unwrap());
        let mut bytes = whole.clone();
        bytes.resize(len, 0);
        socket.send(&bytes).unwrap();
        let end = Datagram {
            what: DatagramKind::End,
            ..datagram
        };
        end.write(&mut bytes);
        socket.send(&bytes).unwrap();
        let report = received.join().unwrap().report;
        assert_eq!((report.messages, report.corrupt), (0, 1), "{len}");
        let fault = report.streams[0].fault.clone().unwrap();
        assert_eq!(fault.offset, offset as u64);
        assert!(
            fault.what.contains(&format!("received {len} B of 100 B")),
            "{fault:?}"
        );
    }
}

#[test]
fn datagram_stream_without_receiver_reports_error() {
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
fn overloaded_datagram_sender_stops_immediately() {
    for (streams, rate) in [(1, 2_000_000), (50, 4_000_000_000)] {
        let receiver = datagram_receiver(streams);
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
