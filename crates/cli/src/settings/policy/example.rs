//! The file of rules with every key, made from the keys' own descriptions.

use clap::{Arg, Args, Command};
use serde::Serialize;

use crate::settings::{Bundling, Telling};

/// A table of the file, and what can stand in it.
#[derive(Debug)]
pub struct Section {
    /// Its header; empty for the head of the file.
    pub header: &'static str,
    /// What the table is for.
    pub meaning: &'static str,
    /// Its keys.
    pub keys: Vec<Key>,
}

/// A key of the file.
#[derive(Debug)]
pub struct Key {
    /// The key's name.
    pub name: String,
    /// What it says, in a line.
    pub meaning: String,
    /// A value: the default, if there is one.
    pub value: String,
    /// What it can be, with what that means, where these are all.
    pub values: Vec<String>,
}

/// Values of keys that have no default.
const VALUES: &[(&str, &str)] = &[
    ("metrics", "\"unix:/run/pillion/metrics\""),
    ("totals-every", "3600"),
    ("stats", "\"/var/lib/pillion/stats.json\""),
    ("target", "0.1"),
    ("max-packets", "1"),
    ("rto-min", "50"),
    ("delack-max", "40"),
    ("user-timeout", "30000"),
    ("congestion", "\"reno\""),
];

/// What chooses the connections of a rule, and what becomes of them.
const CHOICE: &[(&str, &str, &str)] = &[
    (
        "ports",
        "[7777, \"8000-8100\"]",
        "Ports of which the connection has one, at either end",
    ),
    ("local-ports", "22", "Ports of this host's end"),
    ("remote-ports", "8883", "Ports of the peer's end"),
    (
        "peers",
        "[\"192.0.2.0/24\", \"2001:db8::1\"]",
        "Addresses, networks and host names, of which the peer has one",
    ),
    (
        "cgroup",
        "\"/\"",
        "The socket's cgroup, or one above it, as in /proc/PID/cgroup, with wildcards if so wanted",
    ),
    (
        "container",
        "\"web-*\"",
        "The container that the socket is of: a name, or of a pod POD, NAMESPACE/POD or \
         NAMESPACE/POD/CONTAINER, with wildcards if so wanted; not beside cgroup",
    ),
    (
        "container-label",
        "\"app=game\"",
        "A label or annotation of that container, as far as its runtime's files have it",
    ),
    ("uid", "1000", "The id of the user whose the socket is"),
    (
        "direction",
        "\"accept\"",
        "Who opened the connection: \"connect\", this host, or \"accept\"",
    ),
    (
        "mode",
        "\"bundle\"",
        "\"bundle\"; \"allow\", once the application asks; \"companions\", these alone; or \
         \"leave-alone\"",
    ),
];

/// All tables with all keys.
#[must_use]
pub fn sections() -> Vec<Section> {
    let otherwise = Key {
        name: "otherwise".to_owned(),
        meaning: "What becomes of connections that no rule matches: \"allow\", bundled once their \
                  application asks, or \"leave-alone\""
            .to_owned(),
        value: "\"allow\"".to_owned(),
        values: Vec::new(),
    };
    let netns = Key {
        name: "netns".to_owned(),
        meaning: "Network namespaces whose connections are taken in instead of those of this one: \
                  names under /run/netns or files, with wildcards if so wanted; of a process \
                  /proc/PID/ns/net"
            .to_owned(),
        value: "[\"web\", \"cni-*\"]".to_owned(),
        values: Vec::new(),
    };
    let choice = CHOICE.iter().map(|(name, value, meaning)| Key {
        name: (*name).to_owned(),
        meaning: (*meaning).to_owned(),
        value: (*value).to_owned(),
        values: Vec::new(),
    });
    vec![
        Section {
            header: "",
            meaning: "Of all connections, and of pillion itself.",
            keys: [otherwise, netns]
                .into_iter()
                .chain(keys::<Telling>())
                .collect(),
        },
        Section {
            header: "[defaults]",
            meaning: "What a rule does not say of how to bundle. Each can stand in a rule as well.",
            keys: keys::<Bundling>(),
        },
        Section {
            header: "[[rule]]",
            meaning: "A rule; there may be many, and the first that matches a connection decides. \
                      All of its conditions must hold.",
            keys: choice.collect(),
        },
    ]
}

/// The options of a struct, as keys.
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
            meaning: option
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

/// What an option that takes one of some words can be.
fn values(option: &Arg) -> Vec<String> {
    if !option.get_action().takes_values() {
        return Vec::new();
    }
    let values = option.get_possible_values().into_iter().map(|it| {
        let meaning = it.get_help().map(|help| format!(": {help}"));
        format!("\"{}\"{}", it.get_name(), meaning.unwrap_or_default())
    });
    values.collect()
}

/// The file as it is installed: every key is there, and all but `otherwise` are comments.
#[must_use]
pub fn example() -> String {
    let mut text = "# Rules of `pillion attach --config`; pillion.toml(5) describes them. What is behind \
                    a # without a\n# space is a key with its default, or with an example where there \
                    is none.\n"
        .to_owned();
    for Section {
        header,
        meaning,
        keys,
    } in sections()
    {
        text += &format!("\n# {meaning}\n");
        if !header.is_empty() {
            text += &format!("#{header}\n");
        }
        for Key {
            name,
            meaning,
            value,
            values,
        } in keys
        {
            let comment = if name == "otherwise" { "" } else { "#" };
            text += &format!("\n# {meaning}.\n");
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
    fn it_can_be_installed_as_it_is() {
        assert_eq!(loads(&example()), 0);
    }

    #[test]
    fn words_that_a_key_can_have_are_told() {
        let example = example();
        for words in ["#   \"cwr\": ", "#   \"adaptive\": ", "#   \"smoothed\""] {
            assert!(example.contains(words), "{words} {example}");
        }
        assert!(!example.contains("#   \"true\""));
    }

    #[test]
    fn every_key_is_sound_once_it_is_no_comment() {
        let bare = |line: &str| match line.strip_prefix('#') {
            Some(rest) if !rest.starts_with(' ') => rest.to_owned(),
            _ => line.to_owned(),
        };
        let lines: Vec<String> = example().lines().map(bare).collect();
        // The cgroup is looked for on this host, which may have none.
        let text = lines.join("\n").replace("cgroup = \"/\"\n", "");
        // The target is refused without.
        let text = text.replace("level = \"fixed\"", "level = \"adaptive\"");
        assert_eq!(loads(&text), 1);
        for key in keys::<Rule>().into_iter().chain(keys::<Telling>()) {
            let start = format!("{key} = ");
            assert!(lines.iter().any(|line| line.starts_with(&start)), "{key}");
        }
    }
}
