//! Memory over time: of the long-lived pillion, and of the kernel for all processes.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io, thread};

use super::device_churn::DEVICES;
use super::environment::procs_file;

/// Kernel memory charged to the processes of the soak.
#[derive(Debug)]
pub struct KernelMemory {
    cgroup: PathBuf,
    /// True with cgroup version 1, where a separate hierarchy accounts memory.
    is_separate: bool,
}

impl KernelMemory {
    /// Uses the version 2 cgroup of the processes, or creates one in the version 1 hierarchy.
    pub fn create(top: &Path, name: &str) -> io::Result<Self> {
        let Some(parent) = memory_cgroup_v1()? else {
            return Ok(Self {
                cgroup: top.to_owned(),
                is_separate: false,
            });
        };
        let cgroup = parent.join(name);
        fs::create_dir(&cgroup)?;
        Ok(Self {
            cgroup,
            is_separate: true,
        })
    }

    pub fn procs_file(&self) -> Option<io::Result<File>> {
        self.is_separate.then(|| procs_file(&self.cgroup))
    }

    /// Returns the bytes of kernel memory, including maps and sockets, if this kernel counts them.
    pub fn kernel_bytes(&self) -> Option<u64> {
        let read = |file: &str| fs::read_to_string(self.cgroup.join(file)).ok();
        if self.is_separate {
            return read("memory.kmem.usage_in_bytes")?.trim().parse().ok();
        }
        let stat = read("memory.stat")?;
        let kernel = stat.lines().find_map(|line| line.strip_prefix("kernel "));
        kernel?.parse().ok()
    }

    /// Makes the kernel release caches.
    pub fn reclaim(&self) {
        let (file, all) = match self.is_separate {
            true => ("memory.force_empty", "0"),
            false => ("memory.reclaim", "1G"),
        };
        // The kernel returns an error if it cannot release everything requested.
        let _ = fs::write(self.cgroup.join(file), all);
    }

    /// Removes the accounting cgroup, if it is separate.
    pub fn remove(&self) {
        let mut attempts = 100;
        while self.is_separate && fs::remove_dir(&self.cgroup).is_err() && attempts > 0 {
            attempts -= 1;
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Returns this process's memory cgroup of version 1, if that is in use.
fn memory_cgroup_v1() -> io::Result<Option<PathBuf>> {
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
    pub fn take(pillion: u32, kernel_memory: &KernelMemory) -> io::Result<Self> {
        let process = PathBuf::from(format!("/proc/{pillion}"));
        let status = fs::read_to_string(process.join("status"))?;
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let mut sample = Self {
            resident: kibibytes(resident),
            kernel: kernel_memory.kernel_bytes().unwrap_or(0),
            ..Self::default()
        };
        for file in fs::read_dir(process.join("fdinfo"))?.flatten() {
            let fdinfo = fs::read_to_string(file.path()).unwrap_or_default();
            let bytes = fdinfo
                .lines()
                .find_map(|line| line.strip_prefix("memlock:"));
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

/// Memory samples at regular intervals.
#[derive(Debug, Default)]
pub struct Samples(Vec<Sample>);

/// Name, getter and allowed growth of a measure: a share, and bytes or files.
type Measure = (&'static str, fn(&Sample) -> u64, (f64, u64));

/// Extra open files of a pillion during a reload.
const RELOAD_FILES: u64 = 3;
/// Links to the devices that the device churn creates.
const DEVICE_LINKS: u64 = 2 * DEVICES as u64;
/// Map bytes of the rules' cgroup entry, which the second table gets at the first reload.
const CGROUP_ENTRY_BYTES: u64 = 80;

pub const MEASURES: [Measure; 4] = [
    ("resident memory, bytes", |it| it.resident, (0.05, 1 << 20)),
    (
        "maps and programs, bytes",
        |it| it.maps,
        (0.0, CGROUP_ENTRY_BYTES),
    ),
    (
        "open files",
        |it| it.files,
        (0.0, RELOAD_FILES + DEVICE_LINKS),
    ),
    ("kernel memory, bytes", |it| it.kernel, (0.5, 32 << 20)),
];

impl Samples {
    pub fn add(&mut self, sample: Sample) {
        self.0.push(sample);
    }

    /// Returns the median of a measure over a twentieth of the planned `total` samples, taken when
    /// `share` of the time has passed. `None` if that time has not come.
    pub fn median_at(&self, share: f64, total: usize, measure: fn(&Sample) -> u64) -> Option<u64> {
        self.median_before((share * total as f64).round() as usize, total, measure)
    }

    fn median_before(&self, end: usize, total: usize, measure: fn(&Sample) -> u64) -> Option<u64> {
        let start = end.saturating_sub((total / 20).max(1));
        let mut values: Vec<_> = self.0.get(start..end)?.iter().map(measure).collect();
        values.sort_unstable();
        values.get(values.len() / 2).copied()
    }

    /// Compares the latest samples with those after a tenth of the time. An error names the grown
    /// measure.
    pub fn check(&self, total: usize) -> Result<(), String> {
        for (name, measure, (share, more)) in MEASURES {
            let first = self.median_at(0.1, total, measure);
            let last = self.median_before(self.0.len(), total, measure);
            let Some((first, last)) = first.zip(last) else {
                continue;
            };
            let max = first + (first as f64 * share) as u64 + more;
            if last > max {
                return Err(format!("{name}: {first} at first, {last} now"));
            }
        }
        Ok(())
    }
}

#[test]
fn memory_growth_is_distinguished_from_noise() {
    let samples = |grows: u64| {
        let mut samples = Samples::default();
        for n in 0..100 {
            samples.add(Sample {
                resident: 16 << 20,
                maps: 1000 + n * grows,
                kernel: (20 + n % 7) << 20,
                ..Sample::default()
            });
        }
        samples
    };
    assert_eq!(samples(0).check(100), Ok(()));
    let event = samples(2).check(100).unwrap_err();
    assert!(event.starts_with("maps and programs, bytes: 10"), "{event}");
}
