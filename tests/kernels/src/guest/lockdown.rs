use std::fs;

use nix::mount::{MsFlags, mount};

const SECURITY: &str = "/sys/kernel/security";

/// Has the kernel keep its memory from everybody, programs in it included: as with
/// `lockdown=confidentiality` on its command line, and for as long as it runs.
pub fn lock() -> Result<(), String> {
    let none: Option<&str> = None;
    let mounted = mount(none, SECURITY, Some("securityfs"), MsFlags::empty(), none);
    mounted.map_err(|errno| format!("{SECURITY}: {errno}"))?;
    let path = format!("{SECURITY}/lockdown");
    fs::write(&path, "confidentiality").map_err(|error| format!("{path}: {error}"))
}
