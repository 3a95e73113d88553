//! The rules in force, which follow the cgroups and containers that they name.

use crate::{
    AttachTargets, Attachment, CgroupName, Cgroups, Container, Containers, Error, Mode, Policy,
    Rule, Scope,
};

/// The rules, and the cgroups that they named when they were last activated.
#[derive(Debug)]
pub struct FollowedRules {
    policy: Policy,
    cgroups: Vec<Option<Cgroups>>,
    /// True until a withdrawal is in force.
    has_withdrawn: bool,
}

impl FollowedRules {
    /// The rules of a policy, with its current cgroups and containers.
    ///
    /// # Errors
    ///
    /// As [`Policy::cgroups`].
    pub fn new(policy: Policy) -> Result<Self, Error> {
        let cgroups = policy.cgroups()?;
        // The scope would keep network namespaces open after they lost their names.
        let scope = Scope::default();
        Ok(Self {
            policy: Policy { scope, ..policy },
            cgroups,
            has_withdrawn: false,
        })
    }

    /// Returns true if the options of a rule, or of connections without one, delay copies.
    #[must_use]
    pub fn delays_copies(&self) -> bool {
        let modes = self.policy.rules.iter().map(|rule| &rule.mode);
        modes
            .chain([&self.policy.default_mode])
            .any(|mode| match mode {
                Mode::Bundle(options) | Mode::OnRequest(options) => options.copy_delay.is_some(),
                Mode::TcpOptions | Mode::Never => false,
            })
    }

    /// Withdraws bundling from a rule, by its number from 1. [`FollowedRules::follow`] puts that into
    /// force.
    pub fn withdraw(&mut self, number: u32) {
        self.policy.withdraw(number);
        self.has_withdrawn = true;
    }

    /// Puts the rules into force.
    ///
    /// # Errors
    /// As [`Attachment::replace_rules`].
    pub fn apply(&self, attachment: &Attachment) -> Result<(), Error> {
        attachment.replace_rules(&self.policy)
    }

    /// Activates the rules again if cgroups were created or removed, or bundling was withdrawn, for
    /// existing connections as well. Call it about once a second.
    ///
    /// # Errors
    ///
    /// As [`Policy::cgroups`], [`Attachment::replace_rules`] and [`Attachment::review_changed`];
    /// the next call retries.
    pub fn follow(
        &mut self,
        attachment: &Attachment,
        targets: &AttachTargets,
    ) -> Result<(), Error> {
        if self.policy.running != targets.containers() {
            self.policy.running = targets.containers().to_vec();
        }
        let now = self.policy.cgroups()?;
        if now != self.cgroups || self.has_withdrawn {
            self.apply(attachment)?;
            attachment.review_changed()?;
            (self.cgroups, self.has_withdrawn) = (now, false);
        }
        Ok(())
    }

    /// Describes the rules that no connection can match now, and containers of rules that only have
    /// cgroups of version 1.
    #[must_use]
    pub fn unmatched_rules(&self, containers: &Containers) -> Vec<String> {
        let cgroup1_only = containers.cgroup1_only();
        let mut unmatched_rules = Vec::new();
        let rules = (1..).zip(&self.policy.rules).zip(&self.cgroups);
        for ((number, rule), cgroups) in rules {
            let mut unidentifiable = unidentifiable(rule, cgroup1_only).peekable();
            let is_unmatched = cgroups.as_ref().is_some_and(|it| it.named == 0);
            let unmatched = (is_unmatched && unidentifiable.peek().is_none())
                .then(|| describe_unmatched(rule, containers));
            let why = unidentifiable.chain(unmatched);
            unmatched_rules.extend(why.map(|why| format!("rule {number}: {why}")));
        }
        unmatched_rules
    }

    /// Describes the rules that match only some of the cgroups that they name.
    pub fn truncated_rules(&self) -> impl Iterator<Item = String> {
        let max = Policy::MAX_CGROUPS;
        let rules = (1..).zip(&self.cgroups);
        rules.filter_map(move |(number, cgroups)| {
            let named = cgroups.as_ref()?;
            (named.covered.len() < named.named).then(|| {
                format!(
                    "rule {number}: matches only some of its cgroups, because all rules together are \
                     limited to {max}; name a cgroup above them"
                )
            })
        })
    }
}

/// Containers that a rule chooses, but whose sockets cannot be identified.
fn unidentifiable<'a>(
    rule: &'a Rule,
    containers: &'a [Container],
) -> impl Iterator<Item = String> + 'a {
    let chosen = containers.iter().filter(|it| rule.containers.matches(it));
    chosen.map(|it| {
        format!(
            "container {it} has only cgroups of version 1, which do not identify its sockets: \
             have its runtime use version 2, or name its network namespace"
        )
    })
}

/// Describes a rule whose cgroups or containers do not exist.
fn describe_unmatched(rule: &Rule, containers: &Containers) -> String {
    match (rule.containers.is_empty(), containers.unreadable_path()) {
        (true, _) => {
            let names = rule.cgroups.iter().map(CgroupName::to_string);
            let names = names.collect::<Vec<_>>().join(" or ");
            format!("no cgroup named {names}")
        }
        (false, None) => format!("no container {}", rule.containers),
        (false, Some(path)) => format!(
            "no container {} is known, because {} is not readable",
            rule.containers,
            path.display()
        ),
    }
}

#[cfg(test)]
mod tests {
    use crate::ContainerSelector;

    use super::*;

    #[test]
    fn rules_naming_missing_objects_are_unmatched() {
        let named = Rule {
            cgroups: ["/no/such-*", "/nor.slice"]
                .map(|it| it.parse().unwrap())
                .into(),
            ..Rule::default()
        };
        let chosen = Rule {
            containers: ContainerSelector {
                names: vec!["no-such".parse().unwrap()],
                labels: Vec::new(),
            },
            ..Rule::default()
        };
        let rules = FollowedRules::new(Policy {
            rules: vec![Rule::default(), named, chosen],
            ..Policy::default()
        });
        let rules = rules.unwrap();
        let unmatched_rules = [
            "rule 2: no cgroup named /no/such-* or /nor.slice",
            "rule 3: no container named no-such",
        ];
        assert_eq!(
            rules.unmatched_rules(&Containers::default()),
            unmatched_rules
        );
        assert_eq!(rules.truncated_rules().count(), 0);
    }
}
