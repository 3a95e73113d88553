use std::fs;
use std::time::{Duration, Instant};

/// Notices that virtual time stands still although the kernel works.
///
/// What counts is processor time: on a busy host a kernel may rest for long, and building a large
/// testbed takes its time as well.
#[derive(Debug)]
pub(super) struct Stall {
    patience: Duration,
    moved: Instant,
    /// Processor time that the kernel had used when it became doubtful that virtual time moves.
    doubtful_at: Option<Duration>,
}

impl Stall {
    pub fn new(patience: Duration) -> Self {
        Self {
            patience,
            moved: Instant::now(),
            doubtful_at: None,
        }
    }

    /// Takes note that virtual time has moved.
    pub fn moved(&mut self) {
        self.moved = Instant::now();
        self.doubtful_at = None;
    }

    /// Real time for which virtual time has not moved, if that is too long.
    pub fn found(&mut self, kernel: u32) -> Option<Duration> {
        let waited = self.moved.elapsed();
        if waited <= self.patience {
            return None;
        }
        let used = processor_time(kernel);
        let doubtful_at = *self.doubtful_at.get_or_insert(used);
        (used.saturating_sub(doubtful_at) > self.patience).then_some(waited)
    }
}

/// Processor time used by a process and its children, those that have ended included: a kernel's
/// processes inside are its children on the host.
fn processor_time(process: u32) -> Duration {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let stats = entries.filter_map(|entry| fs::read_to_string(entry.path().join("stat")).ok());
    let ticks = stats.filter_map(|stat| ticks(&stat, process)).sum::<u64>();
    // SAFETY: asks for a number.
    let per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    Duration::from_secs_f64(ticks as f64 / per_second.max(1) as f64)
}

/// Ticks of processor time in proc(5)'s `stat`, of the process or a child of it.
fn ticks(stat: &str, process: u32) -> Option<u64> {
    let (number, rest) = stat.split_once(" (")?;
    // A name may hold anything.
    let (_, rest) = rest.rsplit_once(") ")?;
    let fields: Vec<&str> = rest.split(' ').collect();
    let process = process.to_string();
    let [own, ended] = [11..13, 13..15].map(|range| {
        let fields = fields.get(range)?.iter();
        fields
            .map(|field| field.parse::<u64>().ok())
            .sum::<Option<u64>>()
    });
    if number == process {
        Some(own? + ended?)
    } else if *fields.get(1)? == process {
        own
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_and_its_children_are_counted_and_others_are_not() {
        let stat = |number: u32, parent: u32| {
            format!("{number} (a) b) S {parent} 1 1 0 -1 4194304 1 2 3 4 10 20 300 400 20 0 1 0\n")
        };
        assert_eq!(ticks(&stat(7, 1), 7), Some(730));
        assert_eq!(ticks(&stat(8, 7), 7), Some(30));
        assert_eq!(ticks(&stat(8, 1), 7), None);
        assert_eq!(ticks("7 (cut off) S 1 1", 7), None);
    }
}
