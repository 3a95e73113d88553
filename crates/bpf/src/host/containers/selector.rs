use std::fmt;
use std::str::FromStr;

use super::Container;
use crate::host::pattern::{path_is_like, text_is_like};

/// A user's name for containers: a name with optional shell wildcards, or the first digits of an
/// id. For a pod's containers: POD, NAMESPACE/POD or NAMESPACE/POD/CONTAINER.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ContainerName(String);

/// An invalid [`ContainerName`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected a container's name as in web-*, or of a pod's POD, NAMESPACE/POD or \
     NAMESPACE/POD/CONTAINER"
)]
pub struct ContainerNameError;

impl FromStr for ContainerName {
    type Err = ContainerNameError;

    fn from_str(text: &str) -> Result<Self, ContainerNameError> {
        let parts: Vec<_> = text.split('/').collect();
        let is_part = |part: &&str| !part.is_empty() && !part.chars().any(char::is_control);
        match parts.len() <= 3 && parts.iter().all(is_part) {
            true => Ok(Self(text.to_owned())),
            false => Err(ContainerNameError),
        }
    }
}

impl fmt::Display for ContainerName {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl ContainerName {
    fn matches(&self, container: &Container) -> bool {
        /// Minimum digits of an id prefix.
        const DIGITS: usize = 12;
        let names = &container.info.names;
        let is_id = self.0.len() >= DIGITS && container.id.starts_with(&self.0);
        is_id || names.iter().any(|name| path_is_like(name, &self.0))
    }
}

/// A label or annotation of containers: its key, and its value with optional shell wildcards.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ContainerLabel {
    key: String,
    value: String,
}

/// An invalid [`ContainerLabel`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected a label and its value as in app=game; app=* is any value")]
pub struct ContainerLabelError;

impl FromStr for ContainerLabel {
    type Err = ContainerLabelError;

    fn from_str(text: &str) -> Result<Self, ContainerLabelError> {
        match text.split_once('=') {
            Some((key, value)) if !key.is_empty() => Ok(Self {
                key: key.to_owned(),
                value: value.to_owned(),
            }),
            _ => Err(ContainerLabelError),
        }
    }
}

impl fmt::Display for ContainerLabel {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}={}", self.key, self.value)
    }
}

impl ContainerLabel {
    fn matches(&self, container: &Container) -> bool {
        let value = container.info.labels.get(&self.key);
        value.is_some_and(|value| text_is_like(value, &self.value))
    }
}

/// Selects containers that have one of the names and one of the labels; an empty list matches all.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ContainerSelector {
    /// The names.
    pub names: Vec<ContainerName>,
    /// The labels.
    pub labels: Vec<ContainerLabel>,
}

impl ContainerSelector {
    /// True if there is no condition, so that sockets need not be in a container.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.names.is_empty() && self.labels.is_empty()
    }

    /// True if this container is selected. A selector without conditions selects none.
    #[must_use]
    pub fn matches(&self, container: &Container) -> bool {
        let has_name = || self.names.iter().any(|name| name.matches(container));
        let has_label = || self.labels.iter().any(|label| label.matches(container));
        !self.is_empty()
            && (self.names.is_empty() || has_name())
            && (self.labels.is_empty() || has_label())
    }
}

impl fmt::Display for ContainerSelector {
    /// Formats the conditions so that they can follow "container", as in "named web".
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let names: Vec<_> = self.names.iter().map(ToString::to_string).collect();
        let labels: Vec<_> = self.labels.iter().map(ToString::to_string).collect();
        let called = (!names.is_empty()).then(|| format!("named {}", names.join(" or ")));
        let labelled = (!labels.is_empty()).then(|| format!("labelled {}", labels.join(" or ")));
        let both: Vec<_> = [called, labelled].into_iter().flatten().collect();
        f.write_str(&both.join(" and "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::ContainerInfo;

    fn container(digit: &str, names: &[&str], label: (&str, &str)) -> Container {
        Container {
            id: digit.repeat(64),
            info: ContainerInfo {
                names: names.iter().map(|it| (*it).to_owned()).collect(),
                labels: [(label.0.to_owned(), label.1.to_owned())].into(),
            },
            cgroup: 1,
            process: None,
            is_hidden: false,
        }
    }

    fn chosen(names: &[&str], labels: &[&str]) -> Vec<String> {
        let all = [
            container("a", &["web-1"], ("app", "web/front")),
            container("b", &["web-2"], ("app", "db")),
            container("c", &["game", "prod/game", "prod/game/server"], ("x", "")),
        ];
        let selector = ContainerSelector {
            names: names.iter().map(|it| it.parse().unwrap()).collect(),
            labels: labels.iter().map(|it| it.parse().unwrap()).collect(),
        };
        let chosen = all.iter().filter(|it| selector.matches(it));
        chosen.map(ToString::to_string).collect()
    }

    #[test]
    fn container_names_match_wildcards_and_pod_parts() {
        assert_eq!(chosen(&["web-*"], &[]), ["web-1", "web-2"]);
        assert_eq!(chosen(&["web-2", "web-[1]"], &[]), ["web-1", "web-2"]);
        for pod in ["game", "prod/ga*", "prod/*/server", "cccccccccccc"] {
            assert_eq!(chosen(&[pod], &[]), ["prod/game/server"], "{pod}");
        }
        for none in ["prod", "*/server", "cccc", "web"] {
            assert!(chosen(&[none], &[]).is_empty(), "{none}");
        }
        for mistake in ["", "/web", "a//b", "a/b/c/d"] {
            assert!(mistake.parse::<ContainerName>().is_err(), "{mistake}");
        }
    }

    #[test]
    fn container_choice_requires_name_and_label() {
        assert_eq!(chosen(&[], &["app=web*"]), ["web-1"]);
        assert_eq!(chosen(&["web-*"], &["app=d?", "x=*"]), ["web-2"]);
        assert!(chosen(&["game"], &["app=*"]).is_empty());
        assert!(chosen(&[], &[]).is_empty());
        assert!("app".parse::<ContainerLabel>().is_err());
    }
}
