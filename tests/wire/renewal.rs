//! Programs that were at work can be as they were when loaded, without another verification.

use std::os::fd::AsFd;
use std::thread;
use std::time::{Duration, Instant};

use pillion_bpf::{
    Attachment, DrawBy, Mode, Observing, Policy, Programs, Scope, Totals, list_closed, open_cgroup2,
};
use pillion_tests::{Setup, isolated};

/// A peer's port that no other test uses: all that ended are listed.
const PORT: u16 = 7994;

const OBSERVING: Observing = Observing {
    bundled_ppm: 1_000_000,
    key: [1, 2],
    draw_by: DrawBy::Peer,
    grace_us: 10_000,
    stall_us: 100_000,
};

/// With the constants of those that [`setup`] loads, and no rules.
fn policy() -> Policy {
    Policy {
        otherwise: Mode::LeaveAlone,
        scope: Scope::ThisNamespace,
        observing: Some(OBSERVING),
        ..Policy::default()
    }
}

fn setup() -> Setup {
    Setup {
        observing: Some(OBSERVING),
        ..Setup::default()
    }
}

#[test]
fn nothing_of_what_the_programs_did_is_left_in_them() {
    let mut used = None;
    setup().run(|wire| {
        wire.reconnect(PORT);
        wire.sends("1:101 1:201");
        wire.reconnect(PORT);
        assert_eq!(wire.totals().connections, 3);
        let mut programs = wire.take_programs();
        let renewed = programs.renew(&policy()).expect("its sockets are counted");
        assert!(!renewed, "a socket of theirs is still there");
        used = Some(programs);
    });
    // Without root, the test was left out.
    let Some(mut programs) = used else { return };
    isolated(|| {
        until_renewed(&mut programs);
        let cgroup = open_cgroup2().expect("cgroup v2");
        let attachment = Attachment::new(programs, cgroup.as_fd(), &[]);
        let mut attachment = attachment.expect("they attach");
        assert_eq!(attachment.totals().expect("the totals"), Totals::default());
        assert_eq!(attachment.observations().expect("none"), []);
        assert_eq!(attachment.review().expect("no connection is there"), 0);
        let closed = list_closed().expect("the list");
        assert!(!closed.iter().any(|flow| flow.peer.port() == PORT));
    });
}

#[test]
fn programs_are_not_renewed_for_a_policy_that_takes_others() {
    isolated(|| {
        let mut programs = Programs::load(&policy()).expect("the programs load");
        for other in [
            Policy {
                observing: None,
                ..policy()
            },
            Policy {
                scope: Scope::Anywhere,
                ..policy()
            },
            Policy {
                max_connections: 2,
                ..policy()
            },
        ] {
            assert!(
                !programs.renew(&other).expect("nothing is done"),
                "{other:?}"
            );
        }
        assert!(programs.renew(&policy()).expect("they are as they were"));
    });
}

fn until_renewed(programs: &mut Programs) {
    let begun = Instant::now();
    while !programs.renew(&policy()).expect("their maps are emptied") {
        assert!(begun.elapsed() < Duration::from_secs(10), "sockets stay");
        thread::sleep(Duration::from_millis(10));
    }
}
