//! Tests which segments the governor allows to be bundled.

use std::fs;
use std::os::fd::{AsFd, AsRawFd};
use std::thread::sleep;
use std::time::Duration;

use libbpf_rs::query::{LinkInfoIter, MapInfoIter, ProgInfoIter, ProgInfoQueryOptions};
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

/// Returns [`unlimited`] with pillion's safeguards, the governor included.
fn with_safeguards() -> Options {
    Options {
        published: false,
        ..unlimited()
    }
}

/// Returns the IDs of the maps of this test's governor: measurements, and decisions.
fn governor_maps() -> (u32, u32) {
    let own = own_maps();
    let attached = maps_of_attached_programs();
    // Programs without a governor have maps of these names as well, with a single entry.
    let loads = MapInfoIter::default()
        .filter(|map| map.name == "pillion_network" && map.max_entries > 1)
        .find(|map| own.contains(&map.id) && attached.contains(&map.id))
        .expect("a governor")
        .id;
    // Different programs use the two maps; all programs loaded together share their constants.
    let constants = map_used_with(loads, ".rodata");
    (loads, map_used_with(constants, "pillion_governo"))
}

/// Returns the maps of this process; other processes of the host may have a governor as well.
fn own_maps() -> Vec<u32> {
    let files = fs::read_dir("/proc/self/fdinfo").expect("procfs");
    files
        .filter_map(|file| fs::read_to_string(file.ok()?.path()).ok())
        .filter_map(|info| {
            info.lines()
                .find_map(|line| line.strip_prefix("map_id:")?.trim().parse().ok())
        })
        .collect()
}

/// Returns the IDs of the maps of attached programs. Programs in the pool are loaded, but not attached.
fn maps_of_attached_programs() -> Vec<u32> {
    let attached: Vec<_> = LinkInfoIter::default().map(|link| link.prog_id).collect();
    let with_maps = ProgInfoQueryOptions::default().include_map_ids(true);
    ProgInfoIter::with_query_opts(with_maps)
        .filter(|program| attached.contains(&program.id))
        .flat_map(|program| program.map_ids)
        .collect()
}

/// Returns the map with such a name in the programs that use this map.
fn map_used_with(id: u32, suffix: &str) -> u32 {
    let with_maps = ProgInfoQueryOptions::default().include_map_ids(true);
    let used: Vec<_> = ProgInfoIter::with_query_opts(with_maps)
        .map(|program| program.map_ids)
        .filter(|maps| maps.contains(&id))
        .flatten()
        .collect();
    MapInfoIter::default()
        .find(|map| used.contains(&map.id) && map.name.to_string_lossy().ends_with(suffix))
        .expect("the map")
        .id
}

/// Makes updates from user space fail for this map.
fn freeze(id: u32) -> MapHandle {
    let map = MapHandle::from_map_id(id).expect("the map");
    // SAFETY: a system call on a descriptor that is valid during the call.
    let frozen = unsafe { libbpf_sys::bpf_map_freeze(map.as_fd().as_raw_fd()) };
    assert_eq!(frozen, 0);
    map
}

/// Makes the governor's decisions fail.
fn freeze_decisions() {
    freeze(governor_maps().1);
}

/// Measurements that the governor has not yet collected (`struct network_load`).
struct NetworkLoads(MapHandle);

impl NetworkLoads {
    /// Stops the governor from collecting measurements from now on.
    fn freeze() -> Self {
        Self(freeze(governor_maps().0))
    }

    /// Returns the sums over all networks: windows, their length in microseconds, RTTs, packets, losses,
    /// redundant bytes, retransmissions, messages.
    fn sums(&self) -> [u64; 8] {
        let mut sums = [0; 8];
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
    for ip in [Ip::V4, Ip::V6, Ip::Mapped] {
        let setup = Setup {
            ip,
            ..governed(with_safeguards())
        };
        setup.run(|wire| {
            wire.sends("1:101 1:201 101:301");
            freeze_decisions();
            sleep(Duration::from_millis(1500));
            wire.sends("301:401 401:501 501:601 601:701 701:801 801:901 901:1001 901:1101");
            wire.sends("1101:1201");
            wire.assert_outcomes(&[(Bundled, 3), (Governed, 8), (NothingOutstanding, 1)]);
            drop(wire.detach_programs());
        });
    }
}

#[test]
fn published_mechanism_is_not_governed() {
    // `unlimited()` selects the published mechanism.
    governed(unlimited()).run(|wire| {
        let loads = NetworkLoads::freeze();
        freeze_decisions();
        sleep(Duration::from_millis(1500));
        wire.sends("1:101 1:201 101:301 201:401");
        wire.assert_outcomes(&[(Bundled, 3), (NothingOutstanding, 1)]);
        for range in ["401:501", "501:601", "601:701"] {
            wire.ack(wire.written() + 1);
            sleep(Duration::from_millis(300));
            wire.sends(range);
        }
        assert_eq!(loads.sums(), [0; 8], "and not measured either");
        drop(wire.detach_programs());
    });
}

/// Half of all connections have their first sample at an even microsecond.
#[test]
fn first_window_of_connection_is_as_long_as_others() {
    governed(with_safeguards()).run(|wire| {
        let loads = NetworkLoads::freeze();
        for port in 8000..8012 {
            wire.reconnect(port);
            // The second ACK carries the sample of the first.
            wire.sends("1:101");
            wire.ack(101);
            wire.sends("101:201");
            wire.ack(201);
        }
        let [windows, length_us, ..] = loads.sums();
        assert!(length_us <= windows * 60_000_000, "{length_us} {windows}");
        drop(wire.detach_programs());
    });
}

#[test]
fn copies_and_full_segments_are_no_messages() {
    let options = Options {
        copies: 1,
        ..with_safeguards()
    };
    governed(options).run(|wire| {
        let loads = NetworkLoads::freeze();
        let mut end = 1;
        for payload in [wire.mss(), 100, 100, 100, 100, 100, 100, 100, 100, 100] {
            wire.write(payload);
            while wire.read_within(Duration::from_millis(50)).is_some() {}
            end += payload;
            wire.ack(end);
        }
        let [windows, _, _, packets, .., messages] = loads.sums();
        assert!(windows >= 1 && messages >= 1, "{windows} {messages}");
        // One full segment, and two packets for each message.
        assert!(packets > 2 * messages, "{packets} {messages}");
        drop(wire.detach_programs());
    });
}

/// Plain TCP would not see a loss here.
#[test]
fn reordered_segment_is_not_a_loss() {
    const RTT: Duration = Duration::from_millis(800);
    let setup = Setup {
        rtt: RTT,
        ..governed(with_safeguards())
    };
    setup.run(|wire| {
        let loads = NetworkLoads::freeze();
        wire.sends("1:101 1:201");
        sleep(RTT);
        wire.ack(201);
        wire.ack_without_waiting(201, "1:101");
        for range in ["201:301", "301:401", "401:501"] {
            wire.sends(range);
            sleep(RTT);
            wire.ack(wire.written() + 1);
        }
        let counters = wire.totals().counters;
        assert_eq!((counters.hidden_losses, counters.reordered), (1, 1));
        let [windows, _, _, packets, losses, ..] = loads.sums();
        assert!(windows >= 1 && packets >= 3, "{windows} {packets}");
        assert_eq!(losses, 0);
        drop(wire.detach_programs());
    });
}

#[test]
fn retransmission_without_room_spends_no_credit() {
    let setup = Setup {
        rto_min: Duration::from_secs(1),
        ..governed(Options {
            bundle_retransmissions: true,
            ..with_safeguards()
        })
    };
    setup.run(|wire| {
        freeze_decisions();
        sleep(Duration::from_millis(1500));
        wire.sends("1:1401 1401:1501 1501:1601 1601:1701 1701:1801 1801:1901 1901:2001 2001:2101");
        wire.sends("2101:2201");
        wire.expect("1:1401");
        wire.ack(2201);
        wire.sends("2201:2301 2201:2401");
        drop(wire.detach_programs());
    });
}

#[test]
fn retransmissions_are_governed() {
    let setup = Setup {
        rto_min: Duration::from_secs(1),
        ..governed(Options {
            thin: ThinTest::Spifl { limit: 0 },
            bundle_retransmissions: true,
            ..with_safeguards()
        })
    };
    setup.run(|wire| {
        sysctl("net.ipv4.tcp_retrans_collapse", "0");
        freeze_decisions();
        sleep(Duration::from_millis(1500));
        wire.sends("1:101 101:201");
        wire.expect("1:101");
        drop(wire.detach_programs());
    });
}
