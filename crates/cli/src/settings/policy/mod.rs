//! The file of rules that `attach --config` reads; docs/policy.md describes it.

mod draft;
mod example;
mod rule;

use std::path::Path;

use clap::ValueEnum;
use pillion_bpf::{Error, Mode, NamespaceName, Options, Policy, Scope};
use serde::{Deserialize, Serialize};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::settings::document::known::keys;
use crate::settings::document::{self, Mistake, Value, span_of};
use crate::settings::{BadInput, Bundling, Telling, idle_key, text};

pub use draft::Draft;
pub use example::{Key, Section, example, sections};
pub use rule::{Peer, Ports, Rule, RuleMode};

/// What becomes of connections that are not chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Otherwise {
    /// Bundled once their application asks
    #[default]
    Allow,
    /// Never bundled
    LeaveAlone,
}

impl Otherwise {
    /// The mode of such connections; where applications ask, they get at most these options.
    #[must_use]
    pub fn mode(self, options: Options) -> Mode {
        match self {
            Self::Allow => Mode::Allow(options),
            Self::LeaveAlone => Mode::LeaveAlone,
        }
    }
}

/// What a file says.
#[derive(Debug, Clone)]
pub struct File {
    /// The policy for this network namespace, with the rules in their order.
    pub policy: Policy,
    /// The network namespaces that are served; none: this one.
    pub namespaces: Vec<NamespaceName>,
    /// What is told beside the log.
    pub telling: Telling,
}

/// Reads a file of rules.
///
/// # Errors
/// [`BadInput`] with a line for each mistake: `FILE:LINE:COLUMN: what; remedy`, or one
/// that says why the file cannot be read.
pub fn load(path: &Path, allow_unsafe: bool) -> Result<File, BadInput> {
    crate::settings::host_name::for_a_file(|| {
        document::load(path, "docs/policy.md", |document, mistakes| {
            read(document, allow_unsafe, mistakes)
        })
    })
}

/// Names of network namespaces.
#[derive(Debug, Default, Deserialize)]
struct Namespaces(#[serde(with = "text::list")] Vec<NamespaceName>);

fn read(document: &DeTable, allow_unsafe: bool, mistakes: &mut Vec<Mistake>) -> File {
    let (mut defaults, mut of_all) = (DeTable::new(), Bundling::default());
    let mut otherwise = Otherwise::default();
    let mut tables: &[Value] = &[];
    let mut namespaces = Namespaces::default();
    let (known, mut telling) = (keys::<Telling>(), DeTable::new());
    for (key, value) in document {
        match (key.get_ref().as_ref(), value.get_ref()) {
            ("rule", DeValue::Array(array)) => tables = array,
            ("rule", _) => mistakes.push(Mistake::new(
                key.span(),
                "`rule` is no list of tables; begin each rule with [[rule]]",
            )),
            ("defaults", _) => (defaults, of_all) = document::defaults(value, &[], mistakes),
            ("otherwise", _) => {
                otherwise = document::read(value, mistakes).unwrap_or(Otherwise::LeaveAlone);
            }
            ("netns", _) => namespaces = document::read(value, mistakes).unwrap_or_default(),
            (of_telling, _) if known.iter().any(|known| known == of_telling) => {
                telling.insert(key.clone(), value.clone());
            }
            (unknown, _) => mistakes.push(Mistake::new(
                key.span(),
                format!(
                    "unknown key `{unknown}`; a file has the keys `otherwise`, `netns`, `{}`, and [defaults] \
                     and [[rule]] tables",
                    known.join("`, `")
                ),
            )),
        }
    }
    if !document.contains_key("rule") && !document.contains_key("otherwise") {
        let text = "no rule; begin one with [[rule]], or say otherwise = \"allow\" or \
                    \"leave-alone\" of all connections";
        mistakes.push(Mistake::new(0..0, text));
    }
    if otherwise == Otherwise::Allow {
        rule::refuse(&of_all.options, &defaults, allow_unsafe, mistakes);
    }
    let mut rows = 0;
    let mut rules = Vec::new();
    for table in tables {
        let Some(rule) = rule::read(table, &defaults, allow_unsafe, mistakes) else {
            continue;
        };
        let before = rows;
        rows += rule.rows();
        if before <= Policy::MAX_ROWS && rows > Policy::MAX_ROWS {
            let error = Error::TooManyRules { needed: rows };
            mistakes.push(Mistake::new(table.span(), error.to_string()));
        }
        rules.push(rule);
    }
    // What follows from a mistake is none.
    if rules.len() == tables.len() {
        mistakes.extend(idle_default(&of_all.options, &defaults, &rules));
    }
    let telling = Spanned::new(0..0, DeValue::Table(telling));
    let named = namespaces.0.into_iter();
    File {
        policy: Policy {
            rules,
            otherwise: otherwise.mode(of_all.options),
            scope: Scope::ThisNamespace,
            ..Policy::default()
        },
        // A file outlives the processes whose numbers it could have.
        namespaces: named.map(NamespaceName::without_process).collect(),
        telling: document::read(&telling, mistakes).unwrap_or_default(),
    }
}

/// What `[defaults]` say to no effect, whichever rule takes them.
fn idle_default(
    of_all: &Options,
    defaults: &DeTable,
    rules: &[pillion_bpf::Rule],
) -> Option<Mistake> {
    let (key, text) = idle_key(of_all)?;
    let is_of_use = rules.iter().any(|rule| match &rule.mode {
        Mode::Bundle(options) | Mode::Allow(options) => idle_key(options).is_none(),
        Mode::Companions | Mode::LeaveAlone => false,
    });
    let span = span_of(defaults, &[key]).unwrap_or(0..0);
    (!is_of_use).then(|| Mistake::new(span, text))
}

#[cfg(test)]
mod tests;
