//! The rules that follow from what was observed, as `attach --config` reads them.

use anyhow::Result;
use pillion_bundler::ContainerChoice;
use pillion_host::without_steering;
use pillion_settings::Bundling;
use pillion_trial::{Advice, Finding, Service};

/// What was asked of all connections that were observed, beside their ports.
#[derive(Debug, Default)]
pub struct Conditions {
    pub peers: Vec<String>,
    pub cgroups: Vec<String>,
    pub containers: ContainerChoice,
    pub namespaces: Vec<String>,
}

/// A file with a rule for each service whose connections bundling would help, with the peers of which
/// that is so where they were told apart, bundled as was reckoned with; a comment says why. `None` if
/// there are none.
pub fn config(
    advice: &[Advice],
    bundling: &Bundling,
    conditions: &Conditions,
) -> Result<Option<String>> {
    let mut worth: Vec<_> = advice
        .iter()
        .filter(|it| it.finding == Finding::Bundle)
        .collect();
    worth.sort_by_key(|it| it.service);
    if worth.is_empty() {
        return Ok(None);
    }
    let mut file = format!(
        "# By `pillion advise`; docs/policy.md describes every key.\notherwise = \"leave-alone\"\n\
         {}\n[defaults]\n{}",
        list("netns", &conditions.namespaces),
        toml::to_string(bundling)?
    );
    let ContainerChoice { names, labels } = &conditions.containers;
    let of_all = [
        list("cgroup", &conditions.cgroups),
        list("container", &texts(names)),
        list("container-label", &texts(labels)),
    ];
    let of_all = of_all.concat();
    for same in worth.chunk_by(|a, b| a.service == b.service) {
        let mut names: Vec<_> = same.iter().map(|it| name(it.process.as_deref())).collect();
        names.dedup();
        let mut peers: Vec<_> = same.iter().filter_map(|it| it.peer).collect();
        peers.sort_unstable();
        peers.dedup();
        let peers = match peers.is_empty() {
            true => conditions.peers.clone(),
            false => texts(&peers),
        };
        let (key, port) = match same[0].service {
            Service::Local(port) => ("local-ports", port),
            Service::Remote(port) => ("remote-ports", port),
        };
        file += &format!(
            "\n# {}\n[[rule]]\n{key} = {port}\n{}{of_all}",
            names.join(", "),
            list("peers", &peers),
        );
    }
    Ok(Some(file))
}

fn texts(values: &[impl ToString]) -> Vec<String> {
    values.iter().map(ToString::to_string).collect()
}

/// A line of the file; none of nothing.
fn list(key: &str, values: &[String]) -> String {
    match values {
        [] => String::new(),
        values => format!("{key} = {}\n", toml::Value::from(values.to_vec())),
    }
}

/// A process's name as it may stand in a comment, whatever the process calls itself.
pub fn name(process: Option<&str>) -> String {
    without_steering(process.unwrap_or("unknown process"))
}

#[cfg(test)]
mod tests {
    use pillion_settings::policy;
    use pillion_trial::{Summary, Watched, advise};

    use super::*;

    fn watched(service: Service, repairable: u64) -> Watched {
        Watched {
            process: Some("ga\nme".to_owned()),
            service,
            peer: "192.0.2.1".parse().unwrap(),
            summary: Summary {
                connections: 1,
                segments: 1000,
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
            peers: vec!["192.0.2.0/24".to_owned()],
            cgroups: vec!["/system.slice/ga\"me-*.service".to_owned()],
            namespaces: vec!["cni-*".to_owned()],
            containers: ContainerChoice::default(),
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
            let cgroups: Vec<_> = rule.cgroups.iter().map(ToString::to_string).collect();
            assert_eq!(cgroups, conditions.cgroups);
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
            peers: vec!["192.0.2.0/24".to_owned()],
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

    #[test]
    fn what_was_watched_of_containers_is_bundled_of_these_alone() {
        let all = [watched(Service::Local(7777), 45)];
        let containers = ContainerChoice {
            names: vec!["prod/web-*".parse().unwrap()],
            labels: vec!["app=we\"b".parse().unwrap()],
        };
        let conditions = Conditions {
            containers: containers.clone(),
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
