/// A mechanism of TCP that an experiment switches, and that the kernel has a parameter for.
///
/// docs/mechanisms.md tells of each what it does, where it comes from, and which kernels have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mechanism {
    /// Time-outs of thin streams that do not back off (LCN 2008, section III; Linux 2.6.34).
    LinearTimeouts,
    /// Tail loss probe (Linux 3.10).
    Tlp,
    /// The probe's time and conditions as the first draft and Linux 3.10 had them
    /// (draft-dukkipati-tcpm-tcp-loss-probe-01, section 2); in the lab kernel.
    TlpDraft,
    /// Recovery by the time of sending (RFC 8985; Linux 4.4).
    Rack,
    /// Detection of spurious time-outs (RFC 5682).
    Frto,
    /// The first four times between SYNs alike, rather than doubled (Linux 6.5).
    LinearSynTimeouts,
    /// Small segments joined when retransmitted.
    RetransmissionCollapsing,
    /// Fast retransmit with fewer duplicate ACKs (RFC 5827); in the lab kernel.
    EarlyRetransmit,
    /// Forward acknowledgment (Linux up to 4.14); in the lab kernel.
    Fack,
    /// In recovery, retransmission of what is not marked lost (RFC 3517, section 4, rule 3 of
    /// NextSeg; Linux up to 4.10); in the lab kernel.
    ForwardRetransmission,
    /// Fast retransmit of thin streams at the first duplicate ACK (LCN 2008, section III); in the
    /// lab kernel.
    ModifiedFastRetransmit,
    /// Time-outs counted from the earliest segment's sending (RFC 7765); in the lab kernel.
    RtoRestart,
    /// Smaller segments while the window is small (thesis, section 2.6.1); in the lab kernel.
    SmartFraming,
    /// A window that grows although the application does not fill it, as before Linux 3.16
    /// (LCN 2015, section IV.B); in the lab kernel.
    UnfilledWindowGrowth,
}

/// What a mechanism is set to: a word of experiment files, and the parameter's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setting {
    /// `on`, `off`, or a variant's name.
    pub word: &'static str,
    /// What the kernel's parameter is set to.
    pub value: &'static str,
}

/// One row of the table of mechanisms.
struct Row {
    mechanism: Mechanism,
    name: &'static str,
    sysctl: &'static str,
    settings: &'static [Setting],
}

const fn set(word: &'static str, value: &'static str) -> Setting {
    Setting { word, value }
}

const SWITCH: &[Setting] = &[set("off", "0"), set("on", "1")];

const ROWS: &[Row] = &[
    Row {
        mechanism: Mechanism::LinearTimeouts,
        name: "linear-timeouts",
        sysctl: "net.ipv4.tcp_thin_linear_timeouts",
        settings: SWITCH,
    },
    Row {
        mechanism: Mechanism::Tlp,
        name: "tlp",
        sysctl: "net.ipv4.tcp_early_retrans",
        settings: &[set("off", "0"), set("on", "3")],
    },
    Row {
        mechanism: Mechanism::TlpDraft,
        name: "tlp-draft",
        sysctl: "net.ipv4.tcp_tlp_draft",
        settings: SWITCH,
    },
    Row {
        mechanism: Mechanism::Rack,
        name: "rack",
        sysctl: "net.ipv4.tcp_recovery",
        settings: SWITCH,
    },
    Row {
        mechanism: Mechanism::Frto,
        name: "f-rto",
        sysctl: "net.ipv4.tcp_frto",
        settings: &[set("off", "0"), set("on", "2")],
    },
    Row {
        mechanism: Mechanism::LinearSynTimeouts,
        name: "linear-syn-timeouts",
        sysctl: "net.ipv4.tcp_syn_linear_timeouts",
        settings: &[set("off", "0"), set("on", "4")],
    },
    Row {
        mechanism: Mechanism::RetransmissionCollapsing,
        name: "retransmission-collapsing",
        sysctl: "net.ipv4.tcp_retrans_collapse",
        settings: SWITCH,
    },
    Row {
        mechanism: Mechanism::EarlyRetransmit,
        name: "early-retransmit",
        sysctl: "net.ipv4.tcp_early_retransmit",
        settings: &[
            set("off", "0"),
            set("on", "1"),
            set("delayed", "2"),
            set("linux-3.10", "3"),
        ],
    },
    Row {
        mechanism: Mechanism::Fack,
        name: "fack",
        sysctl: "net.ipv4.tcp_fack",
        settings: SWITCH,
    },
    Row {
        mechanism: Mechanism::ForwardRetransmission,
        name: "forward-retransmission",
        sysctl: "net.ipv4.tcp_forward_retransmit",
        settings: SWITCH,
    },
    Row {
        mechanism: Mechanism::ModifiedFastRetransmit,
        name: "modified-fast-retransmit",
        sysctl: "net.ipv4.tcp_thin_dupack",
        settings: SWITCH,
    },
    Row {
        mechanism: Mechanism::RtoRestart,
        name: "rto-restart",
        sysctl: "net.ipv4.tcp_rto_restart",
        settings: SWITCH,
    },
    Row {
        mechanism: Mechanism::SmartFraming,
        name: "smart-framing",
        sysctl: "net.ipv4.tcp_smart_framing",
        settings: SWITCH,
    },
    Row {
        mechanism: Mechanism::UnfilledWindowGrowth,
        name: "unfilled-window-growth",
        sysctl: "net.ipv4.tcp_cwnd_grow_unfilled",
        settings: SWITCH,
    },
];

impl Mechanism {
    /// All mechanisms.
    pub fn all() -> impl Iterator<Item = Self> {
        ROWS.iter().map(|row| row.mechanism)
    }

    /// The mechanism's name in experiment files.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// The kernel's parameter, of a network namespace.
    #[must_use]
    pub fn sysctl(self) -> &'static str {
        self.row().sysctl
    }

    /// What it may be set to.
    #[must_use]
    pub fn settings(self) -> &'static [Setting] {
        self.row().settings
    }

    /// The setting of that word, if it can be set to it.
    pub(super) fn setting(self, word: &str) -> Option<&'static Setting> {
        self.settings().iter().find(|setting| setting.word == word)
    }

    fn row(self) -> &'static Row {
        // In the order of their declaration, as a test sees to.
        &ROWS[self as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mechanism_has_its_own_row() {
        for (index, row) in ROWS.iter().enumerate() {
            assert_eq!(row.mechanism as usize, index, "{}", row.name);
        }
    }

    #[test]
    fn the_documentation_has_each_mechanism() {
        let listed = include_str!("../../../../../docs/experiments.md");
        let explained = include_str!("../../../../../docs/mechanisms.md");
        for row in ROWS {
            let name = format!("`{}`", row.name);
            assert!(listed.contains(&name), "docs/experiments.md: {name}");
            let parameter = row.sysctl.trim_start_matches("net.ipv4.");
            let is_there = explained.contains(parameter);
            assert!(is_there, "docs/mechanisms.md: {parameter}");
        }
    }
}
