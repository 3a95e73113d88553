//! A path between two hosts, end to end. Needs root.

use crate::common;

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream, UdpSocket},
    thread,
    time::{Duration, Instant},
};

use common::{Hosts, delay, inside, ip, root};
use pillion_bpf::host::interruption::retry;
use pillion_lab::Namespace;
use pillion_lab::path::{
    Direction, DirectionStats, Loss, Path, PathConfig, PathError, PathStats, PortOverride, Tap,
};

/// Bytes of the Ethernet, IPv4 and UDP headers.
const HEADERS: u64 = 14 + 20 + 8;

fn both(forward: Direction, backward: Direction) -> PathConfig {
    PathConfig {
        forward,
        backward,
        seed: 1,
    }
}

/// Waits until the statistics satisfy `done`, and returns them.
fn wait_for_stats(path: &Path, done: impl Fn(&PathStats) -> bool) -> PathStats {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let stats = path.stats();
        if done(&stats) {
            return stats;
        }
        assert!(Instant::now() < deadline, "still {stats:?}");
        thread::sleep(Duration::from_millis(1));
    }
}

fn assert_balanced(counts: &DirectionStats) {
    let ends = [
        counts.delivered,
        counts.lost,
        counts.queue_full,
        counts.overflowed,
        counts.device_refused,
        counts.inside,
    ];
    let packets = ends.iter().map(|volume| volume.packets).sum::<u64>();
    let bytes = ends.iter().map(|volume| volume.bytes).sum::<u64>();
    let (received, copies) = (counts.received, counts.duplicated);
    assert_eq!(
        (
            received.packets + copies.packets,
            received.bytes + copies.bytes
        ),
        (packets, bytes)
    );
}

#[test]
fn datagrams_cross_both_ways_intact_after_delay() {
    if !root("datagrams cross") {
        return;
    }
    let hosts = Hosts::join(&both(delay(30), delay(50)));
    let [a, b] = [hosts.socket(0), hosts.socket(1)];
    for (from, to, wait) in [(&a, &b, 30), (&b, &a, 50)] {
        let payloads = [0, 1, 120, 1400].map(|size| (0..size).map(|n| n as u8).collect::<Vec<_>>());
        let sent = Instant::now();
        payloads
            .iter()
            .for_each(|payload| assert!(from.send(payload).is_ok()));
        for payload in &payloads {
            let mut buffer = [0; 2000];
            let bytes = retry(|| to.recv(&mut buffer)).unwrap();
            assert!(sent.elapsed() >= Duration::from_millis(wait));
            assert_eq!(&buffer[..bytes], payload);
        }
    }
    let stats = hosts.path.stop();
    for counts in [&stats.forward, &stats.backward] {
        assert_balanced(counts);
        assert_eq!(counts.delivered.packets, 4);
        assert_eq!(counts.delivered.bytes, 1 + 120 + 1400 + 4 * HEADERS);
        assert!(counts.delay_error.max_us >= counts.delay_error.p50_us);
    }
    assert_eq!(stats.device_gone, None);
}

/// Sends `count` numbered datagrams. Returns the numbers that arrive.
fn survivors(count: u32, config: &PathConfig) -> (Vec<u32>, PathStats) {
    let hosts = Hosts::join(config);
    let [a, b] = [hosts.socket(0), hosts.socket(1)];
    for number in 0..count {
        a.send(&number.to_le_bytes()).unwrap();
    }
    let stats = wait_for_stats(&hosts.path, |stats| {
        stats.forward.received.packets == u64::from(count) && stats.forward.inside.packets == 0
    });
    b.set_nonblocking(true).unwrap();
    let mut number = [0; 4];
    let mut arrived = Vec::new();
    while retry(|| b.recv(&mut number)).is_ok() {
        arrived.push(u32::from_le_bytes(number));
    }
    (arrived, stats)
}

#[test]
fn same_seed_loses_same_packets_at_requested_rate() {
    if !root("the same seed") {
        return;
    }
    let lossy = Direction {
        loss: Loss::Uniform(0.05),
        ..delay(5)
    };
    let config = both(lossy, delay(5));
    let (arrived, stats) = survivors(4000, &config);
    assert_balanced(&stats.forward);
    assert_eq!(arrived.len() as u64, stats.forward.delivered.packets);
    assert!(arrived.is_sorted(), "order is kept");
    // Expected 200, standard deviation 14.
    let lost = stats.forward.lost.packets;
    assert!((130..270).contains(&lost), "{lost} of 4000");

    assert!(arrived == survivors(4000, &config).0);
    let other = PathConfig { seed: 2, ..config };
    assert!(arrived != survivors(4000, &other).0);
}

#[test]
fn jitter_spreads_arrivals_and_keeps_order() {
    if !root("jitter") {
        return;
    }
    let jitter = Direction {
        jitter: Duration::from_millis(2),
        ..delay(50)
    };
    let hosts = Hosts::join(&both(jitter, delay(0)));
    let [a, b] = [hosts.socket(0), hosts.socket(1)];
    for number in 0..400u32 {
        a.send(&number.to_le_bytes()).unwrap();
        std::thread::sleep(Duration::from_millis(1));
    }
    let mut number = [0; 4];
    for expected in 0..400 {
        retry(|| b.recv(&mut number)).unwrap();
        assert_eq!(u32::from_le_bytes(number), expected);
    }
    let stats = hosts.path.stop();
    // At least 22 independent values.
    let jitter = stats.forward.jitter.unwrap();
    assert!(jitter.sd_us > 800, "{jitter:?}");
    assert_eq!(stats.backward.jitter, None);
}

#[test]
fn packets_with_shorter_port_delay_overtake_others() {
    if !root("a port with a delay") {
        return;
    }
    let own = Direction {
        own: vec![PortOverride::delayed(9, Duration::from_millis(20))],
        ..delay(600)
    };
    let hosts = Hosts::join(&both(own, delay(0)));
    let bound = |port: u16| {
        let socket = hosts.run(1, move || UdpSocket::bind(("10.0.0.2", port)).unwrap());
        socket
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        socket
    };
    let [other, own] = [8, 9].map(bound);
    let from = hosts.run(0, || UdpSocket::bind("10.0.0.1:0").unwrap());
    let sent = Instant::now();
    from.send_to(b"other", "10.0.0.2:8").unwrap();
    from.send_to(b"own", "10.0.0.2:9").unwrap();
    let mut buffer = [0; 8];
    assert_eq!(retry(|| own.recv(&mut buffer)).unwrap(), 3);
    assert!(sent.elapsed() >= Duration::from_millis(20));
    other.set_nonblocking(true).unwrap();
    let in_flight = other.recv(&mut buffer).is_err();
    assert!(in_flight || sent.elapsed() >= Duration::from_millis(600));
    other.set_nonblocking(false).unwrap();
    if in_flight {
        assert_eq!(retry(|| other.recv(&mut buffer)).unwrap(), 5);
    }
    assert!(sent.elapsed() >= Duration::from_millis(600));
}

#[test]
fn queue_drops_only_packets_beyond_limit() {
    if !root("the queue drops") {
        return;
    }
    // At 100 bit/s, the first frame takes over 11 s, far longer than sending all frames.
    let slow = Direction {
        rate_bps: Some(100),
        queue_packets: 10,
        ..delay(0)
    };
    let hosts = Hosts::join(&both(slow, delay(0)));
    let a = hosts.socket(0);
    for _ in 0..50 {
        a.send(&[0; 100]).unwrap();
    }
    let stats = wait_for_stats(&hosts.path, |stats| stats.forward.received.packets == 50);
    assert_balanced(&stats.forward);
    assert_eq!(
        stats.forward.inside.packets, 11,
        "one in service, ten waiting"
    );
    assert_eq!(stats.forward.queue_full.packets, 39);
    assert_eq!(stats.forward.queue_full.bytes, 39 * (100 + HEADERS));
}

#[test]
fn frames_to_down_device_are_refused_and_counted() {
    if !root("a device that is down") {
        return;
    }
    let hosts = Hosts::join(&both(delay(0), delay(0)));
    let a = hosts.socket(0);
    hosts.run(1, || ip("link set path1 down"));
    a.send(&[0; 100]).unwrap();
    let stats = wait_for_stats(&hosts.path, |stats| {
        stats.forward.device_refused.packets == 1
    });
    assert_balanced(&stats.forward);
    assert_eq!(stats.forward.device_refused.bytes, 100 + HEADERS);
}

#[test]
fn devices_vanish_with_path_and_can_be_recreated() {
    if !root("devices disappear") {
        return;
    }
    let namespace = Namespace::create().unwrap();
    inside(&namespace, || {
        let exists =
            |name: &str| std::fs::exists(format!("/proc/sys/net/ipv4/conf/{name}")).unwrap();
        for _ in 0..3 {
            let [a, b] = ["a", "b"].map(|name| Tap::open(name).unwrap());
            let path = Path::start(a, b, &both(delay(5), delay(5))).unwrap();
            assert!(exists("a") && exists("b"));
            drop(path);
            // A child that another test is just starting holds the descriptors until its exec.
            let deadline = Instant::now() + Duration::from_secs(10);
            while exists("a") || exists("b") {
                assert!(Instant::now() < deadline, "the devices remain");
                thread::yield_now();
            }
        }
    });
}

#[test]
fn tcp_stream_survives_loss_intact() {
    if !root("a TCP stream") {
        return;
    }
    let lossy = Direction {
        loss: Loss::Uniform(0.02),
        ..delay(2)
    };
    let hosts = Hosts::join(&both(lossy.clone(), lossy));
    let data = (0..500_000u32)
        .flat_map(u32::to_le_bytes)
        .collect::<Vec<_>>();
    let listener = hosts.run(1, || TcpListener::bind("10.0.0.2:9").unwrap());
    let mut sender = hosts.run(0, || TcpStream::connect("10.0.0.2:9").unwrap());
    let (mut receiver, _) = listener.accept().unwrap();
    let received = thread::scope(|scope| {
        scope.spawn(|| {
            sender.write_all(&data).unwrap();
            sender.shutdown(Shutdown::Write).unwrap();
        });
        let mut received = Vec::new();
        receiver.read_to_end(&mut received).unwrap();
        received
    });
    assert!(received == data);
    let stats = hosts.path.stop();
    assert_balanced(&stats.forward);
    assert_balanced(&stats.backward);
    assert!(stats.forward.lost.packets > 0);
}

#[test]
fn used_device_name_is_rejected_with_remedy() {
    if !root("a name in use") {
        return;
    }
    inside(&Namespace::create().unwrap(), || {
        let _taken = Tap::open("path").unwrap();
        let error = Tap::open("path").unwrap_err();
        assert!(matches!(error, PathError::Create { .. }));
        assert!(error.to_string().contains("an unused name"));
    });
}

#[test]
fn path_stops_and_reports_vanished_device() {
    if !root("a path that loses") {
        return;
    }
    let hosts = Hosts::join(&both(delay(5), delay(5)));
    hosts.run(0, || ip("link delete path0"));
    wait_for_stats(&hosts.path, |stats| {
        stats.device_gone.as_deref() == Some("path0")
    });
    hosts.path.stop();
}

#[test]
fn invalid_configuration_starts_no_path() {
    if !root("an invalid configuration") {
        return;
    }
    inside(&Namespace::create().unwrap(), || {
        let [a, b] = ["a", "b"].map(|name| Tap::open(name).unwrap());
        let lossy = Direction {
            loss: Loss::Uniform(2.0),
            ..delay(0)
        };
        let error = Path::start(a, b, &both(lossy, delay(0))).unwrap_err();
        assert!(error.to_string().contains("forward.loss"));
    });
}
