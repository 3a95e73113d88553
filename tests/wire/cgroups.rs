//! The reaction reaches the kernel from any cgroup above the socket's, and beside others'
//! programs.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;

use pillion_bpf::host::pillion;
use pillion_bpf::{
    Attachment, CgroupName, CgroupNameError, Error, LossRule, Mode, Options, Policy, Programs,
    Rule, Scope, ThinTest,
};
use pillion_tests::{Answers, Bundler, Nested, Setup, Wire, isolated};

/// Initial window, and Reno's threshold after a reduction.
const WINDOW: u32 = 10;
const REDUCED: u32 = 5;

fn options() -> Options {
    Options {
        thin: ThinTest::Always,
        max_packets: Some(0),
        loss_rule: LossRule::Dsack,
        ..Options::default()
    }
}

fn setup() -> Setup {
    Setup {
        initial_window: WINDOW,
        ..Setup::bundling(options())
    }
}

/// Runs a test whose socket is in the innermost of so many cgroups.
fn nested(depth: usize, test: impl FnOnce(&Nested) + Send) {
    isolated(|| test(&Nested::enter(depth)));
}

fn threshold(wire: &Wire) -> u32 {
    wire.tcp_info().tcpi_snd_ssthresh
}

fn reactions(wire: &Wire) -> u64 {
    wire.totals().counters.reactions
}

/// Sends well at first, then hides a loss; each time, what became of the threshold.
fn thresholds(setup: Setup) -> [u32; 2] {
    let mut seen = [0; 2];
    let mut wire = Wire::open(setup);
    wire.sends("1:101 1:201");
    wire.ack(101);
    wire.ack_duplicate(201, "1:101", "");
    wire.sends("201:301");
    wire.ack(301);
    assert_eq!(reactions(&wire), 0);
    seen[0] = threshold(&wire);
    wire.sends("301:401 301:501");
    wire.ack(501);
    wire.sends("501:601");
    assert_eq!(reactions(&wire), 1);
    seen[1] = threshold(&wire);
    seen
}

/// No reduction yet: the threshold has never been set.
const NEVER: u32 = 0x7fff_ffff;

#[test]
fn a_socket_two_cgroups_below_the_bundler_reacts() {
    nested(2, |_| assert_eq!(thresholds(setup()), [NEVER, REDUCED]));
}

#[test]
fn a_program_above_or_below_that_keeps_packets_changes_nothing() {
    for level in [0, 2] {
        nested(3, |cgroups| {
            let _beside = cgroups.attach(level, 1);
            let cgroup = Some(cgroups.level(1).to_owned());
            let seen = thresholds(Setup { cgroup, ..setup() });
            assert_eq!(seen, [NEVER, REDUCED]);
        });
    }
}

#[test]
fn what_another_program_says_of_congestion_is_heard_and_not_counted_as_ours() {
    for level in [0, 2] {
        nested(3, |cgroups| {
            let _beside = cgroups.attach(level, 3);
            let cgroup = Some(cgroups.level(1).to_owned());
            let [at_first, in_the_end] = thresholds(Setup { cgroup, ..setup() });
            assert!(at_first <= REDUCED && in_the_end <= at_first);
        });
    }
}

#[test]
fn where_another_program_is_alone_the_refusal_says_so() {
    nested(2, |cgroups| {
        cgroups.attach_alone(0);
        let policy = Policy {
            rules: vec![Rule::all(Options::default())],
            scope: Scope::ThisNamespace,
            ..Policy::default()
        };
        let programs = Programs::load(&policy).expect("the programs load");
        let cgroup = File::open(cgroups.level(1)).expect("the cgroup");
        let error = Attachment::new(programs, cgroup.as_fd(), &[]).expect_err("it is taken");
        assert!(matches!(error, Error::CgroupTaken), "{error}");
    });
}

/// What is answered is not to be done as well, nor to fail for that the kernel does not know it.
#[test]
fn what_a_program_of_others_answers_stays_answered() {
    const UNKNOWN: (i32, i32) = (0x5e1f, 1);
    const KNOWN: (i32, i32) = (libc::IPPROTO_IP, libc::IP_TOS);
    nested(2, |cgroups| {
        let _answers = [UNKNOWN, KNOWN].map(|it| Answers::at(cgroups.level(1), it));
        let mut bundlers = setup().bundlers;
        for bundlers in [Vec::new(), std::mem::take(&mut bundlers)] {
            let wire = Wire::open(Setup {
                bundlers,
                ..setup()
            });
            wire.set_option(KNOWN, &0x10i32.to_ne_bytes());
            assert_eq!(wire.option(KNOWN), 0);
            wire.set_option(UNKNOWN, &[0; 4]);
        }
    });
}

/// Who may make cgroups below one that a rule names must not get out of the rule.
#[test]
fn a_rule_for_a_cgroup_holds_any_number_of_cgroups_below_it() {
    for (depth, mode, expected) in [
        (2, Mode::LeaveAlone, "1:101 101:201"),
        (17, Mode::LeaveAlone, "1:101 101:201"),
        (40, Mode::LeaveAlone, "1:101 101:201"),
        (80, Mode::LeaveAlone, "1:101 101:201"),
        (2, Mode::Bundle(options()), "1:101 1:201"),
        (17, Mode::Bundle(options()), "1:101 1:201"),
        (40, Mode::Bundle(options()), "1:101 1:201"),
        // So far below, nothing is known of a socket.
        (80, Mode::Bundle(options()), "1:101 101:201"),
    ] {
        nested(depth, |cgroups| {
            let named = Rule {
                cgroups: vec![name_of(cgroups.level(0))],
                mode,
                ..Rule::all(options())
            };
            let any = Rule::all(options());
            let rules = match mode {
                Mode::LeaveAlone => vec![named, any],
                _ => vec![named],
            };
            println!("{depth} cgroups");
            let bundlers = vec![Bundler::by(&rules)];
            let mut wire = Wire::open(Setup {
                bundlers,
                ..setup()
            });
            wire.sends(expected);
        });
    }
}

#[test]
fn the_deepest_cgroup_that_a_rule_can_name_is_found() {
    nested(40, |cgroups| {
        let names = (0..40).map_while(|level| try_name_of(cgroups.level(level)).ok());
        let rule = Rule {
            cgroups: vec![names.last().expect("one at least")],
            ..Rule::all(options())
        };
        let bundlers = vec![Bundler::by(&[rule])];
        let mut wire = Wire::open(Setup {
            bundlers,
            ..setup()
        });
        wire.sends("1:101 1:201");
    });
}

/// Neither does one get out that is so far below that nothing is known of it.
#[test]
fn a_socket_too_far_below_is_left_alone_once_a_rule_names_a_cgroup() {
    nested(80, |cgroups| {
        let any = Rule::all(options());
        let named = Rule {
            cgroups: vec![name_of(cgroups.level(0))],
            mode: Mode::LeaveAlone,
            ..any.clone()
        };
        let bundlers = vec![Bundler::by(std::slice::from_ref(&any))];
        let mut wire = Wire::open(Setup {
            bundlers,
            ..setup()
        });
        wire.sends("1:101 1:201");
        wire.replace_rules(&Bundler::by(&[named.clone(), any]));
        wire.sends("201:301 301:401");
        let allows = Bundler {
            rules: vec![named],
            otherwise: Mode::Allow(options()),
        };
        wire.replace_rules(&allows);
        let asked = pillion::set(&wire.socket(), pillion::BUNDLE, 1);
        let refused = asked.expect_err("the rule holds").raw_os_error();
        assert_eq!(refused, Some(libc::EPERM));
        wire.sends("401:501 501:601");
    });
}

fn name_of(cgroup: &Path) -> CgroupName {
    try_name_of(cgroup).expect("a name")
}

fn try_name_of(cgroup: &Path) -> Result<CgroupName, CgroupNameError> {
    let mount = pillion_bpf::cgroup2_mount().expect("cgroup v2");
    let below = cgroup.strip_prefix(mount).expect("a cgroup of version 2");
    format!("/{}", below.display()).parse()
}

#[test]
fn where_acks_are_seen_no_more_nothing_is_bundled() {
    nested(2, |cgroups| {
        let cgroup = Some(cgroups.level(0).to_owned());
        let mut wire = Wire::open(Setup { cgroup, ..setup() });
        wire.sends("1:101 1:201");
        wire.ack(201);
        cgroups.detach_arrivals(0);
        cgroups.take_arrivals(0);
        wire.stay(2);
        wire.sends("201:301 301:401");
        wire.ack(401);
        wire.sends("401:501 501:601");
    });
}

#[test]
fn where_acks_are_seen_again_bundles_go_on() {
    nested(2, |cgroups| {
        let cgroup = Some(cgroups.level(0).to_owned());
        let mut wire = Wire::open(Setup { cgroup, ..setup() });
        wire.sends("1:101 1:201");
        wire.ack(201);
        cgroups.detach_arrivals(0);
        wire.stay(3);
        wire.sends("201:301 201:401");
    });
}

/// Its programs see each socket below it, however far.
#[test]
fn a_socket_any_number_of_cgroups_below_the_bundler_meets_rules_that_have_changed() {
    for depth in [2, 16, 17] {
        nested(depth, |cgroups| {
            let cgroup = Some(cgroups.level(0).to_owned());
            let mut wire = Wire::open(Setup { cgroup, ..setup() });
            wire.sends("1:101 1:201");
            wire.replace_rules(&Bundler::by(&[]));
            println!("{depth} cgroups");
            wire.sends("201:301 301:401");
        });
    }
}
