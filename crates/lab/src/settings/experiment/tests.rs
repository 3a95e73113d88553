use std::path::PathBuf;
use std::time::Duration;

use crate::traffic::ReadMode;

use super::*;

pub(super) fn load_text(text: &str) -> Result<Experiment, String> {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    let name = format!("{}:", file.path().display());
    load(file.path()).map_err(|error| error.0.replace(&name, ""))
}

pub(super) fn error_of(text: &str) -> String {
    load_text(text).unwrap_err()
}

pub(super) const SMALL: &str = "duration = 5\n[group.thin]\n";

#[test]
fn documented_example_is_read() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/lab/experiment.toml"
    );
    let experiment = load(FilePath::new(path)).unwrap();
    let names: Vec<_> = experiment
        .runs
        .iter()
        .map(|run| run.name.as_str())
        .collect();
    assert_eq!(names.len(), 24);
    assert_eq!(names[0], "plain,loss=0.5,itt=30ms:3ms,seed=1");
    assert_eq!(names[1], "plain,loss=0.5,itt=30ms:3ms,seed=2");
    assert_eq!(names[23], "mechanisms,loss=5,itt=100ms:10ms,seed=2");
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
    assert_eq!(run.receiver.behaviour.read_mode, ReadMode::Delayed(reads));
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
fn reproduction_example_has_claim_and_figure() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/lab/keystrokes.toml"
    );
    let experiment = load(FilePath::new(path)).unwrap();
    assert_eq!(experiment.runs.len(), 10);
    let reproduction = experiment.reproduction.expect("what is reproduced");
    assert_eq!(reproduction.claims.len(), 1);
    assert_eq!(reproduction.figure.len(), 1);
}

#[test]
fn single_run_file_keeps_run_and_plan() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/lab/experiment.toml"
    );
    for planned in load(FilePath::new(path)).unwrap().runs {
        let again = load_text(&planned.run.to_text()).unwrap().runs;
        assert_eq!(again.len(), 1);
        assert_eq!(again[0].run, planned.run);
        assert_eq!(again[0].plan, planned.plan);
    }
}

#[test]
fn minimal_experiment_has_group_and_duration() {
    let experiment = load_text(SMALL).unwrap();
    assert_eq!(experiment.runs.len(), 1);
    assert_eq!(experiment.runs[0].name.as_str(), "seed=1");
    assert_eq!(experiment.runs[0].plan.hosts[0].name, "thin");
}

#[test]
fn keys_with_equal_names_use_full_path() {
    let grid = "[group.b]\n[grid]\ngroup.thin.size = [1, 2]\ngroup.b.size = [3]\n";
    let runs = load_text(&format!("{SMALL}{grid}")).unwrap().runs;
    assert_eq!(
        runs[1].name.as_str(),
        "group.thin.size=2,group.b.size=3,seed=1"
    );
}

#[test]
fn stream_rtt_is_split_in_both_directions() {
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
fn group_loss_and_jitter_replace_path() {
    let text = format!(
        "{SMALL}loss = 0\nback = {{ loss = 3, jitter = 1 }}\n[path]\nrtt = 150\nloss = 2\n"
    );
    let plan = &load_text(&text).unwrap().runs[0].plan;
    let own: Vec<_> = plan.stream_emulations().collect();
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
fn loss_list_in_group_is_rejected() {
    let error = error_of(&format!("{SMALL}loss = [3]\n"));
    assert!(error.contains("list them in [path]"), "{error}");
    let error = error_of(&format!("{SMALL}loss = 3\n[path]\nloss = [3]\n"));
    assert!(error.contains("list all losses there"), "{error}");
}

#[test]
fn rtts_are_sampled_from_seed() {
    let sampled = |seed| {
        let text = format!("seed = {seed}\n{SMALL}rtt = \"200ms:5ms\"\n");
        load_text(&text).unwrap().runs[0].plan.streams[0]
            .delays
            .clone()
    };
    assert_eq!(sampled(1), sampled(1));
    assert_ne!(sampled(1), sampled(2));
}

#[test]
fn default_tables_are_merged_by_key() {
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
    assert!(how.tcp_options.nodelay);
    assert_eq!(b.bundling, None);
}

#[test]
fn older_kernel_recovery_yields_to_explicit_settings() {
    let text = "\
duration = 1
[defaults]
mechanisms = { like = \"linux-3.12\" }
[group.a]
[group.b]
mechanisms = { tlp = false, early-retransmit = true }
[group.c]
mechanisms.like = \"current\"
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
fn initial_window_follows_older_kernel_unless_set() {
    let text = "\
duration = 1
[group.a.mechanisms]
like = \"linux-2.6.34\"
[group.b.mechanisms]
like = \"linux-2.6.34\"
initial-window = 1
[group.c.mechanisms]
like = \"linux-3.12\"
[group.d]
";
    let plan = &load_text(text).unwrap().runs[0].plan;
    let windows = plan.hosts.iter().map(|host| host.initial_window);
    assert_eq!(windows.collect::<Vec<_>>(), [Some(3), Some(1), None, None]);
    let shared = "duration = 1\n[host.h]\n[defaults]\nhost = \"h\"\n\
                  [group.a]\nmechanisms.initial-window = 2\n\
                  [group.b]\nmechanisms.initial-window = 3\n";
    let found = error_of(shared);
    assert!(
        found.contains("sets the initial window differently on host `h`"),
        "{found}"
    );
}

#[test]
fn memory_is_stored_in_run_file() {
    let planned = load_text(&format!("memory = 2048\n{SMALL}")).unwrap();
    let text = planned.runs[0].run.to_text();
    assert_eq!(load_text(&text).unwrap().runs[0].run.memory, Some(2048));
    for invalid in ["63", "65537", "\"much\""] {
        let error = error_of(&format!("memory = {invalid}\n{SMALL}"));
        assert!(error.starts_with("1:10: "), "{error}");
        assert!(error.contains("expected MiB, 64 to 65536"), "{error}");
    }
}

#[test]
fn host_sysctls_override_common_ones() {
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
fn table_files_are_embedded_in_run() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("rtt.csv", "value\n150\n30.5\n30.5\n");
    write("itt.csv", "quantile,value\n0,10\n0.5,30\n1,100\n");
    let keys = "rtt = \"table:rtt.csv\"\nitt = \"table:itt.csv\"\n";
    write("a.toml", &format!("{SMALL}{keys}"));
    let experiment = load(&folder.path().join("a.toml")).unwrap();
    let planned = &experiment.runs[0];
    let text = planned.run.to_text();
    assert!(text.contains("\"values:30.5ms,30.5ms,150ms\""), "{text}");
    let quantiles = "\"quantiles:0=10ms,0.5=30ms,1=100ms\"";
    assert!(text.contains(quantiles), "{text}");
    assert_eq!(load_text(&text).unwrap().runs[0].run, planned.run);
    write("writes.csv", "gap_ms,size\n0,48\n12.5,16\n");
    let replay = "kind = \"replay\"\nwrites = \"file:writes.csv\"\n";
    write("c.toml", &format!("{SMALL}{replay}"));
    let experiment = load(&folder.path().join("c.toml")).unwrap();
    let text = experiment.runs[0].run.to_text();
    assert!(text.contains("\"list:0ms=48,12.5ms=16\""), "{text}");
    write("b.toml", &format!("{SMALL}rtt = \"table:none.csv\"\n"));
    let error = load(&folder.path().join("b.toml")).unwrap_err().0;
    assert!(
        error.contains("b.toml:3:7: ") && error.contains("none.csv"),
        "{error}"
    );
}

#[test]
fn trace_of_a_recorded_link_is_stored_in_the_run() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("lte.down"), "0\n2\n2\n6\n").unwrap();
    let file = folder.path().join("a.toml");
    let text = "[bottleneck]\ntrace = \"file:lte.down\"\nback.trace = \"list:1\"\n\
                limit = \"0.5 BDP\"\n[path]\nrtt = 100\n";
    std::fs::write(&file, format!("{SMALL}kind = \"greedy\"\n{text}")).unwrap();
    let planned = load(&file).unwrap().runs.remove(0);
    let run = planned.run.to_text();
    assert!(run.contains("trace = \"list:0,2x2,4\""), "{run}");
    let path = planned.plan.path();
    // 4 opportunities in 6 ms are 8 Mbit/s: half of 100,000 B are 34 packets.
    assert_eq!(planned.plan.bottleneck.mean_bps(), Some(8_000_000));
    assert_eq!(path.forward.queue_packets, 34);
    let traces = [&path.forward, &path.backward].map(|it| it.trace.clone().unwrap().to_string());
    assert_eq!(traces, ["list:0,2x2,4", "list:1"]);
    assert_eq!(path.backward.queue_packets, 1000);

    std::fs::write(folder.path().join("lte.down"), "5\n4\n").unwrap();
    let error = load(&file).unwrap_err().0;
    assert!(
        error.contains("a.toml:5:9: ") && error.contains("lte.down:2: 4 ms after 5 ms"),
        "{error}"
    );
}

#[test]
fn every_shipped_experiment_is_read() {
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
