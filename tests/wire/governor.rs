//! The governor's share, segment by segment.

use std::os::fd::{AsFd, AsRawFd};
use std::sync::{Mutex, PoisonError};
use std::thread::sleep;
use std::time::Duration;

use libbpf_rs::MapHandle;
use libbpf_rs::query::MapInfoIter;
use pillion_bundler::Options;
use pillion_bundler::Outcome::{Bundled, Governed, NothingOutstanding};
use pillion_tests::{Ip, Setup, unlimited};

fn governed(options: Options) -> Setup {
    Setup {
        governing: true,
        ..Setup::bundling(Options {
            max_packets: Some(1),
            ..options
        })
    }
}

/// One governor at a time: the kernel names its map as it names others'.
static ONE: Mutex<()> = Mutex::new(());

/// Makes the governor's decisions fail.
fn freeze_decisions() {
    let maps = MapInfoIter::default().filter(|map| map.name == "pillion_governo");
    let last = maps.map(|map| map.id).max().expect("a governor");
    let map = MapHandle::from_map_id(last).expect("its map");
    // SAFETY: a system call on a descriptor that lives across it.
    let frozen = unsafe { libbpf_sys::bpf_map_freeze(map.as_fd().as_raw_fd()) };
    assert_eq!(frozen, 0);
}

#[test]
fn every_eighth_segment_is_bundled_without_decisions() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    for ip in [Ip::V4, Ip::V6, Ip::Mapped] {
        let setup = Setup {
            ip,
            ..governed(Options {
                published: false,
                ..unlimited()
            })
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
    let published = Options {
        published: true,
        ..unlimited()
    };
    governed(published).run(|wire| {
        freeze_decisions();
        sleep(Duration::from_millis(1500));
        wire.sends("1:101 1:201 101:301 201:401");
        wire.assert_outcomes(&[(Bundled, 3), (NothingOutstanding, 1)]);
        drop(wire.take_programs());
    });
}
