use std::fs;
use std::time::Duration;

use pillion_bpf::{
    ContainerSelector, Direction, Level, Mode, Options, RedundancyCaps, Rule, Target, TcpOptions,
    ThinTest,
};

use super::*;
use crate::log::LogLevel;

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
        Mode::Bundle(options) | Mode::OnRequest(options) => options,
        Mode::TcpOptions | Mode::Never => panic!("{rule:?}"),
    }
}

#[test]
fn example_of_the_docs_has_its_described_rules() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/reference/rules.toml"
    );
    // This host may lack cgroup v2.
    let text = fs::read_to_string(path).unwrap();
    let rules = read_text(text.replace("cgroup = \"/\"\n", "")).unwrap();
    let [exception, sensors, chat, game, terminals, contained, orders] = &rules[..] else {
        panic!("{rules:?}")
    };
    assert_eq!(exception.mode, Mode::Never);
    assert_eq!(exception.peers.len(), 2);
    assert!(matches!(chat.mode, Mode::OnRequest(_)), "{chat:?}");
    assert_eq!(game.local_ports, [7777..=7777, 8000..=8100]);
    assert_eq!(game.direction, Some(Direction::Accept));
    assert_eq!(options(game).max_packets, Some(2));
    assert_eq!(game.holdback, "5%".parse().unwrap());
    let itt_min = Duration::from_millis(10);
    assert_eq!(options(game).thin, ThinTest::Dpifl { itt_min });
    assert_eq!(
        (&terminals.ports[..], terminals.uid),
        (&[22..=22][..], Some(1000))
    );
    assert_eq!(options(terminals).thin, ThinTest::Spifl { limit: 4 });
    assert_eq!(options(terminals).max_packets, None);
    assert_eq!(options(terminals).level(), Level::Auto);
    assert_eq!(options(terminals).max_bytes, 600);
    let ContainerSelector { names, labels } = &contained.containers;
    assert_eq!((names.len(), labels.len()), (2, 1));
    assert_eq!(orders.remote_ports, [9000..=9009]);
    assert_eq!(orders.peers, ["192.0.2.17/32".parse().unwrap()]);
    assert_eq!(options(orders).level, Some(Level::Adaptive));
    assert_eq!(options(orders).target.map(Target::ppm), Some(5_000));
    assert!(options(orders).without_sack && options(orders).bundle_retransmissions);
    let ms = |ms| Some(Duration::from_millis(ms));
    assert!(game.tcp_options.is_empty());
    assert_eq!(sensors.mode, Mode::TcpOptions);
    assert!(sensors.tcp_options.linear_timeouts && sensors.tcp_options.nodelay);
    assert_eq!(sensors.tcp_options.user_timeout, ms(30_000));
    let orders = orders.tcp_options;
    assert_eq!((orders.rto_min, orders.delack_max), (ms(100), ms(40)));
    assert_eq!(orders.congestion, "reno".parse().ok());
}

#[test]
fn every_key_is_in_the_example_and_the_manual() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/");
    let example = fs::read_to_string(format!("{folder}rules.toml")).unwrap();
    let manual = fs::read_to_string(format!("{folder}rules.md")).unwrap();
    for key in keys::<super::Rule>() {
        let given = format!("\n{key} = ");
        assert!(example.contains(&given), "{key}");
        assert!(manual.contains(&format!("`{key}`")), "{key}");
    }
}

#[test]
fn rule_without_conditions_matches_all_with_the_defaults() {
    assert_eq!(read_text("[[rule]]\n").unwrap(), [Rule::default()]);
}

#[test]
fn every_mistake_has_its_position_and_a_remedy() {
    let text = "\
[defaults]
thin = \"sometimes\"
port = 1
[[rule]]
port = [0, 70000, \"9-8\", \"http\", 7777]
  peer = [\"10.0.0.0/33\", 4]
uid = -1
direction = \"both\"
max-packets = \"2\"
max-bytes = 4294967296
[[rule]]
local-port = []
prot = 5
reaction = \"panic\"
without-sack = 1
[[rule]]
mode = \"never\"
thin = \"always\"
[other]
";
    let ports = "expected a port from 1 to 65535, or a range as in \"8000-8100\"";
    let expected = [
        "2:8: `sometimes`; expected dpifl[:MS], spifl:N or always",
        "3:1: unknown key `port`; known: linear-timeouts, nodelay, ",
        &format!("5:9: `0`; {ports}"),
        &format!("5:12: `70000`; {ports}"),
        &format!("5:19: `9-8`; {ports}"),
        &format!("5:26: `http`; {ports}"),
        "6:11: `10.0.0.0/33`; expected an address, a network or a host name, as in 192.0.2.0/24,",
        "6:26: `4`; expected an address, a network or a host name",
        "7:7: `-1`; expected a user's numeric id, as in 1000",
        "8:13: `both`; expected \"connect\" or \"accept\"",
        "9:15: `2`; expected 1 to 2047 segments, or 0 for no limit",
        "10:13: `4294967296`; expected at least 2 bytes (one new, one bundled), or 0",
        "12:14: an empty list; remove the key to match any value",
        "13:1: unknown key `prot`; known: port, local-port",
        "14:12: `panic`; expected \"cwr\" or \"tfrc-sp\" or \"none\"",
        "15:16: `1`; expected true or false",
        "18:1: `thin` has no effect with mode = \"never\"; remove it",
        "19:2: unknown key `other`; expected `default-mode`, `netns`, `log-level`, `log-totals`, \
         `metrics`, `stats`, `max-redundancy-rate`, `max-copy-rate`, [defaults] or [[rule]]",
    ];
    let found = mistakes(text);
    for (found, expected) in found.iter().zip(expected) {
        assert!(found.starts_with(expected), "{found}\n{expected}");
    }
    assert_eq!(found.len(), expected.len(), "{found:#?}");
}

#[test]
fn invalid_toml_is_reported_once_per_line_without_consequences() {
    let found = mistakes("[[rule]]\nuid = \"me\"\nport = = 1\n[[rule]\nuid = 2\n");
    let [uid, ports, header] = &found[..] else {
        panic!("{found:#?}")
    };
    assert_eq!(uid, "2:7: `me`; expected a user's numeric id, as in 1000");
    assert!(ports.starts_with("3:8: invalid TOML: "), "{ports}");
    assert!(header.starts_with("4:8: invalid TOML: "), "{header}");
    let twice = mistakes("[[rule]]\nuid = 1\nuid = 2\n");
    assert!(
        twice[0].starts_with("3:1: invalid TOML: duplicate key"),
        "{twice:#?}"
    );
    assert_eq!(twice.len(), 1);
}

#[test]
fn file_without_rules_or_default_mode_is_invalid() {
    let expected = "1:1: no rule; start one with [[rule]], or set default-mode = \"on-request\" or \"never\" for all \
                    connections";
    assert_eq!(mistakes(""), [expected]);
    assert_eq!(mistakes("# nothing\n"), [expected]);
    assert_eq!(
        mistakes("[rule]\nuid = 1\n"),
        ["1:2: `rule` is not a list of tables; start each rule with [[rule]]"]
    );
    assert_eq!(
        mistakes("rule = [1]"),
        ["1:9: not a table; start each rule with [[rule]]"]
    );
}

#[test]
fn tcp_options_apply_with_bundling_or_without_but_not_to_never() {
    let text = "\
[defaults]
nodelay = true
[[rule]]
linear-timeouts = true
[[rule]]
mode = \"tcp-options\"
nodelay = false
rto-min = \"62.5ms\"
[[rule]]
mode = \"never\"
";
    let rules = read_text(text).unwrap();
    let modes: Vec<_> = rules.iter().map(|rule| rule.mode).collect();
    let bundle = Mode::Bundle(Options::default());
    assert_eq!(modes, [bundle, Mode::TcpOptions, Mode::Never]);
    assert!(rules[0].tcp_options.nodelay && rules[0].tcp_options.linear_timeouts);
    let rto_min = Some(Duration::from_micros(62_500));
    let alone = TcpOptions {
        rto_min,
        ..TcpOptions::default()
    };
    assert_eq!(rules[1].tcp_options, alone);
}

#[test]
fn mistakes_in_tcp_options_are_reported() {
    let text = "\
[[rule]]
rto-min = \"0s\"
delack-max = 40
user-timeout = \"0.5ms\"
congestion = \"nosuch\"
[[rule]]
mode = \"tcp-options\"
thin = \"always\"
nodelay = true
[[rule]]
mode = \"tcp-options\"
[[rule]]
mode = \"never\"
nodelay = true
[[rule]]
mode = \"never\"
holdback = \"5%\"
[[rule]]
holdback = \"60%\"
";
    let expected = [
        "2:11: `0s`; expected ",
        "3:14: invalid duration `40`: add a unit, as in `40ms` or `40s`",
        "4:16: `0.5ms`; expected whole milliseconds",
        "5:14: no congestion control `nosuch`; the kernel offers: ",
        "8:1: `thin` has no effect with mode = \"tcp-options\"; remove it",
        "10:1: no TCP option; set one of linear-timeouts, nodelay, rto-min, ",
        "14:1: `nodelay` has no effect with mode = \"never\"; remove it",
        "17:1: `holdback` has no effect with mode = \"never\"; remove it",
        "19:12: invalid share `60%`: expected 1% to 50%, so that both groups can be compared, or 0%",
    ];
    let found = mistakes(text);
    for (expected, found) in expected.iter().zip(&found) {
        assert!(found.starts_with(expected), "{found}\nnot {expected}");
    }
    assert_eq!(found.len(), expected.len(), "{found:#?}");
}

#[test]
fn unsafe_option_needs_permission_of_the_command_line() {
    let text = "[[rule]]\nreaction = \"none\"\n";
    let found = mistakes(text);
    assert!(
        found[0].starts_with("2:12: --reaction none takes"),
        "{found:?}"
    );
    assert!(found[0].contains("add --unsafe"), "{found:?}");
    let in_defaults = "[defaults]\nreaction = \"none\"\n[[rule]]\nuid = 1\n[[rule]]\n";
    let found = mistakes(in_defaults);
    assert!(found[0].starts_with("2:12: --reaction"), "{found:?}");
    assert_eq!(found.len(), 1, "{found:?}");
}

#[test]
fn default_mode_is_on_request_unless_the_file_sets_it() {
    let default_mode = |text: &str| read_policy(text).unwrap().default_mode;
    let defaults = "[defaults]\nmax-packets = 3\n[[rule]]\nuid = 1\n";
    let options = Options {
        max_packets: Some(3),
        ..Options::default()
    };
    assert_eq!(default_mode(defaults), Mode::OnRequest(options));
    let with = |word| default_mode(&format!("default-mode = \"{word}\"\n{defaults}"));
    assert_eq!(with("never"), Mode::Never);
    let alone = read_policy("default-mode = \"on-request\"\n").unwrap();
    assert_eq!(
        alone,
        Policy {
            scope: Scope::ThisNamespace,
            redundancy_caps: Some(RedundancyCaps::default()),
            ..Policy::default()
        }
    );
    let expected = "1:16: `yes`; expected \"on-request\" or \"never\"";
    assert_eq!(mistakes("default-mode = \"yes\"\n"), [expected]);
}

#[test]
fn rule_with_mode_on_request_waits_for_the_application() {
    let rules = read_text("[[rule]]\nmode = \"on-request\"\nmax-packets = 2\n").unwrap();
    assert!(matches!(rules[0].mode, Mode::OnRequest(options) if options.max_packets == Some(2)));
}

#[test]
fn too_many_rows_are_reported_at_the_first_rule_beyond() {
    let ports: Vec<_> = (1..=40).map(|port| port.to_string()).collect();
    let rule = format!("[[rule]]\nport = [{}]\n", ports.join(", "));
    let found = mistakes(rule.repeat(2));
    assert_eq!(found.len(), 1);
    assert!(
        found[0].starts_with("3:1: the rules require 80 rows, but the kernel's table has 64: "),
        "{found:?}"
    );
}

#[test]
fn columns_count_characters_and_invalid_utf8_is_reported() {
    assert!(mistakes("[[rule]]\nü = 1\n")[0].starts_with("2:1: invalid TOML"));
    assert!(mistakes("[[rule]]\npeer = [\"ü\", 1]\n")[1].starts_with("2:14: `1`"));
    assert_eq!(
        mistakes(b"[[rule]]\nuid = 1 # \xff\n"),
        ["2:11: not UTF-8; save the file as UTF-8"]
    );
    assert!(load(Path::new("/nonexistent"), false).is_err());
}

#[test]
fn only_the_first_hundred_mistakes_are_listed() {
    for (rows, more) in [
        ("x = = 1\n", "19900 more"),
        ("[[rule]]\nuid = []\n", "more mistakes"),
    ] {
        let lines = mistakes(rows.repeat(20_000));
        assert_eq!(lines.len(), 101);
        assert!(lines[100].contains(more), "{}", lines[100]);
    }
}

#[test]
fn file_above_16_mib_is_refused() {
    let BadInput(error) = load(Path::new("/dev/zero"), false).unwrap_err();
    assert!(error.starts_with("/dev/zero: more than 16 MiB"), "{error}");
}

#[test]
fn cgroup_may_be_absent_but_needs_a_valid_path() {
    let rules = read_text("[[rule]]\ncgroup = [\"/no/such-*\", \"/b\"]\n").unwrap();
    assert_eq!(rules[0].cgroups.len(), 2);
    assert_eq!(rules[0].rows(), 1);
    assert_eq!(rules[0].cgroup_ids(&[]).unwrap(), Some(Vec::new()));
    let found = mistakes("[[rule]]\ncgroup = \"../b\"\n");
    assert!(found[0].starts_with("2:10: "), "{found:?}");
}

#[test]
fn containers_match_by_name_and_label_but_not_with_cgroup() {
    let rules = "[[rule]]\ncontainer = [\"web-*\", \"prod/game\"]\ncontainer-label = \"app=x\"\n";
    let rules = read_text(rules).unwrap();
    let description = "named web-* or prod/game and labelled app=x";
    assert_eq!(rules[0].containers.to_string(), description);
    assert_eq!(rules[0].cgroup_ids(&[]).unwrap(), Some(Vec::new()));
    let found = mistakes("[[rule]]\ncgroup = \"/a\"\ncontainer = \"web\"\n");
    assert!(
        found[0].starts_with("3:1: `container` cannot be combined"),
        "{found:?}"
    );
    let found = mistakes("[[rule]]\ncontainer = \"a//b\"\ncontainer-label = \"app\"\n");
    assert!(
        found[0].starts_with("2:13: ") && found[1].starts_with("3:19: "),
        "{found:?}"
    );
}

#[test]
fn file_names_network_namespaces() {
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
    let error = load(&file, false).unwrap_err().to_string();
    assert!(
        error.contains(":1:17: empty name: expected a network namespace"),
        "{error}"
    );
}

#[test]
fn peers_may_be_host_names() {
    let rules = read_text("[[rule]]\npeer = \"localhost\"\n").unwrap();
    let is_loopback = |net: &ipnet::IpNet| net.addr().is_loopback();
    assert!(rules[0].peers.iter().any(is_loopback), "{rules:?}");
    for mistake in ["\"10.0.0\"", "\"no such\"", "\"no-such.invalid\"", "\"\""] {
        let found = mistakes(format!("[[rule]]\npeer = {mistake}\n"));
        assert!(found[0].starts_with("2:8: "), "{found:?}");
    }
}

#[test]
fn file_configures_log_metrics_and_stats() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rules.toml");
    let text = "metrics = \"unix:/run/m\"\nstats = \"/run/s\"\nlog-totals = \"1m\"\n\
                log-level = \"warning\"\n[[rule]]\n";
    fs::write(&file, text).unwrap();
    let output = load(&file, false).unwrap().output;
    assert_eq!(output.metrics, "unix:/run/m".parse().ok());
    assert_eq!(output.stats.as_deref(), Some(Path::new("/run/s")));
    assert_eq!(output.log_totals, Some(Duration::from_secs(60)));
    assert_eq!(output.log_level, Some(LogLevel::Warning));
    let found =
        mistakes("metrics = \"0.0.0.0:1\"\nlog-totals = 60\nlog-level = \"all\"\n[[rule]]\n");
    let expected = [
        "1:11: `0.0.0.0:1`; expected \"unix:/PATH\"",
        "2:14: invalid duration `60`: add a unit",
        "3:13: `all`; expected \"error\" or \"warning\"",
    ];
    for (expected, found) in expected.iter().zip(&found) {
        assert!(found.starts_with(expected), "{found}\nnot {expected}");
    }
    assert_eq!(found.len(), expected.len(), "{found:#?}");
}

#[test]
fn caps_are_positive_rates_at_the_head() {
    let text = "default-mode = \"never\"\nmax-redundancy-rate = \"8kbit\"\nmax-copy-rate = 50\n";
    let caps = RedundancyCaps {
        max_redundancy_rate: Some(1000),
        max_copy_rate: Some(50),
    };
    assert_eq!(read_policy(text).unwrap().redundancy_caps, Some(caps));
    let text = "default-mode = \"never\"\nmax-redundancy-rate = 8\nmax-copy-rate = 0\n";
    let unit = "expected a number above 0 and a unit (bit, kbit, mbit, gbit), as in `5mbit`";
    assert_eq!(
        mistakes(text),
        [
            format!("2:23: invalid rate `8`: {unit}"),
            "3:17: invalid copy rate `0`: expected 1 to 1000000000 per second".to_owned(),
        ]
    );
}

#[test]
fn target_at_fixed_level_is_a_mistake() {
    assert_eq!(
        mistakes("[[rule]]\ntarget = \"1%\"\nmax-packets = 1\n"),
        ["2:10: `target` needs level = \"auto\"; set that as well, or remove it"]
    );
    let in_defaults = "[defaults]\ntarget = \"1%\"\n[[rule]]\nlevel = \"adaptive\"\n[[rule]]\n";
    assert_eq!(read_text(in_defaults).unwrap().len(), 2);
}

#[test]
fn target_in_defaults_that_no_rule_uses_is_a_mistake() {
    let unused = ["2:10: `target` needs level = \"auto\"; set that as well, or remove it"];
    for rules in [
        "[[rule]]\n",
        "[[rule]]\nmode = \"never\"\n[[rule]]\nmode = \"on-request\"\n",
    ] {
        let text = format!("[defaults]\ntarget = \"1%\"\nlevel = \"fixed\"\n{rules}");
        assert_eq!(mistakes(text), unused, "{rules}");
    }
    assert_eq!(
        mistakes("[defaults]\ntarget = \"1%\"\n[[rule]]\nport = 0\n").len(),
        1
    );
    let adaptive = "[defaults]\ntarget = \"1%\"\nlevel = \"adaptive\"\n[[rule]]\n";
    assert_eq!(read_text(adaptive).unwrap().len(), 1);
}

#[test]
fn source_of_a_rule_is_its_text_and_the_defaults() {
    let source = |text: &str| read_text(text).unwrap()[0].source.clone();
    let rule = source("[defaults]\ncopies = 1\n[[rule]]\nholdback = '5%'\nport = 7001\n");
    assert_eq!(rule, "copies = 1\nholdback = \"5%\"\nport = 7001\n");
    let moved = "# later\n[[rule]]\nport = 7001\nholdback = \"5%\"\n\n[defaults]\ncopies = 1\n";
    assert_eq!(source(moved), rule);
    assert_ne!(source("[[rule]]\nholdback = '5%'\nport = 7001\n"), rule);
}
