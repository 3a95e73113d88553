//! Failures of a lab kernel: system errors, crashes and stalls.

use std::fmt;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Why a program could not run in the lab kernel.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The kernel file does not exist.
    #[error("no lab kernel at {}: run `make lab-kernel` to build it", .0.display())]
    NoKernel(PathBuf),
    /// No lab kernel can run on this host's processor.
    #[error(
        "User Mode Linux, the virtual engine's kernel, exists for x86-64 only: use --engine live"
    )]
    Processor,
    /// No kernel with the requested clock frequency exists.
    #[error(
        "no lab kernel with {ticks} ticks per second at {}: run `lab-kernel/build --ticks {ticks}` \
         to build it", path.display()
    )]
    NoTicks {
        /// Requested clock ticks per second.
        ticks: u32,
        /// Expected path of the kernel.
        path: PathBuf,
    },
    /// A program or file for the image is unusable.
    #[error("{}: {reason}", path.display())]
    File {
        /// The program or file.
        path: PathBuf,
        /// Reason of the failure.
        reason: String,
    },
    /// Programs for the image do not exist on this host.
    #[error("not found on this host: {0}")]
    MissingTools(String),
    /// The kernel ended before the program did.
    #[error("the lab kernel ended before its program did: {0}")]
    Crashed(KernelCrash),
    /// Something other than the program failed inside the kernel; the text is its error message.
    #[error("inside the lab kernel: {0}")]
    GuestFailed(String),
    /// Virtual time does not advance.
    #[error(
        "virtual time stopped at {:.3} s for {} s of real time: computing takes no virtual time; \
         look for a link without a rate, or a program that polls", at.as_secs_f64(), stalled_for.as_secs()
    )]
    Stalled {
        /// Virtual time since the kernel's start.
        at: Duration,
        /// Real time without progress of virtual time.
        stalled_for: Duration,
    },
    /// The program exceeded its limit of real time.
    #[error(
        "stopped after {} s, at {:.3} s of virtual time", limit.as_secs_f64(), at.as_secs_f64()
    )]
    TimedOut {
        /// Virtual time from the kernel's start to the stop.
        at: Duration,
        /// Allowed real time.
        limit: Duration,
    },
    /// The caller stopped the kernel.
    #[error("stopped")]
    Stopped,
    /// Any other failure of a system call.
    #[error("{action}: {source}")]
    System {
        /// The failed action.
        action: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
}

impl EngineError {
    /// Returns true if the user can fix it (exit code 2): by other options or files, or by building the
    /// lab kernel or installing programs.
    #[must_use]
    pub fn is_bad_input(&self) -> bool {
        matches!(
            self,
            Self::NoKernel(_)
                | Self::Processor
                | Self::NoTicks { .. }
                | Self::File { .. }
                | Self::MissingTools(_)
        )
    }

    pub(super) fn system(action: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::System { action, source }
    }
}

/// Reason of a kernel's early end, from its own messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelCrash {
    /// The kernel's line with the reason.
    pub reason: String,
    /// The kernel function that crashed; `None` if unknown.
    pub function: Option<String>,
}

/// Prefixes of lines that contain the reason; the first such line is used.
const REASON_PREFIXES: [&str; 5] = [
    "pillion: ",
    "Kernel panic - not syncing: ",
    "BUG",
    "WARNING: ",
    "UBSAN: ",
];

/// Functions that only report a fault in another function.
const REPORTING_FUNCTIONS: [&str; 21] = [
    "__asan_",
    "__kasan_",
    "__lock_acquire",
    "__might_resched",
    "__schedule_bug",
    "__ubsan_",
    "__warn",
    "_raw_",
    "check_",
    "do_raw_",
    "dump_stack",
    "end_report",
    "kasan_",
    "lock_acquire",
    "lockdep_",
    "panic",
    "print_",
    "report_",
    "ubsan_",
    "validate_chain",
    "warn_",
];

impl KernelCrash {
    /// Finds the reason in all kernel messages; `signal` is the signal that ended the kernel, if
    /// any.
    pub(super) fn find(console: &str, signal: Option<i32>) -> Self {
        let lines: Vec<&str> = console.lines().map(strip_time).collect();
        let is_reason = |line: &&str| REASON_PREFIXES.iter().any(|mark| line.starts_with(mark));
        let Some(at) = lines.iter().position(is_reason) else {
            let last = lines.iter().rfind(|line| !line.is_empty());
            let last = last.map_or("no message", |line| line).to_owned();
            return Self {
                reason: match signal {
                    Some(signal) => format!("signal {signal}; last message: {last}"),
                    None => last,
                },
                function: None,
            };
        };
        let line = lines[at];
        let line = REASON_PREFIXES[..2]
            .iter()
            .find_map(|mark| line.strip_prefix(mark));
        Self {
            reason: line.unwrap_or(lines[at]).to_owned(),
            function: function(&lines, at).map(str::to_owned),
        }
    }
}

impl fmt::Display for KernelCrash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.function {
            Some(function) => write!(f, "{} (in {function})", self.reason),
            None => f.write_str(&self.reason),
        }
    }
}

/// Returns the function that crashed: from the reason's line, the registers, or the call trace.
fn function<'a>(lines: &[&'a str], reason: usize) -> Option<&'a str> {
    let from_registers = || {
        let lines = lines.iter().filter(|line| line.starts_with("RIP: "));
        lines.filter_map(|line| symbol(line)).next_back()
    };
    bug_function(lines[reason])
        .or_else(|| symbol(lines[reason]))
        .or_else(from_registers)
        .or_else(|| innermost_call(&lines[reason..]))
}

/// Returns the function in a line `BUG: failure at FILE:LINE/FUNCTION()!`.
fn bug_function(line: &str) -> Option<&str> {
    let (rest, _) = line.split_once("()!")?;
    rest.rsplit_once('/').map(|(_, function)| function)
}

/// Returns the function in a line with `FUNCTION+0x12/0x34`.
fn symbol(line: &str) -> Option<&str> {
    let (before, _) = line.split_once("+0x")?;
    let name = |symbol: char| symbol.is_ascii_alphanumeric() || "_.".contains(symbol);
    let start = before.rfind(|symbol| !name(symbol)).map_or(0, |at| at + 1);
    Some(&before[start..]).filter(|name| !name.is_empty())
}

/// Returns the innermost function of a call trace, without functions that only report faults.
/// Entries with a question mark may be left from earlier calls and are ignored.
fn innermost_call<'a>(lines: &[&'a str]) -> Option<&'a str> {
    let start = lines.iter().position(|line| *line == "Call Trace:")?;
    let calls = lines[start + 1..].iter();
    let calls = calls.take_while(|line| line.starts_with('['));
    let mut innermost = calls
        .filter(|line| !line.contains("] ? "))
        .filter_map(|line| symbol(line));
    innermost.find(|name| {
        !REPORTING_FUNCTIONS
            .iter()
            .any(|reporter| name.starts_with(reporter))
    })
}

/// Removes the time from a kernel message: `[    0.123456] text` becomes `text`. Before the console
/// exists, a level such as `<4>` precedes it.
fn strip_time(line: &str) -> &str {
    let level = line.strip_prefix('<').and_then(|line| line.split_once('>'));
    let line = level.map_or(line, |(_, line)| line);
    let rest = line
        .strip_prefix('[')
        .and_then(|line| line.split_once("] "));
    let has_time = |(time, _): &(&str, &str)| time.trim().parse::<f64>().is_ok();
    rest.filter(has_time).map_or(line, |(_, text)| text).trim()
}

/// Detects that virtual time stops although the kernel is busy.
///
/// Measures processor time: on a busy host, a kernel may wait for long without a fault. Building a
/// large testbed takes long, too.
#[derive(Debug)]
pub(super) struct StallDetector {
    stall_timeout: Duration,
    last_progress: Instant,
    /// Processor time of the kernel when the stall was first suspected.
    suspected_at: Option<Duration>,
}

impl StallDetector {
    pub fn new(stall_timeout: Duration) -> Self {
        Self {
            stall_timeout,
            last_progress: Instant::now(),
            suspected_at: None,
        }
    }

    /// Records that virtual time has advanced.
    pub fn record_progress(&mut self) {
        self.last_progress = Instant::now();
        self.suspected_at = None;
    }

    /// Returns the real time without progress of virtual time, once it exceeds the timeout.
    pub fn check(&mut self, kernel: u32) -> Option<Duration> {
        let stalled_for = self.last_progress.elapsed();
        if stalled_for <= self.stall_timeout {
            return None;
        }
        let used = cpu_time(kernel);
        let suspected_at = *self.suspected_at.get_or_insert(used);
        (used.saturating_sub(suspected_at) > self.stall_timeout).then_some(stalled_for)
    }
}

/// Returns the processor time of a process and its children, including exited ones. The processes
/// inside a kernel are its children on the host.
fn cpu_time(process: u32) -> Duration {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let stats = entries.filter_map(|entry| fs::read_to_string(entry.path().join("stat")).ok());
    let ticks = stats.filter_map(|stat| ticks(&stat, process)).sum::<u64>();
    // SAFETY: the call only returns a number.
    let per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    Duration::from_secs_f64(ticks as f64 / per_second.max(1) as f64)
}

/// Returns the clock ticks in proc(5)'s `stat`, if it belongs to the process or one of its
/// children.
fn ticks(stat: &str, process: u32) -> Option<u64> {
    let (number, rest) = stat.split_once(" (")?;
    // A process name may contain any character.
    let (_, rest) = rest.rsplit_once(") ")?;
    let fields: Vec<&str> = rest.split(' ').collect();
    let process = process.to_string();
    let [own, children] = [11..13, 13..15].map(|range| {
        let fields = fields.get(range)?.iter();
        fields
            .map(|field| field.parse::<u64>().ok())
            .sum::<Option<u64>>()
    });
    if number == process {
        Some(own? + children?)
    } else if *fields.get(1)? == process {
        own
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message_of(console: &str) -> String {
        KernelCrash::find(console, Some(6)).to_string()
    }

    #[test]
    fn processor_fault_names_function_of_registers() {
        let console = "\
[    0.000000] bridge: port 1(host0) entered forwarding state
[   16.450000] Pid: 127, comm: init Not tainted 6.12.117-pillion
[   16.450000] RIP: 0033:tcp_rcv_space_adjust+0xb5/0x140
[   16.450000] RSP: 0000000062d8bc80  EFLAGS: 00010246
[   16.450000] Kernel panic - not syncing: Kernel mode signal 8
[   16.450000] Call Trace:
[   16.450000]  [<60454880>] ? tcp_recvmsg_locked+0x470/0xab0
";
        let expected = "Kernel mode signal 8 (in tcp_rcv_space_adjust)";
        assert_eq!(message_of(console), expected);
    }

    #[test]
    fn report_with_function_is_used() {
        let kasan = "\
[    1.000000] ==================================================================
[    1.000000] BUG: KASAN: slab-use-after-free in lkdtm_READ_AFTER_FREE+0x7e/0xa0
[    1.000000] Kernel panic - not syncing: KASAN: panic_on_warn set ...
";
        let expected = "BUG: KASAN: slab-use-after-free in lkdtm_READ_AFTER_FREE+0x7e/0xa0 \
                        (in lkdtm_READ_AFTER_FREE)";
        assert_eq!(message_of(kasan), expected);
        let bug = "\
[    1.000000] BUG: failure at lib/list_debug.c:29/__list_add_valid_or_report()!
[    1.000000] Kernel panic - not syncing: BUG!
";
        let crash = KernelCrash::find(bug, None);
        assert_eq!(
            crash.function.as_deref(),
            Some("__list_add_valid_or_report")
        );
    }

    #[test]
    fn call_trace_yields_innermost_non_reporting_function() {
        let console = "\
[    1.000000] UBSAN: division-overflow in net/ipv4/tcp_input.c:789:3
[    1.000000] division by zero
[    1.000000] Call Trace:
[    1.000000]  [<6003fd2a>] ? _printk+0x0/0x94
[    1.000000]  [<604c2a9d>] dump_stack_lvl+0x5f/0x8a
[    1.000000]  [<604bd8bb>] ubsan_epilogue+0xd/0x49
[    1.000000]  [<604be09d>] __ubsan_handle_divrem_overflow+0x98/0xc9
[    1.000000]  [<60454880>] tcp_rcv_space_adjust+0x470/0xab0
[    1.000000] Kernel panic - not syncing: UBSAN: panic_on_warn set ...
";
        let expected = "UBSAN: division-overflow in net/ipv4/tcp_input.c:789:3 \
                        (in tcp_rcv_space_adjust)";
        assert_eq!(message_of(console), expected);
    }

    #[test]
    fn uncertain_calls_of_trace_are_ignored() {
        let console = "\
<0>[    0.000000] Kernel panic - not syncing: System is deadlocked on memory
<4>[    0.000000] Call Trace:
<4>[    0.000000]  [<600267a0>] ? show_stack+0x0/0xc0
<4>[    0.000000]  [<60565764>] ? panic+0x143/0x33b
";
        assert_eq!(message_of(console), "System is deadlocked on memory");
    }

    #[test]
    fn crash_without_reason_quotes_last_line() {
        let console = "[    0.100000] clocksource: a timer\n\n";
        let expected = "signal 9; last message: clocksource: a timer";
        assert_eq!(KernelCrash::find(console, Some(9)).to_string(), expected);
        assert_eq!(KernelCrash::find("", None).to_string(), "no message");
    }

    #[test]
    fn init_error_is_crash_reason() {
        let console =
            "[    0.1] pillion: mount proc at /proc: ENODEV\n[    0.1] reboot: Power down\n";
        assert_eq!(message_of(console), "mount proc at /proc: ENODEV");
    }

    #[test]
    fn cpu_time_includes_kernel_and_children_only() {
        let stat = |number: u32, parent: u32| {
            format!("{number} (a) b) S {parent} 1 1 0 -1 4194304 1 2 3 4 10 20 300 400 20 0 1 0\n")
        };
        assert_eq!(ticks(&stat(7, 1), 7), Some(730));
        assert_eq!(ticks(&stat(8, 7), 7), Some(30));
        assert_eq!(ticks(&stat(8, 1), 7), None);
        assert_eq!(ticks("7 (cut off) S 1 1", 7), None);
    }
}
