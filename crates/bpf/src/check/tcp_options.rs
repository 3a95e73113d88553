//! Tests which TCP options the kernel accepts from a program, on a connection.

use std::io;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;

use super::{CheckResult, Severity, read};
use crate::host::interface_request;
use crate::{
    CongestionControl, Error, TcpOption, TcpOptions, Totals, available_congestion_controls,
};

/// All TCP options, with values that every kernel accepts.
pub(super) fn all_options() -> TcpOptions {
    TcpOptions {
        linear_timeouts: true,
        nodelay: true,
        rto_min: Some(TcpOptions::MAX_TIME),
        delack_max: Some(TcpOptions::MAX_TIME),
        user_timeout: Some(TcpOptions::MAX_TIME),
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
    let fd = socket.as_raw_fd();
    // SAFETY: the request lives across the call, which reads a name and flags from it.
    let result = unsafe { libc::ioctl(fd, libc::SIOCSIFFLAGS as _, &raw const request) };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The results of setting each TCP option on a connection.
pub(super) fn results(totals: &Totals) -> Vec<CheckResult> {
    let all = TcpOption::ALL.iter();
    all.map(|tcp_option| result(*tcp_option, totals)).collect()
}

fn result(tcp_option: TcpOption, totals: &Totals) -> CheckResult {
    let name = tcp_option.name();
    if !totals.tcp_options_set.contains_key(&tcp_option) {
        return CheckResult::problem(
            name,
            Severity::Warning,
            "refused by this kernel",
            format!(
                "omit --{name}; docs/reference/tcp-options.md lists the required Linux version"
            ),
        );
    }
    match tcp_option {
        TcpOption::LinearTimeouts if read(DEFAULT_CONGESTION).starts_with("bbr") => {
            CheckResult::problem(
                name,
                Severity::Warning,
                "without effect under bbr, this host's congestion control",
                format!("add --congestion cubic to --{name}"),
            )
        }
        TcpOption::Congestion => CheckResult::ok(name, available_congestion_controls().join(", ")),
        _ => CheckResult::ok(name, "can be set"),
    }
}

/// Whether this host's congestion control takes notice of a reaction.
pub(super) fn congestion() -> CheckResult {
    const NAME: &str = "congestion control";
    let control = read(DEFAULT_CONGESTION);
    if !control.starts_with("bbr") {
        return CheckResult::ok(NAME, control);
    }
    CheckResult::problem(
        NAME,
        Severity::Warning,
        format!(
            "{control} ignores CWR: hidden losses do not reduce the window, and connections are bundled only \
             below their fair share (TFRC-SP)"
        ),
        "give --congestion cubic to have hidden losses reduce the window",
    )
}

const DEFAULT_CONGESTION: &str = "/proc/sys/net/ipv4/tcp_congestion_control";
