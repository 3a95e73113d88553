//! The rules that follow from what was observed, as `attach --config` reads them.

use anyhow::Result;
use pillion_settings::Bundling;
use pillion_trial::{Advice, Finding, Service};

/// A file with a rule for each service whose connections bundling would help, bundled as was
/// reckoned with; a comment says why. `None` if there are none.
pub fn config(advice: &[Advice], bundling: &Bundling) -> Result<Option<String>> {
    let mut worth: Vec<_> = advice
        .iter()
        .filter(|it| it.finding == Finding::Bundle)
        .collect();
    worth.sort_by_key(|it| it.service);
    if worth.is_empty() {
        return Ok(None);
    }
    let mut file = format!(
        "# By `pillion advise`; docs/policy.md describes every key.\notherwise = \"leave-alone\"\n\n\
         [defaults]\n{}",
        toml::to_string(bundling)?
    );
    for same in worth.chunk_by(|a, b| a.service == b.service) {
        let names: Vec<_> = same.iter().map(|it| name(it.process.as_deref())).collect();
        let (key, port) = match same[0].service {
            Service::Local(port) => ("local-ports", port),
            Service::Remote(port) => ("remote-ports", port),
        };
        file += &format!("\n# {}\n[[rule]]\n{key} = {port}\n", names.join(", "));
    }
    Ok(Some(file))
}

/// A process's name as it may stand in a comment, whatever the process calls itself.
pub fn name(process: Option<&str>) -> String {
    let name = process.unwrap_or("unknown process");
    name.chars()
        .map(|it| if it.is_control() { '?' } else { it })
        .collect()
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
        let file = config(&advise(&all, false), &Bundling::default())
            .unwrap()
            .unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pillion.toml");
        std::fs::write(&path, &file).unwrap();
        let policy = policy::load(&path, false).unwrap_or_else(|why| panic!("{why:?}\n{file}"));
        assert_eq!(policy.policy.rules.len(), 2);
        assert_eq!(policy.policy.rules[0].local_ports, [7777..=7777]);
        assert_eq!(policy.policy.rules[1].remote_ports, [22..=22]);
    }

    #[test]
    fn where_nothing_is_worth_while_there_is_no_file() {
        let all = [watched(Service::Local(7777), 0)];
        assert!(
            config(&advise(&all, false), &Bundling::default())
                .unwrap()
                .is_none()
        );
    }
}
