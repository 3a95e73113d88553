use std::fs::{self, File};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use libbpf_sys::bpf_link_create;

use crate::programs::{detach_link, load_constant, own_fd};

/// Cgroups (v2) one below the other, below the one that the tests are in. The calling thread
/// is in the innermost, and so are the sockets that it makes, until this is dropped.
pub struct Nested {
    own: PathBuf,
    levels: Vec<PathBuf>,
}

/// A program of somebody else's at a cgroup; it is detached when this is dropped.
pub struct Beside {
    _link: OwnedFd,
}

impl Nested {
    /// Makes so many cgroups one below the other, and enters the innermost.
    ///
    /// # Panics
    /// When the kernel has no cgroup v2, or allows no threads in cgroups of their own.
    #[must_use]
    pub fn enter(depth: usize) -> Self {
        let own = own_cgroup();
        let name = format!("wire-{}", nix::unistd::gettid());
        let mut nested = Self {
            levels: Vec::new(),
            own: own.clone(),
        };
        let mut path = own.join(name);
        for _ in 0..depth {
            fs::create_dir(&path).expect("a cgroup");
            nested.levels.push(path.clone());
            fs::write(path.join("cgroup.type"), "threaded").expect("one for threads");
            path.push("inner");
        }
        let innermost = nested.levels.last().expect("one at least");
        fs::write(innermost.join("cgroup.threads"), "0").expect("the thread moves");
        nested
    }

    /// The path of one of the cgroups, the outermost being 0.
    #[must_use]
    pub fn level(&self, level: usize) -> &Path {
        &self.levels[level]
    }

    /// Attaches a program to one of the cgroups that gives each packet that leaves the same
    /// outcome: 1 keeps it, 3 keeps it and tells TCP of congestion.
    ///
    /// # Panics
    /// When the kernel refuses.
    #[must_use]
    pub fn attach(&self, level: usize, outcome: i32) -> Beside {
        let cgroup = File::open(self.level(level)).expect("the cgroup");
        let program = at_egress(outcome);
        // SAFETY: two file descriptors, and no options.
        let link = unsafe {
            bpf_link_create(
                program.as_raw_fd(),
                cgroup.as_raw_fd(),
                libbpf_sys::BPF_CGROUP_INET_EGRESS,
                std::ptr::null(),
            )
        };
        Beside {
            _link: own_fd(link),
        }
    }

    /// Attaches a program to one of the cgroups such that nobody else can attach there or below.
    ///
    /// # Panics
    /// When the kernel refuses.
    pub fn attach_alone(&self, level: usize) {
        self.alone(level, libbpf_sys::BPF_CGROUP_INET_EGRESS);
    }

    /// Detaches what this process has at one of the cgroups for packets that arrive.
    ///
    /// # Panics
    /// When the kernel refuses, or nothing is there.
    pub fn detach_arrivals(&self, level: usize) {
        let links = self.links(level, libbpf_sys::BPF_CGROUP_INET_INGRESS);
        assert!(!links.is_empty(), "nothing is attached");
        assert!(links.into_iter().all(detach_link));
    }

    /// The same as [`Self::attach_alone`], for packets that arrive.
    ///
    /// # Panics
    /// When the kernel refuses.
    pub fn take_arrivals(&self, level: usize) {
        self.alone(level, libbpf_sys::BPF_CGROUP_INET_INGRESS);
    }

    /// The links of this process at one of the cgroups, by their ids.
    fn links(&self, level: usize, kind: u32) -> Vec<u32> {
        let cgroup = fs::metadata(self.level(level)).expect("the cgroup").ino();
        let known = fs::read_dir("/proc/self/fdinfo").expect("what is open");
        let texts = known.filter_map(|file| fs::read_to_string(file.ok()?.path()).ok());
        let value = |text: &str, key: &str| {
            let value = text.lines().find_map(|line| line.strip_prefix(key));
            value.and_then(|value| value.trim().parse::<u64>().ok())
        };
        let is_there = |text: &String| {
            value(text, "cgroup_id:") == Some(cgroup)
                && value(text, "attach_type:") == Some(kind.into())
        };
        let there = texts.filter(is_there);
        let ids = there.filter_map(|text| u32::try_from(value(&text, "link_id:")?).ok());
        ids.collect()
    }

    fn alone(&self, level: usize, kind: u32) {
        let cgroup = File::open(self.level(level)).expect("the cgroup");
        // SAFETY: two file descriptors and integers. It ends with the cgroup.
        let result = unsafe {
            libbpf_sys::bpf_prog_attach(at_egress(1).as_raw_fd(), cgroup.as_raw_fd(), kind, 0)
        };
        assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
    }
}

impl Drop for Nested {
    fn drop(&mut self) {
        let _ = fs::write(self.own.join("cgroup.threads"), "0");
        for level in self.levels.iter().rev() {
            let _ = fs::remove_dir(level);
        }
    }
}

fn own_cgroup() -> PathBuf {
    let mount = pillion_bpf::cgroup2_mount().expect("cgroup v2");
    let memberships = fs::read_to_string("/proc/thread-self/cgroup").expect("memberships");
    let own = memberships
        .lines()
        .find_map(|line| line.strip_prefix("0::/"));
    mount.join(own.expect("one of version 2"))
}

fn at_egress(outcome: i32) -> OwnedFd {
    load_constant(
        libbpf_sys::BPF_PROG_TYPE_CGROUP_SKB,
        libbpf_sys::BPF_CGROUP_INET_EGRESS,
        c"beside",
        outcome,
    )
}
