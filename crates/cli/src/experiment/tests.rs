use std::time::Duration;

use pillion_lab::experiment::{Discipline, Limit, Loss, RoundTrips, Shaper};

use super::*;

fn load_text(text: &str) -> Result<Experiment, String> {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    let name = format!("{}:", file.path().display());
    load(file.path()).map_err(|error| error.0.replace(&name, ""))
}

fn mistake(text: &str) -> String {
    load_text(text).unwrap_err()
}

const SMALL: &str = "duration = 5\n[group.thin]\n";

#[test]
fn the_example_in_the_documentation_is_read_whole() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/experiment.toml");
    let experiment = load(Path::new(path)).unwrap();
    let names: Vec<_> = experiment.runs.iter().map(|run| &run.name[..]).collect();
    assert_eq!(names.len(), 24);
    assert_eq!(names[0], "plain,loss=0.5,itt=30:3,seed=1");
    assert_eq!(names[1], "plain,loss=0.5,itt=30:3,seed=2");
    assert_eq!(names[23], "mechanisms,loss=5,itt=100:10,seed=2");
    let run = &experiment.runs[23].run;
    assert_eq!(run.seed, 2);
    assert_eq!(run.duration, Duration::from_secs(60));
    assert_eq!(run.rtt(), Duration::from_millis(150));
    assert_eq!(run.bottleneck.rate_bps, Some(5_000_000));
    assert_eq!(run.bottleneck.shaper, Shaper::Htb);
    assert_eq!(run.bottleneck.queue.discipline, Discipline::Pfifo);
    assert_eq!(run.bottleneck.queue.limit, Some(Limit::Packets(63)));
    assert_eq!(run.forward.loss, Some(Loss::Uniform(0.05)));
    assert_eq!(run.sysctls["net.ipv4.tcp_retrans_collapse"], "0");
    let thin = &run.streams[1];
    assert_eq!(thin.traffic.name, "thin");
    assert_eq!(thin.traffic.streams, 20);
    let host = &run.hosts[thin.host];
    assert_eq!(host.sysctls["net.ipv4.tcp_thin_linear_timeouts"], "1");
    assert_eq!(host.sysctls["net.ipv4.tcp_early_retrans"], "0");
    let greedy = &run.streams[0];
    assert_eq!(
        greedy.round_trips,
        Some(RoundTrips::Steps {
            first: Duration::from_millis(100),
            step: Duration::from_millis(5)
        })
    );
    let bundled = experiment.runs.iter().filter(|planned| {
        let thin = &planned.run.streams[1];
        thin.bundling.is_some()
    });
    assert_eq!(bundled.count(), 8);
}

#[test]
fn a_run_alone_is_a_file_that_says_the_same() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/experiment.toml");
    for planned in load(Path::new(path)).unwrap().runs {
        let again = load_text(&planned.text).unwrap().runs;
        assert_eq!(again.len(), 1);
        assert_eq!(again[0].run, planned.run);
        assert_eq!(again[0].text, planned.text);
    }
}

#[test]
fn one_group_and_a_duration_are_an_experiment() {
    let experiment = load_text(SMALL).unwrap();
    assert_eq!(experiment.runs.len(), 1);
    assert_eq!(experiment.runs[0].name, "seed=1");
    assert_eq!(experiment.runs[0].run.hosts[0].name, "thin");
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
        ("bundle = { thin = \"x\" }\n", "3:19: invalid value 'x'"),
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
            "[bottleneck]\nrate = 0\n",
            "4:8: `0`; expected Mbit/s above 0",
        ),
        (
            "[bottleneck]\nlimit = \"1 kB\"\n",
            "4:9: `1 kB`; expected packets",
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
            "3:2: unknown key `bottle`; known: title, duration, seed, repetitions, ",
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
fn a_grid_that_would_take_forever_is_refused() {
    let values: Vec<_> = (0..400).map(|n| n.to_string()).collect();
    let values = values.join(", ");
    let told = mistake(&format!(
        "{SMALL}[grid]\npath.rtt = [{values}]\ngroup.thin.size = [{values}]\n"
    ));
    assert!(told.contains("160000 runs; 100000 are the most"), "{told}");
}

#[test]
fn a_table_in_a_file_becomes_part_of_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("rtt.csv", "value\n150\n30.5\n30.5\n");
    write("itt.csv", "quantile,value\n0,10\n0.5,30\n1,100\n");
    let keys = "rtt = \"table:rtt.csv\"\nitt = \"table:itt.csv\"\n";
    write("a.toml", &format!("{SMALL}{keys}"));
    let experiment = load(&folder.path().join("a.toml")).unwrap();
    let planned = &experiment.runs[0];
    assert!(
        planned.text.contains("\"values:30.5,30.5,150\""),
        "{}",
        planned.text
    );
    let quantiles = "\"quantiles:0=10,0.5=30,1=100\"";
    assert!(planned.text.contains(quantiles), "{}", planned.text);
    assert_eq!(load_text(&planned.text).unwrap().runs[0].run, planned.run);
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
    let files: Vec<_> = files.map(|file| file.path()).collect();
    assert!(!files.is_empty());
    for file in files {
        let experiment = load(&file).unwrap();
        assert!(!experiment.runs.is_empty(), "{}", file.display());
    }
}
