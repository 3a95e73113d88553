//! Rules for `attach --config`, derived from the advice.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use crate::trial::{Advice, AdviceKind, Service};
use anyhow::Result;
use pillion_bpf::{NamespaceName, Policy, TcpOptions};
use pillion_cli::settings::Bundling;
use pillion_cli::settings::policy::{DefaultMode, NewRulesFile, Peer, Ports, Rule, RuleMode};
use pillion_stats::names::sanitized;

/// Conditions on the command line, except ports, which every rule repeats.
#[derive(Debug, Default)]
pub struct Conditions {
    pub rule: Rule,
    pub namespaces: Vec<NamespaceName>,
}

/// The effect of a rule.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Effect {
    bundle: bool,
    nodelay: bool,
    rto_min: Option<Duration>,
}

impl Effect {
    fn of(advice: &Advice) -> Self {
        let TcpOptions {
            nodelay, rto_min, ..
        } = advice.tcp_options();
        Self {
            bundle: advice.kind == AdviceKind::Bundle,
            nodelay,
            rto_min,
        }
    }

    /// Adds the effect for another process, which has the same rule.
    fn add(&mut self, other: Self) {
        self.bundle |= other.bundle;
        self.nodelay |= other.nodelay;
        self.rto_min = self.rto_min.max(other.rto_min);
    }
}

/// Returns a rules file with a rule for each worthwhile service, or `None` without any. With
/// `--by-peer` a rule has only the worthwhile peers of equal advice. Comments name the processes,
/// including others that the rule covers. If the rules need more rows than [`Policy::MAX_ROWS`], the
/// services with the largest savings remain.
pub fn rules_file(
    advice: &[Advice],
    bundling: &Bundling,
    conditions: &Conditions,
) -> Result<Option<String>> {
    let mut worthwhile: Vec<_> = advice
        .iter()
        .filter(|it| Effect::of(it) != Effect::default())
        .collect();
    worthwhile.sort_by_key(|it| std::cmp::Reverse(it.summary.time_saved_byte_us));
    let left_out = drop_excess(&mut worthwhile, bundling, &conditions.rule);
    let mut effects: BTreeMap<(Service, Option<IpAddr>), Effect> = BTreeMap::new();
    for it in &worthwhile {
        let effect = effects.entry((it.service, it.peer)).or_default();
        effect.add(Effect::of(it));
    }
    let group = |it: &Advice| (it.service, effects[&(it.service, it.peer)]);
    worthwhile.sort_by_key(|it| group(it));
    if worthwhile.is_empty() {
        return Ok(None);
    }
    let mut comment =
        "Written by `pillion advise`; docs/reference/rules.md describes every key.".to_owned();
    if left_out > 0 {
        comment += &format!(
            " {left_out} more services or peers are left out: rules have at most {} rows.",
            Policy::MAX_ROWS
        );
    }
    let services = worthwhile.chunk_by(|a, b| group(a) == group(b));
    let named = services.map(|services| {
        let effect = group(services[0]).1;
        let rule = rule(services, effect, bundling, &conditions.rule);
        (rule_comment(services, advice), rule)
    });
    let file = NewRulesFile {
        comment,
        default_mode: DefaultMode::OnRequest,
        namespaces: conditions.namespaces.clone(),
        defaults: *bundling,
        rules: named.collect(),
    };
    Ok(Some(file.to_toml()?))
}

/// Drops the advice beyond the maximum number of rows, and returns how many were dropped.
fn drop_excess(worthwhile: &mut Vec<&Advice>, bundling: &Bundling, selection: &Rule) -> usize {
    let before = worthwhile.len();
    let mut covered = BTreeSet::new();
    let mut rows = 0;
    worthwhile.retain(|it| {
        if !covered.contains(&(it.service, it.peer)) {
            let needed =
                pillion_bpf::Rule::from(rule(&[it], Effect::of(it), bundling, selection)).rows();
            if rows + needed > Policy::MAX_ROWS {
                return false;
            }
            rows += needed;
            covered.insert((it.service, it.peer));
        }
        true
    });
    before - worthwhile.len()
}

/// Returns the comment of a rule: its processes, and other processes with different advice on the
/// same port, which a rule cannot exclude.
fn rule_comment(services: &[&Advice], all: &[Advice]) -> String {
    let is_covered = |it: &&Advice| {
        let has_other_advice =
            Effect::of(it) == Effect::default() && it.service == services[0].service;
        has_other_advice && services.iter().any(|covered| covered.peer == it.peer)
    };
    let also_covered: Vec<_> = all.iter().filter(is_covered).collect();
    let mut names = processes(services);
    if !also_covered.is_empty() {
        names += &format!(
            "; also covered, without this advice: {}",
            processes(&also_covered)
        );
    }
    if services.iter().all(|it| it.guessed) {
        names += "; the port is a guess, because the connections were older than pillion";
    }
    names
}

fn processes(of: &[&Advice]) -> String {
    let mut names: Vec<_> = of
        .iter()
        .map(|it| process_name(it.process.as_deref()))
        .collect();
    names.sort_unstable();
    names.dedup();
    names.join(", ")
}

/// Returns the rule of a service.
fn rule(services: &[&Advice], effect: Effect, bundling: &Bundling, selection: &Rule) -> Rule {
    let mut peers: Vec<_> = services.iter().filter_map(|it| it.peer).collect();
    peers.sort_unstable();
    peers.dedup();
    let (local, remote) = match services[0].service {
        Service::Local(port) => (Some(port), None),
        Service::Remote(port) => (None, Some(port)),
    };
    let ports = |port: Option<u16>| port.map(|port| Ports(port..=port)).into_iter().collect();
    Rule {
        local_port: ports(local),
        remote_port: ports(remote),
        peer: match peers.is_empty() {
            true => selection.peer.clone(),
            false => peers.into_iter().map(Peer::from).collect(),
        },
        mode: match effect.bundle {
            true => RuleMode::Bundle,
            false => RuleMode::TcpOptions,
        },
        options: bundling.options,
        tcp_options: TcpOptions {
            nodelay: effect.nodelay,
            rto_min: effect.rto_min,
            ..bundling.tcp_options
        },
        ..selection.clone()
    }
}

/// Returns a process name without control characters, so that it cannot break out of a comment.
pub fn process_name(process: Option<&str>) -> String {
    sanitized(process.unwrap_or("unknown process"))
}

#[cfg(test)]
mod tests {
    use crate::trial::{ConnectionGroups, ObservedConnection, Summary};
    use pillion_bpf::{ContainerSelector, Mode};
    use pillion_cli::settings::policy;

    use super::*;

    /// Returns the advice on five connections like each of these.
    fn advise(observed: &[ObservedConnection], by_peer: bool) -> Vec<Advice> {
        let mut groups = ConnectionGroups::new(by_peer);
        groups.extend(observed.iter().flat_map(|it| vec![it.clone(); 5]));
        groups.advise()
    }

    fn observed(service: Service, repairable: u64) -> ObservedConnection {
        ObservedConnection {
            process: Some("ga\nme".to_owned()),
            service,
            guessed: false,
            peer: "192.0.2.1".parse().unwrap(),
            summary: Summary {
                connections: 1,
                segments: 1000,
                sent: 1000,
                suppressed_segments: 900,
                lost: 50,
                repairable_segments: repairable,
                ..Summary::default()
            },
        }
    }

    #[test]
    fn written_rules_load_in_attach() {
        let all = [
            observed(Service::Local(7777), 45),
            observed(Service::Remote(22), 45),
            observed(Service::Remote(80), 0),
        ];
        let conditions = Conditions {
            rule: Rule {
                peer: vec!["192.0.2.0/24".parse().unwrap()],
                cgroup: vec!["/system.slice/ga\"me-*.service".parse().unwrap()],
                ..Rule::default()
            },
            namespaces: vec!["cni-*".parse().unwrap()],
        };
        let file = rules_file(&advise(&all, false), &Bundling::default(), &conditions);
        let file = file.unwrap().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pillion.toml");
        std::fs::write(&path, &file).unwrap();
        let policy = policy::load(&path, false).unwrap_or_else(|error| panic!("{error:?}\n{file}"));
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
    fn rules_by_peer_include_worthwhile_peers_only() {
        let of = |peer: &str, repairable| ObservedConnection {
            peer: peer.parse().unwrap(),
            ..observed(Service::Local(7777), repairable)
        };
        let all = [of("192.0.2.1", 45), of("192.0.2.2", 0), of("192.0.2.3", 45)];
        let conditions = Conditions {
            rule: Rule {
                peer: vec!["192.0.2.0/24".parse().unwrap()],
                ..Rule::default()
            },
            ..Conditions::default()
        };
        let file = rules_file(&advise(&all, true), &Bundling::default(), &conditions);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pillion.toml");
        std::fs::write(&path, file.unwrap().unwrap()).unwrap();
        let rules = policy::load(&path, false).unwrap().policy.rules;
        assert_eq!(rules.len(), 1);
        let peers = ["192.0.2.1/32", "192.0.2.3/32"].map(|it| it.parse().unwrap());
        assert_eq!(rules[0].peers, peers);
    }

    /// Loads a rules file as `attach` does.
    fn load_rules(file: &str) -> Vec<pillion_bpf::Rule> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pillion.toml");
        std::fs::write(&path, file).unwrap();
        let read = policy::load(&path, false).unwrap_or_else(|error| panic!("{error:?}\n{file}"));
        read.policy.rules
    }

    #[test]
    fn tcp_options_of_advice_become_keys() {
        let with = |port, repairable, nagle_byte_us, rto_min| {
            let mut observed = observed(Service::Local(port), repairable);
            let summary = &mut observed.summary;
            (summary.new_bytes, summary.nagle_byte_us) = (100_000, nagle_byte_us);
            (summary.rto_expirations, summary.rto_ms) = (50, 10_000);
            summary.rto_min_20_saved_ms = rto_min;
            observed
        };
        let slow = 100_000 * 1_000;
        let all = [
            with(1883, 45, slow, 0),
            with(6379, 0, 0, 9_000),
            // Two processes share a rule.
            with(7777, 45, 0, 0),
            ObservedConnection {
                process: Some("other".to_owned()),
                ..with(7777, 0, slow, 9_000)
            },
        ];
        let file = rules_file(
            &advise(&all, false),
            &Bundling::default(),
            &Conditions::default(),
        );
        let rules = load_rules(&file.unwrap().unwrap());
        let expected = |nodelay, ms: Option<u64>| TcpOptions {
            nodelay,
            rto_min: ms.map(Duration::from_millis),
            ..TcpOptions::default()
        };
        let options: Vec<_> = rules.iter().map(|it| it.tcp_options).collect();
        assert_eq!(
            options,
            [
                expected(true, None),
                expected(false, Some(20)),
                expected(true, Some(20))
            ]
        );
        let is_bundled = rules.iter().map(|it| it.mode != Mode::TcpOptions);
        assert_eq!(is_bundled.collect::<Vec<_>>(), [true, false, true]);
    }

    #[test]
    fn excess_peers_are_dropped_by_smallest_gain() {
        let of = |peer: u8| ObservedConnection {
            peer: std::net::Ipv4Addr::new(192, 0, 2, peer).into(),
            summary: Summary {
                time_saved_byte_us: peer.into(),
                ..observed(Service::Local(7777), 45).summary
            },
            ..observed(Service::Local(7777), 45)
        };
        let all: Vec<_> = (1..=100).map(of).collect();
        let file = rules_file(
            &advise(&all, true),
            &Bundling::default(),
            &Conditions::default(),
        );
        let file = file.unwrap().unwrap();
        let rules = load_rules(&file);
        assert_eq!(rules[0].rows(), Policy::MAX_ROWS);
        assert!(rules[0].peers.contains(&"192.0.2.100/32".parse().unwrap()));
        assert!(!rules[0].peers.contains(&"192.0.2.1/32".parse().unwrap()));
        let left_out = format!("{} more", 100 - Policy::MAX_ROWS);
        assert!(file.contains(&left_out), "{file}");
    }

    #[test]
    fn comment_names_other_processes_on_same_port() {
        let backup = ObservedConnection {
            process: Some("backup".to_owned()),
            ..observed(Service::Remote(443), 0)
        };
        let all = [observed(Service::Remote(443), 45), backup];
        let file = rules_file(
            &advise(&all, false),
            &Bundling::default(),
            &Conditions::default(),
        );
        let file = file.unwrap().unwrap();
        assert!(file.contains("without this advice: backup\n"), "{file}");
    }

    #[test]
    fn guessed_port_is_marked_in_comment() {
        for guessed in [true, false] {
            let it = ObservedConnection {
                guessed,
                ..observed(Service::Remote(40_000), 45)
            };
            let conditions = Conditions::default();
            let file = rules_file(&advise(&[it], true), &Bundling::default(), &conditions);
            assert_eq!(file.unwrap().unwrap().contains("is a guess"), guessed);
        }
    }

    #[test]
    fn observed_containers_limit_written_rules() {
        let all = [observed(Service::Local(7777), 45)];
        let containers = ContainerSelector {
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
        let file = rules_file(&advise(&all, false), &Bundling::default(), &conditions);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pillion.toml");
        std::fs::write(&path, file.unwrap().unwrap()).unwrap();
        let policy = policy::load(&path, false).unwrap().policy;
        assert_eq!(policy.rules[0].containers, containers);
    }

    #[test]
    fn no_worthwhile_service_writes_no_file() {
        let all = [observed(Service::Local(7777), 0)];
        let file = rules_file(
            &advise(&all, false),
            &Bundling::default(),
            &Conditions::default(),
        );
        assert!(file.unwrap().is_none());
    }
}
