//! Which companions the kernel takes from a program, tried on a connection.

use std::io;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;

use super::{Finding, Standing, read};
use crate::host::interface_request;
use crate::{Companion, Companions, CongestionControl, Error, Totals, offered_congestion_controls};

/// All companions, with values that every kernel takes.
pub(super) fn every() -> Companions {
    Companions {
        linear_timeouts: true,
        nodelay: true,
        rto_min: Some(Companions::LONGEST),
        delack_max: Some(Companions::LONGEST),
        user_timeout: Some(Companions::LONGEST),
        congestion: "reno".parse::<CongestionControl>().ok(),
    }
}

/// A connection of the calling thread's network namespace to itself, which must be a new
/// one: its loopback device is brought up.
pub(super) fn connection() -> Result<(TcpListener, TcpStream), Error> {
    let connect = || {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        bring_up_loopback(&listener)?;
        let stream = TcpStream::connect(listener.local_addr()?)?;
        Ok((listener, stream))
    };
    connect().map_err(|error| Error::system("connect to this host itself", error))
}

fn bring_up_loopback(socket: &impl AsRawFd) -> io::Result<()> {
    let mut request = interface_request("lo")?;
    request.ifr_ifru.ifru_flags = libc::IFF_UP as libc::c_short;
    // SAFETY: the request lives across the call, which reads a name and flags from it.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request) };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// What came of trying the companions on a connection.
pub(super) fn findings(totals: &Totals) -> Vec<Finding> {
    let all = Companion::ALL.iter();
    all.map(|companion| finding(*companion, totals)).collect()
}

fn finding(companion: Companion, totals: &Totals) -> Finding {
    let name = companion.name();
    if !totals.companions_set.contains_key(&companion) {
        return Finding::bad(
            name,
            Standing::Warning,
            "refused by this kernel",
            format!("do without --{name}; docs/companions.md says since when Linux has it"),
        );
    }
    match companion {
        Companion::LinearTimeouts if read(DEFAULT_CONGESTION).starts_with("bbr") => Finding::bad(
            name,
            Standing::Warning,
            "without effect under bbr, this host's congestion control",
            format!("give --congestion cubic beside --{name}"),
        ),
        Companion::Congestion => Finding::ok(name, offered_congestion_controls().join(", ")),
        _ => Finding::ok(name, "can be set"),
    }
}

/// Whether this host's congestion control takes notice of a reaction.
pub(super) fn congestion() -> Finding {
    const NAME: &str = "congestion control";
    let control = read(DEFAULT_CONGESTION);
    if !control.starts_with("bbr") {
        return Finding::ok(NAME, control);
    }
    Finding::bad(
        NAME,
        Standing::Warning,
        format!(
            "{control} ignores CWR: no hidden loss reduces the window, and connections are bundled only \
             below their fair share (TFRC-SP)"
        ),
        "give --congestion cubic to have hidden losses reduce the window",
    )
}

const DEFAULT_CONGESTION: &str = "/proc/sys/net/ipv4/tcp_congestion_control";
