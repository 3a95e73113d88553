//! What is asked for, by the options or by the file of rules.

use std::path::Path;

use anyhow::Result;
use pillion_bpf::{Error, NamespaceName, Namespaces, Policy, Scope};
use pillion_cli::settings::policy::{self, File, Otherwise};
use pillion_cli::settings::{BadInput, Telling};
use pillion_stats::report::number::counted;

use super::Args;

/// The file that is none.
const STANDARD_INPUT: &str = "-";

/// What is asked for.
pub(super) struct Asked {
    pub policy: Policy,
    pub namespaces: Namespaces,
    pub telling: Telling,
}

impl Args {
    /// All of it; the inner error is a line for each mistake in the file.
    pub(super) fn asked(&self) -> Result<Result<Asked, BadInput>> {
        let file = match &self.config {
            None => Ok(File {
                policy: self.policy()?,
                namespaces: Vec::new(),
                telling: Telling::default(),
            }),
            Some(file) => self.read(file),
        };
        Ok(file.map(|file| Asked {
            namespaces: self.namespaces(file.namespaces, &file.policy),
            policy: file.policy,
            telling: self.telling(file.telling),
        }))
    }

    /// What the command line leaves open is as the file has it.
    pub(super) fn telling(&self, of_the_file: Telling) -> Telling {
        self.telling.clone().or(of_the_file)
    }

    /// What the options on the command line make: one rule, or none.
    fn policy(&self) -> Result<Policy> {
        let options = self.bundling.options()?;
        let chosen = self.all || !self.choice.is_empty();
        if self.otherwise == Otherwise::LeaveAlone && !chosen {
            let why = "--otherwise leave-alone leaves all alone: choose connections with \
                       --port, --peer, --cgroup or --container";
            return Err(BadInput(why.to_owned()).into());
        }
        let rule = self.choice.rule(&self.bundling.how, options);
        let needed = rule.rows();
        if needed > Policy::MAX_ROWS {
            return Err(Error::TooManyRules { needed }.into());
        }
        if !chosen && !rule.companions.is_empty() {
            let why = "companions go to chosen connections alone: choose some with --port or \
                       --peer, or take them all with --all";
            return Err(BadInput(why.to_owned()).into());
        }
        Ok(Policy {
            rules: if chosen { vec![rule] } else { Vec::new() },
            otherwise: self.otherwise.mode(options),
            scope: Scope::ThisNamespace,
            ..Policy::default()
        })
    }

    pub(super) fn read(&self, file: &Path) -> Result<File, BadInput> {
        policy::load(file, self.bundling.allow_unsafe)
    }

    /// Those of the command line, if there are any; else those of the file. Beside, those of the
    /// containers that rules ask for.
    pub(super) fn namespaces(
        &self,
        of_the_file: Vec<NamespaceName>,
        policy: &Policy,
    ) -> Namespaces {
        let named = &self.namespaces.named;
        let namespaces = Namespaces {
            named: match named.is_empty() {
                true => of_the_file,
                false => named.clone(),
            },
            of_containers: policy.containers(),
        };
        match self.wait {
            true => namespaces.without_processes(),
            false => namespaces,
        }
    }

    /// The connections that these rules choose, in words.
    pub(super) fn connections(&self, policy: &Policy) -> String {
        if let Some(file) = &self.config {
            let rules = counted(policy.rules.len() as u64, "rule");
            return format!("by {rules} of {}", name(file));
        }
        let words = self.choice.words();
        words.unwrap_or_else(|| match self.all {
            true => "all connections".to_owned(),
            false => "connections whose application asks for it".to_owned(),
        })
    }

    /// True if the rules are of standard input, which cannot be read again.
    pub(super) fn reads_standard_input(&self) -> bool {
        self.config.as_deref().is_some_and(is_standard_input)
    }
}

fn is_standard_input(file: &Path) -> bool {
    file == Path::new(STANDARD_INPUT)
}

/// What a file of rules is called in messages.
pub(super) fn name(file: &Path) -> String {
    match is_standard_input(file) {
        true => "standard input".to_owned(),
        false => file.display().to_string(),
    }
}
