use std::collections::HashMap;
use std::fs;
use std::path::Path;

/// Whose sockets are: the name of a process that has each one open, by the socket's inode, of all
/// processes that can be seen from here. A process that comes or goes meanwhile may be missing.
#[must_use]
pub fn socket_owners() -> HashMap<u64, String> {
    let mut owners = HashMap::new();
    for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let path = process.path();
        let Ok(descriptors) = fs::read_dir(path.join("fd")) else {
            continue;
        };
        let sockets = descriptors.flatten().filter_map(|fd| inode(&fd.path()));
        let sockets: Vec<_> = sockets.collect();
        if sockets.is_empty() {
            continue;
        }
        if let Ok(name) = fs::read_to_string(path.join("comm")) {
            let name = name.trim_end().to_owned();
            owners.extend(sockets.into_iter().map(|inode| (inode, name.clone())));
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

    use super::*;

    #[test]
    fn a_socket_of_this_process_is_its_own() {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let descriptor = format!("/proc/self/fd/{}", socket.as_raw_fd());
        let inode = inode(Path::new(&descriptor)).unwrap();
        let own = fs::read_to_string("/proc/self/comm").unwrap();
        assert_eq!(socket_owners()[&inode], own.trim_end());
    }
}
