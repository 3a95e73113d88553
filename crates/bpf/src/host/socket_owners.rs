use std::collections::HashMap;
use std::fs;
use std::path::Path;

use crate::host::process_began;
use crate::host::unit::{Unit, unit_of};

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

/// Whose sockets are: of the processes that have each one open and can be seen from here the one
/// that has run longest, by the socket's inode. So a child that inherited a socket, and may not even
/// have begun its own program, is not taken for its owner. A process that comes or goes meanwhile may
/// be missing.
#[must_use]
pub fn socket_owners() -> HashMap<u64, SocketOwner> {
    let mut owners: HashMap<u64, (Age, SocketOwner)> = HashMap::new();
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
        if let (Ok(name), Some(began)) = (fs::read(path.join("comm")), process_began(&path)) {
            let owner = SocketOwner {
                pid,
                process: String::from_utf8_lossy(name.trim_ascii_end()).into_owned(),
                unit: unit_of(&path),
            };
            for inode in sockets {
                let known = owners.get(&inode);
                if known.is_none_or(|(oldest, _)| (began, pid) < *oldest) {
                    owners.insert(inode, ((began, pid), owner.clone()));
                }
            }
        }
    }
    let owners = owners.into_iter();
    owners.map(|(inode, (_, owner))| (inode, owner)).collect()
}

/// When a process began, in ticks since boot, and its id: a parent's is below its child's but where
/// ids began anew within one tick.
type Age = (u64, u32);

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

    fn listening() -> (TcpListener, u64) {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let descriptor = format!("/proc/self/fd/{}", socket.as_raw_fd());
        let inode = inode(Path::new(&descriptor)).unwrap();
        (socket, inode)
    }

    #[test]
    fn a_socket_of_this_process_is_its_own_though_children_share_it() {
        let (socket, inode) = listening();
        let share = || {
            let socket = OwnedFd::from(socket.try_clone().unwrap());
            let mut cat = Command::new("cat");
            cat.stdin(Stdio::piped()).stdout(socket).spawn().unwrap()
        };
        let mut children: Vec<_> = (0..3).map(|_| share()).collect();
        let owner = socket_owners().remove(&inode);
        for child in &mut children {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        let owner = owner.unwrap();
        let own = fs::read_to_string("/proc/self/comm").unwrap();
        assert_eq!(owner.process, own.trim_end());
        assert_eq!(owner.pid, process::id());
    }

    #[test]
    fn a_process_whose_name_is_no_text_is_an_owner_like_others() {
        let (socket, inode) = listening();
        let mut child = Command::new("sh")
            .args(["-c", r"printf 'ga) \377me' > /proc/$$/comm; read line"])
            .stdin(Stdio::piped())
            .stdout(OwnedFd::from(socket))
            .spawn()
            .unwrap();
        let named = (0..500).any(|_| {
            std::thread::sleep(Duration::from_millis(10));
            let owner = socket_owners().remove(&inode);
            owner.is_some_and(|it| it.process == "ga) \u{fffd}me")
        });
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(named);
    }
}
