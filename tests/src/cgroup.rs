use std::fs::{self, File};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use libbpf_sys::bpf_link_create;

use crate::programs::{detach_link, load_constant, own_fd};

/// Nested cgroups (v2) below the cgroup of the tests. Until this is dropped, the calling thread and
/// its sockets are in the innermost one.
pub struct NestedCgroups {
    original: PathBuf,
    levels: Vec<PathBuf>,
}

/// Cgroup program of another party; detached on drop.
pub struct ForeignProgram {
    _link: OwnedFd,
}

impl NestedCgroups {
    /// Creates `depth` nested cgroups and enters the innermost.
    ///
    /// # Panics
    /// If the kernel lacks cgroup v2 or threaded cgroups.
    #[must_use]
    pub fn enter(depth: usize) -> Self {
        let original = own_cgroup();
        let name = format!("wire-{}", nix::unistd::gettid());
        let mut nested = Self {
            levels: Vec::new(),
            original: original.clone(),
        };
        let mut path = original.join(name);
        for _ in 0..depth {
            fs::create_dir(&path).expect("a cgroup");
            nested.levels.push(path.clone());
            fs::write(path.join("cgroup.type"), "threaded").expect("a threaded cgroup");
            path.push("inner");
        }
        let innermost = nested.levels.last().expect("one at least");
        fs::write(innermost.join("cgroup.threads"), "0").expect("the thread moves");
        nested
    }

    /// Returns the path of a cgroup; 0 is the outermost.
    #[must_use]
    pub fn level(&self, level: usize) -> &Path {
        &self.levels[level]
    }

    /// Attaches a program to a cgroup that returns the same value for each outgoing packet: 1
    /// passes it, 3 passes it and signals congestion to TCP.
    ///
    /// # Panics
    /// If the kernel refuses.
    #[must_use]
    pub fn attach(&self, level: usize, outcome: i32) -> ForeignProgram {
        let cgroup = File::open(self.level(level)).expect("the cgroup");
        let program = load_program(outcome);
        // SAFETY: two file descriptors, and no options.
        let link = unsafe {
            bpf_link_create(
                program.as_raw_fd(),
                cgroup.as_raw_fd(),
                libbpf_sys::BPF_CGROUP_INET_EGRESS,
                std::ptr::null(),
            )
        };
        ForeignProgram {
            _link: own_fd(link),
        }
    }

    /// Attaches a program to a cgroup exclusively: no other program can attach there or below.
    ///
    /// # Panics
    /// If the kernel refuses.
    pub fn attach_exclusive(&self, level: usize) {
        self.attach_exclusive_for(level, libbpf_sys::BPF_CGROUP_INET_EGRESS);
    }

    /// Detaches this process's ingress programs from a cgroup.
    ///
    /// # Panics
    /// If the kernel refuses, or nothing is attached.
    pub fn detach_ingress(&self, level: usize) {
        let links = self.links(level, libbpf_sys::BPF_CGROUP_INET_INGRESS);
        assert!(!links.is_empty(), "nothing is attached");
        assert!(links.into_iter().all(detach_link));
    }

    /// Like [`Self::attach_exclusive`], for ingress.
    ///
    /// # Panics
    /// If the kernel refuses.
    pub fn attach_exclusive_ingress(&self, level: usize) {
        self.attach_exclusive_for(level, libbpf_sys::BPF_CGROUP_INET_INGRESS);
    }

    /// Returns the ids of this process's links at a cgroup.
    fn links(&self, level: usize, kind: u32) -> Vec<u32> {
        let cgroup = fs::metadata(self.level(level)).expect("the cgroup").ino();
        let descriptors = fs::read_dir("/proc/self/fdinfo").expect("open descriptors");
        let texts = descriptors.filter_map(|file| fs::read_to_string(file.ok()?.path()).ok());
        let value = |text: &str, key: &str| {
            let value = text.lines().find_map(|line| line.strip_prefix(key));
            value.and_then(|value| value.trim().parse::<u64>().ok())
        };
        let is_attached = |text: &String| {
            value(text, "cgroup_id:") == Some(cgroup)
                && value(text, "attach_type:") == Some(kind.into())
        };
        let attached = texts.filter(is_attached);
        let ids = attached.filter_map(|text| u32::try_from(value(&text, "link_id:")?).ok());
        ids.collect()
    }

    fn attach_exclusive_for(&self, level: usize, kind: u32) {
        let cgroup = File::open(self.level(level)).expect("the cgroup");
        // SAFETY: two file descriptors and integers. The attachment ends with the cgroup.
        let result = unsafe {
            libbpf_sys::bpf_prog_attach(load_program(1).as_raw_fd(), cgroup.as_raw_fd(), kind, 0)
        };
        assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
    }
}

impl Drop for NestedCgroups {
    fn drop(&mut self) {
        let _ = fs::write(self.original.join("cgroup.threads"), "0");
        for level in self.levels.iter().rev() {
            let _ = fs::remove_dir(level);
        }
    }
}

fn own_cgroup() -> PathBuf {
    let mount = pillion_bpf::cgroup2_mount().expect("cgroup v2");
    let memberships = fs::read_to_string("/proc/thread-self/cgroup").expect("memberships");
    let original = memberships
        .lines()
        .find_map(|line| line.strip_prefix("0::/"));
    mount.join(original.expect("a cgroup of version 2"))
}

fn load_program(outcome: i32) -> OwnedFd {
    load_constant(
        libbpf_sys::BPF_PROG_TYPE_CGROUP_SKB,
        libbpf_sys::BPF_CGROUP_INET_EGRESS,
        c"foreign",
        outcome,
    )
}
