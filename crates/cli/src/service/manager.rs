//! The service manager's protocol, sd_notify(3). Without a manager nothing is told.

use sd_notify::NotifyState;

use crate::succession::predecessor;

fn notify(state: &[NotifyState]) {
    // A manager that cannot be reached gives up by itself, by the watchdog.
    let _ = sd_notify::notify(state);
}

/// pillion waits, and is up as far as the manager is concerned: what it waits for may never come.
/// While it is to succeed another one, that one has the word.
pub fn waits(why: &str) {
    if predecessor().is_none() {
        let status = format!("waits: {why}");
        notify(&[NotifyState::Ready, NotifyState::Status(&status)]);
    }
}

/// pillion is at work.
pub fn is_at_work(what: &str) {
    let id = NotifyState::MainPid(std::process::id());
    notify(&[NotifyState::Ready, id, NotifyState::Status(what)]);
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
