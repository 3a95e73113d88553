//! More containers than the kernel's rule table has rows.

use pillion_bpf::{Container, ContainerChoice, Policy, Programs, Rule};

use crate::coming::Group;
use crate::common::*;
use crate::containers::{Beside, end, id};
use crate::devices::Attach;

#[test]
fn as_many_containers_as_there_are_take_one_row_whether_there_or_still_to_come() {
    needs_root!();
    const COUNT: usize = Policy::MAX_ROWS + 6;
    let (own, inner) = (namespace_with_loopback(), namespace_with_loopback());
    let host = Beside::new();
    let unique = std::process::id();
    let ids: Vec<_> = (0..=COUNT).map(|it| id(&format!("{it:x}d"))).collect();
    for (number, id) in ids.iter().enumerate() {
        host.has_of_docker(id, &format!("many-{unique}-{number}"));
    }
    let group = |id: &String| Group::create(&format!("docker-{id}.scope"));
    let mut groups: Vec<_> = ids[..COUNT].iter().map(group).collect();
    let wanted = format!("many-{unique}-*");
    let arguments = [
        "attach",
        "--dev",
        "lo",
        "--thin",
        "always",
        "--container",
        &wanted,
    ];
    let command = host.pillion(&own, &arguments);
    let mut attach = Attach::of(command, tempfile::tempdir().unwrap());
    let said = attach.said();
    assert!(said.starts_with("pillion: bundling "), "{said}");
    let covers = |count: u64| host.status(&own)["connections"] == count;
    let (first, _listener) = groups[COUNT - 1].stream(&inner);
    eventually("the last container is covered", || covers(1));
    groups.push(group(&ids[COUNT]));
    let (second, _listener) = groups[COUNT].stream(&inner);
    eventually("a new container is covered", || covers(2));
    let restarted = groups.remove(0);
    drop(restarted);
    groups.push(group(&ids[0]));
    let (third, _listener) = groups[COUNT].stream(&inner);
    eventually("the restarted container is covered", || covers(3));
    drop(groups);
    [first, second, third].into_iter().for_each(end);
    attach.interrupt();
}

#[test]
fn of_cgroups_beyond_those_that_the_kernel_has_room_for_each_rule_has_its_share() {
    needs_root!();
    let rule = |name: &str| Rule {
        containers: ContainerChoice {
            names: vec![name.parse().unwrap()],
            labels: Vec::new(),
        },
        ..Rule::default()
    };
    let running = (1..=9000).map(|cgroup| Container {
        id: format!("{cgroup:064}"),
        described: pillion_bpf::host::Described {
            names: vec![if cgroup < 9000 { "many" } else { "one" }.to_owned()],
            ..Default::default()
        },
        cgroup,
        process: None,
        is_hidden: false,
    });
    let policy = Policy {
        rules: vec![rule("many"), rule("one")],
        running: running.collect(),
        ..Policy::default()
    };
    Programs::load(&policy).unwrap();
    let [many, one] = policy.cgroups().unwrap().try_into().unwrap();
    let (many, one) = (many.unwrap(), one.unwrap());
    assert_eq!((many.named, many.followed.len()), (8999, 8191));
    assert_eq!((one.named, one.followed), (1, vec![9000]));
}
