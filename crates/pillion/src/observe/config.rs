//! The rules that follow from what was observed, as `attach --config` reads them.

use std::collections::BTreeSet;

use crate::trial::{Advice, Finding, Service};
use anyhow::Result;
use pillion_bpf::{NamespaceName, Policy};
use pillion_cli::settings::Bundling;
use pillion_cli::settings::policy::{Draft, Otherwise, Peer, Ports, Rule};
use pillion_stats::names::without_steering;

/// What was asked of all connections that were observed, beside their ports.
#[derive(Debug, Default)]
pub struct Conditions {
    pub rule: Rule,
    pub namespaces: Vec<NamespaceName>,
}

/// A file with a rule for each service whose connections bundling would help, with the peers of which
/// that is so where they were told apart, bundled as was reckoned with; comments say why, and what it
/// covers beside. `None` if there are none. Of more than there is room for, those that it would help
/// most are in it.
pub fn config(
    advice: &[Advice],
    bundling: &Bundling,
    conditions: &Conditions,
) -> Result<Option<String>> {
    let mut worth: Vec<_> = advice
        .iter()
        .filter(|it| it.finding == Finding::Bundle)
        .collect();
    worth.sort_by(|a, b| gain_ms(b).total_cmp(&gain_ms(a)));
    let left_out = leave_out(&mut worth, bundling, &conditions.rule);
    worth.sort_by_key(|it| it.service);
    if worth.is_empty() {
        return Ok(None);
    }
    let mut comment = "By `pillion advise`; docs/policy.md describes every key.".to_owned();
    if left_out > 0 {
        comment += &format!(
            " {left_out} more of its advice are left out: rules have room for {} rows.",
            Policy::MAX_ROWS
        );
    }
    let services = worth.chunk_by(|a, b| a.service == b.service);
    let named = services.map(|same| {
        let rule = rule(same, bundling, &conditions.rule);
        (names(same, advice), rule)
    });
    let draft = Draft {
        comment,
        otherwise: Otherwise::Allow,
        namespaces: conditions.namespaces.clone(),
        defaults: *bundling,
        rules: named.collect(),
    };
    Ok(Some(draft.to_toml()?))
}

/// How much sooner bundles would have had its segments acknowledged, all together.
fn gain_ms(advice: &Advice) -> f64 {
    let each = advice.saved_ms.map_or(0.0, |saved| saved.value);
    each * advice.summary.segments as f64
}

/// Leaves out what is behind those that rules have rows for, and tells how many that are.
fn leave_out(worth: &mut Vec<&Advice>, bundling: &Bundling, of_all: &Rule) -> usize {
    let before = worth.len();
    let mut ruled = BTreeSet::new();
    let mut rows = 0;
    worth.retain(|it| {
        if !ruled.contains(&(it.service, it.peer)) {
            let needed = pillion_bpf::Rule::from(rule(&[it], bundling, of_all)).rows();
            if rows + needed > Policy::MAX_ROWS {
                return false;
            }
            rows += needed;
            ruled.insert((it.service, it.peer));
        }
        true
    });
    before - worth.len()
}

/// The processes that have a service, and those of whose connections with it the advice was another:
/// a rule does not tell them apart.
fn names(same: &[&Advice], all: &[Advice]) -> String {
    let is_covered = |it: &&Advice| {
        let of_another = it.finding != Finding::Bundle && it.service == same[0].service;
        of_another && same.iter().any(|ruled| ruled.peer == it.peer)
    };
    let beside: Vec<_> = all.iter().filter(is_covered).collect();
    let mut names = processes(same);
    if !beside.is_empty() {
        names += &format!("; beside them, though not advised: {}", processes(&beside));
    }
    if same.iter().all(|it| it.guessed) {
        names += "; that the port is that of the service is a guess: the connections were older";
    }
    names
}

fn processes(of: &[&Advice]) -> String {
    let mut names: Vec<_> = of.iter().map(|it| name(it.process.as_deref())).collect();
    names.sort_unstable();
    names.dedup();
    names.join(", ")
}

/// The rule for a service.
fn rule(same: &[&Advice], bundling: &Bundling, of_all: &Rule) -> Rule {
    let mut peers: Vec<_> = same.iter().filter_map(|it| it.peer).collect();
    peers.sort_unstable();
    peers.dedup();
    let (local, remote) = match same[0].service {
        Service::Local(port) => (Some(port), None),
        Service::Remote(port) => (None, Some(port)),
    };
    let ports = |port: Option<u16>| port.map(|port| Ports(port..=port)).into_iter().collect();
    Rule {
        local_ports: ports(local),
        remote_ports: ports(remote),
        peers: match peers.is_empty() {
            true => of_all.peers.clone(),
            false => peers.into_iter().map(Peer::from).collect(),
        },
        options: bundling.options,
        companions: bundling.companions,
        ..of_all.clone()
    }
}

/// A process's name as it may stand in a comment, whatever the process calls itself.
pub fn name(process: Option<&str>) -> String {
    without_steering(process.unwrap_or("unknown process"))
}

#[cfg(test)]
mod tests {
    use crate::trial::{Gathered, Summary, Watched};
    use pillion_bpf::ContainerChoice;
    use pillion_cli::settings::policy;

    use super::*;

    /// Of five connections like each of these.
    fn advise(watched: &[Watched], by_peer: bool) -> Vec<Advice> {
        let mut gathered = Gathered::new(by_peer);
        gathered.extend(watched.iter().flat_map(|it| vec![it.clone(); 5]));
        gathered.advise()
    }

    fn watched(service: Service, repairable: u64) -> Watched {
        Watched {
            process: Some("ga\nme".to_owned()),
            service,
            guessed: false,
            peer: "192.0.2.1".parse().unwrap(),
            summary: Summary {
                connections: 1,
                segments: 1000,
                sent: 1000,
                held_back: 900,
                lost: 50,
                repairable,
                ..Summary::default()
            },
        }
    }

    #[test]
    fn the_file_is_one_that_attach_reads() {
        let all = [
            watched(Service::Local(7777), 45),
            watched(Service::Remote(22), 45),
            watched(Service::Remote(80), 0),
        ];
        let conditions = Conditions {
            rule: Rule {
                peers: vec!["192.0.2.0/24".parse().unwrap()],
                cgroup: vec!["/system.slice/ga\"me-*.service".parse().unwrap()],
                ..Rule::default()
            },
            namespaces: vec!["cni-*".parse().unwrap()],
        };
        let file = config(&advise(&all, false), &Bundling::default(), &conditions);
        let file = file.unwrap().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pillion.toml");
        std::fs::write(&path, &file).unwrap();
        let policy = policy::load(&path, false).unwrap_or_else(|why| panic!("{why:?}\n{file}"));
        assert_eq!(policy.policy.rules.len(), 2);
        assert_eq!(policy.policy.rules[0].local_ports, [7777..=7777]);
        assert_eq!(policy.policy.rules[1].remote_ports, [22..=22]);
        for rule in &policy.policy.rules {
            assert_eq!(rule.peers, ["192.0.2.0/24".parse().unwrap()]);
            assert_eq!(rule.cgroups, conditions.rule.cgroup);
        }
        assert!(policy.namespaces[0].is_pattern());
    }

    #[test]
    fn where_peers_were_told_apart_those_worth_it_alone_are_in_the_rules() {
        let of = |peer: &str, repairable| Watched {
            peer: peer.parse().unwrap(),
            ..watched(Service::Local(7777), repairable)
        };
        let all = [of("192.0.2.1", 45), of("192.0.2.2", 0), of("192.0.2.3", 45)];
        let conditions = Conditions {
            rule: Rule {
                peers: vec!["192.0.2.0/24".parse().unwrap()],
                ..Rule::default()
            },
            ..Conditions::default()
        };
        let file = config(&advise(&all, true), &Bundling::default(), &conditions);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pillion.toml");
        std::fs::write(&path, file.unwrap().unwrap()).unwrap();
        let rules = policy::load(&path, false).unwrap().policy.rules;
        assert_eq!(rules.len(), 1);
        let peers = ["192.0.2.1/32", "192.0.2.3/32"].map(|it| it.parse().unwrap());
        assert_eq!(rules[0].peers, peers);
    }

    /// The rules of a file as `attach` reads it.
    fn rules_of(file: &str) -> Vec<pillion_bpf::Rule> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pillion.toml");
        std::fs::write(&path, file).unwrap();
        let read = policy::load(&path, false).unwrap_or_else(|why| panic!("{why:?}\n{file}"));
        read.policy.rules
    }

    #[test]
    fn of_more_peers_than_there_are_rows_for_those_that_gain_most_are_in_the_rules() {
        let of = |peer: u8| Watched {
            peer: std::net::Ipv4Addr::new(192, 0, 2, peer).into(),
            summary: Summary {
                saved_us: peer.into(),
                ..watched(Service::Local(7777), 45).summary
            },
            ..watched(Service::Local(7777), 45)
        };
        let all: Vec<_> = (1..=100).map(of).collect();
        let file = config(
            &advise(&all, true),
            &Bundling::default(),
            &Conditions::default(),
        );
        let file = file.unwrap().unwrap();
        let rules = rules_of(&file);
        assert_eq!(rules[0].rows(), Policy::MAX_ROWS);
        assert!(rules[0].peers.contains(&"192.0.2.100/32".parse().unwrap()));
        assert!(!rules[0].peers.contains(&"192.0.2.1/32".parse().unwrap()));
        let left_out = format!("{} more", 100 - Policy::MAX_ROWS);
        assert!(file.contains(&left_out), "{file}");
    }

    #[test]
    fn who_has_the_same_port_and_another_advice_is_named() {
        let backup = Watched {
            process: Some("backup".to_owned()),
            ..watched(Service::Remote(443), 0)
        };
        let all = [watched(Service::Remote(443), 45), backup];
        let file = config(
            &advise(&all, false),
            &Bundling::default(),
            &Conditions::default(),
        );
        let file = file.unwrap().unwrap();
        assert!(file.contains("though not advised: backup\n"), "{file}");
    }

    #[test]
    fn what_is_a_guess_is_called_one() {
        for guessed in [true, false] {
            let it = Watched {
                guessed,
                ..watched(Service::Remote(40_000), 45)
            };
            let conditions = Conditions::default();
            let file = config(&advise(&[it], true), &Bundling::default(), &conditions);
            assert_eq!(file.unwrap().unwrap().contains("is a guess"), guessed);
        }
    }

    #[test]
    fn what_was_watched_of_containers_is_bundled_of_these_alone() {
        let all = [watched(Service::Local(7777), 45)];
        let containers = ContainerChoice {
            names: vec!["prod/web-*".parse().unwrap()],
            labels: vec!["app=we\"b".parse().unwrap()],
        };
        let conditions = Conditions {
            rule: Rule {
                container: containers.names.clone(),
                container_label: containers.labels.clone(),
                ..Rule::default()
            },
            ..Conditions::default()
        };
        let file = config(&advise(&all, false), &Bundling::default(), &conditions);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pillion.toml");
        std::fs::write(&path, file.unwrap().unwrap()).unwrap();
        let policy = policy::load(&path, false).unwrap().policy;
        assert_eq!(policy.rules[0].containers, containers);
    }

    #[test]
    fn where_nothing_is_worth_while_there_is_no_file() {
        let all = [watched(Service::Local(7777), 0)];
        let file = config(
            &advise(&all, false),
            &Bundling::default(),
            &Conditions::default(),
        );
        assert!(file.unwrap().is_none());
    }
}
