//! The governor's share, segment by segment.

use std::os::fd::{AsFd, AsRawFd};
use std::sync::{Mutex, PoisonError};
use std::thread::sleep;
use std::time::Duration;

use libbpf_rs::query::MapInfoIter;
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use pillion_bpf::Outcome::{Bundled, Governed, NothingOutstanding};
use pillion_bpf::{Options, ThinTest};
use pillion_tests::{Ip, Setup, sysctl, unlimited};

fn governed(options: Options) -> Setup {
    Setup {
        governing: true,
        ..Setup::bundling(Options {
            max_packets: Some(1),
            ..options
        })
    }
}

/// [`unlimited`] with pillion's guards, the governor among them.
fn guarded() -> Options {
    Options {
        published: false,
        ..unlimited()
    }
}

/// One governor at a time: the kernel names its map as it names others'.
static ONE: Mutex<()> = Mutex::new(());

/// Makes user space's changes of the map with this name fail.
fn freeze(name: &str) -> MapHandle {
    let maps = MapInfoIter::default().filter(|map| map.name == name);
    let last = maps.map(|map| map.id).max().expect("a governor");
    let map = MapHandle::from_map_id(last).expect("its map");
    // SAFETY: a system call on a descriptor that lives across it.
    let frozen = unsafe { libbpf_sys::bpf_map_freeze(map.as_fd().as_raw_fd()) };
    assert_eq!(frozen, 0);
    map
}

/// Makes the governor's decisions fail.
fn freeze_decisions() {
    freeze("pillion_governo");
}

/// Measurements of the connections that the governor has not taken away (`struct network_load`).
struct Loads(MapHandle);

impl Loads {
    /// Keeps the measurements from now on.
    fn keep() -> Self {
        Self(freeze("pillion_network"))
    }

    /// Windows, their length in microseconds, RTTs, packets, and losses, of all networks together.
    fn sums(&self) -> [u64; 5] {
        let mut sums = [0; 5];
        for key in self.0.keys() {
            let value = self.0.lookup(&key, MapFlags::ANY).expect("the map");
            let fields = value.iter().flat_map(|value| value.as_chunks::<8>().0);
            for (sum, field) in sums.iter_mut().zip(fields) {
                *sum += u64::from_ne_bytes(*field);
            }
        }
        sums
    }
}

#[test]
fn every_eighth_segment_is_bundled_without_decisions() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    for ip in [Ip::V4, Ip::V6, Ip::Mapped] {
        let setup = Setup {
            ip,
            ..governed(guarded())
        };
        setup.run(|wire| {
            wire.sends("1:101 1:201 101:301");
            freeze_decisions();
            sleep(Duration::from_millis(1500));
            wire.sends("301:401 401:501 501:601 601:701 701:801 801:901 901:1001 901:1101");
            wire.sends("1101:1201");
            wire.assert_outcomes(&[(Bundled, 3), (Governed, 8), (NothingOutstanding, 1)]);
            drop(wire.take_programs());
        });
    }
}

#[test]
fn published_mechanism_is_not_governed() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    // They are as published.
    governed(unlimited()).run(|wire| {
        let loads = Loads::keep();
        freeze_decisions();
        sleep(Duration::from_millis(1500));
        wire.sends("1:101 1:201 101:301 201:401");
        wire.assert_outcomes(&[(Bundled, 3), (NothingOutstanding, 1)]);
        for range in ["401:501", "501:601", "601:701"] {
            wire.ack(wire.written() + 1);
            sleep(Duration::from_millis(300));
            wire.sends(range);
        }
        assert_eq!(loads.sums(), [0; 5], "nor is it measured");
        drop(wire.take_programs());
    });
}

/// Half of all connections have their first sample at an even microsecond.
#[test]
fn first_window_of_a_connection_is_no_longer_than_others() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    governed(guarded()).run(|wire| {
        let loads = Loads::keep();
        for port in 8000..8012 {
            wire.reconnect(port);
            // The second ACK has the sample of the first.
            wire.sends("1:101");
            wire.ack(101);
            wire.sends("101:201");
            wire.ack(201);
        }
        let [windows, length_us, ..] = loads.sums();
        assert!(length_us <= windows * 60_000_000, "{length_us} {windows}");
        drop(wire.take_programs());
    });
}

/// Plain TCP has no such losses.
#[test]
fn what_came_late_is_no_loss() {
    const RTT: Duration = Duration::from_millis(800);
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let setup = Setup {
        rtt: RTT,
        ..governed(guarded())
    };
    setup.run(|wire| {
        let loads = Loads::keep();
        wire.sends("1:101 1:201");
        sleep(RTT);
        wire.ack(201);
        wire.acks_late(201, "1:101");
        for range in ["201:301", "301:401", "401:501"] {
            wire.sends(range);
            sleep(RTT);
            wire.ack(wire.written() + 1);
        }
        let counters = wire.totals().counters;
        assert_eq!((counters.hidden_losses, counters.reordered), (1, 1));
        let [windows, _, _, packets, losses] = loads.sums();
        assert!(windows >= 1 && packets >= 3, "{windows} {packets}");
        assert_eq!(losses, 0);
        drop(wire.take_programs());
    });
}

#[test]
fn retransmissions_are_governed() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let setup = Setup {
        rto_min: Duration::from_secs(1),
        ..governed(Options {
            thin: ThinTest::Spifl { limit: 0 },
            retransmissions: true,
            ..guarded()
        })
    };
    setup.run(|wire| {
        sysctl("net.ipv4.tcp_retrans_collapse", "0");
        freeze_decisions();
        sleep(Duration::from_millis(1500));
        wire.sends("1:101 101:201");
        wire.expect("1:101");
        drop(wire.take_programs());
    });
}
