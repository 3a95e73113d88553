//! The example rules file with every key, generated from the help of the options.

use clap::{Arg, Args, Command};
use pillion_bpf::RedundancyCaps;
use serde::Serialize;

use crate::settings::{Bundling, OutputConfig};

/// A table of the file with its keys.
#[derive(Debug)]
pub struct Section {
    /// Its header; empty for the head of the file.
    pub header: &'static str,
    /// Description of the table.
    pub description: &'static str,
    /// Its keys.
    pub keys: Vec<Key>,
}

/// A key of the file.
#[derive(Debug)]
pub struct Key {
    /// The key's name.
    pub name: String,
    /// Description in one line.
    pub description: String,
    /// The default, or an example.
    pub value: String,
    /// All possible values with their meanings; empty if not enumerable.
    pub values: Vec<String>,
}

/// Example values of keys without a default.
const VALUES: &[(&str, &str)] = &[
    ("max-redundancy-rate", "\"8mbit\""),
    ("max-copy-rate", "1000"),
    ("log-level", "\"info\""),
    ("log-totals", "\"1h\""),
    ("metrics", "\"unix:/run/pillion/metrics\""),
    ("stats", "\"/var/lib/pillion/stats.json\""),
    ("level", "\"auto\""),
    ("reaction", "\"tfrc-sp\""),
    ("target", "\"0.1%\""),
    ("deadline", "\"20ms\""),
    ("max-overhead", "4"),
    ("copy-delay", "\"15ms\""),
    ("max-packets", "1"),
    ("rto-min", "\"50ms\""),
    ("delack-max", "\"40ms\""),
    ("user-timeout", "\"30s\""),
    ("congestion", "\"reno\""),
];

/// Conditions and mode of a rule: key, example value, description.
const CONDITIONS: &[(&str, &str, &str)] = &[
    (
        "port",
        "[7777, \"8000-8100\"]",
        "Ports at either end: a port, a range, or a list",
    ),
    ("local-port", "22", "Ports of this host"),
    ("remote-port", "8883", "Ports of the peer"),
    (
        "peer",
        "[\"192.0.2.0/24\", \"2001:db8::1\"]",
        "Addresses, networks or host names of the peer",
    ),
    (
        "cgroup",
        "\"/\"",
        "Cgroups of the socket, or above it, as in /proc/PID/cgroup; wildcards are allowed",
    ),
    (
        "container",
        "\"web-*\"",
        "Containers of the socket: names, or POD, NAMESPACE/POD or NAMESPACE/POD/CONTAINER; \
         wildcards are allowed; not together with cgroup",
    ),
    (
        "container-label",
        "\"app=game\"",
        "Labels or annotations of the container, if the files of its runtime contain them",
    ),
    ("uid", "1000", "User id of the socket's creator"),
    (
        "direction",
        "\"accept\"",
        "End that opened the connection: \"connect\", this host, or \"accept\", the peer",
    ),
    (
        "mode",
        "\"bundle\"",
        "\"bundle\"; \"on-request\", when the application requests it; \"tcp-options\", without \
         bundling; or \"never\"",
    ),
    (
        "holdback",
        "\"5%\"",
        "Share of bundled connections that stays plain, 1% to 50%; bundling ends if bundled ones are \
         reliably worse",
    ),
];

/// Returns all tables with all keys.
#[must_use]
pub fn sections() -> Vec<Section> {
    let default_mode = Key {
        name: "default-mode".to_owned(),
        description: "Mode of connections that no rule matches: \"on-request\", bundled when the \
                  application requests it, or \"never\""
            .to_owned(),
        value: "\"on-request\"".to_owned(),
        values: Vec::new(),
    };
    let netns = Key {
        name: "netns".to_owned(),
        description:
            "Network namespaces to serve instead of pillion's own: names under /run/netns, or \
                  files such as /proc/PID/ns/net; wildcards are allowed"
                .to_owned(),
        value: "[\"web\", \"cni-*\"]".to_owned(),
        values: Vec::new(),
    };
    let conditions = CONDITIONS.iter().map(|(name, value, description)| Key {
        name: (*name).to_owned(),
        description: (*description).to_owned(),
        value: (*value).to_owned(),
        values: Vec::new(),
    });
    vec![
        Section {
            header: "",
            description: "Settings of pillion and of unmatched connections.",
            keys: [default_mode, netns]
                .into_iter()
                .chain(keys::<RedundancyCaps>())
                .chain(keys::<OutputConfig>())
                .collect(),
        },
        Section {
            header: "[defaults]",
            description: "Defaults for keys that a rule does not set. Each key is allowed in a rule as well.",
            keys: keys::<Bundling>(),
        },
        Section {
            header: "[[rule]]",
            description: "A rule. The first rule that matches a connection decides; all of its \
                      conditions must hold.",
            keys: conditions.collect(),
        },
    ]
}

/// Returns the options of a struct as keys.
fn keys<T: Args + Default + Serialize>() -> Vec<Key> {
    let defaults = toml::to_string(&T::default()).unwrap_or_default();
    let default_of = |name: &str| {
        let mut lines = defaults.lines().filter_map(|line| line.split_once(" = "));
        lines.find(|(key, _)| *key == name).map(|(_, value)| value)
    };
    let value_of = |name: &str| {
        let mut values = VALUES.iter().filter(|(key, _)| *key == name);
        values.next().map(|(_, value)| *value)
    };
    let command = T::augment_args(Command::new(""));
    let options = command.get_arguments().filter_map(|option| {
        let name = option.get_long()?;
        Some(Key {
            name: name.to_owned(),
            description: option
                .get_help()
                .map(ToString::to_string)
                .unwrap_or_default(),
            value: default_of(name)
                .or_else(|| value_of(name))
                .unwrap_or("false")
                .to_owned(),
            values: values(option),
        })
    });
    options.collect()
}

/// Returns the possible values of an option, with their help.
fn values(option: &Arg) -> Vec<String> {
    if !option.get_action().takes_values() {
        return Vec::new();
    }
    let values = option.get_possible_values().into_iter().map(|it| {
        let description = it.get_help().map(|help| format!(": {help}"));
        format!("\"{}\"{}", it.get_name(), description.unwrap_or_default())
    });
    values.collect()
}

/// Returns the file as installed: every key is present, and all except `default-mode` are comments.
#[must_use]
pub fn example() -> String {
    let mut text =
        "# Rules of `pillion attach --config`; see pillion.toml(5). A # without a space \
                    precedes a key with its\n# default, or with an example.\n"
            .to_owned();
    for Section {
        header,
        description,
        keys,
    } in sections()
    {
        text += &format!("\n# {description}\n");
        if !header.is_empty() {
            text += &format!("#{header}\n");
        }
        for Key {
            name,
            description,
            value,
            values,
        } in keys
        {
            let comment = if name == "default-mode" { "" } else { "#" };
            text += &format!("\n# {description}.\n");
            values.iter().for_each(|it| text += &format!("#   {it}\n"));
            text += &format!("{comment}{name} = {value}\n");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::settings::document::known::keys;
    use crate::settings::policy::{Rule, load};

    fn loads(text: &str) -> usize {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("pillion.toml");
        fs::write(&file, text).unwrap();
        load(&file, false).unwrap().policy.rules.len()
    }

    #[test]
    fn example_is_valid_without_changes() {
        assert_eq!(loads(&example()), 0);
    }

    #[test]
    fn example_lists_possible_values() {
        let example = example();
        for words in ["#   \"cwr\": ", "#   \"adaptive\": ", "#   \"smoothed\""] {
            assert!(example.contains(words), "{words} {example}");
        }
        assert!(!example.contains("#   \"true\""));
    }

    #[test]
    fn every_key_is_valid_once_uncommented() {
        let bare = |line: &str| match line.strip_prefix('#') {
            Some(rest) if !rest.starts_with(' ') => rest.to_owned(),
            _ => line.to_owned(),
        };
        let lines: Vec<String> = example().lines().map(bare).collect();
        // This host may lack cgroup v2.
        let text = lines.join("\n").replace("cgroup = \"/\"\n", "");
        assert_eq!(loads(&text), 1);
        for key in keys::<Rule>().into_iter().chain(keys::<OutputConfig>()) {
            let start = format!("{key} = ");
            assert!(lines.iter().any(|line| line.starts_with(&start)), "{key}");
        }
    }
}
