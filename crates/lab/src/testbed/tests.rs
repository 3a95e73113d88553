//! A run for the tests of parts.

use crate::settings::experiment::Plan;

/// A plan of two thin streams and three greedy ones from a host each, 5 Mbit/s, 150 ms.
pub(crate) fn plan() -> Plan {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run.toml");
    let text = "\
duration = 1
bottleneck = { rate = 5, limit = 63 }
path.rtt = 150
group.a-thin = { streams = 2, itt = 30 }
group.b-greedy = { streams = 3, kind = \"greedy\" }
";
    std::fs::write(&file, text).unwrap();
    crate::settings::experiment::load_run(&file).unwrap().plan
}
