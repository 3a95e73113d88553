use std::collections::HashMap;
use std::fs;
use std::path::Path;

use crate::unit::{Unit, unit_of};

/// A process that has a socket open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SocketOwner {
    /// The process's id, as this process sees it.
    pub pid: u32,
    /// The process's name (`comm`), at most 15 bytes; may hold any character, and U+FFFD for bytes
    /// that are no UTF-8.
    pub process: String,
    /// The container or unit that the process is of, if its cgroup tells.
    pub unit: Option<Unit>,
}

/// Whose sockets are: a process that has each one open, by the socket's inode, of all processes that
/// can be seen from here. A process that comes or goes meanwhile may be missing.
#[must_use]
pub fn socket_owners() -> HashMap<u64, SocketOwner> {
    let mut owners = HashMap::new();
    for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let path = process.path();
        let pid = process.file_name().to_str().and_then(|it| it.parse().ok());
        let (Some(pid), Ok(descriptors)) = (pid, fs::read_dir(path.join("fd"))) else {
            continue;
        };
        let sockets = descriptors.flatten().filter_map(|fd| inode(&fd.path()));
        let sockets: Vec<_> = sockets.collect();
        if sockets.is_empty() {
            continue;
        }
        if let Ok(name) = fs::read(path.join("comm")) {
            let owner = SocketOwner {
                pid,
                process: String::from_utf8_lossy(name.trim_ascii_end()).into_owned(),
                unit: unit_of(&path),
            };
            owners.extend(sockets.into_iter().map(|inode| (inode, owner.clone())));
        }
    }
    owners
}

/// The inode of the socket that a descriptor stands for, which reads `socket:[12345]`.
fn inode(descriptor: &Path) -> Option<u64> {
    let target = fs::read_link(descriptor).ok()?;
    let inode = target.to_str()?.strip_prefix("socket:[")?;
    inode.strip_suffix(']')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::os::fd::AsRawFd;
    use std::os::fd::OwnedFd;
    use std::process::{self, Command, Stdio};
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_socket_of_this_process_is_its_own() {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let descriptor = format!("/proc/self/fd/{}", socket.as_raw_fd());
        let inode = inode(Path::new(&descriptor)).unwrap();
        let own = fs::read_to_string("/proc/self/comm").unwrap();
        let owner = &socket_owners()[&inode];
        assert_eq!(owner.process, own.trim_end());
        assert_eq!(owner.pid, process::id());
    }

    #[test]
    fn a_process_whose_name_is_no_text_is_an_owner_like_others() {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let descriptor = format!("/proc/self/fd/{}", socket.as_raw_fd());
        let inode = inode(Path::new(&descriptor)).unwrap();
        let mut child = Command::new("sh")
            .args(["-c", r"printf 'ga\377me' > /proc/$$/comm; read line"])
            .stdin(Stdio::piped())
            .stdout(OwnedFd::from(socket))
            .spawn()
            .unwrap();
        let named = (0..500).any(|_| {
            std::thread::sleep(Duration::from_millis(10));
            let owner = socket_owners().remove(&inode);
            owner.is_some_and(|it| it.process == "ga\u{fffd}me")
        });
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(named);
    }
}
