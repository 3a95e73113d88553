//! Mechanisms of TCP that a host sets otherwise than its kernel does, and those of older kernels.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;

use pillion_cli::settings::document::known::unknown;
use serde::de::{Error, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Sysctls;

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

/// The key that sets all mechanisms which another kernel had otherwise.
const AS_IN: &str = "as-in";

/// The key of [`Mechanisms::initial_window`].
const INITIAL_WINDOW: &str = "initial-window";

/// What TCP's mechanisms on a host are set to; what is not named is as in the kernel.
///
/// In files, `as-in = "linux-3.12"` sets what recovery of losses is made of to what that kernel
/// did; what is named beside it is as named.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mechanisms {
    settings: BTreeMap<Mechanism, &'static Setting>,
    /// The congestion window that connections begin with, in segments: 1 to 1000. The kernel has it
    /// from the route (`initcwnd`), not from a parameter.
    pub(super) initial_window: Option<u32>,
}

impl Mechanisms {
    /// Takes settings, and the initial window in segments.
    pub(super) fn of(
        settings: impl IntoIterator<Item = (Mechanism, &'static Setting)>,
        initial_window: Option<u32>,
    ) -> Self {
        Self {
            settings: settings.into_iter().collect(),
            initial_window,
        }
    }

    /// Whether one is set, on or off.
    pub(super) fn has(&self, mechanism: Mechanism) -> bool {
        self.settings.contains_key(&mechanism)
    }

    /// The kernel parameters that set them.
    pub(super) fn sysctls(&self) -> Sysctls {
        let all = self.settings.iter();
        let all = all.map(|(one, setting)| (one.sysctl().to_owned(), setting.value.to_owned()));
        all.collect()
    }
}

impl Serialize for Mechanisms {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        for (mechanism, setting) in &self.settings {
            map.serialize_entry(mechanism.name(), &Word(setting.word))?;
        }
        if let Some(segments) = self.initial_window {
            map.serialize_entry(INITIAL_WINDOW, &segments)?;
        }
        map.end()
    }
}

struct Word<'a>(&'a str);

impl Serialize for Word<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            "on" => to.serialize_bool(true),
            "off" => to.serialize_bool(false),
            variant => to.serialize_str(variant),
        }
    }
}

impl<'de> Deserialize<'de> for Mechanisms {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(Switches)
    }
}

struct Switches;

impl<'de> Visitor<'de> for Switches {
    type Value = Mechanisms;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a table")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Mechanisms, A::Error> {
        let mut all = Mechanisms::default();
        let mut of_then = Mechanisms::default();
        while let Some(key) = map.next_key()? {
            match key {
                Key::Mechanism(mechanism) => {
                    let setting = mechanism.setting(&word(&mut map));
                    let setting = setting.ok_or_else(|| A::Error::custom(expected(mechanism)))?;
                    all.settings.insert(mechanism, setting);
                }
                Key::InitialWindow => {
                    let segments = map.next_value().ok();
                    let segments = segments.filter(|segments| INITIAL_WINDOWS.contains(segments));
                    let expected = || A::Error::custom("expected segments, 1 to 1000");
                    all.initial_window = Some(segments.ok_or_else(expected)?);
                }
                Key::AsIn => {
                    let kernel = of_kernel(&word(&mut map));
                    of_then = kernel.ok_or_else(|| A::Error::custom(expected_kernel()))?;
                }
            }
        }
        for (mechanism, setting) in of_then.settings {
            all.settings.entry(mechanism).or_insert(setting);
        }
        all.initial_window = all.initial_window.or(of_then.initial_window);
        Ok(all)
    }
}

/// What [`Mechanisms::initial_window`] may be.
const INITIAL_WINDOWS: RangeInclusive<u32> = 1..=1000;

/// The word that a key is set to; an empty one if it is none.
fn word<'de, A: MapAccess<'de>>(map: &mut A) -> String {
    map.next_value::<OwnedWord>()
        .map_or_else(|_| String::new(), |OwnedWord(word)| word)
}

fn expected_kernel() -> String {
    let names: Vec<_> = kernel_names().map(|name| format!("\"{name}\"")).collect();
    format!("expected {}", names.join(" or "))
}

fn expected(mechanism: Mechanism) -> String {
    let settings = mechanism.settings().iter();
    let others = settings.filter(|setting| !["on", "off"].contains(&setting.word));
    let others = others.map(|setting| format!(" or \"{}\"", setting.word));
    format!("expected true or false{}", others.collect::<String>())
}

enum Key {
    Mechanism(Mechanism),
    InitialWindow,
    AsIn,
}

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let name = String::deserialize(from)?;
        match name.as_str() {
            AS_IN => return Ok(Self::AsIn),
            INITIAL_WINDOW => return Ok(Self::InitialWindow),
            _ => {}
        }
        let found = Mechanism::all().find(|one| one.name() == name);
        found.map(Self::Mechanism).ok_or_else(|| {
            let known = Mechanism::all()
                .map(Mechanism::name)
                .chain([INITIAL_WINDOW, AS_IN]);
            D::Error::custom(unknown(&name, &known.collect::<Vec<_>>()))
        })
    }
}

struct OwnedWord(String);

impl<'de> Deserialize<'de> for OwnedWord {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Whether(bool),
            Variant(String),
        }
        Ok(Self(match Written::deserialize(from)? {
            Written::Whether(true) => "on".to_owned(),
            Written::Whether(false) => "off".to_owned(),
            Written::Variant(name) => name,
        }))
    }
}

// What kernels of then did by default about losses, as far as mechanisms make it up.

/// The word for the kernel as it is.
const TODAY: &str = "today";

/// Kernels, and what the columns of [`SETTINGS`] are.
const KERNELS: [&str; 3] = ["linux-2.6.34", "linux-3.12", "linux-3.16"];

/// docs/mechanisms.md has the sources, and tells what is not as it was.
const SETTINGS: [(Mechanism, [&str; 3]); 9] = [
    (Mechanism::Tlp, ["off", "on", "on"]),
    (Mechanism::TlpDraft, ["off", "on", "on"]),
    (Mechanism::Rack, ["off", "off", "off"]),
    (Mechanism::Frto, ["on", "on", "on"]),
    (Mechanism::LinearSynTimeouts, ["off", "off", "off"]),
    (
        Mechanism::EarlyRetransmit,
        ["off", "linux-3.10", "linux-3.10"],
    ),
    (Mechanism::Fack, ["on", "on", "on"]),
    (Mechanism::ForwardRetransmission, ["on", "on", "on"]),
    (Mechanism::UnfilledWindowGrowth, ["on", "on", "off"]),
];

/// Segments that connections began with: three full ones up to Linux 2.6.38 (RFC 3390); those of
/// later kernels are as today's.
const KERNELS_INITIAL_WINDOWS: [Option<u32>; 3] = [Some(3), None, None];

/// All that may be asked for.
pub(super) fn kernel_names() -> impl Iterator<Item = &'static str> {
    KERNELS.into_iter().chain([TODAY])
}

/// What mechanisms are set to where recovery is to be that of a kernel; `None` if no such kernel
/// is known.
pub(super) fn of_kernel(kernel: &str) -> Option<Mechanisms> {
    if kernel == TODAY {
        return Some(Mechanisms::default());
    }
    let column = KERNELS.iter().position(|known| *known == kernel)?;
    let settings = SETTINGS.iter().map(|(mechanism, words)| {
        let setting = mechanism.setting(words[column]);
        (*mechanism, setting.expect("a setting of this mechanism"))
    });
    Some(Mechanisms::of(settings, KERNELS_INITIAL_WINDOWS[column]))
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

    #[test]
    fn each_kernel_sets_mechanisms_to_what_they_can_be_set_to() {
        for name in kernel_names() {
            let settings = of_kernel(name).unwrap();
            assert_eq!(settings == Mechanisms::default(), name == TODAY);
        }
        assert!(of_kernel("linux-2.4").is_none());
    }
}
