//! Tests the socket option when the kernel has no memory to store a connection's request.

use super::*;

/// Runs a test on a connection for which the kernel cannot allocate socket storage.
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
fn missing_memory_exempts_no_connection_from_its_rule() {
    let cautious = Options {
        wait_for_loss: true,
        ..unlimited()
    };
    for mode in [Mode::Never, Mode::Bundle(cautious)] {
        let bundler = Bundler {
            rules: vec![rule(mode)],
            default_mode: Mode::OnRequest(unlimited()),
        };
        without_memory(bundler, Opening::Active, |wire| {
            set(wire, BUNDLE, 1);
            wire.sends("1:101 101:201");
            assert_eq!(stats(wire).rule, 1);
            let again = pillion::set(&wire.socket(), BUNDLE, 1);
            assert_eq!(again.is_ok(), mode != Mode::Never);
        });
    }
}

#[test]
fn declined_socket_is_bundled_by_no_other_option() {
    isolated(|| {
        let bundler = Bundler::with_rules(&[rule(Mode::Bundle(unlimited()))]);
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
fn declined_socket_stays_plain_when_rule_covers_it_again() {
    isolated(|| {
        let bundler = || Bundler::with_rules(&[rule(Mode::Bundle(unlimited()))]);
        let mut wire = Wire::open(under(bundler()));
        wire.sends("1:101 1:201");
        sysctl("net.core.optmem_max", "1");
        set(&wire, BUNDLE, 0);
        sysctl("net.core.optmem_max", "131072");
        wire.replace_rules(&Bundler::with_rules(&[]));
        wire.replace_rules(&bundler());
        wire.sends("201:301 301:401");
        assert_eq!(get(&wire, BUNDLE), 0);
    });
}

#[test]
fn decline_before_connect_fails_without_memory() {
    isolated(|| {
        let bundler = Bundler::with_rules(&[rule(Mode::Bundle(unlimited()))]);
        let mut wire = Wire::open(under(bundler));
        wire.sends("1:101 1:201");
        wire.end();
        sysctl("net.core.optmem_max", "1");
        assert_eq!(errno(pillion::set(&wire.socket(), BUNDLE, 0)), libc::ENOMEM);
    });
}

#[test]
fn request_fails_without_memory_under_direction_rules() {
    let bundler = |direction| Bundler {
        rules: vec![Rule {
            direction: Some(direction),
            ..rule(Mode::Never)
        }],
        default_mode: Mode::OnRequest(unlimited()),
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
