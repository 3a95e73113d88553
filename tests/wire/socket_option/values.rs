//! Tests option values and lengths, statistics, and sockets and options that do not belong to
//! pillion.

use std::fs;
use std::net::{TcpListener, UdpSocket};
use std::os::fd::BorrowedFd;

use nix::errno::Errno;
use nix::sys::socket::SockProtocol;
use pillion_bpf::host::pillion::STATS;
use pillion_bpf::host::socket_option;
use pillion_bpf::{Outcome, RequestedBy, list_flows};

use super::*;

/// Calls setsockopt(2) with any length.
fn set_bytes(socket: BorrowedFd, option: i32, value: &[u8]) -> io::Result<()> {
    Ok(socket_option::set(
        socket,
        (libc::IPPROTO_TCP, option),
        value,
    )?)
}

/// Calls getsockopt(2) with any length. Returns the bytes written.
fn get_bytes(socket: BorrowedFd, option: i32, length: usize) -> io::Result<Vec<u8>> {
    let mut value = vec![0xee; length];
    let written = socket_option::read(socket, (libc::IPPROTO_TCP, option), &mut value)?;
    value.truncate(written);
    Ok(value)
}

#[test]
fn invalid_values_and_lengths_are_rejected() {
    allowed().run(|wire| {
        let socket = wire.socket();
        for (option, value) in [
            (BUNDLE, 2),
            (BUNDLE, -1),
            (MAX_PACKETS, -1),
            (MAX_BYTES, i32::MIN),
            (MODE, 8),
            (MODE, -1),
        ] {
            let result = pillion::set(&socket, option, value);
            assert_eq!(errno(result), libc::EINVAL, "{option:x} {value}");
        }
        for option in [BUNDLE, MAX_PACKETS, MAX_BYTES, MODE] {
            for length in [0, 1, 3] {
                let result = set_bytes(socket, option, &[0; 3][..length]);
                assert_eq!(errno(result), libc::EINVAL, "{option:x} {length}");
                let result = get_bytes(socket, option, length);
                assert_eq!(errno(result), libc::EINVAL, "{option:x} {length}");
            }
            let mut long = vec![0; 10_000];
            long[0] = 1;
            set_bytes(socket, option, &long).expect("the first four bytes count");
            let read = get_bytes(socket, option, 10_000).expect("an int");
            assert_eq!((read.len(), read[0] & 1), (4, 1), "{option:x}");
        }
        for option in [STATS, STATS + 1, BUNDLE - 1] {
            let result = pillion::set(&socket, option, 1);
            assert_eq!(errno(result), libc::ENOPROTOOPT, "{option:x}");
        }
        assert_eq!(errno(get_bytes(socket, STATS, 7)), libc::EINVAL);
    });
}

#[test]
fn statistics_match_listed_flow() {
    /// A peer port that no other test uses, because connections of all namespaces are listed.
    const PORT: u16 = 7992;
    allowed().run(|wire| {
        wire.reconnect(PORT);
        set(wire, BUNDLE, 1);
        set(wire, MAX_BYTES, 1000);
        wire.sends("1:101 1:201 1:301");
        wire.ack(101);
        wire.ack_duplicate(301, "1:101", "");
        wire.sends("301:401");
        let statistics = stats(wire);
        let flows = list_flows().expect("the list");
        let flow = flows.iter().find(|flow| flow.peer.port() == PORT);
        let flow = flow.expect("the connection is listed");
        let counters = &flow.counters;
        assert_eq!(flow.requested_by, RequestedBy::Application);
        assert_eq!((flow.rule, flow.disabled_by_application), (None, false));
        assert_eq!(flow.last_outcome, Some(NothingOutstanding));
        let expected = pillion::Stats {
            segments: counters.segments(),
            bundled: counters.of(Bundled),
            new_bytes: counters.new_bytes,
            redundant_bytes: counters.redundant_bytes,
            hidden_losses: counters.hidden_losses,
            repaired_bytes: counters.repaired_bytes,
            reactions: counters.reactions,
            time_saved_us: counters.time_saved_us,
            state: pillion::BY_APPLICATION,
            last: Outcome::NothingOutstanding as u32 + 1,
            rule: 0,
            in_flight: flow.in_flight,
            level: flow.level,
            max_packets: 0,
            max_bytes: 1000,
            mode: pillion::REACT_CWR as u32,
        };
        assert_eq!(statistics, expected);
        assert_eq!((statistics.segments, statistics.bundled), (4, 2));
        assert_eq!(
            (statistics.hidden_losses, statistics.repaired_bytes),
            (1, 100)
        );
        set(wire, BUNDLE, 0);
        assert_eq!(stats(wire).bundled, 2, "they survive switching off");
        assert!(
            list_flows()
                .expect("the list")
                .iter()
                .any(|flow| flow.disabled_by_application)
        );
    });
}

#[test]
fn statistics_are_cut_to_buffer_and_known_length() {
    allowed().run(|wire| {
        set(wire, BUNDLE, 1);
        wire.sends("1:101 1:201");
        let whole = get_bytes(wire.socket(), STATS, 10_000).expect("all");
        assert_eq!(whole.len(), size_of::<pillion::Stats>());
        for length in [8, 15, 16, 95] {
            let part = get_bytes(wire.socket(), STATS, length).expect("a part");
            assert_eq!(part, whole[..length / 8 * 8]);
        }
    });
}

#[test]
fn statistics_fail_without_connection() {
    allowed().run(|wire| {
        assert_eq!(stats(wire).segments, 0, "before it was bundled");
        let listener = TcpListener::bind("[::]:0").expect("a listener");
        assert_eq!(errno(pillion::stats(&listener)), libc::ENOTCONN);
    });
}

#[test]
fn value_set_after_connection_end_is_read_back() {
    allowed().run(|wire| {
        set(wire, BUNDLE, 1);
        wire.sends("1:101 1:201");
        wire.end();
        for value in [0, 1] {
            set(wire, BUNDLE, value);
            assert_eq!(get(wire, BUNDLE), value);
        }
    });
}

/// `include/pillion.h`: returns the effective limit while the connection is bundled, otherwise the
/// requested one.
#[test]
fn value_set_while_switched_off_is_read_back() {
    let rule_options = Options {
        max_packets: Some(4),
        max_bytes: 1000,
        ..unlimited()
    };
    let request = [
        (MAX_PACKETS, 2),
        (MAX_BYTES, 500),
        (MODE, pillion::WAIT_FOR_LOSS),
    ];
    under(Bundler::with(rule_options)).run(|wire| {
        wire.sends("1:101 1:201");
        set(wire, BUNDLE, 0);
        for (option, value) in request {
            set(wire, option, value);
        }
        assert_eq!(
            request.map(|(option, _)| (option, get(wire, option))),
            request
        );
        set(wire, BUNDLE, 1);
        set(wire, MAX_PACKETS, 5);
        assert_eq!(get(wire, MAX_PACKETS), 4, "the limit of the rule");
    });
}

#[test]
fn options_are_unknown_without_pillion() {
    allowed().run(|wire| {
        set(wire, BUNDLE, 1);
        wire.detach();
        for option in [BUNDLE, MAX_PACKETS, MAX_BYTES, MODE, STATS] {
            let socket = wire.socket();
            assert_eq!(errno(pillion::set(&socket, option, 1)), libc::ENOPROTOOPT);
            assert_eq!(errno(pillion::get(&socket, option)), libc::ENOPROTOOPT);
        }
        wire.sends("1:101 101:201");
    });
}

#[test]
fn non_tcp_sockets_do_not_know_options() {
    allowed().run(|_| {
        let udp = UdpSocket::bind("[::]:0").expect("a socket").into();
        let raw = [AddressFamily::Inet, AddressFamily::Inet6].map(|family| {
            let flags = SockFlag::empty();
            socket(family, SockType::Raw, flags, SockProtocol::Tcp).expect("a raw socket")
        });
        let [raw_v4, raw_v6] = raw;
        for (socket, unknown) in [
            (udp, libc::ENOPROTOOPT),
            (raw_v4, libc::EOPNOTSUPP),
            (raw_v6, libc::ENOPROTOOPT),
        ] {
            assert_eq!(errno(pillion::set(&socket, BUNDLE, 1)), libc::ENOPROTOOPT);
            assert_eq!(errno(pillion::get(&socket, BUNDLE)), unknown);
            assert_eq!(errno(pillion::stats(&socket)), unknown);
        }
    });
}

#[test]
fn kernel_options_are_unaffected_by_pillion() {
    allowed().run(|wire| {
        let socket = wire.socket();
        set_bytes(socket, libc::TCP_USER_TIMEOUT, &[1, 2, 0, 0]).expect("set");
        let read = get_bytes(socket, libc::TCP_USER_TIMEOUT, 4).expect("read");
        assert_eq!(read, [1, 2, 0, 0]);
        let mut name = vec![0; 9000];
        name[..4].copy_from_slice(b"reno");
        set_bytes(socket, libc::TCP_CONGESTION, &name).expect("longer than a page");
        let read = get_bytes(socket, libc::TCP_CONGESTION, 9000).expect("read");
        assert_eq!(&read[..5], b"reno\0");
        let info = get_bytes(socket, libc::TCP_INFO, 10_000).expect("TCP_INFO");
        assert!(info.len() > 200 && info[0] == 1, "{info:?}");
        let unknown = get_bytes(socket, 9999, 4);
        assert_eq!(errno(unknown), libc::ENOPROTOOPT);
    });
}

/// The kernel's TLS copies keys in a way that triggers a kernel warning, unless they are in user
/// memory.
#[test]
fn tls_keys_are_set_without_kernel_warning() {
    /// Bit of /proc/sys/kernel/tainted that is set after a kernel warning.
    const TAINT_WARN: u64 = 1 << 9;
    let has_warned = || {
        let taints = fs::read_to_string("/proc/sys/kernel/tainted").expect("the taints");
        taints.trim().parse::<u64>().expect("a number") & TAINT_WARN != 0
    };
    allowed().run(|wire| {
        if set_bytes(wire.socket(), libc::TCP_ULP, b"tls").is_err() {
            println!("left out: this kernel has no TLS");
            return;
        }
        let had_warned = has_warned();
        let mut keys = [7; size_of::<libc::tls12_crypto_info_aes_gcm_128>()];
        keys[..2].copy_from_slice(&libc::TLS_1_2_VERSION.to_ne_bytes());
        keys[2..4].copy_from_slice(&libc::TLS_CIPHER_AES_GCM_128.to_ne_bytes());
        let option = (libc::SOL_TLS, libc::TLS_TX);
        // After copying the keys, the kernel looks up the cipher, which it may lack.
        let set = socket_option::set(wire.socket(), option, &keys);
        assert!(matches!(set, Ok(()) | Err(Errno::ENOENT)));
        assert_eq!(has_warned(), had_warned);
    });
}
