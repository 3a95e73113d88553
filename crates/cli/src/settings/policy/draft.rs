use pillion_bpf::NamespaceName;
use toml::{Table, Value, ser};

use super::{Otherwise, Rule};
use crate::settings::Bundling;
use crate::settings::document::known::keys;

/// A file of rules that is still to be written, for [`load`](super::load) and for people to read.
#[derive(Debug, Clone, Default)]
pub struct Draft {
    /// What the file is: a line without control characters.
    pub comment: String,
    /// What becomes of connections that no rule matches.
    pub otherwise: Otherwise,
    /// The network namespaces that are served; none: that of pillion itself.
    pub namespaces: Vec<NamespaceName>,
    /// How connections are bundled where a rule says nothing else.
    pub defaults: Bundling,
    /// The rules in their order, each with a comment as the file has one.
    pub rules: Vec<(String, Rule)>,
}

impl Draft {
    /// The file's text. A rule says what differs from the defaults alone, and has theirs where it has no
    /// value.
    ///
    /// # Errors
    /// If a value has no form in TOML, as a number has none that is above 2^63 - 1.
    pub fn to_toml(&self) -> Result<String, ser::Error> {
        let mut text = format!("# {}\n", self.comment);
        text += &line("otherwise", &Value::try_from(self.otherwise)?);
        if !self.namespaces.is_empty() {
            let names = self.namespaces.iter();
            let names = names.map(|name| name.for_a_file().to_string_lossy().into_owned());
            text += &line("netns", &Value::from(names.collect::<Vec<_>>()));
        }
        text += &format!("\n[defaults]\n{}", toml::to_string(&self.defaults)?);
        let Bundling {
            options,
            companions,
        } = self.defaults;
        let unsaid = Table::try_from(Rule {
            options,
            companions,
            ..Rule::default()
        })?;
        for (comment, rule) in &self.rules {
            text += &format!("\n# {comment}\n[[rule]]\n");
            let rule = Table::try_from(rule)?;
            for key in keys::<Rule>() {
                if let Some(value) = rule.get(&key)
                    && unsaid.get(&key) != Some(value)
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
    fn what_is_written_is_read_as_it_was_meant() {
        let defaults = Bundling {
            options: Options {
                without_sack: true,
                ..Options::default()
            },
            ..Bundling::default()
        };
        let rule = Rule {
            local_ports: vec![Ports(7777..=7777), Ports(8000..=8100)],
            cgroup: vec!["/system.slice/ga\"me-*.service".parse().unwrap()],
            uid: Some(1000),
            options: Options::default(),
            ..Rule::default()
        };
        let draft = Draft {
            comment: "By hand".to_owned(),
            otherwise: Otherwise::LeaveAlone,
            namespaces: ["10", "cni-*"]
                .map(|it| NamespaceName::from(OsStr::new(it)).without_process())
                .to_vec(),
            defaults,
            rules: vec![("game".to_owned(), rule.clone())],
        };
        let text = draft.to_toml().unwrap();
        let written = "# game\n[[rule]]\nlocal-ports = [7777, \"8000-8100\"]\n\
                       cgroup = ['/system.slice/ga\"me-*.service']\nuid = 1000\nwithout-sack = false\n";
        assert!(text.ends_with(written), "{text}");
        let head =
            "# By hand\notherwise = \"leave-alone\"\nnetns = [\"10\", \"cni-*\"]\n\n[defaults]\n";
        assert!(text.starts_with(head), "{text}");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pillion.toml");
        std::fs::write(&path, &text).unwrap();
        let read = load(&path, false).unwrap_or_else(|why| panic!("{why:?}\n{text}"));
        assert_eq!(read.policy.rules, [rule.into()]);
        assert_eq!(read.namespaces.len(), 2);
    }
}
