//! Tests that used programs can be reset to their initial state without another verification.

use std::os::fd::AsFd;
use std::thread;
use std::time::{Duration, Instant};

use pillion_bpf::{
    AssignBy, Attachment, Mode, Observing, Policy, Programs, Reviewed, Scope, Totals, list_closed,
    open_cgroup2,
};
use pillion_tests::{Setup, isolated};

/// A peer port that no other test uses, because all closed connections are listed.
const PORT: u16 = 7994;

const OBSERVING: Observing = Observing {
    bundled_ppm: Some(1_000_000),
    key: [1, 2],
    assign_by: AssignBy::Peer,
    grace_us: 10_000,
    stall_us: 100_000,
};

/// Has the constants of the programs that [`setup`] loads, and no rules.
fn policy() -> Policy {
    Policy {
        default_mode: Mode::Never,
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
fn renewed_programs_keep_no_state() {
    let mut used = None;
    setup().run(|wire| {
        wire.reconnect(PORT);
        wire.sends("1:101 1:201");
        wire.reconnect(PORT);
        assert_eq!(wire.totals().connections, 3);
        let mut programs = wire.detach_programs();
        let renewed = programs.reset(&policy()).expect("its sockets are counted");
        assert!(!renewed, "one of their sockets still exists");
        used = Some(programs);
    });
    // Without root, the test was skipped.
    let Some(mut programs) = used else { return };
    isolated(|| {
        wait_until_renewed(&mut programs);
        let cgroup = open_cgroup2().expect("cgroup v2");
        let attachment = Attachment::new(programs, cgroup.as_fd(), &[]);
        let mut attachment = attachment.expect("they attach");
        assert_eq!(attachment.totals().expect("the totals"), Totals::default());
        assert_eq!(attachment.observations().expect("none"), []);
        let reviewed = attachment.review().expect("no connection is there");
        assert_eq!(reviewed, Reviewed::default());
        let closed = list_closed().expect("the list");
        assert!(!closed.iter().any(|flow| flow.peer.port() == PORT));
    });
}

#[test]
fn policy_with_other_programs_prevents_renewal() {
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
                !programs.reset(&other).expect("nothing is done"),
                "{other:?}"
            );
        }
        assert!(programs.reset(&policy()).expect("they are renewed"));
    });
}

fn wait_until_renewed(programs: &mut Programs) {
    let started_at = Instant::now();
    while !programs.reset(&policy()).expect("their maps are emptied") {
        assert!(
            started_at.elapsed() < Duration::from_secs(10),
            "sockets remain"
        );
        thread::sleep(Duration::from_millis(10));
    }
}
