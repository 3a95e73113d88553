use std::fs;
use std::time::Duration;

use pillion_bpf::{
    Companions, ContainerChoice, Direction, Level, Mode, Options, Rule, Target, ThinTest,
};

use super::*;

/// Reads a file with this text; on mistakes, gives their lines without the file's name.
fn read_text(text: impl AsRef<[u8]>) -> Result<Vec<Rule>, Vec<String>> {
    read_policy(text).map(|policy| policy.rules)
}

fn read_policy(text: impl AsRef<[u8]>) -> Result<Policy, Vec<String>> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rules.toml");
    fs::write(&file, text).unwrap();
    let loaded = load(&file, false).map(|file| file.policy);
    loaded.map_err(|BadInput(mistakes)| {
        let name = format!("{}:", file.display());
        let lines = mistakes.lines();
        lines.map(|line| line.replace(&name, "")).collect()
    })
}

fn mistakes(text: impl AsRef<[u8]>) -> Vec<String> {
    read_text(text).expect_err("there are mistakes")
}

fn options(rule: &Rule) -> Options {
    match rule.mode {
        Mode::Bundle(options) | Mode::Allow(options) => options,
        Mode::Companions | Mode::LeaveAlone => panic!("{rule:?}"),
    }
}

#[test]
fn the_example_is_read_as_it_says() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/pillion.toml");
    // The cgroup is looked for on this host, which may have none.
    let text = fs::read_to_string(path).unwrap();
    let rules = read_text(text.replace("cgroup = \"/\"\n", "")).unwrap();
    let [exception, sensors, chat, game, terminals, contained, orders] = &rules[..] else {
        panic!("{rules:?}")
    };
    assert_eq!(exception.mode, Mode::LeaveAlone);
    assert_eq!(exception.peers.len(), 2);
    assert!(matches!(chat.mode, Mode::Allow(_)), "{chat:?}");
    assert_eq!(game.local_ports, [7777..=7777, 8000..=8100]);
    assert_eq!(game.direction, Some(Direction::Accept));
    assert_eq!(options(game).max_packets, Some(2));
    let itt_min = Duration::from_millis(10);
    assert_eq!(options(game).thin, ThinTest::Dpifl { itt_min });
    assert_eq!(
        (&terminals.ports[..], terminals.uid),
        (&[22..=22][..], Some(1000))
    );
    assert_eq!(options(terminals).thin, ThinTest::Spifl { limit: 4 });
    assert_eq!(options(terminals).max_packets, Some(1));
    assert_eq!(options(terminals).max_bytes, 600);
    let ContainerChoice { names, labels } = &contained.containers;
    assert_eq!((names.len(), labels.len()), (2, 1));
    assert_eq!(orders.remote_ports, [9000..=9009]);
    assert_eq!(orders.peers, ["192.0.2.17/32".parse().unwrap()]);
    assert_eq!(options(orders).level, Level::Adaptive);
    assert_eq!(options(orders).target.map(Target::ppm), Some(5_000));
    assert!(options(orders).without_sack && options(orders).retransmissions);
    let ms = |ms| Some(Duration::from_millis(ms));
    assert!(game.companions.is_empty());
    assert_eq!(sensors.mode, Mode::Companions);
    assert!(sensors.companions.linear_timeouts && sensors.companions.nodelay);
    assert_eq!(sensors.companions.user_timeout, ms(30_000));
    let orders = orders.companions;
    assert_eq!((orders.rto_min, orders.delack_max), (ms(100), ms(40)));
    assert_eq!(orders.congestion, "reno".parse().ok());
}

#[test]
fn every_key_is_in_the_example_and_in_the_manual() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/");
    let example = fs::read_to_string(format!("{folder}pillion.toml")).unwrap();
    let manual = fs::read_to_string(format!("{folder}policy.md")).unwrap();
    for key in keys::<super::Rule>() {
        let given = format!("\n{key} = ");
        assert!(example.contains(&given), "{key}");
        assert!(manual.contains(&format!("`{key}`")), "{key}");
    }
}

#[test]
fn a_rule_without_conditions_takes_all_with_the_defaults() {
    assert_eq!(read_text("[[rule]]\n").unwrap(), [Rule::default()]);
}

#[test]
fn every_mistake_is_told_with_its_place_and_a_remedy() {
    let text = "\
[defaults]
thin = \"sometimes\"
ports = 1
[[rule]]
ports = [0, 70000, \"9-8\", \"http\", 7777]
  peers = [\"10.0.0.0/33\", 4]
uid = -1
direction = \"both\"
max-packets = \"2\"
max-bytes = 4294967296
[[rule]]
local-ports = []
prot = 5
reaction = \"panic\"
without-sack = 1
[[rule]]
mode = \"leave-alone\"
thin = \"always\"
[other]
";
    let ports = "expected a port from 1 to 65535, or a range as in \"8000-8100\"";
    let expected = [
        "2:8: `sometimes`; expected dpifl[:MS], spifl:N or always",
        "3:1: unknown key `ports`; known: linear-timeouts, nodelay, ",
        &format!("5:10: `0`; {ports}"),
        &format!("5:13: `70000`; {ports}"),
        &format!("5:20: `9-8`; {ports}"),
        &format!("5:27: `http`; {ports}"),
        "6:12: `10.0.0.0/33`; expected an address, a network or a host's name, as in 192.0.2.0/24,",
        "6:27: `4`; expected an address, a network or a host's name",
        "7:7: `-1`; expected a user's numeric id, as in 1000",
        "8:13: `both`; expected \"connect\" or \"accept\"",
        "9:15: `2`; expected segments, 1 to 2047, or 0 for no limit",
        "10:13: `4294967296`; expected bytes, 2 (a new one, and one that rides along) or more, or 0",
        "12:15: an empty list; for any, leave the key out",
        "13:1: unknown key `prot`; known: ports, local-ports",
        "14:12: `panic`; expected \"cwr\" or \"tfrc-sp\" or \"none\"",
        "15:16: `1`; expected true or false",
        "18:1: `thin` says how to bundle what is left alone; remove it",
        "19:2: unknown key `other`; a file has the keys `otherwise`, `netns`, `metrics`, `totals-every`, \
         `stats`, and [defaults] and [[rule]] tables",
    ];
    let found = mistakes(text);
    for (found, expected) in found.iter().zip(expected) {
        assert!(found.starts_with(expected), "{found}\n{expected}");
    }
    assert_eq!(found.len(), expected.len(), "{found:#?}");
}

#[test]
fn what_is_no_toml_is_told_once_a_line_and_nothing_that_follows_from_it() {
    let found = mistakes("[[rule]]\nuid = \"me\"\nports = = 1\n[[rule]\nuid = 2\n");
    let [uid, ports, header] = &found[..] else {
        panic!("{found:#?}")
    };
    assert_eq!(uid, "2:7: `me`; expected a user's numeric id, as in 1000");
    assert!(ports.starts_with("3:9: no TOML: "), "{ports}");
    assert!(header.starts_with("4:8: no TOML: "), "{header}");
    let twice = mistakes("[[rule]]\nuid = 1\nuid = 2\n");
    assert!(
        twice[0].starts_with("3:1: no TOML: duplicate key"),
        "{twice:#?}"
    );
    assert_eq!(twice.len(), 1);
}

#[test]
fn a_file_without_rules_is_a_mistake() {
    let expected = "1:1: no rule; begin one with [[rule]], or say otherwise = \"allow\" or \"leave-alone\" of all \
                    connections";
    assert_eq!(mistakes(""), [expected]);
    assert_eq!(mistakes("# nothing\n"), [expected]);
    assert_eq!(
        mistakes("[rule]\nuid = 1\n"),
        ["1:2: `rule` is no list of tables; begin each rule with [[rule]]"]
    );
    assert_eq!(
        mistakes("rule = [1]"),
        ["1:9: no table; begin each rule with [[rule]]"]
    );
}

#[test]
fn companions_go_with_bundling_or_alone_and_not_with_leaving_alone() {
    let text = "\
[defaults]
nodelay = true
[[rule]]
linear-timeouts = true
[[rule]]
mode = \"companions\"
nodelay = false
rto-min = 62.5
[[rule]]
mode = \"leave-alone\"
";
    let rules = read_text(text).unwrap();
    let modes: Vec<_> = rules.iter().map(|rule| rule.mode).collect();
    let bundle = Mode::Bundle(Options::default());
    assert_eq!(modes, [bundle, Mode::Companions, Mode::LeaveAlone]);
    assert!(rules[0].companions.nodelay && rules[0].companions.linear_timeouts);
    let rto_min = Some(Duration::from_micros(62_500));
    let alone = Companions {
        rto_min,
        ..Companions::default()
    };
    assert_eq!(rules[1].companions, alone);
}

#[test]
fn mistakes_about_companions_are_told() {
    let text = "\
[[rule]]
rto-min = 0
delack-max = \"40\"
user-timeout = 0.5
congestion = \"nosuch\"
[[rule]]
mode = \"companions\"
thin = \"always\"
nodelay = true
[[rule]]
mode = \"companions\"
[[rule]]
mode = \"leave-alone\"
nodelay = true
";
    let expected = [
        "2:11: `0`; expected milliseconds from ",
        "3:14: `40`; expected a number",
        "4:16: `0.5`; expected whole milliseconds from 1",
        "5:14: no congestion control `nosuch`; the kernel offers: ",
        "8:1: `thin` says how to bundle what gets companions alone; remove it",
        "10:1: no companion; give one of linear-timeouts, nodelay, rto-min, ",
        "14:1: `nodelay` is a companion of what is left alone; remove it",
    ];
    let found = mistakes(text);
    for (expected, found) in expected.iter().zip(&found) {
        assert!(found.starts_with(expected), "{found}\nnot {expected}");
    }
    assert_eq!(found.len(), expected.len(), "{found:#?}");
}

#[test]
fn what_is_unsafe_must_be_allowed_on_the_command_line() {
    let text = "[[rule]]\nreaction = \"none\"\n";
    let found = mistakes(text);
    assert!(
        found[0].starts_with("2:12: --reaction none takes"),
        "{found:?}"
    );
    assert!(found[0].contains("say --unsafe"), "{found:?}");
    let of_all = "[defaults]\nreaction = \"none\"\n[[rule]]\nuid = 1\n[[rule]]\n";
    let found = mistakes(of_all);
    assert!(found[0].starts_with("2:12: --reaction"), "{found:?}");
    assert_eq!(found.len(), 1, "{found:?}");
}

#[test]
fn what_no_rule_matches_is_left_to_applications_unless_the_file_says_otherwise() {
    let otherwise = |text: &str| read_policy(text).unwrap().otherwise;
    let defaults = "[defaults]\nmax-packets = 3\n[[rule]]\nuid = 1\n";
    let options = Options {
        max_packets: Some(3),
        ..Options::default()
    };
    assert_eq!(otherwise(defaults), Mode::Allow(options));
    let with = |word| otherwise(&format!("otherwise = \"{word}\"\n{defaults}"));
    assert_eq!(with("leave-alone"), Mode::LeaveAlone);
    let alone = read_policy("otherwise = \"allow\"\n").unwrap();
    assert_eq!(
        alone,
        Policy {
            scope: Scope::ThisNamespace,
            ..Policy::default()
        }
    );
    let expected = "1:13: `yes`; expected \"allow\" or \"leave-alone\"";
    assert_eq!(mistakes("otherwise = \"yes\"\n"), [expected]);
}

#[test]
fn a_rule_may_leave_it_to_the_application() {
    let rules = read_text("[[rule]]\nmode = \"allow\"\nmax-packets = 2\n").unwrap();
    assert!(matches!(rules[0].mode, Mode::Allow(options) if options.max_packets == Some(2)));
}

#[test]
fn more_than_the_kernels_table_holds_is_told_at_the_rule_too_many() {
    let ports: Vec<_> = (1..=40).map(|port| port.to_string()).collect();
    let rule = format!("[[rule]]\nports = [{}]\n", ports.join(", "));
    let found = mistakes(rule.repeat(2));
    assert_eq!(found.len(), 1);
    assert!(
        found[0].starts_with("3:1: the rules take 80 rows of 64"),
        "{found:?}"
    );
}

#[test]
fn columns_count_characters_and_any_bytes_are_survived() {
    assert!(mistakes("[[rule]]\nü = 1\n")[0].starts_with("2:1: no TOML"));
    assert!(mistakes("[[rule]]\npeers = [\"ü\", 1]\n")[1].starts_with("2:15: `1`"));
    assert_eq!(
        mistakes(b"[[rule]]\nuid = 1 # \xff\n"),
        ["2:11: not UTF-8; save the file as UTF-8"]
    );
    assert!(load(Path::new("/nonexistent"), false).is_err());
}

#[test]
fn of_very_many_mistakes_the_first_hundred_are_told_at_once() {
    for (rows, more) in [
        ("x = = 1\n", "19900 more"),
        ("[[rule]]\nuid = []\n", "more mistakes"),
    ] {
        let told = mistakes(rows.repeat(20_000));
        assert_eq!(told.len(), 101);
        assert!(told[100].contains(more), "{}", told[100]);
    }
}

#[test]
fn a_file_without_end_is_refused() {
    let BadInput(said) = load(Path::new("/dev/zero"), false).unwrap_err();
    assert!(said.starts_with("/dev/zero: more than 16 MiB"), "{said}");
}

#[test]
fn a_cgroup_may_be_still_to_come_and_has_a_path() {
    let rules = read_text("[[rule]]\ncgroup = [\"/no/such-*\", \"/b\"]\n").unwrap();
    assert_eq!(rules[0].cgroups.len(), 2);
    assert_eq!(rules[0].rows(), 1);
    assert_eq!(rules[0].cgroup_ids(&[]).unwrap(), Some(Vec::new()));
    let found = mistakes("[[rule]]\ncgroup = \"../b\"\n");
    assert!(found[0].starts_with("2:10: "), "{found:?}");
}

#[test]
fn containers_are_chosen_by_name_and_label_and_are_cgroups_then() {
    let rules = "[[rule]]\ncontainer = [\"web-*\", \"prod/game\"]\ncontainer-label = \"app=x\"\n";
    let rules = read_text(rules).unwrap();
    let said = "called web-* or prod/game and labelled app=x";
    assert_eq!(rules[0].containers.to_string(), said);
    assert_eq!(rules[0].cgroup_ids(&[]).unwrap(), Some(Vec::new()));
    let found = mistakes("[[rule]]\ncgroup = \"/a\"\ncontainer = \"web\"\n");
    assert!(
        found[0].starts_with("3:1: `container` is a cgroup"),
        "{found:?}"
    );
    let found = mistakes("[[rule]]\ncontainer = \"a//b\"\ncontainer-label = \"app\"\n");
    assert!(
        found[0].starts_with("2:13: ") && found[1].starts_with("3:19: "),
        "{found:?}"
    );
}

#[test]
fn network_namespaces_are_named_in_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rules.toml");
    fs::write(&file, "netns = [\"web\", \"cni-*\"]\n[[rule]]\n").unwrap();
    let namespaces = load(&file, false).unwrap().namespaces;
    assert_eq!(namespaces.len(), 2);
    assert!(!namespaces[0].is_pattern() && namespaces[1].is_pattern());
    fs::write(
        &file,
        format!("netns = \"{}\"\n[[rule]]\n", std::process::id()),
    )
    .unwrap();
    let opened = load(&file, false).unwrap().namespaces[0].open();
    let expected = matches!(opened, Err(Error::UnknownNamespace { .. }));
    assert!(
        expected,
        "a process may have the number by chance: {opened:?}"
    );
    fs::write(&file, "netns = [\"web\", \"\"]\n[[rule]]\n").unwrap();
    let said = load(&file, false).unwrap_err().to_string();
    assert!(
        said.contains(":1:17: ``; expected a network namespace"),
        "{said}"
    );
}

#[test]
fn peers_may_have_names() {
    let rules = read_text("[[rule]]\npeers = \"localhost\"\n").unwrap();
    let is_loopback = |net: &ipnet::IpNet| net.addr().is_loopback();
    assert!(rules[0].peers.iter().any(is_loopback), "{rules:?}");
    for mistake in ["\"10.0.0\"", "\"no such\"", "\"no-such.invalid\"", "\"\""] {
        let found = mistakes(format!("[[rule]]\npeers = {mistake}\n"));
        assert!(found[0].starts_with("2:9: "), "{found:?}");
    }
}

#[test]
fn what_is_told_beside_the_log_is_in_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rules.toml");
    let text = "metrics = \"unix:/run/m\"\nstats = \"/run/s\"\ntotals-every = 60\n[[rule]]\n";
    fs::write(&file, text).unwrap();
    let told = load(&file, false).unwrap().telling;
    assert_eq!(told.metrics, "unix:/run/m".parse().ok());
    assert_eq!(told.stats.as_deref(), Some(Path::new("/run/s")));
    assert_eq!(told.totals_every, Some(60));
    let found = mistakes("metrics = \"0.0.0.0:1\"\ntotals-every = 0\n[[rule]]\n");
    assert!(
        found[0].starts_with("1:11: `0.0.0.0:1`; expected \"unix:/PATH\""),
        "{found:?}"
    );
    assert!(
        found[1].starts_with("2:16: `0`; expected a whole number from 1 on"),
        "{found:?}"
    );
}

#[test]
fn a_target_without_the_level_that_takes_it_is_a_mistake() {
    assert_eq!(
        mistakes("[[rule]]\ntarget = 1\n"),
        ["2:10: `target` is for level = \"adaptive\"; give that, too, or remove it"]
    );
    let of_all = "[defaults]\ntarget = 1\n[[rule]]\nlevel = \"adaptive\"\n[[rule]]\n";
    assert_eq!(read_text(of_all).unwrap().len(), 2);
}

#[test]
fn a_target_of_all_rules_that_none_takes_is_a_mistake() {
    let idle = ["2:10: `target` is for level = \"adaptive\"; give that, too, or remove it"];
    for rules in [
        "[[rule]]\n",
        "[[rule]]\nmode = \"leave-alone\"\n[[rule]]\nmode = \"allow\"\n",
    ] {
        let text = format!("[defaults]\ntarget = 1\n{rules}");
        assert_eq!(mistakes(text), idle, "{rules}");
    }
    assert_eq!(
        mistakes("[defaults]\ntarget = 1\n[[rule]]\nports = 0\n").len(),
        1
    );
    let adaptive = "[defaults]\ntarget = 1\nlevel = \"adaptive\"\n[[rule]]\n";
    assert_eq!(read_text(adaptive).unwrap().len(), 1);
}
