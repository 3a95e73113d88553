//! The rules file of `attach --config`; docs/reference/rules.md describes it.

mod example;
mod new_rules_file;
mod rule;

use std::path::Path;

use clap::ValueEnum;
use pillion_bpf::{Error, Mode, NamespaceName, Options, Policy, RedundancyCaps, Scope};
use serde::{Deserialize, Serialize};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::settings::document::known::keys;
use crate::settings::document::{self, Mistake, Value, span_of};
use crate::settings::{BadInput, Bundling, OutputConfig, text, unused_key};

pub use example::{Key, Section, example, sections};
pub use new_rules_file::NewRulesFile;
pub use rule::{Peer, Ports, Rule, RuleMode};

/// Mode of connections that no rule matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DefaultMode {
    /// Bundled when the application requests it
    #[default]
    OnRequest,
    /// Never bundled
    Never,
}

impl DefaultMode {
    /// Returns the mode for the programs; `options` limit what applications can request.
    #[must_use]
    pub fn mode(self, options: Options) -> Mode {
        match self {
            Self::OnRequest => Mode::OnRequest(options),
            Self::Never => Mode::Never,
        }
    }
}

/// Contents of a rules file.
#[derive(Debug, Clone)]
pub struct File {
    /// The policy for this network namespace, with the rules in their order.
    pub policy: Policy,
    /// Network namespaces to serve; if empty, this one.
    pub namespaces: Vec<NamespaceName>,
    /// Log, metrics and totals.
    pub output: OutputConfig,
}

/// Loads a rules file.
///
/// # Errors
/// [`BadInput`] with a line `FILE:LINE:COLUMN: mistake; remedy` for each mistake, or with the reason
/// why the file cannot be read.
pub fn load(path: &Path, allow_unsafe: bool) -> Result<File, BadInput> {
    crate::settings::host_name::with_file_resolver(|| {
        document::load(path, "docs/reference/rules.md", |document, mistakes| {
            read(document, allow_unsafe, mistakes)
        })
    })
}

/// Names of network namespaces.
#[derive(Debug, Default, Deserialize)]
struct Namespaces(#[serde(with = "text::list")] Vec<NamespaceName>);

fn read(document: &DeTable, allow_unsafe: bool, mistakes: &mut Vec<Mistake>) -> File {
    let (mut defaults, mut default_options) = (DeTable::new(), Bundling::default());
    let mut default_mode = DefaultMode::default();
    let mut tables: &[Value] = &[];
    let mut namespaces = Namespaces::default();
    let (known, mut output) = (keys::<OutputConfig>(), DeTable::new());
    let (known_caps, mut caps) = (keys::<RedundancyCaps>(), DeTable::new());
    for (key, value) in document {
        match (key.get_ref().as_ref(), value.get_ref()) {
            ("rule", DeValue::Array(array)) => tables = array,
            ("rule", _) => mistakes.push(Mistake::new(
                key.span(),
                "`rule` is not a list of tables; start each rule with [[rule]]",
            )),
            ("defaults", _) => (defaults, default_options) = document::defaults(value, &[], mistakes),
            ("default-mode", _) => {
                default_mode = document::read(value, mistakes).unwrap_or(DefaultMode::Never);
            }
            ("netns", _) => namespaces = document::read(value, mistakes).unwrap_or_default(),
            (key_name, _) if known.iter().any(|known| known == key_name) => {
                output.insert(key.clone(), value.clone());
            }
            (key_name, _) if known_caps.iter().any(|known| known == key_name) => {
                caps.insert(key.clone(), value.clone());
            }
            (unknown, _) => mistakes.push(Mistake::new(
                key.span(),
                format!(
                    "unknown key `{unknown}`; expected `default-mode`, `netns`, `{}`, [defaults] or \
                     [[rule]]",
                    [&known[..], &known_caps].concat().join("`, `")
                ),
            )),
        }
    }
    if !document.contains_key("rule") && !document.contains_key("default-mode") {
        let text = "no rule; start one with [[rule]], or set default-mode = \"on-request\" or \
                    \"never\" for all connections";
        mistakes.push(Mistake::new(0..0, text));
    }
    if default_mode == DefaultMode::OnRequest {
        rule::refuse(&default_options.options, &defaults, allow_unsafe, mistakes);
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
    // Consequences of another mistake are not reported.
    if rules.len() == tables.len() {
        mistakes.extend(unused_default(&default_options.options, &defaults, &rules));
    }
    let [output, caps] = [output, caps].map(|it| Spanned::new(0..0, DeValue::Table(it)));
    let named = namespaces.0.into_iter();
    File {
        policy: Policy {
            rules,
            default_mode: default_mode.mode(default_options.options),
            scope: Scope::ThisNamespace,
            redundancy_caps: document::read(&caps, mistakes),
            ..Policy::default()
        },
        // A number is a name here: a file outlives the process of a PID.
        namespaces: named.map(NamespaceName::without_process).collect(),
        output: document::read(&output, mistakes).unwrap_or_default(),
    }
}

/// Finds a key of `[defaults]` that every rule makes ineffective.
fn unused_default(
    default_options: &Options,
    defaults: &DeTable,
    rules: &[pillion_bpf::Rule],
) -> Option<Mistake> {
    let (key, text) = unused_key(default_options)?;
    let is_used = rules.iter().any(|rule| match &rule.mode {
        Mode::Bundle(options) | Mode::OnRequest(options) => unused_key(options).is_none(),
        Mode::TcpOptions | Mode::Never => false,
    });
    let span = span_of(defaults, &[key]).unwrap_or(0..0);
    (!is_used).then(|| Mistake::new(span, text))
}

#[cfg(test)]
mod tests;
