//! A setuid bit lends root's privilege to whoever calls: for `run`, which gives it up again
//! before the command begins, and for nothing else.

use nix::unistd::{Uid, seteuid};

use pillion_cli::settings::BadInput;

/// Is the privilege not the caller's own?
pub fn is_lent() -> bool {
    Uid::current() != Uid::effective()
}

/// Does something with no more than the caller's own privilege: of a command line too, parts are tried
/// out in the kernel.
pub fn as_the_caller<T>(act: impl FnOnce() -> T) -> T {
    let lent = Uid::effective();
    let given_back = is_lent() && seteuid(Uid::current()).is_ok();
    let result = act();
    if given_back {
        // The saved user is still the lent one.
        let _ = seteuid(lent);
    }
    result
}

/// Refuses what would let the caller do more than `run` does.
///
/// # Errors
/// [`BadInput`] if the privilege is lent.
pub fn refuse(what: &str) -> Result<(), BadInput> {
    if is_lent() {
        let remedy = "call it as root, or by sudo";
        return Err(BadInput(format!(
            "{what}: not with a setuid pillion; {remedy}"
        )));
    }
    Ok(())
}
