//! Memory over time: of the long-lived pillion, and of the kernel for all processes.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use super::ground::door;

/// Kernel memory charged to the processes of the soak.
#[derive(Debug)]
pub struct Accounting {
    cgroup: PathBuf,
    /// True with cgroup version 1, where a separate hierarchy accounts memory.
    own: bool,
}

impl Accounting {
    /// Uses the version 2 cgroup of the processes, or creates one in the version 1 hierarchy.
    pub fn begin(top: &Path, name: &str) -> io::Result<Self> {
        let Some(parent) = version_1()? else {
            return Ok(Self {
                cgroup: top.to_owned(),
                own: false,
            });
        };
        let cgroup = parent.join(name);
        fs::create_dir(&cgroup)?;
        Ok(Self { cgroup, own: true })
    }

    pub fn door(&self) -> Option<io::Result<File>> {
        self.own.then(|| door(&self.cgroup))
    }

    /// Returns the bytes of kernel memory, including maps and sockets, if this kernel counts them.
    pub fn kernel_bytes(&self) -> Option<u64> {
        let read = |file: &str| fs::read_to_string(self.cgroup.join(file)).ok();
        if self.own {
            return read("memory.kmem.usage_in_bytes")?.trim().parse().ok();
        }
        let stat = read("memory.stat")?;
        let kernel = stat.lines().find_map(|line| line.strip_prefix("kernel "));
        kernel?.parse().ok()
    }

    /// Makes the kernel release caches.
    pub fn reclaim(&self) {
        let (file, all) = match self.own {
            true => ("memory.force_empty", "0"),
            false => ("memory.reclaim", "1G"),
        };
        // The kernel returns an error if it cannot release everything requested.
        let _ = fs::write(self.cgroup.join(file), all);
    }

    /// Removes the accounting cgroup, if it is separate.
    pub fn end(&self) {
        let mut attempts = 100;
        while self.own && fs::remove_dir(&self.cgroup).is_err() && attempts > 0 {
            attempts -= 1;
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Returns this process's memory cgroup of version 1, if that is in use.
fn version_1() -> io::Result<Option<PathBuf>> {
    let mounts = fs::read_to_string("/proc/self/mounts")?;
    let mount = mounts.lines().find_map(|line| {
        let words: Vec<_> = line.split(' ').collect();
        let [_, path, "cgroup", options, ..] = words[..] else {
            return None;
        };
        options.split(',').any(|it| it == "memory").then_some(path)
    });
    let own = fs::read_to_string("/proc/self/cgroup")?;
    let own = own.lines().find_map(|line| line.split_once(":memory:/"));
    let path = |(mount, (_, own)): (&str, (&str, &str))| Path::new(mount).join(own);
    Ok(mount.zip(own).map(path))
}

/// Memory and files at one moment.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sample {
    /// Bytes of the long-lived pillion: resident, and in maps and programs.
    pub resident: u64,
    pub maps: u64,
    /// Its open files.
    pub files: u64,
    /// Bytes of kernel memory of all processes.
    pub kernel: u64,
}

impl Sample {
    pub fn take(pillion: u32, accounting: &Accounting) -> io::Result<Self> {
        let process = PathBuf::from(format!("/proc/{pillion}"));
        let status = fs::read_to_string(process.join("status"))?;
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let mut sample = Self {
            resident: kibibytes(resident),
            kernel: accounting.kernel_bytes().unwrap_or(0),
            ..Self::default()
        };
        for file in fs::read_dir(process.join("fdinfo"))?.flatten() {
            let about = fs::read_to_string(file.path()).unwrap_or_default();
            let bytes = about.lines().find_map(|line| line.strip_prefix("memlock:"));
            sample.maps += bytes.map_or(0, |bytes| bytes.trim().parse().unwrap_or(0));
            sample.files += 1;
        }
        Ok(sample)
    }
}

fn kibibytes(text: Option<&str>) -> u64 {
    let number = text.and_then(|text| text.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    number.unwrap_or(0) * 1024
}
