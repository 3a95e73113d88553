//! A sender and a receiver that get along.

use crate::common;

use std::io::Read;
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::{MS, NEVER, Thin, any_port, pass, proxy, receive, send, thin};
use pillion_bpf::host::interruption::retry;
use pillion_lab::traffic::wire::MAX_SIZE;
use pillion_lab::traffic::{Quantiles, ReceiveConfig, Receiver, Sender};

#[test]
fn all_messages_of_all_streams_arrive_verified() {
    let (address, received) = receive(20);
    let config = Thin {
        streams: 20,
        ..thin(address)
    };
    let sender = Sender::new(config).unwrap();
    let (planned, progress) = (sender.planned().unwrap(), sender.progress());
    let sent = sender.run(&NEVER).unwrap();
    let received = received.join().unwrap();

    assert!(planned > 20 * 20, "{planned} messages planned");
    assert_eq!((sent.messages, sent.failed), (planned, 0));
    assert_eq!(progress.load(Ordering::Relaxed), planned);
    let report = &received.report;
    assert_eq!((report.corrupt, report.incomplete), (0, 0));
    assert_eq!((report.connections, report.messages), (20, planned));
    assert_eq!(report.bytes, sent.bytes);
    // What pillion itself needs travels in the messages, but for the end of each stream.
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
fn records_are_in_order_and_the_quantiles_are_theirs() {
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
fn a_slow_reader_blocks_writes_and_loses_nothing() {
    let (address, received) = receive(1);
    let address = proxy(address, |from, to| {
        thread::sleep(600 * MS);
        pass(from, to);
    });
    // 25 MB, more than the kernel keeps by default, in messages of which many fit one write.
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
    // Handed over when due, a message that waited for the reader is measured as late.
    assert!(report.latency_us.unwrap().max > 100_000.0);
}

#[test]
fn messages_of_the_largest_size_arrive_verified() {
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
fn a_stopped_receiver_reports_what_it_has() {
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
        // The receiver's end is the sender's end as well, long before its duration is over.
        assert_eq!(sent.join().unwrap().failed, 4);
    });
}

#[test]
fn a_stopped_sender_ends_each_stream_in_good_order() {
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
fn the_first_write_is_the_first_message_and_no_more() {
    let listener = TcpListener::bind(any_port()).unwrap();
    let address = listener.local_addr().unwrap();
    let reader = thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        let first = retry(|| socket.read(&mut [0; 4096])).unwrap();
        socket.read_to_end(&mut Vec::new()).unwrap();
        first
    });
    // The second is due so late that it cannot come with the first.
    let sent = send(Thin {
        streams: 1,
        itt: Duration::from_secs(3600),
        ..thin(address)
    });
    assert_eq!(sent.failed, 0);
    let first = reader.join().unwrap();
    // The end may have come with it.
    assert!((120..130).contains(&first), "{first}");
}
