//! The service manager's protocol, sd_notify(3). Without a manager nothing is told.

use std::borrow::Cow;

use sd_notify::NotifyState;

use crate::handover::predecessor;

/// Bytes of a status. A manager drops a message beyond 4 KiB, and all that it says.
const LONGEST_STATUS: usize = 1024;

fn notify(state: &[NotifyState]) {
    // A manager that cannot be reached gives up by itself, by the watchdog.
    let _ = sd_notify::notify(state);
}

/// pillion waits, and is up as far as the manager is concerned: what it waits for may never come.
/// While it is to succeed another one, that one has the word.
pub fn waits(why: &str) {
    if predecessor().is_none() {
        let status = format!("waits: {why}");
        notify(&[NotifyState::Ready, NotifyState::Status(&brief(&status))]);
    }
}

/// pillion is at work.
pub fn is_at_work(what: &str) {
    let id = NotifyState::MainPid(std::process::id());
    notify(&[NotifyState::Ready, id, NotifyState::Status(&brief(what))]);
}

/// What pillion is at work on is another now.
pub fn bundles(what: &str) {
    notify(&[NotifyState::Status(&brief(what))]);
}

/// Another process has the work from now on. It says so itself, but this one may have said that it is
/// at work after that.
pub fn is_succeeded_by(id: u32) {
    notify(&[NotifyState::MainPid(id)]);
}

/// pillion reads its rules again, until it is at work once more.
pub fn reloads() {
    let now = NotifyState::monotonic_usec_now().ok();
    let state: Vec<_> = [NotifyState::Reloading].into_iter().chain(now).collect();
    notify(&state);
}

/// pillion ends.
pub fn ends() {
    notify(&[NotifyState::Stopping]);
}

/// The watchdog hears that pillion is alive.
pub fn is_alive() {
    notify(&[NotifyState::Watchdog]);
}

/// As much of a status as there is room for.
fn brief(status: &str) -> Cow<'_, str> {
    const CUT: &str = "...";
    if status.len() <= LONGEST_STATUS {
        return status.into();
    }
    let ends = status.char_indices().map(|(end, _)| end);
    let end = ends
        .take_while(|end| *end <= LONGEST_STATUS - CUT.len())
        .last();
    (status[..end.unwrap_or_default()].to_owned() + CUT).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_cut_between_its_letters() {
        assert_eq!(brief("bundling"), "bundling");
        let fits = "\u{e4}".repeat(LONGEST_STATUS / 2);
        assert_eq!(brief(&fits), fits);
        let cut = brief(&(fits + "a")).into_owned();
        assert!(cut.ends_with("\u{e4}..."));
        assert_eq!(cut.len(), LONGEST_STATUS - 1);
    }
}
