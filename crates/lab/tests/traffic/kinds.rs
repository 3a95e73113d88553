//! The behaviour of each kind of stream, between a sender and a receiver on loopback.

use crate::common;

use std::collections::BTreeMap;
use std::time::Duration;

use common::{MS, receive, receive_with, send, traffic};
use pillion_lab::traffic::{
    Distribution, Group, Kind, ReadMode, Record, ResponseMode, Sender, SocketOptions,
    StreamSendReport, Traffic,
};

fn distribution(text: &str) -> Distribution {
    Distribution::parse(text).unwrap()
}

fn by_stream(records: &[Record]) -> BTreeMap<u32, Vec<Record>> {
    let mut streams = BTreeMap::<u32, Vec<Record>>::new();
    for record in records {
        streams.entry(record.stream).or_default().push(*record);
    }
    streams
}

#[test]
fn sampled_sizes_arrive_unchanged_down_to_one_byte() {
    let (address, received) = receive(3);
    let kind = Kind::Thin {
        itt: distribution("exponential:1"),
        size: distribution("pareto:6:1.2"),
    };
    let sent = send(traffic(address, 3, kind));
    let received = received.join().unwrap();
    assert_eq!((sent.failed, received.report.messages), (0, sent.messages));
    let records = &received.records;
    assert!(records.iter().any(|record| record.size == 1));
    assert!(records.iter().any(|record| record.size > 20));
    let bytes: u64 = records.iter().map(|record| u64::from(record.size)).sum();
    // After the messages follow only the ends, with notes that did not fit before.
    assert!(bytes <= sent.bytes && sent.bytes < bytes + 3 * 4000);
    assert!(records.iter().all(|record| record.latency_us < 20e6));
}

#[test]
fn greedy_stream_sends_at_capacity_until_end() {
    let (address, received) = receive(2);
    let sent = send(traffic(address, 2, Kind::Greedy { write: 65_536 }));
    let report = received.join().unwrap().report;
    assert_eq!((sent.failed, report.corrupt, report.incomplete), (0, 0, 0));
    assert_eq!((report.messages, report.bytes), (sent.messages, sent.bytes));
    assert!(sent.messages > 4, "{} writes", sent.messages);
    assert_eq!(sent.blocked_writes, 0);
}

#[test]
fn slow_reader_throttles_greedy_stream() {
    let rate = 2_000_000;
    let (address, received) = receive_with(1, ReadMode::Rate(rate), ResponseMode::AsRequested);
    let sent = send(Traffic {
        duration: None,
        ..with_messages(traffic(address, 1, Kind::Greedy { write: 100_000 }), 10)
    });
    let received = received.join().unwrap();
    assert_eq!((sent.failed, received.report.bytes), (0, sent.bytes));
    // A million bytes at two million per second; the bytes of the first hundredth arrive
    // immediately.
    let records = &received.records;
    let at = |record: &Record| record.sent_ns as f64 + record.latency_us * 1e3;
    let [first, .., last] = &records[..] else {
        panic!("{records:?}")
    };
    let duration = at(last) - at(first);
    assert!(duration > 400e6, "{duration} ns");
}

fn with_messages(mut traffic: Traffic, messages: u64) -> Traffic {
    for group in &mut traffic.groups {
        group.messages = Some(messages);
    }
    traffic
}

#[test]
fn delayed_reader_adds_its_delay() {
    let (address, received) =
        receive_with(2, ReadMode::Delayed(50 * MS), ResponseMode::AsRequested);
    let (itt, size) = (20 * MS, 120);
    let sent = send(traffic(address, 2, Kind::Isochronous { itt, size }));
    let received = received.join().unwrap();
    assert_eq!((sent.failed, received.report.messages), (0, sent.messages));
    let late = |record: &Record| record.latency_us >= 50_000.0;
    // The first message of each delay waits for all of it.
    assert!(received.records.iter().any(late));
}

#[test]
fn isochronous_streams_keep_count_and_size() {
    let (address, received) = receive(2);
    let (itt, size) = (10 * MS, 400);
    let sent = send(traffic(address, 2, Kind::Isochronous { itt, size }));
    let records = received.join().unwrap().records;
    assert_eq!((sent.failed, sent.messages), (0, 2 * 20));
    assert!(records.iter().all(|record| record.size == 400));
}

#[test]
fn burst_streams_send_at_common_ticks() {
    let (address, received) = receive(10);
    let kind = Kind::Burst {
        tick: 50 * MS,
        size: distribution("80:20"),
    };
    let sent = send(traffic(address, 10, kind));
    let records = received.join().unwrap().records;
    assert_eq!((sent.failed, sent.messages), (0, 10 * 4));
    let streams = by_stream(&records);
    // All streams send at a tick before any sends at the next one.
    for tick in 1..4 {
        let times = |tick: usize| streams.values().map(move |stream| stream[tick].sent_ns);
        assert!(times(tick - 1).max() < times(tick).min(), "tick {tick}");
    }
}

#[test]
fn requests_wait_for_responses() {
    let (address, received) = receive(3);
    let kind = Kind::RequestResponse {
        think: distribution("5"),
        size: distribution("20:10"),
        answer: 3000,
    };
    let sent = send(with_messages(traffic(address, 3, kind), 8));
    let report = received.join().unwrap().report;
    assert_eq!((sent.failed, report.incomplete), (0, 0));
    assert!(sent.messages > 3, "not only the first of each stream");
    assert_eq!(
        (sent.answers, report.messages),
        (sent.messages, sent.messages)
    );
    assert_eq!(sent.round_trip_us.unwrap().count, sent.answers);
}

#[test]
fn echo_returns_complete_and_measures_round_trips() {
    let (address, received) = receive_with(4, ReadMode::Immediate, ResponseMode::Echo);
    let kind = Kind::Thin {
        itt: distribution("5:1"),
        size: distribution("exponential:50"),
    };
    let sent = send(traffic(address, 4, kind));
    let report = received.join().unwrap().report;
    assert_eq!((sent.failed, report.messages), (0, sent.messages));
    assert_eq!(sent.answers, sent.messages);
    let round_trip = sent.round_trip_us.unwrap();
    assert!(round_trip.min >= report.latency_us.unwrap().min);
}

#[test]
fn greedy_echo_loses_no_bytes() {
    let (address, received) = receive_with(1, ReadMode::Immediate, ResponseMode::Echo);
    let sent = send(traffic(address, 1, Kind::Greedy { write: 30_000 }));
    let report = received.join().unwrap().report;
    assert_eq!((sent.failed, report.corrupt), (0, 0));
    assert_eq!(
        (sent.answers, report.messages),
        (sent.messages, sent.messages)
    );
}

#[test]
fn receiver_sends_one_response_per_ten_messages() {
    let response_mode = ResponseMode::Every {
        messages: 10,
        size: Some(7),
    };
    let (address, received) = receive_with(1, ReadMode::Immediate, response_mode);
    let (itt, size) = (2 * MS, 120);
    let kind = Kind::Isochronous { itt, size };
    let sent = send(with_messages(traffic(address, 1, kind), 35));
    received.join().unwrap();
    assert_eq!((sent.failed, sent.messages, sent.answers), (0, 35, 3));
}

#[test]
fn flow_connects_at_start_sends_its_size_and_closes() {
    let (address, received) = receive(20);
    let kind = Kind::Flow {
        arrival: distribution("5"),
        size: distribution("3000"),
    };
    let sent = send(traffic(address, 20, kind));
    let received = received.join().unwrap();
    assert_eq!((sent.failed, sent.messages, sent.bytes), (0, 20, 20 * 3000));
    assert_eq!((received.report.messages, sent.blocked_writes), (20, 0));
    let duration = |stream: &StreamSendReport| stream.completion_us.filter(|_| stream.connected);
    let duration: Option<Vec<f64>> = sent.streams.iter().map(duration).collect();
    assert!(duration.unwrap().iter().all(|us| (1.0..20e6).contains(us)));
    // A flow's data waits only for its start.
    let mut start_times: Vec<u64> = received.records.iter().map(|it| it.sent_ns).collect();
    start_times.sort_unstable();
    assert!(
        start_times[19] - start_times[0] >= 19 * 4_000_000,
        "{start_times:?}"
    );
}

#[test]
fn flows_after_end_are_left_out() {
    let kind = Kind::Flow {
        arrival: distribution("exponential:5"),
        size: distribution("100"),
    };
    let sender = Sender::new(traffic("127.0.0.1:1".parse().unwrap(), 1000, kind)).unwrap();
    // About 40 in 200 ms; the exact number depends on the seed.
    let flows = sender.due().len();
    assert!((20..80).contains(&flows), "{flows}");
}

#[test]
fn refused_flow_reports_error() {
    let unused = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = unused.local_addr().unwrap();
    drop(unused);
    let kind = Kind::Flow {
        arrival: distribution("5"),
        size: distribution("100"),
    };
    let sent = send(traffic(address, 2, kind));
    assert_eq!((sent.failed, sent.groups[0].connected), (2, 0));
    assert!(sent.streams.iter().all(|it| it.completion_us.is_none()));
    let error = sent.streams[0].error.as_ref().unwrap();
    assert!(error.contains("refused"), "{error}");
}

#[test]
fn groups_of_all_kinds_share_threads() {
    let (address, received) = receive(9);
    let kinds = [
        Kind::Thin {
            itt: distribution("10:1"),
            size: distribution("120"),
        },
        Kind::Greedy { write: 10_000 },
        Kind::RequestResponse {
            think: distribution("10"),
            size: distribution("50"),
            answer: 100,
        },
    ];
    let socket = SocketOptions {
        nagle: true,
        linear_timeouts: true,
        congestion: Some("reno".to_owned()),
        ..SocketOptions::default()
    };
    let group = |kind: Kind| Group {
        streams: 3,
        socket: socket.clone(),
        ..Group::new(kind.name(), kind)
    };
    let sent = send(Traffic {
        groups: kinds.map(group).into(),
        threads: 2,
        ..traffic(address, 1, Kind::Greedy { write: 1 })
    });
    let report = received.join().unwrap().report;
    assert_eq!((sent.failed, report.corrupt, report.incomplete), (0, 0, 0));
    assert_eq!((report.messages, report.bytes), (sent.messages, sent.bytes));
    let groups: Vec<_> = sent
        .groups
        .iter()
        .map(|g| (g.name.as_str(), g.streams))
        .collect();
    assert_eq!(
        groups,
        [("thin", 3), ("greedy", 3), ("request-response", 3)]
    );
    assert_eq!(
        sent.messages,
        sent.groups.iter().map(|g| g.messages).sum::<u64>()
    );
    assert_eq!(sent.streams[4].group, 1);
}

#[test]
fn groups_use_their_own_start_and_end() {
    let (address, received) = receive(3);
    let kind = || Kind::Isochronous {
        itt: 10 * MS,
        size: 120,
    };
    let groups = [(0, None), (100, None), (50, Some(50 * MS))].map(|(start, duration)| Group {
        start: start * MS,
        duration,
        ..Group::new(start.to_string(), kind())
    });
    let traffic = Traffic {
        groups: groups.into(),
        ..traffic(address, 1, kind())
    };
    let due = Sender::new(traffic.clone()).unwrap().due();
    let times = |stream| {
        due.iter()
            .filter(move |(_, of)| *of == stream)
            .map(|(at, _)| *at)
    };
    let span = |stream| (times(stream).min().unwrap(), times(stream).max().unwrap());
    let spans = [0, 1, 2].map(span);
    assert_eq!(
        spans,
        [(0, 190), (100, 190), (50, 90)].map(|(a, b)| (a * MS, b * MS))
    );
    let sent = send(traffic);
    assert_eq!((sent.failed, sent.messages), (0, 20 + 10 + 5));
    assert_eq!(received.join().unwrap().report.messages, sent.messages);
}

#[test]
fn groups_with_durations_need_no_common_end() {
    let (address, received) = receive(2);
    let group = |kind: Kind, ms: u32| Group {
        duration: Some(ms * MS),
        ..Group::new(kind.name(), kind)
    };
    let sent = send(Traffic {
        groups: vec![
            group(Kind::Greedy { write: 10_000 }, 50),
            group(
                Kind::Isochronous {
                    itt: 10 * MS,
                    size: 120,
                },
                100,
            ),
        ],
        duration: None,
        ..traffic(address, 1, Kind::Greedy { write: 1 })
    });
    assert_eq!((sent.failed, sent.groups[1].messages), (0, 10));
    assert_eq!(received.join().unwrap().report.messages, sent.messages);
}

#[test]
fn group_starting_after_end_is_rejected() {
    let mut late = traffic("127.0.0.1:9".parse().unwrap(), 1, Kind::Greedy { write: 1 });
    late.groups[0].start = 200 * MS;
    let error = Sender::new(late).err().unwrap().to_string();
    assert!(
        error.starts_with("invalid start 200ms: the end is at 200ms; "),
        "{error}"
    );
}

#[test]
fn two_threads_handle_two_thousand_streams() {
    let (address, received) = receive(2000);
    let kind = Kind::Thin {
        itt: distribution("100:10"),
        size: distribution("120"),
    };
    let sent = send(Traffic {
        threads: 2,
        duration: Some(Duration::from_millis(500)),
        ..traffic(address, 2000, kind)
    });
    let report = received.join().unwrap().report;
    assert_eq!((sent.failed, report.corrupt, report.incomplete), (0, 0, 0));
    assert_eq!((report.connections, report.messages), (2000, sent.messages));
    assert!(sent.messages > 2000 * 3);
}

#[test]
fn reset_of_one_stream_does_not_affect_others() {
    let listener = std::net::TcpListener::bind(common::any_port()).unwrap();
    let address = listener.local_addr().unwrap();
    let reset = std::thread::spawn(move || {
        let first = listener.accept().unwrap();
        let (receiving, received) = receive(3);
        let forward: Vec<_> = (0..3).map(|_| listener.accept().unwrap().0).collect();
        let pipes = forward.into_iter().map(|mut from| {
            let mut to = std::net::TcpStream::connect(receiving).unwrap();
            std::thread::spawn(move || {
                common::forward_all(&mut from, &mut to);
                to.shutdown(std::net::Shutdown::Write).unwrap();
                common::forward_all(&mut to, &mut from);
            })
        });
        let pipes: Vec<_> = pipes.collect();
        std::thread::sleep(50 * MS);
        drop(first);
        pipes.into_iter().for_each(|pipe| pipe.join().unwrap());
        received.join().unwrap().report
    });
    let (itt, size) = (5 * MS, 120);
    let sent = send(traffic(address, 4, Kind::Isochronous { itt, size }));
    let report = reset.join().unwrap();
    assert_eq!((sent.failed, sent.groups[0].failed), (1, 1));
    assert!(sent.streams[0].error.is_some());
    assert_eq!((report.messages, report.broken), (3 * 40, 0));
}
