use std::fs;
use std::process::Command;

use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use nix::sys::resource::{Resource, setrlimit};
use nix::unistd::sethostname;

/// File systems, their places and options, and whether a kernel without them will do.
const MOUNTS: [(&str, &str, Option<&str>, bool); 11] = [
    ("proc", "/proc", None, true),
    ("sysfs", "/sys", None, true),
    ("devtmpfs", "/dev", None, true),
    ("devpts", "/dev/pts", Some("ptmxmode=666"), true),
    ("tmpfs", "/tmp", Some("size=90%"), true),
    ("tmpfs", "/run", None, true),
    ("tmpfs", super::super::RESULTS, Some("size=90%"), true),
    ("cgroup2", "/sys/fs/cgroup", None, false),
    ("bpf", "/sys/fs/bpf", None, false),
    ("tracefs", "/sys/kernel/tracing", None, false),
    ("debugfs", "/sys/kernel/debug", None, false),
];

/// Mounts the kernel's file systems, and those that hold what is written.
pub fn mount_all() -> Result<(), String> {
    for (kind, path, options, needed) in MOUNTS {
        // Only /dev/pts is not there yet.
        let _ = fs::create_dir(path);
        match mount(Some(kind), path, Some(kind), MsFlags::empty(), options) {
            Err(Errno::ENODEV | Errno::ENOENT) if !needed => {}
            Err(errno) => return Err(format!("mount {kind} at {path}: {errno}")),
            Ok(()) => {}
        }
    }
    Ok(())
}

/// Limit of open files: as many as thousands of streams take.
const FILES: u64 = 1 << 20;

/// Names the host, and brings up its loopback device.
pub fn prepare() -> Result<(), String> {
    sethostname("pillion").map_err(|errno| format!("set the host's name: {errno}"))?;
    fs::write("/proc/sys/fs/nr_open", FILES.to_string())
        .map_err(|error| format!("allow open files: {error}"))?;
    setrlimit(Resource::RLIMIT_NOFILE, FILES, FILES)
        .map_err(|errno| format!("allow open files: {errno}"))?;
    let up = Command::new("/bin/ip")
        .args(["link", "set", "lo", "up"])
        .status();
    match up {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("ip link set lo up: {status}")),
        Err(error) => Err(format!("ip: {error}")),
    }
}
