//! What the switch does where the kernel has no memory for what is remembered of a connection.

use super::*;

/// The connection finds no kernel memory for what is to be remembered of it.
fn without_memory(bundler: Bundler, opening: Opening, test: impl FnOnce(&mut Wire) + Send) {
    isolated(|| {
        sysctl("net.core.optmem_max", "1");
        let setup = Setup {
            opening,
            ..under(bundler)
        };
        let mut wire = Wire::open(setup);
        assert_eq!(stats(&wire).segments, 0);
        sysctl("net.core.optmem_max", "131072");
        test(&mut wire);
    });
}

#[test]
fn its_want_frees_no_connection_of_its_rule() {
    let cautious = Options {
        wait_for_loss: true,
        ..unlimited()
    };
    for mode in [Mode::LeaveAlone, Mode::Bundle(cautious)] {
        let bundler = Bundler {
            rules: vec![rule(mode)],
            otherwise: Mode::Allow(unlimited()),
        };
        without_memory(bundler, Opening::Active, |wire| {
            set(wire, BUNDLE, 1);
            wire.sends("1:101 101:201");
            assert_eq!(stats(wire).rule, 1);
            let again = pillion::set(&wire.socket(), BUNDLE, 1);
            assert_eq!(again.is_ok(), mode != Mode::LeaveAlone);
        });
    }
}

#[test]
fn who_declines_is_bundled_by_no_other_option() {
    isolated(|| {
        let bundler = Bundler::by(&[rule(Mode::Bundle(unlimited()))]);
        let mut wire = Wire::open(under(bundler));
        wire.sends("1:101 1:201");
        sysctl("net.core.optmem_max", "1");
        set(&wire, BUNDLE, 0);
        sysctl("net.core.optmem_max", "131072");
        set(&wire, MAX_BYTES, 1000);
        wire.sends("201:301");
        assert_eq!(get(&wire, BUNDLE), 0);
    });
}

#[test]
fn who_declined_is_not_bundled_once_a_rule_covers_the_connection_anew() {
    isolated(|| {
        let bundler = || Bundler::by(&[rule(Mode::Bundle(unlimited()))]);
        let mut wire = Wire::open(under(bundler()));
        wire.sends("1:101 1:201");
        sysctl("net.core.optmem_max", "1");
        set(&wire, BUNDLE, 0);
        sysctl("net.core.optmem_max", "131072");
        wire.replace_rules(&Bundler::by(&[]));
        wire.replace_rules(&bundler());
        wire.sends("201:301 301:401");
        assert_eq!(get(&wire, BUNDLE), 0);
    });
}

#[test]
fn nobody_declines_for_a_connection_to_come() {
    isolated(|| {
        let bundler = Bundler::by(&[rule(Mode::Bundle(unlimited()))]);
        let mut wire = Wire::open(under(bundler));
        wire.sends("1:101 1:201");
        wire.end();
        sysctl("net.core.optmem_max", "1");
        assert_eq!(errno(pillion::set(&wire.socket(), BUNDLE, 0)), libc::ENOMEM);
    });
}

#[test]
fn nothing_is_granted_where_rules_ask_who_opened_it() {
    let bundler = |direction| Bundler {
        rules: vec![Rule {
            direction: Some(direction),
            ..rule(Mode::LeaveAlone)
        }],
        otherwise: Mode::Allow(unlimited()),
    };
    for opening in [Opening::Active, Opening::Passive] {
        without_memory(bundler(Direction::Accept), opening, |wire| {
            let on = pillion::set(&wire.socket(), BUNDLE, 1);
            assert_eq!(errno(on), libc::EPERM);
            set(wire, BUNDLE, 0);
            wire.sends("1:101 101:201");
        });
    }
    under(bundler(Direction::Accept)).run(|wire| {
        set(wire, BUNDLE, 1);
        wire.sends("1:101 1:201");
    });
}
