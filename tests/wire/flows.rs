//! What is told of a connection is what went over the wire.

use pillion_bundler::Verdict::{Bundled, NoRoom, NothingOutstanding};
use pillion_bundler::list_flows;
use pillion_tests::{Ip, Setup};

/// A peer's port that no other test uses: all namespaces' connections are listed.
const PORT: u16 = 7999;

#[test]
fn a_connection_is_listed_with_its_ends_and_counters() {
    for ip in [Ip::V4, Ip::V6, Ip::Mapped] {
        Setup {
            ip,
            ..Setup::default()
        }
        .run(|wire| {
            wire.reconnect(PORT);
            wire.sends("1:101 1:201 1:301 301:1701");
            let flows = list_flows().expect("the list");
            let flow = flows
                .iter()
                .find(|flow| flow.peer.port() == PORT)
                .expect("the connection is listed");
            let (local, peer) = match ip {
                Ip::V4 | Ip::Mapped => ("10.0.0.1", "10.0.0.2"),
                Ip::V6 => ("fd00::1", "fd00::2"),
            };
            assert_eq!(flow.local.ip().to_string(), local);
            assert_eq!(flow.peer.ip().to_string(), peer);
            assert_eq!(flow.in_flight, 4);
            assert_eq!(flow.mss, 1460);
            assert_eq!(flow.last, Some(NoRoom));
            assert_eq!(flow.counters, wire.totals().counters);
            assert_eq!(flow.counters.new_bytes, 1700);
            assert_eq!(flow.counters.redundant_bytes, 300);
            wire.assert_verdicts(&[(Bundled, 2), (NothingOutstanding, 1), (NoRoom, 1)]);
        });
    }
}
