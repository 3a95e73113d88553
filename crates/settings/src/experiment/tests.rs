use std::path::PathBuf;
use std::time::Duration;

use pillion_traffic::Reading;

use super::*;

pub(super) fn load_text(text: &str) -> Result<Experiment, String> {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    let name = format!("{}:", file.path().display());
    load(file.path()).map_err(|error| error.0.replace(&name, ""))
}

fn mistake(text: &str) -> String {
    load_text(text).unwrap_err()
}

pub(super) const SMALL: &str = "duration = 5\n[group.thin]\n";

#[test]
fn the_example_in_the_documentation_is_read_whole() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/experiment.toml");
    let experiment = load(FilePath::new(path)).unwrap();
    let names: Vec<_> = experiment.runs.iter().map(|run| &run.name[..]).collect();
    assert_eq!(names.len(), 24);
    assert_eq!(names[0], "plain,loss=0.5,itt=30:3,seed=1");
    assert_eq!(names[1], "plain,loss=0.5,itt=30:3,seed=2");
    assert_eq!(names[23], "mechanisms,loss=5,itt=100:10,seed=2");
    let run = &experiment.runs[23].plan;
    assert_eq!(run.seed, 2);
    assert_eq!(run.duration, Duration::from_secs(60));
    assert_eq!(run.rtt(), Duration::from_millis(150));
    assert_eq!(run.bottleneck.rate.map(Rate::bps), Some(5_000_000));
    assert_eq!(run.bottleneck.shaper, Shaper::Htb);
    assert_eq!(run.bottleneck.queue, Discipline::Pfifo);
    assert_eq!(run.bottleneck.limit, Some(Limit::Packets(63)));
    assert_eq!(run.forward.loss, Some(Loss::Uniform(0.05)));
    assert_eq!(run.sysctls["net.ipv4.tcp_retrans_collapse"], "0");
    let reads = Duration::from_millis(200);
    assert_eq!(run.receiver.manner.reading, Reading::Late(reads));
    let thin = &run.streams[1];
    assert_eq!(thin.traffic.name, "thin");
    assert_eq!(thin.traffic.streams, 20);
    let host = &run.hosts[thin.host];
    assert_eq!(host.sysctls["net.ipv4.tcp_thin_linear_timeouts"], "1");
    assert_eq!(host.sysctls["net.ipv4.tcp_early_retrans"], "0");
    let greedy = &run.streams[0];
    let us = [50_000, 52_500, 55_000, 57_500, 60_000].map(Duration::from_micros);
    assert_eq!(greedy.delays, us);
    let bundled = experiment.runs.iter().filter(|planned| {
        let thin = &planned.plan.streams[1];
        thin.bundling.is_some()
    });
    assert_eq!(bundled.count(), 8);
}

#[test]
fn a_run_alone_is_a_file_that_says_the_same() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/experiment.toml");
    for planned in load(FilePath::new(path)).unwrap().runs {
        let again = load_text(&planned.run.to_text()).unwrap().runs;
        assert_eq!(again.len(), 1);
        assert_eq!(again[0].run, planned.run);
        assert_eq!(again[0].plan, planned.plan);
    }
}

#[test]
fn one_group_and_a_duration_are_an_experiment() {
    let experiment = load_text(SMALL).unwrap();
    assert_eq!(experiment.runs.len(), 1);
    assert_eq!(experiment.runs[0].name, "seed=1");
    assert_eq!(experiment.runs[0].plan.hosts[0].name, "thin");
}

#[test]
fn parameters_of_the_same_name_are_called_by_their_whole_path() {
    let grid = "[group.b]\n[grid]\ngroup.thin.size = [1, 2]\ngroup.b.size = [3]\n";
    let runs = load_text(&format!("{SMALL}{grid}")).unwrap().runs;
    assert_eq!(runs[1].name, "group.thin.size=2,group.b.size=3,seed=1");
}

#[test]
fn mistakes_are_told_with_their_place_and_remedy() {
    let with = |more: &str| mistake(&format!("{SMALL}{more}"));
    for (more, told) in [
        ("nam = 1\n", "3:1: unknown key `nam`; known: name"),
        (
            "name = \"a\"\n",
            "3:1: a group's name is that of its table, here `thin`",
        ),
        (
            "host = \"a\"\n",
            "3:8: no host `a`; describe it in [host.a]",
        ),
        ("rtt = \"100+\"\n", "3:7: `100+`; expected milliseconds"),
        ("bundle = 1\n", "3:10: `1`; expected true, false, or how"),
        ("bundle = { thin = \"x\" }\n", "3:19: `x`; expected dpifl"),
        (
            "kind = \"greedy\"\n",
            "1:1: the greedy streams of `thin` have no rate",
        ),
        ("itt = 0\n", "3:7: "),
        (
            "mechanisms = { er = true }\n",
            "3:16: unknown key `er`; known: linear-timeouts",
        ),
        (
            "mechanisms = { tlp = 2 }\n",
            "3:22: `2`; expected true or false",
        ),
        (
            "mechanisms = { early-retransmit = \"x\" }\n",
            "3:35: `x`; expected true or false or \"delayed\"",
        ),
        (
            "mechanisms = { initial-window = 0 }\n",
            "3:33: `0`; expected segments, 1 to 1000",
        ),
        (
            "mechanisms = { initial-window = true }\n",
            "3:33: `true`; expected segments, 1 to 1000",
        ),
        (
            "mechanisms = { as-in = \"linux-2.4\" }\n",
            "3:24: `linux-2.4`; expected \"linux-2.6.34\" or \"linux-3.12\"",
        ),
        (
            "kind = \"datagrams\"\nrate = 1\nbundle = true\n",
            "5:10: datagrams are not TCP's",
        ),
        (
            "[kernel]\nticks-per-second = 333\n",
            "4:20: `333`; expected 100, 250, 300 or 1000",
        ),
        (
            "[bottleneck]\nrate = 0\n",
            "4:8: `0`; expected Mbit/s above 0",
        ),
        (
            "[bottleneck]\nlimit = \"1 kB\"\n",
            "4:9: `1 kB`; expected packets",
        ),
        (
            "[bottleneck.back]\nqueue = \"cake\"\nshaper = \"tbf\"\n",
            "5:10: cake keeps to the rate by itself",
        ),
        (
            "[bottleneck.back]\nlimit = \"1 BDP\"\n",
            "4:9: a limit in bandwidth-delay products needs a rate",
        ),
        (
            "[bottleneck.back]\nback = {}\n",
            "4:1: unknown key `back`; known: rate",
        ),
        (
            "[bottleneck]\nlimit = \"1 BDP\"\n",
            "4:9: a limit in bandwidth-delay products needs",
        ),
        (
            "[bottleneck]\nqueue = \"bfifo\"\nlimit = 9\n",
            "5:9: bfifo counts bytes; give its limit in bytes",
        ),
        (
            "[path]\nloss = 101\n",
            "4:8: `101`; expected per cent, as in 2",
        ),
        ("[path]\nloss = \"gilbert-elliott:1\"\n", "4:8: "),
        (
            "[path]\nback.los = 1\n",
            "4:6: unknown key `los`; known: jitter",
        ),
        (
            "[path]\nreorder = 1\n",
            "4:11: `1`; expected per cent and milliseconds",
        ),
        (
            "[sysctl]\nnet.ipv4.tcp_sack = 1\n",
            "4:1: a table; write the parameter's name in quotes",
        ),
        (
            "[sysctl]\n\"kernel.panic\" = 1\n",
            "4:1: `kernel.panic` is no parameter of a network",
        ),
        (
            "[measure]\nsockets = 0.5\n",
            "4:11: `0.5`; expected milliseconds between samples",
        ),
        (
            "[receiver]\nread-rate = 0\n",
            "4:13: `0`; expected a whole number from 1 on",
        ),
        (
            "[receiver]\nread-rate = 1\nread-delay = 1\n",
            "4:13: `read-rate` says when to read, and so does `read-delay`; keep one",
        ),
        (
            "[receiver]\necho = true\nanswer-every = 1\n",
            "5:16: `echo` sends back all that comes, and `answer-every` something else",
        ),
        (
            "[receiver]\nanswer-every = 1\nanswer-size = 1048577\n",
            "5:15: `1048577`; expected bytes, 1 to 1048576",
        ),
        (
            "[receiver]\nanswer-size = 9\n",
            "4:15: `answer-size` is that of the answers which `answer-every` asks for",
        ),
        (
            "[grid]\npath.loss = 1\n",
            "4:13: `1`; expected a list of values",
        ),
        (
            "[grid]\npath.loss = [1, 200]\n",
            "4:17: `200`; expected per cent",
        ),
        (
            "[variant]\n",
            "3:1: no variant; begin each with [variant.NAME]",
        ),
        (
            "[variant.a]\npath.rtt = \"x\"\n",
            "4:12: `x`; expected milliseconds",
        ),
        (
            "[host.x]\nspeed = 1\n",
            "4:1: unknown key `speed`; known: rate",
        ),
        (
            "[bottle]\n",
            "3:2: unknown key `bottle`; known: title, duration, seed, memory, kernel, bottleneck, ",
        ),
    ] {
        let found = with(more);
        assert!(found.starts_with(told), "{more}: {found}");
        assert!(!found.contains('\n'), "{more}: {found}");
    }
}

#[test]
fn what_an_experiment_needs_is_asked_for() {
    assert!(mistake("duration = 5\n").starts_with("1:1: no group of streams; begin one with"));
    assert!(mistake("[group.a]\n").starts_with("1:1: no `duration`; say for how many seconds"));
}

#[test]
fn groups_on_one_host_agree_on_its_mechanisms() {
    let group =
        |name, switch| format!("[group.{name}]\nhost = \"h\"\nmechanisms = {{ tlp = {switch} }}\n");
    let file = |second| {
        let (a, b) = (group("a", "true"), group("b", second));
        format!("duration = 1\n[host.h]\n{a}{b}")
    };
    assert!(load_text(&file("true")).is_ok());
    let told = mistake(&file("false"));
    assert!(
        told.contains("sets net.ipv4.tcp_early_retrans otherwise on host `h`"),
        "{told}"
    );
}

#[test]
fn a_stream_s_own_round_trip_is_split_both_ways_whatever_the_path_s() {
    let text = format!("{SMALL}rtt = 10\n[bottleneck]\nrate = 8\n[path]\nrtt = 150\n");
    let plan = &load_text(&text).unwrap().runs[0].plan;
    let each_way = Duration::from_millis(5);
    let path = plan.path();
    for way in [&path.forward, &path.backward] {
        let own = way.own.iter().map(|own| (own.port, own.delay));
        assert_eq!(own.collect::<Vec<_>>(), [(SOURCE_PORTS, each_way)]);
    }
    assert_eq!(plan.bdp_bytes(&plan.bottleneck), Some(10_000.0));
}

#[test]
fn a_group_s_own_losses_and_jitter_take_the_place_of_the_path_s() {
    let text = format!(
        "{SMALL}loss = 0\nback = {{ loss = 3, jitter = 1 }}\n[path]\nrtt = 150\nloss = 2\n"
    );
    let plan = &load_text(&text).unwrap().runs[0].plan;
    let own: Vec<_> = plan.own_emulations().collect();
    let [(0, [to, back])] = &own[..] else {
        panic!("{own:?}")
    };
    let ms = Duration::from_millis;
    assert_eq!((to.delay, to.jitter), (ms(75), None));
    assert_eq!(to.loss, Some(Loss::Uniform(0.0)));
    assert_eq!((back.delay, back.jitter), (ms(75), Some(ms(1))));
    assert_eq!(back.loss, Some(Loss::Uniform(0.03)));
    let path = plan.path();
    assert_eq!(path.forward.loss, Loss::Uniform(0.02));
    assert_eq!(path.forward.own[0].loss, to.loss);
    assert_eq!(path.backward.own[0].jitter, back.jitter);
}

#[test]
fn a_list_of_losses_is_the_whole_path_s() {
    let told = mistake(&format!("{SMALL}loss = [3]\n"));
    assert!(told.contains("list them in [path]"), "{told}");
    let told = mistake(&format!("{SMALL}loss = 3\n[path]\nloss = [3]\n"));
    assert!(told.contains("list them all there"), "{told}");
}

#[test]
fn round_trips_are_drawn_from_the_seed() {
    let drawn = |seed| {
        let text = format!("seed = {seed}\n{SMALL}rtt = \"200:5\"\n");
        load_text(&text).unwrap().runs[0].plan.streams[0]
            .delays
            .clone()
    };
    assert_eq!(drawn(1), drawn(1));
    assert_ne!(drawn(1), drawn(2));
}

#[test]
fn what_defaults_say_of_a_table_is_merged_key_by_key() {
    let text = "\
duration = 1
[defaults]
mechanisms = { rack = false }
bundle = { max-packets = 2, nodelay = true }
[group.a]
mechanisms.tlp = false
bundle.max-packets = 3
[group.b]
bundle = false
";
    let plan = &load_text(text).unwrap().runs[0].plan;
    let [a, b] = &plan.streams[..] else {
        panic!("{plan:?}")
    };
    let of = |streams: &Streams| plan.hosts[streams.host].sysctls.clone();
    assert_eq!(of(a)["net.ipv4.tcp_recovery"], "0");
    assert_eq!(of(a)["net.ipv4.tcp_early_retrans"], "0");
    assert_eq!(of(b)["net.ipv4.tcp_recovery"], "0");
    let how = a.bundling.unwrap();
    assert_eq!(how.options.max_packets, Some(3));
    assert!(how.companions.nodelay);
    assert_eq!(b.bundling, None);
}

#[test]
fn recovery_is_as_in_a_kernel_of_then_but_for_what_is_named() {
    let text = "\
duration = 1
[defaults]
mechanisms = { as-in = \"linux-3.12\" }
[group.a]
[group.b]
mechanisms = { tlp = false, early-retransmit = true }
[group.c]
mechanisms.as-in = \"today\"
";
    let plan = &load_text(text).unwrap().runs[0].plan;
    let of = |group: usize, name: &str| {
        let sysctls = &plan.hosts[plan.streams[group].host].sysctls;
        sysctls.get(&format!("net.ipv4.{name}")).cloned()
    };
    for (name, values) in [
        ("tcp_recovery", [Some("0"), Some("0"), None]),
        ("tcp_fack", [Some("1"), Some("1"), None]),
        ("tcp_early_retrans", [Some("3"), Some("0"), None]),
        ("tcp_early_retransmit", [Some("3"), Some("1"), None]),
        ("tcp_thin_linear_timeouts", [None, None, None]),
    ] {
        let set = [0, 1, 2].map(|group| of(group, name));
        assert_eq!(set, values.map(|it| it.map(str::to_owned)), "{name}");
    }
}

#[test]
fn connections_begin_with_the_window_of_the_kernel_of_then_unless_another_is_named() {
    let text = "\
duration = 1
[group.a.mechanisms]
as-in = \"linux-2.6.34\"
[group.b.mechanisms]
as-in = \"linux-2.6.34\"
initial-window = 1
[group.c.mechanisms]
as-in = \"linux-3.12\"
[group.d]
";
    let plan = &load_text(text).unwrap().runs[0].plan;
    let windows = plan.hosts.iter().map(|host| host.initial_window);
    assert_eq!(windows.collect::<Vec<_>>(), [Some(3), Some(1), None, None]);
    let shared = "duration = 1\n[host.h]\n[defaults]\nhost = \"h\"\n\
                  [group.a]\nmechanisms.initial-window = 2\n\
                  [group.b]\nmechanisms.initial-window = 3\n";
    let found = mistake(shared);
    assert!(
        found.contains("sets the initial window otherwise on host `h`"),
        "{found}"
    );
}

#[test]
fn what_is_said_in_two_places_is_a_mistake() {
    for (more, told) in [
        (
            "congestion = \"reno\"\nbundle.congestion = \"reno\"\n",
            "4:21: `congestion` is said in the group itself as well as here; keep one of them",
        ),
        (
            "max-packets = 1\nbundle.max-packets = 1\n",
            "4:22: `max-packets` is said in the group itself as well as here",
        ),
        (
            "mechanisms.linear-timeouts = true\nbundle.linear-timeouts = true\n",
            "4:26: `linear-timeouts` is said in `mechanisms` as well as here",
        ),
    ] {
        let found = mistake(&format!("{SMALL}{more}"));
        assert!(found.starts_with(told), "{more}: {found}");
        assert!(!found.contains('\n'), "{more}: {found}");
    }
    let thrice = "linear-timeouts = true\nmechanisms.linear-timeouts = true\n\
                  bundle.linear-timeouts = true\n";
    assert_eq!(mistake(&format!("{SMALL}{thrice}")).lines().count(), 2);
}

#[test]
fn what_would_fail_in_the_run_is_a_mistake_of_the_file() {
    for (more, told) in [
        (
            "pillion = \"on\"\n",
            "3:11: `pillion` asks a pillion that is not there; give `bundle` as well",
        ),
        (
            "[path]\nrtt = 200000\n",
            "4:7: `200000`; expected milliseconds, 0 to 120000",
        ),
        (
            "[path]\nrtt = 20\nback.jitter = 3\n",
            "3:1: path: backward.jitter is 3ms; it must be at most a quarter of the direction's",
        ),
        (
            "rtt = 10\n[path]\nrtt = 150\njitter = 3\n",
            "4:1: path: forward.jitter is 3ms; it must be at most a quarter of the direction's",
        ),
        (
            "rtt = 10\nback = { jitter = 2 }\n[path]\nrtt = 150\njitter = 1\n",
            "4:19: varies by more than a quarter of the delay, which is 5 ms each way",
        ),
        (
            "[path]\nreorder = \"60:5\"\nduplicate = 50\n",
            "3:1: path: forward.disorder.duplicate is 0.5; it must be 0 to 1, and with",
        ),
        (
            "[group.b]\nstreams = 45536\n",
            "2:2: 45537 streams in all; 45536 are the most",
        ),
    ] {
        let found = mistake(&format!("{SMALL}{more}"));
        assert!(found.starts_with(told), "{more}: {found}");
    }
}

#[test]
fn a_run_says_how_much_memory_it_takes() {
    let planned = load_text(&format!("memory = 2048\n{SMALL}")).unwrap();
    let text = planned.runs[0].run.to_text();
    assert_eq!(load_text(&text).unwrap().runs[0].run.memory, Some(2048));
    for wrong in ["63", "65537", "\"much\""] {
        let told = mistake(&format!("memory = {wrong}\n{SMALL}"));
        assert!(told.starts_with("1:10: "), "{told}");
        assert!(told.contains("expected MiB, 64 to 65536"), "{told}");
    }
}

#[test]
fn parameters_of_a_host_come_after_those_of_all() {
    let text = "\
duration = 1
sysctl.\"net.ipv4.tcp_sack\" = 0
receiver.sysctl.\"net.ipv4.tcp_sack\" = 1
[group.a]
mechanisms.tlp = false
";
    let plan = &load_text(text).unwrap().runs[0].plan;
    let all = plan.sysctls_of_hosts();
    assert_eq!(all["receiver"]["net.ipv4.tcp_sack"], "1");
    assert_eq!(all["a"]["net.ipv4.tcp_sack"], "0");
    assert_eq!(all["a"]["net.ipv4.tcp_early_retrans"], "0");
    assert!(!all["receiver"].contains_key("net.ipv4.tcp_early_retrans"));
}

#[test]
fn every_mistake_of_a_file_is_told() {
    let text = "\
duration = \"long\"
[defaults]
itt = \"weibull:1\"
start = 1
[path]
loss = 200
back = { loss = \"x\", jiter = 1 }
[group.a]
bundle = { thin = \"x\", rtt = 1, speed = 2 }
mechanisms = { tlp = 2, er = true }
kind = \"greedy\"
think = 3
";
    let found = mistake(text);
    let found_at: Vec<_> = found
        .lines()
        .map(|line| line.split(": ").next().unwrap())
        .collect();
    let expected = [
        "1:12", "3:7", "4:1", "6:8", "7:17", "7:22", "9:19", "9:30", "9:33", "10:22", "10:25",
        "12:9",
    ];
    assert_eq!(found_at, expected, "{found}");
}

#[test]
fn a_grid_that_would_take_forever_is_refused() {
    let values: Vec<_> = (0..400).map(|n| n.to_string()).collect();
    let values = values.join(", ");
    let told = mistake(&format!(
        "{SMALL}[grid]\npath.rtt = [{values}]\ngroup.thin.size = [{values}]\n"
    ));
    assert!(told.contains("160000 runs; 100000 are the most"), "{told}");
}

#[test]
fn what_is_in_a_file_becomes_part_of_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("rtt.csv", "value\n150\n30.5\n30.5\n");
    write("itt.csv", "quantile,value\n0,10\n0.5,30\n1,100\n");
    let keys = "rtt = \"table:rtt.csv\"\nitt = \"table:itt.csv\"\n";
    write("a.toml", &format!("{SMALL}{keys}"));
    let experiment = load(&folder.path().join("a.toml")).unwrap();
    let planned = &experiment.runs[0];
    let text = planned.run.to_text();
    assert!(text.contains("\"values:30.5,30.5,150\""), "{text}");
    let quantiles = "\"quantiles:0=10,0.5=30,1=100\"";
    assert!(text.contains(quantiles), "{text}");
    assert_eq!(load_text(&text).unwrap().runs[0].run, planned.run);
    write("writes.csv", "gap_ms,size\n0,48\n12.5,16\n");
    let replay = "kind = \"replay\"\nwrites = \"file:writes.csv\"\n";
    write("c.toml", &format!("{SMALL}{replay}"));
    let experiment = load(&folder.path().join("c.toml")).unwrap();
    let text = experiment.runs[0].run.to_text();
    assert!(text.contains("\"list:0=48,12.5=16\""), "{text}");
    write("b.toml", &format!("{SMALL}rtt = \"table:none.csv\"\n"));
    let told = load(&folder.path().join("b.toml")).unwrap_err().0;
    assert!(
        told.contains("b.toml:3:7: ") && told.contains("none.csv"),
        "{told}"
    );
}

#[test]
fn every_experiment_that_comes_with_pillion_is_read() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../experiments");
    let files = std::fs::read_dir(folder).unwrap().flatten();
    let files = files.map(|file| file.path());
    let is_experiment = |file: &PathBuf| file.extension().is_some_and(|end| end == "toml");
    let files: Vec<_> = files.filter(is_experiment).collect();
    assert!(!files.is_empty());
    for file in files {
        let experiment = load(&file).unwrap();
        assert!(!experiment.runs.is_empty(), "{}", file.display());
    }
}
