//! Finds faults in kernel messages.

const FAULT_MARKS: [&str; 16] = [
    "Kernel panic",
    "BUG:",
    "WARNING: CPU",
    "WARNING: net/",
    "WARNING: kernel/",
    "Oops:",
    "Oops ",
    "general protection fault",
    "double fault",
    "divide error",
    "invalid opcode",
    "cut here",
    "Call Trace:",
    "detected stall",
    "blocked for more than",
    "refcount_t:",
];

/// Returns the first five lines of kernel messages that report a kernel fault.
#[must_use]
pub fn faults(console: &str) -> Vec<&str> {
    let fault_lines = console.lines().map(str::trim).filter(|line| is_fault(line));
    fault_lines.take(5).collect()
}

fn is_fault(line: &str) -> bool {
    FAULT_MARKS.iter().any(|mark| line.contains(mark))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_found_and_ordinary_messages_ignored() {
        let messages = "\
[    0.86] audit: type=2000 audit(1795344879.652:1): state=initialized\r
[    0.87] mtrr: your CPUs had inconsistent fixed MTRR settings\r
[    0.01] ..MP-BIOS bug: 8254 timer not connected to IO-APIC\r
[    5.00] clocksource: Marking clocksource 'tsc' as unstable because the skew is too large\r
[   52.24] traps: PANIC: double fault, error_code: 0x0\r
[   52.27] Kernel panic - not syncing: Fatal exception in interrupt\r
";
        let found = faults(messages);
        assert_eq!(found.len(), 2);
        assert!(
            found[0].ends_with("double fault, error_code: 0x0"),
            "{found:?}"
        );
        for mark in [
            "WARNING: CPU: 1 PID: 12 at net/ipv4/tcp_input.c:3456 tcp_fastretrans_alert+0x0/0x10",
            "BUG: kernel NULL pointer dereference, address: 0000000000000000",
            "rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:",
            "watchdog: BUG: soft lockup - CPU#0 stuck for 26s!",
            "INFO: task wire:123 blocked for more than 120 seconds.",
            "Oops: divide error: 0000 [#1] PREEMPT SMP NOPTI",
        ] {
            assert_eq!(faults(mark), [mark]);
        }
    }
}
