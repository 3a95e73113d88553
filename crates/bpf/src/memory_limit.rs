//! The memory limits of this process's cgroups, of version 2 (`memory.max`) or 1.

use std::fs;
use std::path::{Path, PathBuf};

use crate::cgroup_hierarchy::{cgroup2_mount, mounts};

/// The files of one version of cgroups.
struct Files {
    limit: &'static str,
    usage: &'static str,
    /// Prefix of the values in `memory.stat` that include all cgroups below.
    total: &'static str,
}

const VERSION_2: Files = Files {
    limit: "memory.max",
    usage: "memory.current",
    total: "",
};

const VERSION_1: Files = Files {
    limit: "memory.limit_in_bytes",
    usage: "memory.usage_in_bytes",
    total: "total_",
};

/// Returns the bytes that the limits leave to this process, page cache included, because the kernel
/// drops that first; `None` without a limit.
#[must_use]
pub fn available_memory() -> Option<u64> {
    let memberships = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let has_limit = |mount: &PathBuf| mount.join(VERSION_1.limit).exists();
    let version_1 = mounts("cgroup").into_iter().find(has_limit);
    available_below(cgroup2_mount().ok(), version_1, &memberships)
}

fn available_below(
    version_2: Option<PathBuf>,
    version_1: Option<PathBuf>,
    memberships: &str,
) -> Option<u64> {
    let path = |controller: &str| {
        let mut lines = memberships.lines().filter_map(|line| {
            let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
            let is_wanted = controllers.split(',').any(|it| it == controller);
            is_wanted.then_some(path)
        });
        lines.next().map(|it| it.trim_start_matches('/'))
    };
    let hierarchies = [
        (version_2.zip(path("")), VERSION_2),
        (version_1.zip(path("memory")), VERSION_1),
    ];
    let available = hierarchies.into_iter().filter_map(|(at, files)| {
        let (mount, path) = at?;
        // A container may see only a part of its path.
        let folder = mount.join(path);
        let cgroups = folder.ancestors().take_while(|it| it.starts_with(&mount));
        cgroups.filter_map(|it| files.available(it)).min()
    });
    available.min()
}

impl Files {
    /// Returns the bytes that one cgroup's limit leaves.
    fn available(&self, cgroup: &Path) -> Option<u64> {
        let read = |name| fs::read_to_string(cgroup.join(name)).ok();
        // `max` without a limit.
        let limit: u64 = read(self.limit)?.trim().parse().ok()?;
        let usage: u64 = read(self.usage)?.trim().parse().ok()?;
        let stat = read("memory.stat").unwrap_or_default();
        let cache = stat.lines().filter_map(|line| {
            let (name, value) = line.split_once(' ')?;
            let name = name.strip_prefix(self.total)?;
            let is_cache = ["active_file", "inactive_file"].contains(&name);
            is_cache.then(|| value.parse::<u64>().ok())?
        });
        Some(limit.saturating_sub(usage.saturating_sub(cache.sum())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMBERSHIPS: &str = "4:cpu,memory:/a/b\n3:cpuset:/\n0::/a/b\n";

    fn write(folder: &Path, files: &Files, [limit, usage, stat]: [&str; 3]) {
        fs::create_dir_all(folder).unwrap();
        for (name, text) in [
            (files.limit, limit),
            (files.usage, usage),
            ("memory.stat", stat),
        ] {
            fs::write(folder.join(name), text).unwrap();
        }
    }

    #[test]
    fn smallest_limit_of_all_levels_counts() {
        let mount = tempfile::tempdir().unwrap();
        let at = |path| mount.path().join(path);
        let available = || available_below(Some(at("")), None, MEMBERSHIPS);
        write(&at("a/b"), &VERSION_2, ["max\n", "700\n", ""]);
        assert_eq!(available(), None);
        let stat = "anon 600\nactive_file 40\ninactive_file 60\n";
        write(&at("a"), &VERSION_2, ["1000\n", "700\n", stat]);
        assert_eq!(available(), Some(400));
        write(&at("a/b"), &VERSION_2, ["800\n", "700\n", ""]);
        assert_eq!(available(), Some(100));
        write(&at("a/b"), &VERSION_2, ["600\n", "700\n", ""]);
        assert_eq!(available(), Some(0));
    }

    #[test]
    fn limit_of_version_1_counts_in_part_of_hierarchy() {
        let mount = tempfile::tempdir().unwrap();
        let available = || available_below(None, Some(mount.path().to_owned()), MEMBERSHIPS);
        assert_eq!(available(), None);
        let stat = "active_file 1\ntotal_active_file 50\ntotal_inactive_file 0\n";
        write(mount.path(), &VERSION_1, ["1000\n", "700\n", stat]);
        assert_eq!(available(), Some(350));
    }
}
