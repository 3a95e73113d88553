//! A setuid bit lends root's privilege to whoever calls: for `run`, which gives it up again
//! before the command begins, and for nothing else.

use nix::unistd::Uid;

use pillion_settings::BadInput;

/// Is the privilege not the caller's own?
pub fn is_lent() -> bool {
    Uid::current() != Uid::effective()
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
