//! What of a kernel's messages means that something is broken.

const SIGNS: [&str; 16] = [
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

/// The first lines of a kernel's messages that tell of a fault of its own; as many as are worth
/// reading.
#[must_use]
pub fn faults(console: &str) -> Vec<&str> {
    let telling = console.lines().map(str::trim).filter(|line| is_fault(line));
    telling.take(5).collect()
}

fn is_fault(line: &str) -> bool {
    SIGNS.iter().any(|sign| line.contains(sign))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_found_and_ordinary_messages_are_none() {
        let said = "\
[    0.86] audit: type=2000 audit(1795344879.652:1): state=initialized\r
[    0.87] mtrr: your CPUs had inconsistent fixed MTRR settings\r
[    0.01] ..MP-BIOS bug: 8254 timer not connected to IO-APIC\r
[    5.00] clocksource: Marking clocksource 'tsc' as unstable because the skew is too large\r
[   52.24] traps: PANIC: double fault, error_code: 0x0\r
[   52.27] Kernel panic - not syncing: Fatal exception in interrupt\r
";
        let found = faults(said);
        assert_eq!(found.len(), 2);
        assert!(
            found[0].ends_with("double fault, error_code: 0x0"),
            "{found:?}"
        );
        for sign in [
            "WARNING: CPU: 1 PID: 12 at net/ipv4/tcp_input.c:3456 tcp_fastretrans_alert+0x0/0x10",
            "BUG: kernel NULL pointer dereference, address: 0000000000000000",
            "rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:",
            "watchdog: BUG: soft lockup - CPU#0 stuck for 26s!",
            "INFO: task wire:123 blocked for more than 120 seconds.",
            "Oops: divide error: 0000 [#1] PREEMPT SMP NOPTI",
        ] {
            assert_eq!(faults(sign), [sign]);
        }
    }
}
