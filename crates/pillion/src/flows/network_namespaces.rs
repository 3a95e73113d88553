//! What network namespaces are called.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;

/// Their names by their inode numbers: of those under /run/netns, and this process's own.
pub fn names() -> BTreeMap<u64, String> {
    let named = fs::read_dir("/run/netns").into_iter().flatten().flatten();
    let named = named.filter_map(|entry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        Some((fs::metadata(entry.path()).ok()?.ino(), name))
    });
    let this = fs::metadata("/proc/self/ns/net").ok();
    let this = this.map(|it| (it.ino(), "this one".to_owned()));
    this.into_iter().chain(named).collect()
}
