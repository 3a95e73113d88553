//! Mechanisms of TCP that a host sets, and those of older kernels.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;

use pillion_cli::settings::document::known::unknown;
use serde::de::{Error, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Sysctls;

/// Mechanism of TCP with a kernel parameter.
///
/// docs/lab/kernel.md describes each one, its source, and the kernels that have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mechanism {
    /// Linear time-outs for thin streams (LCN 2008, section III; Linux 2.6.34).
    LinearTimeouts,
    /// Tail loss probe (Linux 3.10).
    Tlp,
    /// Time and conditions of the probe as in the first draft and Linux 3.10
    /// (draft-dukkipati-tcpm-tcp-loss-probe-01, section 2); lab kernel only.
    TlpDraft,
    /// Recovery by transmission time (RFC 8985; Linux 4.4).
    Rack,
    /// Detection of spurious time-outs (RFC 5682).
    Frto,
    /// Equal intervals between the first four SYNs, instead of doubled ones (Linux 6.5).
    LinearSynTimeouts,
    /// Joins small segments when it retransmits them.
    RetransmissionCollapsing,
    /// Fast retransmit with fewer duplicate ACKs (RFC 5827); lab kernel only.
    EarlyRetransmit,
    /// Forward acknowledgment (Linux up to 4.14); lab kernel only.
    Fack,
    /// Retransmission of segments not marked lost, during recovery (RFC 3517, section 4, rule 3 of
    /// NextSeg; Linux up to 4.10); lab kernel only.
    ForwardRetransmission,
    /// Fast retransmit of thin streams at the first duplicate ACK (LCN 2008, section III); lab
    /// kernel only.
    ModifiedFastRetransmit,
    /// Time-outs counted from the transmission of the earliest segment (RFC 7765); lab kernel only.
    RtoRestart,
    /// Smaller segments while the window is small (thesis, section 2.6.1); lab kernel only.
    SmartFraming,
    /// Window growth although the application does not fill the window, as before Linux 3.16 (LCN
    /// 2015, section IV.B); lab kernel only.
    UnfilledWindowGrowth,
}

/// Setting of a mechanism: a word of experiment files, and the parameter's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setting {
    /// `on`, `off`, or the name of a variant.
    pub word: &'static str,
    /// Value of the kernel parameter.
    pub value: &'static str,
}

/// Row of the table of mechanisms.
struct MechanismRow {
    mechanism: Mechanism,
    name: &'static str,
    sysctl: &'static str,
    settings: &'static [Setting],
}

const fn set(word: &'static str, value: &'static str) -> Setting {
    Setting { word, value }
}

const SWITCH: &[Setting] = &[set("off", "0"), set("on", "1")];

const ROWS: &[MechanismRow] = &[
    MechanismRow {
        mechanism: Mechanism::LinearTimeouts,
        name: "linear-timeouts",
        sysctl: "net.ipv4.tcp_thin_linear_timeouts",
        settings: SWITCH,
    },
    MechanismRow {
        mechanism: Mechanism::Tlp,
        name: "tlp",
        sysctl: "net.ipv4.tcp_early_retrans",
        settings: &[set("off", "0"), set("on", "3")],
    },
    MechanismRow {
        mechanism: Mechanism::TlpDraft,
        name: "tlp-draft",
        sysctl: "net.ipv4.tcp_tlp_draft",
        settings: SWITCH,
    },
    MechanismRow {
        mechanism: Mechanism::Rack,
        name: "rack",
        sysctl: "net.ipv4.tcp_recovery",
        settings: SWITCH,
    },
    MechanismRow {
        mechanism: Mechanism::Frto,
        name: "f-rto",
        sysctl: "net.ipv4.tcp_frto",
        settings: &[set("off", "0"), set("on", "2")],
    },
    MechanismRow {
        mechanism: Mechanism::LinearSynTimeouts,
        name: "linear-syn-timeouts",
        sysctl: "net.ipv4.tcp_syn_linear_timeouts",
        settings: &[set("off", "0"), set("on", "4")],
    },
    MechanismRow {
        mechanism: Mechanism::RetransmissionCollapsing,
        name: "retransmission-collapsing",
        sysctl: "net.ipv4.tcp_retrans_collapse",
        settings: SWITCH,
    },
    MechanismRow {
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
    MechanismRow {
        mechanism: Mechanism::Fack,
        name: "fack",
        sysctl: "net.ipv4.tcp_fack",
        settings: SWITCH,
    },
    MechanismRow {
        mechanism: Mechanism::ForwardRetransmission,
        name: "forward-retransmission",
        sysctl: "net.ipv4.tcp_forward_retransmit",
        settings: SWITCH,
    },
    MechanismRow {
        mechanism: Mechanism::ModifiedFastRetransmit,
        name: "modified-fast-retransmit",
        sysctl: "net.ipv4.tcp_thin_dupack",
        settings: SWITCH,
    },
    MechanismRow {
        mechanism: Mechanism::RtoRestart,
        name: "rto-restart",
        sysctl: "net.ipv4.tcp_rto_restart",
        settings: SWITCH,
    },
    MechanismRow {
        mechanism: Mechanism::SmartFraming,
        name: "smart-framing",
        sysctl: "net.ipv4.tcp_smart_framing",
        settings: SWITCH,
    },
    MechanismRow {
        mechanism: Mechanism::UnfilledWindowGrowth,
        name: "unfilled-window-growth",
        sysctl: "net.ipv4.tcp_cwnd_grow_unfilled",
        settings: SWITCH,
    },
];

impl Mechanism {
    /// Returns all mechanisms.
    pub fn all() -> impl Iterator<Item = Self> {
        ROWS.iter().map(|row| row.mechanism)
    }

    /// Returns the mechanism's name in experiment files.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// Returns the kernel parameter, which belongs to a network namespace.
    #[must_use]
    pub fn sysctl(self) -> &'static str {
        self.row().sysctl
    }

    /// Returns the possible settings.
    #[must_use]
    pub fn settings(self) -> &'static [Setting] {
        self.row().settings
    }

    /// Returns the setting with this word; `None` if there is none.
    pub(super) fn setting(self, word: &str) -> Option<&'static Setting> {
        self.settings().iter().find(|setting| setting.word == word)
    }

    fn row(self) -> &'static MechanismRow {
        // Rows are in the order of the enum; a test checks it.
        &ROWS[self as usize]
    }
}

/// Key that sets the recovery of another kernel.
const LIKE: &str = "like";

/// Key of [`Mechanisms::initial_window`].
const INITIAL_WINDOW: &str = "initial-window";

/// Settings of TCP mechanisms on a host; the others remain as in the kernel.
///
/// In files, `like = "linux-3.12"` sets the loss recovery of that kernel. Other keys of the table
/// override it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mechanisms {
    settings: BTreeMap<Mechanism, &'static Setting>,
    /// Initial congestion window in segments, 1 to 1000. It is an attribute of the route
    /// (`initcwnd`), not a parameter.
    pub(super) initial_window: Option<u32>,
}

impl Mechanisms {
    /// Creates settings; the initial window is in segments.
    pub(super) fn of(
        settings: impl IntoIterator<Item = (Mechanism, &'static Setting)>,
        initial_window: Option<u32>,
    ) -> Self {
        Self {
            settings: settings.into_iter().collect(),
            initial_window,
        }
    }

    /// Returns whether the mechanism is set, on or off.
    pub(super) fn has(&self, mechanism: Mechanism) -> bool {
        self.settings.contains_key(&mechanism)
    }

    /// Returns the kernel parameters of the settings.
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
        from.deserialize_map(MechanismsVisitor)
    }
}

struct MechanismsVisitor;

impl<'de> Visitor<'de> for MechanismsVisitor {
    type Value = Mechanisms;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a table")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Mechanisms, A::Error> {
        let mut all = Mechanisms::default();
        let mut like = Mechanisms::default();
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
                Key::Like => {
                    let kernel = kernel_mechanisms(&word(&mut map));
                    like = kernel.ok_or_else(|| A::Error::custom(expected_kernel()))?;
                }
            }
        }
        for (mechanism, setting) in like.settings {
            all.settings.entry(mechanism).or_insert(setting);
        }
        all.initial_window = all.initial_window.or(like.initial_window);
        Ok(all)
    }
}

/// Range of [`Mechanisms::initial_window`].
const INITIAL_WINDOWS: RangeInclusive<u32> = 1..=1000;

/// Returns the value as a word; empty if it is neither text nor a bool.
fn word<'de, A: MapAccess<'de>>(map: &mut A) -> String {
    map.next_value::<WordOrBool>()
        .map_or_else(|_| String::new(), |WordOrBool(word)| word)
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
    Like,
}

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let name = String::deserialize(from)?;
        match name.as_str() {
            LIKE => return Ok(Self::Like),
            INITIAL_WINDOW => return Ok(Self::InitialWindow),
            _ => {}
        }
        let found = Mechanism::all().find(|one| one.name() == name);
        found.map(Self::Mechanism).ok_or_else(|| {
            let known = Mechanism::all()
                .map(Mechanism::name)
                .chain([INITIAL_WINDOW, LIKE]);
            D::Error::custom(unknown(&name, &known.collect::<Vec<_>>()))
        })
    }
}

struct WordOrBool(String);

impl<'de> Deserialize<'de> for WordOrBool {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Value {
            Bool(bool),
            Variant(String),
        }
        Ok(Self(match Value::deserialize(from)? {
            Value::Bool(true) => "on".to_owned(),
            Value::Bool(false) => "off".to_owned(),
            Value::Variant(name) => name,
        }))
    }
}

// Loss recovery of older kernels, as far as mechanisms determine it.

/// Name of the current kernel.
const CURRENT: &str = "current";

/// Names of older kernels: the columns of [`SETTINGS`].
const KERNELS: [&str; 3] = ["linux-2.6.34", "linux-3.12", "linux-3.16"];

/// Settings of each kernel. docs/lab/kernel.md has the sources and the remaining differences.
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

/// Initial window in segments: three full segments up to Linux 2.6.38 (RFC 3390). Later kernels
/// have the current one.
const KERNEL_INITIAL_WINDOWS: [Option<u32>; 3] = [Some(3), None, None];

/// Returns the values of `like`.
pub(super) fn kernel_names() -> impl Iterator<Item = &'static str> {
    KERNELS.into_iter().chain([CURRENT])
}

/// Returns the mechanisms of a kernel's loss recovery; `None` if the kernel is unknown.
pub(super) fn kernel_mechanisms(kernel: &str) -> Option<Mechanisms> {
    if kernel == CURRENT {
        return Some(Mechanisms::default());
    }
    let column = KERNELS.iter().position(|known| *known == kernel)?;
    let settings = SETTINGS.iter().map(|(mechanism, words)| {
        let setting = mechanism.setting(words[column]);
        (*mechanism, setting.expect("a setting of this mechanism"))
    });
    Some(Mechanisms::of(settings, KERNEL_INITIAL_WINDOWS[column]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mechanism_rows_follow_enum_order() {
        for (index, row) in ROWS.iter().enumerate() {
            assert_eq!(row.mechanism as usize, index, "{}", row.name);
        }
    }

    #[test]
    fn every_mechanism_is_documented() {
        let page = |name: &str| {
            let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/lab");
            std::fs::read_to_string(format!("{folder}/{name}")).unwrap()
        };
        let (listed, explained) = (page("experiments.md"), page("kernel.md"));
        for row in ROWS {
            let name = format!("`{}`", row.name);
            assert!(listed.contains(&name), "docs/lab/experiments.md: {name}");
            let parameter = row.sysctl.trim_start_matches("net.ipv4.");
            let is_there = explained.contains(parameter);
            assert!(is_there, "docs/lab/kernel.md: {parameter}");
        }
    }

    #[test]
    fn every_older_kernel_sets_valid_mechanisms() {
        for name in kernel_names() {
            let settings = kernel_mechanisms(name).unwrap();
            assert_eq!(settings == Mechanisms::default(), name == CURRENT);
        }
        assert!(kernel_mechanisms("linux-2.4").is_none());
    }
}
