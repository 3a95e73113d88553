//! How a lab kernel fails: by the system's refusal, by a crash, or by a stall.

use std::fmt;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Why a program could not be run in the lab kernel.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// There is no kernel where one is looked for.
    #[error("no lab kernel at {}; `make lab-kernel` builds one", .0.display())]
    NoKernel(PathBuf),
    /// There is no kernel whose clock ticks so often.
    #[error(
        "no lab kernel of {ticks} ticks a second at {}; `lab-kernel/build --ticks {ticks}` builds \
         one", path.display()
    )]
    NoTicks {
        /// Ticks a second.
        ticks: u32,
        /// Where the kernel was looked for.
        path: PathBuf,
    },
    /// A program or file for the image cannot be used.
    #[error("{}: {reason}", path.display())]
    File {
        /// The program or file.
        path: PathBuf,
        /// Why the program or file cannot be used.
        reason: String,
    },
    /// Programs for the image are not on this host.
    #[error("not found on this host: {0}")]
    MissingTools(String),
    /// The kernel ended by itself before the program did.
    #[error("the lab kernel ended before its program did: {0}")]
    Died(KernelCrash),
    /// Something other than the program failed inside, in these words.
    #[error("inside the lab kernel: {0}")]
    Inside(String),
    /// Virtual time stands still.
    #[error(
        "virtual time stands still at {:.3} s for {} s: computing takes no virtual time, so look \
         for a link without a rate, or a program that polls", at.as_secs_f64(), waited.as_secs()
    )]
    Stalled {
        /// Virtual time from the kernel's start to where it stands still.
        at: Duration,
        /// Real time without progress of virtual time.
        waited: Duration,
    },
    /// The program takes longer than was allowed.
    #[error(
        "stopped after {} s, at {:.3} s of virtual time", limit.as_secs_f64(), at.as_secs_f64()
    )]
    Late {
        /// Virtual time from the kernel's start to when it was stopped.
        at: Duration,
        /// Real time allowed.
        limit: Duration,
    },
    /// The caller had the kernel stopped.
    #[error("stopped")]
    Stopped,
    /// Any other failure of a system call.
    #[error("{action}: {source}")]
    System {
        /// What was being done.
        action: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

impl EngineError {
    /// Whether what was asked for has to change, rather than the machine that it was asked of.
    #[must_use]
    pub fn is_bad_input(&self) -> bool {
        matches!(
            self,
            Self::NoKernel(_) | Self::File { .. } | Self::MissingTools(_)
        )
    }

    pub(super) fn system(action: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::System { action, source }
    }
}

/// Why a kernel ended that should have gone on, by its own words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelCrash {
    /// The kernel's line that gives the reason.
    pub reason: String,
    /// The kernel's function where it broke down, as far as that can be told.
    pub function: Option<String>,
}

/// Beginnings of lines that give the reason; the first such line counts.
const MARKS: [&str; 5] = [
    "pillion: ",
    "Kernel panic - not syncing: ",
    "BUG",
    "WARNING: ",
    "UBSAN: ",
];

/// Functions that only report a fault, which is elsewhere.
const REPORTERS: [&str; 21] = [
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
    /// Finds the reason in all that the kernel has said; `signal` is the one that ended it, if one
    /// did.
    pub(super) fn find(console: &str, signal: Option<i32>) -> Self {
        let lines: Vec<&str> = console.lines().map(without_time).collect();
        let is_reason = |line: &&str| MARKS.iter().any(|mark| line.starts_with(mark));
        let Some(at) = lines.iter().position(is_reason) else {
            let last = lines.iter().rfind(|line| !line.is_empty());
            let last = last.map_or("it said nothing", |line| line).to_owned();
            return Self {
                reason: match signal {
                    Some(signal) => format!("signal {signal}, and its last line was: {last}"),
                    None => last,
                },
                function: None,
            };
        };
        let told = lines[at];
        let told = MARKS[..2].iter().find_map(|mark| told.strip_prefix(mark));
        Self {
            reason: told.unwrap_or(lines[at]).to_owned(),
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

/// The function where the kernel broke down, as the reason's line itself says, or the registers, or
/// the calls that led there.
fn function<'a>(lines: &[&'a str], reason: usize) -> Option<&'a str> {
    let of_registers = || {
        let lines = lines.iter().filter(|line| line.starts_with("RIP: "));
        lines.filter_map(|line| symbol(line)).next_back()
    };
    failed_in(lines[reason])
        .or_else(|| symbol(lines[reason]))
        .or_else(of_registers)
        .or_else(|| called(&lines[reason..]))
}

/// The function in a line `BUG: failure at FILE:LINE/FUNCTION()!`.
fn failed_in(line: &str) -> Option<&str> {
    let (rest, _) = line.split_once("()!")?;
    rest.rsplit_once('/').map(|(_, function)| function)
}

/// The function in a line that has `FUNCTION+0x12/0x34`.
fn symbol(line: &str) -> Option<&str> {
    let (before, _) = line.split_once("+0x")?;
    let name = |symbol: char| symbol.is_ascii_alphanumeric() || "_.".contains(symbol);
    let begin = before.rfind(|symbol| !name(symbol)).map_or(0, |at| at + 1);
    Some(&before[begin..]).filter(|name| !name.is_empty())
}

/// The innermost function in a list of calls that does not only tell of the fault. A question mark
/// stands before what may be left on the stack from earlier calls: of those there is no telling.
fn called<'a>(lines: &[&'a str]) -> Option<&'a str> {
    let begin = lines.iter().position(|line| *line == "Call Trace:")?;
    let calls = lines[begin + 1..].iter();
    let calls = calls.take_while(|line| line.starts_with('['));
    let mut innermost = calls
        .filter(|line| !line.contains("] ? "))
        .filter_map(|line| symbol(line));
    innermost.find(|name| !REPORTERS.iter().any(|reporter| name.starts_with(reporter)))
}

/// A kernel's line without its time: `[    0.123456] text` is `text`; before there is a console,
/// `<4>` or the like comes first.
fn without_time(line: &str) -> &str {
    let level = line.strip_prefix('<').and_then(|line| line.split_once('>'));
    let line = level.map_or(line, |(_, line)| line);
    let rest = line
        .strip_prefix('[')
        .and_then(|line| line.split_once("] "));
    let has_time = |(time, _): &(&str, &str)| time.trim().parse::<f64>().is_ok();
    rest.filter(has_time).map_or(line, |(_, text)| text).trim()
}

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

    fn found(console: &str) -> String {
        KernelCrash::find(console, Some(6)).to_string()
    }

    #[test]
    fn a_fault_of_the_processor_is_where_the_registers_say() {
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
        assert_eq!(found(console), expected);
    }

    #[test]
    fn a_report_that_names_the_function_is_believed() {
        let kasan = "\
[    1.000000] ==================================================================
[    1.000000] BUG: KASAN: slab-use-after-free in lkdtm_READ_AFTER_FREE+0x7e/0xa0
[    1.000000] Kernel panic - not syncing: KASAN: panic_on_warn set ...
";
        let expected = "BUG: KASAN: slab-use-after-free in lkdtm_READ_AFTER_FREE+0x7e/0xa0 \
                        (in lkdtm_READ_AFTER_FREE)";
        assert_eq!(found(kasan), expected);
        let bug = "\
[    1.000000] BUG: failure at lib/list_debug.c:29/__list_add_valid_or_report()!
[    1.000000] Kernel panic - not syncing: BUG!
";
        let found = KernelCrash::find(bug, None);
        assert_eq!(
            found.function.as_deref(),
            Some("__list_add_valid_or_report")
        );
    }

    #[test]
    fn otherwise_it_is_the_innermost_call_that_does_not_tell_of_it() {
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
        assert_eq!(found(console), expected);
    }

    #[test]
    fn what_may_be_left_from_earlier_calls_is_not_taken_for_the_place() {
        let console = "\
<0>[    0.000000] Kernel panic - not syncing: System is deadlocked on memory
<4>[    0.000000] Call Trace:
<4>[    0.000000]  [<600267a0>] ? show_stack+0x0/0xc0
<4>[    0.000000]  [<60565764>] ? panic+0x143/0x33b
";
        assert_eq!(found(console), "System is deadlocked on memory");
    }

    #[test]
    fn a_kernel_that_says_nothing_of_it_is_quoted_as_it_is() {
        let console = "[    0.100000] clocksource: a timer\n\n";
        let expected = "signal 9, and its last line was: clocksource: a timer";
        assert_eq!(KernelCrash::find(console, Some(9)).to_string(), expected);
        assert_eq!(KernelCrash::find("", None).to_string(), "it said nothing");
    }

    #[test]
    fn the_first_process_says_for_itself_why_it_gave_up() {
        let console =
            "[    0.1] pillion: mount proc at /proc: ENODEV\n[    0.1] reboot: Power down\n";
        assert_eq!(found(console), "mount proc at /proc: ENODEV");
    }

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
