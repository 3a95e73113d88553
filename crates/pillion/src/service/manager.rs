//! Notifications of the service manager, sd_notify(3). Ineffective without a manager.

use std::borrow::Cow;
use std::env;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use pillion_bpf::host::interruption::without_signals;
use sd_notify::NotifyState;

use crate::handover::old_process;

/// Maximum bytes of a status. A manager drops whole messages above 4 KiB.
const MAX_STATUS: usize = 1024;

/// Maximum time to wait for room in the queue of a manager that does not read, once per message. Without
/// a limit, as in `sd_notify::notify`, such a manager stops this process.
const TIMEOUT: Duration = Duration::from_secs(1);

/// Sends a message that is not repeated.
fn notify(state: &[NotifyState]) {
    // An unreachable manager acts by its watchdog.
    let _ = send(state, |socket| socket.set_write_timeout(Some(TIMEOUT)));
}

/// Sends a message if the manager's queue has room.
fn notify_now(state: &[NotifyState]) {
    let _ = send(state, |socket| socket.set_nonblocking(true));
}

fn send(
    state: &[NotifyState],
    limit: impl FnOnce(&UnixDatagram) -> io::Result<()>,
) -> io::Result<()> {
    let Some(path) = env::var_os("NOTIFY_SOCKET") else {
        return Ok(());
    };
    let address = match path.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(&path)?,
    };
    let message: String = state.iter().map(|it| format!("{it}\n")).collect();
    let socket = UnixDatagram::unbound()?;
    socket.connect_addr(&address)?;
    limit(&socket)?;
    without_signals(|| socket.send(message.as_bytes())).map(drop)
}

/// Reports that pillion waits. It counts as ready, because the object may never appear. During a
/// hand-over nothing is sent, because the old process still reports.
pub fn notify_waiting(why: &str) {
    if old_process().is_none() {
        let status = format!("waiting: {why}");
        notify(&[NotifyState::Ready, NotifyState::Status(&brief(&status))]);
    }
}

/// Reports that pillion is ready and is the main process.
pub fn notify_ready(status: &str) {
    let id = NotifyState::MainPid(std::process::id());
    notify(&[NotifyState::Ready, id, NotifyState::Status(&brief(status))]);
}

/// Replaces the status.
pub fn set_status(status: &str) {
    notify_now(&[NotifyState::Status(&brief(status))]);
}

/// Reports the new process of a hand-over as the main process. It does so itself, but this process
/// may have sent its own id after that.
pub fn set_main_process(id: u32) {
    notify(&[NotifyState::MainPid(id)]);
}

/// Reports that a reload started; it ends with [`notify_ready`].
pub fn notify_reloading() {
    let now = NotifyState::monotonic_usec_now().ok();
    let state: Vec<_> = [NotifyState::Reloading].into_iter().chain(now).collect();
    notify(&state);
}

/// Reports that pillion stops.
pub fn notify_stopping() {
    notify(&[NotifyState::Stopping]);
}

/// Resets the watchdog.
pub fn notify_watchdog() {
    notify_now(&[NotifyState::Watchdog]);
}

/// Cuts a status to [`MAX_STATUS`] bytes.
fn brief(status: &str) -> Cow<'_, str> {
    const CUT: &str = "...";
    if status.len() <= MAX_STATUS {
        return status.into();
    }
    let ends = status.char_indices().map(|(end, _)| end);
    let end = ends.take_while(|end| *end <= MAX_STATUS - CUT.len()).last();
    (status[..end.unwrap_or_default()].to_owned() + CUT).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_status_is_cut_between_characters() {
        assert_eq!(brief("bundling"), "bundling");
        let fits = "\u{e4}".repeat(MAX_STATUS / 2);
        assert_eq!(brief(&fits), fits);
        let cut = brief(&(fits + "a")).into_owned();
        assert!(cut.ends_with("\u{e4}..."));
        assert_eq!(cut.len(), MAX_STATUS - 1);
    }
}
