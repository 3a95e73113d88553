//! Checks that a run's own file is read as the same run.

use super::tests::{SMALL, load_text};
use super::*;
use pillion_cli::settings::document::known::keys;

/// Each key of an experiment's file, with values of each form.
const VALUES: &[&str] = &[
    "[kernel]\nticks-per-second = 250\nhigh-resolution-timers = false\n",
    "[bottleneck]\nrate = 0.5\nshaper = \"tbf\"\nburst = 3000\n",
    "[bottleneck]\nqueue = \"red\"\nlimit = \"46875 B\"\noptions = \"avpkt 500  min 5000\"\n",
    "[bottleneck]\nrate = 5\nlimit = \"0.5 BDP\"\nqueue = \"fq_codel\"\n[path]\nrtt = 150\n",
    "[bottleneck]\nlimit = 63\n",
    "[bottleneck]\ntrace = \"list:0,5x2\"\nlimit = 63\nback.trace = \"list:7\"\n",
    "[bottleneck]\nrate = 5\nback = { rate = 0.5, limit = 9, shaper = \"tbf\", burst = 3000 }\n",
    "[path]\nrtt = 33.3\njitter = 0.7\nloss = 0.07\nreorder = \"1.1:5.5\"\nduplicate = 0.3\n",
    "[path]\nloss = \"gilbert-elliott:1:30:50:0.1\"\nback.loss = [11, 10, 11]\n",
    "[path]\nloss = \"steps:0=0,20=10,60.5=1\"\n",
    "[path]\nrtt = 8\nback = { jitter = 1, loss = 3, reorder = \"2:8\", duplicate = 7 }\n",
    "[receiver]\nread-delay = 12.5\necho = true\n",
    "[receiver]\nread-rate = 3000\nresponse-every = 10\nresponse-size = 7\n",
    "[receiver]\ndelayed-acks = false\nmechanisms = { rack = false, initial-window = 2 }\n",
    "[receiver.sysctl]\n\"net.ipv4.tcp_sack\" = 0\n",
    "host = \"h\"\n[host.h.sysctl]\n\"net.ipv4.tcp_sack\" = 0\n",
    "[sysctl]\n\"net.ipv4.tcp_sack\" = 0\n\"net.ipv4.tcp_rmem\" = \"4096 8192 16384\"\n",
    "[sysctl]\n\"net.ipv4.tcp_sack\" = \"01\"\n",
    "[measure]\ntraces = false\nsockets = false\nqueue = false\nrecords = false\n",
    "[measure]\ntraces = 1500\nsockets = 12.5\n",
    "host = \"h\"\n[host.h]\nrate = 2.5\nfq = true\n",
    "host = \"h\"\n[host.h]\nrate = 2.5\ndelay = 3.5\nmechanisms.early-retransmit = \"delayed\"\n",
    "streams = 7\nkind = \"isochronous\"\nitt = 0.3\nsize = 77\nmessages = 9\nramp-up = \"25ms:5ms\"\n",
    "kind = \"request-response\"\nthink = \"pareto:300ms:1.5\"\nsize = \"lognormal:90:30\"\nresponse-size = 3\n",
    "kind = \"flow\"\nstreams = 9\nitt = \"exponential:50ms\"\nsize = 4344\nmessages = 2\n",
    "kind = \"datagrams\"\nrate = 0.25\nsize = 77\n",
    "kind = \"replay\"\nwrites = \"list:12.5ms=120,0ms=1\"\n",
    "itt = \"exponential:500ms\"\nsize = \"values:1,2,2,7\"\nstart = 1.5\nduration = 0.25\n",
    "start = 1.5\nconnects-at-start = true\nsyn-retries = 2\nreconnect = true\n",
    "profile = \"anarchy-online\"\nnagle = true\nlinear-timeouts = true\ncongestion = \"cubic\"\n",
    "pillion = \"off\"\nmax-packets = 3\nbundle = true\n",
    "rtt = 12.5\n",
    "loss = 0.07\njitter = 0\nback = { loss = \"gilbert-elliott:1:30\", jitter = 0 }\n",
    "loss = 0\nback.loss = 3\n[path]\nloss = 2\n",
    "rtt = \"100ms+5ms\"\n",
    "rtt = \"normal:200ms:50ms\"\n",
    "mechanisms = { tlp = false, rack = true }\n",
    "bundle = { thin = \"dpifl:0.3\", rto-min = \"62.5ms\", reaction = \"none\" }\n",
];

/// Returns [`VALUES`], and each bundling option of the example rules.
fn values() -> Vec<String> {
    let rules = read("reference/rules.toml");
    let known = keys::<pillion_cli::settings::Bundling>();
    let of_bundling = rules.lines().filter(|line| {
        let key = line.split(" = ").next();
        known.iter().any(|known| Some(known.as_str()) == key)
    });
    // These keys are rejected without another one.
    let bundles = of_bundling.map(|line| match line.split(" = ").next() {
        Some("target" | "deadline" | "max-overhead") => {
            format!("bundle.level = \"auto\"\nbundle.{line}\n")
        }
        Some("copies-when" | "copy-delay") => format!("bundle.copies = 1\nbundle.{line}\n"),
        _ => format!("bundle.{line}\n"),
    });
    let all = VALUES.iter().map(ToString::to_string);
    all.chain(bundles).collect()
}

fn read(manual: &str) -> String {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/");
    std::fs::read_to_string(format!("{folder}{manual}")).unwrap()
}

#[test]
fn run_file_is_read_as_same_run() {
    for values in values() {
        let planned = load_text(&format!("{SMALL}{values}"))
            .unwrap()
            .runs
            .remove(0);
        let text = planned.run.to_text();
        let again = load_text(&text).unwrap().runs.remove(0);
        assert_eq!(again.run, planned.run, "{text}");
        assert_eq!(again.plan, planned.plan, "{text}");
        assert_eq!(again.run.to_text(), text);
    }
}

#[test]
fn every_key_is_documented_and_tested() {
    let manual = ["lab/experiments.md", "lab/traffic.md", "reference/rules.md"]
        .map(read)
        .concat();
    let tried = values().concat() + SMALL + "title = seed = memory = ";
    let tables = [
        keys::<Run>(),
        keys::<Kernel>(),
        keys::<Bottlenecks>(),
        keys::<Path>(),
        keys::<PathDirection>(),
        keys::<PathOverride>(),
        keys::<Receiver>(),
        keys::<Measure>(),
        keys::<Host>(),
        keys::<Group>(),
        keys::<pillion_cli::settings::Bundling>(),
    ];
    for key in tables.concat() {
        // A group is named by its table.
        if key == "name" {
            continue;
        }
        let is_there = |text: &str, forms: &[&str]| {
            let mut forms = forms.iter().map(|form| form.replace("KEY", &key));
            forms.any(|form| text.contains(&form))
        };
        assert!(
            is_there(&manual, &["`KEY`", "`[KEY", "`[path.KEY]`"]),
            "{key}"
        );
        assert!(is_there(&tried, &["KEY = ", "[KEY", "KEY."]), "{key}");
    }
}

#[test]
fn every_queue_discipline_is_documented() {
    let error = toml::from_str::<Bottleneck>("queue = \"none\"").unwrap_err();
    let (_, known) = error.message().split_once("one of ").unwrap();
    let known: Vec<_> = known
        .split(", ")
        .map(|name| name.trim_matches('`'))
        .collect();
    assert!(known.contains(&"fq_codel"), "{known:?}");
    let manual = read("lab/experiments.md");
    for name in known {
        assert!(manual.contains(&format!("`\"{name}\"`")), "{name}");
    }
}
