use pillion_bpf::NamespaceName;
use toml::{Table, Value, ser};

use super::{DefaultMode, Rule};
use crate::settings::Bundling;
use crate::settings::document::known::keys;

/// A new rules file with comments, for people and for [`load`](super::load).
#[derive(Debug, Clone, Default)]
pub struct NewRulesFile {
    /// First line, without control characters.
    pub comment: String,
    /// Mode of connections that no rule matches.
    pub default_mode: DefaultMode,
    /// Network namespaces to serve; if empty, pillion's own.
    pub namespaces: Vec<NamespaceName>,
    /// Values of keys that a rule does not set.
    pub defaults: Bundling,
    /// The rules in their order, each with its comment.
    pub rules: Vec<(String, Rule)>,
}

impl NewRulesFile {
    /// Formats the file. A rule lists only values that differ from the defaults.
    ///
    /// # Errors
    /// If TOML cannot express a value, for example a number above 2^63 - 1.
    pub fn to_toml(&self) -> Result<String, ser::Error> {
        let mut text = format!("# {}\n", self.comment);
        text += &line("default-mode", &Value::try_from(self.default_mode)?);
        if !self.namespaces.is_empty() {
            let names = self.namespaces.iter();
            let names = names.map(|name| name.for_config_file().to_string_lossy().into_owned());
            text += &line("netns", &Value::from(names.collect::<Vec<_>>()));
        }
        text += "\n[defaults]\n";
        let defaults = Table::try_from(self.defaults)?;
        for key in keys::<Bundling>() {
            // Options are off unless a file sets them.
            if let Some(value) = defaults.get(&key)
                && *value != Value::from(false)
            {
                text += &line(&key, value);
            }
        }
        let Bundling {
            options,
            tcp_options,
        } = self.defaults;
        let unset = Table::try_from(Rule {
            options,
            tcp_options,
            ..Rule::default()
        })?;
        for (comment, rule) in &self.rules {
            text += &format!("\n# {comment}\n[[rule]]\n");
            let rule = Table::try_from(rule)?;
            for key in keys::<Rule>() {
                if let Some(value) = rule.get(&key)
                    && unset.get(&key) != Some(value)
                {
                    text += &line(&key, value);
                }
            }
        }
        Ok(text)
    }
}

fn line(key: &str, value: &Value) -> String {
    format!("{key} = {value}\n")
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use pillion_bpf::Options;

    use super::*;
    use crate::settings::policy::{Ports, load};

    #[test]
    fn new_rules_file_loads_as_the_rules_it_was_made_from() {
        let defaults = Bundling {
            options: Options {
                without_sack: true,
                ..Options::default()
            },
            ..Bundling::default()
        };
        let rule = Rule {
            local_port: vec![Ports(7777..=7777), Ports(8000..=8100)],
            cgroup: vec!["/system.slice/ga\"me-*.service".parse().unwrap()],
            uid: Some(1000),
            options: Options::default(),
            ..Rule::default()
        };
        let file = NewRulesFile {
            comment: "By hand".to_owned(),
            default_mode: DefaultMode::Never,
            namespaces: ["10", "cni-*"]
                .map(|it| NamespaceName::from(OsStr::new(it)).without_process())
                .to_vec(),
            defaults,
            rules: vec![("game".to_owned(), rule.clone())],
        };
        let text = file.to_toml().unwrap();
        let rules = "# game\n[[rule]]\nlocal-port = [7777, \"8000-8100\"]\n\
                       cgroup = ['/system.slice/ga\"me-*.service']\nuid = 1000\nwithout-sack = false\n";
        assert!(text.ends_with(rules), "{text}");
        let head =
            "# By hand\ndefault-mode = \"never\"\nnetns = [\"10\", \"cni-*\"]\n\n[defaults]\n";
        assert!(text.starts_with(head), "{text}");
        let defaults = text.split("\n\n").nth(1).unwrap();
        assert!(defaults.contains("without-sack = true"), "{text}");
        assert!(!defaults.contains("false"), "{text}");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pillion.toml");
        std::fs::write(&path, &text).unwrap();
        let mut read = load(&path, false).unwrap_or_else(|why| panic!("{why:?}\n{text}"));
        read.policy.rules[0].source.clear();
        assert_eq!(read.policy.rules, [rule.into()]);
        assert_eq!(read.namespaces.len(), 2);
    }
}
