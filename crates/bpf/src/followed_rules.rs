//! The rules in force, while cgroups and containers that they name come and go.

use crate::{Attachment, CgroupName, Cgroups, Container, Error, Policy, Rule, Scope, Selection};

/// The rules, and the cgroups that were there before they were put into force: those that come and
/// go in between are seen by the next look.
#[derive(Debug)]
pub struct FollowedRules {
    policy: Policy,
    cgroups: Vec<Option<Cgroups>>,
}

impl FollowedRules {
    /// Those that a policy has, as it finds cgroups and its containers.
    ///
    /// # Errors
    /// As [`Policy::cgroups`].
    pub fn of(policy: Policy) -> Result<Self, Error> {
        let cgroups = policy.cgroups()?;
        // What is served is followed elsewhere, and kept from ending by whoever has it.
        let scope = Scope::default();
        Ok(Self {
            policy: Policy { scope, ..policy },
            cgroups,
        })
    }

    /// Puts the rules into force.
    ///
    /// # Errors
    /// As [`Attachment::replace_rules`].
    pub fn put(&self, attachment: &Attachment) -> Result<(), Error> {
        attachment.replace_rules(&self.policy)
    }

    /// Puts the rules into force again if cgroups have come or gone since that was last done, for the
    /// connections that exist as well. To be called each second or so.
    ///
    /// # Errors
    /// As [`Policy::cgroups`], [`Attachment::replace_rules`] and [`Attachment::look_again`]; the next
    /// call tries again.
    pub fn follow(&mut self, attachment: &Attachment, selection: &Selection) -> Result<(), Error> {
        if self.policy.running != selection.containers() {
            self.policy.running = selection.containers().to_vec();
        }
        let now = self.policy.cgroups()?;
        if now != self.cgroups {
            self.put(attachment)?;
            attachment.look_again()?;
            self.cgroups = now;
        }
        Ok(())
    }

    /// The rules that no connection can match now, in words, and those of these containers that rules
    /// choose: they have cgroups of version 1 alone.
    #[must_use]
    pub fn idle(&self, in_version_1: &[Container]) -> Vec<String> {
        let mut idle = Vec::new();
        let rules = (1..).zip(&self.policy.rules).zip(&self.cgroups);
        for ((number, rule), cgroups) in rules {
            let mut untold = untold(rule, in_version_1).peekable();
            let is_idle = cgroups.as_ref().is_some_and(|it| it.named == 0);
            let unnamed = (is_idle && untold.peek().is_none()).then(|| names_none(rule));
            let why = untold.chain(unnamed);
            idle.extend(why.map(|why| format!("rule {number}: {why}")));
        }
        idle
    }

    /// The rules that name more cgroups than they are given, in words.
    pub fn left_out(&self) -> impl Iterator<Item = String> {
        let most = Policy::MAX_CGROUPS;
        let rules = (1..).zip(&self.cgroups);
        rules.filter_map(move |(number, cgroups)| {
            let named = cgroups.as_ref()?;
            (named.followed.len() < named.named).then(|| {
                format!(
                    "rule {number}: some of its cgroups, for all rules together may name {most}; \
                     name one above them"
                )
            })
        })
    }
}

/// Containers that a rule chooses among those whose sockets cannot be told from others.
fn untold<'a>(rule: &'a Rule, containers: &'a [Container]) -> impl Iterator<Item = String> + 'a {
    let chosen = containers.iter().filter(|it| rule.containers.has(it));
    chosen.map(|it| {
        format!(
            "container {it} has cgroups of version 1 alone, by which its sockets cannot be told: \
             have its runtime use version 2, or name its network namespace"
        )
    })
}

/// That nothing is called as a rule has it.
fn names_none(rule: &Rule) -> String {
    match rule.containers.is_empty() {
        true => {
            let names = rule.cgroups.iter().map(CgroupName::to_string);
            let names = names.collect::<Vec<_>>().join(" or ");
            format!("no cgroup is called {names}")
        }
        false => format!("no container is {}", rule.containers),
    }
}

#[cfg(test)]
mod tests {
    use crate::ContainerChoice;

    use super::*;

    #[test]
    fn rules_that_name_what_is_not_there_cover_nothing() {
        let named = Rule {
            cgroups: ["/no/such-*", "/nor.slice"]
                .map(|it| it.parse().unwrap())
                .into(),
            ..Rule::default()
        };
        let chosen = Rule {
            containers: ContainerChoice {
                names: vec!["no-such".parse().unwrap()],
                labels: Vec::new(),
            },
            ..Rule::default()
        };
        let rules = FollowedRules::of(Policy {
            rules: vec![Rule::default(), named, chosen],
            ..Policy::default()
        });
        let rules = rules.unwrap();
        let idle = [
            "rule 2: no cgroup is called /no/such-* or /nor.slice",
            "rule 3: no container is called no-such",
        ];
        assert_eq!(rules.idle(&[]), idle);
        assert_eq!(rules.left_out().count(), 0);
    }
}
