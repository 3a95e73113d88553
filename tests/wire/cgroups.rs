//! Tests that the reaction reaches the kernel from any cgroup above the socket, alongside programs
//! of others.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;

use pillion_bpf::host::pillion;
use pillion_bpf::{
    Attachment, CgroupName, CgroupNameError, Error, LossRule, Mode, Options, Policy, Programs,
    Rule, Scope, ThinTest,
};
use pillion_tests::{Bundler, NestedCgroups, OptionHandler, Setup, Wire, isolated, limit_one};

/// Initial window, and Reno's threshold after a reduction, in segments.
const WINDOW: u32 = 10;
const REDUCED_WINDOW: u32 = 5;

/// The published mechanism, in which the reaction leaves with the next packet.
fn options() -> Options {
    Options {
        thin: ThinTest::Always,
        max_packets: Some(0),
        loss_rule: LossRule::Dsack,
        published: true,
        ..limit_one()
    }
}

fn setup() -> Setup {
    Setup {
        initial_window: WINDOW,
        ..Setup::bundling(options())
    }
}

/// Runs a test whose socket is in the innermost of `depth` nested cgroups.
fn nested(depth: usize, test: impl FnOnce(&NestedCgroups) + Send) {
    isolated(|| test(&NestedCgroups::enter(depth)));
}

fn threshold(wire: &Wire) -> u32 {
    wire.tcp_info().tcpi_snd_ssthresh
}

fn reactions(wire: &Wire) -> u64 {
    wire.totals().counters.reactions
}

/// Sends without loss, then hides a loss, and returns the slow-start threshold after each part.
fn thresholds(setup: Setup) -> [u32; 2] {
    let mut observed = [0; 2];
    let mut wire = Wire::open(setup);
    wire.sends("1:101 1:201");
    wire.ack(101);
    wire.ack_duplicate(201, "1:101", "");
    wire.sends("201:301");
    wire.ack(301);
    assert_eq!(reactions(&wire), 0);
    observed[0] = threshold(&wire);
    wire.sends("301:401 301:501");
    wire.ack(501);
    wire.sends("501:601");
    assert_eq!(reactions(&wire), 1);
    observed[1] = threshold(&wire);
    observed
}

/// Slow-start threshold of a connection that never reduced its window.
const UNSET: u32 = 0x7fff_ffff;

#[test]
fn socket_two_cgroups_below_bundler_reacts() {
    nested(2, |_| {
        assert_eq!(thresholds(setup()), [UNSET, REDUCED_WINDOW]);
    });
}

#[test]
fn pass_through_program_above_or_below_changes_nothing() {
    for level in [0, 2] {
        nested(3, |cgroups| {
            let _foreign = cgroups.attach(level, 1);
            let cgroup = Some(cgroups.level(1).to_owned());
            let observed = thresholds(Setup { cgroup, ..setup() });
            assert_eq!(observed, [UNSET, REDUCED_WINDOW]);
        });
    }
}

#[test]
fn congestion_from_other_program_is_applied_but_not_counted() {
    for level in [0, 2] {
        nested(3, |cgroups| {
            let _foreign = cgroups.attach(level, 3);
            let cgroup = Some(cgroups.level(1).to_owned());
            let [at_first, last] = thresholds(Setup { cgroup, ..setup() });
            assert!(at_first <= REDUCED_WINDOW && last <= at_first);
        });
    }
}

#[test]
fn exclusive_program_is_named_in_attach_error() {
    nested(2, |cgroups| {
        cgroups.attach_exclusive(0);
        let policy = Policy {
            rules: vec![Rule::all(limit_one())],
            scope: Scope::ThisNamespace,
            ..Policy::default()
        };
        let programs = Programs::load(&policy).expect("the programs load");
        let cgroup = File::open(cgroups.level(1)).expect("the cgroup");
        let error = Attachment::new(programs, cgroup.as_fd(), &[]).expect_err("it is taken");
        assert!(matches!(error, Error::CgroupTaken), "{error}");
    });
}

/// The kernel must neither apply a handled option as well, nor reject it as unknown.
#[test]
fn option_handled_by_other_program_stays_handled() {
    const UNKNOWN: (i32, i32) = (0x5e1f, 1);
    const KNOWN: (i32, i32) = (libc::IPPROTO_IP, libc::IP_TOS);
    nested(2, |cgroups| {
        let _answers = [UNKNOWN, KNOWN].map(|it| OptionHandler::at(cgroups.level(1), it));
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

/// A user who can create cgroups below the one that a rule names must not escape the rule.
#[test]
fn cgroup_rule_matches_at_any_depth_below() {
    for (depth, mode, expected) in [
        (2, Mode::Never, "1:101 101:201"),
        (17, Mode::Never, "1:101 101:201"),
        (40, Mode::Never, "1:101 101:201"),
        (80, Mode::Never, "1:101 101:201"),
        (2, Mode::Bundle(options()), "1:101 1:201"),
        (17, Mode::Bundle(options()), "1:101 1:201"),
        (40, Mode::Bundle(options()), "1:101 1:201"),
        // At this depth the cgroup of a socket is unknown.
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
                Mode::Never => vec![named, any],
                _ => vec![named],
            };
            println!("{depth} cgroups");
            let bundlers = vec![Bundler::with_rules(&rules)];
            let mut wire = Wire::open(Setup {
                bundlers,
                ..setup()
            });
            wire.sends(expected);
        });
    }
}

#[test]
fn deepest_cgroup_allowed_in_rule_matches() {
    nested(40, |cgroups| {
        let names = (0..40).map_while(|level| try_name_of(cgroups.level(level)).ok());
        let rule = Rule {
            cgroups: vec![names.last().expect("one at least")],
            ..Rule::all(options())
        };
        let bundlers = vec![Bundler::with_rules(&[rule])];
        let mut wire = Wire::open(Setup {
            bundlers,
            ..setup()
        });
        wire.sends("1:101 1:201");
    });
}

/// A socket so deep that its cgroup is unknown must not escape the rule either.
#[test]
fn too_deep_socket_stays_plain_when_rule_names_cgroup() {
    nested(80, |cgroups| {
        let any = Rule::all(options());
        let named = Rule {
            cgroups: vec![name_of(cgroups.level(0))],
            mode: Mode::Never,
            ..any.clone()
        };
        let bundlers = vec![Bundler::with_rules(std::slice::from_ref(&any))];
        let mut wire = Wire::open(Setup {
            bundlers,
            ..setup()
        });
        wire.sends("1:101 1:201");
        wire.replace_rules(&Bundler::with_rules(&[named.clone(), any]));
        wire.sends("201:301 301:401");
        let on_request = Bundler {
            rules: vec![named],
            default_mode: Mode::OnRequest(options()),
        };
        wire.replace_rules(&on_request);
        let request = pillion::set(&wire.socket(), pillion::BUNDLE, 1);
        let refused = request.expect_err("the rule holds").raw_os_error();
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
fn bundling_stops_when_acks_become_invisible() {
    nested(2, |cgroups| {
        let cgroup = Some(cgroups.level(0).to_owned());
        let mut wire = Wire::open(Setup { cgroup, ..setup() });
        wire.sends("1:101 1:201");
        wire.ack(201);
        cgroups.detach_ingress(0);
        cgroups.attach_exclusive_ingress(0);
        wire.keep_attached(2);
        wire.sends("201:301 301:401");
        wire.ack(401);
        wire.sends("401:501 501:601");
    });
}

#[test]
fn bundling_resumes_when_acks_are_visible_again() {
    nested(2, |cgroups| {
        let cgroup = Some(cgroups.level(0).to_owned());
        let mut wire = Wire::open(Setup { cgroup, ..setup() });
        wire.sends("1:101 1:201");
        wire.ack(201);
        cgroups.detach_ingress(0);
        wire.keep_attached(3);
        wire.sends("201:301 201:401");
    });
}

/// The programs see every socket below their cgroup, at any depth.
#[test]
fn changed_rules_reach_sockets_at_any_cgroup_depth() {
    for depth in [2, 16, 17] {
        nested(depth, |cgroups| {
            let cgroup = Some(cgroups.level(0).to_owned());
            let mut wire = Wire::open(Setup { cgroup, ..setup() });
            wire.sends("1:101 1:201");
            wire.replace_rules(&Bundler::with_rules(&[]));
            println!("{depth} cgroups");
            wire.sends("201:301 301:401");
        });
    }
}
